//! The formats with one scale a block: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and IQ4_NL, all of 32 elements, and Q1_0 and Q2_0.
//!
//! Objective: `Σ w (x − x̂)²` over the block, with the scale (and offset) as f16 stores it.

use super::affine::{self, best_affine, snap_affine};
use super::block::{Block, Snapped, reciprocal};
use super::bytes::Writer;
use super::scale::{Codes, Linear, Reach, best_scale, snap_scale, write_codes};
use super::table::Table;

/// Scale of a block in one piece, and its codes less the smallest code.
fn symmetric<C: Codes, const N: usize>(codes: C, block: &Block<N>, reach: Reach) -> (Snapped, [u8; N]) {
    let d = snap_scale(codes, block, best_scale(codes, block.whole(), reach));
    let mut q = [0; N];
    write_codes(codes, block.whole(), d.d, &mut q);
    (d, q)
}

/// Scale, offset and codes of a block in one piece.
fn asymmetric<const HI: i32, const N: usize>(block: &Block<N>, cuts: &[f32]) -> (Snapped, Snapped, [u8; N]) {
    let at = best_affine::<HI>(block.whole(), cuts, false);
    let (d, m) = snap_affine::<HI, N>(block, at);
    let mut q = [0; N];
    affine::write_codes::<HI>(block.whole(), d.d, m.d, &mut q);
    (d, m, q)
}

/// The low nibbles of 32 codes: elements 0–15 in the low halves of 16 bytes, 16–31 in the high halves.
pub(super) fn nibbles(q: &[u8]) -> [u8; 16] {
    std::array::from_fn(|i| q[i] & 15 | q[i + 16] << 4)
}

/// Bit 4 of 32 codes: bit `i` of the result is element `i`'s.
fn fifth_bits(q: &[u8; 32]) -> u32 {
    q.iter().enumerate().fold(0, |bits, (i, &q)| bits | u32::from(q >> 4 & 1) << i)
}

pub(super) fn q4_0(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let (d, q) = symmetric(Linear::<-8, 7>, &Block::<32>::load(x, w), Reach { lo: 5.5, hi: 9.5, steps: 17 });
    out.f16(d).bytes(&nibbles(&q));
}

pub(super) fn q4_1(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let cuts = [-0.02, 0.02, 0.06, 0.11];
    let (d, m, q) = asymmetric::<15, 32>(&Block::load(x, w), &cuts);
    out.f16(d).f16(m).bytes(&nibbles(&q));
}

pub(super) fn q5_0(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let (d, q) =
        symmetric(Linear::<-16, 15>, &Block::<32>::load(x, w), Reach { lo: 12.5, hi: 17.5, steps: 17 });
    out.f16(d).bytes(&fifth_bits(&q).to_le_bytes()).bytes(&nibbles(&q));
}

pub(super) fn q5_1(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let cuts = [-0.01, 0.01, 0.03];
    let (d, m, q) = asymmetric::<31, 32>(&Block::load(x, w), &cuts);
    out.f16(d).f16(m).bytes(&fifth_bits(&q).to_le_bytes()).bytes(&nibbles(&q));
}

pub(super) fn q8_0(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let (d, q) =
        symmetric(Linear::<-128, 127>, &Block::<32>::load(x, w), Reach { lo: 123.0, hi: 128.5, steps: 12 });
    // Codes are two's complement here, not offset.
    out.f16(d).bytes(&q.map(|q| q.wrapping_sub(128)));
}

pub(super) fn iq4_nl(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let Some(codes) = Table::of(crate::QuantType::IQ4_NL) else { return };
    let block = Block::<32>::load(x, w);
    let d =
        snap_scale(codes, &block, best_scale(codes, block.whole(), Reach { lo: 80.0, hi: 150.0, steps: 20 }));
    let inv = reciprocal(d.d);
    let q = block.x.map(|x| codes.index(x * inv));
    out.f16(d).bytes(&nibbles(&q));
}

/// 64 codes of −1, 0, 1, 2.
pub(super) fn q2_0(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let (d, q) = symmetric(Linear::<-1, 2>, &Block::<64>::load(x, w), Reach { lo: 1.2, hi: 6.0, steps: 33 });
    let q: [u8; 16] = std::array::from_fn(|i| (0..4).fold(0, |byte, n| byte | q[4 * i + n] << (2 * n)));
    out.f16(d).bytes(&q);
}

/// 128 signs: the best magnitude is the weighted mean of |x|.
pub(super) fn q1_0(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let block = Block::<128>::load(x, w);
    let (total, weight) =
        block.wx.iter().zip(&block.w).fold((0f32, 0f32), |(a, b), (wx, w)| (a + wx.abs(), b + w));
    let bits: [u8; 16] =
        std::array::from_fn(|i| (0..8).fold(0, |byte, n| byte | u8::from(block.x[8 * i + n] >= 0.0) << n));
    out.f16(block.snap(total / weight)).bytes(&bits);
}
