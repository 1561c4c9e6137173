//! The bridge to the engine that every dialect uses: a validated [`Job`] in, typed [`Event`]s out.
//!
//! Dropping a [`Generation`] cancels its request, which gives its place and blocks back before the engine's next step,
//! whether it waits, reads its prompt or writes. What a client leaves unread is bounded: beyond it the request is
//! cancelled too, so a client that has stopped reading costs neither memory nor compute.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use hanzo_engine::constraint::Grammar;
use hanzo_engine::{
    AdapterId, Cancel, Constraint, Event as EngineEvent, Finish, FinishReason, Request, SamplingParams, Sink,
    StopStrings, TextEvent, TextOptions, Token, text_sink,
};
use hanzo_text::parse::{Event as Parsed, Family, OutputParser, ParseOptions, Tools};
use hanzo_text::tokenizer::EncodeOptions;
use tokio::sync::mpsc;

use crate::context::{Notes, RequestId};
use crate::error::ApiError;
use crate::ids;
use crate::metrics::{ModelMetrics, Outcome};
use crate::model::{LoadedModel, Prompt};
use crate::on_mark::OnMark;
use crate::reasoning::AfterReasoning;
use crate::state::App;

/// What is held to a grammar.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    /// The reply, or what of it follows the reasoning.
    Whole(Grammar),
    /// What follows each mark in free text.
    OnMark {
        mark: &'static str,
        grammar: Grammar,
        /// Whether the reply ends with the first.
        once: bool,
    },
}

/// A request that was found valid, in the engine's terms.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) model: Arc<LoadedModel>,
    pub(crate) prompt: Prompt,
    /// Replies wanted.
    pub(crate) n: usize,
    /// Most tokens of a reply; as many as the context holds if `None`.
    pub(crate) max_tokens: Option<usize>,
    pub(crate) min_tokens: usize,
    pub(crate) ignore_eos: bool,
    pub(crate) sampling: SamplingParams,
    pub(crate) stop: StopStrings,
    pub(crate) priority: i32,
    /// Tools whose calls are told apart from content; `None` where nothing is a call.
    pub(crate) tools: Option<Tools>,
    /// What the reply, or a part of it, must be.
    pub(crate) grammar: Option<Held>,
    /// How the reply is read, if a grammar makes it differ from the model's own way.
    pub(crate) family: Option<Family>,
    /// Most tokens of reasoning.
    pub(crate) reasoning_budget: Option<usize>,
    /// Adapters on the model, with their scales.
    pub(crate) adapters: Vec<(AdapterId, f32)>,
}

impl Job {
    /// One reply to a prompt, drawn as the engine does by default.
    pub(crate) fn new(model: Arc<LoadedModel>, prompt: Prompt) -> Self {
        Self {
            model,
            prompt,
            n: 1,
            max_tokens: None,
            min_tokens: 0,
            ignore_eos: false,
            sampling: SamplingParams { seed: ids::random_seed(), ..SamplingParams::default() },
            stop: StopStrings::default(),
            priority: 0,
            tools: None,
            grammar: None,
            family: None,
            reasoning_budget: None,
            adapters: Vec::new(),
        }
    }

    /// Queues the request.
    ///
    /// # Errors
    /// What the engine says against it: too long, out of bounds, a grammar that does not compile, a full queue.
    pub(crate) async fn start(
        self,
        app: &App,
        id: &RequestId,
        notes: &Notes,
    ) -> Result<Generation, ApiError> {
        let began = Instant::now();
        if app.is_draining() {
            let message = "the server is shutting down; ask another one";
            return Err(ApiError {
                retry_after: Some(Duration::from_secs(1)),
                ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
            });
        }
        for change in &self.prompt.changes {
            if *change == hanzo_text::template::Adaptation::ToolsIgnored {
                notes.warn("the model's chat template does not show tools: the model does not see them");
            }
        }
        let (context, n_prompt) = (self.model.engine.info().max_context, self.prompt.ids.len());
        let room = context.saturating_sub(n_prompt);
        if let Some(wanted) = self.max_tokens.filter(|&wanted| wanted > room) {
            notes.warn(format!("{wanted} tokens were asked for; the context leaves {room}"));
        }
        if app.config.log_prompts {
            let decode =
                hanzo_text::detokenize::DecodeOptions { render_special: true, keep_leading_space: true };
            let text = self.model.tokenizer.decode(&self.prompt.ids, decode).unwrap_or_default();
            tracing::info!(id = &*id.0, prompt = text, "prompt");
        }
        let job = self.with_constraint().await?;
        job.submit(app, id, began, room)
    }

