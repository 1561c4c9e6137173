//! `/v1/responses`: replies that the server can keep, so that a conversation goes on by the name of the last one.

mod input;
mod output;
pub(crate) mod store;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::{json_schema, template_kwargs};
use super::sampling::{Length, MOST, Sampling};
use super::tools::ToolUse;
use crate::api::conversation::Chat;
use crate::context::{Notes, RequestId};
use crate::error::ApiError;
use crate::generate::{blocking, written};
use crate::json::{JsonBody, within};
use crate::respond::Json;
use crate::state::App;
use crate::{ids, sse};
use hanzo_engine::constraint::Grammar;

#[derive(Debug, Deserialize)]
struct ResponseRequest {
    model: Option<String>,
    input: Value,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    stream: Option<bool>,
    store: Option<bool>,
    max_output_tokens: Option<i64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    text: Option<Text>,
    reasoning: Option<Reasoning>,
    metadata: Option<Map<String, Value>>,
    truncation: Option<String>,
    background: Option<bool>,
    #[serde(rename = "user")]
    _user: Option<serde::de::IgnoredAny>,
    #[serde(rename = "include")]
    _include: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Text {
    format: Option<Format>,
}

/// Flat here, where chat completions nest it.
#[derive(Debug, Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    schema: Option<Value>,
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Reasoning {
    effort: Option<String>,
    #[serde(rename = "summary")]
    _summary: Option<serde::de::IgnoredAny>,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Response, ApiError> {
    let request: ResponseRequest = body.read()?;
    let sampling: Sampling = body.read()?;
    drop(body);
    if request.background == Some(true) {
        return Err(ApiError::at("/background", "background replies are not possible here: stream, or wait"));
    }
    if !matches!(request.truncation.as_deref(), None | Some("disabled")) {
        let message = "conversations are never cut here: one that is too long is an error";
        return Err(ApiError::at("/truncation", message));
    }
    let model = app.registry.get(request.model.as_deref()).await?;
    let before = match request.previous_response_id.as_deref() {
        Some(previous) => app
            .responses
            .conversation(previous)
            .ok_or_else(|| missing(previous).with_pointer("/previous_response_id"))?,
        None => Arc::from([]),
    };
    let spoken = input::messages(&request.input)?;
    let echo = echo(&request, &sampling, &model.name);
    let stream = request.stream.unwrap_or(false);
    let (for_job, most, history) = (Arc::clone(&model), app.config.limits.tools, Arc::clone(&before));
    let said: Arc<[Value]> = before.iter().chain(&spoken).cloned().collect();
    let store = request.store.unwrap_or(true);
    let for_notes = notes.clone();
    let work = move || chat(request, &sampling, &history, spoken, &for_job, most)?.job(for_job, &for_notes);
    let job = blocking(work).await??;
    let generation = job.start(&app, &id, &notes).await?;
    let writer = output::Writer::new(echo, store.then(|| (Arc::clone(&app), said)));
    if stream {
        return Ok(sse::response(written([generation], writer), app.config.limits.keep_alive));
    }
    let (replies, usage) = generation.collect().await?;
    Ok(Json(writer.whole(replies.into_iter().next().unwrap_or_default(), &usage)).into_response())
}

fn missing(id: &str) -> ApiError {
    let id: String = id.chars().take(80).collect();
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no response `{id}`; it may have been forgotten"))
        .with_code("response_not_found")
}

pub(super) async fn get(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json, ApiError> {
    app.responses.get(&id).map(Json).ok_or_else(|| missing(&id))
}

pub(super) async fn delete(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json, ApiError> {
    match app.responses.remove(&id) {
        true => Ok(Json(json!({"id": id, "object": "response", "deleted": true}))),
        false => Err(missing(&id)),
    }
}

fn chat(
    request: ResponseRequest,
    sampling: &Sampling,
    history: &[Value],
    spoken: Vec<Value>,
    model: &crate::model::LoadedModel,
    most_tools: usize,
) -> Result<Chat, ApiError> {
    let system = request.instructions.map(|text| json!({"role": "system", "content": text}));
    let first = usize::from(system.is_some()) + history.len();
    let messages: Vec<Value> = system.into_iter().chain(history.iter().cloned()).chain(spoken).collect();
    let messages = super::messages::check(messages).map_err(|e| input::restore(e, first))?;
    let tools = request.tools.map(|tools| tools.iter().enumerate().map(tool).collect()).transpose()?;
    let choice = request.tool_choice.map(|choice| match choice.get("name").cloned() {
        Some(name) => json!({"type": "function", "function": {"name": name}}),
        None => choice,
    });
    let tools = ToolUse::check(tools, choice.as_ref(), request.parallel_tool_calls, most_tools)?;
    let effort = request.reasoning.as_ref().and_then(|r| r.effort.as_deref());
    Ok(Chat {
        messages,
        tools,
        format: request.text.and_then(|t| t.format).map(|f| grammar(&f)).transpose()?.flatten(),
        kwargs: template_kwargs(None, effort, None).map_err(|e| e.with_pointer("/reasoning/effort"))?,
        sampling: sampling.params(model)?,
        length: Length::default(),
        max_tokens: within("max_output_tokens", request.max_output_tokens, 1, MOST)?,
        reasoning_budget: None,
    })
}

/// A tool in the form that chat completions have.
fn tool((i, tool): (usize, &Value)) -> Result<Value, ApiError> {
    if tool["type"] != "function" {
        let message = "a tool's type is `function`; the tools that OpenAI runs are not here";
        return Err(ApiError::at(format!("/tools/{i}/type"), message));
    }
    let mut function = tool.as_object().cloned().unwrap_or_default();
    function.remove("type");
    Ok(json!({"type": "function", "function": function}))
}

fn grammar(format: &Format) -> Result<Option<Grammar>, ApiError> {
    match (format.kind.as_str(), &format.schema) {
        ("text", _) => Ok(None),
        ("json_object", _) => Ok(Some(json_schema(json!({"type": "object"})))),
        ("json_schema", Some(schema)) => Ok(Some(json_schema(schema.clone()))),
        ("json_schema", None) => {
            Err(ApiError::at("/text/format/schema", "expected a JSON schema, an object"))
        }
        _ => Err(ApiError::at("/text/format/type", "expected text, json_object or json_schema")),
    }
}

/// The fields of a response that repeat the request.
fn echo(request: &ResponseRequest, sampling: &Sampling, model: &str) -> Map<String, Value> {
    let format = request.text.as_ref().and_then(|t| t.format.as_ref());
    let format =
        format.map_or_else(|| json!({"type": "text"}), |f| json!({"type": f.kind, "schema": f.schema}));
    let echo = json!({
        "id": ids::unique("resp_"),
        "object": "response",
        "created_at": ids::now(),
        "model": model,
        "error": null,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata.clone().unwrap_or_default(),
        "parallel_tool_calls": request.parallel_tool_calls.unwrap_or(true),
        "previous_response_id": request.previous_response_id,
        "reasoning": {"effort": request.reasoning.as_ref().and_then(|r| r.effort.as_deref()), "summary": null},
        "store": request.store.unwrap_or(true),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "text": {"format": format},
        "tool_choice": request.tool_choice.clone().unwrap_or_else(|| "auto".into()),
        "tools": request.tools.clone().unwrap_or_default(),
        "truncation": "disabled",
        "background": false,
    });
    echo.as_object().cloned().unwrap_or_default()
}
