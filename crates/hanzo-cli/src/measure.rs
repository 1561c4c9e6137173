//! What the commands that judge quality share: running texts through a model, log-probabilities, windows, statistics, and saved
//! logits.
//!
//! `scorer` runs tokens and hands out rows of logits one by one (all of a text would not fit into memory), `logprob` keeps
//! their log-probabilities in 16 bits, `windows` says which part of a text is scored with which context, `base` keeps rows of one model to
//! hold another against, `stats` sums up, `text` reads and tokenizes. The commands leave text, progress and reports to themselves.

pub(crate) mod base;
pub(crate) mod logprob;
pub(crate) mod scorer;
pub(crate) mod stats;
pub(crate) mod text;
pub(crate) mod windows;
