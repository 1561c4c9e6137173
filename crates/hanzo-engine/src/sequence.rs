//! A request on its way: tokens so far, what of them is cached, and who listens.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::EngineError;
use crate::adapters::Lease;
use crate::constraint::ahead::{Allowed, Lent};
use crate::constraint::{Constraint, ConstraintError};
use crate::kv::{PrefixId, Tables};
use crate::read::{Reader, Rows};
use crate::request::{Event, Finish, FinishReason, Request, Sink, Token};
use crate::sampler::{Distribution, Sampler};
use crate::speculate::Proposer;

/// Names a sequence: its request in order of arrival, and which continuation of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SequenceId {
    pub(crate) request: u64,
    pub(crate) branch: u32,
}

/// A running or waiting request, or one continuation of it.
pub(crate) struct Sequence {
    pub(crate) id: SequenceId,
    pub(crate) priority: i32,
    /// Prompt and reply.
    pub(crate) tokens: Vec<u32>,
    n_prompt: usize,
    /// Leading tokens whose keys and values are cached.
    pub(crate) n_computed: usize,
    /// Tokens before the last one that must run again, though what follows them was drawn: drafts that were accepted beside
    /// wrong ones, which the recurrent state does not have.
    pub(crate) replay: usize,
    pub(crate) tables: Tables,
    /// Adapters that its rows use.
    pub(crate) adapters: Vec<Lease>,
    /// The empty prefix of sequences with the same adapters.
    pub(crate) prefix_root: PrefixId,
    /// Guesses of what follows, for the next step.
    pub(crate) drafts: Vec<u32>,
    sampler: Sampler,
    limits: ReplyLimits,
    /// What the reply may consist of, where that is bounded. Away while its next mask is computed beside a step.
    constraint: Option<Box<dyn Constraint>>,
    is_constrained: bool,
    /// What the constraint allows next, if it was asked ahead of time.
    allowed: Option<Result<Allowed, String>>,
    proposer: Option<Box<dyn Proposer>>,
    cancelled: Arc<AtomicBool>,
    /// Gone once the end was told, or the listener panicked.
    sink: Option<Sink>,
    /// Takes rows of the prompt, for a sequence that draws nothing.
    reader: Option<Reader>,
    /// All tokens must be in one step.
    whole: bool,
    /// Listeners of further continuations, until the prompt is through and they become sequences of their own.
    siblings: Vec<Sink>,
    times: Times,
    /// Tokens of the prompt found in the prefix cache at the first admission.
    cached_tokens: Option<usize>,
    drafted: usize,
    accepted: usize,
}

/// When a reply ends.
#[derive(Clone, Copy, Debug)]
struct ReplyLimits {
    max_tokens: usize,
    min_tokens: usize,
    ignore_eos: bool,
    speculate: bool,
    deadline: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    submitted: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

/// What an engine's model allows any reply.
#[derive(Clone, Debug)]
pub(crate) struct ModelLimits {
    /// Tokens that end a reply.
    pub(crate) eog: Vec<u32>,
    /// Longest sequence.
    pub(crate) max_context: usize,
    /// Most drafts of a sequence in a step.
    pub(crate) max_drafts: usize,
}

impl Sequence {
    /// A sequence that waits; `sinks` are the listeners of its continuations, at least one.
    pub(crate) fn new(
        request: u64,
        r: Request,
        proposer: Option<Box<dyn Proposer>>,
        cancelled: Arc<AtomicBool>,
        sink: Sink,
        siblings: Vec<Sink>,
    ) -> Self {
        Self {
            id: SequenceId { request, branch: 0 },
            priority: r.priority,
            n_prompt: r.prompt.len(),
            tokens: r.prompt,
            n_computed: 0,
            replay: 0,
            tables: Tables::default(),
            adapters: Vec::new(),
            prefix_root: PrefixId::ROOT,
            drafts: Vec::new(),
            sampler: Sampler::new(r.sampling),
            limits: ReplyLimits {
                max_tokens: r.max_tokens,
                min_tokens: r.min_tokens,
                ignore_eos: r.ignore_eos,
                speculate: r.speculate,
                deadline: r.deadline,
            },
            is_constrained: r.constraint.is_some(),
            constraint: r.constraint,
            allowed: None,
            proposer,
            cancelled,
            sink: Some(sink),
            reader: None,
            whole: false,
            siblings,
            times: Times { submitted: Instant::now(), started: None, first_token: None, last_token: None },
            cached_tokens: None,
            drafted: 0,
            accepted: 0,
        }
    }

