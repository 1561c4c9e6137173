//! The K formats: 256 elements, integer scales of sub-blocks under one or two f16 super-scales.
//!
//! Objective: `Σ w (x − x̂)²` over the 256 elements, super-scales and integers chosen together
//! ([`fit_ladder`] for the symmetric Q3_K and Q6_K, [`fit_pairs`] for Q2_K, Q4_K and Q5_K).

use super::affine::{Affine, Pairs, best_affine, fit_pairs, write_codes};
use super::block::Block;
use super::bytes::Writer;
use super::scale::{
    self, Codes, Ladder, LadderSearch, Linear, PartCurve, Reach, Rungs, best_scale, fit_ladder,
};

/// Ideal scales, ladder and codes (less the smallest) of a symmetric block of `J` sub-blocks of `256 / J`.
pub(super) fn symmetric<C: Codes, const J: usize>(
    codes: C,
    block: &Block<256>,
    reach: Reach,
    search: LadderSearch<'_>,
) -> Ladder<J> {
    let curves: [_; J] = std::array::from_fn(|j| PartCurve { codes, part: block.part(j, 256 / J) });
    let ideal = curves.map(|curve| best_scale(codes, curve.part, reach));
    fit_ladder(&curves, &ideal, search, |d| block.snap(d))
}

fn asymmetric<const HI: i32, const J: usize>(
    block: &Block<256>,
    cuts: &[f32],
    top: u8,
) -> (Pairs<J>, [u8; 256]) {
    let len = 256 / J;
    let parts: [_; J] = std::array::from_fn(|j| block.part(j, len));
    let ideal: [Affine; J] = parts.map(|part| best_affine::<HI>(part, cuts, true));
    let pairs = fit_pairs::<HI, J>(&parts, &ideal, top, |d| block.snap(d));
    let mut q = [0; 256];
    for (j, (part, q)) in parts.iter().zip(q.chunks_exact_mut(len)).enumerate() {
        let at = pairs.affine(j);
        write_codes::<HI>(*part, at.s, at.o, q);
    }
    (pairs, q)
}

/// 256 codes of a symmetric block, less the smallest code.
fn ladder_codes<C: Codes, const J: usize>(
    codes: C,
    block: &Block<256>,
    fit: &Ladder<J>,
    rungs: Rungs,
) -> [u8; 256] {
    let (mut q, len) = ([0; 256], 256 / J);
    for (j, q) in q.chunks_exact_mut(len).enumerate() {
        scale::write_codes(codes, block.part(j, len), fit.d.d * rungs.multiplier(fit.k[j]), q);
    }
    q
}

/// Two bits of each of 256 codes from bit `shift` on: byte `32·(i / 128) + i % 32` has elements 32 apart, lowest first.
fn crumbs(q: &[u8; 256], shift: u8) -> [u8; 64] {
    std::array::from_fn(|i| {
        let at = 128 * (i / 32) + i % 32;
        (0..4).fold(0, |byte, n| byte | (q[at + 32 * n] >> shift & 3) << (2 * n))
    })
}

/// Low nibbles of 256 codes in pairs 32 apart.
fn nibbles_32(q: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|i| {
        let at = 64 * (i / 32) + i % 32;
        q[at] & 15 | q[at + 32] << 4
    })
}

/// One bit (`bit`) of each of 256 codes: byte `l` holds elements `l + 32·n` in bit `n`.
fn column_bits(q: &[u8; 256], bit: u8) -> [u8; 32] {
    std::array::from_fn(|l| (0..8).fold(0, |byte, n| byte | (q[l + 32 * n] >> bit & 1) << n))
}

/// Eight 6-bit pairs in 12 bytes: the first four whole in bytes 0–3 (scales) and 4–7 (mins), the last four as nibbles in
/// bytes 8–11 with their top two bits above the first eight.
fn six_bit_pairs(sc: &[u8; 8], m: &[u8; 8]) -> [u8; 12] {
    std::array::from_fn(|i| match i {
        0..4 => sc[i] | sc[i + 4] >> 4 << 6,
        4..8 => m[i - 4] | m[i] >> 4 << 6,
        _ => sc[i - 4] & 15 | m[i - 4] << 4,
    })
}

pub(super) fn q2_k(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let cuts = &[-0.05, 0.04, 0.11, 0.18, 0.26];
    let (pairs, q) = asymmetric::<3, 16>(&Block::load(x, w), cuts, 15);
    let scales: [u8; 16] = std::array::from_fn(|j| pairs.sc[j] | pairs.m[j] << 4);
    out.bytes(&scales).bytes(&crumbs(&q, 0)).f16(pairs.d).f16(pairs.dmin);
}

pub(super) fn q3_k(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    const RUNGS: Rungs = Rungs { first: -32, step: 1, count: 64 };
    let (block, codes) = (Block::load(x, w), Linear::<-4, 3>);
    let search = LadderSearch { rungs: RUNGS, unit: 1.0, starts: &[0.96, 1.04] };
    let fit: Ladder<16> = symmetric(codes, &block, Reach { lo: 2.4, hi: 5.2, steps: 9 }, search);
    let q = ladder_codes(codes, &block, &fit, RUNGS);
    // Sixteen 6-bit scales: low nibbles in pairs 8 apart, then the top two bits in fours 4 apart.
    let scales: [u8; 12] = std::array::from_fn(|i| match i {
        0..8 => fit.k[i] & 15 | fit.k[i + 8] << 4,
        _ => (0..4).fold(0, |byte, n| byte | fit.k[i - 8 + 4 * n] >> 4 << (2 * n)),
    });
    out.bytes(&column_bits(&q, 2)).bytes(&crumbs(&q, 0)).bytes(&scales).f16(fit.d);
}

pub(super) fn q4_k(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let cuts = &[-0.02, 0.02, 0.06, 0.11];
    let (pairs, q) = asymmetric::<15, 8>(&Block::load(x, w), cuts, 63);
    out.f16(pairs.d).f16(pairs.dmin).bytes(&six_bit_pairs(&pairs.sc, &pairs.m)).bytes(&nibbles_32(&q));
}

pub(super) fn q5_k(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let cuts = &[-0.01, 0.01, 0.03];
    let (pairs, q) = asymmetric::<31, 8>(&Block::load(x, w), cuts, 63);
    out.f16(pairs.d).f16(pairs.dmin).bytes(&six_bit_pairs(&pairs.sc, &pairs.m));
    out.bytes(&column_bits(&q, 4)).bytes(&nibbles_32(&q));
}

pub(super) fn q6_k(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    const RUNGS: Rungs = Rungs { first: -128, step: 1, count: 256 };
    let (block, codes) = (Block::load(x, w), Linear::<-32, 31>);
    let search = LadderSearch { rungs: RUNGS, unit: 1.0, starts: &[] };
    let fit: Ladder<16> = symmetric(codes, &block, Reach { lo: 29.0, hi: 33.0, steps: 9 }, search);
    let q = ladder_codes(codes, &block, &fit, RUNGS);
    // Low nibbles: in each half of 128, byte `l` of 64 has elements `l` and `l + 64`.
    let low: [u8; 128] = std::array::from_fn(|i| {
        let at = 128 * (i / 64) + i % 64;
        q[at] & 15 | q[at + 64] << 4
    });
    let scales = fit.k.map(|k| k.wrapping_sub(128));
    out.bytes(&low).bytes(&crumbs(&q, 4)).bytes(&scales).f16(fit.d);
}
