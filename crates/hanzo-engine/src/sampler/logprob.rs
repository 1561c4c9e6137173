//! Log-probabilities under the model's own distribution, before any filter.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use hanzo_quant::math;

use super::chain::argmax;

/// A token with the logarithm of its probability under the model (before any filter).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Token id.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// How far a distribution of the next token is from a base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divergence {
    /// Kullback-Leibler divergence `Σ p (ln p − ln q)` in nats, `p` of the base, `q` of the other; infinite where the other holds
    /// impossible what the base does not. At least 0 but for rounding, where both sum to 1.
    pub kld: f64,
    /// Whether both have the same most likely token, the lowest id among equals.
    pub same_top: bool,
}

/// A row of logits as a distribution.
#[derive(Clone, Copy, Debug)]
pub struct Distribution<'a> {
    logits: &'a [f32],
    /// The greatest logit.
    max: f32,
    log_sum: f64,
}

/// Elements whose exponentials are computed at a time.
const CHUNK: usize = 512;

/// `e^(x − shift)` of each element, on the widest vectors that there are.
#[cfg(feature = "cpu")]
fn exps_below(x: &[f32], shift: f32, out: &mut [f32]) {
    hanzo_cpu::ops::exp_below(hanzo_cpu::isa::Isa::best(), x, shift, out);
}

/// `e^(x − shift)` of each element.
#[cfg(not(feature = "cpu"))]
fn exps_below(x: &[f32], shift: f32, out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = math::exp(x - shift);
    }
}

/// Sum of `of(i, e^(x − shift))` over `x`, ascending, in f64. The exponentials are those of [`math::exp`], bit for bit.
fn sum_with_exps(x: &[f32], shift: f32, of: impl Fn(usize, f64) -> f64) -> f64 {
    let mut exps = [0f32; CHUNK];
    let mut sum = 0.0;
    for (chunk, x) in x.chunks(CHUNK).enumerate() {
        exps_below(x, shift, &mut exps);
        for (i, &e) in exps.iter().take(x.len()).enumerate() {
            sum += of(chunk * CHUNK + i, f64::from(e));
        }
    }
    sum
}

impl<'a> Distribution<'a> {
    /// The distribution that is proportional to `exp(logits)`.
    pub fn new(logits: &'a [f32]) -> Self {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum = sum_with_exps(logits, max, |_, e| e);
        Self { logits, max, log_sum: f64::from(max) + math::ln_f64(sum) }
    }

    /// The distribution whose logarithms these are, taken as they stand: what was rounded or cut off does not sum to 1, and is not
    /// made to.
    pub fn of_logprobs(logprobs: &'a [f32]) -> Self {
        Self {
            logits: logprobs,
            max: logprobs.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            log_sum: 0.0,
        }
    }

    /// Whether it is one: the logits are numbers.
    pub fn is_finite(&self) -> bool {
        self.log_sum.is_finite()
    }

    /// Natural logarithm of a token's probability; −∞ for one that there is not.
    pub fn logprob(&self, id: u32) -> f64 {
        self.logits.get(id as usize).map_or(f64::NEG_INFINITY, |&l| f64::from(l) - self.log_sum)
    }

    /// The log-probability that a logit stands for.
    pub fn logprob_of(&self, logit: f32) -> f64 {
        f64::from(logit) - self.log_sum
    }

    /// The greatest logit; −∞ where there is none.
    pub fn max(&self) -> f32 {
        self.max
    }

    /// How far `other` is from this one, the base; `None` where they are of different lengths, or either is no
    /// distribution.
    ///
    /// This is the one Kullback-Leibler divergence of the project: `hanzo perplexity --kl-divergence`, the gates of cache types and the
    /// quantizer table all mean it. Terms are f64, added in ascending order of tokens; probabilities are f32 exponentials
    /// (relative error below 10⁻⁷) of the logits below the greatest, so a divergence of a distribution from itself is
    /// exactly 0.
    pub fn divergence(&self, other: &Distribution<'_>) -> Option<Divergence> {
        let possible = |d: &Distribution<'_>| d.is_finite() && d.max.is_finite();
        if self.logits.len() != other.logits.len() || !possible(self) || !possible(other) {
            return None;
        }
        let scale = math::exp_f64(f64::from(self.max) - self.log_sum);
        let kld = sum_with_exps(self.logits, self.max, |i, e| {
            // What the base holds impossible counts nothing, however impossible it is to the other.
            if e == 0.0 {
                return 0.0;
            }
            e * scale * (self.logprob(i as u32) - other.logprob(i as u32))
        });
        let same_top = argmax(self.logits)? == argmax(other.logits)?;
        (!kld.is_nan()).then_some(Divergence { kld, same_top })
    }

    /// A token and its log-probability.
    pub fn token(&self, id: u32) -> TokenLogprob {
        TokenLogprob { id, logprob: self.logprob(id) as f32 }
    }

    /// How many tokens are more likely; among equals the lower id goes first. 0 is what a greedy reply says.
    pub fn rank(&self, id: u32) -> usize {
        let at = id as usize;
        let Some(&own) = self.logits.get(at) else { return self.logits.len() };
        self.logits.iter().enumerate().filter(|&(i, &l)| l > own || (l == own && i < at)).count()
    }

