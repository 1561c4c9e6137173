//! The IQ formats: 256 weights as entries of a codebook of short vectors, with signs (IQ2, IQ3) or a shift (IQ1).
//!
//! Scales are odd numbers `2s + 1`, of which the stored `s` has 3 or 4 bits; `d` counts eighths in IQ2 and in IQ1, whose codes are
//! eighths too (an element is −1, 0 or 1, shifted by ±1/8), quarters in IQ3_XXS.

use half::f16;

use super::codebook::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};
use super::declare::quant_format;

#[inline(always)]
fn le_u16(bytes: &[u8], i: usize) -> u16 {
    u16::from(bytes[2 * i]) | u16::from(bytes[2 * i + 1]) << 8
}

#[inline(always)]
fn le_u32(bytes: &[u8], i: usize) -> u32 {
    u32::from(le_u16(bytes, 2 * i)) | u32::from(le_u16(bytes, 2 * i + 1)) << 16
}

/// Signs of eight elements from the low seven bits: the eighth makes the number of minus signs even.
#[inline(always)]
fn even_signs(bits: u32) -> u8 {
    let seven = bits as u8 & 0x7f;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// `2s + 1` for nibble `j` of `scales`.
#[inline(always)]
fn odd_nibble(scales: &[u8], j: usize) -> i16 {
    odd(scales[j / 2] >> (4 * (j % 2)) & 15)
}

#[inline(always)]
fn odd(s: u8) -> i16 {
    2 * i16::from(s) + 1
}

quant_format! {
    /// 256 weights, 2.06 bits each: groups of 8 from 256 vectors with 7 signs, 8 sub-blocks of 32. Eight bytes a sub-block:
    /// four indices, then four times 7 signs and, on top, the 4-bit scale.
    IQ2_XXS = 16, elems 256, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 64] }
    scale(d: SuperScale::F16 { factor: 0.125 }, sc: (5, 0), m: 0) |b, j| {
        SubScale::symmetric(0.125 * b.d, odd((le_u32(b.qs, 2 * j + 1) >> 28) as u8))
    };
    grid(IQ2_XXS_GRID) |b, g| {
        let (j, k) = (g / 4, g % 4);
        (b.qs[8 * j + k].into(), even_signs(le_u32(b.qs, 2 * j + 1) >> (7 * k)))
    };
}

quant_format! {
    /// 256 weights, 2.31 bits each: groups of 8 from 512 vectors with 7 signs, 16 sub-blocks of 16 with 4-bit scales.
    IQ2_XS = 17, elems 256, sub_block 16, value = d * sc * q;
    layout { d: f16, qs: [u8; 64], scales: [u8; 8] }
    scale(d: SuperScale::F16 { factor: 0.125 }, sc: (5, 0), m: 0) |b, j| {
        SubScale::symmetric(0.125 * b.d, odd_nibble(b.scales, j))
    };
    grid(IQ2_XS_GRID) |b, g| {
        let word = le_u16(b.qs, g);
        (word & 511, even_signs((word >> 9).into()))
    };
}

quant_format! {
    /// 256 weights, 3.06 bits each: groups of 4 from 256 vectors with 7 signs for 8, 8 sub-blocks of 32 whose 4-bit scale sits on
    /// top of their signs.
    IQ3_XXS = 18, elems 256, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 64], signs: [u8; 32] }
    scale(d: SuperScale::F16 { factor: 0.25 }, sc: (5, 0), m: 0) |b, j| {
        SubScale::symmetric(0.25 * b.d, odd((le_u32(b.signs, j) >> 28) as u8))
    };
    grid(IQ3_XXS_GRID) |b, g| (b.qs[g].into(), even_signs(le_u32(b.signs, g / 8) >> (7 * (g / 2 % 4))));
}

quant_format! {
    /// 256 weights, 1.56 bits each: groups of 8 from 2048 ternary vectors, 8 sub-blocks of 32 with a 3-bit scale and a common
    /// shift beside the high bits of the indices.
    IQ1_S = 19, elems 256, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 32], qh: [u8; 16] }
    scale(d: SuperScale::F16 { factor: 0.125 }, sc: (4, 0), m: 0) |b, j| {
        SubScale::symmetric(0.125 * b.d, odd((le_u16(b.qh, j) >> 12 & 7) as u8))
    };
    grid(IQ1_GRID) |b, g| {
        let high = le_u16(b.qh, g / 4);
        (u16::from(b.qs[g]) | (high >> (3 * (g % 4)) & 7) << 8, (high >> 15) as u8)
    };
}

quant_format! {
    /// 256 weights, 3.44 bits each: groups of 4 from 512 vectors with 8 signs for 8, 8 sub-blocks of 32 with 4-bit scales.
    IQ3_S = 21, elems 256, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 64], qh: [u8; 8], signs: [u8; 32], scales: [u8; 4] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (5, 0), m: 0) |b, j| {
        SubScale::symmetric(b.d, odd_nibble(b.scales, j))
    };
    grid(IQ3_S_GRID) |b, g| {
        let high = b.qh[g / 8] >> (g % 8) & 1;
        (u16::from(b.qs[g]) | u16::from(high) << 8, b.signs[g / 2])
    };
}

quant_format! {
    /// 256 weights, 2.56 bits each: groups of 8 from 1024 vectors with 8 signs, 16 sub-blocks of 16 with 4-bit scales.
    IQ2_S = 22, elems 256, sub_block 16, value = d * sc * q;
    layout { d: f16, qs: [u8; 32], signs: [u8; 32], qh: [u8; 8], scales: [u8; 8] }
    scale(d: SuperScale::F16 { factor: 0.125 }, sc: (5, 0), m: 0) |b, j| {
        SubScale::symmetric(0.125 * b.d, odd_nibble(b.scales, j))
    };
    grid(IQ2_S_GRID) |b, g| {
        let high = b.qh[g / 4] >> (2 * (g % 4)) & 3;
        (u16::from(b.qs[g]) | u16::from(high) << 8, b.signs[g])
    };
}

quant_format! {
    /// 256 weights, 1.75 bits each: groups of 8 from 2048 ternary vectors, each with its own shift, 16 sub-blocks of 16 with 3-bit
    /// scales. The f16 super-scale is spread over the top nibbles of the four 16-bit words of scales.
    IQ1_M = 29, elems 256, sub_block 16, value = d * sc * q;
    layout { qs: [u8; 32], qh: [u8; 16], scales: [u8; 8] }
    scale(d: SuperScale::F16 { factor: 0.125 }, sc: (4, 0), m: 0) |b, j| {
        let d = (0..4).fold(0, |d, k| d | (le_u16(b.scales, k) >> 12) << (4 * k));
        let s = le_u16(b.scales, j / 4) >> (3 * (j % 4)) & 7;
        SubScale::symmetric(0.125 * crate::f16_to_f32(f16::from_bits(d)), odd(s as u8))
    };
    grid(IQ1_GRID) |b, g| {
        let high = b.qh[g / 2] >> (4 * (g % 2));
        (u16::from(b.qs[g]) | u16::from(high & 7) << 8, high >> 3 & 1)
    };
}
