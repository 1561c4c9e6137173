//! What stands at a step's ends and between its contractions: embedding, rotation, the cache's writes, copies, the greatest logit.

use hanzo_fusion::graph::RopeStyle;
use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_fusion::kernels::argmax::argmax;
use hanzo_fusion::kernels::copy::{CopyRows, WORKGROUP};
use hanzo_fusion::kernels::embed::{GROUPS, embed};
use hanzo_fusion::kernels::kv::{KvShape, NO_SLOT, kv_write};
use hanzo_fusion::kernels::layout::Layout;
use hanzo_fusion::kernels::matmul::float::Float;
use hanzo_fusion::kernels::rope::RopeNorm;
use hanzo_fusion::kernels::top_k::top_k;
use hanzo_fusion::step::{BLOCK_TOKENS, KvType};
use hanzo_quant::canonical::{GROUP, TINY};
use hanzo_quant::{bf16, f16};

use crate::harness::{Check, Rng, bits, everywhere, formats, interpreted, layout, planes, vulkan_agrees};
use crate::matmul::W;
use crate::rows::rms_norm;

/// Two rows of a table of random bytes.
pub(crate) fn embedding(layout: Layout, subgroup: u32, rng: &mut Rng) -> Check {
    let format = layout.format;
    let (n_vocab, blocks) = (4, 3);
    let n_in = blocks * format.elems;
    let raw = rng.bytes(n_vocab * blocks * format.bytes);
    let ids = [3u32, 0];
    let mut want = vec![0f32; ids.len() * n_in];
    for (&id, y) in ids.iter().zip(want.chunks_mut(n_in)) {
        (format.decode)(&raw[id as usize * blocks * format.bytes..][..blocks * format.bytes], y);
    }
    let mut buffers = planes(W, &layout, &raw);
    buffers.push(("ids", BufferData::of(ids)));
    buffers.push(("y", BufferData::empty(want.len())));
    let n_groups = (n_in / GROUP) as u32;
    let params = [("n_groups", n_groups), ("n_vocab", n_vocab as u32)];
    let grid = [n_groups.div_ceil(GROUPS), ids.len() as u32, 1];
    Check::new(&embed(layout, subgroup).unwrap(), grid, buffers, &params, vec![("y", bits(&want))])
}

#[test]
fn embed_numeric() {
    let checks = |subgroup| -> Vec<Check> {
        let mut rng = Rng(30);
        formats().map(|(_, layout)| embedding(layout, subgroup, &mut rng)).collect()
    };
    interpreted(&checks);
    vulkan_agrees(0, checks);
    everywhere("embed", 0, |subgroup| {
        let mut rng = Rng(30);
        let names = ["Q4_K", "Q6_K", "IQ2_S", "Q8_0", "MXFP4"];
        names.map(|name| embedding(layout(name), subgroup, &mut rng)).into()
    });
}

fn rotate(style: RopeStyle, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for i in 0..half {
        let (a, b) = match style {
            RopeStyle::Halves => (i, i + half),
            RopeStyle::Pairs => (2 * i, 2 * i + 1),
        };
        let (first, second) = (x[a], x[b]);
        x[a] = first * cos[i] + second * -sin[i];
        x[b] = second * cos[i] + first * sin[i];
    }
}

#[test]
fn rope_norm_positions_numeric() {
    everywhere("rope", 6, |subgroup| {
        let mut rng = Rng(31);
        let (tokens, heads, positions) = (3usize, 2usize, 9usize);
        let mut checks = Vec::new();
        for style in [RopeStyle::Halves, RopeStyle::Pairs] {
            for (norm, head_dim, n_rot) in [(true, 128usize, 128usize), (false, 80, 32), (true, 36, 12)] {
                let x = rng.floats(tokens * heads * head_dim);
                let weight = rng.floats(head_dim);
                let (cos, sin) = (rng.floats(positions * n_rot / 2), rng.floats(positions * n_rot / 2));
                let at = [4u32, 0, 8];
                let mut want = x.clone();
                for (row, head) in want.chunks_mut(head_dim).enumerate() {
                    if norm {
                        head.copy_from_slice(&rms_norm(head, &weight, 1e-6));
                    }
                    let table = at[row / heads] as usize * n_rot / 2..;
                    rotate(style, head, &cos[table.clone()][..n_rot / 2], &sin[table][..n_rot / 2]);
                }
                let plan = RopeNorm { style, norm, head_dim: head_dim as u32, n_rot: n_rot as u32 };
                let mut buffers = vec![
                    ("x", BufferData::of_f32(&x)),
                    ("positions", BufferData::of(at)),
                    ("cos", BufferData::of_f32(&cos)),
                    ("sin", BufferData::of_f32(&sin)),
                    ("y", BufferData::empty(x.len())),
                ];
                if norm {
                    buffers.push(("weight", BufferData::of_f32(&weight)));
                }
                let params = [("eps", 1e-6f32.to_bits())];
                let grid = [heads as u32, tokens as u32, 1];
                checks.push(Check::new(
                    &plan.kernel(subgroup).unwrap(),
                    grid,
                    buffers,
                    &params,
                    vec![("y", bits(&want))],
                ));
            }
        }
        checks
    });
}