    /// The same sequence, whose rows use these adapters.
    pub(crate) fn with_adapters(mut self, adapters: Vec<Lease>) -> Self {
        self.adapters = adapters;
        self
    }

    /// The same sequence, which draws nothing: rows of its tokens go to `reader`, and with its last token it ends.
    /// `whole` runs all of them in one step.
    pub(crate) fn reading(mut self, reader: Reader, whole: bool) -> Self {
        (self.reader, self.whole) = (Some(reader), whole);
        self
    }

    /// Tokens that must still run before the next one can be drawn.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.n_computed
    }

    fn generated(&self) -> usize {
        self.tokens.len() - self.n_prompt
    }

    /// Continuations that this sequence stands for: their number of places among those that run.
    pub(crate) fn n_continuations(&self) -> usize {
        1 + self.siblings.len()
    }

    /// Whether its next step draws a token and computes nothing but the last one (and what it has to run again).
    pub(crate) fn decodes(&self) -> bool {
        self.pending() == 1 + self.replay && self.reader.is_none()
    }

    /// So many more tokens are computed.
    pub(crate) fn advance(&mut self, n_tokens: usize) {
        self.n_computed += n_tokens;
        self.replay = self.replay.saturating_sub(n_tokens);
    }

    /// Everything must be computed again.
    pub(crate) fn restart(&mut self) {
        (self.n_computed, self.replay) = (0, 0);
    }

    /// Tokens that the cache must hold before the sequence is of use.
    pub(crate) fn least_room(&self) -> usize {
        self.tokens.len() + usize::from(self.reader.is_none())
    }

    /// Tokens whose keys and values may come from the prefix cache; the last of them runs in any case.
    pub(crate) fn cacheable(&self) -> &[u32] {
        let end = self.reader.as_ref().map_or(self.tokens.len(), |r| r.first() + 1);
        self.tokens.get(..end).unwrap_or(&self.tokens)
    }

    /// Tokens of its next chunk: `tokens` at most, and with `rows` rows for a reader at most.
    pub(crate) fn chunk(&self, tokens: usize, rows: usize) -> usize {
        let n = self.pending().min(tokens);
        let n = self.reader.as_ref().map_or(n, |r| r.cut(self.n_computed, n, rows));
        if self.whole && n < self.pending() { 0 } else { n }
    }

    /// Positions whose rows the next step must give, if it runs `n_tokens` tokens, drafts included.
    pub(crate) fn rows_wanted(&self, n_tokens: usize, n_drafts: usize) -> Range<usize> {
        let context_len = self.n_computed + n_tokens;
        match &self.reader {
            Some(reader) => reader.wanted(self.n_computed..context_len),
            None if context_len - n_drafts < self.tokens.len() => context_len..context_len,
            None => context_len - n_drafts - 1..context_len,
        }
    }

    /// What the rows are that it wants.
    pub(crate) fn row_kind(&self) -> Rows {
        self.reader.as_ref().map_or(Rows::Logits, Reader::kind)
    }

    /// Whether it only reads.
    pub(crate) fn is_reading(&self) -> bool {
        self.reader.is_some()
    }

    /// Hands the reader the rows of a step. Returns why the sequence ends, if it does.
    ///
    /// # Errors
    /// What the reader says is wrong with a row.
    pub(crate) fn read(&mut self, rows: &[&[f32]]) -> Result<Option<FinishReason>, EngineError> {
        if let Some(reader) = &mut self.reader {
            for row in rows {
                if !reader.take(row)? {
                    return Ok(Some(FinishReason::Cancelled));
                }
            }
        }
        if self.pending() > 0 {
            return Ok(None);
        }
        let now = Instant::now();
        (self.times.first_token, self.times.last_token) = (Some(now), Some(now));
        Ok(Some(FinishReason::Stop))
    }

    /// The first step is about to run, with `cached` tokens of the prompt already there. True at the first call.
    pub(crate) fn start(&mut self, cached: usize) -> bool {
        self.times.started.get_or_insert_with(Instant::now);
        let first = self.cached_tokens.is_none();
        self.cached_tokens.get_or_insert(cached);
        first
    }

