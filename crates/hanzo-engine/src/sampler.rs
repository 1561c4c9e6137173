//! From logits to a token: penalties, filters, temperature, and a draw.
//!
//! The chain is llama.cpp's, in its default order unless the request has another, each stage skipped at its neutral
//! setting. The draw at a position depends on the seed, the position and the continuation alone, so a token is the same
//! in whatever batch it is sampled: that is what makes preemption and speculation lossless for seeded replies too.

mod breakers;
mod candidates;
mod chain;
mod dry;
mod logprob;
mod mirostat;
mod params;
mod penalties;
mod rng;

pub use breakers::breakers_of;
pub use candidates::{Candidate, Candidates};
pub use chain::{Sampler, argmax};
pub use logprob::{Distribution, Divergence, TokenLogprob};
pub use params::{Mirostat, ParamError, SamplingParams, Stage};
pub use rng::uniform;