    /// The `n` most likely tokens, the most likely first, the lower id first among equals; impossible ones left out.
    pub fn top(&self, n: usize) -> Vec<TokenLogprob> {
        let mut heap = BinaryHeap::with_capacity(n.min(self.logits.len()) + 1);
        if n == 0 {
            return Vec::new();
        }
        for (id, &logit) in self.logits.iter().enumerate().filter(|(_, l)| **l > f32::NEG_INFINITY) {
            let entry = Ranked { logit, id: id as u32 };
            if heap.len() < n {
                heap.push(entry);
            } else if heap.peek().is_some_and(|worst| entry < *worst) {
                heap.pop();
                heap.push(entry);
            }
        }
        heap.into_sorted_vec().into_iter().map(|r| self.token(r.id)).collect()
    }
}

/// Ordered by how far down the list a token stands.
struct Ranked {
    logit: f32,
    id: u32,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: e⁰ : e^ln2 : e^ln2 : 0 : e^ln3 is 1 : 2 : 2 : 0 : 3 of 8.
    #[test]
    fn a_distribution_by_hand() {
        let logits = [0.0, 2f32.ln(), 2f32.ln(), f32::NEG_INFINITY, 3f32.ln()];
        let d = Distribution::new(&logits);
        for (id, p) in [(0, 0.125f64), (1, 0.25), (2, 0.25), (4, 0.375)] {
            assert!((d.logprob(id) - p.ln()).abs() < 1e-6, "{id}");
        }
        assert_eq!(d.logprob(3), f64::NEG_INFINITY);
        assert_eq!(d.logprob(9), f64::NEG_INFINITY);
        assert_eq!([0, 1, 2, 3, 4].map(|id| d.rank(id)), [3, 1, 2, 4, 0]);
        let ids = |n| d.top(n).iter().map(|t| t.id).collect::<Vec<_>>();
        assert_eq!((ids(0), ids(1), ids(3), ids(9)), (vec![], vec![4], vec![4, 1, 2], vec![4, 1, 2, 0]));
        assert!(d.is_finite());
        assert!(!Distribution::new(&[f32::NAN, 1.0]).is_finite());
        assert!(!Distribution::new(&[f32::NEG_INFINITY]).is_finite());
    }

    /// p = (1/2, 1/2) from q = (1/4, 3/4), and what is impossible to one or the other.
    #[test]
    fn divergences_by_hand() {
        let of = |p: &[f32], q: &[f32]| Distribution::new(p).divergence(&Distribution::new(q));
        let ln3 = 3f32.ln();
        let got = of(&[0.0, 0.0], &[0.0, ln3]).unwrap();
        assert!((got.kld - (0.5 * 2f64.ln() + 0.5 * (2.0f64 / 3.0).ln())).abs() < 1e-7, "{}", got.kld);
        assert!(!got.same_top);
        // The other way round it is another number.
        let back = of(&[0.0, ln3], &[0.0, 0.0]).unwrap();
        assert!((back.kld - (0.25 * 0.5f64.ln() + 0.75 * 1.5f64.ln())).abs() < 1e-7, "{}", back.kld);
        let never = f32::NEG_INFINITY;
        let got = of(&[0.0, 0.0, never], &[0.0, 0.0, 0.0]).unwrap();
        assert!((got.kld - 1.5f64.ln()).abs() < 1e-7 && got.same_top, "{got:?}");
        assert_eq!(of(&[0.0, never], &[0.0, never]).unwrap().kld, 0.0);
        assert_eq!(of(&[0.0, 0.0], &[0.0, never]).unwrap().kld, f64::INFINITY);
        for (p, q) in [
            (&[0.0f32][..], &[0.0f32, 0.0][..]),
            (&[], &[]),
            (&[0.0, f32::NAN], &[0.0, 0.0]),
            (&[0.0, 0.0], &[0.0, f32::NAN]),
            (&[0.0, f32::INFINITY], &[0.0, 0.0]),
            (&[never, never], &[0.0, 0.0]),
        ] {
            assert_eq!(of(p, q), None, "{p:?} {q:?}");
        }
    }

    /// Against a sum in f64 with the standard library's functions; longer than a chunk, and no multiple of one.
    #[test]
    fn divergences_are_those_of_f64() {
        let row = |seed: u32| -> Vec<f32> {
            let noise =
                |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8) as f32 / (1 << 24) as f32;
            (0..2001).map(|i| 9.0 * noise(i * seed).powi(6) - 5.0 * noise(i + 7 * seed)).collect()
        };
        let ln = |x: &[f32]| -> Vec<f64> {
            let sum: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
            x.iter().map(|&x| f64::from(x) - sum.ln()).collect()
        };
        for seed in 1..20 {
            let (p, q) = (row(seed), row(seed + 100));
            let want: f64 = ln(&p).iter().zip(ln(&q)).map(|(p, q)| p.exp() * (p - q)).sum();
            let (p, q) = (Distribution::new(&p), Distribution::new(&q));
            let got = p.divergence(&q).unwrap().kld;
            assert!((got - want).abs() < 1e-6 * want, "{got} {want}");
            assert_eq!(p.divergence(&p), Some(Divergence { kld: 0.0, same_top: true }));
            let logprobs: Vec<f32> = (0..2001).map(|id| p.logprob(id) as f32).collect();
            let got = Distribution::of_logprobs(&logprobs).divergence(&q).unwrap().kld;
            assert!((got - want).abs() < 1e-5 * want, "{got} {want}");
        }
    }
}
