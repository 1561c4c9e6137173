//! The statistics of the board: means with Student-t intervals, ratios with delta-method intervals, verdicts.
//!
//! All are pure functions of samples. `tests/stats` compares them with scipy on random data.

mod student;

pub use student::{quantile, upper_tail};

/// Share of the probability that intervals cover.
pub const CONFIDENCE: f64 = 0.95;
/// Coefficient of variation above which a cell is flagged.
pub const CV_LIMIT: f64 = 0.05;

/// Mean and spread of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Samples.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (n − 1); `None` for one sample.
    pub sd: Option<f64>,
}

impl Summary {
    /// Of some values; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        // Two passes: the squares of deviations, not the difference of squares.
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        let sd = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
        Some(Self { n, mean, sd })
    }

    /// Variance of the mean.
    fn mean_variance(&self) -> Option<f64> {
        self.sd.map(|sd| sd * sd / self.n as f64)
    }

    /// Half the width of the mean's 95 % interval by Student's t; `None` for one sample.
    pub fn half_width(&self) -> Option<f64> {
        let t = quantile(0.5 + CONFIDENCE / 2.0, (self.n - 1) as f64)?;
        Some(t * self.mean_variance()?.sqrt())
    }

    /// Coefficient of variation.
    pub fn cv(&self) -> Option<f64> {
        self.sd.map(|sd| sd / self.mean.abs())
    }

    /// Whether the cell is too noisy to be believed without a second look.
    pub fn is_noisy(&self) -> bool {
        self.cv().is_some_and(|cv| cv > CV_LIMIT)
    }
}

/// A ratio of two means and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Mean over mean.
    pub value: f64,
    /// The 95 % interval; `None` where a side has one sample.
    pub interval: Option<(f64, f64)>,
}

/// What a ratio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The interval lies above 1.
    Win,
    /// The interval lies below 1.
    Loss,
    /// The interval holds 1.
    Parity,
}

impl Verdict {
    /// As the board writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Win => "WIN",
            Self::Loss => "LOSS",
            Self::Parity => "PARITY",
        }
    }
}

impl Ratio {
    /// `a / b` of independent means.
    ///
    /// Delta method: the variance of a/b is (a/b)² (var a / a² + var b / b²) to first order. The quantile is Student's
    /// t with the degrees of freedom that Welch and Satterthwaite give for that sum of relative variances.
    pub fn of(a: &Summary, b: &Summary) -> Option<Self> {
        if a.mean <= 0.0 || b.mean <= 0.0 {
            return None;
        }
        let value = a.mean / b.mean;
        let interval = a.mean_variance().zip(b.mean_variance()).and_then(|(va, vb)| {
            let (ra, rb) = (va / (a.mean * a.mean), vb / (b.mean * b.mean));
            let sum = ra + rb;
            if sum == 0.0 {
                return Some((value, value));
            }
            let df = sum * sum / (ra * ra / (a.n - 1) as f64 + rb * rb / (b.n - 1) as f64);
            let half = quantile(0.5 + CONFIDENCE / 2.0, df)? * value * sum.sqrt();
            Some((value - half, value + half))
        });
        Some(Self { value, interval })
    }

    /// What it says; `None` without an interval.
    pub fn verdict(&self) -> Option<Verdict> {
        self.interval.map(|(low, high)| {
            if low > 1.0 {
                Verdict::Win
            } else if high < 1.0 {
                Verdict::Loss
            } else {
                Verdict::Parity
            }
        })
    }
}

/// The `p` quantile (0 to 1) of some values, by linear interpolation between order statistics (Hyndman and Fan's
/// type 7, numpy's default); `None` of none.
pub fn percentile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = p.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let low = *sorted.get(at.floor() as usize)?;
    let high = *sorted.get(at.ceil() as usize)?;
    Some(low + (high - low) * at.fract())
}

/// Intercept and slope of the least-squares line through points; `None` where `x` does not vary.
pub fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let xx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let xy: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    (xx > 0.0).then(|| {
        let slope = xy / xx;
        (my - slope * mx, slope)
    })
}
