//! The plain formats: one f16 scale a block, without (`_0`) or with (`_1`) an offset.

use half::f16;

use super::declare::quant_format;
use super::{bit, nibble};

/// What a bit stands for: −1 or 1.
const SIGN: [i8; 16] = [-1, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1];

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
    /// 32 weights of 5 bits around 16 under one scale.
    Q5_0 = 6, elems 32, sub_block 32, value = d * sc * q;
    layout { d: f16, qh: [u8; 4], qs: [u8; 16] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    linear(5, 16) |b, i| nibble(b.qs, i) | bit(b.qh, i) << 4;
}

quant_format! {
    /// 32 weights of 5 bits under a scale and an offset that is added.
    Q5_1 = 7, elems 32, sub_block 32, value = d * sc * q - dmin * m;
    layout { d: f16, min: f16, qh: [u8; 4], qs: [u8; 16] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1).with_min(-b.min, 1);
    linear(5, 0) |b, i| nibble(b.qs, i) | bit(b.qh, i) << 4;
}

quant_format! {
    /// 32 weights of 8 bits, signed, under one scale.
    Q8_0 = 8, elems 32, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 32] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    linear(8, 128) |b, i| b.qs[i] ^ 0x80;
}

quant_format! {
    /// 32 activations of 8 bits, signed, under one scale, and their scaled sum. A format of intermediate results, not of files.
    Q8_1 = 9, elems 32, sub_block 32, value = d * sc * q;
    layout { d: f16, sum: f16, qs: [u8; 32] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    linear(8, 128) |b, i| b.qs[i] ^ 0x80;
}

quant_format! {
    /// 128 weights of one bit: plus or minus the scale.
    Q1_0 = 41, elems 128, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 16] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    table(1, SIGN) |b, i| bit(b.qs, i);
}

quant_format! {
    /// 64 weights of 2 bits around 1 under one scale.
    Q2_0 = 42, elems 64, sub_block 32, value = d * sc * q;
    layout { d: f16, qs: [u8; 16] }
    scale(d: SuperScale::F16 { factor: 1.0 }, sc: (0, 0), m: 0) |b, _j| SubScale::symmetric(b.d, 1);
    linear(2, 1) |b, i| b.qs[i / 4] >> (2 * (i % 4)) & 3;
}
