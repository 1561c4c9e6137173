//! DRY, "don't repeat yourself": a penalty on tokens that would continue a repetition.
//!
//! Where the end of the text has occurred before, the token that followed it there is penalized by
//! `multiplier · base^(length − allowed_length)`, `length` being how many tokens agree. Breaker tokens end a
//! repetition. (The rule is the one that text-generation-webui introduced and llama.cpp adopted.)

use std::collections::HashMap;

use hanzo_quant::math;

use super::SamplingParams;
use super::breakers::Breakers;

/// Largest penalty: what is beyond is as good as forbidden, and must stay a number.
const MOST: f64 = 1e30;

/// What is subtracted from the logit of each token that would continue a repetition.
pub(crate) fn penalties(params: &SamplingParams, breakers: &Breakers, history: &[u32]) -> HashMap<u32, f32> {
    let mut out = HashMap::new();
    if params.dry_multiplier == 0.0 {
        return out;
    }
    let window = params.dry_last_n.unwrap_or(usize::MAX);
    let text = history.get(history.len().saturating_sub(window)..).unwrap_or_default();
    // A breaker ends the repetition: only what came after it counts.
    let longest = breakers.since_last(text);
    for (&next, length) in text.iter().skip(1).zip(agreements(text)) {
        let length = length.min(longest);
        if length < params.dry_allowed_length.max(1) {
            continue;
        }
        let exponent = (length - params.dry_allowed_length) as f64;
        let grown = math::pow(f64::from(params.dry_base), exponent);
        let penalty = (f64::from(params.dry_multiplier) * grown).min(MOST) as f32;
        let entry: &mut f32 = out.entry(next).or_default();
        *entry = entry.max(penalty);
    }
    out
}

/// For each end `i` but the last, how many tokens before and at `i` equal those at the text's end: the Z-function of
/// the reversed text (Gusfield 1997), in linear time.
fn agreements(text: &[u32]) -> Vec<usize> {
    let n = text.len();
    let at = |i: usize| text.get(n - 1 - i);
    let mut z = vec![0; n];
    let (mut left, mut right) = (0, 0);
    for i in 1..n {
        let mut len = if i < right { z.get(i - left).copied().unwrap_or(0).min(right - i) } else { 0 };
        while i + len < n && at(len) == at(i + len) {
            len += 1;
        }
        if i + len > right {
            (left, right) = (i, i + len);
        }
        if let Some(z) = z.get_mut(i) {
            *z = len;
        }
    }
    z.reverse();
    z.pop();
    z
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreements_are_common_suffixes() {
        let text = [1, 2, 3, 1, 2, 3, 1, 2];
        let naive: Vec<usize> = (0..text.len() - 1)
            .map(|i| (0..=i).take_while(|&k| text[i - k] == text[text.len() - 1 - k]).count())
            .collect();
        assert_eq!(agreements(&text), naive);
        assert_eq!(agreements(&[7; 5]), [1, 2, 3, 4]);
        assert!(agreements(&[]).is_empty());
    }

    #[test]
    fn continuing_a_repetition_is_penalized_by_its_length() {
        let p = SamplingParams {
            dry_multiplier: 0.5,
            dry_base: 2.0,
            dry_allowed_length: 2,
            ..SamplingParams::greedy()
        };
        // The end "1 2 3" was followed by 9; "3" alone by 5 is too short to count.
        let text = [1, 2, 3, 9, 3, 5, 1, 2, 3];
        let got = penalties(&p, &Breakers::default(), &text);
        assert_eq!(got, HashMap::from([(9, 0.5 * 2.0)]));
        // A breaker inside the repetition cuts it to "3".
        assert!(penalties(&p, &Breakers::new(&[vec![2]]), &text).is_empty());
        // One of two tokens cuts it where its last one stands.
        assert!(penalties(&p, &Breakers::new(&[vec![1, 2]]), &text).is_empty());
        assert_eq!(penalties(&p, &Breakers::new(&[vec![1, 3]]), &text), got);
        // Too old to be seen.
        let p = SamplingParams { dry_last_n: Some(5), ..p };
        assert!(penalties(&p, &Breakers::default(), &text).is_empty());
    }

    #[test]
    fn a_long_repetition_stays_finite() {
        let p = SamplingParams { dry_multiplier: 1.0, dry_base: 100.0, ..SamplingParams::greedy() };
        let got = penalties(&p, &Breakers::default(), &[4; 1000]);
        assert!(got[&4].is_finite() && got[&4] > 1e29);
    }
}
