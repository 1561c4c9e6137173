//! The chain: filters over sorted candidates, then a draw.

use hanzo_quant::math;

use super::{SamplingParams, penalties, rng};

/// A token with the logarithm of its probability under the model (before any filter).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Token id.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// Tokens that are left, the most likely first (the lower id first among equals), with their probabilities once
/// [`Candidates::softmax`] has run.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    entries: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
    p: f32,
}

/// Samples tokens for one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    scratch: Vec<f32>,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler by `params`.
    pub fn new(params: SamplingParams) -> Self {
        Self { params, scratch: Vec::new(), candidates: Candidates::default() }
    }

    /// Its settings.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// The token after `history`, given the model's `logits` there. Never allowed are the ids of `banned`.
    pub fn sample(&mut self, logits: &[f32], history: &[u32], banned: &[u32]) -> u32 {
        let p = &self.params;
        self.scratch.clear();
        self.scratch.extend_from_slice(logits);
        for &(id, bias) in &p.logit_bias {
            if let Some(logit) = self.scratch.get_mut(id as usize) {
                *logit += bias;
            }
        }
        for &id in banned {
            if let Some(logit) = self.scratch.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        penalties::apply(p, history, &mut self.scratch);
        if p.temperature == 0.0 {
            return argmax(&self.scratch);
        }
        let c = &mut self.candidates;
        c.fill(&self.scratch, p.top_k);
        c.softmax(1.0);
        c.typical_p(p.typical_p);
        c.top_p(p.top_p);
        c.min_p(p.min_p);
        c.softmax(p.temperature);
        c.draw(rng::uniform(p.seed, history.len() as u64, 0))
    }

    /// The log-probability of `chosen` and of the `n` most likely tokens, under the model's own distribution.
    pub fn logprobs(&mut self, logits: &[f32], chosen: u32, n: usize) -> (TokenLogprob, Vec<TokenLogprob>) {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&l| f64::from(math::exp(l - max))).sum();
        let log_sum = f64::from(max) + math::ln_f64(sum);
        let of = |id: u32, logit: f32| TokenLogprob { id, logprob: (f64::from(logit) - log_sum) as f32 };
        self.candidates.fill(logits, n.max(1));
        let top = self.candidates.entries.iter().take(n).map(|c| of(c.id, c.logit)).collect();
        (of(chosen, logits.get(chosen as usize).copied().unwrap_or(f32::NEG_INFINITY)), top)
    }
}

/// The greatest logit's token, the lowest id among equals; NaN is never greatest.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (id as u32, logit);
        }
    }
    best.0
}

