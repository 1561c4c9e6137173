//! How tokens are drawn and when a reply ends, as requests say it: OpenAI's fields, and those of llama.cpp and vLLM.

use std::collections::BTreeMap;

use hanzo_engine::sampler::breakers_of;
use hanzo_engine::{Mirostat, SamplingParams, Stage, StopStrings};
use serde::Deserialize;

use crate::error::ApiError;
use crate::generate::Job;
use crate::ids;
use crate::json::{OneOrMany, within};
use crate::model::LoadedModel;

/// Greatest whole number that any of the fields takes.
pub(crate) const MOST: i64 = i32::MAX as i64;
/// Most alternatives of a token that are reported.
pub(crate) const MAX_LOGPROBS: i64 = 20;

/// The fields that say how tokens are drawn. What is missing is as the engine has it (llama.cpp's defaults).
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Sampling {
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    pub(crate) top_k: Option<i64>,
    pub(crate) min_p: Option<f64>,
    pub(crate) typical_p: Option<f64>,
    pub(crate) top_n_sigma: Option<f64>,
    pub(crate) xtc_probability: Option<f64>,
    pub(crate) xtc_threshold: Option<f64>,
    pub(crate) dynatemp_range: Option<f64>,
    pub(crate) dynatemp_exponent: Option<f64>,
    pub(crate) presence_penalty: Option<f64>,
    pub(crate) frequency_penalty: Option<f64>,
    #[serde(alias = "repetition_penalty")]
    pub(crate) repeat_penalty: Option<f64>,
    pub(crate) repeat_last_n: Option<i64>,
    pub(crate) dry_multiplier: Option<f64>,
    pub(crate) dry_base: Option<f64>,
    pub(crate) dry_allowed_length: Option<i64>,
    pub(crate) dry_penalty_last_n: Option<i64>,
    pub(crate) dry_sequence_breakers: Option<Vec<String>>,
    pub(crate) mirostat: Option<i64>,
    pub(crate) mirostat_tau: Option<f64>,
    pub(crate) mirostat_eta: Option<f64>,
    pub(crate) samplers: Option<Vec<String>>,
    pub(crate) seed: Option<i64>,
    pub(crate) logit_bias: Option<BTreeMap<String, f64>>,
}

/// The fields that say when a reply ends, and how many there are.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Length {
    pub(crate) n: Option<i64>,
    pub(crate) stop: Option<OneOrMany<String>>,
    pub(crate) min_tokens: Option<i64>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) priority: Option<i64>,
}

impl Sampling {
    /// The settings, each within its bounds.
    ///
    /// # Errors
    /// The first that is not, with its pointer.
    pub(crate) fn params(&self, model: &LoadedModel) -> Result<SamplingParams, ApiError> {
        let mut p = SamplingParams::default();
        for (field, value) in [
            (&mut p.temperature, self.temperature),
            (&mut p.top_p, self.top_p),
            (&mut p.min_p, self.min_p),
            (&mut p.typical_p, self.typical_p),
            (&mut p.top_n_sigma, self.top_n_sigma),
            (&mut p.xtc_probability, self.xtc_probability),
            (&mut p.xtc_threshold, self.xtc_threshold),
            (&mut p.dynatemp_range, self.dynatemp_range),
            (&mut p.dynatemp_exponent, self.dynatemp_exponent),
            (&mut p.presence_penalty, self.presence_penalty),
            (&mut p.frequency_penalty, self.frequency_penalty),
            (&mut p.repeat_penalty, self.repeat_penalty),
            (&mut p.dry_multiplier, self.dry_multiplier),
            (&mut p.dry_base, self.dry_base),
            (&mut p.mirostat_tau, self.mirostat_tau),
            (&mut p.mirostat_eta, self.mirostat_eta),
        ] {
            if let Some(value) = value {
                // What is out of a float's range becomes infinite, which the check refuses.
                *field = value as f32;
            }
        }
        // −1 as vLLM and llama.cpp have it: no bound.
        for (field, name, value) in [
            (&mut p.top_k, "top_k", self.top_k.map(|k| if k == -1 { 0 } else { k })),
            (
                &mut p.penalty_last_n,
                "repeat_last_n",
                self.repeat_last_n.map(|n| if n == -1 { MOST } else { n }),
            ),
            (&mut p.dry_allowed_length, "dry_allowed_length", self.dry_allowed_length),
        ] {
            if let Some(n) = within(name, value, 0, MOST)? {
                *field = n;
            }
        }
        p.dry_last_n = match self.dry_penalty_last_n {
            None => p.dry_last_n,
            Some(-1) => None,
            n => within("dry_penalty_last_n", n, 0, MOST)?,
        };
        p.mirostat = match within("mirostat", self.mirostat, 0, 2)? {
            Some(1) => Mirostat::V1,
            Some(2) => Mirostat::V2,
            _ => Mirostat::Off,
        };
        // −1 is how llama.cpp and Ollama say that any will do.
        let seed = self.seed.filter(|&seed| seed != -1);
        p.seed = within("seed", seed, 0, i64::MAX)?.map_or_else(ids::random_seed, |n| n as u64);
        p.order = self.order()?.unwrap_or(p.order);
        p.dry_breakers = self.breakers(model);
        p.logit_bias = self.bias()?;
        p.check(model.engine.info().vocab_size)
            .map_err(|e| ApiError::at(format!("/{}", e.name), e.to_string()))?;
        Ok(p)
    }

