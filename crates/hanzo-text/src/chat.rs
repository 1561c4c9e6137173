//! Chat messages as OpenAI's clients send them.
//!
//! A message is kept as the JSON object that it came as, with its keys in order and unknown ones included: templates
//! print whole messages, and models were trained on the order that clients use. What is checked is what every template
//! relies on: the shapes of `role`, `content` and `tool_calls`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ChatMessage {
    fields: Map<String, Value>,
}

/// Why a JSON value is not a chat message. `pointer` is the JSON pointer of the fault inside the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: expected {expected}, found {found}")]
pub struct MessageError {
    /// JSON pointer (RFC 6901) inside the message; empty for the message itself.
    pub pointer: String,
    /// What would have been right.
    pub expected: &'static str,
    /// What was there.
    pub found: &'static str,
}

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content<'m> {
    /// `null` or no `content` at all, as in an assistant's message that only calls tools.
    None,
    /// Plain text.
    Text(&'m str),
    /// Parts: objects with a `type` (`text`, `image_url`, …).
    Parts(&'m [Value]),
}

impl ChatMessage {
    /// A message with a role and a text.
    pub fn new(role: &str, content: &str) -> Self {
        let fields = [("role", role), ("content", content)].map(|(k, v)| (k.to_owned(), Value::from(v)));
        Self { fields: fields.into_iter().collect() }
    }

    /// A system message.
    pub fn system(content: &str) -> Self {
        Self::new("system", content)
    }

    /// A user's message.
    pub fn user(content: &str) -> Self {
        Self::new("user", content)
    }

    /// An assistant's message.
    pub fn assistant(content: &str) -> Self {
        Self::new("assistant", content)
    }

    /// The same message with one more field, or another value of a field.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Checks a JSON value and takes it as a message.
    ///
    /// # Errors
    /// If it is not an object, has no `role`, or `role`, `content`, `reasoning_content`, `name`, `tool_call_id` or
    /// `tool_calls` have the wrong shape.
    pub fn from_json(json: Value) -> Result<Self, MessageError> {
        let Value::Object(fields) = json else {
            return Err(fault("", "an object", &json));
        };
        match fields.get("role") {
            Some(Value::String(_)) => {}
            Some(other) => return Err(fault("/role", "a string", other)),
            None => {
                return Err(MessageError { pointer: "/role".into(), expected: "a string", found: "nothing" });
            }
        }
        for name in ["name", "tool_call_id", "reasoning_content"] {
            match fields.get(name) {
                None | Some(Value::Null | Value::String(_)) => {}
                Some(other) => return Err(fault(&format!("/{name}"), "a string", other)),
            }
        }
        match fields.get("content") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(Value::Array(parts)) => check_objects(parts, "/content", &["type"])?,
            Some(other) => return Err(fault("/content", "a string, an array of parts or null", other)),
        }
        match fields.get("tool_calls") {
            None | Some(Value::Null) => {}
            Some(Value::Array(calls)) => check_objects(calls, "/tool_calls", &[])?,
            Some(other) => return Err(fault("/tool_calls", "an array", other)),
        }
        Ok(Self { fields })
    }

    /// Who speaks: `system`, `user`, `assistant`, `tool`, or what else a template knows.
    pub fn role(&self) -> &str {
        self.text("role").unwrap_or("")
    }

    /// What is said.
    pub fn content(&self) -> Content<'_> {
        match self.fields.get("content") {
            Some(Value::String(text)) => Content::Text(text),
            Some(Value::Array(parts)) => Content::Parts(parts),
            _ => Content::None,
        }
    }

    /// The texts of the content, joined with newlines as llama.cpp's server does; other parts are left out.
    pub fn content_text(&self) -> String {
        match self.content() {
            Content::None => String::new(),
            Content::Text(text) => text.to_owned(),
            Content::Parts(parts) => {
                let texts = parts.iter().filter_map(|p| p.get("text").and_then(Value::as_str));
                texts.collect::<Vec<_>>().join("\n")
            }
        }
    }

    /// The assistant's reasoning, if it came apart from the content.
    pub fn reasoning_content(&self) -> Option<&str> {
        self.text("reasoning_content")
    }

    /// The speaker's or the tool's name.
    pub fn name(&self) -> Option<&str> {
        self.text("name")
    }

    /// Which call a tool's message answers.
    pub fn tool_call_id(&self) -> Option<&str> {
        self.text("tool_call_id")
    }

    /// The calls that an assistant's message makes.
    pub fn tool_calls(&self) -> &[Value] {
        self.fields.get("tool_calls").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// All fields, in the order they came in.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// All fields, to change; the caller keeps the shapes that [`from_json`](Self::from_json) checks.
    pub fn fields_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.fields
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }
}

impl<'de> Deserialize<'de> for ChatMessage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_json(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

fn check_objects(items: &[Value], at: &str, strings: &[&str]) -> Result<(), MessageError> {
    for (i, item) in items.iter().enumerate() {
        let Value::Object(fields) = item else {
            return Err(fault(&format!("{at}/{i}"), "an object", item));
        };
        for name in strings {
            match fields.get(*name) {
                None | Some(Value::String(_)) => {}
                Some(other) => return Err(fault(&format!("{at}/{i}/{name}"), "a string", other)),
            }
        }
    }
    Ok(())
}

fn fault(pointer: &str, expected: &'static str, found: &Value) -> MessageError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    MessageError { pointer: pointer.to_owned(), expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keeps_unknown_fields_in_order() {
        let text = r#"{"zeta":1,"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"alpha":null}"#;
        let message: ChatMessage = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&message).unwrap(), text);
        assert_eq!((message.role(), message.content_text().as_str()), ("user", "a\nb"));
    }

    #[test]
    fn names_the_place_of_a_fault() {
        for (json, pointer) in [
            (json!([]), ""),
            (json!({"content": "x"}), "/role"),
            (json!({"role": 1}), "/role"),
            (json!({"role": "user", "content": 5}), "/content"),
            (json!({"role": "user", "content": [{"type": "text"}, "x"]}), "/content/1"),
            (json!({"role": "user", "content": [{"type": 5}]}), "/content/0/type"),
            (json!({"role": "assistant", "tool_calls": {}}), "/tool_calls"),
            (json!({"role": "assistant", "tool_calls": [1]}), "/tool_calls/0"),
            (json!({"role": "tool", "tool_call_id": 7}), "/tool_call_id"),
        ] {
            assert_eq!(ChatMessage::from_json(json.clone()).unwrap_err().pointer, pointer, "{json}");
        }
    }
}
