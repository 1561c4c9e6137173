//! The 4-bit floating-point formats (E2M1 elements), whose sixteen values, doubled, are small integers.
//!
//! MXFP4: OCP Microscaling Formats (MX) specification 1.0. NVFP4: the same elements in groups of 16 under E4M3 scales.

use super::declare::quant_format;
use super::nibble;

/// The values of E2M1, doubled. The ninth is −0, and decodes as 0.
pub(super) const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `2^(e − 128)`: half of what the exponent byte says, for the doubled elements. Exact, subnormal for `e < 2`.
fn e8m0_half(e: u8) -> f32 {
    match e {
        0 | 1 => f32::from_bits(0x0020_0000 << e),
        _ => f32::from_bits(u32::from(e - 1) << 23),
    }
}

/// Half of an unsigned E4M3 number (bias 7): NaN and the top bit read as nothing.
fn ue4m3_half(byte: u8) -> f32 {
    let (exponent, mantissa) = (byte >> 3 & 15, f32::from(byte & 7));
    match (byte & 0x7f, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa * f32::from_bits((127 - 10) << 23),
        _ => (8.0 + mantissa) * f32::from_bits((127 - 11 + u32::from(exponent)) << 23),
    }
}

quant_format! {
    /// 32 weights in E2M1 under a power of two.
    MXFP4 = 39, elems 32, sub_block 32, value = d * sc * q;
    layout { e: u8, qs: [u8; 16] }
    scale(d: SuperScale::E8M0, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(e8m0_half(b.e), 1);
    table(4, E2M1) |b, i| nibble(b.qs, i);
}

quant_format! {
    /// 64 weights in E2M1: four groups of 16, each under an unsigned E4M3 scale.
    NVFP4 = 40, elems 64, sub_block 16, value = d * sc * q;
    layout { scales: [u8; 4], qs: [u8; 32] }
    scale(d: SuperScale::Ue4m3, sc: (0, 0), m: 0) |b, j| SubScale::symmetric(ue4m3_half(b.scales[j]), 1);
    table(4, E2M1) |b, i| b.qs[8 * (i / 16) + i % 8] >> (4 * (i / 8 % 2)) & 15;
}