    /// Compiles the grammar, on a thread where that may take its time.
    async fn with_constraint(mut self) -> Result<Ready, ApiError> {
        let format = self.prompt.chat;
        let in_reasoning = format.is_some_and(|f| f.in_reasoning);
        let marks = format.and_then(|f| f.family.reasoning_marks());
        let grammar = self.grammar.take();
        if grammar.is_none() && (self.reasoning_budget.is_none() || marks.is_none()) {
            return Ok(Ready { job: self, constraint: None });
        }
        blocking(move || {
            let tokenizer = || Arc::clone(&self.model.tokenizer);
            let inner = grammar.map(|held| match held {
                Held::Whole(grammar) => self.model.grammars()?.compile(&grammar),
                Held::OnMark { mark, grammar, once } => {
                    let grammar = self.model.grammars()?.compile(&grammar)?;
                    Ok(Box::new(OnMark::new(tokenizer(), mark, once, grammar)) as Box<dyn Constraint>)
                }
            });
            let inner = inner.transpose();
            let inner = inner.map_err(|e| ApiError::from(hanzo_engine::EngineError::from(e)))?;
            let constraint = match marks {
                Some(marks) if in_reasoning || self.reasoning_budget.is_some() => {
                    let plain = EncodeOptions { add_special: false, parse_special: true };
                    let close = self.model.tokenizer.encode(marks.1, plain).unwrap_or_default();
                    let budget = self.reasoning_budget;
                    let after = AfterReasoning::new(tokenizer(), marks, close, in_reasoning, budget, inner);
                    Some(Box::new(after) as Box<dyn Constraint>)
                }
                _ => inner,
            };
            Ok(Ready { job: self, constraint })
        })
        .await?
    }
}

/// Runs what may take its time away from the threads that serve connections.
///
/// # Errors
/// When it panics: the request fails, the server goes on.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| ApiError::internal(format!("the request's work failed: {e}")))
}

/// A job whose constraint is compiled.
struct Ready {
    job: Job,
    constraint: Option<Box<dyn Constraint>>,
}

impl Ready {
    fn submit(self, app: &App, id: &RequestId, began: Instant, room: usize) -> Result<Generation, ApiError> {
        let Self { job, constraint } = self;
        let format = job.prompt.chat;
        let mut request = Request::new(job.prompt.ids, job.max_tokens.unwrap_or(room).min(room));
        request.sampling = job.sampling;
        request.min_tokens = job.min_tokens;
        request.ignore_eos = job.ignore_eos;
        request.priority = job.priority;
        request.deadline = app.config.limits.reply_time.and_then(|time| began.checked_add(time));
        request.constraint = constraint;
        request.adapters = job.adapters;
        let family = job.family.or(format.map(|f| f.family));
        let parser = || {
            let options = ParseOptions {
                family: family?,
                tools: job.tools.clone(),
                split_reasoning: true,
                starts_in_reasoning: format.is_some_and(|f| f.in_reasoning),
            };
            Some(OutputParser::new(options))
        };
        // The marks of reasoning and calls may be special tokens.
        let render_special = family.is_some_and(|f| f != Family::Generic);
        let options = TextOptions { stop: job.stop, render_special };
        let (sender, receiver) = mpsc::unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let sinks = (0..job.n).map(|choice| {
            let mailbox = Mailbox {
                choice,
                sender: sender.clone(),
                unread: Arc::clone(&unread),
                most: app.config.limits.unread_bytes,
            };
            let watch =
                Watch { metrics: Arc::clone(&job.model.metrics), began, last: None, first: choice == 0 };
            sink(&job.model, &options, mailbox, watch)
        });
        let cancel = job.model.engine.submit_continuations(request, sinks.collect())?;
        let choices = (0..job.n).map(|_| Choice { parser: parser(), calls: 0, ended: false }).collect();
        Ok(Generation {
            receiver,
            unread,
            cancel,
            choices,
            usage: Usage::default(),
            log: Log {
                id: id.clone(),
                model: Arc::clone(&job.model),
                began,
                prompts: app.config.log_prompts,
            },
        })
    }
}

