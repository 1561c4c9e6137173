//! The sums of a run, and what is said of them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::Kv;
use crate::measure::logprob::Comparison;
use crate::measure::stats::{Pairs, Sample, percentile, share};

/// Percentiles of divergences that are told.
const PERCENTILES: &[(&str, f64)] = &[
    ("max", 1.0),
    ("p99.9", 0.999),
    ("p99", 0.99),
    ("p95", 0.95),
    ("p90", 0.90),
    ("median", 0.5),
    ("p10", 0.1),
    ("p5", 0.05),
    ("p1", 0.01),
    ("min", 0.0),
];

/// What was run.
pub(super) struct Setting {
    pub(super) model: String,
    pub(super) device: String,
    pub(super) kv: Kv,
    pub(super) ctx: usize,
    pub(super) stride: Option<u32>,
    /// Windows that were to be run.
    pub(super) windows: usize,
    pub(super) base: Option<PathBuf>,
}

/// What came out so far.
pub(super) struct Report {
    setting: Setting,
    nll: Sample,
    /// Of the window that is running.
    window: Sample,
    /// Mean negative log-likelihood of each window.
    windows: Vec<f64>,
    elapsed: Duration,
    divergence: Divergence,
}

/// How the model differs from the base.
#[derive(Default)]
struct Divergence {
    /// Negative log-likelihoods, the model's and the base's, both no more than the base's row tells: else a model would seem worse
    /// than itself.
    nll: Pairs,
    /// Of these, how many are as much as the row tells, or more.
    floored: [u64; 2],
    kld: Sample,
    klds: Vec<f64>,
    same_top: u64,
    /// Differences of the probability of the text's token.
    delta_p: Sample,
    squared_delta_p: Sample,
}

impl Report {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            setting,
            nll: Sample::default(),
            window: Sample::default(),
            windows: Vec::new(),
            elapsed: Duration::ZERO,
            divergence: Divergence::default(),
        }
    }

    /// A token had this negative log-likelihood.
    pub(super) fn scored(&mut self, nll: f64) {
        self.window.push(nll);
        self.nll.push(nll);
    }

    /// The same token was compared.
    pub(super) fn compared(&mut self, nll: f64, comparison: &Comparison) {
        let d = &mut self.divergence;
        let pair = [nll.min(comparison.most), comparison.nll_base];
        d.nll.push(pair[0], pair[1]);
        for (n, nll) in d.floored.iter_mut().zip(pair) {
            *n += u64::from(nll >= comparison.most);
        }
        d.kld.push(comparison.divergence.kld);
        d.klds.push(comparison.divergence.kld);
        d.same_top += u64::from(comparison.divergence.same_top);
        let delta = (-nll).exp() - (-comparison.nll_base).exp();
        d.delta_p.push(delta);
        d.squared_delta_p.push(delta * delta);
    }

    /// A window is done.
    pub(super) fn end_window(&mut self, elapsed: Duration) {
        self.windows.push(std::mem::take(&mut self.window).mean());
        self.elapsed = elapsed;
    }

    pub(super) fn has_windows(&self) -> bool {
        !self.windows.is_empty()
    }

    /// A few words for the progress bar.
    pub(super) fn brief(&self) -> String {
        format!("perplexity {:.4}", self.nll.mean().exp())
    }

    fn is_complete(&self) -> bool {
        self.windows.len() == self.setting.windows
    }

    /// Perplexity and its error: that of the mean, times the derivative.
    fn perplexity(nll: &Sample) -> (f64, f64) {
        let perplexity = nll.mean().exp();
        (perplexity, perplexity * nll.error())
    }

    /// For a person.
    pub(super) fn text(&self) -> String {
        let (perplexity, error) = Self::perplexity(&self.nll);
        let mut text = format!("perplexity {perplexity:.4} ± {error:.4}\n");
        let windows = self.windows.len();
        let s = if windows == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            "{} tokens scored in {windows} window{s} of {}, {:.1} s",
            self.nll.n(),
            self.setting.ctx,
            self.elapsed.as_secs_f64()
        );
        if !self.is_complete() {
            let _ = writeln!(text, "interrupted: {windows} of {} windows", self.setting.windows);
        }
        if self.setting.base.is_some() {
            self.divergence.write(&mut text);
        }
        text
    }

    /// For a program.
    pub(super) fn json(&self) -> Value {
        let (perplexity, error) = Self::perplexity(&self.nll);
        let mut value = json!({
            "model": self.setting.model,
            "device": self.setting.device,
            "kv": self.setting.kv.name(),
            "ctx": self.setting.ctx,
            "stride": self.setting.stride,
            "complete": self.is_complete(),
            "windows": self.windows.len(),
            "tokens_scored": self.nll.n(),
            "nll": self.nll.mean(),
            "nll_error": self.nll.error(),
            "perplexity": perplexity,
            "perplexity_error": error,
            "window_nll": self.windows,
            "elapsed_s": self.elapsed.as_secs_f64(),
        });
        if let (Some(base), Some(object)) = (&self.setting.base, value.as_object_mut()) {
            object.insert("base".to_owned(), base.display().to_string().into());
            object.extend(self.divergence.json());
        }
        value
    }
}