/// The cache's element, its bits as memory holds them, and the scale of a head.
pub(crate) fn stored(kv_type: KvType, head: &[f32]) -> (Vec<u32>, f32) {
    let limit = f32::from(f16::MAX);
    match kv_type {
        KvType::F32 => (bits(head), 1.0),
        KvType::F16 => {
            let half = |x: &f32| u32::from(f16::from_f32(x.clamp(-limit, limit)).to_bits());
            (head.iter().map(half).collect(), 1.0)
        }
        KvType::Int8 => {
            let amax = head.iter().fold(0f32, |m, x| m.max(x.abs()));
            let (scale, inv) = match amax {
                a if !a.is_finite() => (f32::NAN, 0.0),
                a if a < TINY => (0.0, 0.0),
                a => (a / 127.0, 127.0 / a),
            };
            let code = |x: &f32| u32::from(((x * inv).round_ties_even() as i8) as u8);
            (head.iter().map(code).collect(), scale)
        }
    }
}

#[test]
fn kv_write_numeric() {
    // A scale is a quotient; a code is one multiplied and rounded, so it may not differ at all.
    everywhere("kv_write", 3, |subgroup| {
        let mut rng = Rng(32);
        let (heads, k_dim, v_dim, blocks) = (2usize, 40usize, 24usize, 3usize);
        let slots = [17u32, NO_SLOT, 0, 47];
        let one = |kv_type: KvType| {
            let mut k = rng.floats(slots.len() * heads * k_dim);
            let v = rng.floats(slots.len() * heads * v_dim);
            // A head too small to count, and values that no half holds.
            k[..k_dim].fill(1e-38);
            k[k_dim] = if kv_type == KvType::Int8 { f32::INFINITY } else { 1e6 };
            let n = blocks * heads * BLOCK_TOKENS;
            let mut keys = vec![None; n * k_dim];
            let mut values = vec![None; n * v_dim];
            let (mut k_scales, mut v_scales) = (vec![None; n], vec![None; n]);
            for (t, &slot) in slots.iter().enumerate().filter(|(_, s)| **s != NO_SLOT) {
                for h in 0..heads {
                    let record = slot as usize / BLOCK_TOKENS * heads + h;
                    let place = slot as usize % BLOCK_TOKENS;
                    let (words, scale) = stored(kv_type, &k[(t * heads + h) * k_dim..][..k_dim]);
                    for (d, w) in words.into_iter().enumerate() {
                        keys[(record * k_dim + d) * BLOCK_TOKENS + place] = Some(w);
                    }
                    k_scales[record * BLOCK_TOKENS + place] = Some(scale.to_bits());
                    let (words, scale) = stored(kv_type, &v[(t * heads + h) * v_dim..][..v_dim]);
                    for (d, w) in words.into_iter().enumerate() {
                        values[(record * BLOCK_TOKENS + place) * v_dim + d] = Some(w);
                    }
                    v_scales[record * BLOCK_TOKENS + place] = Some(scale.to_bits());
                }
            }
            let shape =
                KvShape { kv_type, n_kv_heads: heads as u32, k_dim: k_dim as u32, v_dim: v_dim as u32 };
            let mut buffers = vec![
                ("k", BufferData::of_f32(&k)),
                ("v", BufferData::of_f32(&v)),
                ("slots", BufferData::of(slots)),
                ("keys", BufferData::empty(keys.len())),
                ("values", BufferData::empty(values.len())),
            ];
            let mut want = vec![("keys", keys), ("values", values)];
            if kv_type == KvType::Int8 {
                buffers.push(("key_scales", BufferData::empty(n)));
                buffers.push(("value_scales", BufferData::empty(n)));
                want.push(("key_scales", k_scales));
                want.push(("value_scales", v_scales));
            }
            let kernel = kv_write(shape, subgroup).unwrap();
            let grid = [heads as u32, slots.len() as u32, 1];
            Check { want, ..Check::new(&kernel, grid, buffers, &[], vec![]) }
        };
        [KvType::F16, KvType::Int8, KvType::F32].map(one).into()
    });
}

