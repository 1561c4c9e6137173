//! `/api/embed`, and `/api/embeddings` as it was before.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::keep_alive;
use crate::api::openai::embeddings;
use crate::api::openai::sampling::MOST;
use crate::context::Notes;
use crate::error::ApiError;
use crate::json::{JsonBody, within};
use crate::respond::Json;
use crate::state::App;

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    input: Value,
    dimensions: Option<i64>,
    truncate: Option<bool>,
    #[serde(rename = "options")]
    _options: Option<serde::de::IgnoredAny>,
    keep_alive: Option<Value>,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Json, ApiError> {
    let began = Instant::now();
    let request: Request = body.read()?;
    drop(body);
    if request.truncate == Some(true) {
        let message = "texts are never cut here: one that is too long is an error; leave out `truncate`";
        return Err(ApiError::at("/truncate", message));
    }
    let dimensions = within("dimensions", request.dimensions, 1, MOST)?;
    let keep = keep_alive::read(request.keep_alive.as_ref())?;
    let model = app.registry.get(request.model.as_deref()).await?;
    keep_alive::apply(&app.registry, &model.name, keep, &notes);
    let most = app.config.limits.prompts;
    let vectors = embeddings::texts(request.input, "/input", Arc::clone(&model), most, dimensions).await?;
    Ok(Json(json!({
        "model": model.name,
        "embeddings": vectors.iter().map(|v| &v.vector).collect::<Vec<_>>(),
        "total_duration": u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
        "load_duration": 0,
        "prompt_eval_count": vectors.iter().map(|v| v.finish.prompt_tokens).sum::<usize>(),
    })))
}

#[derive(Debug, Deserialize)]
struct OneRequest {
    model: Option<String>,
    prompt: String,
    #[serde(rename = "options")]
    _options: Option<serde::de::IgnoredAny>,
    keep_alive: Option<Value>,
}

pub(super) async fn create_one(
    State(app): State<Arc<App>>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Json, ApiError> {
    let request: OneRequest = body.read()?;
    drop(body);
    let keep = keep_alive::read(request.keep_alive.as_ref())?;
    let model = app.registry.get(request.model.as_deref()).await?;
    keep_alive::apply(&app.registry, &model.name, keep, &notes);
    let vectors = embeddings::texts(request.prompt.into(), "/prompt", model, 1, None).await?;
    Ok(Json(json!({"embedding": vectors.first().map(|v| &v.vector)})))
}
