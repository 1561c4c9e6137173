//! Server-sent events: a stream of messages as a response.

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use serde_json::Value;

/// A message with data alone, as OpenAI's clients read it.
pub(crate) fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// A message with a name, as Anthropic's clients read it.
pub(crate) fn named(event: &str, value: &Value) -> Bytes {
    Bytes::from(format!("event: {event}\ndata: {value}\n\n"))
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
    let mut response =
        Response::new(Body::from_stream(kept_alive(messages, keep_alive).map(Ok::<_, std::io::Error>)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies such as nginx would collect the stream otherwise.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Puts a comment, which clients skip, wherever nothing came for a while.
fn kept_alive(
    messages: impl Stream<Item = Bytes> + Send + 'static,
    every: Duration,
) -> impl Stream<Item = Bytes> + Send + 'static {
    futures_util::stream::unfold(Box::pin(messages), move |mut messages| async move {
        let next = pin!(messages.next());
        match tokio::time::timeout(every, next).await {
            Ok(message) => message.map(|message| (message, messages)),
            Err(_) => Some((Bytes::from_static(b": keep-alive\n\n"), messages)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_stream_is_kept_alive() {
        let slow = futures_util::stream::once(async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            done()
        });
        let all: Vec<Bytes> = kept_alive(slow, Duration::from_millis(50)).collect().await;
        assert!(all.len() > 1 && all.iter().rev().skip(1).all(|m| m.starts_with(b": ")), "{all:?}");
        assert_eq!(all.last(), Some(&done()));
    }
}
