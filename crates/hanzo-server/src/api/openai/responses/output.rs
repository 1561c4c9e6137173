//! A response: whole, or as the events of a stream, which are numbered.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::error::{ApiError, Dialect};
use crate::generate::{Call, End, EndReason, Event, Part, Reply, Usage, Write};
use crate::ids;
use crate::sse;
use crate::state::App;

/// The item of the output that is being written.
#[derive(Debug)]
enum Open {
    Text { kind: Kind, id: String, text: String },
    Call { id: String, call: Call },
}

/// An item that is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
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
    /// How it ended, once it has.
    end: Option<End>,
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
            end: None,
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

    fn emit(&mut self, kind: &str, mut fields: Value) {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.events.push(sse::named(kind, &fields));
    }

    /// An event about the item that is being written, which is the one after those that are complete.
    fn item_event(&mut self, kind: &str, mut fields: Value) {
        fields["output_index"] = self.output.len().into();
        self.emit(kind, fields);
    }

    /// Begins an item as it is while nothing of it is known.
    fn added(&mut self, item: Value) {
        self.item_event("response.output_item.added", json!({"item": item}));
    }

    /// Ends the item that is being written.
    fn done(&mut self, item: Value) {
        self.item_event("response.output_item.done", json!({"item": item.clone()}));
        self.output.push(item);
    }

    /// Closes the open item, if there is one.
    fn close(&mut self) {
        let (kind, id, text) = match self.open.take() {
            None => return,
            Some(Open::Call { id, call }) => return self.close_call(&id, call),
            Some(Open::Text { kind, id, text }) => (kind, id, text),
        };
        let place = |name: &str, value: Value| {
            let mut place = json!({"item_id": id, "content_index": 0});
            place[name] = value;
            place
        };
        let item = match kind {
            Kind::Reasoning => {
                self.item_event("response.reasoning_text.done", place("text", text.as_str().into()));
                reasoning(&id, &text)
            }
            Kind::Message => {
                self.item_event("response.output_text.done", place("text", text.as_str().into()));
                self.item_event("response.content_part.done", place("part", text_part(&text)));
                message(&id, &text, "completed")
            }
        };
        self.done(item);
    }

    fn close_call(&mut self, id: &str, call: Call) {
        let status = if call.input().is_some() { "completed" } else { "incomplete" };
        let whole = json!({"item_id": id, "arguments": call.arguments});
        self.item_event("response.function_call_arguments.done", whole);
        self.done(function_call(id, &call, status));
        // A conversation cannot go on from a call that was cut off.
        if call.input().is_some() {
            self.turn.calls.push(call);
        }
    }

    /// Id and text of the open item, which is of this kind from then on.
    fn opened(&mut self, wanted: Kind) -> (String, String) {
        match self.open.take() {
            Some(Open::Text { kind, id, text }) if kind == wanted => return (id, text),
            other => self.open = other,
        }
        self.close();
        let id = match wanted {
            Kind::Reasoning => ids::unique("rs_"),
            Kind::Message => ids::unique("msg_"),
        };
        match wanted {
            Kind::Reasoning => self.added(reasoning(&id, "")),
            Kind::Message => {
                let mut item = message(&id, "", "in_progress");
                item["content"] = json!([]);
                self.added(item);
                let part = json!({"item_id": id, "content_index": 0, "part": text_part("")});
                self.item_event("response.content_part.added", part);
            }
        }
        (id, String::new())
    }

    /// More text of an item of this kind.
    fn text(&mut self, kind: Kind, more: &str) {
        let (id, text) = self.opened(kind);
        let mut delta = json!({"item_id": id, "content_index": 0, "delta": more});
        let name = match kind {
            Kind::Reasoning => "response.reasoning_text.delta",
            Kind::Message => {
                delta["logprobs"] = json!([]);
                "response.output_text.delta"
            }
        };
        self.item_event(name, delta);
        self.open = Some(Open::Text { kind, id, text: text + more });
    }

    fn part(&mut self, part: Part) {
        match part {
            Part::Reasoning(more) => {
                self.text(Kind::Reasoning, &more);
                self.turn.reasoning.push_str(&more);
            }
            Part::Content(more) => {
                self.text(Kind::Message, &more);
                self.turn.content.push_str(&more);
            }
            Part::Call(call) => {
                self.close();
                let id = ids::unique("fc_");
                self.added(function_call(&id, &call, "in_progress"));
                self.open = Some(Open::Call { id, call });
            }
            Part::Arguments { text, .. } => {
                let Some(Open::Call { id, call }) = &mut self.open else { return };
                call.arguments.push_str(&text);
                let delta = json!({"item_id": id, "delta": text});
                self.item_event("response.function_call_arguments.delta", delta);
            }
        }
    }

    /// The last event; the response is kept if it is to be.
    fn finish(&mut self, end: Option<&End>, used: &Usage) -> Value {
        self.close();
        let response = self.response("completed", end, Some(used));
        let incomplete = response["status"] == "incomplete";
        let kind = if incomplete { "response.incomplete" } else { "response.completed" };
        self.emit(kind, json!({"response": response}));
        if let Some((app, said)) = &self.store {
            let conversation = said.iter().cloned().chain([turn(&self.turn)]).collect();
            let id = self.echo.get("id").and_then(Value::as_str).unwrap_or_default();
            app.responses.put(id, response.clone(), conversation);
        }
        response
    }

    /// A whole response.
    pub(super) fn whole(mut self, mut reply: Reply, used: &Usage) -> Value {
        let end = reply.end.take();
        for part in reply.into_parts() {
            self.part(part);
            self.events.clear();
        }
        self.finish(end.as_ref(), used)
    }
}

impl Write for Writer {
    fn begin(&mut self, out: &mut Vec<Bytes>) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress", None, None);
            self.emit(kind, json!({"response": response}));
        }
        out.append(&mut self.events);
    }

    fn event(&mut self, event: Event, out: &mut Vec<Bytes>) {
        event.parts.into_iter().for_each(|part| self.part(part));
        self.end = event.end.or(self.end.take());
        out.append(&mut self.events);
    }

    fn end(&mut self, used: &Usage, out: &mut Vec<Bytes>) {
        let end = self.end.take();
        self.finish(end.as_ref(), used);
        out.append(&mut self.events);
    }

    fn failed(&mut self, error: &ApiError, out: &mut Vec<Bytes>) {
        let mut response = self.response("failed", None, None);
        let told = &error.body(Dialect::OpenAi)["error"];
        let code = error.code.unwrap_or("server_error");
        response["error"] = json!({"code": code, "message": told["message"]});
        self.emit("response.failed", json!({"response": response}));
        out.append(&mut self.events);
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
