//! The kernels against their order of operations written plainly, bit by bit on every instruction set, whatever the steps.

use hanzo_fusion::graph::{DeltaSpec, KeyHeads};
use hanzo_fusion::{StateLayer, StateSave};
use hanzo_quant::math;

use super::*;
use crate::isa::Isa;

fn sample(seed: u32, n: usize) -> Vec<f32> {
    let mut h = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..n)
        .map(|_| {
            h ^= h << 13;
            h ^= h >> 17;
            h ^= h << 5;
            (h >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn state(slots: &Slots, slot: u32) -> Vec<f32> {
    // SAFETY: a slot has that many elements, and no kernel runs.
    unsafe { std::slice::from_raw_parts(slots.slot(slot), slots.elements) }.to_vec()
}

const ROWS: usize = 23;
/// Steps that a sequence is cut into: rows of each.
const CUTS: [&[usize]; 4] = [&[23], &[1, 1, 1, 20], &[7, 2, 13, 1], &[22, 1]];

/// Runs `share` over cuts of the rows, and returns the state after all and the one saved after row 5.
fn in_steps(cuts: &[usize], mut run: impl FnMut(&Share<'_>)) {
    let mut first_row = 0;
    for &n_rows in cuts {
        let save = StateSave { after: 5usize.saturating_sub(first_row), slot: 2 };
        let saves = if (1..=n_rows).contains(&save.after) { vec![save] } else { Vec::new() };
        run(&Share {
            first_row,
            first_position: first_row,
            n_rows,
            from: (first_row > 0).then_some(1),
            to: 1,
            saves: &saves,
        });
        first_row += n_rows;
    }
    assert_eq!(first_row, ROWS);
}

#[test]
fn convolution_numeric() {
    for (cols, width) in [(16, 1), (48, 2), (32, 4), (16, MAX_TAPS)] {
        let (x, weight) = (sample(1, ROWS * cols), sample(2, cols * width));
        let at =
            |t: usize, c: usize, j: usize| (t + 1 + j).checked_sub(width).map_or(0.0, |r| x[r * cols + c]);
        let plain = |t: usize, c: usize| {
            (0..width).fold(0.0f32, |sum, j| weight[c * width + j].mul_add(at(t, c, j), sum))
        };
        let want: Vec<f32> = (0..ROWS * cols).map(|i| plain(i / cols, i % cols)).collect();
        let last = |n: usize| -> Vec<f32> {
            let row = |i: usize| {
                (n + i + 1).checked_sub(width).map_or(vec![0.0; cols], |r| x[r * cols..][..cols].to_vec())
            };
            (0..width - 1).flat_map(row).collect()
        };
        for isa in Isa::available() {
            for cuts in CUTS {
                let slots = Slots::new(StateLayer { elements: (width - 1) * cols }, 3).unwrap();
                let mut out = vec![f32::NAN; ROWS * cols];
                let conv = Conv {
                    slots: &slots,
                    x: x.as_ptr(),
                    out: out.as_mut_ptr(),
                    cols,
                    weight: &weight,
                    width,
                };
                in_steps(cuts, |share| {
                    for block in (0..conv.blocks()).rev() {
                        // SAFETY: `x` and `out` have all rows, and nothing else runs.
                        unsafe { conv.run(isa, share, block) };
                    }
                });
                assert!(bits(&out) == bits(&want), "{isa:?}, {width} taps, steps of {cuts:?}");
                assert_eq!(
                    (bits(&state(&slots, 1)), bits(&state(&slots, 2))),
                    (bits(&last(ROWS)), bits(&last(5)))
                );
            }
        }
    }
}

/// The rule in plain f32: outputs, and the states after row 5 and after all.
fn plain(spec: &DeltaSpec, [q, k, v, g, beta]: [&[f32]; 5]) -> [Vec<f32>; 3] {
    let (dk, dv, keys) = (spec.k_head_dim, spec.v_head_dim, spec.n_k_heads * spec.k_head_dim);
    let mut s = vec![0.0f32; spec.n_v_heads * dk * dv];
    let (mut out, mut fifth) = (Vec::new(), Vec::new());
    for t in 0..ROWS {
        for h in 0..spec.n_v_heads {
            let key = t * keys + spec.key_head(h) * dk;
            let e = math::exp(g[t * spec.n_v_heads + h]);
            for j in 0..dv {
                let at = |i: usize| (h * dk + i) * dv + j;
                let r = (0..dk).fold(0.0f32, |r, i| (s[at(i)] * e).mul_add(k[key + i], r));
                let d = (v[(t * spec.n_v_heads + h) * dv + j] - r) * beta[t * spec.n_v_heads + h];
                let mut o = 0.0f32;
                for i in 0..dk {
                    s[at(i)] = k[key + i].mul_add(d, s[at(i)] * e);
                    o = s[at(i)].mul_add(q[key + i], o);
                }
                out.push(o);
            }
        }
        if t + 1 == 5 {
            fifth = s.clone();
        }
    }
    [out, fifth, s]
}

#[test]
fn delta_rule_numeric() {
    for (k_head_dim, v_head_dim, order) in
        [(16, 16, KeyHeads::Grouped), (24, 64, KeyHeads::Tiled), (7, 48, KeyHeads::Tiled)]
    {
        let spec = DeltaSpec { n_k_heads: 2, n_v_heads: 4, k_head_dim, v_head_dim, order };
        let [q, k] = [3, 4].map(|seed| sample(seed, ROWS * 2 * k_head_dim));
        let v = sample(5, ROWS * 4 * v_head_dim);
        let g: Vec<f32> = sample(6, ROWS * 4).iter().map(|x| x - 1.0).collect();
        let beta: Vec<f32> = sample(7, ROWS * 4).iter().map(|x| 0.5 + 0.5 * x).collect();
        let [want, fifth, end] = plain(&spec, [&q, &k, &v, &g, &beta]);
        for isa in Isa::available() {
            for cuts in CUTS {
                let slots = Slots::new(StateLayer { elements: 4 * k_head_dim * v_head_dim }, 3).unwrap();
                let mut out = vec![f32::NAN; want.len()];
                let mut scratch = vec![f32::NAN; scratch_len(&spec)];
                let delta = Delta {
                    slots: &slots,
                    spec,
                    q: q.as_ptr(),
                    k: k.as_ptr(),
                    v: v.as_ptr(),
                    g: g.as_ptr(),
                    beta: beta.as_ptr(),
                    out: out.as_mut_ptr(),
                };
                in_steps(cuts, |share| {
                    for block in (0..delta.blocks()).rev() {
                        // SAFETY: the operands have all rows, and nothing else runs.
                        unsafe { delta.run(isa, share, block, scratch.as_mut_ptr()) };
                    }
                });
                assert!(bits(&out) == bits(&want), "{isa:?}, {spec:?}, steps of {cuts:?}");
                assert!(bits(&state(&slots, 1)) == bits(&end) && bits(&state(&slots, 2)) == bits(&fifth));
            }
        }
    }
}

#[test]
fn states_are_copied_whole() {
    let mut slots = Slots::new(StateLayer { elements: 5 }, 3).unwrap();
    // SAFETY: a slot has five elements, and nothing else runs.
    unsafe { std::slice::from_raw_parts_mut(slots.slot(1), 5) }.copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    slots.copy(1, 2);
    slots.copy(0, 1);
    slots.copy(2, 2);
    assert_eq!([state(&slots, 1), state(&slots, 2)], [vec![0.0; 5], vec![1.0, 2.0, 3.0, 4.0, 5.0]]);
    assert!(Slots::new(StateLayer { elements: usize::MAX / 2 }, 3).is_err());
}
