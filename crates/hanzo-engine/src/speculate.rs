//! Speculation: tokens that are guessed, run in the same step as the one that is certain, and kept where they are what
//! the model would have drawn anyway.
//!
//! A draft counts only if it equals the token that the sampler draws from the model's own logits at that position with
//! that position's own random numbers. So a reply has the same bytes with and without it, greedy or seeded; what a
//! proposer says can only cost or save time. (Leviathan et al. 2023 for the idea; acceptance here is by equality.)

mod draft;
mod lookup;

use std::fmt;
use std::sync::Arc;

pub use draft::DraftModel;
pub use lookup::PromptLookup;

/// Guesses what comes next. One object follows one sequence.
pub trait Proposer: Send {
    /// Appends up to `most` tokens that may follow `tokens`, which has only grown since the last call.
    fn propose(&mut self, tokens: &[u32], most: usize, drafts: &mut Vec<u32>);

    /// Of the drafts last proposed, `tried` were run and the first `accepted` of them were right.
    fn observe(&mut self, tried: usize, accepted: usize);
}

type Make = dyn Fn() -> Box<dyn Proposer> + Send + Sync;

/// Whether and how an engine speculates.
#[derive(Clone)]
pub struct Speculation {
    make: Option<Arc<Make>>,
    most: usize,
}

impl Speculation {
    /// Most drafts of a sequence in a step.
    pub const MOST: usize = 16;

    /// No drafts but those that a constraint forces.
    pub fn off() -> Self {
        Self { make: None, most: Self::MOST }
    }

    /// Drafts from what the prompt and the reply said before.
    pub fn prompt_lookup() -> Self {
        Self::prompt_lookup_of(Self::MOST)
    }

    /// The same with at most `most` drafts of a sequence in a step; none at 0.
    pub fn prompt_lookup_of(most: usize) -> Self {
        if most == 0 { Self::off() } else { Self::with(most, || Box::new(PromptLookup::default())) }
    }

    /// Up to `most` drafts of a sequence in a step, by the proposers that `make` makes, one a sequence.
    pub fn with(most: usize, make: impl Fn() -> Box<dyn Proposer> + Send + Sync + 'static) -> Self {
        Self { make: Some(Arc::new(make)), most: most.min(Self::MOST) }
    }

    pub(crate) fn proposer(&self) -> Option<Box<dyn Proposer>> {
        self.make.as_ref().map(|make| make())
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }
}

impl Default for Speculation {
    fn default() -> Self {
        Self::prompt_lookup()
    }
}

impl fmt::Debug for Speculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Speculation").field("on", &self.make.is_some()).field("most", &self.most).finish()
    }
}
