//! What a caller asks for, and what it hears back.

use std::time::{Duration, Instant};

use crate::adapters::AdapterId;
use crate::constraint::Constraint;
use crate::error::EngineError;
use crate::sampler::{SamplingParams, TokenLogprob};

/// A request for a continuation of a prompt.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids of the prompt, special tokens included.
    pub prompt: Vec<u32>,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// Most tokens of the reply.
    pub max_tokens: usize,
    /// End-of-generation tokens are not drawn before the reply has this many tokens.
    pub min_tokens: usize,
    /// End-of-generation tokens do not end the reply (for measurements).
    pub ignore_eos: bool,
    /// Greater goes first; equal in order of arrival.
    pub priority: i32,
    /// The reply ends here at the latest.
    pub deadline: Option<Instant>,
    /// What the reply may consist of. Where it admits nothing but an end, the reply ends, whatever `min_tokens` says.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Whether drafts are tried, where the engine speculates at all. Changes no byte of the reply.
    pub speculate: bool,
    /// Adapters that the model is used with, each with its scale, applied in this order; none for the model as it is.
    pub adapters: Vec<(AdapterId, f32)>,
}

impl Request {
    /// A request with default sampling and `max_tokens` to generate.
    pub fn new(prompt: Vec<u32>, max_tokens: usize) -> Self {
        Self {
            prompt,
            sampling: SamplingParams::default(),
            max_tokens,
            min_tokens: 0,
            ignore_eos: false,
            priority: 0,
            deadline: None,
            constraint: None,
            speculate: true,
            adapters: Vec::new(),
        }
    }
}

/// What happens to a request.
#[derive(Debug)]
pub enum Event {
    /// A token of the reply. End-of-generation tokens are not reported.
    Token(Token),
    /// The reply is complete.
    Finished(Finish),
    /// The request failed; nothing follows.
    Failed(EngineError),
}

/// A token of a reply.
#[derive(Clone, Debug)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Its log-probability and the best alternatives', if asked for.
    pub logprobs: Option<(TokenLogprob, Vec<TokenLogprob>)>,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it.
    Stop,
    /// `max_tokens`, or the context is full.
    Length,
    /// The caller cancelled it.
    Cancelled,
    /// Its deadline passed.
    Deadline,
}

/// Counts and times of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Finish {
    /// Why it ended.
    pub reason: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, found in the prefix cache.
    pub cached_tokens: usize,
    /// Tokens generated, the end token included.
    pub generated_tokens: usize,
    /// Drafts of speculation that ran.
    pub drafted_tokens: usize,
    /// Drafts that were right: tokens of the reply that took no step of their own.
    pub accepted_tokens: usize,
    /// From submission to the first step.
    pub queue_time: Duration,
    /// From the first step to the first token.
    pub prompt_time: Duration,
    /// From the first token to the last.
    pub generation_time: Duration,
}

/// Hears a request's events; returns false when nobody listens any more, which cancels the request.
pub type Sink = Box<dyn FnMut(Event) -> bool + Send>;
