//! Events as a [`Stream`] for asynchronous callers, of whatever runtime.
//!
//! The engine's thread never waits for a reader: events are kept until they are polled, at most the reply's.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use hanzo_text::tokenizer::Tokenizer;

use crate::engine::{Cancel, Engine};
use crate::error::EngineError;
use crate::reply::{TextEvent, TextOptions, text_sink};
use crate::request::{Event, Request};

/// Events of one request; dropping it cancels the request.
#[derive(Debug)]
pub struct EventStream<T> {
    shared: Arc<Mutex<Shared<T>>>,
    cancel: Cancel,
}

#[derive(Debug)]
struct Shared<T> {
    events: VecDeque<T>,
    waker: Option<Waker>,
    /// Nothing follows what is there.
    ended: bool,
}

/// The engine's end; dropping it ends the stream.
struct Feed<T>(Arc<Mutex<Shared<T>>>);

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Feed<T> {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Shared { events: VecDeque::new(), waker: None, ended: false })))
    }

    fn push(&self, event: T) {
        let mut shared = lock(&self.0);
        shared.events.push_back(event);
        let waker = shared.waker.take();
        drop(shared);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        let mut shared = lock(&self.0);
        shared.ended = true;
        let waker = shared.waker.take();
        drop(shared);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Stream for EventStream<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut shared = lock(&self.shared);
        if let Some(event) = shared.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if shared.ended {
            return Poll::Ready(None);
        }
        shared.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> EventStream<T> {
    /// A handle that cancels the request from elsewhere.
    pub fn cancel_handle(&self) -> Cancel {
        self.cancel.clone()
    }
}

impl<T> Drop for EventStream<T> {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Engine {
    /// Queues a request and gives its events as a stream.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn stream(&self, request: Request) -> Result<EventStream<Event>, EngineError> {
        let feed = Feed::new();
        let shared = Arc::clone(&feed.0);
        let sink = move |event| {
            feed.push(event);
            true
        };
        Ok(EventStream { shared, cancel: self.submit(request, Box::new(sink))? })
    }

    /// Queues a request and gives its events as a stream of text.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn stream_text(
        &self,
        request: Request,
        tokenizer: Arc<Tokenizer>,
        options: &TextOptions,
    ) -> Result<EventStream<TextEvent>, EngineError> {
        let feed = Feed::new();
        let shared = Arc::clone(&feed.0);
        let sink = text_sink(tokenizer, options, move |event| {
            feed.push(event);
            true
        });
        Ok(EventStream { shared, cancel: self.submit(request, sink)? })
    }
}
