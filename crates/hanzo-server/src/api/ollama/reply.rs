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
    fn head(&self) -> Map<String, Value> {
        let mut head = Map::new();
        head.insert("model".to_owned(), self.model.name.as_str().into());
        head.insert("created_at".to_owned(), ids::rfc3339(ids::now()).into());
        head
    }

    /// A part of a reply, or the whole of it.
    fn object(&self, content: &str, thinking: &str, calls: &[Call]) -> Map<String, Value> {
        let mut out = self.head();
        match self.kind {
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
                if !calls.is_empty() {
                    message["tool_calls"] = calls.iter().map(call).collect();
                }
                out.insert("message".to_owned(), message);
            }
        }
        out.insert("done".to_owned(), false.into());
        out
    }

    /// Counts and times, in nanoseconds.
    fn finish(&self, out: &mut Map<String, Value>, end: Option<&End>) {
        out.insert("done".to_owned(), true.into());
        let Some(end) = end else { return };
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
        self.finish(&mut out, reply.end.as_ref());
        Value::Object(out)
    }

    /// The answer to a request without a prompt, which only loads the model.
    pub(super) fn loaded(&self) -> Value {
        let mut out = self.object("", "", &[]);
        self.finish(&mut out, None);
        out.insert("done_reason".to_owned(), "load".into());
        Value::Object(out)
    }

    fn part(&self, part: &Part) -> Value {
        Value::Object(match part {
            Part::Reasoning(text) => self.object("", text, &[]),
            Part::Content(text) => self.object(text, "", &[]),
            Part::Call(call) => self.object("", "", std::slice::from_ref(call)),
        })
    }
}

fn nanoseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Arguments are an object here, not text.
fn call(call: &Call) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({"function": {"index": call.index, "name": call.name, "arguments": arguments}})
}

fn line(value: &Value) -> Bytes {
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
    end: Option<End>,
}

impl Write for Writer {
    fn event(&mut self, event: Event, out: &mut Vec<Bytes>) {
        out.extend(event.parts.iter().map(|part| line(&self.manner.part(part))));
        self.end = event.end.or(self.end.take());
    }

    fn end(&mut self, _usage: &Usage, out: &mut Vec<Bytes>) {
        let mut last = self.manner.object("", "", &[]);
        self.manner.finish(&mut last, self.end.as_ref());
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
        return Ok(lines(written([generation], Writer { manner, end: None })));
    }
    let (replies, _) = generation.collect().await?;
    Ok(Json(manner.whole(&replies.into_iter().next().unwrap_or_default())).into_response())
}
