//! A request on its way: tokens so far, what of them is cached, and who listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::kv::Tables;
use crate::request::{Event, Finish, FinishReason, Request, Sink};
use crate::sampler::Sampler;

/// A running or waiting request.
pub(crate) struct Sequence {
    pub(crate) id: u64,
    pub(crate) priority: i32,
    /// Prompt and reply.
    pub(crate) tokens: Vec<u32>,
    pub(crate) n_prompt: usize,
    /// Leading tokens whose keys and values are cached.
    pub(crate) n_computed: usize,
    pub(crate) tables: Tables,
    pub(crate) sampler: Sampler,
    pub(crate) limits: ReplyLimits,
    cancelled: Arc<AtomicBool>,
    sink: Sink,
    times: Times,
    /// Tokens of the prompt found in the prefix cache at the first admission.
    cached_tokens: Option<usize>,
}

/// When a reply ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyLimits {
    max_tokens: usize,
    min_tokens: usize,
    ignore_eos: bool,
    deadline: Option<Instant>,
}

struct Times {
    submitted: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

impl Sequence {
    pub(crate) fn new(id: u64, request: Request, cancelled: Arc<AtomicBool>, sink: Sink) -> Self {
        Self {
            id,
            priority: request.priority,
            n_prompt: request.prompt.len(),
            tokens: request.prompt,
            n_computed: 0,
            tables: Tables::default(),
            sampler: Sampler::new(request.sampling),
            limits: ReplyLimits {
                max_tokens: request.max_tokens,
                min_tokens: request.min_tokens,
                ignore_eos: request.ignore_eos,
                deadline: request.deadline,
            },
            cancelled,
            sink,
            times: Times { submitted: Instant::now(), started: None, first_token: None, last_token: None },
            cached_tokens: None,
        }
    }

    /// Tokens that must still run before the next one can be drawn.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.n_computed
    }

    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.n_prompt
    }

    /// The first step is about to run, with `cached` tokens of the prompt already there.
    pub(crate) fn start(&mut self, cached: usize) {
        self.times.started.get_or_insert_with(Instant::now);
        self.cached_tokens.get_or_insert(cached);
    }

    /// Why the request must end before anything else runs, if it must.
    pub(crate) fn interrupted(&self, now: Instant) -> Option<FinishReason> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Some(FinishReason::Cancelled);
        }
        self.limits.deadline.filter(|&d| now >= d).map(|_| FinishReason::Deadline)
    }

    /// Tokens that must not be drawn next.
    pub(crate) fn banned<'a>(&self, eog: &'a [u32]) -> &'a [u32] {
        if self.generated() < self.limits.min_tokens { eog } else { &[] }
    }

    /// Takes the drawn token. Returns why the reply ends with it, if it does.
    pub(crate) fn push(
        &mut self,
        token: crate::request::Token,
        eog: &[u32],
        max_context: usize,
    ) -> Option<FinishReason> {
        let now = Instant::now();
        self.times.first_token.get_or_insert(now);
        self.times.last_token = Some(now);
        self.tokens.push(token.id);
        if eog.contains(&token.id) && !self.limits.ignore_eos {
            return Some(FinishReason::Stop);
        }
        if !(self.sink)(Event::Token(token)) {
            return Some(FinishReason::Cancelled);
        }
        let full = self.generated() >= self.limits.max_tokens || self.tokens.len() >= max_context;
        full.then_some(FinishReason::Length)
    }

    /// Tells the listener that the reply is complete.
    pub(crate) fn finish(&mut self, reason: FinishReason) {
        let t = &self.times;
        let between = |a: Option<Instant>, b: Option<Instant>| {
            a.zip(b).map_or(Duration::ZERO, |(a, b)| b.saturating_duration_since(a))
        };
        let finish = Finish {
            reason,
            prompt_tokens: self.n_prompt,
            cached_tokens: self.cached_tokens.unwrap_or(0),
            generated_tokens: self.tokens.len() - self.n_prompt,
            queue_time: between(Some(t.submitted), t.started),
            prompt_time: between(t.started, t.first_token),
            generation_time: between(t.first_token, t.last_token),
        };
        (self.sink)(Event::Finished(finish));
    }

    /// Tells the listener that the request failed.
    pub(crate) fn fail(&mut self, error: crate::EngineError) {
        (self.sink)(Event::Failed(error));
    }
}
