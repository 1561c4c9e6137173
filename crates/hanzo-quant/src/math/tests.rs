//! Accuracy against the standard library in double precision, special values, and frozen bits.

use super::*;

/// Largest error of `f` against `reference` in units of the last place of the f32 result, over every `stride`-th f32 of
/// magnitude up to `limit`, both signs.
fn max_ulp(f: impl Fn(f32) -> f32, reference: impl Fn(f64) -> f64, limit: f32, stride: usize) -> f64 {
    let mut worst = 0f64;
    for bits in (0..=limit.to_bits()).step_by(stride) {
        for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
            let (got, want) = (f64::from(f(x)), reference(f64::from(x)));
            if got == f64::from(want as f32) {
                continue;
            }
            assert!(got.is_finite() && want.is_finite(), "f({x:e}) = {got:e}, expected {want:e}");
            let exponent = (want.abs().log2().floor() as i32).max(-126);
            worst = worst.max((got - want).abs() / 2f64.powi(exponent - 23));
        }
    }
    worst
}

fn sigmoid_f64(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Abramowitz & Stegun 7.1.6 (all terms positive) and, further out, the continued fraction of erfc.
fn erf_f64(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 3.0 {
        let (mut term, mut sum) = (a, a);
        for k in 1..80 {
            term *= 2.0 * a * a / f64::from(2 * k + 1);
            sum += term;
        }
        2.0 / std::f64::consts::PI.sqrt() * (-a * a).exp() * sum
    } else {
        let fraction = (1..120).rev().fold(a, |f, k| a + f64::from(k) / 2.0 / f);
        1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

#[test]
fn exponentials_are_within_one_ulp() {
    let worst = max_ulp(exp, f64::exp, 110.0, 499);
    assert!(worst <= 1.0, "exp: {worst} ulp");
    let worst = max_ulp(exp2, f64::exp2, 160.0, 499);
    assert!(worst <= 1.0, "exp2: {worst} ulp");
}

#[test]
fn exp_near_its_ends() {
    // Every f32 around the largest finite result, and where results fall from normal to subnormal to 0.
    for centre in [88.722_84_f32, -87.336_54, -103.972_08, -103.278_93] {
        for bits in centre.to_bits() - 3000..centre.to_bits() + 3000 {
            let x = f32::from_bits(bits);
            let (got, want) = (exp(x), f64::from(x).exp() as f32);
            let distance = got.to_bits().abs_diff(want.to_bits());
            assert!(distance <= 1, "exp({x}) = {got:e}, expected {want:e}");
        }
    }
}

#[test]
fn activations_are_accurate() {
    let worst = max_ulp(sigmoid, sigmoid_f64, 110.0, 499);
    assert!(worst <= 2.5, "sigmoid: {worst} ulp");
    let worst = max_ulp(silu, |x| x * sigmoid_f64(x), 86.0, 499);
    assert!(worst <= 3.5, "silu: {worst} ulp");
    let worst = max_ulp(tanh, f64::tanh, 20.0, 499);
    assert!(worst <= 2.0, "tanh: {worst} ulp");
    let worst = max_ulp(erf, erf_f64, 6.0, 499);
    assert!(worst <= 2.0, "erf: {worst} ulp");
    let worst = max_ulp(softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), 40.0, 499);
    assert!(worst <= 3.0, "softplus: {worst} ulp");
}

#[test]
fn gelu_is_accurate() {
    let tanh_form =
        |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh());
    let exact = |x: f64| 0.5 * x * (1.0 + erf_f64(x / std::f64::consts::SQRT_2));
    for i in -40_000..=40_000 {
        let x = i as f32 / 4000.0;
        let bound = 2e-7 * x.abs() + 1e-9;
        for (got, want) in [(gelu_tanh(x), tanh_form(x.into())), (gelu_erf(x), exact(x.into()))] {
            assert!((f64::from(got) - want).abs() <= bound.into(), "gelu({x}) = {got}, expected {want}");
        }
    }
}

#[test]
fn special_values_are_exact() {
    let inf = f32::INFINITY;
    for (f, at_minus_inf, at_minus_zero, at_zero, at_inf) in [
        (exp as fn(f32) -> f32, 0.0, 1.0, 1.0, inf),
        (exp2, 0.0, 1.0, 1.0, inf),
        (sigmoid, 0.0, 0.5, 0.5, 1.0),
        (silu, -0.0, -0.0, 0.0, inf),
        (gelu_tanh, -0.0, -0.0, 0.0, inf),
        (gelu_erf, -0.0, -0.0, 0.0, inf),
        (tanh, -1.0, -0.0, 0.0, 1.0),
        (erf, -1.0, -0.0, 0.0, 1.0),
        (ln, f32::NAN, -inf, -inf, inf),
        (log2, f32::NAN, -inf, -inf, inf),
        (softplus, 0.0, std::f32::consts::LN_2, std::f32::consts::LN_2, inf),
    ] {
        assert!(f(f32::NAN).is_nan());
        for (x, want) in [(-inf, at_minus_inf), (-0.0, at_minus_zero), (0.0, at_zero), (inf, at_inf)] {
            let got: f32 = f(x);
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "f({x}) = {got}, not {want}"
            );
        }
    }
    for x in [-104.0, -200.0, -1e5, f32::MIN] {
        assert_eq!(exp(x).to_bits(), 0);
        assert_eq!((sigmoid(x), tanh(x), erf(x)), (0.0, -1.0, -1.0));
        assert_eq!((silu(x), gelu_tanh(x), gelu_erf(x)), (0.0, 0.0, 0.0));
    }
    for n in -149..128 {
        assert_eq!(exp2(n as f32), 2f64.powi(n) as f32);
        assert_eq!(log2(2f64.powi(n) as f32), n as f32);
    }
}

