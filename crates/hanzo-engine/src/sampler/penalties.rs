//! Repetition, presence and frequency penalties over the last tokens.
//!
//! Repetition: CTRL (Keskar et al. 2019); presence and frequency: OpenAI's API.

use std::collections::HashMap;

use super::SamplingParams;

/// How often each of the last tokens occurs; empty where no penalty applies.
pub(crate) fn counts(params: &SamplingParams, history: &[u32]) -> HashMap<u32, u32> {
    let mut counts = HashMap::new();
    let neutral =
        params.repeat_penalty == 1.0 && params.presence_penalty == 0.0 && params.frequency_penalty == 0.0;
    if neutral || params.penalty_last_n == 0 {
        return counts;
    }
    let recent = history.get(history.len().saturating_sub(params.penalty_last_n)..).unwrap_or_default();
    recent.iter().for_each(|&id| *counts.entry(id).or_default() += 1);
    counts
}

/// The logit of a token that occurred `count` times.
pub(crate) fn penalized(params: &SamplingParams, logit: f32, count: u32) -> f32 {
    let repeated = if logit > 0.0 { logit / params.repeat_penalty } else { logit * params.repeat_penalty };
    repeated - (params.presence_penalty + count as f32 * params.frequency_penalty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(p: &SamplingParams, history: &[u32], logits: &mut [f32]) {
        for (id, count) in counts(p, history) {
            logits[id as usize] = penalized(p, logits[id as usize], count);
        }
    }

    #[test]
    fn each_penalty_by_hand() {
        let mut p = SamplingParams { repeat_penalty: 2.0, ..SamplingParams::greedy() };
        let mut logits = [2.0, -2.0, 1.0];
        apply(&p, &[0, 1, 1], &mut logits);
        assert_eq!(logits, [1.0, -4.0, 1.0]);
        p = SamplingParams { presence_penalty: 0.5, frequency_penalty: 0.25, ..SamplingParams::greedy() };
        let mut logits = [2.0, -2.0, 1.0];
        apply(&p, &[0, 1, 1], &mut logits);
        assert_eq!(logits, [1.25, -3.0, 1.0]);
    }

    #[test]
    fn only_the_last_tokens_count() {
        let p = SamplingParams { presence_penalty: 1.0, penalty_last_n: 1, ..SamplingParams::greedy() };
        let mut logits = [0.0, 0.0];
        apply(&p, &[0, 1], &mut logits);
        assert_eq!(logits, [0.0, -1.0]);
    }
}
