//! The bridge to the engine that every dialect uses: a validated [`Job`] in, typed [`Event`]s out.
//!
//! Dropping a [`Generation`] cancels its request, which gives its place and blocks back before the engine's next step,
//! whether it waits, reads its prompt or writes. What a client leaves unread is bounded: beyond it the request is
//! cancelled too, so a client that has stopped reading costs neither memory nor compute.

mod event;
mod generation;
mod mailbox;
mod stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use hanzo_engine::constraint::Grammar;
use hanzo_engine::{AdapterId, Constraint, Request, SamplingParams, StopStrings, TextOptions};
use hanzo_text::parse::{Family, OutputParser, ParseOptions, Tools};
use hanzo_text::tokenizer::EncodeOptions;

pub(crate) use self::event::{Call, End, EndReason, Event, Part, Reply, Usage, left_out};
pub(crate) use self::generation::Generation;
use self::generation::Log;
pub(crate) use self::stream::{Write, written};
use crate::context::{Notes, RequestId};
use crate::error::ApiError;
use crate::ids;
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
    /// The grammar is that of calls: what begins like one is one.
    pub(crate) held_calls: bool,
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
            held_calls: false,
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
            tracing::info!(id = &*id.text, prompt = text, "prompt");
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
                held_calls: job.held_calls,
                starts_in_reasoning: format.is_some_and(|f| f.in_reasoning),
            };
            Some(OutputParser::new(options))
        };
        // The marks of reasoning and calls may be special tokens.
        let render_special = family.is_some_and(|f| f != Family::Generic);
        let options = TextOptions { stop: job.stop, render_special };
        let (mailboxes, mail) = mailbox::open(job.n, app.config.limits.unread_bytes);
        let metrics = &job.model.metrics;
        let sinks = mailboxes.into_iter().map(|mailbox| {
            let watch = mailbox::Watch::new(Arc::clone(metrics), began, mailbox.choice == 0);
            mailbox::sink(&job.model, &options, mailbox, watch)
        });
        let cancel = job.model.engine.submit_continuations(request, sinks.collect())?;
        let parsers = (0..job.n).map(|_| parser()).collect();
        let log = Log { id: id.clone(), model: job.model, began, prompts: app.config.log_prompts };
        Ok(Generation::new(mail, cancel, parsers, log))
    }
}