#[test]
fn logarithms_are_accurate() {
    for bits in (1..f32::INFINITY.to_bits()).step_by(997) {
        let x = f32::from_bits(bits);
        for (got, want) in [(ln(x), f64::from(x).ln() as f32), (log2(x), f64::from(x).log2() as f32)] {
            assert!(got.to_bits().abs_diff(want.to_bits()) <= 1, "log of {x:e}: {got}, expected {want}");
        }
    }
    for i in 1..200_000 {
        let x = f64::from(i) * 1.234e-3;
        for (got, want) in [(ln_f64(x), x.ln()), (log2_f64(x), x.log2())] {
            assert!((got - want).abs() <= 4.5e-16 * want.abs(), "log of {x:e}: {got}, expected {want}");
        }
    }
    assert_eq!(ln_f64(5e-324), 5e-324f64.ln());
}

#[test]
fn double_precision_exponentials() {
    for i in -70_000..70_000 {
        let x = f64::from(i) * 0.01;
        for (got, want) in [(exp_f64(x), x.exp()), (exp2_f64(x), x.exp2())] {
            let close = (got - want).abs() <= 4.5e-16 * want.abs();
            assert!(got == want || close, "exp of {x}: {got:e}, expected {want:e}");
        }
    }
    assert!(exp_f64(f64::NAN).is_nan() && exp2_f64(f64::NAN).is_nan());
    assert_eq!((exp_f64(f64::INFINITY), exp_f64(f64::NEG_INFINITY)), (f64::INFINITY, 0.0));
}

#[test]
fn pow_serves_frequency_tables() {
    for base in [100.0, 1e4, 5e5, 1e6, 1e7] {
        for half in [16, 32, 64, 128, 256] {
            for i in 0..half {
                let y = -f64::from(i) / f64::from(half);
                let (got, want) = (pow(base, y), base.powf(y));
                assert!((got - want).abs() <= 1e-14 * want, "{base}^{y}: {got:e}, expected {want:e}");
            }
        }
    }
    assert_eq!(
        (pow(0.0, 2.0), pow(0.0, -1.0), pow(0.0, 0.0), pow(2.0, 10.0)),
        (0.0, f64::INFINITY, 1.0, 1024.0)
    );
    assert!(pow(-1.0, 0.5).is_nan());
}

#[test]
fn rope_angles() {
    let mut x = 1e-9f64;
    while x < 1e9 {
        for x in [x, -x] {
            let (sin, cos) = sin_cos(x);
            assert!((sin - x.sin()).abs() <= 2.3e-16, "sin({x}) = {sin}, expected {}", x.sin());
            assert!((cos - x.cos()).abs() <= 2.3e-16, "cos({x}) = {cos}, expected {}", x.cos());
        }
        x *= 1.000_37;
    }
    for position in 0..200_000 {
        let x = f64::from(position);
        let (sin, cos) = sin_cos(x);
        assert!((sin - x.sin()).abs() <= 2.3e-16 && (cos - x.cos()).abs() <= 2.3e-16, "{x}");
    }
    assert_eq!(sin_cos(0.0), (0.0, 1.0));
    for x in [f64::NAN, f64::INFINITY, -2e9] {
        assert!(sin_cos(x).0.is_nan() && sin_cos(x).1.is_nan());
    }
}

/// The bits are the contract: a change of order or coefficient anywhere must show here.
#[test]
fn bits_are_frozen() {
    let digest = |f: fn(f32) -> f32| {
        (0..f32::INFINITY.to_bits()).step_by(65_537).fold(0xcbf2_9ce4_8422_2325u64, |h, bits| {
            [bits, bits | 1 << 31].iter().fold(h, |h, &bits| {
                (h ^ u64::from(f(f32::from_bits(bits)).to_bits())).wrapping_mul(0x100_0000_01b3)
            })
        })
    };
    let got = [exp, exp2, sigmoid, silu, gelu_tanh, gelu_erf, tanh, erf].map(|f: fn(f32) -> f32| digest(f));
    let frozen = [
        0x0d9c_2d47_3b78_6539,
        0x3bd8_0b78_3825_e201,
        0x4088_be42_6681_ac23,
        0x1447_35cc_106f_3d2c,
        0x13ed_322f_6aab_9285,
        0x3335_67f9_ed8f_0cfd,
        0xe38d_f269_0d7c_ec13,
        0x7723_5d6d_7782_8931,
    ];
    assert_eq!(got, frozen, "{got:#x?}");
}
