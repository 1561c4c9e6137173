//! The IQ1, IQ2 and IQ3 formats: what [`super::grid`] chose, in each format's bytes.

use std::sync::LazyLock;

use super::block::Block;
use super::bytes::Writer;
use super::grid::{Codebook, Even4x2, Even8, Fit, Free4x2, Free8, Shift8, Shift32, fit};
use crate::QuantType;

/// Seven signs (the eighth follows from them) of four units, and the 4-bit scale on top.
fn signs_and_scale(fit: &Fit<8>, j: usize) -> u32 {
    let units = fit.choices[4 * j..4 * j + 4].iter().enumerate();
    units.fold(u32::from(fit.k[j]) << 28, |word, (i, unit)| word | u32::from(unit.bits & 0x7f) << (7 * i))
}

/// Scales of four bits in pairs.
fn scale_pairs<const J: usize, const N: usize>(k: &[u8; J]) -> [u8; N] {
    std::array::from_fn(|i| k[2 * i] | k[2 * i + 1] << 4)
}

pub(super) fn iq2_xxs(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    static BOOK: LazyLock<Codebook> = LazyLock::new(|| Codebook::of(QuantType::IQ2_XXS));
    let fit: Fit<8> = fit::<Even8, 8>(&BOOK, &Block::load(x, w), 16, 0.125);
    out.f16(fit.d);
    for j in 0..8 {
        let index: [u8; 4] = std::array::from_fn(|i| fit.choices[4 * j + i].index[0] as u8);
        out.bytes(&index).bytes(&signs_and_scale(&fit, j).to_le_bytes());
    }
}

pub(super) fn iq2_xs(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    static BOOK: LazyLock<Codebook> = LazyLock::new(|| Codebook::of(QuantType::IQ2_XS));
    let fit: Fit<16> = fit::<Even8, 16>(&BOOK, &Block::load(x, w), 16, 0.125);
    out.f16(fit.d);
    for unit in &fit.choices {
        out.bytes(&(unit.index[0] & 511 | u16::from(unit.bits & 0x7f) << 9).to_le_bytes());
    }
    out.bytes(&scale_pairs::<16, 8>(&fit.k));
}

pub(super) fn iq2_s(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    static BOOK: LazyLock<Codebook> = LazyLock::new(|| Codebook::of(QuantType::IQ2_S));
    let fit: Fit<16> = fit::<Free8, 16>(&BOOK, &Block::load(x, w), 16, 0.125);
    let index = |i: usize| fit.choices[i].index[0];
    let low: [u8; 32] = std::array::from_fn(|i| index(i) as u8);
    let signs: [u8; 32] = std::array::from_fn(|i| fit.choices[i].bits);
    let high: [u8; 8] = std::array::from_fn(|j| {
        (0..4).fold(0, |byte, i| byte | ((index(4 * j + i) >> 8 & 3) as u8) << (2 * i))
    });
    out.f16(fit.d).bytes(&low).bytes(&signs).bytes(&high).bytes(&scale_pairs::<16, 8>(&fit.k));
}

pub(super) fn iq3_xxs(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    static BOOK: LazyLock<Codebook> = LazyLock::new(|| Codebook::of(QuantType::IQ3_XXS));
    let fit: Fit<8> = fit::<Even4x2, 8>(&BOOK, &Block::load(x, w), 16, 0.25);
    out.f16(fit.d);
    for unit in &fit.choices {
        out.bytes(&[unit.index[0] as u8, unit.index[1] as u8]);
    }
    for j in 0..8 {
        out.bytes(&signs_and_scale(&fit, j).to_le_bytes());
    }
}

pub(super) fn iq3_s(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    static BOOK: LazyLock<Codebook> = LazyLock::new(|| Codebook::of(QuantType::IQ3_S));
    let fit: Fit<8> = fit::<Free4x2, 8>(&BOOK, &Block::load(x, w), 16, 1.0);
    let index = |g: usize| fit.choices[g / 2].index[g % 2];
    let low: [u8; 64] = std::array::from_fn(|g| index(g) as u8);
    let high: [u8; 8] =
        std::array::from_fn(|j| (0..8).fold(0, |byte, g| byte | ((index(8 * j + g) >> 8 & 1) as u8) << g));
    let signs: [u8; 32] = std::array::from_fn(|i| fit.choices[i].bits);
    out.f16(fit.d).bytes(&low).bytes(&high).bytes(&signs).bytes(&scale_pairs::<8, 4>(&fit.k));
}

static IQ1: LazyLock<Codebook> = LazyLock::new(|| Codebook::of(QuantType::IQ1_S));

pub(super) fn iq1_s(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let fit: Fit<8> = fit::<Shift32, 8>(&IQ1, &Block::load(x, w), 8, 0.125);
    out.f16(fit.d);
    for unit in &fit.choices {
        out.bytes(&unit.index.map(|index| index as u8));
    }
    for (unit, &k) in fit.choices.iter().zip(&fit.k) {
        let high =
            unit.index.iter().enumerate().fold(0, |word, (i, &index)| word | (index >> 8 & 7) << (3 * i));
        out.bytes(&(high | u16::from(k & 7) << 12 | u16::from(unit.bits & 1) << 15).to_le_bytes());
    }
}

pub(super) fn iq1_m(x: &[f32], w: Option<&[f32]>, out: &mut Writer<'_>) {
    let fit: Fit<16> = fit::<Shift8, 16>(&IQ1, &Block::load(x, w), 8, 0.125);
    let low: [u8; 32] = std::array::from_fn(|i| fit.choices[i].index[0] as u8);
    // Three high bits of the index and the shift above them, a nibble a unit.
    let nibble = |i: usize| (fit.choices[i].index[0] >> 8 & 7) as u8 | (fit.choices[i].bits & 1) << 3;
    let high: [u8; 16] = std::array::from_fn(|i| nibble(2 * i) | nibble(2 * i + 1) << 4);
    out.bytes(&low).bytes(&high);
    // Four 3-bit scales a word; the super-scale's nibbles on top, lowest first.
    for i in 0..4 {
        let scales = (0..4).fold(0, |word, n| word | u16::from(fit.k[4 * i + n] & 7) << (3 * n));
        let super_scale = fit.d.bits.to_bits() >> (4 * i) & 15;
        out.bytes(&(scales | super_scale << 12).to_le_bytes());
    }
}