    /// Why the request must end before anything else runs, if it must.
    pub(crate) fn interrupted(&self, now: Instant) -> Option<FinishReason> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Some(FinishReason::Cancelled);
        }
        self.limits.deadline.filter(|&d| now >= d).map(|_| FinishReason::Deadline)
    }

    /// Splits off the continuations after the first; `proposer` makes their proposers. Their tables are the caller's to
    /// fill.
    pub(crate) fn split(&mut self, proposer: impl Fn() -> Option<Box<dyn Proposer>>) -> Vec<Self> {
        let siblings = std::mem::take(&mut self.siblings);
        let continuation = |(sink, branch): (Sink, u32)| Self {
            id: SequenceId { branch, ..self.id },
            priority: self.priority,
            tokens: self.tokens.clone(),
            n_prompt: self.n_prompt,
            n_computed: self.n_computed,
            replay: 0,
            tables: Tables::default(),
            adapters: self.adapters.clone(),
            prefix_root: self.prefix_root,
            drafts: Vec::new(),
            sampler: self.sampler.branch(branch),
            limits: self.limits,
            constraint: self.constraint.clone(),
            is_constrained: self.is_constrained,
            allowed: self.allowed.clone(),
            proposer: proposer(),
            cancelled: Arc::clone(&self.cancelled),
            sink: Some(sink),
            reader: None,
            whole: false,
            siblings: Vec::new(),
            times: self.times,
            cached_tokens: self.cached_tokens,
            drafted: 0,
            accepted: 0,
        };
        siblings.into_iter().zip(1..).map(continuation).collect()
    }

    /// Lends the constraint of a reply that draws after a step of `n_tokens` tokens, to be asked meanwhile.
    pub(crate) fn lend_constraint(&mut self, n_tokens: usize, n_drafts: usize) -> Option<Lent> {
        if self.rows_wanted(n_tokens, n_drafts).is_empty() {
            return None;
        }
        let constraint = self.constraint.take()?;
        Some(Lent { id: self.id, constraint, allowed: None })
    }

    /// Takes the constraint back, with its answer if there is one.
    pub(crate) fn take_back(&mut self, lent: Lent) {
        (self.constraint, self.allowed) = (Some(lent.constraint), lent.allowed);
    }

    /// What the reply may go on with.
    fn allowed(&mut self, vocab_size: usize) -> Result<Allowed, String> {
        match (self.allowed.take(), &mut self.constraint) {
            (Some(allowed), Some(_)) => allowed,
            (None, Some(constraint)) => Allowed::by(&mut **constraint, vocab_size),
            (_, None) => Err("it did not come back".to_owned()),
        }
    }

    /// Guesses what follows, for a sequence whose next token is about to be drawn.
    pub(crate) fn propose(&mut self, model: &ModelLimits) {
        self.drafts.clear();
        if self.pending() != 1 + self.replay || !self.siblings.is_empty() || !self.limits.speculate {
            return;
        }
        let room = model.max_context.saturating_sub(self.tokens.len() + 1);
        let wanted = self.limits.max_tokens.saturating_sub(self.generated() + 1);
        let most = model.max_drafts.min(room).min(wanted);
        if most == 0 {
            return;
        }
        if let Some(constraint) = &mut self.constraint {
            self.drafts = constraint.forced();
        }
        if self.drafts.is_empty()
            && let Some(proposer) = &mut self.proposer
        {
            proposer.propose(&self.tokens, most, &mut self.drafts);
        }
        self.drafts.truncate(most);
        if let Some(constraint) = &mut self.constraint
            && !self.drafts.is_empty()
        {
            let n = constraint.admissible(&self.drafts);
            self.drafts.truncate(n);
        }
    }

    /// Of the drafts that were run, `tried`, the first `accepted` were right.
    pub(crate) fn observe(&mut self, tried: usize, accepted: usize) {
        self.drafts.clear();
        if tried > 0 {
            (self.drafted, self.accepted) = (self.drafted + tried, self.accepted + accepted);
            if let Some(proposer) = &mut self.proposer {
                proposer.observe(tried, accepted);
            }
        }
    }

    /// Draws the token after those that are there from the model's logits, and tells the listener. Returns why the reply
    /// ends with it, if it does.
    ///
    /// # Errors
    /// When no token can be drawn or the constraint fails.
    pub(crate) fn draw(
        &mut self,
        logits: &[f32],
        model: &ModelLimits,
    ) -> Result<Option<FinishReason>, EngineError> {
        let (position, generated) = (self.tokens.len(), self.generated());
        let failed = |reason| EngineError::from(ConstraintError::Failed { position: generated, reason });
        let mut banned = if generated < self.limits.min_tokens { model.eog.as_slice() } else { &[] };
        let mut mask = None;
        if self.is_constrained {
            let Allowed { mask: mut allowed, may_end } = self.allowed(logits.len()).map_err(failed)?;
            let only_end = allowed.is_empty();
            model.eog.iter().for_each(|&id| if may_end { allowed.allow(id) } else { allowed.forbid(id) });
            if only_end {
                banned = &[];
            }
            mask = Some(allowed);
        }
        let drawn = self.sampler.sample(logits, &self.tokens, banned, mask.as_ref());
        let reason = if mask.is_some() { "the constraint admits none" } else { "the logits are not numbers" };
        let id = drawn.ok_or(EngineError::NoToken { position, reason })?;
        let ends = model.eog.contains(&id);
        let mut complete = false;
        if let Some(constraint) = &mut self.constraint {
            if !ends {
                constraint.accept(id).map_err(failed)?;
            }
            complete = ends || constraint.must_end();
        }
        let alternatives = self.sampler.params().logprobs;
        let logprobs = alternatives.map(|n| {
            let distribution = Distribution::new(logits);
            (distribution.token(id), distribution.top(n))
        });
        Ok(self.push(Token { id, logprobs }, ends, complete, model.max_context))
    }

    fn push(&mut self, token: Token, ends: bool, complete: bool, max_context: usize) -> Option<FinishReason> {
        let now = Instant::now();
        self.times.first_token.get_or_insert(now);
        self.times.last_token = Some(now);
        self.tokens.push(token.id);
        if ends && (complete || !self.limits.ignore_eos) {
            return Some(FinishReason::Stop);
        }
        if !self.tell(Event::Token(token)) {
            return Some(FinishReason::Cancelled);
        }
        if complete {
            return Some(FinishReason::Stop);
        }
        let full = self.generated() >= self.limits.max_tokens || self.tokens.len() >= max_context;
        full.then_some(FinishReason::Length)
    }

    /// Tells the listener; false when nobody listens. A listener that panics is not asked again.
    fn tell(&mut self, event: Event) -> bool {
        let Some(sink) = &mut self.sink else { return false };
        match catch_unwind(AssertUnwindSafe(|| sink(event))) {
            Ok(listens) => listens,
            Err(_) => {
                tracing::error!(request = self.id.request, "the request's listener panicked");
                self.sink = None;
                false
            }
        }
    }

    /// Tells the listeners that the reply is complete.
    pub(crate) fn finish(mut self, reason: FinishReason) {
        // What it read into is its caller's alone from here on.
        self.reader = None;
        let t = &self.times;
        let between = |a: Option<Instant>, b: Option<Instant>| {
            a.zip(b).map_or(Duration::ZERO, |(a, b)| b.saturating_duration_since(a))
        };
        let finish = Finish {
            reason,
            prompt_tokens: self.n_prompt,
            cached_tokens: self.cached_tokens.unwrap_or(0),
            generated_tokens: self.generated(),
            drafted_tokens: self.drafted,
            accepted_tokens: self.accepted,
            queue_time: between(Some(t.submitted), t.started),
            prompt_time: between(t.started, t.first_token),
            generation_time: between(t.first_token, t.last_token),
        };
        self.end(|| Event::Finished(finish));
    }

    /// Tells the listeners that the request failed.
    pub(crate) fn fail(mut self, error: impl Fn() -> EngineError) {
        self.end(|| Event::Failed(error()));
    }

    /// Tells the listener that the request failed. For a sequence whose continuations are its own.
    pub(crate) fn fail_with(mut self, error: EngineError) {
        self.tell(Event::Failed(error));
        self.sink = None;
    }

    fn end(&mut self, event: impl Fn() -> Event) {
        loop {
            self.tell(event());
            self.sink = self.siblings.pop();
            if self.sink.is_none() {
                return;
            }
        }
    }
}

/// Every request hears its end, also one that is lost in a panic.
impl Drop for Sequence {
    fn drop(&mut self) {
        if self.sink.is_some() {
            self.end(|| Event::Failed(EngineError::Restarted("the request was lost".to_owned())));
        }
    }
}
