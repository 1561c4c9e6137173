//! What a reply consists of, in the terms that all dialects share.

use hanzo_engine::{Finish, Token};
use serde_json::{Map, Value};

/// A part of a reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// More reasoning.
    Reasoning(String),
    /// More content.
    Content(String),
    /// A call of a tool begins: it has no arguments as yet.
    Call(Call),
    /// More of the arguments of the call that began last, which has this place among the calls of the reply.
    Arguments { call: usize, text: String },
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    /// Its place among the calls of the reply.
    pub(crate) index: usize,
    pub(crate) id: String,
    pub(crate) name: String,
    /// A JSON object, as text; a part of one where the reply's end cut it off.
    pub(crate) arguments: String,
}

impl Call {
    /// The arguments as JSON; `None` if they were cut off.
    pub(crate) fn input(&self) -> Option<Map<String, Value>> {
        serde_json::from_str(&self.arguments).ok()
    }
}

/// What a client is told of calls that its dialect leaves out, since they broke off; `None` where all are whole.
pub(crate) fn left_out(calls: &[Call]) -> Option<String> {
    let broken: Vec<_> = calls.iter().filter(|c| c.input().is_none()).map(|c| c.name.as_str()).collect();
    (!broken.is_empty()).then(|| format!("calls that broke off are left out: {}", broken.join(", ")))
}

/// What a step brought for one choice.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) choice: usize,
    /// What became certain with it: often nothing, or one part.
    pub(crate) parts: Vec<Part>,
    pub(crate) token: Option<Token>,
    /// The last event of a choice has it.
    pub(crate) end: Option<End>,
}

impl Event {
    /// The text of all its parts, for those to whom reasoning is text like any other.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            if let Part::Content(text) | Part::Reasoning(text) = part {
                out.push_str(text);
            }
        }
        out
    }
}

/// How a choice ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) reason: EndReason,
    /// The stop string that ended it, if one did.
    pub(crate) stop: Option<String>,
    pub(crate) finish: Finish,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The model ended it, or a stop string.
    Stop,
    /// `max_tokens`, or the context is full.
    Length,
    /// The model ended it with calls of tools.
    Calls,
}

/// Tokens that a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of the prompt.
    pub(crate) prompt: usize,
    /// Of these, found in the prefix cache.
    pub(crate) cached: usize,
    /// Of all choices.
    pub(crate) completion: usize,
    /// Of these, reasoning: tokens that came while nothing else had.
    pub(crate) reasoning: usize,
    /// Guesses of speculation that were right, and wrong.
    pub(crate) accepted: usize,
    pub(crate) rejected: usize,
}

impl Usage {
    /// Takes what another request took.
    pub(crate) fn add(&mut self, other: &Self) {
        self.prompt += other.prompt;
        self.cached += other.cached;
        self.completion += other.completion;
        self.reasoning += other.reasoning;
        self.accepted += other.accepted;
        self.rejected += other.rejected;
    }
}

/// A complete choice.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) end: Option<End>,
}

impl Reply {
    /// Takes what another step brought.
    pub(super) fn push(&mut self, event: Event) {
        for part in event.parts {
            match part {
                Part::Reasoning(text) => self.reasoning.push_str(&text),
                Part::Content(text) => self.content.push_str(&text),
                Part::Call(call) => self.calls.push(call),
                Part::Arguments { text, .. } => {
                    if let Some(call) = self.calls.last_mut() {
                        call.arguments.push_str(&text);
                    }
                }
            }
        }
        self.tokens.extend(event.token);
        self.end = event.end.or(self.end.take());
    }

    /// What it consists of, in order, as if it came at once.
    pub(crate) fn into_parts(self) -> Vec<Part> {
        let mut parts = Vec::new();
        if !self.reasoning.is_empty() {
            parts.push(Part::Reasoning(self.reasoning));
        }
        if !self.content.is_empty() {
            parts.push(Part::Content(self.content));
        }
        for mut call in self.calls {
            let text = std::mem::take(&mut call.arguments);
            let arguments = Part::Arguments { call: call.index, text };
            parts.extend([Part::Call(call), arguments]);
        }
        parts
    }
}
