//! Chat templates: the Jinja programs in model files that turn a conversation into the text a model was trained on.
//!
//! A rendering is byte for byte that of Hugging Face transformers (Python's Jinja2 in its immutable sandbox, with
//! `trim_blocks`, `lstrip_blocks`, loop controls, `tojson` without HTML escapes, `raise_exception` and
//! `strftime_now`), and fails where that fails. The engine is our own ([`jinja`]) because templates are
//! hostile input and prompts are exact.
//!
//! [`ChatTemplate::render`] gives the template exactly what it is given. What OpenAI's clients send does not always suit
//! a template (arguments as strings, content in parts, a system message for a model that has none);
//! [`ChatTemplate::render_adapted`] first brings it into the form that the template was found to understand
//! ([`Capabilities`]) and says what it changed.

mod adapt;
mod capabilities;
mod datetime;
mod error;
mod jinja;

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value as Json};

use crate::chat::ChatMessage;
pub use adapt::{Adaptation, Adapted};
pub use capabilities::Capabilities;
pub use datetime::DateTime;
pub use error::{TemplateError, TemplateErrorKind, TemplateResult};
use jinja::ast::{Name, Stmt};
use jinja::budget::Budget;
use jinja::eval::Evaluator;
use jinja::value::Value;

/// A compiled chat template. Cheap to share; rendering needs no lock.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    program: Vec<Stmt>,
    bos: String,
    eos: String,
    capabilities: OnceLock<Capabilities>,
}

/// What a template is rendered with.
#[derive(Debug, Clone, Default)]
pub struct RenderRequest<'r> {
    /// The conversation.
    pub messages: &'r [ChatMessage],
    /// Tools as JSON schemas, in the form that the client sent (`{"type": "function", "function": {…}}`).
    pub tools: Option<&'r [Json]>,
    /// Whether the text ends with the beginning of the assistant's reply.
    pub add_generation_prompt: bool,
    /// Further variables (`enable_thinking`, `reasoning_effort`, `documents`, …).
    pub kwargs: Option<&'r Map<String, Json>>,
    /// What `strftime_now` takes for the present; the clock (UTC) if `None`.
    pub now: Option<DateTime>,
}

/// Names that `kwargs` may not use.
const RESERVED: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of the special tokens that templates name `bos_token` and
    /// `eos_token`.
    ///
    /// # Errors
    /// [`TemplateErrorKind::Missing`] for an empty source; `Syntax`, `Unsupported` or `Limit` with a line otherwise.
    pub fn compile(source: &str, bos: &str, eos: &str) -> TemplateResult<Self> {
        if source.trim().is_empty() {
            let message = "the model has no chat template; give one, or use plain completion";
            return Err(TemplateError::new(TemplateErrorKind::Missing, message));
        }
        let program = jinja::compile(source)?;
        Ok(Self {
            source: source.to_owned(),
            program,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            capabilities: OnceLock::new(),
        })
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation exactly as it is given.
    ///
    /// # Errors
    /// What the template does wrong, with its line; `Raised` with the template's own words if it refuses; `Limit` if it
    /// takes more steps or memory than a request of this size warrants.
    pub fn render(&self, request: &RenderRequest<'_>) -> TemplateResult<String> {
        let messages: TemplateResult<Vec<Value>> =
            request.messages.iter().map(|m| Value::from_json_map(m.fields())).collect();
        let tools = match request.tools {
            Some(tools) => Value::list(tools.iter().map(Value::from_json).collect::<TemplateResult<_>>()?)?,
            None => Value::None,
        };
        let mut vars: Vec<(Name, Value)> = vec![
            (Arc::from("messages"), Value::list(messages?)?),
            (Arc::from("tools"), tools),
            (Arc::from("documents"), Value::None),
            (Arc::from("add_generation_prompt"), Value::Bool(request.add_generation_prompt)),
            (Arc::from("bos_token"), Value::str(self.bos.as_str())),
            (Arc::from("eos_token"), Value::str(self.eos.as_str())),
        ];
        for (name, value) in request.kwargs.into_iter().flatten() {
            if RESERVED.contains(&name.as_str()) {
                let message = format!("the template variable `{name}` is set by the request itself");
                return Err(TemplateError::new(TemplateErrorKind::Request, message));
            }
            let value = Value::from_json(value)?;
            match vars.iter_mut().find(|(known, _)| **known == **name) {
                Some((_, slot)) => *slot = value,
                None => vars.push((Arc::from(name.as_str()), value)),
            }
        }
        let items = request.messages.len() + request.tools.map_or(0, <[Json]>::len);
        let budget = Budget::for_request(request.size(), items);
        Evaluator::new(budget, request.now.unwrap_or_else(DateTime::now), vars).render(&self.program)
    }

    /// What the template understands, found out once by rendering small conversations with it.
    pub fn capabilities(&self) -> &Capabilities {
        self.capabilities.get_or_init(|| Capabilities::probe(self))
    }
}

impl RenderRequest<'_> {
    /// Roughly the bytes of the request: what the budget of a rendering grows with.
    fn size(&self) -> usize {
        let messages = self.messages.iter().map(|m| map_size(m.fields())).sum::<usize>();
        let tools = self.tools.into_iter().flatten().map(json_size).sum::<usize>();
        messages + tools + self.kwargs.map_or(0, map_size)
    }
}

fn map_size(map: &Map<String, Json>) -> usize {
    map.iter().map(|(key, value)| key.len() + json_size(value)).sum()
}

fn json_size(json: &Json) -> usize {
    match json {
        Json::String(s) => s.len(),
        Json::Array(items) => items.iter().map(|item| 2 + json_size(item)).sum(),
        Json::Object(map) => map_size(map),
        _ => 4,
    }
}
