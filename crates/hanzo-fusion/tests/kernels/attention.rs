//! Paged attention, split and not, against the order of the CPU's written out for one row.

use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_fusion::kernels::attention::{Attention, CHUNK, combine};
use hanzo_fusion::kernels::kv::KvShape;
use hanzo_fusion::step::{BLOCK_TOKENS, KvType};
use hanzo_quant::{f16, math};

use crate::harness::{Check, Rng, bits, everywhere};
use crate::tokens::stored;

#[derive(Clone, Copy)]
struct Problem {
    kv_type: KvType,
    n_heads: usize,
    n_kv: usize,
    k_dim: usize,
    v_dim: usize,
    window: Option<u32>,
    cap: Option<f32>,
    sinks: bool,
    /// Keys and query tokens of each sequence.
    sequences: &'static [(usize, usize)],
}

const PLAIN: Problem = Problem {
    kv_type: KvType::F16,
    n_heads: 2,
    n_kv: 1,
    k_dim: 32,
    v_dim: 32,
    window: None,
    cap: None,
    sinks: false,
    sequences: &[(1, 1), (70, 1)],
};

/// A cached head: elements without scale, and the scale.
type Head = (Vec<f32>, f32);

/// A step with its cache.
struct Setup {
    p: Problem,
    q: Vec<f32>,
    sinks: Vec<f32>,
    /// `[sequence][key][kv head]`.
    keys: Vec<Vec<Vec<Head>>>,
    values: Vec<Vec<Vec<Head>>>,
    buffers: Vec<(&'static str, BufferData)>,
    max_blocks: usize,
    positions: Vec<u32>,
    sequence_of: Vec<u32>,
}

/// Result of a chunk: greatest score, sum of weights, weighted values.
type Part = (f32, f32, Vec<f32>);

impl Setup {
    fn new(p: Problem, rng: &mut Rng) -> Self {
        let blocks_of = |ctx: usize| ctx.div_ceil(BLOCK_TOKENS);
        let n_blocks: usize = p.sequences.iter().map(|s| blocks_of(s.0)).sum();
        let max_blocks = p.sequences.iter().map(|s| blocks_of(s.0)).max().unwrap();
        let mut table = vec![u32::MAX; max_blocks * p.sequences.len()];
        let n = n_blocks * p.n_kv * BLOCK_TOKENS;
        let (mut k_words, mut v_words) = (vec![None; n * p.k_dim], vec![None; n * p.v_dim]);
        let (mut k_scales, mut v_scales) = (vec![None; n], vec![None; n]);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let (mut positions, mut sequence_of) = (Vec::new(), Vec::new());
        let mut next = n_blocks;
        for (s, &(ctx, tokens)) in p.sequences.iter().enumerate() {
            let (mut seq_k, mut seq_v) = (Vec::new(), Vec::new());
            let gone = p.window.map_or(0, |w| (ctx - tokens + 1).saturating_sub(w as usize));
            for t in 0..ctx {
                if t % BLOCK_TOKENS == 0 {
                    // Blocks lie backwards; those behind the window are no more.
                    next -= 1;
                    let entry = &mut table[s * max_blocks + t / BLOCK_TOKENS];
                    *entry = if t + BLOCK_TOKENS <= gone { u32::MAX } else { next as u32 };
                }
                let (mut row_k, mut row_v) = (Vec::new(), Vec::new());
                for h in 0..p.n_kv {
                    let (record, place) = (next * p.n_kv + h, t % BLOCK_TOKENS);
                    let (words, scale) = stored(p.kv_type, &rng.floats(p.k_dim));
                    for (d, &w) in words.iter().enumerate() {
                        k_words[(record * p.k_dim + d) * BLOCK_TOKENS + place] = Some(w);
                    }
                    k_scales[record * BLOCK_TOKENS + place] = Some(scale.to_bits());
                    row_k.push((floats(p.kv_type, &words), scale));
                    let (words, scale) = stored(p.kv_type, &rng.floats(p.v_dim));
                    for (d, &w) in words.iter().enumerate() {
                        v_words[(record * BLOCK_TOKENS + place) * p.v_dim + d] = Some(w);
                    }
                    v_scales[record * BLOCK_TOKENS + place] = Some(scale.to_bits());
                    row_v.push((floats(p.kv_type, &words), scale));
                }
                seq_k.push(row_k);
                seq_v.push(row_v);
            }
            keys.push(seq_k);
            values.push(seq_v);
            positions.extend((ctx - tokens..ctx).map(|p| p as u32));
            sequence_of.extend((0..tokens).map(|_| s as u32));
        }
        let q = rng.floats(positions.len() * p.n_heads * p.k_dim).iter().map(|x| 4.0 * x).collect::<Vec<_>>();
        let sinks = rng.floats(p.n_heads);
        let mut buffers = vec![
            ("q", BufferData::of_f32(&q)),
            ("keys", BufferData { words: k_words }),
            ("values", BufferData { words: v_words }),
            ("positions", BufferData::of(positions.clone())),
            ("sequences", BufferData::of(sequence_of.clone())),
            ("block_table", BufferData::of(table)),
        ];
        if p.kv_type == KvType::Int8 {
            buffers.push(("key_scales", BufferData { words: k_scales }));
            buffers.push(("value_scales", BufferData { words: v_scales }));
        }
        Self { p, q, sinks, keys, values, buffers, max_blocks, positions, sequence_of }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.p.k_dim as f32).sqrt()
    }

