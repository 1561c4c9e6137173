//! Server-sent events: a stream of messages as a response.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use serde::Serialize;
use tokio::time::{Instant, Sleep};

/// About the bytes of a message with one token's text.
const MESSAGE_BYTES: usize = 320;

/// A message with data alone, as OpenAI's clients read it.
pub(crate) fn data(value: &impl Serialize) -> Bytes {
    message("", value)
}

/// A message with a name, as Anthropic's clients read it.
pub(crate) fn named(event: &str, value: &impl Serialize) -> Bytes {
    message(event, value)
}

fn message(event: &str, value: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(MESSAGE_BYTES);
    if !event.is_empty() {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    let from = out.len();
    if let Err(error) = serde_json::to_writer(&mut out, value) {
        // Nothing that is written here has keys that are no strings; memory does not fail.
        tracing::error!("a message could not be written: {error}");
        out.truncate(from);
        out.extend_from_slice(
            b"{\"error\":{\"message\":\"a message could not be written\",\"type\":\"server_error\"}}",
        );
    }
    out.extend_from_slice(b"\n\n");
    Bytes::from(out)
}

/// What ends an OpenAI stream.
pub(crate) fn done() -> Bytes {
    Bytes::from_static(b"data: [DONE]\n\n")
}

/// A response that sends messages as they come. When the client is gone, `messages` is dropped.
pub(crate) fn response(
    messages: impl Stream<Item = Bytes> + Send + 'static,
    keep_alive: Duration,
) -> Response {
    let messages = KeptAlive::new(messages, keep_alive);
    let mut response = Response::new(Body::from_stream(messages.map(Ok::<_, std::io::Error>)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies such as nginx would collect the stream otherwise.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Puts a comment, which clients skip, wherever nothing came for a while. Its clock is set once in a while and not with each message: to set
/// one can cost more than the message.
struct KeptAlive {
    messages: BoxStream<'static, Bytes>,
    every: Duration,
    last: Instant,
    clock: Pin<Box<Sleep>>,
}

impl KeptAlive {
    fn new(messages: impl Stream<Item = Bytes> + Send + 'static, every: Duration) -> Self {
        let last = Instant::now();
        Self {
            messages: messages.boxed(),
            every,
            last,
            clock: Box::pin(tokio::time::sleep_until(last + every)),
        }
    }
}

impl Stream for KeptAlive {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = &mut *self;
        if let Poll::Ready(message) = this.messages.poll_next_unpin(cx) {
            this.last = Instant::now();
            return Poll::Ready(message);
        }
        while this.clock.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let silent = now >= this.last + this.every;
            if silent {
                this.last = now;
            }
            this.clock.as_mut().reset(this.last + this.every);
            if silent {
                return Poll::Ready(Some(Bytes::from_static(b": keep-alive\n\n")));
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_stream_is_kept_alive() {
        let wait = |n: u64| Duration::from_millis(if n < 5 { 1 } else { 230 });
        let slow = futures_util::stream::unfold(0, move |n| async move {
            tokio::time::sleep(wait(n)).await;
            (n < 6).then(|| (done(), n + 1))
        });
        let every = Duration::from_millis(50);
        let heard: Vec<(Instant, Bytes)> =
            KeptAlive::new(slow, every).map(|m| (Instant::now(), m)).collect().await;
        let comments = heard.iter().rev().skip_while(|(_, m)| *m != done()).skip(1);
        let comments = comments.take_while(|(_, m)| m.starts_with(b": ")).count();
        assert!((1..=4).contains(&comments), "{heard:?}");
        assert_eq!(heard.iter().filter(|(_, m)| *m == done()).count(), 6, "{heard:?}");
        // None comes sooner than it should.
        for pair in heard.windows(2).filter(|pair| pair[1].1 != done()) {
            assert!(pair[1].0 - pair[0].0 >= every - Duration::from_millis(2), "{heard:?}");
        }
    }

    #[test]
    fn messages_are_json_on_one_line() {
        let value = serde_json::json!({"a": "x\ny", "b": f32::NAN});
        assert_eq!(data(&value), "data: {\"a\":\"x\\ny\",\"b\":null}\n\n");
        assert_eq!(named("ping", &value), "event: ping\ndata: {\"a\":\"x\\ny\",\"b\":null}\n\n");
        let keys = std::collections::HashMap::from([(vec![1], 2)]);
        assert!(data(&keys).starts_with(b"data: {\"error\""));
    }
}