impl Divergence {
    fn percentiles(&self) -> Vec<(&'static str, f64)> {
        let mut ascending = self.klds.clone();
        ascending.sort_by(f64::total_cmp);
        PERCENTILES.iter().map(|&(name, fraction)| (name, percentile(&ascending, fraction))).collect()
    }

    /// Root of the mean square of a sample of squares, and its error.
    fn root(squares: &Sample) -> (f64, f64) {
        let root = squares.mean().sqrt();
        (root, if root > 0.0 { 0.5 / root * squares.error() } else { 0.0 })
    }

    fn write(&self, text: &mut String) {
        let (base, base_error) = Report::perplexity(&self.nll.b);
        let (ln_ratio, ln_ratio_error) = self.nll.difference();
        let (same, same_error) = share(self.same_top, self.kld.n());
        let (root, root_error) = Self::root(&self.squared_delta_p);
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<28} {value}");
        };
        line("perplexity of the base", format!("{base:.4} ± {base_error:.4}"));
        line("ln(perplexity / base's)", format!("{ln_ratio:.6} ± {ln_ratio_error:.6}"));
        if self.floored != [0; 2] {
            let [own, base] = self.floored;
            let name = "less likely than is saved";
            line(
                name,
                format!(
                    "{base} of the base's tokens, {own} of the model's: taken as not less in the two lines above"
                ),
            );
        }
        line("divergence, mean", format!("{:.6} ± {:.6}", self.kld.mean(), self.kld.error()));
        for (name, value) in self.percentiles() {
            line(&format!("divergence, {name}"), format!("{value:.6}"));
        }
        line("same most likely token", format!("{:.3} ± {:.3} %", 100.0 * same, 100.0 * same_error));
        line("root mean square of Δp", format!("{:.3} ± {:.3} %", 100.0 * root, 100.0 * root_error));
    }

    fn json(&self) -> serde_json::Map<String, Value> {
        let (base, base_error) = Report::perplexity(&self.nll.b);
        let (ln_ratio, ln_ratio_error) = self.nll.difference();
        let (same, same_error) = share(self.same_top, self.kld.n());
        let (root, root_error) = Self::root(&self.squared_delta_p);
        let mut kld = serde_json::Map::new();
        kld.insert("mean".to_owned(), self.kld.mean().into());
        kld.insert("error".to_owned(), self.kld.error().into());
        kld.extend(self.percentiles().into_iter().map(|(name, value)| (name.to_owned(), value.into())));
        [
            ("base_perplexity", base.into()),
            ("base_perplexity_error", base_error.into()),
            ("ln_ratio", ln_ratio.into()),
            ("ln_ratio_error", ln_ratio_error.into()),
            ("floored", self.floored[0].into()),
            ("base_floored", self.floored[1].into()),
            ("kld", kld.into()),
            ("same_top", same.into()),
            ("same_top_error", same_error.into()),
            ("delta_p_mean", self.delta_p.mean().into()),
            ("delta_p_rms", root.into()),
            ("delta_p_rms_error", root_error.into()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}