/// What the engine's thread leaves for the reader of a choice.
struct Letter {
    choice: usize,
    size: usize,
    event: Result<TextEvent, ApiError>,
}

/// Where the engine's thread leaves it: never waits, and says no when too much is unread.
struct Mailbox {
    choice: usize,
    sender: mpsc::UnboundedSender<Letter>,
    unread: Arc<AtomicUsize>,
    most: usize,
}

impl Mailbox {
    fn post(&self, event: TextEvent) -> bool {
        let size = size_of(&event);
        let unread = self.unread.fetch_add(size, Ordering::Relaxed);
        if unread > self.most {
            let message = format!("{unread} bytes of the reply were not read; the request was cancelled");
            let error = ApiError::new(StatusCode::REQUEST_TIMEOUT, message).with_code("client_too_slow");
            let _ = self.sender.send(Letter { choice: self.choice, size, event: Err(error) });
            return false;
        }
        self.sender.send(Letter { choice: self.choice, size, event: Ok(event) }).is_ok()
    }
}

/// About the memory that an event takes.
fn size_of(event: &TextEvent) -> usize {
    let content = match event {
        TextEvent::Token { token, text } => {
            text.len() + token.logprobs.as_ref().map_or(0, |(_, others)| others.len() * 8)
        }
        TextEvent::Finished(end) => end.text.len(),
        TextEvent::Failed(_) => 0,
    };
    std::mem::size_of::<Letter>() + content
}

/// Takes the times of a reply.
struct Watch {
    metrics: Arc<ModelMetrics>,
    began: Instant,
    last: Option<Instant>,
    /// Of the choices of a request, the one that counts for it.
    first: bool,
}

impl Watch {
    fn see(&mut self, event: &EngineEvent) {
        let now = Instant::now();
        match event {
            EngineEvent::Token(_) => match self.last.replace(now) {
                None => self.metrics.first_token.observe(now - self.began),
                Some(last) => self.metrics.between_tokens.observe(now - last),
            },
            EngineEvent::Finished(finish) => {
                self.metrics.whole.observe(now - self.began);
                if self.first {
                    self.metrics.queue.observe(finish.queue_time);
                    self.metrics.prompt_tokens.fetch_add(finish.prompt_tokens as u64, Ordering::Relaxed);
                }
            }
            EngineEvent::Failed(_) => {}
        }
    }

    fn end(&self, event: &TextEvent) {
        let outcome = match event {
            TextEvent::Token { .. } => return,
            TextEvent::Finished(end) => match end.finish.reason {
                FinishReason::Stop => Outcome::Stop,
                FinishReason::Length => Outcome::Length,
                FinishReason::Cancelled | FinishReason::Deadline => Outcome::Abort,
            },
            TextEvent::Failed(_) => Outcome::Error,
        };
        self.metrics.ended(outcome);
    }
}

