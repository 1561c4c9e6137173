//! Mirostat (Basu et al. 2021, "Mirostat: a neural text decoding algorithm that directly controls perplexity").
//!
//! The state is the surprise `mu` up to which tokens are admitted; every token drawn moves it by its distance from the
//! target. The state belongs to the sequence and moves with accepted tokens only.

use hanzo_quant::math;

use super::candidates::{Candidate, Candidates};
use super::params::{Mirostat, SamplingParams};

/// Ranks from which the first variant estimates Zipf's exponent.
const RANKS: usize = 100;

/// Truncates `c` by the present `mu`, draws, and moves `mu`.
pub(crate) fn draw(
    params: &SamplingParams,
    mu: &mut f32,
    c: &mut Candidates,
    vocab_size: usize,
    u: f64,
) -> Option<Candidate> {
    c.sort();
    c.softmax();
    let keep = match params.mirostat {
        Mirostat::V1 => rank(c, *mu, vocab_size),
        _ => c.entries().iter().position(|c| surprise(c.p) > *mu).unwrap_or(c.entries().len()),
    };
    c.keep(keep);
    c.softmax();
    let drawn = c.draw(u)?;
    *mu -= params.mirostat_eta * (surprise(drawn.p) - params.mirostat_tau);
    Some(drawn)
}

fn surprise(p: f32) -> f32 {
    -math::log2(p.max(f32::MIN_POSITIVE))
}

/// Candidates whose surprise is under `mu` if probabilities follow Zipf's law with the exponent that the first ranks have.
fn rank(c: &Candidates, mu: f32, vocab_size: usize) -> usize {
    let ps = c.entries();
    let (mut products, mut squares) = (0.0f64, 0.0f64);
    for (i, pair) in ps.windows(2).take(RANKS - 1).enumerate() {
        let &[a, b] = pair else { continue };
        if b.p <= 0.0 {
            break;
        }
        let t = math::ln_f64((i + 2) as f64 / (i + 1) as f64);
        products += t * math::ln_f64(f64::from(a.p) / f64::from(b.p));
        squares += t * t;
    }
    let s = products / squares;
    let epsilon = s - 1.0;
    let n = vocab_size as f64;
    let k = math::pow((epsilon * math::pow(2.0, f64::from(mu))) / (1.0 - math::pow(n, -epsilon)), 1.0 / s);
    // Where the estimate breaks down (one candidate, equal probabilities) all stay.
    if k.is_finite() { (k as usize).clamp(1, ps.len().max(1)) } else { ps.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(ps: &[f32]) -> Candidates {
        let mut c = Candidates::default();
        c.fill(&ps.iter().map(|p| p.ln()).collect::<Vec<_>>());
        c
    }

    #[test]
    fn the_second_variant_by_hand() {
        let p = SamplingParams {
            mirostat: Mirostat::V2,
            mirostat_tau: 1.0,
            mirostat_eta: 0.5,
            ..SamplingParams::default()
        };
        // Surprises 1, 2, 3, 3 bits; up to 2 are admitted, renormalized to 2/3 and 1/3.
        let mut mu = 2.0;
        let mut c = candidates(&[0.5, 0.25, 0.125, 0.125]);
        let drawn = draw(&p, &mut mu, &mut c, 4, 0.9).unwrap();
        assert_eq!((drawn.id, c.entries().len()), (1, 2));
        // Observed log2 3 = 1.585 bits.
        assert!((mu - (2.0 - 0.5 * (3f32.log2() - 1.0))).abs() < 1e-5);
    }

    /// On an exact Zipf distribution with exponent s, the estimate is s and the rank follows in closed form.
    #[test]
    fn the_first_variant_on_zipfs_law() {
        let (n, s) = (1000usize, 1.5f64);
        let weights: Vec<f64> = (1..=n).map(|r| (r as f64).powf(-s)).collect();
        let sum: f64 = weights.iter().sum();
        let mut c = candidates(&weights.iter().map(|w| (w / sum) as f32).collect::<Vec<_>>());
        c.sort();
        c.softmax();
        let mu = 6.0f32;
        let expected = ((0.5 * 2f64.powf(6.0)) / (1.0 - (n as f64).powf(-0.5))).powf(1.0 / s);
        assert!((rank(&c, mu, n) as f64 - expected).abs() <= 1.0, "{} for {expected}", rank(&c, mu, n));
    }

    #[test]
    fn surprise_settles_at_the_target() {
        let p = SamplingParams { mirostat: Mirostat::V2, mirostat_tau: 2.0, ..SamplingParams::default() };
        let ps: Vec<f32> = (0..64).map(|i| 0.9f32.powi(i)).collect();
        let (mut mu, mut total) = (4.0, 0.0);
        for i in 0..2000u64 {
            let mut c = candidates(&ps);
            let drawn = draw(&p, &mut mu, &mut c, 64, super::super::uniform(1, i, 0, 0)).unwrap();
            total += if i >= 1000 { surprise(drawn.p) } else { 0.0 };
        }
        assert!((total / 1000.0 - 2.0).abs() < 0.1, "mean surprise {}", total / 1000.0);
    }

    #[test]
    fn degenerate_distributions_keep_a_token() {
        for variant in [Mirostat::V1, Mirostat::V2] {
            let p = SamplingParams { mirostat: variant, ..SamplingParams::default() };
            for ps in [&[1.0f32][..], &[0.5, 0.5], &[0.25; 4]] {
                let mut mu = -50.0;
                assert!(draw(&p, &mut mu, &mut candidates(ps), ps.len(), 0.5).is_some());
            }
        }
    }
}
