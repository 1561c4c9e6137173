//! Log-probabilities of a row of logits, and their 16-bit form.
//!
//! Exponentials are those of the kernels (the same bits on every machine), sums are f64 in ascending order.
//!
//! A row in 16 bits is llama.cpp's: a step and a floor (f32), then a code for each token, `ln p = step · code + floor`. The floor
//! is the least log-probability of the row, but at most 16 below the greatest.

use hanzo_cpu::isa::Isa;
use hanzo_cpu::ops::exp_below;

/// Log-probabilities further below the greatest are not told apart.
const DEPTH: f32 = 16.0;
/// Greatest code.
const TOP: f32 = 65535.0;
/// Bytes of step and floor.
const HEAD: usize = 8;

/// What makes log-probabilities of a row's logits: `ln p(i) = logit(i) - log_sum`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Norm {
    /// The greatest logit.
    pub(crate) max: f32,
    /// Its token, the lowest among equals.
    pub(crate) top: usize,
    /// Logarithm of the sum of exponentials.
    pub(crate) log_sum: f64,
}

impl Norm {
    /// The log-probability of a logit.
    pub(crate) fn ln_p(&self, logit: f32) -> f64 {
        f64::from(logit) - self.log_sum
    }
}

/// A row of a base model against a row of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// `Σ p (ln p - ln q)`, `p` of the base, `q` of the other.
    pub(crate) kld: f64,
    /// Whether both have the same most likely token.
    pub(crate) same_top: bool,
    /// `-ln p` of the token that follows.
    pub(crate) nll_base: f64,
}

/// Computes on rows, with room for one.
#[derive(Debug)]
pub(crate) struct Rows {
    isa: Isa,
    exps: Vec<f32>,
    ln_p: Vec<f32>,
}

impl Rows {
    pub(crate) fn new() -> Self {
        Self { isa: Isa::best(), exps: Vec::new(), ln_p: Vec::new() }
    }

    /// The norm of a row; `None` where a logit is NaN or +∞, or all are -∞.
    pub(crate) fn norm(&mut self, logits: &[f32]) -> Option<Norm> {
        let (mut top, mut max) = (0, f32::NEG_INFINITY);
        for (i, &x) in logits.iter().enumerate() {
            if x.is_nan() {
                return None;
            }
            if x > max {
                (top, max) = (i, x);
            }
        }
        if !max.is_finite() {
            return None;
        }
        self.exps.resize(logits.len(), 0.0);
        exp_below(self.isa, logits, max, &mut self.exps);
        let sum: f64 = self.exps.iter().map(|&e| f64::from(e)).sum();
        Some(Norm { max, top, log_sum: f64::from(max) + sum.ln() })
    }

    /// Holds a row of logits against one of a base; `next` is the token that follows. `None` where the base's row is damaged or
    /// of another length.
    pub(crate) fn compare(
        &mut self,
        base: &[u8],
        logits: &[f32],
        norm: &Norm,
        next: usize,
    ) -> Option<Comparison> {
        decode(base, logits.len(), &mut self.ln_p)?;
        self.exps.resize(logits.len(), 0.0);
        exp_below(self.isa, &self.ln_p, 0.0, &mut self.exps);
        let (mut kld, mut top, mut max) = (0.0, 0, f32::NEG_INFINITY);
        for (i, ((&ln_p, &p), &logit)) in self.ln_p.iter().zip(&self.exps).zip(logits).enumerate() {
            if ln_p > max {
                (top, max) = (i, ln_p);
            }
            if ln_p > -DEPTH {
                kld += f64::from(p) * (f64::from(ln_p) - norm.ln_p(logit));
            }
        }
        let nll_base = -f64::from(*self.ln_p.get(next)?);
        Some(Comparison { kld, same_top: top == norm.top, nll_base })
    }
}

/// Bytes of a row of `vocab_size` tokens in 16 bits; codes are padded to an even number.
pub(crate) fn encoded_len(vocab_size: usize) -> Option<usize> {
    vocab_size.checked_next_multiple_of(2)?.checked_mul(2)?.checked_add(HEAD)
}

/// Appends a row in 16 bits.
pub(crate) fn encode(logits: &[f32], norm: &Norm, out: &mut Vec<u8>) {
    let min = logits.iter().copied().fold(f32::INFINITY, f32::min).max(norm.max - DEPTH);
    let step = (norm.max - min) / TOP;
    out.extend(step.to_le_bytes());
    out.extend((norm.ln_p(min) as f32).to_le_bytes());
    // All logits are equal: code 0 says it all.
    let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
    for &x in logits {
        // The cast saturates; ties go to even, as the format's other writer has it.
        let code = (inverse * (x.max(min) - min)).round_ties_even() as u16;
        out.extend(code.to_le_bytes());
    }
    if !logits.len().is_multiple_of(2) {
        out.extend([0, 0]);
    }
}

