//! A response: whole, or as the events of a stream, which are numbered.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Map, Value, json};

use crate::error::{ApiError, Dialect};
use crate::generate::{Call, End, EndReason, Generation, Part, Reply, Usage};
use crate::ids;
use crate::sse;
use crate::state::App;

/// The item of the output that is being written.
#[derive(Debug)]
enum Open {
    Reasoning { id: String, text: String },
    Message { id: String, text: String },
}

/// Writes a response.
#[derive(Debug)]
pub(super) struct Writer {
    /// The fields that repeat the request, the id among them.
    echo: Map<String, Value>,
    /// Where the response is kept, and what was said before it.
    store: Option<(Arc<App>, Arc<[Value]>)>,
    /// Items that are complete.
    output: Vec<Value>,
    open: Option<Open>,
    /// The assistant's turn, for the conversation that is kept.
    turn: Reply,
    sequence: u64,
    events: Vec<Bytes>,
}

impl Writer {
    pub(super) fn new(echo: Map<String, Value>, store: Option<(Arc<App>, Arc<[Value]>)>) -> Self {
        Self {
            echo,
            store,
            output: Vec::new(),
            open: None,
            turn: Reply::default(),
            sequence: 0,
            events: Vec::new(),
        }
    }

    fn response(&self, status: &str, end: Option<&End>, used: Option<&Usage>) -> Value {
        let mut out = self.echo.clone();
        let length = end.is_some_and(|e| e.reason == EndReason::Length);
        out.insert("status".to_owned(), if length { "incomplete" } else { status }.into());
        let details = if length { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        out.insert("incomplete_details".to_owned(), details);
        out.insert("output".to_owned(), self.output.clone().into());
        out.insert("usage".to_owned(), used.map_or(Value::Null, usage));
        Value::Object(out)
    }

    fn event(&mut self, kind: &str, mut fields: Value) {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.events.push(sse::named(kind, &fields));
    }

    fn begin(&mut self) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress", None, None);
            self.event(kind, json!({"response": response}));
        }
    }

    /// Closes the open item, if there is one.
    fn close(&mut self) {
        let index = self.output.len();
        let item = match self.open.take() {
            None => return,
            Some(Open::Reasoning { id, text }) => {
                let place = json!({"item_id": id, "output_index": index, "content_index": 0, "text": text});
                self.event("response.reasoning_text.done", place);
                reasoning(&id, &text)
            }
            Some(Open::Message { id, text }) => {
                let place = json!({"item_id": id, "output_index": index, "content_index": 0});
                let with = |name: &str, value: Value| {
                    let mut place = place.clone();
                    place[name] = value;
                    place
                };
                self.event("response.output_text.done", with("text", text.as_str().into()));
                self.event("response.content_part.done", with("part", text_part(&text)));
                message(&id, &text, "completed")
            }
        };
        self.event("response.output_item.done", json!({"output_index": index, "item": item}));
        self.output.push(item);
    }

    fn part(&mut self, part: Part) {
        let index = self.output.len();
        match part {
            Part::Reasoning(more) => {
                if !matches!(self.open, Some(Open::Reasoning { .. })) {
                    self.close();
                    let id = ids::unique("rs_");
                    let (index, item) = (self.output.len(), reasoning(&id, ""));
                    self.event("response.output_item.added", json!({"output_index": index, "item": item}));
                    self.open = Some(Open::Reasoning { id, text: String::new() });
                }
                self.turn.reasoning.push_str(&more);
                let index = self.output.len();
                if let Some(Open::Reasoning { id, text }) = &mut self.open {
                    text.push_str(&more);
                    let place =
                        json!({"item_id": id, "output_index": index, "content_index": 0, "delta": more});
                    self.event("response.reasoning_text.delta", place);
                }
            }
            Part::Content(more) => {
                if !matches!(self.open, Some(Open::Message { .. })) {
                    self.close();
                    let (id, index) = (ids::unique("msg_"), self.output.len());
                    let mut item = message(&id, "", "in_progress");
                    item["content"] = json!([]);
                    self.event("response.output_item.added", json!({"output_index": index, "item": item}));
                    let place = json!({"item_id": id, "output_index": index, "content_index": 0, "part": text_part("")});
                    self.event("response.content_part.added", place);
                    self.open = Some(Open::Message { id, text: String::new() });
                }
                self.turn.content.push_str(&more);
                let index = self.output.len();
                if let Some(Open::Message { id, text }) = &mut self.open {
                    text.push_str(&more);
                    let place = json!({"item_id": id, "output_index": index, "content_index": 0, "delta": more, "logprobs": []});
                    self.event("response.output_text.delta", place);
                }
            }
            Part::Call(call) => {
                self.close();
                let index = index.max(self.output.len());
                let id = ids::unique("fc_");
                let mut item = function_call(&id, &call, "in_progress");
                item["arguments"] = "".into();
                self.event("response.output_item.added", json!({"output_index": index, "item": item}));
                let place = |name: &str| {
                    let mut place = json!({"item_id": id, "output_index": index});
                    place[name] = call.arguments.as_str().into();
                    place
                };
                self.event("response.function_call_arguments.delta", place("delta"));
                self.event("response.function_call_arguments.done", place("arguments"));
                let item = function_call(&id, &call, "completed");
                self.event("response.output_item.done", json!({"output_index": index, "item": item}));
                self.output.push(item);
                self.turn.calls.push(call);
            }
        }
    }

    /// The last event; the response is kept if it is to be.
    fn end(&mut self, end: Option<&End>, used: &Usage) -> Value {
        self.close();
        let response = self.response("completed", end, Some(used));
        let incomplete = response["status"] == "incomplete";
        let kind = if incomplete { "response.incomplete" } else { "response.completed" };
        self.event(kind, json!({"response": response}));
        if let Some((app, said)) = &self.store {
            let conversation = said.iter().cloned().chain([turn(&self.turn)]).collect();
            let id = self.echo.get("id").and_then(Value::as_str).unwrap_or_default();
            app.responses.put(id, response.clone(), conversation);
        }
        response
    }

    fn failed(&mut self, error: &ApiError) {
        let mut response = self.response("failed", None, None);
        let told = &error.body(Dialect::OpenAi)["error"];
        let code = error.code.unwrap_or("server_error");
        response["error"] = json!({"code": code, "message": told["message"]});
        self.event("response.failed", json!({"response": response}));
    }

    /// A whole response.
    pub(super) fn whole(mut self, mut reply: Reply, used: &Usage) -> Value {
        let text = |part: fn(String) -> Part, text: String| (!text.is_empty()).then(|| part(text));
        let (reasoning, content) = (std::mem::take(&mut reply.reasoning), std::mem::take(&mut reply.content));
        let parts = [text(Part::Reasoning, reasoning), text(Part::Content, content)].into_iter().flatten();
        for part in parts.chain(reply.calls.drain(..).map(Part::Call)) {
            self.part(part);
            self.events.clear();
        }
        self.end(reply.end.as_ref(), used)
    }
}

