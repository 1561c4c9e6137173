//! TQ1_0 and TQ2_0: 256 codes of −1, 0, 1 under one f16.
//!
//! Objective: `Σ w (x − d·c)²`. For a given set of nonzero codes the best `d` is their weighted mean magnitude, and
//! the best set is always the largest magnitudes, so one pass over the sorted magnitudes finds the optimum. Weights that
//! are ternary already come back exactly (up to f16's rounding of `d`).

use super::block::{Block, Snapped};
use super::bytes::Writer;

/// The optimal scale and codes, as 0, 1, 2.
fn ternary(block: &Block<256>) -> (Snapped, [u8; 256]) {
    let mut order: [u8; 256] = std::array::from_fn(|i| i as u8);
    let magnitude = |i: u8| block.x[usize::from(i)].abs();
    order.sort_unstable_by(|&a, &b| magnitude(b).total_cmp(&magnitude(a)).then(a.cmp(&b)));
    let (mut a, mut b, mut best, mut d) = (0f32, 0f32, 0f32, 0f32);
    for i in order.map(usize::from) {
        a += block.wx[i].abs();
        b += block.w[i];
        if a * a > best * b {
            (best, d) = (a * a / b, a / b);
        }
    }
    let d = block.snap(d);
    let half = 0.5 * d.d;
    (
        d,
        block.x.map(|x| {
            if d.d == 0.0 || x.abs() <= half {
                1
            } else if x > 0.0 {
                2
            } else {
                0
            }
        }),
    )
}

pub(super) fn tq1_0(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let (d, q) = ternary(&Block::load(x, w));
    // Trits as a base-3 fraction of 256, rounded up: the decoder takes digits off the top by multiplying by 3.
    let byte = |digits: [u8; 5]| {
        let value = digits.iter().fold(0u32, |value, &digit| 3 * value + u32::from(digit));
        (value * 256).div_ceil(243) as u8
    };
    let a: [u8; 32] = std::array::from_fn(|i| byte(std::array::from_fn(|n| q[32 * n + i])));
    let b: [u8; 16] = std::array::from_fn(|i| byte(std::array::from_fn(|n| q[160 + 16 * n + i])));
    let c: [u8; 4] =
        std::array::from_fn(|i| byte(std::array::from_fn(|n| if n < 4 { q[240 + 4 * n + i] } else { 0 })));
    out.bytes(&a).bytes(&b).bytes(&c).f16(d);
}

pub(super) fn tq2_0(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let (d, q) = ternary(&Block::load(x, w));
    let bytes: [u8; 64] = std::array::from_fn(|i| {
        let at = 128 * (i / 32) + i % 32;
        (0..4).fold(0, |byte, n| byte | q[at + 32 * n] << (2 * n))
    });
    out.bytes(&bytes).f16(d);
}
