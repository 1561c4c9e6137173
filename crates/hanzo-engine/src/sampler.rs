//! From logits to a token: penalties, filters, temperature, and a draw.
//!
//! The chain is llama.cpp's in its default order, each step skipped at its neutral setting. The draw at a position
//! depends on the seed and the position alone, so a token is the same however often and in whatever batch it is
//! sampled: that is what makes preemption and speculation lossless for seeded replies too.

mod chain;
mod params;
mod penalties;
mod rng;

pub use chain::{Candidates, Sampler, TokenLogprob};
pub use params::{ParamError, SamplingParams};
pub use rng::uniform;
