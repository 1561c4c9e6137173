//! IQ4_XS: 256 elements, the 16 codes of IQ4_NL, signed 6-bit scales of sub-blocks of 32 under one f16.
//!
//! Objective: `Σ w (x − x̂)²` over the 256 elements, super-scale and integers chosen together.

use super::block::{Block, reciprocal};
use super::bytes::Writer;
use super::k::symmetric;
use super::legacy::nibbles;
use super::scale::{Ladder, LadderSearch, Reach, Rungs};
use super::table::Table;

pub(super) fn iq4_xs(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    const RUNGS: Rungs = Rungs { first: -32, step: 1, count: 64 };
    let Some(codes) = Table::of(crate::QuantType::IQ4_XS) else { return };
    let block = Block::load(x, w);
    let search = LadderSearch { rungs: RUNGS, unit: 1.0, starts: &[0.97, 1.03] };
    let fit: Ladder<8> = symmetric(codes, &block, Reach { lo: 85.0, hi: 145.0, steps: 12 }, search);
    // Low nibbles of the scales in pairs, their top two bits in one u16.
    let high = fit.k.iter().enumerate().fold(0u16, |bits, (j, &k)| bits | u16::from(k >> 4) << (2 * j));
    let low: [u8; 4] = std::array::from_fn(|i| fit.k[2 * i] & 15 | fit.k[2 * i + 1] << 4);
    out.f16(fit.d).bytes(&high.to_le_bytes()).bytes(&low);
    for (j, &k) in fit.k.iter().enumerate() {
        let inv = reciprocal(fit.d.d * RUNGS.multiplier(k));
        let q: [u8; 32] = std::array::from_fn(|i| codes.index(block.x[32 * j + i] * inv));
        out.bytes(&nibbles(&q));
    }
}
