//! The ternary formats: 256 weights of −1, 0 and 1 under one f16 scale.

use half::f16;

use super::declare::quant_format;

/// Digit `n` of a byte that holds five base-3 digits as a fraction of 256, most significant first.
#[inline(always)]
fn trit(byte: u8, n: usize) -> u8 {
    const POWER: [u8; 5] = [1, 3, 9, 27, 81];
    ((u16::from(byte.wrapping_mul(POWER[n])) * 3) >> 8) as u8
}

quant_format! {
    /// 256 ternary weights, five a byte: digit `n` of 32 bytes is a run of 32 elements, of the next 16 bytes a run of 16, and
    /// the last 4 bytes hold four digits each.
    TQ1_0 = 34, elems 256, sub_block 32, value = d * sc * q;
    layout { qs: [u8; 48], qh: [u8; 4], d: f16 }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    linear(2, 1) |b, i| match i {
        0..160 => trit(b.qs[i % 32], i / 32),
        160..240 => trit(b.qs[32 + i % 16], (i - 160) / 16),
        _ => trit(b.qh[i % 4], (i - 240) / 4),
    };
}

quant_format! {
    /// 256 weights of 2 bits around 1, meant to be ternary; the fourth value decodes as 2.
    TQ2_0 = 35, elems 256, sub_block 32, value = d * sc * q;
    layout { qs: [u8; 64], d: f16 }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    linear(2, 1) |b, i| b.qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
}
