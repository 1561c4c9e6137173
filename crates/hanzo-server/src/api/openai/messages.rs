//! The conversation of a request: each message checked on its own, then the order of calls and their answers.

use std::collections::HashSet;

use hanzo_text::chat::{ChatMessage, Content};
use serde_json::Value;

use crate::error::ApiError;

const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// Checks messages and takes them over. A `developer` becomes a `system`, which is what templates know.
///
/// # Errors
/// The first fault, with its pointer.
pub(crate) fn check(messages: Vec<Value>) -> Result<Vec<ChatMessage>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::at("/messages", "there are no messages; send at least one"));
    }
    // Calls that were made and may be answered.
    let mut called = HashSet::new();
    let mut out = Vec::with_capacity(messages.len());
    for (i, message) in messages.into_iter().enumerate() {
        let at = format!("/messages/{i}");
        let mut message = ChatMessage::from_json(message).map_err(|e| {
            ApiError::at(format!("{at}{}", e.pointer), format!("expected {}, found {}", e.expected, e.found))
        })?;
        if !ROLES.contains(&message.role()) {
            let role: String = message.role().chars().take(40).collect();
            let message = format!("there is no role `{role}`; there are {}", ROLES.join(", "));
            return Err(ApiError::at(format!("{at}/role"), message));
        }
        content(&message, &at)?;
        match message.role() {
            "assistant" => calls(&message, &at, &mut called)?,
            "tool" => answer(&message, &at, &called)?,
            "developer" => {
                message.fields_mut().insert("role".to_owned(), "system".into());
            }
            _ => {}
        }
        out.push(message);
    }
    Ok(out)
}

/// Content must be there and be text.
fn content(message: &ChatMessage, at: &str) -> Result<(), ApiError> {
    match message.content() {
        Content::Text(_) => Ok(()),
        // Nothing said is right only beside calls.
        Content::None if message.role() == "assistant" && !message.tool_calls().is_empty() => Ok(()),
        Content::None if message.role() == "assistant" && message.reasoning_content().is_some() => Ok(()),
        Content::None => Err(ApiError::at(format!("{at}/content"), "a message needs content")),
        Content::Parts(parts) => {
            for (i, part) in parts.iter().enumerate() {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or("missing");
                let text = match kind {
                    "text" => part.get("text"),
                    "refusal" => part.get("refusal"),
                    _ => {
                        let kind: String = kind.chars().take(40).collect();
                        let message =
                            format!("content of type `{kind}` cannot be read: this server takes text only");
                        return Err(ApiError::at(format!("{at}/content/{i}/type"), message));
                    }
                };
                if !text.is_some_and(Value::is_string) {
                    return Err(ApiError::at(format!("{at}/content/{i}/{kind}"), "expected a string"));
                }
            }
            Ok(())
        }
    }
}

/// Calls need an id, a name, and arguments that are a JSON object (as text or as it is).
fn calls(message: &ChatMessage, at: &str, called: &mut HashSet<String>) -> Result<(), ApiError> {
    for (i, call) in message.tool_calls().iter().enumerate() {
        let at = format!("{at}/tool_calls/{i}");
        let id = call.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| ApiError::at(format!("{at}/id"), "a call needs an id, a string"))?;
        let function = call.get("function").unwrap_or(call);
        if function.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(ApiError::at(format!("{at}/function/name"), "a call needs the name of a function"));
        }
        let place = || format!("{at}/function/arguments");
        match function.get("arguments") {
            None | Some(Value::Object(_)) => {}
            Some(Value::String(text)) if text.trim().is_empty() => {}
            Some(Value::String(text)) => match serde_json::from_str(text) {
                Ok(Value::Object(_)) => {}
                Ok(_) => return Err(ApiError::at(place(), "the arguments are not a JSON object")),
                Err(e) => return Err(ApiError::at(place(), format!("the arguments are not JSON: {e}"))),
            },
            Some(_) => return Err(ApiError::at(place(), "expected a JSON object as a string")),
        }
        called.insert(id.to_owned());
    }
    Ok(())
}

/// An answer names a call that was made before it.
fn answer(message: &ChatMessage, at: &str, called: &HashSet<String>) -> Result<(), ApiError> {
    let place = format!("{at}/tool_call_id");
    match message.tool_call_id() {
        None => Err(ApiError::at(place, "a tool's message needs the id of the call that it answers")),
        Some(id) if !called.contains(id) => {
            Err(ApiError::at(place, "no message before this one makes a call with this id"))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(id: &str, arguments: Value) -> Value {
        json!({"role": "assistant", "content": null, "tool_calls":
            [{"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}]})
    }

    fn fault(messages: Value) -> String {
        let Value::Array(messages) = messages else { panic!("an array") };
        check(messages).unwrap_err().pointer.unwrap()
    }

    #[test]
    fn a_whole_conversation_is_taken() {
        let messages = json!([
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": "hi"},
            call("a", json!("{\"x\": 1}")),
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "assistant", "content": "one"},
        ]);
        let Value::Array(messages) = messages else { panic!("an array") };
        let checked = check(messages).unwrap();
        assert_eq!(checked[0].role(), "system");
        assert_eq!(checked.len(), 5);
    }

    #[test]
    fn faults_have_pointers() {
        let user = || json!({"role": "user", "content": "hi"});
        for (messages, pointer) in [
            (json!([]), "/messages"),
            (json!(["x"]), "/messages/0"),
            (json!([{"role": "wizard", "content": "x"}]), "/messages/0/role"),
            (json!([{"role": "user"}]), "/messages/0/content"),
            (json!([user(), {"role": "assistant"}]), "/messages/1/content"),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]),
                "/messages/0/content/0/type",
            ),
            (json!([{"role": "user", "content": [{"type": "text"}]}]), "/messages/0/content/0/text"),
            (json!([user(), call("a", json!("{"))]), "/messages/1/tool_calls/0/function/arguments"),
            (json!([user(), call("a", json!("[]"))]), "/messages/1/tool_calls/0/function/arguments"),
            (json!([user(), call("", json!("{}"))]), "/messages/1/tool_calls/0/id"),
            (json!([user(), {"role": "tool", "content": "1"}]), "/messages/1/tool_call_id"),
            (
                json!([user(), {"role": "tool", "content": "1", "tool_call_id": "a"}, call("a", json!("{}"))]),
                "/messages/1/tool_call_id",
            ),
        ] {
            assert_eq!(fault(messages.clone()), pointer, "{messages}");
        }
    }
}
