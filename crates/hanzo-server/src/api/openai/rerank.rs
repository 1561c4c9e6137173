//! `/v1/rerank`: documents in the order of their likeness to a query, as Jina and Cohere have it.
//!
//! Likeness is the cosine of embeddings, query against document: what every model here can tell. Models that read query and document
//! together would tell it better; there are none here yet.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::embeddings;
use super::sampling::MOST;
use crate::error::ApiError;
use crate::ids;
use crate::json::{JsonBody, within};
use crate::respond::Json;
use crate::state::App;

#[derive(Debug, Deserialize)]
struct RerankRequest {
    model: Option<String>,
    query: String,
    documents: Vec<Value>,
    top_n: Option<i64>,
    return_documents: Option<bool>,
}

pub(super) async fn create(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let request: RerankRequest = body.read()?;
    drop(body);
    let text = |(i, document): (usize, &Value)| match (document, document.get("text")) {
        (Value::String(text), _) | (_, Some(Value::String(text))) => Ok(Value::from(text.as_str())),
        _ => Err(ApiError::at(format!("/documents/{i}"), "expected a string, or an object with `text`")),
    };
    let documents: Vec<Value> = request.documents.iter().enumerate().map(text).collect::<Result<_, _>>()?;
    if documents.is_empty() {
        return Err(ApiError::at("/documents", "there are no documents; send at least one"));
    }
    let top = within("top_n", request.top_n, 1, MOST)?.unwrap_or(documents.len());
    let model = app.registry.get(request.model.as_deref()).await?;
    let most = app.config.limits.prompts;
    let query = embeddings::texts(request.query.into(), "/query", Arc::clone(&model), 1, None).await?;
    let vectors =
        embeddings::texts(documents.clone().into(), "/documents", Arc::clone(&model), most, None).await?;
    let Some(query) = query.first() else { return Err(ApiError::at("/query", "the query is empty")) };
    let tokens: usize = vectors.iter().chain([query]).map(|v| v.finish.prompt_tokens).sum();
    // Vectors have length 1.
    let cosine =
        |v: &[f32]| v.iter().zip(&query.vector).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let mut scores: Vec<(usize, f64)> = vectors.iter().map(|v| cosine(&v.vector)).enumerate().collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let results: Vec<Value> = scores
        .into_iter()
        .take(top)
        .map(|(index, score)| {
            let mut result = json!({"index": index, "relevance_score": score});
            if request.return_documents.unwrap_or(false) {
                result["document"] = json!({"text": documents.get(index)});
            }
            result
        })
        .collect();
    Ok(Json(json!({
        "id": ids::unique("rerank-"),
        "object": "list",
        "model": model.name,
        "results": results,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}
