//! From the engine's thread to the task of a request: what was brought, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::http::StatusCode;
use hanzo_engine::{Event as EngineEvent, FinishReason, Sink, TextEvent, TextOptions, text_sink};
use tokio::sync::mpsc;

use crate::error::ApiError;
use crate::metrics::{ModelMetrics, Outcome};
use crate::model::LoadedModel;

/// What the engine's thread leaves for the reader of a choice.
struct Letter {
    choice: usize,
    size: usize,
    event: Result<TextEvent, ApiError>,
}

/// Where the task of a request finds what all its choices brought.
pub(super) struct Mail {
    receiver: mpsc::UnboundedReceiver<Letter>,
    unread: Arc<AtomicUsize>,
}

impl Mail {
    /// The next event, with its choice; `None` when the engine has let go of all choices.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<TextEvent, ApiError>)> {
        let letter = self.receiver.recv().await?;
        self.unread.fetch_sub(letter.size, Ordering::Relaxed);
        Some((letter.choice, letter.event))
    }
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail").field("unread", &self.unread).finish_non_exhaustive()
    }
}

/// A mailbox for each of `n` choices, which may hold `most` unread bytes together.
pub(super) fn open(n: usize, most: usize) -> (Vec<Mailbox>, Mail) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let unread = Arc::new(AtomicUsize::new(0));
    let mailbox = |choice| Mailbox { choice, sender: sender.clone(), unread: Arc::clone(&unread), most };
    ((0..n).map(mailbox).collect(), Mail { receiver, unread })
}

/// Where the engine's thread leaves it: never waits, and says no when too much is unread.
pub(super) struct Mailbox {
    pub(super) choice: usize,
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
pub(super) struct Watch {
    metrics: Arc<ModelMetrics>,
    began: Instant,
    last: Option<Instant>,
    /// Of the choices of a request, the one that counts for it.
    first: bool,
}

impl Watch {
    /// Of a request that began at `began`.
    pub(super) fn new(metrics: Arc<ModelMetrics>, began: Instant, first: bool) -> Self {
        Self { metrics, began, last: None, first }
    }

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
pub(super) fn sink(model: &LoadedModel, options: &TextOptions, mailbox: Mailbox, mut watch: Watch) -> Sink {
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
