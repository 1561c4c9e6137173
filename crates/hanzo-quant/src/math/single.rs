//! Single precision: the functions that run on every activation.

use super::double;

/// Relative error of the polynomial 2^-28: `exp(r)` for `|r| ≤ ln 2 / 2`.
pub const EXP: [f32; 7] = [1.0, 1.0, 4.9999988e-1, 1.6666518e-1, 4.1669656e-2, 8.3689615e-3, 1.3744815e-3];
/// Relative error of the polynomial 2^-28: `2^r` for `|r| ≤ 1/2`.
pub const EXP2: [f32; 7] =
    [1.0, 6.931472e-1, 2.4022645e-1, 5.5503592e-2, 9.618841e-3, 1.3391137e-3, 1.5238006e-4];
/// Relative error of the polynomial 2^-27: `tanh(x) = x + x·z·P(z)`, `z = x²`, for `|x| ≤ 0.625`.
pub const TANH: [f32; 5] = [-3.333328e-1, 1.3331412e-1, -5.3737402e-2, 2.0632116e-2, -5.6977225e-3];
/// Relative error of the polynomial 2^-30: `erf(x) = x + x·P(z)`, `z = x²`, for `|x| ≤ 0.9`.
pub const ERF: [f32; 7] =
    [1.2837917e-1, -3.7612632e-1, 1.12836815e-1, -2.6859023e-2, 5.200722e-3, -8.144158e-4, 8.3922685e-5];
/// Relative error of the polynomial 2^-31: `erf(x) = 1 − exp(x·P(x))` for `0.9 ≤ x ≤ 4`.
pub const ERFC_LOG: [f32; 8] = [
    -1.128546,
    -6.3565075e-1,
    -1.0521556e-1,
    2.2626998e-2,
    -2.9026647e-3,
    4.0241284e-5,
    4.7294652e-5,
    -5.068878e-6,
];

/// Inverse hyperbolic tangent's series, doubled: `ln(1 + t) = 2s + s·z·P(z)`, `s = t/(2 + t)`, `z = s²`, for `0 ≤ t ≤ 1`.
/// What is cut off is below 2^-31 of the result.
pub const LN_1P: [f32; 8] =
    [6.666667e-1, 4.0e-1, 2.857143e-1, 2.2222222e-1, 1.8181819e-1, 1.5384616e-1, 1.3333334e-1, 1.1764706e-1];

/// `1.5 · 2^23`: adding it rounds a small number to an integer (ties to even), which then stands in the low mantissa bits.
pub const ROUND: f32 = 12_582_912.0;
/// `log2 e`.
pub const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// `ln 2` to f32.
pub const LN_2_HI: f32 = std::f32::consts::LN_2;
/// `ln 2 − LN_2_HI`.
pub const LN_2_LO: f32 = (std::f64::consts::LN_2 - LN_2_HI as f64) as f32;
/// [`exp`] of this and all below is 0.
pub const EXP_MIN: f32 = -104.0;
/// [`exp`] of this and all above is infinite.
pub const EXP_MAX: f32 = 89.0;
/// [`exp2`] of this and all below is 0.
pub const EXP2_MIN: f32 = -151.0;
/// [`exp2`] of this and all above is infinite.
pub const EXP2_MAX: f32 = 128.0;
/// Where [`tanh`] changes from its polynomial to the exponential.
pub const TANH_SPLIT: f32 = 0.625;
/// Where [`erf`] changes from its polynomial to the exponential.
pub const ERF_SPLIT: f32 = 0.9;
/// The sigmoid of this and all below is 0, so [`silu`] and [`gelu_tanh`] need not look further left.
pub const GATE_MIN: f32 = -128.0;
/// `2 √(2/π)`.
pub const GELU_A: f32 = 1.595_769_2;
/// `2 √(2/π) · 0.044715`.
pub const GELU_B: f32 = 0.071_354_814;

/// `a < b ? a : b`, which is `minps(a, b)`: a NaN in `b` passes.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// `a > b ? a : b`, which is `maxps(a, b)`: a NaN in `b` passes.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// `c[0] + x·(c[1] + x·(…))` in fused multiply-adds.
#[inline(always)]
pub fn horner<const N: usize>(c: &[f32; N], x: f32) -> f32 {
    let mut sum = c[N - 1];
    for &c in c[..N - 1].iter().rev() {
        sum = sum.mul_add(x, c);
    }
    sum
}

