//! A reply as blocks: whole, or as the events of a stream.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::error::{ApiError, Dialect};
use crate::generate::{Call, End, EndReason, Event, Part, Reply, Usage, Write};
use crate::model::LoadedModel;
use crate::sse;

/// How the reply is written.
#[derive(Debug)]
pub(super) struct Manner {
    pub(super) id: String,
    pub(super) model: Arc<LoadedModel>,
    /// Tokens of the prompt.
    pub(super) prompt: usize,
}

fn stop_reason(end: &End) -> &'static str {
    match (end.reason, &end.stop) {
        (EndReason::Length, _) => "max_tokens",
        (EndReason::Calls, _) => "tool_use",
        (EndReason::Stop, Some(_)) => "stop_sequence",
        (EndReason::Stop, None) => "end_turn",
    }
}

/// Tokens as Anthropic counts them: what came from the cache is counted apart.
fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt.saturating_sub(usage.cached),
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion,
    })
}

impl Manner {
    fn message(&self, content: Vec<Value>, end: Option<&End>, usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model.name,
            "content": content,
            "stop_reason": end.map(stop_reason),
            "stop_sequence": end.and_then(|e| e.stop.as_deref()),
            "usage": usage,
        })
    }
}

/// A whole reply.
pub(super) fn whole(reply: &Reply, used: &Usage, manner: &Manner) -> Value {
    let mut content = Vec::new();
    if !reply.reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": reply.reasoning, "signature": ""}));
    }
    if !reply.content.is_empty() {
        content.push(json!({"type": "text", "text": reply.content}));
    }
    // One that was cut off has no input to tell.
    let call = |c: &Call| Some(json!({"type": "tool_use", "id": c.id, "name": c.name, "input": c.input()?}));
    content.extend(reply.calls.iter().filter_map(call));
    manner.message(content, reply.end.as_ref(), usage(used))
}

/// The block that is open in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    None,
    Thinking,
    Text,
    Call,
}

/// Writes the events of a streamed reply.
#[derive(Debug)]
pub(super) struct Writer {
    manner: Manner,
    open: Open,
    /// Index of the open block, or of the next.
    index: usize,
    end: Option<End>,
}

fn event(name: &str, mut fields: Value) -> Bytes {
    fields["type"] = name.into();
    sse::named(name, &fields)
}

impl Writer {
    pub(super) fn new(manner: Manner) -> Self {
        Self { manner, open: Open::None, index: 0, end: None }
    }

    fn start(&self, block: Value) -> Bytes {
        event("content_block_start", json!({"index": self.index, "content_block": block}))
    }

    fn delta(&self, delta: Value) -> Bytes {
        event("content_block_delta", json!({"index": self.index, "delta": delta}))
    }

    fn stop(&mut self) -> Bytes {
        let stop = event("content_block_stop", json!({"index": self.index}));
        self.index += 1;
        self.open = Open::None;
        stop
    }

    /// Closes whatever is open but `wanted`, and opens that.
    fn switch(&mut self, wanted: Open, out: &mut Vec<Bytes>) {
        if self.open == wanted {
            return;
        }
        if self.open != Open::None {
            out.push(self.stop());
        }
        match wanted {
            // A call's block says whom it calls.
            Open::None | Open::Call => {}
            Open::Thinking => {
                out.push(self.start(json!({"type": "thinking", "thinking": "", "signature": ""})));
            }
            Open::Text => out.push(self.start(json!({"type": "text", "text": ""}))),
        }
        self.open = wanted;
    }

    fn part(&mut self, part: Part, out: &mut Vec<Bytes>) {
        match part {
            Part::Reasoning(text) => {
                self.switch(Open::Thinking, out);
                out.push(self.delta(json!({"type": "thinking_delta", "thinking": text})));
            }
            Part::Content(text) => {
                self.switch(Open::Text, out);
                out.push(self.delta(json!({"type": "text_delta", "text": text})));
            }
            Part::Call(call) => {
                self.switch(Open::None, out);
                let block = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
                out.push(self.start(block));
                self.open = Open::Call;
            }
            Part::Arguments { text, .. } => {
                out.push(self.delta(json!({"type": "input_json_delta", "partial_json": text})));
            }
        }
    }
}

impl Write for Writer {
    fn begin(&mut self, out: &mut Vec<Bytes>) {
        // How many of them are cached is known when it has run.
        let used = Usage { prompt: self.manner.prompt, ..Usage::default() };
        let message = self.manner.message(Vec::new(), None, usage(&used));
        out.push(event("message_start", json!({"message": message})));
    }

    fn event(&mut self, event: Event, out: &mut Vec<Bytes>) {
        event.parts.into_iter().for_each(|part| self.part(part, out));
        self.end = event.end.or(self.end.take());
    }

    fn end(&mut self, used: &Usage, out: &mut Vec<Bytes>) {
        self.switch(Open::None, out);
        let end = self.end.as_ref();
        let delta = json!({
            "stop_reason": end.map(stop_reason),
            "stop_sequence": end.and_then(|e| e.stop.as_deref()),
        });
        out.push(event("message_delta", json!({"delta": delta, "usage": usage(used)})));
        out.push(event("message_stop", json!({})));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Vec<Bytes>) {
        out.push(sse::named("error", &error.body(Dialect::Anthropic)));
    }
}
