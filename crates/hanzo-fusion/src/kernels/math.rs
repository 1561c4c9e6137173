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
