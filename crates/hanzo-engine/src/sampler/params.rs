//! What a request may set.

use thiserror::Error;

/// Sampling settings. The defaults are neutral but for temperature, top-k, top-p and min-p, which are llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keeps the `k` most likely; 0 keeps all.
    pub top_k: usize,
    /// Keeps the most likely until their sum reaches `p`; 1 keeps all.
    pub top_p: f32,
    /// Keeps those at least `p` times as likely as the best; 0 keeps all.
    pub min_p: f32,
    /// Locally typical sampling's mass; 1 keeps all.
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen lately; 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted once from the logit of a token seen lately.
    pub presence_penalty: f32,
    /// Subtracted for every time that a token was seen lately.
    pub frequency_penalty: f32,
    /// How many of the last tokens the penalties look at; 0 turns them off.
    pub penalty_last_n: usize,
    /// Added to the logits of single tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws.
    pub seed: u64,
    /// Alternatives whose log-probabilities are reported; `None` reports nothing.
    pub logprobs: Option<usize>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            logit_bias: Vec::new(),
            seed: 0,
            logprobs: None,
        }
    }
}

/// A setting out of its bounds.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("`{name}` is {found}; expected {expected}")]
pub struct ParamError {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub found: String,
    /// What would do.
    pub expected: &'static str,
}

impl SamplingParams {
    /// Greedy: the most likely token, the lowest id among equals.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks every setting against a vocabulary.
    ///
    /// # Errors
    /// [`ParamError`] for the first that is out of bounds.
    pub fn check(&self, vocab_size: usize) -> Result<(), ParamError> {
        let within = |name, value: f32, low: f32, high: f32, expected| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(ParamError { name, found: value.to_string(), expected })
        };
        within("temperature", self.temperature, 0.0, 1e4, "a number from 0")?;
        within("top_p", self.top_p, 0.0, 1.0, "0 to 1")?;
        within("min_p", self.min_p, 0.0, 1.0, "0 to 1")?;
        within("typical_p", self.typical_p, 0.0, 1.0, "0 to 1")?;
        within("repeat_penalty", self.repeat_penalty, 1e-4, 1e4, "a positive number")?;
        within("presence_penalty", self.presence_penalty, -1e4, 1e4, "a finite number")?;
        within("frequency_penalty", self.frequency_penalty, -1e4, 1e4, "a finite number")?;
        for &(id, bias) in &self.logit_bias {
            if id as usize >= vocab_size {
                return Err(ParamError {
                    name: "logit_bias",
                    found: id.to_string(),
                    expected: "ids of the vocabulary",
                });
            }
            if bias.is_nan() {
                return Err(ParamError { name: "logit_bias", found: bias.to_string(), expected: "numbers" });
            }
        }
        Ok(())
    }
}
