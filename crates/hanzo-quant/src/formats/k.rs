//! The K formats: 256 weights, integer scales of sub-blocks of 16 or 32 under f16 super-scales.

use half::f16;

use super::declare::quant_format;

/// Scale and min of sub-block `j` of 8 where they take 6 bits each. The first four pairs lie whole in the low six
/// bits of bytes `j` (scales) and `j + 4` (mins); of the last four, byte `j + 4` has the low nibbles, scale first, and the two
/// high bits sit on top of the bytes of pair `j − 4`.
#[inline(always)]
fn six_bit_pair(s: &[u8; 12], j: usize) -> (i16, u8) {
    let (sc, m) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4)
    };
    (sc.into(), m)
}

quant_format! {
    /// 256 weights of 2 bits: 16 sub-blocks of 16, 4-bit scales and mins under two f16 super-scales.
    Q2_K = 10, elems 256, sub_block 16, value = d * sc * q - dmin * m;
    layout { scales: [u8; 16], qs: [u8; 64], d: f16, dmin: f16 }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (4, 0), m: 4) |b, j| {
        SubScale::symmetric(b.d, (b.scales[j] & 15).into()).with_min(b.dmin, b.scales[j] >> 4)
    };
    linear(2, 0) |b, i| b.qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
}

quant_format! {
    /// 256 weights of 3 bits around 4: 16 sub-blocks of 16, 6-bit scales around 32 under one f16.
    Q3_K = 11, elems 256, sub_block 16, value = d * sc * q;
    layout { hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: f16 }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (6, 32), m: 0) |b, j| {
        let low = b.scales[j % 8] >> (4 * (j / 8)) & 15;
        let high = b.scales[8 + j % 4] >> (2 * (j / 4)) & 3;
        SubScale::symmetric(b.d, i16::from(low | high << 4) - 32)
    };
    linear(3, 4) |b, i| {
        let low = b.qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
        low | (b.hmask[i % 32] >> (i / 32) & 1) << 2
    };
}

quant_format! {
    /// 256 weights of 4 bits: 8 sub-blocks of 32, 6-bit scales and mins under two f16 super-scales.
    Q4_K = 12, elems 256, sub_block 32, value = d * sc * q - dmin * m;
    layout { d: f16, dmin: f16, scales: [u8; 12], qs: [u8; 128] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (6, 0), m: 6) |b, j| {
        let (sc, m) = six_bit_pair(b.scales, j);
        SubScale::symmetric(b.d, sc).with_min(b.dmin, m)
    };
    linear(4, 0) |b, i| b.qs[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15;
}

quant_format! {
    /// 256 weights of 5 bits: 8 sub-blocks of 32, 6-bit scales and mins under two f16 super-scales.
    Q5_K = 13, elems 256, sub_block 32, value = d * sc * q - dmin * m;
    layout { d: f16, dmin: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (6, 0), m: 6) |b, j| {
        let (sc, m) = six_bit_pair(b.scales, j);
        SubScale::symmetric(b.d, sc).with_min(b.dmin, m)
    };
    linear(5, 0) |b, i| {
        let low = b.qs[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15;
        low | (b.qh[i % 32] >> (i / 32) & 1) << 4
    };
}

quant_format! {
    /// 256 weights of 6 bits around 32: 16 sub-blocks of 16, signed 8-bit scales under one f16.
    Q6_K = 14, elems 256, sub_block 16, value = d * sc * q;
    layout { ql: [u8; 128], qh: [u8; 64], scales: [u8; 16], d: f16 }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (8, 128), m: 0) |b, j| {
        SubScale::symmetric(b.d, i16::from(b.scales[j] as i8))
    };
    linear(6, 32) |b, i| {
        let low = b.ql[64 * (i / 128) + i % 64] >> (4 * (i / 64 % 2)) & 15;
        let high = b.qh[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
        low | high << 4
    };
}

quant_format! {
    /// 256 activations of 8 bits, signed, under one f32 scale, and their sums by 16 (i16). A format of intermediate results,
    /// not of files.
    Q8_K = 15, elems 256, sub_block 32, value = d * sc * q;
    layout { d: f32, qs: [u8; 256], sums: [u8; 32] }
    scale(d: SuperScale::F32, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    linear(8, 128) |b, i| b.qs[i] ^ 0x80;
}
