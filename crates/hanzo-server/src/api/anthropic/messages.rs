//! What a request says, as a conversation that templates know.
//!
//! Blocks become messages: calls and reasoning go with the assistant's text, each tool's result becomes a message of its own. Faults keep
//! the places of the request as it came.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{self, Manner};
use crate::api::conversation::Chat;
use crate::api::openai::chat::template_kwargs;
use crate::api::openai::sampling::{Length, MOST, Sampling};
use crate::api::openai::{messages, tools::ToolUse};
use crate::context::{Notes, RequestId};
use crate::error::ApiError;
use crate::generate::{blocking, left_out, written};
use crate::ids;
use crate::json::{JsonBody, OneOrMany, within};
use crate::model::LoadedModel;
use crate::respond::Json;
use crate::sse;
use crate::state::App;

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    messages: Vec<Value>,
    max_tokens: Option<i64>,
    system: Option<Value>,
    stop_sequences: Option<Vec<String>>,
    stream: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<ToolChoice>,
    thinking: Option<Thinking>,
    #[serde(rename = "metadata")]
    _metadata: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct ToolChoice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    budget_tokens: Option<i64>,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Response, ApiError> {
    let request: Request = body.read()?;
    drop(body);
    if request.max_tokens.is_none() {
        return Err(ApiError::at("/max_tokens", "`max_tokens` is missing"));
    }
    let model = app.registry.get(request.model.as_deref()).await?;
    let (stream, for_job, most) =
        (request.stream.unwrap_or(false), Arc::clone(&model), app.config.limits.tools);
    let for_notes = notes.clone();
    let job = blocking(move || chat(request, &for_job, most)?.job(for_job, &for_notes)).await??;
    let manner = Manner { id: ids::unique("msg_"), model, prompt: job.prompt.ids.len() };
    let generation = job.start(&app, &id, &notes).await?;
    if stream {
        let events = written([generation], reply::Writer::new(manner));
        return Ok(sse::response(events, app.config.limits.keep_alive));
    }
    let (replies, usage) = generation.collect().await?;
    let reply = replies.into_iter().next().unwrap_or_default();
    left_out(&reply.calls).into_iter().for_each(|warning| notes.warn(warning));
    Ok(Json(reply::whole(&reply, &usage, &manner)).into_response())
}

pub(super) async fn count(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let request: Request = body.read()?;
    drop(body);
    let model = app.registry.get(request.model.as_deref()).await?;
    let most = app.config.limits.tools;
    let n =
        blocking(move || Ok::<_, ApiError>(chat(request, &model, most)?.prompt(&model)?.ids.len())).await??;
    Ok(Json(json!({"input_tokens": n})))
}

fn chat(request: Request, model: &LoadedModel, most_tools: usize) -> Result<Chat, ApiError> {
    let (converted, places) = convert(request.system.as_ref(), &request.messages)?;
    if request.messages.last().and_then(|m| m["role"].as_str()) == Some("assistant") {
        let message = "the last message is the assistant's: replies cannot be begun for the model here";
        return Err(ApiError::at(format!("/messages/{}/role", request.messages.len() - 1), message));
    }
    let messages = messages::check(converted).map_err(|e| restore(e, &places))?;
    let tools = request.tools.map(|tools| tools.iter().enumerate().map(tool).collect()).transpose()?;
    let choice = request.tool_choice.as_ref().map(choice).transpose()?;
    let parallel = request.tool_choice.as_ref().and_then(|c| c.disable_parallel_tool_use).map(|no| !no);
    let tools = ToolUse::check(tools, choice.as_ref(), parallel, most_tools)?;
    let sampling = Sampling {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        ..Sampling::default()
    };
    let length = Length { stop: request.stop_sequences.map(OneOrMany::Many), ..Length::default() };
    let (thinking, budget) = match &request.thinking {
        None => (None, None),
        Some(t) => match t.kind.as_str() {
            "enabled" | "adaptive" => {
                (Some(true), within("thinking/budget_tokens", t.budget_tokens, 0, MOST)?)
            }
            "disabled" => (Some(false), None),
            _ => return Err(ApiError::at("/thinking/type", "expected enabled, adaptive or disabled")),
        },
    };
    Ok(Chat {
        messages,
        tools,
        format: None,
        kwargs: template_kwargs(None, None, thinking)?,
        sampling: sampling.params(model)?,
        length,
        max_tokens: within("max_tokens", request.max_tokens, 1, MOST)?,
        reasoning_budget: budget,
    })
}

