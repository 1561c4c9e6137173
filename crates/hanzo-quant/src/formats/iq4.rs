//! The 4-bit non-linear formats: codes from one table of sixteen, denser around 0.

use half::f16;

use super::declare::quant_format;
use super::nibble;

/// The sixteen codes of IQ4_NL and IQ4_XS.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

quant_format! {
    /// 32 weights of 4 non-linear bits under one scale.
    IQ4_NL = 20, elems 32, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 16] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    table(4, IQ4_VALUES) |b, i| nibble(b.qs, i);
}

quant_format! {
    /// 256 weights of 4 non-linear bits: 8 sub-blocks of 32, 6-bit scales around 32 under one f16.
    IQ4_XS = 23, elems 256, sub_block 32, value = d * sc * q;
    layout { d: f16, scales_h: [u8; 2], scales_l: [u8; 4], qs: [u8; 128] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (6, 32), m: 0) |b, j| {
        let low = b.scales_l[j / 2] >> (4 * (j % 2)) & 15;
        let high = b.scales_h[j / 4] >> (2 * (j % 4)) & 3;
        SubScale::symmetric(b.d, i16::from(low | high << 4) - 32)
    };
    table(4, IQ4_VALUES) |b, i| b.qs[16 * (i / 32) + i % 16] >> (4 * (i / 16 % 2)) & 15;
}
