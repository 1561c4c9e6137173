//! Text to ids and back, and conversations to text.

use std::sync::Arc;

use axum::extract::State;
use hanzo_text::detokenize::DecodeOptions;
use hanzo_text::tokenizer::EncodeOptions;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::openai::{messages, tools::ToolUse};
use crate::error::ApiError;
use crate::generate::blocking;
use crate::json::JsonBody;
use crate::model::Conversation;
use crate::respond::Json;
use crate::state::App;

#[derive(Debug, Deserialize)]
struct TokenizeRequest {
    model: Option<String>,
    content: String,
    add_special: Option<bool>,
    parse_special: Option<bool>,
    with_pieces: Option<bool>,
}

pub(super) async fn tokenize(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let request: TokenizeRequest = body.read()?;
    drop(body);
    let model = app.registry.get(request.model.as_deref()).await?;
    let options = EncodeOptions {
        add_special: request.add_special.unwrap_or(false),
        parse_special: request.parse_special.unwrap_or(true),
    };
    let encoded = blocking(move || {
        let ids = model.tokenizer.encode(&request.content, options)?;
        let piece = |id: &u32| {
            let bytes = model.tokenizer.token_bytes(*id).unwrap_or_default();
            // What is no text on its own is told in bytes.
            let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text));
            json!({"id": id, "piece": piece})
        };
        Ok::<_, hanzo_text::tokenizer::TokenizerError>(match request.with_pieces {
            Some(true) => json!(ids.iter().map(piece).collect::<Vec<_>>()),
            _ => json!(ids),
        })
    });
    let tokens = encoded.await?.map_err(|e| ApiError::at("/content", e.to_string()))?;
    Ok(Json(json!({"tokens": tokens})))
}

#[derive(Debug, Deserialize)]
struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<i64>,
}

pub(super) async fn detokenize(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let request: DetokenizeRequest = body.read()?;
    drop(body);
    let model = app.registry.get(request.model.as_deref()).await?;
    let n = model.engine.info().vocab_size;
    let id = |(i, id): (usize, &i64)| {
        let found = u32::try_from(*id).ok().filter(|&id| (id as usize) < n);
        found.ok_or_else(|| {
            ApiError::at(format!("/tokens/{i}"), format!("{id} is no token id; they are 0 to {}", n - 1))
        })
    };
    let ids: Vec<u32> = request.tokens.iter().enumerate().map(id).collect::<Result<_, _>>()?;
    let options = DecodeOptions { render_special: true, keep_leading_space: true };
    let content =
        model.tokenizer.decode(&ids, options).map_err(|e| ApiError::at("/tokens", e.to_string()))?;
    Ok(Json(json!({"content": content})))
}

#[derive(Debug, Deserialize)]
struct TemplateRequest {
    model: Option<String>,
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    chat_template_kwargs: Option<Map<String, Value>>,
}

pub(super) async fn apply_template(
    State(app): State<Arc<App>>,
    mut body: JsonBody,
) -> Result<Json, ApiError> {
    let request: TemplateRequest = body.read()?;
    drop(body);
    let model = app.registry.get(request.model.as_deref()).await?;
    let messages = messages::check(request.messages)?;
    let tools = ToolUse::check(request.tools, None, None, app.config.limits.tools)?;
    let rendered = blocking(move || {
        let conversation = Conversation {
            messages: &messages,
            tools: tools.as_ref().map(|t| t.tools.as_slice()),
            kwargs: request.chat_template_kwargs.as_ref(),
        };
        model.render(&conversation)
    });
    let (prompt, _) = rendered.await?.map_err(|e| ApiError::at("/messages", e.to_string()))?;
    Ok(Json(json!({"prompt": prompt})))
}
