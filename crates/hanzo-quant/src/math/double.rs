//! Double precision: rope angles and frequency tables, logarithms. Taylor series, for speed is no matter here.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E, SQRT_2};

/// `1.5 · 2^52`: adding it rounds a small number to an integer, which then stands in the low mantissa bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// `ln 2 − LN_2`.
const LN_2_LO: f64 = 2.3190468138462996e-17;

/// `π/2` in three parts.
const PI_2: [f64; 3] = [FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];

/// Beyond it [`sin_cos`] declines.
const ANGLE_MAX: f64 = 1_073_741_824.0;

/// `1/k!` for `k = 0..N`.
const fn inverse_factorials<const N: usize>() -> [f64; N] {
    let mut table = [1.0; N];
    let (mut k, mut factorial) = (1, 1.0);
    while k < N {
        factorial *= k as f64; // exact up to 18!, correctly rounded beyond for the few that are used
        table[k] = 1.0 / factorial;
        k += 1;
    }
    table
}

const INVERSE_FACTORIAL: [f64; 19] = inverse_factorials();

/// `e^r` for `|r| ≤ ln 2 / 2`, to `r^13`.
#[inline]
fn exp_near(r: f64) -> f64 {
    INVERSE_FACTORIAL[..14].iter().rev().fold(0.0, |sum: f64, &c| sum.mul_add(r, c))
}

/// `p · 2^n` rounded once, for the `n` in the low bits of `rounded`, `|n| ≤ 1100`.
#[inline]
fn scale(p: f64, rounded: f64) -> f64 {
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = n >> 1;
    let power = |n: i64| f64::from_bits((n.wrapping_add(1023) as u64) << 52);
    p * power(half) * power(n.wrapping_sub(half))
}

/// `e^x`; within 1 ulp.
pub fn exp(x: f64) -> f64 {
    let x = x.clamp(-750.0, 750.0);
    let rounded = x.mul_add(LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(-LN_2_LO, n.mul_add(-LN_2, x));
    scale(exp_near(r), rounded)
}

/// `2^x`; within 2 ulp, exact for integers.
pub fn exp2(x: f64) -> f64 {
    let x = x.clamp(-1100.0, 1100.0);
    let rounded = x + ROUND;
    let r = x - (rounded - ROUND);
    scale(exp_near(r * LN_2), rounded)
}

/// `(e, ln m)` with `x = m · 2^e`, `√½ < m ≤ √2`, for finite `x > 0`.
fn ln_parts(x: f64) -> (f64, f64) {
    // Subnormal numbers are brought up first.
    let (x, lift) = if x < f64::MIN_POSITIVE { (x * 18_014_398_509_481_984.0, 54) } else { (x, 0) };
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i32 - 1023 - lift;
    let m = f64::from_bits(bits & ((1 << 52) - 1) | 1.0f64.to_bits());
    let (m, exponent) = if m > SQRT_2 { (0.5 * m, exponent + 1) } else { (m, exponent) };
    (f64::from(exponent), ln_1p(m - 1.0))
}

/// `ln(1 + f) = 2·artanh(s)`, `s = f/(2 + f)`, by its series in `s²` to `s^23`: to f64 for `√½ ≤ 1 + f ≤ √2`, to a
/// relative error of 1e-12 for `0 ≤ f ≤ 1`.
pub(super) fn ln_1p(f: f64) -> f64 {
    let s = f / (2.0 + f);
    let z = s * s;
    let series = (1..12).rev().fold(0.0, |sum: f64, k| sum.mul_add(z, 2.0 / f64::from(2 * k + 1)));
    (s * z).mul_add(series, s + s)
}

/// What a logarithm is outside the positive finite numbers.
fn ln_special(x: f64) -> Option<f64> {
    if x == 0.0 {
        Some(f64::NEG_INFINITY)
    } else if x > 0.0 && x < f64::INFINITY {
        None
    } else if x < 0.0 {
        Some(f64::NAN)
    } else {
        Some(x)
    }
}

/// Natural logarithm; within 2 ulp. NaN below 0, −∞ at 0.
pub fn ln(x: f64) -> f64 {
    if let Some(special) = ln_special(x) {
        return special;
    }
    let (e, ln_m) = ln_parts(x);
    e.mul_add(LN_2, e.mul_add(LN_2_LO, ln_m))
}

/// Logarithm to base 2; within 2 ulp, exact for powers of two. NaN below 0, −∞ at 0.
pub fn log2(x: f64) -> f64 {
    if let Some(special) = ln_special(x) {
        return special;
    }
    let (e, ln_m) = ln_parts(x);
    ln_m.mul_add(LOG2_E, e)
}

/// `x^y` for `x ≥ 0` (NaN below) as `2^(y·log2 x)`: relative error about `2^-52 · |y·log2 x|`, which is for frequency
/// tables (`base^(−2i/d)`), not for general use. `x^0 = 1`.
pub fn pow(x: f64, y: f64) -> f64 {
    if y == 0.0 {
        return 1.0;
    }
    exp2(y * log2(x))
}

/// Sine and cosine; absolute error below `2^-52` for `|x| ≤ 2^30`. Larger, infinite and NaN arguments give NaN: no angle
/// of a real context gets there, and a wrong value would go unseen.
pub fn sin_cos(x: f64) -> (f64, f64) {
    if !(-ANGLE_MAX..=ANGLE_MAX).contains(&x) {
        return (f64::NAN, f64::NAN);
    }
    let rounded = x.mul_add(FRAC_2_PI, ROUND);
    let n = rounded - ROUND;
    let r = PI_2.iter().fold(x, |r, &part| n.mul_add(-part, r));
    let z = r * r;
    // Alternating series: Horner in −z over every other inverse factorial.
    let odd = INVERSE_FACTORIAL[3..18].iter().step_by(2).rev().fold(0.0, |sum: f64, &c| sum.mul_add(-z, c));
    let even = INVERSE_FACTORIAL[2..19].iter().step_by(2).rev().fold(0.0, |sum: f64, &c| sum.mul_add(-z, c));
    let sin = (-z * r).mul_add(odd, r);
    let cos = (-z).mul_add(even, 1.0);
    match rounded.to_bits() & 3 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}
