//! Means with their standard errors, percentiles, and the covariance of paired samples.

/// Sums of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    n: u64,
    sum: f64,
    squares: f64,
}

impl Sample {
    pub(crate) fn push(&mut self, x: f64) {
        self.n += 1;
        self.sum += x;
        self.squares += x * x;
    }

    pub(crate) fn n(&self) -> u64 {
        self.n
    }

    /// The mean; NaN of nothing.
    pub(crate) fn mean(&self) -> f64 {
        self.sum / self.n as f64
    }

    /// The standard error of the mean: `sqrt((mean(x²) - mean(x)²) / (n - 1))`; 0 of fewer than two.
    pub(crate) fn error(&self) -> f64 {
        if self.n < 2 {
            return 0.0;
        }
        let spread = self.squares / self.n as f64 - self.mean() * self.mean();
        (spread.max(0.0) / (self.n - 1) as f64).sqrt()
    }
}

/// Sums of paired samples, for the error of a difference of their means.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pairs {
    pub(crate) a: Sample,
    pub(crate) b: Sample,
    products: f64,
}

impl Pairs {
    pub(crate) fn push(&mut self, a: f64, b: f64) {
        self.a.push(a);
        self.b.push(b);
        self.products += a * b;
    }

    /// Mean of `a - b` and its standard error; pairs that move together make it smaller than the errors of both.
    pub(crate) fn difference(&self) -> (f64, f64) {
        let mean = self.a.mean() - self.b.mean();
        if self.a.n < 2 {
            return (mean, 0.0);
        }
        let n = self.a.n as f64;
        let covariance = (self.products / n - self.a.mean() * self.b.mean()) / (n - 1.0);
        let variance = self.a.error().powi(2) + self.b.error().powi(2) - 2.0 * covariance;
        (mean, variance.max(0.0).sqrt())
    }
}

/// The share of successes among `n` and its standard error, `sqrt(p (1 - p) / (n - 1))`.
pub(crate) fn share(successes: u64, n: u64) -> (f64, f64) {
    let p = successes as f64 / n as f64;
    let error = if n < 2 { 0.0 } else { (p * (1.0 - p) / (n - 1) as f64).sqrt() };
    (p, error)
}

/// The value below which `fraction` (0 to 1) of an ascending list lies, interpolated between neighbours; NaN of nothing.
pub(crate) fn percentile(ascending: &[f64], fraction: f64) -> f64 {
    let Some(last) = ascending.len().checked_sub(1) else { return f64::NAN };
    let at = fraction.clamp(0.0, 1.0) * last as f64;
    let below = at.floor();
    let value = |i: usize| ascending.get(i.min(last)).copied().unwrap_or(f64::NAN);
    let (low, high) = (value(below as usize), value(below as usize + 1));
    // An infinite neighbour must not turn a weight of zero into NaN.
    if at == below { low } else { low + (at - below) * (high - low) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} {b}");
    }

    #[test]
    fn mean_and_error() {
        let mut s = Sample::default();
        [1.0, 2.0, 3.0, 6.0].into_iter().for_each(|x| s.push(x));
        near(s.mean(), 3.0);
        // Squared deviations 4 1 0 9: variance (n - 1) 14/3, of the mean 14/12.
        near(s.error(), (14.0f64 / 12.0).sqrt());
        assert!(Sample::default().mean().is_nan());
    }

    #[test]
    fn a_difference_of_pairs_is_that_of_the_differences() {
        let (a, b) = ([1.0, 4.0, 2.0, 8.0, 5.0], [0.5, 3.0, 2.5, 6.0, 5.5]);
        let (mut pairs, mut alone) = (Pairs::default(), Sample::default());
        for (a, b) in a.into_iter().zip(b) {
            pairs.push(a, b);
            alone.push(a - b);
        }
        let (mean, error) = pairs.difference();
        near(mean, alone.mean());
        near(error, alone.error());
    }

    #[test]
    fn shares() {
        let (p, error) = share(3, 4);
        near(p, 0.75);
        near(error, 0.25);
        assert_eq!(share(1, 1), (1.0, 0.0));
    }

    #[test]
    fn percentiles_are_interpolated() {
        let values = [0.0, 10.0, 20.0, 30.0, 40.0];
        near(percentile(&values, 0.0), 0.0);
        near(percentile(&values, 0.5), 20.0);
        near(percentile(&values, 0.9), 36.0);
        near(percentile(&values, 1.0), 40.0);
        assert_eq!(percentile(&[1.0, f64::INFINITY], 0.0), 1.0);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
