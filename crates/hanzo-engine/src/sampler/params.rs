//! What a request may set.

use thiserror::Error;

/// A stage of the sampling chain. Logit bias and token masks come before all of them, the draw after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Repetition, presence and frequency penalties.
    Penalties,
    /// Penalty on continuing a repetition.
    Dry,
    /// Those within n standard deviations of the best logit.
    TopNSigma,
    /// The k most likely.
    TopK,
    /// Locally typical sampling.
    TypicalP,
    /// Nucleus sampling.
    TopP,
    /// Those at least p times as likely as the best.
    MinP,
    /// Exclusion of top choices.
    Xtc,
    /// Temperature, fixed or by entropy.
    Temperature,
}

impl Stage {
    /// All stages in llama.cpp's default order.
    pub const DEFAULT_ORDER: [Self; 9] = [
        Self::Penalties,
        Self::Dry,
        Self::TopNSigma,
        Self::TopK,
        Self::TypicalP,
        Self::TopP,
        Self::MinP,
        Self::Xtc,
        Self::Temperature,
    ];

    /// The stage's name in requests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Penalties => "penalties",
            Self::Dry => "dry",
            Self::TopNSigma => "top_n_sigma",
            Self::TopK => "top_k",
            Self::TypicalP => "typical_p",
            Self::TopP => "top_p",
            Self::MinP => "min_p",
            Self::Xtc => "xtc",
            Self::Temperature => "temperature",
        }
    }

    /// The stage of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::DEFAULT_ORDER.into_iter().find(|s| s.name() == name)
    }
}

/// Mirostat (Basu et al. 2021) keeps the surprise of tokens near a target, in place of the truncating stages: of the
/// chain only penalties, DRY and temperature stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mirostat {
    /// Not used.
    #[default]
    Off,
    /// The paper's algorithm: estimates Zipf's exponent and truncates by rank.
    V1,
    /// The simpler variant that truncates by surprise.
    V2,
}