/// `p · 2^n` rounded once, where `n` stands in the low bits of `rounded = n + ROUND`, `−151 ≤ n ≤ 128`, `1/2 < p < 2`.
///
/// The first product is exact and the second rounds to a subnormal number, zero or infinity where need be.
#[inline(always)]
fn scale(p: f32, rounded: f32) -> f32 {
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `2^n` for `−126 ≤ n ≤ 127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `e^x`; within 1 ulp, subnormal results included; 0 at −∞, ∞ at ∞ and above 88.72.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = max(EXP_MIN, min(EXP_MAX, x));
    let rounded = x.mul_add(LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(-LN_2_LO, n.mul_add(-LN_2_HI, x));
    scale(horner(&EXP, r), rounded)
}

/// `2^x`; within 1 ulp, exact for integers.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let x = max(EXP2_MIN, min(EXP2_MAX, x));
    let rounded = x + ROUND;
    let r = x - (rounded - ROUND);
    scale(horner(&EXP2, r), rounded)
}

/// `1 / (1 + e^−x)`; within 2.5 ulp. Never computes `e` of a positive number: `t = exp(−|x|)`, then `1/(1 + t)` for
/// `x ≥ 0` and `t/(1 + t)` for `x < 0`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let t = exp(-x.abs());
    let numerator = if x < 0.0 { t } else { 1.0 };
    numerator / (1.0 + t)
}

/// `x · sigmoid(x)`; within 3.5 ulp down to −86 (then results are subnormal), −0 at −∞.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    max(GATE_MIN, x) * sigmoid(x)
}

/// GELU in its tanh form, `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`, computed as
/// `x · sigmoid(x · (2√(2/π) + 2√(2/π)·0.044715·x²))`, which does not cancel on the left.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    let u = x * (x * x).mul_add(GELU_B, GELU_A);
    max(GATE_MIN, x) * sigmoid(u)
}

/// GELU in its exact form, `x/2 · (1 + erf(x/√2))`; 0 at −∞.
#[inline(always)]
pub fn gelu_erf(x: f32) -> f32 {
    let half = 0.5 * max(GATE_MIN, x);
    half * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// Hyperbolic tangent; within 2 ulp. `1 − 2/(e^2|x| + 1)` with the sign of `x`, near 0 its polynomial.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let z = x * x;
    let near = (x * z).mul_add(horner(&TANH, z), x);
    let a = x.abs();
    let far = 1.0 - 2.0 / (exp(a + a) + 1.0);
    // The polynomial keeps the sign but for −0.
    (if a < TANH_SPLIT { near } else { far }).copysign(x)
}

/// The error function; within 2 ulp. `1 − exp(a·P(a))`, `a = min(4, |x|)`, with the sign of `x`, near 0 its polynomial.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let z = x * x;
    let near = x.mul_add(horner(&ERF, z), x);
    let a = min(4.0, x.abs());
    let far = 1.0 - exp(a * horner(&ERFC_LOG, a));
    (if a < ERF_SPLIT { near } else { far }).copysign(x)
}

/// Natural logarithm, rounded from [`double::ln`]: NaN below 0, −∞ at 0, ∞ at ∞.
#[inline]
pub fn ln(x: f32) -> f32 {
    double::ln(x.into()) as f32
}

/// Logarithm to base 2, rounded from [`double::log2`].
#[inline]
pub fn log2(x: f32) -> f32 {
    double::log2(x.into()) as f32
}

/// `ln(1 + e^x)`; within 3 ulp. `max(x, 0) + ln(1 + e^−|x|)`.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let t = exp(-x.abs());
    let s = t / (2.0 + t);
    let z = s * s;
    let tail = (s * z).mul_add(horner(&LN_1P, z), s + s);
    max(0.0, x) + tail
}

/// Sine and cosine, rounded from [`double::sin_cos`]: NaN beyond `|x| ≤ 2^30`.
#[inline]
pub fn sin_cos_f32(x: f32) -> (f32, f32) {
    let (sin, cos) = double::sin_cos(x.into());
    (sin as f32, cos as f32)
}
