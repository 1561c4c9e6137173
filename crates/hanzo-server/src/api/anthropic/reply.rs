//! A reply as blocks: whole, or as the events of a stream.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};

use crate::error::{ApiError, Dialect};
use crate::generate::{Call, End, EndReason, Event, Generation, Part, Reply, Usage};
use crate::model::LoadedModel;
use crate::sse;

/// How the reply is written.
#[derive(Debug)]
pub(super) struct Manner {
    pub(super) id: String,
    pub(super) model: Arc<LoadedModel>,
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

/// The arguments are an object: the parser made them so.
fn input(call: &Call) -> Value {
    serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}))
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
    content.extend(
        reply
            .calls
            .iter()
            .map(|c| json!({"type": "tool_use", "id": c.id, "name": c.name, "input": input(c)})),
    );
    manner.message(content, reply.end.as_ref(), usage(used))
}

/// The block that is open in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    None,
    Thinking,
    Text,
}

#[derive(Debug)]
struct Writer {
    open: Open,
    /// Index of the open block, or of the next.
    index: usize,
    out: Vec<Bytes>,
}

impl Writer {
    fn event(&mut self, name: &str, mut fields: Value) {
        fields["type"] = name.into();
        self.out.push(sse::named(name, &fields));
    }

    fn start(&mut self, block: Value) {
        let index = self.index;
        self.event("content_block_start", json!({"index": index, "content_block": block}));
    }

    fn delta(&mut self, delta: Value) {
        let index = self.index;
        self.event("content_block_delta", json!({"index": index, "delta": delta}));
    }

    fn stop(&mut self) {
        let index = self.index;
        self.event("content_block_stop", json!({"index": index}));
        self.index += 1;
        self.open = Open::None;
    }

    /// Closes whatever is open but `wanted`, and opens that.
    fn switch(&mut self, wanted: Open) {
        if self.open == wanted {
            return;
        }
        if self.open != Open::None {
            self.stop();
        }
        match wanted {
            Open::None => {}
            Open::Thinking => self.start(json!({"type": "thinking", "thinking": "", "signature": ""})),
            Open::Text => self.start(json!({"type": "text", "text": ""})),
        }
        self.open = wanted;
    }

    fn part(&mut self, part: Part) {
        match part {
            Part::Reasoning(text) => {
                self.switch(Open::Thinking);
                self.delta(json!({"type": "thinking_delta", "thinking": text}));
            }
            Part::Content(text) => {
                self.switch(Open::Text);
                self.delta(json!({"type": "text_delta", "text": text}));
            }
            Part::Call(call) => {
                self.switch(Open::None);
                self.start(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}));
                self.delta(json!({"type": "input_json_delta", "partial_json": call.arguments}));
                self.stop();
            }
        }
    }

    fn write(&mut self, event: Event) {
        event.parts.into_iter().for_each(|part| self.part(part));
    }

    fn end(&mut self, end: Option<&End>, used: &Usage) {
        self.switch(Open::None);
        let delta = json!({
            "stop_reason": end.map(stop_reason),
            "stop_sequence": end.and_then(|e| e.stop.as_deref()),
        });
        self.event("message_delta", json!({"delta": delta, "usage": usage(used)}));
        self.event("message_stop", json!({}));
    }

    fn failed(&mut self, error: &ApiError) {
        self.out.push(sse::named("error", &error.body(Dialect::Anthropic)));
    }
}

/// The events of a streamed reply.
pub(super) fn events(generation: Generation, manner: Manner) -> impl Stream<Item = Bytes> + Send + 'static {
    let message = manner.message(Vec::new(), None, usage(&Usage::default()));
    let start = sse::named("message_start", &json!({"type": "message_start", "message": message}));
    let writer = Writer { open: Open::None, index: 0, out: Vec::new() };
    let rest = stream::unfold(Some((generation, writer, None)), |state| async {
        let (mut generation, mut writer, mut end): (_, Writer, Option<End>) = state?;
        match generation.next().await {
            Some(Ok(mut event)) => {
                end = event.end.take().or(end);
                writer.write(event);
                let out = std::mem::take(&mut writer.out);
                Some((out, Some((generation, writer, end))))
            }
            Some(Err(error)) => {
                writer.failed(&error);
                Some((writer.out, None))
            }
            None => {
                writer.end(end.as_ref(), &generation.usage());
                Some((writer.out, None))
            }
        }
    });
    stream::once(async { start }).chain(rest.flat_map(stream::iter))
}