/// The log-probabilities of a row in 16 bits; `None` where it is damaged or of another length.
pub(crate) fn decode(row: &[u8], vocab_size: usize, out: &mut Vec<f32>) -> Option<()> {
    if encoded_len(vocab_size) != Some(row.len()) {
        return None;
    }
    let (head, codes) = row.split_first_chunk::<HEAD>()?;
    let [a, b, c, d, e, f, g, h] = *head;
    let (step, floor) = (f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]));
    if !(step.is_finite() && step >= 0.0 && floor.is_finite() && step.mul_add(TOP, floor) < 1.0) {
        return None;
    }
    out.clear();
    let codes = codes.as_chunks::<2>().0.iter().take(vocab_size);
    out.extend(codes.map(|c| step * f32::from(u16::from_le_bytes(*c)) + floor));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random logits of a model's shape: a few likely tokens, a long tail.
    fn logits(seed: u64, n: usize) -> Vec<f32> {
        let mut state = seed;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        (0..n).map(|_| 3.0 * (uniform() + uniform() + uniform()) - 12.0 + uniform().powi(8) * 9.0).collect()
    }

    fn ln_p(logits: &[f32]) -> Vec<f64> {
        let max = logits.iter().copied().map(f64::from).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
        logits.iter().map(|&x| f64::from(x) - max - sum.ln()).collect()
    }

    #[test]
    fn norms_are_those_of_f64() {
        for n in [1, 7, 64, 1000, 49152] {
            let x = logits(n as u64, n);
            let norm = Rows::new().norm(&x).unwrap();
            let want = ln_p(&x);
            for (x, want) in x.iter().zip(&want) {
                assert!((norm.ln_p(*x) - want).abs() < 1e-6, "{} {want}", norm.ln_p(*x));
            }
            assert!(x.iter().all(|&v| v <= x[norm.top]));
        }
    }

    #[test]
    fn rows_without_a_distribution_have_no_norm() {
        let mut rows = Rows::new();
        assert_eq!(rows.norm(&[0.0, f32::NAN]), None);
        assert_eq!(rows.norm(&[0.0, f32::INFINITY]), None);
        assert_eq!(rows.norm(&[f32::NEG_INFINITY; 3]), None);
        assert_eq!(rows.norm(&[]), None);
        // A token that cannot be is no fault.
        let norm = rows.norm(&[1.0, f32::NEG_INFINITY, 1.0]).unwrap();
        assert_eq!((norm.top, norm.ln_p(1.0) as f32), (0, 0.5f32.ln()));
    }

    #[test]
    fn sixteen_bits_keep_log_probabilities() {
        for n in [3, 500, 4096] {
            let x = logits(5, n);
            let mut rows = Rows::new();
            let norm = rows.norm(&x).unwrap();
            let mut row = Vec::new();
            encode(&x, &norm, &mut row);
            assert_eq!(Some(row.len()), encoded_len(n));
            let mut back = Vec::new();
            decode(&row, n, &mut back).unwrap();
            for (back, x) in back.iter().zip(&x) {
                let want = norm.ln_p(x.max(norm.max - DEPTH));
                assert!(
                    (f64::from(*back) - want).abs() < 0.6 * f64::from(DEPTH / TOP) + 2e-6,
                    "{back} {want}"
                );
            }
            assert!(decode(&row, n + 2, &mut back).is_none());
            assert!(decode(&row[..row.len() - 1], n, &mut back).is_none());
            row[..4].copy_from_slice(&f32::NAN.to_le_bytes());
            assert!(decode(&row, n, &mut back).is_none());
        }
        // All equal: the step is 0.
        let (mut row, mut back) = (Vec::new(), Vec::new());
        let norm = Rows::new().norm(&[2.0; 4]).unwrap();
        encode(&[2.0; 4], &norm, &mut row);
        decode(&row, 4, &mut back).unwrap();
        assert!(back.iter().all(|b| (b - 0.25f32.ln()).abs() < 1e-6));
    }

    /// Divergences of known pairs, and none of a distribution from itself.
    #[test]
    fn divergence() {
        let mut rows = Rows::new();
        let mut of = |base: &[f32], other: &[f32], next: usize| {
            let norm = rows.norm(base).unwrap();
            let mut row = Vec::new();
            encode(base, &norm, &mut row);
            let norm = rows.norm(other).unwrap();
            rows.compare(&row, other, &norm, next).unwrap()
        };
        for seed in 0..20 {
            let (p, q) = (logits(seed, 2001), logits(seed + 100, 2001));
            let own = of(&p, &p, 3);
            // No more than half a step of the codes.
            assert!(own.kld.abs() < 1.3e-4 && own.same_top, "{own:?}");
            let want: f64 = ln_p(&p).iter().zip(ln_p(&q)).map(|(p, q)| p.exp() * (p - q)).sum();
            let got = of(&p, &q, 3);
            assert!((got.kld - want).abs() < 1.3e-4 + 1e-5 * want, "{} {want}", got.kld);
            assert!((got.nll_base + ln_p(&p)[3]).abs() < 2e-4);
        }
        // ln 2 · (1/2 + 1/2 · ...): p = (1/2, 1/2), q = (1/4, 3/4).
        let got = of(&[0.0, 0.0], &[0.0, 3f32.ln()], 0);
        let want = 0.5 * (0.5f64 / 0.25).ln() + 0.5 * (0.5f64 / 0.75).ln();
        assert!((got.kld - want).abs() < 1e-6, "{} {want}", got.kld);
        assert!(!got.same_top);
        assert_eq!(rows_next_is_checked(), None);
    }

    fn rows_next_is_checked() -> Option<Comparison> {
        let mut rows = Rows::new();
        let norm = rows.norm(&[0.0, 1.0])?;
        let mut row = Vec::new();
        encode(&[0.0, 1.0], &norm, &mut row);
        rows.compare(&row, &[0.0, 1.0], &norm, 2)
    }
}
