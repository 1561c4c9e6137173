//! What a template understands, found out by rendering small conversations and looking for their words.
//!
//! Nothing in a template declares what it can take; reading its source for words guesses wrongly as often as not. A
//! rendering that fails or loses a word is an answer.

use serde_json::{Map, Value as Json, json};

use super::{ChatTemplate, DateTime, RenderRequest};
use crate::chat::ChatMessage;

/// What a template was found to understand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// A system message is rendered.
    pub system_role: bool,
    /// Content as a plain string is rendered.
    pub string_content: bool,
    /// Content as a list of parts is rendered (as its text, not as a printed list).
    pub parts_content: bool,
    /// Tools are rendered.
    pub tools: bool,
    /// The template fails without tools, but takes an empty list of them.
    pub needs_tools: bool,
    /// An assistant's tool calls are rendered.
    pub tool_calls: bool,
    /// More than one call in a message is rendered.
    pub parallel_tool_calls: bool,
    /// A tool's message is rendered.
    pub tool_role: bool,
    /// Arguments of calls may be JSON objects.
    pub object_arguments: bool,
    /// Arguments of calls may be strings of JSON.
    pub string_arguments: bool,
    /// An assistant's `reasoning_content` is rendered, at least in the turn that is being answered.
    pub reasoning_content: bool,
    /// `enable_thinking` (or `thinking`) changes the prompt.
    pub thinking_switch: bool,
    /// The prompt opens the reply's reasoning itself: what the model writes begins inside it.
    pub opens_reasoning: bool,
}

const SYSTEM: &str = "zqSystemWordqz";
const USER: &str = "zqUserWordqz";
const REASON: &str = "zqReasonWordqz";
const TOOL: &str = "zq_tool_name";
/// Called, but not declared: what shows them is the call.
const CALLED: &str = "zq_called_tool";
const SECOND: &str = "zq_second_tool";
const RESULT: &str = "zqToolResultqz";
/// Not among the parameters that the probe's tools declare, so that it can only come from a call.
const ARGUMENT: &str = "zq_argument";
const VALUE: &str = "zqValueqz";

fn tool(name: &str) -> Json {
    json!({"type": "function", "function": {
        "name": name,
        "description": "probe",
        "parameters": {"type": "object", "properties": {"key": {"type": "string", "description": "probe"}},
            "required": ["key"]},
    }})
}

fn call(name: &str, id: &str, arguments: Json) -> Json {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

impl Capabilities {
    pub(super) fn probe(template: &ChatTemplate) -> Self {
        let mut probe = Probe { template, no_tools: None };
        let hello = [ChatMessage::user(USER)];
        let needs_tools = probe.text(&hello, None, &Map::new()).is_none()
            && probe.text(&hello, Some(&[]), &Map::new()).is_some();
        if needs_tools {
            probe.no_tools = Some(&[]);
        }
        let system_role = probe.says(&[ChatMessage::system(SYSTEM), ChatMessage::user(USER)], SYSTEM);
        let string_content = probe.says(&[ChatMessage::user(USER)], USER);
        let parts = ChatMessage::user("").with("content", json!([{"type": "text", "text": USER}]));
        let parts_content =
            probe.text(&[parts], None, &Map::new()).is_some_and(|t| t.contains(USER) && !prints_parts(&t));
        let tools = probe
            .text(&[ChatMessage::user(USER)], Some(&[tool(TOOL)]), &Map::new())
            .is_some_and(|t| t.contains(TOOL));
        let with_object = probe.calls(&[call(CALLED, "call00001", json!({ARGUMENT: VALUE}))]);
        let with_string =
            probe.calls(&[call(CALLED, "call00001", json!(json!({ARGUMENT: VALUE}).to_string()))]);
        let object_arguments = with_object.as_deref().is_some_and(shows_object);
        let string_arguments = with_string.as_deref().is_some_and(shows_object);
        let arguments = |value: Json| if object_arguments { value } else { json!(value.to_string()) };
        let two = [CALLED, SECOND].map(|name| call(name, "call00001", arguments(json!({ARGUMENT: VALUE}))));
        let two = probe.calls(&two);
        let tool_calls =
            [&with_object, &with_string].iter().any(|t| t.as_deref().is_some_and(|t| t.contains(CALLED)));
        let tool_role =
            [&with_object, &with_string].iter().any(|t| t.as_deref().is_some_and(|t| t.contains(RESULT)));
        Self {
            system_role,
            string_content,
            parts_content,
            tools,
            needs_tools,
            tool_calls,
            parallel_tool_calls: two.is_some_and(|t| t.contains(CALLED) && t.contains(SECOND)),
            tool_role,
            object_arguments,
            string_arguments,
            reasoning_content: probe.reasoning(arguments(json!({ARGUMENT: VALUE}))),
            thinking_switch: probe.thinking_switch(),
            opens_reasoning: probe.opens_reasoning(),
        }
    }
}

/// Whether a list of parts was printed instead of the text in it.
fn prints_parts(text: &str) -> bool {
    text.contains("'type'") || text.contains("\"type\"")
}

/// Whether the arguments came out as data: not as a string inside a string, and not as Python prints a dict (which is
/// what a template for strings does with an object).
fn shows_object(text: &str) -> bool {
    text.contains(VALUE)
        && !text.contains(&format!("\\\"{ARGUMENT}"))
        && !text.contains(&format!("{{'{ARGUMENT}'"))
}

struct Probe<'t> {
    template: &'t ChatTemplate,
    /// What stands for no tools.
    no_tools: Option<&'t [Json]>,
}

