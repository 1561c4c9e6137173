//! Replies as Ollama writes them: one object, or a line of JSON a part and one at the end with counts and times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use serde_json::{Map, Value, json};

use crate::context::{Notes, RequestId};
use crate::error::{ApiError, Dialect};
use crate::generate::{Call, End, EndReason, Event, Job, Part, Reply, Usage, Write, written};
use crate::ids;
use crate::model::LoadedModel;
use crate::respond::Json;
use crate::state::App;

/// What a reply is the answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `/api/chat`: a message.
    Chat,
    /// `/api/generate`: text.
    Generate,
}

/// How a reply is written.
#[derive(Debug)]
pub(super) struct Manner {
    pub(super) model: Arc<LoadedModel>,
    pub(super) kind: Kind,
    pub(super) began: Instant,
}

impl Manner {
    /// A part of a reply, or the whole of it.
    fn object(&self, content: &str, thinking: &str, calls: &[Call]) -> Map<String, Value> {
        object(&self.model.name, self.kind, content, thinking, calls)
    }

    fn line(&self, content: &str, thinking: &str, calls: &[Call]) -> Bytes {
        line(&Value::Object(self.object(content, thinking, calls)))
    }

    /// Counts and times, in nanoseconds.
    fn finish(&self, out: &mut Map<String, Value>, end: &End) {
        out.insert("done".to_owned(), true.into());
        let reason = if end.reason == EndReason::Length { "length" } else { "stop" };
        out.insert("done_reason".to_owned(), reason.into());
        let f = &end.finish;
        for (name, value) in [
            ("total_duration", nanoseconds(self.began.elapsed())),
            ("load_duration", 0),
            ("prompt_eval_count", f.prompt_tokens as u64),
            ("prompt_eval_duration", nanoseconds(f.prompt_time)),
            ("eval_count", f.generated_tokens as u64),
            ("eval_duration", nanoseconds(f.generation_time)),
        ] {
            out.insert(name.to_owned(), value.into());
        }
    }

    /// A whole reply.
    fn whole(&self, reply: &Reply) -> Value {
        let mut out = self.object(&reply.content, &reply.reasoning, &reply.calls);
        if let Some(end) = &reply.end {
            self.finish(&mut out, end);
        }
        Value::Object(out)
    }

    /// The answer to a request without a prompt, which only loads the model.
    pub(super) fn loaded(&self) -> Value {
        ended(&self.model.name, self.kind, "load")
    }
}

/// A part of a reply, or the whole of it.
fn object(model: &str, kind: Kind, content: &str, thinking: &str, calls: &[Call]) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("model".to_owned(), model.into());
    out.insert("created_at".to_owned(), ids::rfc3339(ids::now()).into());
    match kind {
        Kind::Generate => {
            out.insert("response".to_owned(), content.into());
            if !thinking.is_empty() {
                out.insert("thinking".to_owned(), thinking.into());
            }
        }
        Kind::Chat => {
            let mut message = json!({"role": "assistant", "content": content});
            if !thinking.is_empty() {
                message["thinking"] = thinking.into();
            }
            let calls: Vec<Value> = calls.iter().filter_map(call).collect();
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
            }
            out.insert("message".to_owned(), message);
        }
    }
    out.insert("done".to_owned(), false.into());
    out
}

/// What is said of a request without a reply, and of why there is none.
fn ended(model: &str, kind: Kind, reason: &str) -> Value {
    let mut out = object(model, kind, "", "", &[]);
    out.insert("done".to_owned(), true.into());
    out.insert("done_reason".to_owned(), reason.into());
    Value::Object(out)
}

/// Unloads a model, as a request without a prompt asks for that keeps it for no time.
///
/// # Errors
/// As [`Registry::unload`](crate::registry::Registry::unload).
pub(super) async fn unload(app: &App, model: Option<&str>, kind: Kind) -> Result<Response, ApiError> {
    let name = model.unwrap_or_default();
    app.registry.unload(name).await?;
    Ok(Json(ended(name, kind, "unload")).into_response())
}

fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Arguments are an object here, not text; a call that was cut off has none to tell.
fn call(call: &Call) -> Option<Value> {
    Some(json!({"function": {"index": call.index, "name": call.name, "arguments": call.input()?}}))
}

/// A line of a response.
pub(super) fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

/// A response of lines, which are written as they come.
pub(super) fn lines(lines: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(lines.map(Ok::<_, std::io::Error>)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response
}

/// Writes the lines of a streamed reply. Errors after its beginning are lines too.
struct Writer {
    manner: Manner,
    /// A call whose arguments are still coming: lines have whole ones.
    open: Option<Call>,
    end: Option<End>,
}

impl Writer {
    fn part(&mut self, part: Part, out: &mut Vec<Bytes>) {
        if let (Part::Arguments { text, .. }, Some(call)) = (&part, &mut self.open) {
            call.arguments.push_str(text);
            return;
        }
        self.close(out);
        match part {
            Part::Reasoning(text) => out.push(self.manner.line("", &text, &[])),
            Part::Content(text) => out.push(self.manner.line(&text, "", &[])),
            Part::Call(call) => self.open = Some(call),
            Part::Arguments { .. } => {}
        }
    }

    /// Writes the call that has come, if there is one.
    fn close(&mut self, out: &mut Vec<Bytes>) {
        if let Some(call) = self.open.take().filter(|call| call.input().is_some()) {
            out.push(self.manner.line("", "", &[call]));
        }
    }
}

impl Write for Writer {
    fn event(&mut self, event: Event, out: &mut Vec<Bytes>) {
        event.parts.into_iter().for_each(|part| self.part(part, out));
        self.end = event.end.or(self.end.take());
    }

    fn end(&mut self, _usage: &Usage, out: &mut Vec<Bytes>) {
        self.close(out);
        let mut last = self.manner.object("", "", &[]);
        if let Some(end) = &self.end {
            self.manner.finish(&mut last, end);
        }
        out.push(line(&Value::Object(last)));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Vec<Bytes>) {
        out.push(line(&error.body(Dialect::Ollama)));
    }
}

/// Runs a job and writes its reply, as it comes if `stream`.
///
/// # Errors
/// What the engine says against the job; what ended a reply early that is not streamed.
pub(super) async fn answer(
    app: &App,
    id: &RequestId,
    notes: &Notes,
    job: Job,
    stream: bool,
    manner: Manner,
) -> Result<Response, ApiError> {
    let generation = job.start(app, id, notes).await?;
    if stream {
        return Ok(lines(written([generation], Writer { manner, open: None, end: None })));
    }
    let (replies, _) = generation.collect().await?;
    Ok(Json(manner.whole(&replies.into_iter().next().unwrap_or_default())).into_response())
}