fn usage(used: &Usage) -> Value {
    json!({
        "input_tokens": used.prompt,
        "input_tokens_details": {"cached_tokens": used.cached},
        "output_tokens": used.completion,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.prompt + used.completion,
    })
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn message(id: &str, text: &str, status: &str) -> Value {
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": [text_part(text)]})
}

fn reasoning(id: &str, text: &str) -> Value {
    let content = if text.is_empty() { json!([]) } else { json!([{"type": "reasoning_text", "text": text}]) };
    json!({"id": id, "type": "reasoning", "summary": [], "content": content})
}

fn function_call(id: &str, call: &Call, status: &str) -> Value {
    json!({
        "id": id,
        "type": "function_call",
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    })
}

/// The assistant's turn as a message.
fn turn(reply: &Reply) -> Value {
    let mut out = json!({"role": "assistant", "content": reply.content});
    if !reply.reasoning.is_empty() {
        out["reasoning_content"] = reply.reasoning.as_str().into();
    }
    if !reply.calls.is_empty() {
        let call = |c: &Call| json!({"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}});
        out["tool_calls"] = reply.calls.iter().map(call).collect();
    }
    out
}

/// The events of a streamed response.
pub(super) fn events(
    generation: Generation,
    mut writer: Writer,
) -> impl Stream<Item = Bytes> + Send + 'static {
    writer.begin();
    let first = std::mem::take(&mut writer.events);
    let rest = stream::unfold(Some((generation, writer, None)), |state| async {
        let (mut generation, mut writer, mut end): (_, Writer, Option<End>) = state?;
        match generation.next().await {
            Some(Ok(event)) => {
                event.parts.into_iter().for_each(|part| writer.part(part));
                end = event.end.or(end);
                let out = std::mem::take(&mut writer.events);
                Some((out, Some((generation, writer, end))))
            }
            Some(Err(error)) => {
                writer.failed(&error);
                Some((writer.events, None))
            }
            None => {
                writer.end(end.as_ref(), &generation.usage());
                Some((writer.events, None))
            }
        }
    });
    stream::iter(first).chain(rest.flat_map(stream::iter))
}
