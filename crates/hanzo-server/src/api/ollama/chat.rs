//! `/api/chat`.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::reply::{self, Kind, Manner};
use super::{keep_alive, options};
use crate::api::conversation::Chat;
use crate::api::openai::chat::template_kwargs;
use crate::api::openai::{messages, tools::ToolUse};
use crate::context::{Notes, RequestId};
use crate::error::ApiError;
use crate::generate::blocking;
use crate::json::JsonBody;
use crate::model::LoadedModel;
use crate::registry::Keep;
use crate::respond::Json;
use crate::state::App;

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    messages: Option<Vec<Value>>,
    tools: Option<Vec<Value>>,
    format: Option<Value>,
    options: Option<Map<String, Value>>,
    stream: Option<bool>,
    think: Option<Value>,
    keep_alive: Option<Value>,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let request: Request = body.read()?;
    drop(body);
    let keep = keep_alive::read(request.keep_alive.as_ref())?;
    let nothing = request.messages.as_ref().is_none_or(Vec::is_empty);
    if nothing && keep.is_some_and(Keep::is_over) {
        return reply::unload(&app, request.model.as_deref(), Kind::Chat).await;
    }
    let model = app.registry.get(request.model.as_deref()).await?;
    keep_alive::apply(&app.registry, &model.name, keep, &notes);
    let manner = Manner { model: model.name.clone(), kind: Kind::Chat, began };
    if nothing {
        return Ok(Json(manner.loaded()).into_response());
    }
    let stream = request.stream.unwrap_or(true);
    let (most, for_job, for_notes) = (app.config.limits.tools, Arc::clone(&model), notes.clone());
    let job = blocking(move || chat(request, &for_job, most, &for_notes)?.job(for_job, &for_notes)).await??;
    reply::answer(&app, &id, &notes, job, stream, manner).await
}

fn chat(request: Request, model: &LoadedModel, most: usize, notes: &Notes) -> Result<Chat, ApiError> {
    let messages = messages::check(with_ids(request.messages.unwrap_or_default())?)?;
    let tools = ToolUse::check(request.tools, None, None, most)?;
    let (effort, thinking) = options::think(request.think.as_ref())?;
    let options = options::read(request.options, model, notes)?;
    Ok(Chat {
        messages,
        tools,
        format: options::format(request.format.as_ref())?,
        kwargs: template_kwargs(None, effort, thinking)?,
        sampling: options.sampling,
        length: options.length,
        max_tokens: options.max_tokens,
        reasoning_budget: None,
    })
}

/// Ollama's calls have no ids: they are given some, and answers take them in their order, or by the tool's name. Reasoning is called
/// what OpenAI's clients call it.
fn with_ids(messages: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let mut open: Vec<(String, String)> = Vec::new();
    let mut out = Vec::with_capacity(messages.len());
    for (i, mut message) in messages.into_iter().enumerate() {
        if message["images"].as_array().is_some_and(|images| !images.is_empty()) {
            let at = format!("/messages/{i}/images");
            return Err(ApiError::at(at, "images cannot be read: this server takes text only"));
        }
        let Some(fields) = message.as_object_mut() else {
            return Err(ApiError::at(format!("/messages/{i}"), "expected an object"));
        };
        if let Some(thinking) = fields.remove("thinking").filter(Value::is_string) {
            fields.insert("reasoning_content".to_owned(), thinking);
        }
        let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (j, call) in calls.into_iter().flatten().enumerate() {
            let id = format!("call_{i}_{j}");
            let name = call["function"]["name"].as_str().unwrap_or_default().to_owned();
            if let Some(fields) = call.as_object_mut() {
                fields.entry("id").or_insert_with(|| id.as_str().into());
                fields.entry("type").or_insert_with(|| "function".into());
                if let Some(given) = fields.get("id").and_then(Value::as_str) {
                    open.push((name, given.to_owned()));
                }
            }
        }
        if fields.get("role").and_then(Value::as_str) == Some("tool") && !fields.contains_key("tool_call_id")
        {
            let name = fields.get("tool_name").or(fields.get("name")).and_then(Value::as_str);
            let at = name.and_then(|name| open.iter().position(|(n, _)| n == name)).or(Some(0));
            let answered = at.filter(|&at| at < open.len()).map(|at| open.remove(at));
            let Some((_, id)) = answered else {
                return Err(ApiError::at(format!("/messages/{i}"), "this answers a call that was not made"));
            };
            fields.insert("tool_call_id".to_owned(), json!(id));
        }
        out.push(message);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_find_their_calls() {
        let call = |name: &str| json!({"function": {"name": name, "arguments": {"x": 1}}});
        let messages = json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "tool_name": "b", "content": "2"},
            {"role": "tool", "content": "1"},
        ]);
        let out = with_ids(messages.as_array().unwrap().clone()).unwrap();
        assert_eq!(out[1]["reasoning_content"], "hm");
        assert_eq!(out[2]["tool_call_id"], "call_1_1");
        assert_eq!(out[3]["tool_call_id"], "call_1_0");
        messages::check(out).unwrap();
        let stray = with_ids(vec![json!({"role": "tool", "content": "x"})]).unwrap_err();
        assert_eq!(stray.pointer.as_deref(), Some("/messages/0"));
        let image = with_ids(vec![json!({"role": "user", "content": "x", "images": ["aGk="]})]).unwrap_err();
        assert_eq!(image.pointer.as_deref(), Some("/messages/0/images"));
    }
}