/// Sampling settings. The defaults are neutral but for temperature, top-k, top-p and min-p, which are llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f32,
    /// Temperature varies by this much around `temperature`, with the entropy of what is left; 0 is off.
    pub dynatemp_range: f32,
    /// Exponent of the normalized entropy in dynamic temperature.
    pub dynatemp_exponent: f32,
    /// Keeps the `k` most likely; 0 keeps all.
    pub top_k: usize,
    /// Keeps the most likely until their sum reaches `p`; 1 keeps all.
    pub top_p: f32,
    /// Keeps those at least `p` times as likely as the best; 0 keeps all.
    pub min_p: f32,
    /// Locally typical sampling's mass; 1 keeps all.
    pub typical_p: f32,
    /// Keeps logits within this many standard deviations of the best; 0 or less keeps all.
    pub top_n_sigma: f32,
    /// Chance that exclusion of top choices acts at a position; 0 is off.
    pub xtc_probability: f32,
    /// Probability from which a token is a top choice. Above 0.5 there are never two, so nothing is excluded.
    pub xtc_threshold: f32,
    /// Divides positive and multiplies negative logits of tokens seen lately; 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted once from the logit of a token seen lately.
    pub presence_penalty: f32,
    /// Subtracted for every time that a token was seen lately.
    pub frequency_penalty: f32,
    /// How many of the last tokens the penalties look at; 0 turns them off.
    pub penalty_last_n: usize,
    /// Scale of the DRY penalty; 0 is off.
    pub dry_multiplier: f32,
    /// The DRY penalty grows by this factor with every token of the repetition.
    pub dry_base: f32,
    /// Repetitions up to this many tokens are free.
    pub dry_allowed_length: usize,
    /// How many of the last tokens DRY looks at; `None` looks at all.
    pub dry_last_n: Option<usize>,
    /// Sequences of tokens that no repetition extends across (line ends, quotes, colons, …; see [`super::breakers_of`]).
    pub dry_breakers: Vec<Vec<u32>>,
    /// Which mirostat, if any.
    pub mirostat: Mirostat,
    /// Mirostat's target surprise, in bits.
    pub mirostat_tau: f32,
    /// Mirostat's learning rate.
    pub mirostat_eta: f32,
    /// Added to the logits of single tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Order of the stages. One that is left out is not applied.
    pub order: Vec<Stage>,
    /// Seed of the draws.
    pub seed: u64,
    /// Alternatives whose log-probabilities are reported; `None` reports nothing.
    pub logprobs: Option<usize>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_last_n: None,
            dry_breakers: Vec::new(),
            mirostat: Mirostat::Off,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            logit_bias: Vec::new(),
            order: Stage::DEFAULT_ORDER.to_vec(),
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

    /// No truncation and no penalty: tokens are drawn as the model has them.
    pub fn plain() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Self::default() }
    }

    /// Checks every setting against a vocabulary.
    ///
    /// # Errors
    /// [`ParamError`] for the first that is out of bounds.
    pub fn check(&self, vocab_size: usize) -> Result<(), ParamError> {
        for (name, value, low, high, expected) in [
            ("temperature", self.temperature, 0.0, 1e4, "a number from 0"),
            ("dynatemp_range", self.dynatemp_range, 0.0, 1e4, "a number from 0"),
            ("dynatemp_exponent", self.dynatemp_exponent, 0.0, 1e3, "a number from 0"),
            ("top_p", self.top_p, 0.0, 1.0, "0 to 1"),
            ("min_p", self.min_p, 0.0, 1.0, "0 to 1"),
            ("typical_p", self.typical_p, 0.0, 1.0, "0 to 1"),
            ("top_n_sigma", self.top_n_sigma, -1e4, 1e4, "a finite number"),
            ("xtc_probability", self.xtc_probability, 0.0, 1.0, "0 to 1"),
            ("xtc_threshold", self.xtc_threshold, 0.0, 1.0, "0 to 1"),
            ("repeat_penalty", self.repeat_penalty, 1e-4, 1e4, "a positive number"),
            ("presence_penalty", self.presence_penalty, -1e4, 1e4, "a finite number"),
            ("frequency_penalty", self.frequency_penalty, -1e4, 1e4, "a finite number"),
            ("dry_multiplier", self.dry_multiplier, 0.0, 1e4, "a number from 0"),
            ("dry_base", self.dry_base, 1.0, 1e4, "a number from 1"),
            ("mirostat_tau", self.mirostat_tau, 0.0, 1e3, "a number from 0"),
            ("mirostat_eta", self.mirostat_eta, 0.0, 1e3, "a number from 0"),
        ] {
            if !(low..=high).contains(&value) {
                return Err(ParamError { name, found: value.to_string(), expected });
            }
        }
        let known = |name, id: u32| {
            if (id as usize) < vocab_size {
                return Ok(());
            }
            Err(ParamError { name, found: id.to_string(), expected: "ids of the vocabulary" })
        };
        self.logit_bias.iter().try_for_each(|b| known("logit_bias", b.0))?;
        self.dry_breakers.iter().flatten().try_for_each(|&id| known("dry_breakers", id))?;
        if let Some((_, bias)) = self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            return Err(ParamError { name: "logit_bias", found: bias.to_string(), expected: "numbers" });
        }
        if let Some(n) = self.logprobs.filter(|&n| n > vocab_size) {
            return Err(ParamError {
                name: "logprobs",
                found: n.to_string(),
                expected: "at most the vocabulary's size",
            });
        }
        let twice = self.order.iter().enumerate().find(|(i, s)| self.order.iter().take(*i).any(|o| o == *s));
        if let Some((_, stage)) = twice {
            return Err(ParamError {
                name: "order",
                found: format!("a list with {} twice", stage.name()),
                expected: "each stage at most once",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_bounds_are_named() {
        let ok = SamplingParams::default();
        assert_eq!(ok.check(10), Ok(()));
        let name = |p: SamplingParams| p.check(10).unwrap_err().name;
        assert_eq!(name(SamplingParams { temperature: f32::NAN, ..ok.clone() }), "temperature");
        assert_eq!(name(SamplingParams { top_p: 1.5, ..ok.clone() }), "top_p");
        assert_eq!(name(SamplingParams { mirostat_eta: f32::INFINITY, ..ok.clone() }), "mirostat_eta");
        assert_eq!(name(SamplingParams { logit_bias: vec![(10, 0.0)], ..ok.clone() }), "logit_bias");
        assert_eq!(name(SamplingParams { dry_breakers: vec![vec![1, 11]], ..ok.clone() }), "dry_breakers");
        assert_eq!(name(SamplingParams { logprobs: Some(11), ..ok.clone() }), "logprobs");
        assert_eq!(name(SamplingParams { order: vec![Stage::TopK, Stage::TopK], ..ok }), "order");
    }

    #[test]
    fn stages_have_names() {
        for stage in Stage::DEFAULT_ORDER {
            assert_eq!(Stage::parse(stage.name()), Some(stage));
        }
        assert_eq!(Stage::parse("topk"), None);
    }
}
