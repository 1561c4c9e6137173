//! `input` as a conversation: a text, or items of several kinds.

use serde_json::{Value, json};

use crate::error::ApiError;

/// The messages in the form that chat completions have. One message an item, except that calls and reasoning go with the
/// assistant's message beside them.
///
/// # Errors
/// The first item that is not understood, with its pointer.
pub(super) fn messages(input: &Value) -> Result<Vec<Value>, ApiError> {
    let items = match input {
        Value::String(text) => return Ok(vec![json!({"role": "user", "content": text})]),
        Value::Array(items) if !items.is_empty() => items,
        Value::Array(_) => return Err(ApiError::at("/input", "there is no input; send at least one item")),
        _ => return Err(ApiError::at("/input", "expected a string or an array of items")),
    };
    let mut out: Vec<Value> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let at = format!("/input/{i}");
        match item["type"].as_str().unwrap_or("message") {
            "message" => {
                let content = content(&item["content"], &at)?;
                match out.last_mut() {
                    // What was reasoned just before is the same turn's.
                    Some(last) if item["role"] == "assistant" && last["content"] == "" && is_turn(last) => {
                        last["content"] = content.into();
                    }
                    _ => out.push(json!({"role": item["role"], "content": content})),
                }
            }
            "function_call" => {
                let function = json!({"name": item["name"], "arguments": item["arguments"]});
                let call = json!({"id": item["call_id"], "type": "function", "function": function});
                let turn = turn(&mut out);
                match turn.get_mut("tool_calls").and_then(Value::as_array_mut) {
                    Some(calls) => calls.push(call),
                    None => turn["tool_calls"] = json!([call]),
                }
            }
            "function_call_output" => {
                let text = match &item["output"] {
                    Value::String(text) => text.clone(),
                    parts @ Value::Array(_) => content(parts, &at)?,
                    _ => return Err(ApiError::at(format!("{at}/output"), "expected a string")),
                };
                out.push(json!({"role": "tool", "tool_call_id": item["call_id"], "content": text}));
            }
            "reasoning" => {
                let texts = item["content"].as_array().into_iter().flatten();
                let text: String = texts.filter_map(|part| part["text"].as_str()).collect();
                if !text.is_empty() {
                    out.push(json!({"role": "assistant", "content": "", "reasoning_content": text}));
                }
            }
            kind => {
                let kind: String = kind.chars().take(40).collect();
                let message = format!(
                    "items of type `{kind}` are not understood; there are message, function_call, function_call_output and reasoning"
                );
                return Err(ApiError::at(format!("{at}/type"), message));
            }
        }
    }
    Ok(out)
}

fn is_turn(message: &Value) -> bool {
    message["role"] == "assistant"
}

/// The assistant's message that is being put together.
fn turn(out: &mut Vec<Value>) -> &mut Value {
    if !out.last().is_some_and(is_turn) {
        out.push(json!({"role": "assistant", "content": ""}));
    }
    let last = out.len() - 1;
    &mut out[last]
}

/// The text of an item's content.
fn content(content: &Value, at: &str) -> Result<String, ApiError> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return Err(ApiError::at(format!("{at}/content"), "expected a string or an array of parts")),
    };
    let part = |(j, part): (usize, &Value)| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("input_text" | "output_text" | "text"), Some(text)) => Ok(text.to_owned()),
        (Some("refusal"), _) => Ok(part["refusal"].as_str().unwrap_or_default().to_owned()),
        (kind, _) => {
            let kind: String = kind.unwrap_or("missing").chars().take(40).collect();
            let message = format!("content of type `{kind}` cannot be read: this server takes text only");
            Err(ApiError::at(format!("{at}/content/{j}"), message))
        }
    };
    Ok(parts.iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// Puts the place of the input into an error about messages, of which `first` come before the input's own.
pub(super) fn restore(mut error: ApiError, first: usize) -> ApiError {
    let at = error.pointer.as_deref().and_then(|p| p.strip_prefix("/messages/"));
    let index = at.and_then(|at| at.split('/').next()?.parse::<usize>().ok());
    error.pointer = Some(match index.and_then(|i| i.checked_sub(first)) {
        Some(i) => format!("/input/{i}"),
        None => "/input".to_owned(),
    });
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages() {
        let input = json!([
            {"role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "time", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {"type": "function_call_output", "call_id": "c2", "output": "noon"},
        ]);
        let out = messages(&input).unwrap();
        let roles: Vec<_> = out.iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "tool"]);
        assert_eq!(out[1]["content"], "I look.");
        assert_eq!(out[1]["reasoning_content"], "hm");
        assert_eq!(out[1]["tool_calls"].as_array().unwrap().len(), 2);
        super::super::super::messages::check(out).unwrap();
    }

    #[test]
    fn faults_have_places() {
        for (input, pointer) in [
            (json!(1), "/input"),
            (json!([]), "/input"),
            (json!([{"type": "item_reference", "id": "x"}]), "/input/0/type"),
            (json!([{"role": "user", "content": [{"type": "input_image"}]}]), "/input/0/content/0"),
            (json!([{"role": "user"}]), "/input/0/content"),
        ] {
            assert_eq!(messages(&input).unwrap_err().pointer.as_deref(), Some(pointer), "{input}");
        }
        let error = ApiError::at("/messages/3/role", "x");
        assert_eq!(restore(error, 2).pointer.as_deref(), Some("/input/1"));
    }
}