/// What listens to the engine for one choice.
fn sink(model: &LoadedModel, options: &TextOptions, mailbox: Mailbox, mut watch: Watch) -> Sink {
    let ends = Watch { metrics: Arc::clone(&watch.metrics), ..watch };
    let mut text = text_sink(Arc::clone(&model.tokenizer), options, move |event| {
        ends.end(&event);
        mailbox.post(event)
    });
    Box::new(move |event| {
        watch.see(&event);
        text(event)
    })
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// More reasoning.
    Reasoning(String),
    /// More content.
    Content(String),
    /// A call of a tool, complete.
    Call(Call),
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    /// Its place among the calls of the reply.
    pub(crate) index: usize,
    pub(crate) id: String,
    pub(crate) name: String,
    /// A JSON object, as text.
    pub(crate) arguments: String,
}

/// What a step brought for one choice.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) choice: usize,
    /// What became certain with it: often nothing, or one part.
    pub(crate) parts: Vec<Part>,
    pub(crate) token: Option<Token>,
    /// The last event of a choice has it.
    pub(crate) end: Option<End>,
}

/// How a choice ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) reason: EndReason,
    /// The stop string that ended it, if one did.
    pub(crate) stop: Option<String>,
    pub(crate) finish: Finish,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The model ended it, or a stop string.
    Stop,
    /// `max_tokens`, or the context is full.
    Length,
    /// The model ended it with calls of tools.
    Calls,
}

/// Tokens that a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of the prompt.
    pub(crate) prompt: usize,
    /// Of these, found in the prefix cache.
    pub(crate) cached: usize,
    /// Of all choices.
    pub(crate) completion: usize,
    /// Of these, reasoning: tokens that came while nothing else had.
    pub(crate) reasoning: usize,
    /// Guesses of speculation that were right, and wrong.
    pub(crate) accepted: usize,
    pub(crate) rejected: usize,
}

impl Usage {
    /// Takes what another request took.
    pub(crate) fn add(&mut self, other: &Self) {
        self.prompt += other.prompt;
        self.cached += other.cached;
        self.completion += other.completion;
        self.reasoning += other.reasoning;
        self.accepted += other.accepted;
        self.rejected += other.rejected;
    }
}

#[derive(Debug)]
struct Choice {
    /// `None` for plain text.
    parser: Option<OutputParser>,
    calls: usize,
    ended: bool,
}

impl Choice {
    fn read(&mut self, text: &str, last: bool) -> Vec<Part> {
        let Some(parser) = &mut self.parser else {
            return if text.is_empty() { Vec::new() } else { vec![Part::Content(text.to_owned())] };
        };
        let mut parsed = parser.feed(text);
        if last {
            parsed.extend(parser.finish());
        }
        parsed.into_iter().map(|event| self.part(event)).collect()
    }

    fn part(&mut self, event: Parsed) -> Part {
        match event {
            Parsed::Reasoning(text) => Part::Reasoning(text),
            Parsed::Content(text) => Part::Content(text),
            Parsed::ToolCall(call) => {
                let index = self.calls;
                self.calls += 1;
                let arguments = serde_json::Value::Object(call.arguments).to_string();
                Part::Call(Call { index, id: ids::unique("call_"), name: call.name, arguments })
            }
        }
    }
}

/// A running request. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct Generation {
    receiver: mpsc::UnboundedReceiver<Letter>,
    unread: Arc<AtomicUsize>,
    cancel: Cancel,
    choices: Vec<Choice>,
    usage: Usage,
    log: Log,
}