/// Puts the place of the request as it came into an error about the converted messages.
fn restore(mut error: ApiError, places: &[String]) -> ApiError {
    let at = error.pointer.as_deref().and_then(|p| p.strip_prefix("/messages/"));
    let index = at.and_then(|at| at.split('/').next()?.parse::<usize>().ok());
    if let Some(place) = index.and_then(|i| places.get(i)) {
        error.pointer = Some(place.clone());
    }
    error
}

/// The messages in OpenAI's form, and for each where it came from.
fn convert(system: Option<&Value>, messages: &[Value]) -> Result<(Vec<Value>, Vec<String>), ApiError> {
    let (mut out, mut places) = (Vec::new(), Vec::new());
    if let Some(system) = system.filter(|s| !s.is_null()) {
        out.push(json!({"role": "system", "content": text(system, "/system")?}));
        places.push("/system".to_owned());
    }
    if messages.is_empty() {
        return Err(ApiError::at("/messages", "there are no messages; send at least one"));
    }
    for (i, message) in messages.iter().enumerate() {
        let at = format!("/messages/{i}");
        let role = message["role"].as_str().unwrap_or_default();
        let converted = match (role, &message["content"]) {
            ("user" | "assistant", Value::String(text)) => vec![json!({"role": role, "content": text})],
            ("user", Value::Array(blocks)) => user(blocks, &at)?,
            ("assistant", Value::Array(blocks)) => vec![assistant(blocks, &at)?],
            ("user" | "assistant", _) => {
                return Err(ApiError::at(format!("{at}/content"), "expected a string or an array of blocks"));
            }
            _ => return Err(ApiError::at(format!("{at}/role"), "expected user or assistant")),
        };
        places.resize(places.len() + converted.len(), at);
        out.extend(converted);
    }
    Ok((out, places))
}

