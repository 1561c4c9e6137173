//! The chain: bias and mask, the stages in the order asked for, then a draw.

use super::breakers::Breakers;
use super::candidates::Candidates;
use super::params::{Mirostat, SamplingParams, Stage};
use super::{dry, mirostat, penalties, rng};
use crate::constraint::TokenMask;

/// Number of the draw that picks the token, of the draws at a position.
const TOKEN_DRAW: u32 = 0;
/// Number of the draw that decides whether exclusion of top choices acts.
const XTC_DRAW: u32 = 1;

/// Samples tokens for one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    params: SamplingParams,
    /// Continuation of the same prompt and seed: each has its own random stream.
    branch: u32,
    breakers: Breakers,
    mu: f32,
    scratch: Vec<f32>,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler by `params`.
    pub fn new(params: SamplingParams) -> Self {
        let breakers = Breakers::new(&params.dry_breakers);
        let mu = 2.0 * params.mirostat_tau;
        Self { params, branch: 0, breakers, mu, scratch: Vec::new(), candidates: Candidates::default() }
    }

    /// The sampler of another continuation of the same prompt.
    pub fn branch(&self, branch: u32) -> Self {
        Self { branch, ..Self::new(self.params.clone()) }
    }

    /// Its settings.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// The token after `history`, given the model's `logits` there; only one that `mask` allows and `banned` does not
    /// name. `None` when there is no such token, or the logits are not numbers.
    pub fn sample(
        &mut self,
        logits: &[f32],
        history: &[u32],
        banned: &[u32],
        mask: Option<&TokenMask>,
    ) -> Option<u32> {
        let p = &self.params;
        if p.logit_bias.is_empty() && banned.is_empty() && mask.is_none() && self.is_argmax() {
            return argmax(logits);
        }
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
        if let Some(mask) = mask {
            mask.apply(&mut self.scratch);
        }
        if self.is_greedy() {
            self.penalize_all(history);
            return argmax(&self.scratch);
        }
        self.run_stages(history);
        self.draw(history.len() as u64, logits.len())
    }

    /// Whether the token is the best of the logits as the stages before the filters leave them: no filter can drop it.
    fn is_greedy(&self) -> bool {
        let p = &self.params;
        let drops_the_best = p.typical_p < 1.0 || p.xtc_probability > 0.0 || p.dynatemp_range > 0.0;
        p.temperature == 0.0 && p.mirostat == Mirostat::Off && !drops_the_best
    }

    /// Whether it is the best of the model's own logits.
    fn is_argmax(&self) -> bool {
        let p = &self.params;
        let penalties = p.repeat_penalty != 1.0 || p.presence_penalty != 0.0 || p.frequency_penalty != 0.0;
        self.is_greedy() && !penalties && p.dry_multiplier == 0.0
    }

    /// Penalties and DRY, in their order, on the scratch logits.
    fn penalize_all(&mut self, history: &[u32]) {
        for stage in &self.params.order {
            match stage {
                Stage::Penalties => {
                    for (id, count) in penalties::counts(&self.params, history) {
                        if let Some(logit) = self.scratch.get_mut(id as usize) {
                            *logit = penalties::penalized(&self.params, *logit, count);
                        }
                    }
                }
                Stage::Dry => {
                    for (id, penalty) in dry::penalties(&self.params, &self.breakers, history) {
                        if let Some(logit) = self.scratch.get_mut(id as usize) {
                            *logit -= penalty;
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn run_stages(&mut self, history: &[u32]) {
        let (p, c) = (&self.params, &mut self.candidates);
        c.fill(&self.scratch);
        let position = history.len() as u64;
        for stage in &p.order {
            let truncates = !matches!(stage, Stage::Penalties | Stage::Dry | Stage::Temperature);
            if truncates && p.mirostat != Mirostat::Off {
                continue;
            }
            match stage {
                Stage::Penalties => {
                    let counts = penalties::counts(p, history);
                    if !counts.is_empty() {
                        c.adjust(|id, l| counts.get(&id).map_or(l, |&n| penalties::penalized(p, l, n)));
                    }
                }
                Stage::Dry => {
                    let penalties = dry::penalties(p, &self.breakers, history);
                    if !penalties.is_empty() {
                        c.adjust(|id, l| l - penalties.get(&id).copied().unwrap_or(0.0));
                    }
                }
                Stage::TopNSigma => c.top_n_sigma(p.top_n_sigma),
                Stage::TopK => c.top_k(p.top_k),
                Stage::TypicalP => c.typical_p(p.typical_p),
                Stage::TopP => c.top_p(p.top_p),
                Stage::MinP => c.min_p(p.min_p),
                Stage::Xtc => {
                    let acts = p.xtc_probability > 0.0
                        && rng::uniform(p.seed, position, self.branch, XTC_DRAW)
                            < f64::from(p.xtc_probability);
                    if acts {
                        c.xtc(p.xtc_threshold);
                    }
                }
                Stage::Temperature if p.dynatemp_range > 0.0 => {
                    c.dynamic_temperature(p.temperature, p.dynatemp_range, p.dynatemp_exponent);
                }
                Stage::Temperature => c.temperature(p.temperature),
            }
        }
    }

    fn draw(&mut self, position: u64, vocab_size: usize) -> Option<u32> {
        let (p, c) = (&self.params, &mut self.candidates);
        let u = rng::uniform(p.seed, position, self.branch, TOKEN_DRAW);
        if p.mirostat != Mirostat::Off {
            return mirostat::draw(p, &mut self.mu, c, vocab_size, u).map(|c| c.id);
        }
        if p.temperature == 0.0 && p.dynatemp_range == 0.0 {
            // Also where the order has no temperature: greedy is greedy.
            c.temperature(0.0);
        }
        c.softmax();
        c.draw(u).map(|c| c.id)
    }
}

/// The greatest logit's token, the lowest id among equals; NaN is never greatest. `None` where no logit is above −∞.
pub fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best = (None, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (Some(id as u32), logit);
        }
    }
    best.0
}

#[cfg(test)]
mod tests;