impl std::fmt::Debug for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letter").field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl Generation {
    /// The next event; `None` after the last choice's end, or after an error.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, ApiError>> {
        if self.choices.iter().all(|c| c.ended) {
            return None;
        }
        let event = match self.receiver.recv().await {
            Some(letter) => {
                self.unread.fetch_sub(letter.size, Ordering::Relaxed);
                self.read(letter.choice, letter.event)
            }
            None => Err(ApiError::internal("the engine dropped the request")),
        };
        if let Err(error) = &event {
            self.choices.iter_mut().for_each(|c| c.ended = true);
            self.log.failed(error);
        }
        Some(event)
    }

    fn read(&mut self, choice: usize, event: Result<TextEvent, ApiError>) -> Result<Event, ApiError> {
        let state = self.choices.get_mut(choice).ok_or_else(|| ApiError::internal("no such choice"))?;
        match event? {
            TextEvent::Token { token, text } => {
                let parts = state.read(&text, false);
                self.log.reply(&text);
                let reasons = parts.iter().any(|p| matches!(p, Part::Reasoning(_)));
                self.usage.reasoning += usize::from(reasons);
                Ok(Event { choice, parts, token: Some(token), end: None })
            }
            TextEvent::Finished(end) => {
                let parts = state.read(&end.text, true);
                state.ended = true;
                let reason = match end.finish.reason {
                    FinishReason::Stop if state.calls > 0 => EndReason::Calls,
                    FinishReason::Stop => EndReason::Stop,
                    FinishReason::Length => EndReason::Length,
                    FinishReason::Cancelled => return Err(ApiError::internal("the request was cancelled")),
                    FinishReason::Deadline => {
                        let message = "the reply took longer than this server allows";
                        return Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, message));
                    }
                };
                self.count(&end.finish);
                let end = End { reason, stop: end.stop, finish: end.finish };
                self.log.ended(choice, &end);
                Ok(Event { choice, parts, token: None, end: Some(end) })
            }
            TextEvent::Failed(error) => Err(error.into()),
        }
    }

    fn count(&mut self, finish: &Finish) {
        let usage = &mut self.usage;
        usage.prompt = finish.prompt_tokens;
        usage.cached = finish.cached_tokens;
        usage.completion += finish.generated_tokens;
        usage.accepted += finish.accepted_tokens;
        usage.rejected += finish.drafted_tokens.saturating_sub(finish.accepted_tokens);
    }

    /// Tokens so far, of the choices that have ended.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Waits for all choices.
    ///
    /// # Errors
    /// What ended the request early.
    pub(crate) async fn collect(mut self) -> Result<(Vec<Reply>, Usage), ApiError> {
        let mut replies: Vec<Reply> = self.choices.iter().map(|_| Reply::default()).collect();
        while let Some(event) = self.next().await {
            let event = event?;
            if let Some(reply) = replies.get_mut(event.choice) {
                reply.push(event);
            }
        }
        Ok((replies, self.usage))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.cancel.cancel();
        if self.choices.iter().any(|c| !c.ended) {
            self.log.abandoned();
        }
    }
}

/// A complete choice.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) end: Option<End>,
}

impl Reply {
    fn push(&mut self, event: Event) {
        for part in event.parts {
            match part {
                Part::Reasoning(text) => self.reasoning.push_str(&text),
                Part::Content(text) => self.content.push_str(&text),
                Part::Call(call) => self.calls.push(call),
            }
        }
        self.tokens.extend(event.token);
        self.end = event.end.or(self.end.take());
    }
}

/// What the log says of a request: counts and times, and no text unless asked.
#[derive(Debug)]
struct Log {
    id: RequestId,
    model: Arc<LoadedModel>,
    began: Instant,
    prompts: bool,
}

impl Log {
    fn ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    fn ended(&self, choice: usize, end: &End) {
        let f = &end.finish;
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        tracing::info!(
            id = &*self.id.0,
            model = self.model.name,
            choice,
            reason = ?end.reason,
            prompt_tokens = f.prompt_tokens,
            cached_tokens = f.cached_tokens,
            generated_tokens = f.generated_tokens,
            queue_ms = ms(f.queue_time),
            prompt_ms = ms(f.prompt_time),
            generation_ms = ms(f.generation_time),
            "replied"
        );
    }

    fn failed(&self, error: &ApiError) {
        tracing::warn!(
            id = &*self.id.0,
            model = self.model.name,
            ms = self.ms(),
            "failed: {}",
            error.message
        );
    }

    fn abandoned(&self) {
        tracing::info!(id = &*self.id.0, model = self.model.name, ms = self.ms(), "the client went away");
    }

    fn reply(&self, text: &str) {
        if self.prompts && !text.is_empty() {
            tracing::info!(id = &*self.id.0, text, "reply");
        }
    }
}