impl Candidates {
    /// The `k` best of `logits` (all when `k` is 0), sorted.
    fn fill(&mut self, logits: &[f32], k: usize) {
        let order = |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id));
        self.entries.clear();
        let finite = |l: f32| if l.is_nan() { f32::NEG_INFINITY } else { l };
        self.entries.extend(logits.iter().enumerate().map(|(i, &l)| Candidate {
            id: i as u32,
            logit: finite(l),
            p: 0.0,
        }));
        if k > 0 && k < self.entries.len() {
            self.entries.select_nth_unstable_by(k, order);
            self.entries.truncate(k);
        }
        self.entries.sort_unstable_by(order);
    }

    /// Probabilities of the candidates at a temperature.
    fn softmax(&mut self, temperature: f32) {
        let max = self.entries.first().map_or(0.0, |c| c.logit);
        let mut sum = 0.0;
        for c in &mut self.entries {
            c.p = if c.logit == f32::NEG_INFINITY { 0.0 } else { math::exp((c.logit - max) / temperature) };
            sum += c.p;
        }
        if sum > 0.0 {
            self.entries.iter_mut().for_each(|c| c.p /= sum);
        }
    }

    /// Nucleus sampling (Holtzman et al. 2019): the most likely until their sum reaches `p`.
    fn top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let mut sum = 0.0;
        let keep = self.entries.iter().position(|c| {
            sum += c.p;
            sum >= p
        });
        self.keep(keep.map_or(self.entries.len(), |i| i + 1));
    }

    /// Min-p (Nguyen et al. 2024): those at least `p` times as likely as the best.
    fn min_p(&mut self, p: f32) {
        if p <= 0.0 {
            return;
        }
        let least = self.entries.first().map_or(0.0, |c| c.p * p);
        let keep = self.entries.iter().position(|c| c.p < least);
        self.keep(keep.unwrap_or(self.entries.len()));
    }

    /// Locally typical sampling (Meister et al. 2022): those whose surprise is closest to the entropy, up to mass `p`.
    fn typical_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let ln = |p: f32| if p > 0.0 { math::ln(p) } else { 0.0 };
        let entropy: f32 = self.entries.iter().map(|c| -c.p * ln(c.p)).sum();
        let distance = |c: &Candidate| (-ln(c.p) - entropy).abs();
        let total = self.entries.iter().map(|c| c.p).sum::<f32>();
        self.entries.retain(|c| c.p > 0.0);
        self.entries.sort_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.id.cmp(&b.id)));
        let mut sum = 0.0;
        let keep = self.entries.iter().position(|c| {
            sum += c.p;
            sum >= p * total
        });
        self.keep(keep.map_or(self.entries.len(), |i| i + 1));
        self.entries.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id)));
    }

    /// Keeps the first `n`, at least one.
    fn keep(&mut self, n: usize) {
        self.entries.truncate(n.max(1));
    }

    /// The candidate at `u` of the cumulative distribution.
    fn draw(&self, u: f64) -> u32 {
        let mut sum = 0.0;
        for c in &self.entries {
            sum += f64::from(c.p);
            if u < sum {
                return c.id;
            }
        }
        // Rounding left the sum a little under u: the last that is possible at all.
        self.entries.iter().rev().find(|c| c.p > 0.0).or(self.entries.first()).map_or(0, |c| c.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(ps: &[f32]) -> Candidates {
        let logits: Vec<f32> = ps.iter().map(|p| p.ln()).collect();
        let mut c = Candidates::default();
        c.fill(&logits, 0);
        c.softmax(1.0);
        c
    }

    fn ids(c: &Candidates) -> Vec<u32> {
        c.entries.iter().map(|c| c.id).collect()
    }

    #[test]
    fn filters_on_a_distribution_by_hand() {
        let ps = [0.1, 0.4, 0.2, 0.3];
        let mut c = candidates(&ps);
        c.top_p(0.65);
        assert_eq!(ids(&c), [1, 3]);
        let mut c = candidates(&ps);
        c.min_p(0.45);
        assert_eq!(ids(&c), [1, 3, 2]);
        let mut c = candidates(&ps);
        // Entropy 1.28; surprises 2.30, 0.92, 1.61, 1.20: 3 is closest, then 2.
        c.typical_p(0.45);
        assert_eq!(ids(&c), [3, 2]);
        let mut c = Candidates::default();
        c.fill(&[1.0, 5.0, 5.0, 2.0], 3);
        assert_eq!(ids(&c), [1, 2, 3]);
    }

    #[test]
    fn draws_follow_the_distribution() {
        let ps = [0.1f32, 0.4, 0.2, 0.3];
        let logits: Vec<f32> = ps.iter().map(|p| p.ln()).collect();
        let params = SamplingParams {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            ..SamplingParams::default()
        };
        let mut sampler = Sampler::new(params);
        let n = 20_000;
        let mut counts = [0u32; 4];
        let mut history = Vec::with_capacity(n);
        for _ in 0..n {
            let id = sampler.sample(&logits, &history, &[]);
            counts[id as usize] += 1;
            history.push(id);
        }
        let chi2: f64 = counts
            .iter()
            .zip(ps)
            .map(|(&c, p)| (f64::from(c) - n as f64 * f64::from(p)).powi(2) / (n as f64 * f64::from(p)))
            .sum();
        assert!(chi2 < 16.27, "chi-square {chi2} at 3 degrees of freedom (p = 0.001), {counts:?}");
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals_and_never_nan() {
        let mut s = Sampler::new(SamplingParams::greedy());
        assert_eq!(s.sample(&[f32::NAN, 1.0, 3.0, 3.0], &[], &[]), 2);
        assert_eq!(s.sample(&[1.0, 3.0], &[], &[1]), 0);
    }

    #[test]
    fn a_draw_depends_on_seed_and_position_only() {
        let mut s = Sampler::new(SamplingParams { seed: 7, ..SamplingParams::default() });
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32).collect();
        let a = s.sample(&logits, &[1, 2, 3], &[]);
        s.sample(&logits, &[1], &[]);
        assert_eq!(a, s.sample(&logits, &[1, 2, 3], &[]));
    }

    #[test]
    fn logprobs_are_those_of_the_model() {
        let mut s = Sampler::new(SamplingParams::greedy());
        let logits: Vec<f32> = [0.1f32, 0.4, 0.2, 0.3].iter().map(|p| p.ln()).collect();
        let (chosen, top) = s.logprobs(&logits, 2, 2);
        assert!((chosen.logprob - 0.2f32.ln()).abs() < 1e-6);
        assert_eq!(top.iter().map(|t| t.id).collect::<Vec<_>>(), [1, 3]);
    }
}
