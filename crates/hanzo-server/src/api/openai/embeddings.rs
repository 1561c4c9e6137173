//! `/v1/embeddings`: texts as vectors.

use std::sync::Arc;

use axum::extract::State;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::future::try_join_all;
use hanzo_engine::{EmbedRequest, Embedding};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::completions::{Given, prompts};
use super::sampling::MOST;
use crate::error::ApiError;
use crate::generate::blocking;
use crate::json::{JsonBody, within};
use crate::model::LoadedModel;
use crate::respond::Json;
use crate::state::App;

#[derive(Debug, Deserialize)]
struct EmbeddingRequest {
    model: Option<String>,
    input: Value,
    encoding_format: Option<String>,
    dimensions: Option<i64>,
    #[serde(rename = "user")]
    _user: Option<serde::de::IgnoredAny>,
}

/// How a vector is written.
#[derive(Clone, Copy, Debug)]
enum Encoding {
    Float,
    /// Little-endian f32, in base64.
    Base64,
}

pub(super) async fn create(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let request: EmbeddingRequest = body.read()?;
    drop(body);
    let encoding = match request.encoding_format.as_deref() {
        None | Some("float") => Encoding::Float,
        Some("base64") => Encoding::Base64,
        Some(_) => return Err(ApiError::at("/encoding_format", "expected float or base64")),
    };
    let dimensions = within("dimensions", request.dimensions, 1, MOST)?;
    let model = app.registry.get(request.model.as_deref()).await?;
    let most = app.config.limits.prompts;
    let vectors = texts(request.input, "/input", Arc::clone(&model), most, dimensions).await?;
    let tokens: usize = vectors.iter().map(|v| v.finish.prompt_tokens).sum();
    let data: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(index, v)| {
            let embedding = match encoding {
                Encoding::Float => json!(v.vector),
                Encoding::Base64 => base64(&v.vector).into(),
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    Ok(Json(json!({
        "object": "list",
        "data": data,
        "model": model.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}

/// The vectors of a text, texts, or token ids. Faults name places below `at`.
pub(crate) async fn texts(
    input: Value,
    at: &'static str,
    model: Arc<LoadedModel>,
    most: usize,
    dimensions: Option<usize>,
) -> Result<Vec<Embedding>, ApiError> {
    let for_ids = Arc::clone(&model);
    let ids = move || -> Result<Vec<(String, Vec<u32>)>, ApiError> {
        let prompts = prompts(input, at, &for_ids, most)?;
        let one = |(at, given): (String, Given)| match given.ids(&for_ids) {
            Ok(prompt) if prompt.ids.is_empty() => Err(ApiError::at(at, "the text is empty")),
            Ok(prompt) => Ok((at, prompt.ids)),
            Err(e) => Err(ApiError::at(at, e.to_string())),
        };
        prompts.into_iter().map(one).collect()
    };
    let ids = blocking(ids).await??;
    try_join_all(ids.into_iter().map(|(at, tokens)| embed(&model, at, tokens, dimensions))).await
}

async fn embed(
    model: &LoadedModel,
    at: String,
    tokens: Vec<u32>,
    dimensions: Option<usize>,
) -> Result<Embedding, ApiError> {
    let (sender, receiver) = oneshot::channel();
    let request = EmbedRequest { dimensions, ..EmbedRequest::new(tokens) };
    let cancel = model.engine.submit_embed(request, move |outcome| {
        // Whoever does not wait any more does not want it.
        let _ = sender.send(outcome);
    });
    let cancel = cancel.map_err(|e| ApiError::from(e).or_pointer(&at))?;
    let mut guard = CancelOnDrop(Some(cancel));
    let outcome = receiver.await.map_err(|_| ApiError::internal("the engine dropped the request"))?;
    guard.0 = None;
    Ok(outcome?)
}

/// Cancels its request unless it has ended.
struct CancelOnDrop(Option<hanzo_engine::Cancel>);
impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

fn base64(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|v| v.to_le_bytes()).collect();
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_by_hand() {
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.0]), "AACAPwAAAMA=");
        assert_eq!(base64(&[0.0, 0.0, 0.0]), "AAAAAAAAAAAAAAAA");
        assert_eq!(base64(&[]), "");
    }
}