/// The text of a string, or of blocks that are all text.
fn text(content: &Value, at: &str) -> Result<String, ApiError> {
    let blocks = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Null => return Ok(String::new()),
        Value::Array(blocks) => blocks,
        _ => return Err(ApiError::at(at, "expected a string or an array of text blocks")),
    };
    let block = |(i, block): (usize, &Value)| match (block["type"].as_str(), block["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        (Some("text"), None) => Err(ApiError::at(format!("{at}/{i}/text"), "expected a string")),
        (kind, _) => Err(not_text(kind, &format!("{at}/{i}/type"))),
    };
    Ok(blocks.iter().enumerate().map(block).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn not_text(kind: Option<&str>, at: &str) -> ApiError {
    let kind: String = kind.unwrap_or("missing").chars().take(40).collect();
    ApiError::at(at, format!("content of type `{kind}` cannot be read: this server takes text only"))
}

/// A user's blocks: results of tools first, as they answer the calls just before; then what the user says.
fn user(blocks: &[Value], at: &str) -> Result<Vec<Value>, ApiError> {
    let (mut out, mut said) = (Vec::new(), Vec::new());
    for (i, block) in blocks.iter().enumerate() {
        let at = format!("{at}/content/{i}");
        match block["type"].as_str() {
            Some("text") => said.push(text(&json!([block]), &at)?),
            Some("tool_result") => {
                let content = text(&block["content"], &format!("{at}/content"))?;
                let id = block["tool_use_id"].as_str();
                let id = id.ok_or_else(|| ApiError::at(format!("{at}/tool_use_id"), "expected a string"))?;
                out.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
            }
            kind => return Err(not_text(kind, &format!("{at}/type"))),
        }
    }
    if !said.is_empty() || out.is_empty() {
        out.push(json!({"role": "user", "content": said.join("\n")}));
    }
    Ok(out)
}

/// An assistant's blocks as one message.
fn assistant(blocks: &[Value], at: &str) -> Result<Value, ApiError> {
    let (mut said, mut reasoning, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for (i, block) in blocks.iter().enumerate() {
        let at = format!("{at}/content/{i}");
        match block["type"].as_str() {
            Some("text") => said.push(text(&json!([block]), &at)?),
            Some("thinking") => reasoning.extend(block["thinking"].as_str().map(str::to_owned)),
            // Written for Anthropic's own servers.
            Some("redacted_thinking") => {}
            Some("tool_use") => {
                let (Some(id), Some(name)) = (block["id"].as_str(), block["name"].as_str()) else {
                    return Err(ApiError::at(at, "a call needs `id` and `name`, strings"));
                };
                if !block["input"].is_object() {
                    return Err(ApiError::at(format!("{at}/input"), "expected an object"));
                }
                let function = json!({"name": name, "arguments": block["input"].to_string()});
                calls.push(json!({"id": id, "type": "function", "function": function}));
            }
            kind => return Err(not_text(kind, &format!("{at}/type"))),
        }
    }
    let mut message = json!({"role": "assistant", "content": said.join("\n")});
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.join("\n").into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Ok(message)
}

/// A tool in OpenAI's form.
fn tool((i, tool): (usize, &Value)) -> Result<Value, ApiError> {
    if !matches!(tool["type"].as_str(), None | Some("custom")) {
        let message = "a tool is one of the client's own; tools that Anthropic runs are not here";
        return Err(ApiError::at(format!("/tools/{i}/type"), message));
    }
    let mut function = json!({"name": tool["name"], "parameters": tool["input_schema"]});
    if let Some(description) = tool["description"].as_str() {
        function["description"] = description.into();
    }
    Ok(json!({"type": "function", "function": function}))
}

/// A choice in OpenAI's form.
fn choice(choice: &ToolChoice) -> Result<Value, ApiError> {
    match (choice.kind.as_str(), &choice.name) {
        ("auto" | "none", _) => Ok(choice.kind.as_str().into()),
        ("any", _) => Ok("required".into()),
        ("tool", Some(name)) => Ok(json!({"type": "function", "function": {"name": name}})),
        ("tool", None) => Err(ApiError::at("/tool_choice/name", "expected the name of a tool")),
        _ => Err(ApiError::at("/tool_choice/type", "expected auto, any, tool or none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_messages() {
        let messages = json!([
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
                {"type": "text", "text": "and?"}]},
        ]);
        let system = json!([{"type": "text", "text": "Be brief."}]);
        let (converted, places) = convert(Some(&system), messages.as_array().unwrap()).unwrap();
        let roles: Vec<_> = converted.iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(places, ["/system", "/messages/0", "/messages/1", "/messages/2", "/messages/2"]);
        assert_eq!(converted[2]["reasoning_content"], "hm");
        assert_eq!(converted[2]["tool_calls"][0]["function"]["arguments"], r#"{"city":"Oslo"}"#);
        assert_eq!(converted[3]["content"], "rain");
        messages::check(converted).unwrap();
    }

    #[test]
    fn faults_keep_the_places_of_the_request() {
        for (messages, pointer) in [
            (json!([]), "/messages"),
            (json!([{"role": "system", "content": "x"}]), "/messages/0/role"),
            (json!([{"role": "user", "content": 1}]), "/messages/0/content"),
            (json!([{"role": "user", "content": [{"type": "image"}]}]), "/messages/0/content/0/type"),
            (
                json!([{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "x"}]}]),
                "/messages/0/content/0/input",
            ),
        ] {
            let error = convert(None, messages.as_array().unwrap()).unwrap_err();
            assert_eq!(error.pointer.as_deref(), Some(pointer), "{messages}");
        }
        let unasked = json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]);
        let (converted, places) = convert(Some(&json!("s")), unasked.as_array().unwrap()).unwrap();
        let error = restore(messages::check(converted).unwrap_err(), &places);
        assert_eq!(error.pointer.as_deref(), Some("/messages/0"));
    }
}
