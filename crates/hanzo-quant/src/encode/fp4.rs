//! MXFP4 and NVFP4: 4-bit floating-point codes under 8-bit floating-point scales.
//!
//! Objective: `Σ w (x − x̂)²` per scale. There are few scales, so all that can be best are tried.

use wide::f32x8;

use super::block::{Block, Part, reciprocal};
use super::bytes::Writer;
use super::legacy::nibbles;
use super::scale::{Codes, moments, step_above};

/// The magnitudes of E2M1, doubled to be integers: 0 1 2 3 4 6 8 12, either sign.
#[derive(Clone, Copy)]
struct E2M1;

/// Magnitudes and the midpoints below them.
const MAGNITUDES: [f32; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];
const MIDDLES: [f32; 7] = [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0];

impl E2M1 {
    /// The stored nibble: magnitude, and 8 for negative numbers.
    fn index(self, v: f32) -> u8 {
        let magnitude = MIDDLES.iter().fold(0, |n, &middle| n + u8::from(v.abs() > middle));
        if v < 0.0 && magnitude > 0 { 8 | magnitude } else { magnitude }
    }
}

impl Codes for E2M1 {
    #[inline(always)]
    fn nearest(self, v: f32x8) -> f32x8 {
        let (m, mut code) = (v.abs(), f32x8::ZERO);
        for i in 0..7 {
            code += step_above(m, MIDDLES[i], MAGNITUDES[i + 1] - MAGNITUDES[i]);
        }
        code.copysign(v)
    }
    fn ends(self) -> (f32, f32) {
        (-12.0, 12.0)
    }
}

/// The candidate scale with the least error; the first of equals.
fn best_of(part: Part<'_>, candidates: impl Iterator<Item = (u8, f32)>) -> (u8, f32) {
    let mut best = ((0, 0.0), f32::INFINITY);
    for candidate in candidates {
        let err = moments(E2M1, part, candidate.1).err;
        if err < best.1 {
            best = (candidate, err);
        }
    }
    best.0
}

/// 2^e of the block's magnitude, also where that is a denormal.
fn pow2(e: i32) -> f32 {
    f64::from_bits(((e + 1023).clamp(1, 2046) as u64) << 52) as f32
}

pub(super) fn mxfp4(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let block = Block::<32>::load(x, w);
    // The largest value, in [1, 2) here, is to land on codes from 3 to 24: below, precision is wasted whatever the
    // rest; above, it is cut to less than half.
    let byte = |power: i32| 128 + power + block.exp();
    let powers = (-4..0).filter(|&p| (0..=254).contains(&byte(p)));
    let zero = std::iter::once((0, 0.0)).filter(|_| block.whole().peak() == 0.0 || byte(-1) < 0);
    let (e, d) = best_of(block.whole(), zero.chain(powers.map(|p| (byte(p) as u8, pow2(p)))));
    let inv = reciprocal(d);
    let q = block.x.map(|x| E2M1.index(x * inv));
    out.bytes(&[e]).bytes(&nibbles(&q));
}

/// The value of a UE4M3 byte, halved because the codes are doubled.
fn ue4m3(byte: u8) -> f32 {
    let (exp, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    0.5 * if exp == 0 { mantissa * pow2(-9) } else { (1.0 + mantissa / 8.0) * pow2(exp - 7) }
}

pub(super) fn nvfp4(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let block = Block::<64>::load(x, w);
    let magnitude = pow2(-block.exp());
    let (mut scales, mut codes) = ([0u8; 4], [[0u8; 8]; 4]);
    for (j, (scale, codes)) in scales.iter_mut().zip(&mut codes).enumerate() {
        let part = block.part(j, 16);
        // Scales from which the peak lands on a code between 3 and 24; 0x7F is not a number.
        let (low, high) = (part.peak() / 24.0, part.peak() / 3.0);
        let all = (0..0x7f).map(|byte| (byte, ue4m3(byte) * magnitude));
        let last_below = all.clone().rfind(|c| c.1 <= low).into_iter();
        let first_above = all.clone().find(|c| c.1 >= high).into_iter();
        let (byte, d) =
            best_of(part, last_below.chain(all.filter(|c| c.1 > low && c.1 < high)).chain(first_above));
        let inv = reciprocal(d);
        let q: [u8; 16] = std::array::from_fn(|i| E2M1.index(part.x[i] * inv));
        *scale = byte;
        *codes = std::array::from_fn(|i| q[i] | q[i + 8] << 4);
    }
    out.bytes(&scales);
    for codes in &codes {
        out.bytes(codes);
    }
}
