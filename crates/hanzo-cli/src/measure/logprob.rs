//! The 16-bit form of a row of log-probabilities.
//!
//! It is llama.cpp's: a step and a floor (f32), then a code for each token, `ln p = step · code + floor`. The floor is the least
//! log-probability of the row, but at most 16 below the greatest.

use hanzo_engine::{Distribution, Divergence};

/// Log-probabilities further below the greatest are not told apart.
const DEPTH: f32 = 16.0;
/// Greatest code.
const TOP: f32 = 65535.0;
/// Bytes of step and floor.
const HEAD: usize = 8;

/// A row of a base model against a row of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) divergence: Divergence,
    /// `-ln p` of the token that follows, under the base; `most` where it is more.
    pub(crate) nll_base: f64,
    /// The greatest `-ln p` that the base's row tells; infinite where no token has more.
    pub(crate) most: f64,
}

/// Holds a row of logits against one of a base in 16 bits; `next` is the token that follows, `room` holds the base's row. Tokens of
/// the base below `ln p = -16`, of which the form knows nothing better, count as impossible to it. `None` where the
/// base's row is damaged or of another length.
pub(crate) fn compare(
    base: &[u8],
    other: &Distribution<'_>,
    vocab_size: usize,
    next: usize,
    room: &mut Vec<f32>,
) -> Option<Comparison> {
    let floor = decode(base, vocab_size, room)?;
    let most = floor.map_or(f64::INFINITY, |floor| -f64::from(floor));
    let nll_base = -f64::from(*room.get(next)?);
    for ln_p in room.iter_mut().filter(|ln_p| **ln_p <= -DEPTH) {
        *ln_p = f32::NEG_INFINITY;
    }
    let divergence = Distribution::of_logprobs(room).divergence(other)?;
    Some(Comparison { divergence, nll_base, most })
}

/// Bytes of a row of `vocab_size` tokens in 16 bits; codes are padded to an even number.
pub(crate) fn encoded_len(vocab_size: usize) -> Option<usize> {
    vocab_size.checked_next_multiple_of(2)?.checked_mul(2)?.checked_add(HEAD)
}

/// Appends a row in 16 bits.
pub(crate) fn encode(logits: &[f32], distribution: &Distribution<'_>, out: &mut Vec<u8>) {
    let max = distribution.max();
    let min = logits.iter().copied().fold(f32::INFINITY, f32::min).max(max - DEPTH);
    let step = (max - min) / TOP;
    out.extend(step.to_le_bytes());
    out.extend((distribution.logprob_of(min) as f32).to_le_bytes());
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

/// The log-probabilities of a row in 16 bits, and its floor where tokens may lie below; `None` where it is damaged or of another
/// length.
pub(crate) fn decode(row: &[u8], vocab_size: usize, out: &mut Vec<f32>) -> Option<Option<f32>> {
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
    // The depth is the difference of two logits, rounded.
    Some((step * TOP > DEPTH - 1e-3).then_some(floor))
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
    fn sixteen_bits_keep_log_probabilities() {
        for n in [3, 500, 4096] {
            let x = logits(5, n);
            let d = Distribution::new(&x);
            let mut row = Vec::new();
            encode(&x, &d, &mut row);
            assert_eq!(Some(row.len()), encoded_len(n));
            let mut back = Vec::new();
            decode(&row, n, &mut back).unwrap();
            for (back, x) in back.iter().zip(&x) {
                let want = d.logprob_of(x.max(d.max() - DEPTH));
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
        encode(&[2.0; 4], &Distribution::new(&[2.0; 4]), &mut row);
        decode(&row, 4, &mut back).unwrap();
        assert!(back.iter().all(|b| (b - 0.25f32.ln()).abs() < 1e-6));
    }

    fn against(base: &[f32], other: &[f32], next: usize) -> Option<Comparison> {
        let mut row = Vec::new();
        encode(base, &Distribution::new(base), &mut row);
        compare(&row, &Distribution::new(other), other.len(), next, &mut Vec::new())
    }

    /// Divergences of known pairs, and none of a distribution from itself.
    #[test]
    fn divergence() {
        for seed in 0..20 {
            let (p, q) = (logits(seed, 2001), logits(seed + 100, 2001));
            let own = against(&p, &p, 3).unwrap();
            // No more than half a step of the codes.
            assert!(own.divergence.kld.abs() < 1.3e-4 && own.divergence.same_top, "{own:?}");
            let want: f64 = ln_p(&p).iter().zip(ln_p(&q)).map(|(p, q)| p.exp() * (p - q)).sum();
            let got = against(&p, &q, 3).unwrap();
            assert!((got.divergence.kld - want).abs() < 1.3e-4 + 1e-5 * want, "{got:?} {want}");
            assert!((got.nll_base + ln_p(&p)[3]).abs() < 2e-4);
        }
        // p = (1/2, 1/2), q = (1/4, 3/4).
        let got = against(&[0.0, 0.0], &[0.0, 3f32.ln()], 0).unwrap();
        let want = 0.5 * (0.5f64 / 0.25).ln() + 0.5 * (0.5f64 / 0.75).ln();
        assert!((got.divergence.kld - want).abs() < 1e-6 && !got.divergence.same_top, "{got:?} {want}");
        assert_eq!(against(&[0.0, 1.0], &[0.0, 1.0], 2), None, "a token that there is not");
        assert_eq!(against(&[0.0, 1.0], &[0.0, 1.0, 2.0], 1), None, "another length");
    }

    /// What the form cuts off counts nothing, and is as likely as the floor where the text has it.
    #[test]
    fn the_floor_is_not_taken_for_a_probability() {
        let p = [30.0, 29.0, 0.0, -50.0];
        let got = against(&p, &[30.0, 29.0, 29.0, 29.0], 3).unwrap();
        let want = (1.0f64.exp() + 3.0).ln() - (1.0f64.exp() + 1.0).ln();
        assert!((got.divergence.kld - want).abs() < 1.3e-4, "{got:?} {want}");
        let floor = 16.0 + (1.0 + (-1.0f64).exp()).ln();
        assert!((got.nll_base - floor).abs() < 1e-3, "{got:?} {floor}");
        // Both tokens down there are as unlikely as the row tells, the third is less so; where nothing is cut off, all is told.
        assert_eq!(got.most, got.nll_base);
        let third = against(&p, &p, 1).unwrap();
        assert!(third.nll_base < 2.0 && third.most == got.most, "{third:?}");
        let whole = against(&[30.0, 29.0, 14.5], &p[..3], 2).unwrap();
        assert!(whole.most.is_infinite() && (whole.nll_base - floor + 0.5).abs() < 1e-3, "{whole:?}");
    }
}
