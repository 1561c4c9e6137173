//! Student's t distribution: tail probabilities by the regularized incomplete beta function, quantiles by bisection.

/// Terms of the continued fraction; it converges in a few dozen wherever it is used.
const MAX_TERMS: usize = 10_000;

/// ln Γ(x) for x > 0 (Lanczos, g = 7, nine terms).
fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let sum = C.iter().skip(1).zip(1..).fold(C[0], |sum, (c, i)| sum + c / (x + f64::from(i)));
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let guard = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut h = d;
    for m in 1..MAX_TERMS {
        let m = m as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        h *= c * d;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        h *= c * d;
        if (c * d - 1.0).abs() < 1e-16 {
            break;
        }
    }
    h
}

/// The regularized incomplete beta function I_x(a, b), for 0 ≤ x ≤ 1; `y` is 1 − x, given apart so that it is exact.
fn beta(x: f64, y: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if y <= 0.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * y.ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(y, b, a) / b
    }
}

/// Probability that a t with `df` degrees of freedom (need not be whole) exceeds `t` ≥ 0.
pub fn upper_tail(t: f64, df: f64) -> f64 {
    let square = t * t;
    0.5 * beta(df / (df + square), square / (df + square), df / 2.0, 0.5)
}

/// The `p` quantile of Student's t; `None` unless 0 < p < 1 and df > 0.
pub fn quantile(p: f64, df: f64) -> Option<f64> {
    if !(p > 0.0 && p < 1.0 && df > 0.0 && df.is_finite()) {
        return None;
    }
    let tail = p.min(1.0 - p);
    let (mut low, mut high) = (0.0, 1.0);
    while upper_tail(high, df) > tail {
        low = high;
        high *= 2.0;
        if high > 1e150 {
            return None;
        }
    }
    // Until no double lies between.
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if upper_tail(middle, df) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(if p < 0.5 { -high } else { high })
}
