//! The tokens that are still in question, and the filters that narrow them down.

use hanzo_quant::math;

/// Tokens that are left. In order of their ids until a filter needs them sorted; then the most likely first (the lower
/// id first among equals).
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    entries: Vec<Candidate>,
    sorted: bool,
}

/// A token in question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub id: u32,
    /// Its logit, after all that the chain did so far.
    pub logit: f32,
    /// Its probability among the candidates at the last [`Candidates::softmax`].
    pub p: f32,
}

fn order(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

impl Candidates {
    /// Takes all of `logits` that are numbers above −∞.
    pub fn fill(&mut self, logits: &[f32]) {
        self.entries.clear();
        self.sorted = false;
        let possible = logits.iter().enumerate().filter(|(_, l)| **l > f32::NEG_INFINITY);
        self.entries.extend(possible.map(|(i, &logit)| Candidate { id: i as u32, logit, p: 0.0 }));
    }

    /// What is left.
    pub fn entries(&self) -> &[Candidate] {
        &self.entries
    }

    /// Changes logits one by one.
    pub(crate) fn adjust(&mut self, mut f: impl FnMut(u32, f32) -> f32) {
        self.entries.iter_mut().for_each(|c| c.logit = f(c.id, c.logit));
        self.sorted = false;
    }

    /// Sorts, if that was not done since the last change.
    pub fn sort(&mut self) {
        if !std::mem::replace(&mut self.sorted, true) {
            self.entries.sort_unstable_by(order);
        }
    }

    fn max(&self) -> f32 {
        self.entries.iter().fold(f32::NEG_INFINITY, |m, c| m.max(c.logit))
    }

    /// Probabilities of the candidates.
    pub fn softmax(&mut self) {
        let max = self.max();
        let mut sum = 0.0;
        for c in &mut self.entries {
            // An infinite best logit leaves nothing for the others.
            c.p = if c.logit == max { 1.0 } else { math::exp(c.logit - max) };
            sum += f64::from(c.p);
        }
        let scale = (1.0 / sum) as f32;
        self.entries.iter_mut().for_each(|c| c.p *= scale);
    }

    /// The `k` most likely (all when `k` is 0), sorted.
    pub fn top_k(&mut self, k: usize) {
        if k == 0 || k >= self.entries.len() {
            return;
        }
        if !self.sorted {
            self.entries.select_nth_unstable_by(k, order);
        }
        self.entries.truncate(k);
        self.sort();
    }

    /// Top-nσ (Tang et al. 2024): logits within `n` standard deviations of the best.
    pub fn top_n_sigma(&mut self, n: f32) {
        if n <= 0.0 {
            return;
        }
        let count = self.entries.len() as f64;
        let mean = self.entries.iter().map(|c| f64::from(c.logit)).sum::<f64>() / count;
        let variance = self
            .entries
            .iter()
            .map(|c| (f64::from(c.logit) - mean) * (f64::from(c.logit) - mean))
            .sum::<f64>()
            / count;
        let least = f64::from(self.max()) - f64::from(n) * variance.sqrt();
        // Not a number where a logit is infinite: then nothing is known of the spread.
        if least.is_finite() {
            self.entries.retain(|c| f64::from(c.logit) >= least);
        }
    }

    /// Nucleus sampling (Holtzman et al. 2019): the most likely until their sum reaches `p`.
    pub fn top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        self.sort();
        self.softmax();
        let mut sum = 0.0;
        let keep = self.entries.iter().position(|c| {
            sum += c.p;
            sum >= p
        });
        self.keep(keep.map_or(self.entries.len(), |i| i + 1));
    }

    /// Min-p (Nguyen et al. 2024): those at least `p` times as likely as the best.
    pub fn min_p(&mut self, p: f32) {
        if p <= 0.0 {
            return;
        }
        self.softmax();
        let best = self.entries.iter().fold(0.0, |m: f32, c| m.max(c.p));
        self.entries.retain(|c| c.p >= best * p);
    }

    /// Locally typical sampling (Meister et al. 2022): those whose surprise is closest to the entropy, up to mass `p`.
    pub fn typical_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        self.softmax();
        self.entries.retain(|c| c.p > 0.0);
        let entropy: f32 = self.entries.iter().map(|c| -c.p * math::ln(c.p)).sum();
        let distance = |c: &Candidate| (-math::ln(c.p) - entropy).abs();
        self.entries.sort_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.id.cmp(&b.id)));
        let mut sum = 0.0;
        let keep = self.entries.iter().position(|c| {
            sum += c.p;
            sum >= p
        });
        self.keep(keep.map_or(self.entries.len(), |i| i + 1));
        self.sorted = false;
    }

    /// Exclusion of top choices: of those at least as likely as `threshold`, if there are two or more, all but the
    /// least likely go. The caller draws whether it acts at all.
    pub fn xtc(&mut self, threshold: f32) {
        self.sort();
        self.softmax();
        let top = self.entries.iter().take_while(|c| c.p >= threshold).count();
        if top > 1 {
            self.entries.drain(..top - 1);
        }
    }

    /// Divides logits by a temperature; 0 leaves the best only.
    pub fn temperature(&mut self, t: f32) {
        if t == 0.0 {
            self.sort();
            self.keep(1);
        } else if t != 1.0 {
            self.entries.iter_mut().for_each(|c| c.logit /= t);
        }
    }

    /// Temperature by entropy: `low + (high − low) · (H / Hmax)^exponent`, from `t − range` (at least 0) to `t + range`.
    pub fn dynamic_temperature(&mut self, t: f32, range: f32, exponent: f32) {
        if self.entries.len() <= 1 {
            return;
        }
        self.softmax();
        let entropy: f32 = self.entries.iter().filter(|c| c.p > 0.0).map(|c| -c.p * math::ln(c.p)).sum();
        let most = math::ln(self.entries.len() as f32);
        let normalized = f64::from((entropy / most).clamp(0.0, 1.0));
        let (low, high) = ((t - range).max(0.0), t + range);
        self.temperature(low + (high - low) * math::pow(normalized, f64::from(exponent)) as f32);
    }

    /// Keeps the first `n`, at least one.
    pub(crate) fn keep(&mut self, n: usize) {
        self.entries.truncate(n.max(1));
    }

    /// The candidate at `u` of the cumulative distribution, in the present order; `None` where there is none.
    pub fn draw(&self, u: f64) -> Option<Candidate> {
        let mut sum = 0.0;
        for c in &self.entries {
            sum += f64::from(c.p);
            if u < sum {
                return Some(*c);
            }
        }
        // Rounding left the sum a little under u: the last that is possible at all.
        self.entries.iter().rev().find(|c| c.p > 0.0).or(self.entries.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(ps: &[f32]) -> Candidates {
        let logits: Vec<f32> = ps.iter().map(|p| p.ln()).collect();
        let mut c = Candidates::default();
        c.fill(&logits);
        c
    }

    fn left(ps: &[f32], filter: impl FnOnce(&mut Candidates)) -> Vec<u32> {
        let mut c = candidates(ps);
        filter(&mut c);
        c.sort();
        c.entries.iter().map(|c| c.id).collect()
    }

    /// By hand on 0.4 (token 1), 0.3 (3), 0.2 (2), 0.1 (0).
    #[test]
    fn filters_on_a_distribution_by_hand() {
        let ps = [0.1, 0.4, 0.2, 0.3];
        assert_eq!(left(&ps, |c| c.top_k(0)), [1, 3, 2, 0]);
        assert_eq!(left(&ps, |c| c.top_k(3)), [1, 3, 2]);
        assert_eq!(left(&ps, |c| c.top_p(0.65)), [1, 3]);
        assert_eq!(left(&ps, |c| c.top_p(0.75)), [1, 3, 2]);
        assert_eq!(left(&ps, |c| c.top_p(0.0)), [1]);
        assert_eq!(left(&ps, |c| c.min_p(0.45)), [1, 3, 2]);
        assert_eq!(left(&ps, |c| c.min_p(0.6)), [1, 3]);
        // Entropy 1.28; surprises 2.30, 0.92, 1.61, 1.20: 3 is closest, then 2 (0.33 away), then 1 (0.36).
        assert_eq!(left(&ps, |c| c.typical_p(0.45)), [3, 2]);
        assert_eq!(left(&ps, |c| c.typical_p(0.25)), [3]);
        // 0.4 and 0.3 are top choices from 0.25: the more likely goes.
        assert_eq!(left(&ps, |c| c.xtc(0.25)), [3, 2, 0]);
        assert_eq!(left(&ps, |c| c.xtc(0.05)), [0]);
        assert_eq!(left(&ps, |c| c.xtc(0.35)), [1, 3, 2, 0], "one top choice is not excluded");
    }

    #[test]
    fn top_n_sigma_by_hand() {
        // Mean 1, deviation √2: within one of the best (3) is 1.586 and more.
        let mut c = Candidates::default();
        c.fill(&[-1.0, 0.0, 1.0, 2.0, 3.0]);
        c.top_n_sigma(1.0);
        assert_eq!(c.entries.iter().map(|c| c.id).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn equals_go_by_id_and_impossible_ones_never_enter() {
        let mut c = Candidates::default();
        c.fill(&[1.0, 5.0, f32::NAN, 5.0, f32::NEG_INFINITY, 2.0]);
        c.top_k(3);
        assert_eq!(c.entries.iter().map(|c| c.id).collect::<Vec<_>>(), [1, 3, 5]);
    }

    #[test]
    fn temperatures_by_hand() {
        let mut c = candidates(&[0.8, 0.2]);
        c.temperature(0.5);
        c.softmax();
        // Squared: 0.64 to 0.04.
        assert!((c.entries[0].p - 0.64 / 0.68).abs() < 1e-6);
        // Equal probabilities have the greatest entropy, so the highest temperature; logits differ by it only.
        let mut c = Candidates::default();
        c.fill(&[3.0, 3.0]);
        c.dynamic_temperature(1.0, 0.5, 1.0);
        assert!((c.entries[0].logit - 2.0).abs() < 1e-6);
        // Entropy of 0.8/0.2 is 0.5004 nats, 0.7219 of ln 2: temperature 0.5 + 0.7219.
        let mut c = candidates(&[0.8, 0.2]);
        c.dynamic_temperature(1.0, 0.5, 1.0);
        assert!((c.entries[0].logit - 0.8f32.ln() / 1.2219).abs() < 1e-4);
    }

    #[test]
    fn an_infinite_logit_takes_all() {
        let mut c = Candidates::default();
        c.fill(&[1.0, f32::INFINITY, 2.0]);
        c.top_n_sigma(1.0);
        c.softmax();
        assert_eq!(c.draw(0.99).unwrap().id, 1);
    }
}