    /// The chunks that a row sees, by number.
    fn parts(&self, row: usize, head: usize) -> Vec<(usize, Part)> {
        let (p, position) = (&self.p, self.positions[row] as usize);
        let (keys, values) =
            (&self.keys[self.sequence_of[row] as usize], &self.values[self.sequence_of[row] as usize]);
        let kv = head / (p.n_heads / p.n_kv);
        let q = &self.q[(row * p.n_heads + head) * p.k_dim..][..p.k_dim];
        let end = position + 1;
        let low = p.window.map_or(0, |w| end.saturating_sub(w as usize));
        let chunk_size = CHUNK as usize;
        let int8 = p.kv_type == KvType::Int8;
        let mut out = Vec::new();
        for chunk in low / chunk_size..end.div_ceil(chunk_size) {
            let (mut m, mut l, mut o) = (f32::NEG_INFINITY, [0f32; 16], vec![0f32; p.v_dim]);
            for k0 in (chunk * chunk_size..end.min((chunk + 1) * chunk_size)).step_by(64) {
                let seen = low.max(k0)..end.min(k0 + 64);
                if seen.is_empty() {
                    continue;
                }
                let mut s = [f32::NEG_INFINITY; 64];
                for t in seen.clone() {
                    let (key, key_scale) = &keys[t][kv];
                    let mut x = q.iter().zip(key).fold(0f32, |acc, (q, k)| q.mul_add(*k, acc));
                    if int8 {
                        x *= key_scale;
                    }
                    x *= self.scale();
                    s[t - k0] = p.cap.map_or(x, |cap| cap * math::tanh(x / cap));
                }
                let top = s.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
                if top > m {
                    if m > f32::NEG_INFINITY {
                        let shrink = math::exp(m - top);
                        l.iter_mut().chain(&mut o).for_each(|x| *x *= shrink);
                    }
                    m = top;
                }
                for t in k0..k0 + 64 {
                    let w = math::exp(s[t - k0] - m);
                    l[t % 16] += w;
                    if seen.contains(&t) {
                        let (value, value_scale) = &values[t][kv];
                        let w = if int8 { w * value_scale } else { w };
                        o.iter_mut().zip(value).for_each(|(o, v)| *o = w.mul_add(*v, *o));
                    }
                }
            }
            let mut lanes = l.to_vec();
            while lanes.len() > 1 {
                let (a, b) = lanes.split_at(lanes.len() / 2);
                lanes = a.iter().zip(b).map(|(a, b)| a + b).collect();
            }
            out.push((chunk, (m, lanes[0], o)));
        }
        out
    }