impl Probe<'_> {
    fn text(
        &self,
        messages: &[ChatMessage],
        tools: Option<&[Json]>,
        kwargs: &Map<String, Json>,
    ) -> Option<String> {
        let request = RenderRequest {
            messages,
            tools: tools.or(self.no_tools),
            add_generation_prompt: true,
            kwargs: Some(kwargs),
            now: Some(DateTime::from_unix(0, 0)),
        };
        self.template.render(&request).ok()
    }

    fn says(&self, messages: &[ChatMessage], word: &str) -> bool {
        self.text(messages, None, &Map::new()).is_some_and(|t| t.contains(word))
    }

    /// A conversation in which the assistant calls tools and they answer.
    fn calls(&self, calls: &[Json]) -> Option<String> {
        let messages = self.calling(calls, None);
        self.text(&messages, Some(&[tool(TOOL)]), &Map::new())
            .or_else(|| self.text(&messages, None, &Map::new()))
    }

    fn calling(&self, calls: &[Json], reasoning: Option<&str>) -> Vec<ChatMessage> {
        let mut assistant = ChatMessage::assistant("").with("tool_calls", calls.to_vec());
        if let Some(reasoning) = reasoning {
            assistant = assistant.with("reasoning_content", reasoning);
        }
        let answer = ChatMessage::new("tool", RESULT).with("tool_call_id", "call00001").with("name", CALLED);
        vec![ChatMessage::user(USER), assistant, answer]
    }

    fn reasoning(&self, arguments: Json) -> bool {
        let plain = [
            ChatMessage::user(USER),
            ChatMessage::assistant("ok").with("reasoning_content", REASON),
            ChatMessage::user(USER),
        ];
        let calling = self.calling(&[call(CALLED, "call00001", arguments)], Some(REASON));
        self.says(&plain, REASON)
            || self.text(&calling, Some(&[tool(TOOL)]), &Map::new()).is_some_and(|t| t.contains(REASON))
    }

    fn thinking_switch(&self) -> bool {
        let with = |name: &str, on: bool| {
            let kwargs = [(name.to_owned(), Json::Bool(on))].into_iter().collect();
            self.text(&[ChatMessage::user(USER)], None, &kwargs)
        };
        ["enable_thinking", "thinking"].iter().any(|name| with(name, true) != with(name, false))
    }

    fn opens_reasoning(&self) -> bool {
        let Some(text) = self.text(&[ChatMessage::user(USER)], None, &Map::new()) else { return false };
        let text = text.trim_end();
        ["<think>", "<|START_THINKING|>", "[THINK]", "<seed:think>"].iter().any(|tag| text.ends_with(tag))
    }
}
