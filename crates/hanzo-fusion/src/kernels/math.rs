//! The transcendental functions, operation for operation those of [`hanzo_quant::math`]: the same bits on every device that rounds
//! products, sums and fused multiply-adds once.

use hanzo_quant::math as m;

use crate::kernel::{Builder, IntoVal, Val};

fn horner<'k, const N: usize>(c: &[f32; N], x: Val<'k, f32>, k: &'k Builder) -> Val<'k, f32> {
    let mut coefficients = c.iter().rev();
    let first = coefficients.next().copied().unwrap_or(0.0).val(k);
    coefficients.fold(first, |sum, &c| sum.fma(x, c))
}

/// `2^n`, `−126 ≤ n ≤ 127`.
fn power_of_two(n: Val<'_, i32>) -> Val<'_, f32> {
    ((n + 127).u32() << 23).as_f32()
}

/// `p · 2^n`, `n` in the low bits of `rounded`.
fn scale<'k>(p: Val<'k, f32>, rounded: Val<'k, f32>) -> Val<'k, f32> {
    let n = (rounded.bits() - m::ROUND.to_bits()).i32();
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n - half)
}

/// `e^x`.
pub fn exp<'k>(k: &'k Builder, x: Val<'k, f32>) -> Val<'k, f32> {
    let x = m::EXP_MIN.val(k).max(m::EXP_MAX.val(k).min(x));
    let rounded = x.fma(m::LOG2_E, m::ROUND);
    let n = rounded - m::ROUND;
    let r = n.fma(-m::LN_2_LO, n.fma(-m::LN_2_HI, x));
    scale(horner(&m::EXP, r, k), rounded)
}

/// `1 / (1 + e^−x)`.
pub fn sigmoid<'k>(k: &'k Builder, x: Val<'k, f32>) -> Val<'k, f32> {
    let t = exp(k, -x.abs());
    x.lt(0.0).select(t, 1.0) / (t + 1.0)
}

/// `x · sigmoid(x)`.
pub fn silu<'k>(k: &'k Builder, x: Val<'k, f32>) -> Val<'k, f32> {
    m::GATE_MIN.val(k).max(x) * sigmoid(k, x)
}

/// GELU, tanh form.
pub fn gelu_tanh<'k>(k: &'k Builder, x: Val<'k, f32>) -> Val<'k, f32> {
    let u = x * (x * x).fma(m::GELU_B, m::GELU_A);
    m::GATE_MIN.val(k).max(x) * sigmoid(k, u)
}

/// GELU, erf form.
pub fn gelu_erf<'k>(k: &'k Builder, x: Val<'k, f32>) -> Val<'k, f32> {
    let half = m::GATE_MIN.val(k).max(x) * 0.5;
    half * (erf(k, x * std::f32::consts::FRAC_1_SQRT_2) + 1.0)
}

/// Hyperbolic tangent.
pub fn tanh<'k>(k: &'k Builder, x: Val<'k, f32>) -> Val<'k, f32> {
    let z = x * x;
    let near = (x * z).fma(horner(&m::TANH, z, k), x);
    let a = x.abs();
    let far = 1.0 - 2.0 / (exp(k, a + a) + 1.0);
    copy_sign(a.lt(m::TANH_SPLIT).select(near, far), x)
}

/// The error function.
pub fn erf<'k>(k: &'k Builder, x: Val<'k, f32>) -> Val<'k, f32> {
    let z = x * x;
    let near = x.fma(horner(&m::ERF, z, k), x);
    let a = 4.0.val(k).min(x.abs());
    let far = 1.0 - exp(k, a * horner(&m::ERFC_LOG, a, k));
    copy_sign(a.lt(m::ERF_SPLIT).select(near, far), x)
}

/// `ln(1 + e^x)`.
pub fn softplus<'k>(k: &'k Builder, x: Val<'k, f32>) -> Val<'k, f32> {
    let t = exp(k, -x.abs());
    let s = t / (t + 2.0);
    let z = s * s;
    let tail = (s * z).fma(horner(&m::LN_1P, z, k), s + s);
    0.0.val(k).max(x) + tail
}

/// The magnitude of `x` with the sign of `sign`.
fn copy_sign<'k>(x: Val<'k, f32>, sign: Val<'k, f32>) -> Val<'k, f32> {
    ((x.bits() & 0x7fff_ffff) | (sign.bits() & 0x8000_0000)).as_f32()
}
