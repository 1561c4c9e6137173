//! The functions of `hanzo_quant::math` in lanes: the same operations in the same order, so the same bits.

use hanzo_quant::math::{
    ERF, ERF_SPLIT, ERFC_LOG, EXP, EXP_MAX, EXP_MIN, GATE_MIN, GELU_A, GELU_B, LN_1P, LN_2_HI, LN_2_LO,
    LOG2_E, ROUND, TANH, TANH_SPLIT,
};

use super::Simd;

#[inline(always)]
fn horner<S: Simd, const N: usize>(s: S, c: &[f32; N], x: S::F) -> S::F {
    let mut sum = s.splat(c[N - 1]);
    for &c in c[..N - 1].iter().rev() {
        sum = s.fma(sum, x, s.splat(c));
    }
    sum
}

/// `p · 2^n`, `n` in the low bits of `rounded`.
#[inline(always)]
pub(super) fn scale<S: Simd>(s: S, p: S::F, rounded: S::F) -> S::F {
    let n = s.sub_i(s.bits(rounded), s.splat_i(ROUND.to_bits().cast_signed()));
    let half = s.half_i(n);
    s.mul(s.mul(p, power(s, half)), power(s, s.sub_i(n, half)))
}

/// `2^n`.
#[inline(always)]
fn power<S: Simd>(s: S, n: S::I) -> S::F {
    s.from_bits(s.shl::<23>(s.add_i(n, s.splat_i(127))))
}

#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.max(s.splat(EXP_MIN), s.min(s.splat(EXP_MAX), x));
    let rounded = s.fma(x, s.splat(LOG2_E), s.splat(ROUND));
    let n = s.sub(rounded, s.splat(ROUND));
    let r = s.fma(n, s.splat(-LN_2_LO), s.fma(n, s.splat(-LN_2_HI), x));
    s.scale_by_power(horner(s, &EXP, r), rounded)
}

#[inline(always)]
fn abs<S: Simd>(s: S, x: S::F) -> S::F {
    s.from_bits(s.and_i(s.bits(x), s.splat_i(i32::MAX)))
}

#[inline(always)]
fn neg_abs<S: Simd>(s: S, x: S::F) -> S::F {
    s.from_bits(s.or_i(s.bits(x), s.splat_i(i32::MIN)))
}

/// `magnitude` without its sign, with that of `x`.
#[inline(always)]
fn copysign<S: Simd>(s: S, magnitude: S::F, x: S::F) -> S::F {
    let m = s.and_i(s.bits(magnitude), s.splat_i(i32::MAX));
    s.from_bits(s.or_i(m, s.and_i(s.bits(x), s.splat_i(i32::MIN))))
}

#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let (one, t) = (s.splat(1.0), exp(s, neg_abs(s, x)));
    let numerator = s.select_lt(x, s.splat(0.0), t, one);
    s.div(numerator, s.add(one, t))
}

#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.mul(s.max(s.splat(GATE_MIN), x), sigmoid(s, x))
}

#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let u = s.mul(x, s.fma(s.mul(x, x), s.splat(GELU_B), s.splat(GELU_A)));
    s.mul(s.max(s.splat(GATE_MIN), x), sigmoid(s, u))
}

#[inline(always)]
pub(crate) fn gelu_erf<S: Simd>(s: S, x: S::F) -> S::F {
    let half = s.mul(s.splat(0.5), s.max(s.splat(GATE_MIN), x));
    let e = erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2)));
    s.mul(half, s.add(s.splat(1.0), e))
}

#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let z = s.mul(x, x);
    let near = s.fma(s.mul(x, z), horner(s, &TANH, z), x);
    let a = abs(s, x);
    let one = s.splat(1.0);
    let far = s.sub(one, s.div(s.splat(2.0), s.add(exp(s, s.add(a, a)), one)));
    copysign(s, s.select_lt(a, s.splat(TANH_SPLIT), near, far), x)
}

#[inline(always)]
pub(crate) fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let t = exp(s, neg_abs(s, x));
    let h = s.div(t, s.add(s.splat(2.0), t));
    let z = s.mul(h, h);
    let tail = s.fma(s.mul(h, z), horner(s, &LN_1P, z), s.add(h, h));
    s.add(s.max(s.splat(0.0), x), tail)
}

#[inline(always)]
pub(crate) fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    let z = s.mul(x, x);
    let near = s.fma(x, horner(s, &ERF, z), x);
    let a = s.min(s.splat(4.0), abs(s, x));
    let far = s.sub(s.splat(1.0), exp(s, s.mul(a, horner(s, &ERFC_LOG, a))));
    copysign(s, s.select_lt(a, s.splat(ERF_SPLIT), near, far), x)
}
