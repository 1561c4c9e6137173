//! What a reply may consist of: a mask of allowed tokens before each draw.
//!
//! A constraint fails closed: where it cannot say what is allowed, the request fails. Grammars and schemas are behind
//! the same trait in `guidance` (feature `grammar`, on by default).

pub(crate) mod ahead;
#[cfg(feature = "grammar")]
mod gbnf;
#[cfg(feature = "grammar")]
mod guidance;

use std::fmt;

#[cfg(feature = "grammar")]
pub use guidance::{Grammar, GrammarCompiler, MAX_NESTING, MAX_SOURCE, MAX_SPACE, bounded_space};
use thiserror::Error;

/// A set of token ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
    vocab_size: usize,
}

impl TokenMask {
    /// The empty set over a vocabulary.
    pub fn new(vocab_size: usize) -> Self {
        Self { words: vec![0; vocab_size.div_ceil(32)], vocab_size }
    }

    /// The set with bit `id % 32` of word `id / 32` for each member; ids beyond the words are not members.
    pub fn from_words(words: &[u32], vocab_size: usize) -> Self {
        let mut mask = Self::new(vocab_size);
        mask.words.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
        mask
    }

    /// Adds a token; one that the vocabulary does not have is left out.
    pub fn allow(&mut self, id: u32) {
        if (id as usize) < self.vocab_size
            && let Some(word) = self.words.get_mut(id as usize / 32)
        {
            *word |= 1 << (id % 32);
        }
    }

    /// Takes a token out.
    pub fn forbid(&mut self, id: u32) {
        if let Some(word) = self.words.get_mut(id as usize / 32) {
            *word &= !(1 << (id % 32));
        }
    }

    /// Whether a token is in the set.
    pub fn allows(&self, id: u32) -> bool {
        self.words.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)
    }

    /// Whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Makes the logits of all others −∞.
    pub(crate) fn apply(&self, logits: &mut [f32]) {
        let words = self.words.iter().copied().chain(std::iter::repeat(0));
        for (chunk, word) in logits.chunks_mut(32).zip(words) {
            if word == u32::MAX {
                continue;
            }
            for (bit, logit) in chunk.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}

/// Why a constraint cannot be had, or cannot go on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConstraintError {
    /// It does not compile.
    #[error("the {kind} does not compile: {reason}")]
    Compile {
        /// "JSON schema", "regex", "Lark grammar" or "GBNF grammar".
        kind: &'static str,
        /// What is wrong, and where.
        reason: String,
    },
    /// It is larger than what is accepted.
    #[error("the {kind} has {found} {unit}; {most} are accepted")]
    TooLarge {
        /// As above.
        kind: &'static str,
        /// What was counted.
        unit: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// It failed while the reply was being made.
    #[error("the constraint failed at token {position} of the reply: {reason}")]
    Failed {
        /// Tokens of the reply before.
        position: usize,
        /// What is wrong.
        reason: String,
    },
}

/// Says what a reply may go on with. One object follows one reply.
pub trait Constraint: Send {
    /// Tokens that may come next, end tokens aside. Empty where the reply must end.
    ///
    /// # Errors
    /// Why that cannot be said; the request fails.
    fn mask(&mut self, vocab_size: usize) -> Result<TokenMask, String>;

    /// Whether the reply may end here.
    ///
    /// # Errors
    /// As [`Constraint::mask`].
    fn may_end(&mut self) -> Result<bool, String>;

    /// Whether the reply is complete: it ends without another step.
    fn must_end(&mut self) -> bool;

    /// The reply goes on with `token`, which the mask had allowed.
    ///
    /// # Errors
    /// As [`Constraint::mask`].
    fn accept(&mut self, token: u32) -> Result<(), String>;

    /// How many of `drafts` could come next, one after the other. Changes nothing.
    fn admissible(&mut self, drafts: &[u32]) -> usize;

    /// Tokens that must come next, as far as they are known: drafts that cost nothing to find.
    fn forced(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// An independent copy, for another continuation of the same prompt.
    fn boxed_clone(&self) -> Box<dyn Constraint>;
}

impl Clone for Box<dyn Constraint> {
    fn clone(&self) -> Self {
        self.as_ref().boxed_clone()
    }
}

impl fmt::Debug for dyn Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_sets() {
        let mut mask = TokenMask::new(40);
        assert!(mask.is_empty());
        mask.allow(33);
        mask.allow(0);
        mask.allow(40);
        mask.forbid(0);
        assert!(mask.allows(33) && !mask.allows(0) && !mask.allows(40) && !mask.allows(u32::MAX));
        let mut logits = vec![1.0; 70];
        mask.apply(&mut logits);
        let left: Vec<_> = (0..70).filter(|&i| logits[i] == 1.0).collect();
        assert_eq!(left, [33], "what is beyond the mask is forbidden");
        assert_eq!(TokenMask::from_words(&[0, 2], 40), mask);
    }
}