    fn merged(&self, head: usize, parts: &[(usize, Part)]) -> Vec<f32> {
        let (mut m, mut l, mut o) = parts[0].1.clone();
        for (_, (part_m, part_l, part_o)) in &parts[1..] {
            let top = if m > *part_m { m } else { *part_m };
            let (a, b) = (math::exp(m - top), math::exp(part_m - top));
            l = l * a + part_l * b;
            o.iter_mut().zip(part_o).for_each(|(o, x)| *o = x.mul_add(b, *o * a));
            m = top;
        }
        let mut a = 1.0;
        if self.p.sinks {
            let sink = self.sinks[head];
            let top = if m > sink { m } else { sink };
            a = math::exp(m - top);
            l = l * a + math::exp(sink - top);
        }
        o.iter().map(|o| o * (a / l)).collect()
    }

    fn plan(&self, decode: bool) -> Attention {
        let p = &self.p;
        let kv = KvShape {
            kv_type: p.kv_type,
            n_kv_heads: p.n_kv as u32,
            k_dim: p.k_dim as u32,
            v_dim: p.v_dim as u32,
        };
        let tiled = Attention::tiled(kv, p.n_heads as u32, decode);
        Attention { softcap: p.cap.is_some(), sinks: p.sinks, ..tiled }
    }

    /// Runs of rows of one sequence.
    fn tiles(&self, tokens: u32) -> [Vec<u32>; 2] {
        let (mut first, mut end) = (vec![], vec![]);
        let mut row = 0;
        for &(_, n) in self.p.sequences {
            for at in (0..n as u32).step_by(tokens as usize) {
                first.push(row + at);
                end.push(row + (n as u32).min(at + tokens));
            }
            row += n as u32;
        }
        // A tile that is not needed.
        first.push(0);
        end.push(0);
        [first, end]
    }

    fn checks(&self, subgroup: u32) -> Vec<Check> {
        let (p, rows) = (&self.p, self.positions.len());
        let params = [
            ("max_blocks", self.max_blocks as u32),
            ("window", p.window.unwrap_or(u32::MAX)),
            ("scale", self.scale().to_bits()),
            ("cap", p.cap.unwrap_or(0.0).to_bits()),
            ("n_rows", rows as u32),
        ];
        let all: Vec<_> = (0..rows * p.n_heads).map(|i| self.parts(i / p.n_heads, i % p.n_heads)).collect();
        let y: Vec<f32> =
            all.iter().enumerate().flat_map(|(i, parts)| self.merged(i % p.n_heads, parts)).collect();
        let sinks = p.sinks.then(|| ("sinks", BufferData::of_f32(&self.sinks)));

        let whole = self.plan(false);
        let [first, end] = self.tiles(whole.tokens);
        let grid = [whole.n_heads / whole.heads, first.len() as u32, 1];
        let mut buffers = self.buffers.clone();
        buffers.extend([("tile_first", BufferData::of(first)), ("tile_end", BufferData::of(end))]);
        buffers.push(("y", BufferData::empty(y.len())));
        buffers.extend(sinks.clone());
        let whole =
            Check::new(&whole.kernel(subgroup).unwrap(), grid, buffers, &params, vec![("y", bits(&y))]);

        let split = self.plan(true);
        let chunks = p.sequences.iter().map(|s| s.0.div_ceil(CHUNK as usize)).max().unwrap();
        let n = chunks * rows * p.n_heads;
        let (mut o, mut m, mut l) = (vec![None; n * p.v_dim], vec![None; n], vec![None; n]);
        for (i, parts) in all.iter().enumerate() {
            for (chunk, (part_m, part_l, part_o)) in parts {
                let at = chunk * rows * p.n_heads + i;
                (m[at], l[at]) = (Some(part_m.to_bits()), Some(part_l.to_bits()));
                o[at * p.v_dim..][..p.v_dim].iter_mut().zip(part_o).for_each(|(o, x)| *o = Some(x.to_bits()));
            }
        }
        let [first, end] = self.tiles(split.tokens);
        let grid = [split.n_heads / split.heads, first.len() as u32, chunks as u32];
        let mut buffers = self.buffers.clone();
        buffers.extend([("tile_first", BufferData::of(first)), ("tile_end", BufferData::of(end))]);
        buffers.push(("part_o", BufferData::empty(o.len())));
        buffers.extend(["part_m", "part_l"].map(|name| (name, BufferData::empty(n))));
        let kernel = split.kernel(subgroup).unwrap();
        let split = Check::new(&kernel, grid, buffers, &params, vec![]);
        let want = vec![("part_o", o.clone()), ("part_m", m.clone()), ("part_l", l.clone())];

        let mut buffers = vec![
            ("part_o", BufferData { words: o }),
            ("part_m", BufferData { words: m }),
            ("part_l", BufferData { words: l }),
            ("positions", BufferData::of(self.positions.clone())),
            ("y", BufferData::empty(y.len())),
        ];
        buffers.extend(sinks);
        let kernel = combine(p.v_dim as u32, p.sinks, subgroup).unwrap();
        let grid = [p.n_heads as u32, rows as u32, 1];
        let combined = Check::new(&kernel, grid, buffers, &params, vec![("y", bits(&y))]);
        vec![whole, Check { want, ..split }, combined]
    }
}