    fn order(&self) -> Result<Option<Vec<Stage>>, ApiError> {
        let Some(names) = &self.samplers else { return Ok(None) };
        let stage = |(i, name): (usize, &String)| {
            Stage::parse(name).ok_or_else(|| {
                let known: Vec<_> = Stage::DEFAULT_ORDER.iter().map(|s| s.name()).collect();
                ApiError::at(
                    format!("/samplers/{i}"),
                    format!("there is no such sampler; there are {}", known.join(", ")),
                )
            })
        };
        names.iter().enumerate().map(stage).collect::<Result<_, _>>().map(Some)
    }

    /// Sequences of tokens in which a breaker is.
    fn breakers(&self, model: &LoadedModel) -> Vec<Vec<u32>> {
        if self.dry_multiplier.unwrap_or(0.0) <= 0.0 {
            return Vec::new();
        }
        let defaults = || ["\n", ":", "\"", "*"].map(str::to_owned).to_vec();
        let breakers = self.dry_sequence_breakers.clone().unwrap_or_else(defaults);
        breakers.iter().flat_map(|text| breakers_of(&model.tokenizer, text)).collect()
    }

    fn bias(&self) -> Result<Vec<(u32, f32)>, ApiError> {
        let entry = |(id, bias): (&String, &f64)| match id.parse::<u32>() {
            Ok(id) => Ok((id, *bias as f32)),
            Err(_) => Err(ApiError::at("/logit_bias", format!("`{id:.40}` is not a token id"))),
        };
        self.logit_bias.iter().flatten().map(entry).collect()
    }
}

impl Length {
    /// Sets a job's share of it.
    ///
    /// # Errors
    /// What is out of bounds, with its pointer.
    pub(crate) fn apply(&self, job: &mut Job) -> Result<(), ApiError> {
        job.n = within("n", self.n, 1, MOST)?.unwrap_or(1);
        job.min_tokens = within("min_tokens", self.min_tokens, 0, MOST)?.unwrap_or(0);
        job.ignore_eos = self.ignore_eos.unwrap_or(false);
        let priority = self.priority.unwrap_or(0);
        // As vLLM has it: less is sooner.
        job.priority = i32::try_from(priority).ok().and_then(i32::checked_neg).ok_or_else(|| {
            ApiError::at("/priority", format!("`priority` is {priority}; it must have 32 bits"))
        })?;
        let stop = self.stop.clone().map(OneOrMany::into_vec).unwrap_or_default();
        job.stop = StopStrings::new(&stop).map_err(|e| ApiError::at("/stop", e.to_string()))?;
        Ok(())
    }
}
