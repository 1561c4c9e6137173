//! The first formats: 32 weights under one f16 scale, without (`_0`) or with (`_1`) a min.

use half::f16;

use super::declare::quant_format;

/// Nibbles of 32 weights in 16 bytes: the low ones are the first 16, the high ones the rest.
#[inline(always)]
fn nibble(qs: &[u8; 16], i: usize) -> u8 {
    qs[i % 16] >> (4 * (i / 16)) & 15
}

quant_format! {
    /// 32 weights of 4 bits around 8 under one scale.
    Q4_0 = 2, elems 32, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 16] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    linear(4, 8) |b, i| nibble(b.qs, i);
}

quant_format! {
    /// 32 weights of 4 bits under a scale and an offset that is added.
    Q4_1 = 3, elems 32, sub_block 32, value = d * sc * q - dmin * m;
    layout { d: f16, min: f16, qs: [u8; 16] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1).with_min(-b.min, 1);
    linear(4, 0) |b, i| nibble(b.qs, i);
}

quant_format! {
    /// 32 weights of 8 bits, signed, under one scale.
    Q8_0 = 8, elems 32, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 32] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    linear(8, 128) |b, i| b.qs[i] ^ 0x80;
}