/// Elements as the kernels read them.
fn floats(kv_type: KvType, words: &[u32]) -> Vec<f32> {
    let one = |&w: &u32| match kv_type {
        KvType::F32 => f32::from_bits(w),
        KvType::F16 => f16::from_bits(w as u16).into(),
        KvType::Int8 => f32::from(w as u8 as i8),
    };
    words.iter().map(one).collect()
}

fn checks(problems: &[Problem], seed: u64, subgroup: u32) -> Vec<Check> {
    let mut rng = Rng(seed);
    problems.iter().flat_map(|&p| Setup::new(p, &mut rng).checks(subgroup)).collect()
}

#[test]
fn paged_attention_numeric() {
    // The last quotient.
    everywhere("attention", 4, |subgroup| {
        let problems = [
            PLAIN,
            // A prompt after a prefix, a whole prompt, a lone token; groups of four; bytes.
            Problem {
                kv_type: KvType::Int8,
                n_heads: 4,
                sequences: &[(75, 11), (20, 20), (16, 1)],
                k_dim: 40,
                v_dim: 24,
                ..PLAIN
            },
            // Three heads of their own; a window that hides whole blocks and a tile.
            Problem {
                kv_type: KvType::F32,
                n_heads: 3,
                n_kv: 3,
                window: Some(40),
                sequences: &[(150, 3), (30, 2)],
                v_dim: 80,
                ..PLAIN
            },
            Problem {
                sinks: true,
                n_heads: 6,
                n_kv: 2,
                k_dim: 80,
                v_dim: 128,
                sequences: &[(66, 5)],
                ..PLAIN
            },
        ];
        checks(&problems, 40, subgroup)
    });
}

#[test]
fn long_rows_are_merged_chunk_by_chunk() {
    everywhere("attention_long", 4, |subgroup| {
        let problems = [
            Problem { sequences: &[(1030, 1), (514, 3)], ..PLAIN },
            Problem {
                sequences: &[(1100, 2)],
                window: Some(530),
                sinks: true,
                kv_type: KvType::Int8,
                ..PLAIN
            },
        ];
        checks(&problems, 41, subgroup)
    });
}

#[test]
fn capped_scores_numeric() {
    let problem = Problem { cap: Some(5.0), sinks: true, sequences: &[(67, 3)], ..PLAIN };
    // The cap's quotients are 2.5 ulp off on Vulkan; weights then e^error, and sums that cancel show it.
    everywhere("attention_cap", 1 << 12, |subgroup| checks(&[problem], 42, subgroup));
}

#[test]
fn large_and_odd_heads_numeric() {
    // The last quotient.
    everywhere("attention_heads", 4, |subgroup| {
        let odd = Problem { k_dim: 72, v_dim: 72, n_heads: 24, n_kv: 1, sequences: &[(65, 2)], ..PLAIN };
        let large = Problem { k_dim: 256, v_dim: 256, sequences: &[(65, 2)], ..PLAIN };
        // Keys longer than values, as latent attention has them.
        let latent = Problem { k_dim: 192, v_dim: 128, kv_type: KvType::F32, sequences: &[(33, 2)], ..PLAIN };
        let bytes = Problem { k_dim: 192, v_dim: 192, kv_type: KvType::Int8, sequences: &[(17, 1)], ..PLAIN };
        checks(&[odd, large, latent, bytes], 43, subgroup)
    });
}
