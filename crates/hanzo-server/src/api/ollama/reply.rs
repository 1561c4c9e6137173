//! Replies as Ollama writes them: one object, or a line of JSON a part and one at the end with counts and times.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use serde_json::{Map, Value, json};

use crate::context::{Notes, RequestId};
use crate::error::{ApiError, Dialect};
use crate::generate::{Call, End, EndReason, Event, Job, Part, Reply, Usage, Write, left_out, written};
use crate::ids;
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
    /// The model's name.
    pub(super) model: String,
    pub(super) kind: Kind,
    pub(super) began: Instant,
}

impl Manner {
    /// A part of a reply, or the whole of it.
    fn object(&self, content: &str, thinking: &str, calls: &[Call]) -> Map<String, Value> {
        object(&self.model, self.kind, content, thinking, calls)
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

    /// A whole reply. What is left out of it stands in the notes.
    fn whole(&self, reply: &Reply, notes: &Notes) -> Value {
        left_out(&reply.calls).into_iter().for_each(|warning| notes.warn(warning));
        let mut out = self.object(&reply.content, &reply.reasoning, &reply.calls);
        if let Some(end) = &reply.end {
            self.finish(&mut out, end);
        }
        Value::Object(out)
    }

    /// The answer to a request without a prompt, which only loads the model.
    pub(super) fn loaded(&self) -> Value {
        ended(&self.model, self.kind, "load")
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

/// Arguments are an object here, not text; a call that broke off has none to tell.
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
    /// Calls that broke off: the last line says of them what a header cannot any more.
    broken: Vec<Call>,
    end: Option<End>,
}

impl Writer {
    fn new(manner: Manner) -> Self {
        Self { manner, open: None, broken: Vec::new(), end: None }
    }

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
        let Some(call) = self.open.take() else { return };
        if call.input().is_some() {
            out.push(self.manner.line("", "", &[call]));
        } else {
            self.broken.push(call);
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
        if let Some(warning) = left_out(&self.broken) {
            last.insert("warning".to_owned(), warning.into());
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
        return Ok(lines(written([generation], Writer::new(manner))));
    }
    let (replies, _) = generation.collect().await?;
    Ok(Json(manner.whole(&replies.into_iter().next().unwrap_or_default(), notes)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manner() -> Manner {
        Manner { model: "m".to_owned(), kind: Kind::Chat, began: Instant::now() }
    }

    fn call(index: usize, name: &str, arguments: &str) -> Call {
        Call { index, id: format!("call_{index}"), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    /// A call that broke off is left out of a reply, and never in silence: a header says so, or the last line of a stream.
    #[test]
    fn calls_that_broke_off_are_told_of() {
        let calls = [call(0, "weather", r#"{"city":1,"#), call(1, "now", "{}"), call(2, "paint", "")];
        let said = "calls that broke off are left out: weather, paint";
        let notes = Notes::default();
        let whole = manner().whole(&Reply { calls: calls.to_vec(), ..Reply::default() }, &notes);
        let told = json!([{"function": {"index": 1, "name": "now", "arguments": {}}}]);
        assert_eq!((&whole["message"]["tool_calls"], notes.take_warnings()), (&told, vec![said.to_owned()]));

        let mut parts = Vec::new();
        for call in &calls {
            let arguments = Part::Arguments { call: call.index, text: call.arguments.clone() };
            parts.extend([Part::Call(Call { arguments: String::new(), ..call.clone() }), arguments]);
        }
        let (mut writer, mut out) = (Writer::new(manner()), Vec::new());
        writer.event(Event { choice: 0, parts, token: None, end: None }, &mut out);
        writer.end(&Usage::default(), &mut out);
        let lines: Vec<Value> = out.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["message"]["tool_calls"], &lines[0]["warning"]), (&told, &Value::Null));
        assert_eq!(lines[1]["warning"], said);

        // Where all are whole there is nothing to say.
        let whole = manner().whole(&Reply { calls: calls[1..2].to_vec(), ..Reply::default() }, &notes);
        assert_eq!((&whole["message"]["tool_calls"], notes.take_warnings().len()), (&told, 0));
        let (mut writer, mut out) = (Writer::new(manner()), Vec::new());
        writer.end(&Usage::default(), &mut out);
        let last: Value = serde_json::from_slice(&out[0]).unwrap();
        assert!(last.get("warning").is_none(), "{last}");
    }
}