#[test]
fn copies_numeric() {
    everywhere("copies", 0, |subgroup| {
        let mut rng = Rng(33);
        let x = rng.floats(5 * 300);
        let floats = [Float::F32, Float::F16, Float::Bf16];
        let mut checks = Vec::new();
        for (from, to) in floats.into_iter().flat_map(|from| floats.map(|to| (from, to))) {
            let store = |float, v: f32| match float {
                Float::F32 => v.to_bits(),
                Float::F16 => f16::from_f32(v).to_bits().into(),
                Float::Bf16 => bf16::from_f32(v).to_bits().into(),
            };
            let load = |float, w: u32| match float {
                Float::F32 => f32::from_bits(w),
                Float::F16 => f16::from_bits(w as u16).into(),
                Float::Bf16 => bf16::from_bits(w as u16).into(),
            };
            let source: Vec<u32> = x.iter().map(|&v| store(from, v)).collect();
            for (rows, n) in [(None, 299usize), (Some([4u32, 1, 4]), 257)] {
                let mut y = vec![None; 3 * 310];
                for r in 0..3 {
                    let row = rows.map_or(r, |rows| rows[r] as usize);
                    for c in 0..n {
                        y[r * 310 + 7 + c] = Some(store(to, load(from, source[row * 300 + 1 + c])));
                    }
                }
                let kernel = CopyRows { from, to, gather: rows.is_some() }.kernel(subgroup).unwrap();
                let mut buffers =
                    vec![("x", BufferData::of(source.clone())), ("y", BufferData::empty(y.len()))];
                if let Some(rows) = rows {
                    buffers.push(("rows", BufferData::of(rows)));
                }
                let params = [
                    ("n", n as u32),
                    ("x_stride", 300),
                    ("x_start", 1),
                    ("y_stride", 310),
                    ("y_start", 7),
                    ("n_rows", 5),
                ];
                let grid = [(n as u32).div_ceil(WORKGROUP), 3, 1];
                checks.push(Check {
                    want: vec![("y", y)],
                    ..Check::new(&kernel, grid, buffers, &params, vec![])
                });
            }
        }
        checks
    });
}

#[test]
fn argmax_numeric() {
    everywhere("argmax", 0, |subgroup| {
        let mut rng = Rng(34);
        [1usize, 255, 256, 1000]
            .map(|n| {
                let mut x = rng.floats(4 * n);
                // Equals; nothing but NaN; the last of all.
                x[n / 2] = 2.0;
                x[n - 1] = 2.0;
                x[n..2 * n].fill(f32::NAN);
                x[3 * n - 1] = 3.0;
                let key = |v: f32| if v.is_nan() { f32::NEG_INFINITY } else { v };
                let best = |row: &[f32]| {
                    (0..row.len()).fold(0, |b, i| if key(row[i]) > key(row[b]) { i } else { b }) as u32
                };
                let want: Vec<u32> = x.chunks(n).map(best).collect();
                let buffers = vec![("x", BufferData::of_f32(&x)), ("ids", BufferData::empty(4))];
                Check::new(
                    &argmax(subgroup).unwrap(),
                    [4, 1, 1],
                    buffers,
                    &[("n", n as u32)],
                    vec![("ids", want)],
                )
            })
            .into()
    });
}

#[test]
fn top_k_numeric() {
    everywhere("top_k", 0, |subgroup| {
        let mut rng = Rng(35);
        [(1usize, 1usize), (300, 8), (1000, 40), (257, 257)]
            .map(|(n, best)| {
                let mut x = rng.floats(3 * n);
                // A row of equals but for a few; one with NaN, infinities and both zeros.
                x[n..2 * n].fill(0.25);
                x[n + n / 2] = 0.5;
                for (i, v) in [f32::NAN, f32::INFINITY, -0.0, 0.0, f32::NEG_INFINITY].into_iter().enumerate()
                {
                    x[2 * n + (i * 7) % n] = v;
                }
                let (mut ids, mut values) = (Vec::new(), Vec::new());
                for row in x.chunks(n) {
                    let key = |i: usize| if row[i].is_nan() { f32::NEG_INFINITY } else { row[i] };
                    let mut order: Vec<usize> = (0..n).collect();
                    order.sort_by(|&a, &b| key(b).partial_cmp(&key(a)).unwrap());
                    ids.extend(order[..best].iter().map(|&i| i as u32));
                    values.extend(order[..best].iter().map(|&i| row[i].to_bits()));
                }
                let kernel = top_k(best as u32, subgroup).unwrap();
                let buffers = vec![
                    ("x", BufferData::of_f32(&x)),
                    ("ids", BufferData::empty(ids.len())),
                    ("values", BufferData::empty(ids.len())),
                ];
                let want = vec![("ids", ids), ("values", values)];
                Check::new(&kernel, [3, 1, 1], buffers, &[("n", n as u32)], want)
            })
            .into()
    });
}
