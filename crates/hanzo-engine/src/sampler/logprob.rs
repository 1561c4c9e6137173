//! Log-probabilities under the model's own distribution, before any filter.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use hanzo_quant::math;

/// A token with the logarithm of its probability under the model (before any filter).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Token id.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// A row of logits as a distribution.
#[derive(Clone, Copy, Debug)]
pub struct Distribution<'a> {
    logits: &'a [f32],
    log_sum: f64,
}

impl<'a> Distribution<'a> {
    /// The distribution that is proportional to `exp(logits)`.
    pub fn new(logits: &'a [f32]) -> Self {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&l| f64::from(math::exp(l - max))).sum();
        Self { logits, log_sum: f64::from(max) + math::ln_f64(sum) }
    }

    /// Whether it is one: the logits are numbers.
    pub fn is_finite(&self) -> bool {
        self.log_sum.is_finite()
    }

    /// Natural logarithm of a token's probability; −∞ for one that there is not.
    pub fn logprob(&self, id: u32) -> f64 {
        self.logits.get(id as usize).map_or(f64::NEG_INFINITY, |&l| f64::from(l) - self.log_sum)
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
}
