//! What those who run a server ask: does it live, is it ready, what does it do.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Routes;
use crate::error::ApiError;
use crate::metrics;
use crate::model::LoadedModel;
use crate::respond::Json;
use crate::state::App;

/// The API's description. Kept by hand; tests compare its paths with the routes, and its schemas with what is read and written.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .get("/health", health)
        .get("/ready", ready)
        .get("/version", version)
        .get("/metrics", prometheus)
        .get("/server_info", server_info)
        .get("/model_info", model_info)
        .get("/openapi.json", openapi)
}

/// The process lives.
async fn health() -> Json {
    Json(json!({"status": "ok"}))
}

/// Requests are taken: the server is not shutting down. Models that are loaded on demand may still be on disk.
async fn ready(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    if app.is_draining() {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down"));
    }
    Ok(Json(json!({"status": "ready", "models": app.registry.list().len()})))
}

async fn version() -> Json {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

async fn prometheus(State(app): State<Arc<App>>) -> Response {
    let accounts = app.registry.accounts();
    let text = metrics::text(&accounts);
    // The last to hold a model frees it, which may take a moment.
    tokio::task::spawn_blocking(move || drop(accounts));
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"))], text)
        .into_response()
}

/// What is loaded, and what it is doing now.
fn describe(model: &LoadedModel) -> Value {
    let (info, now) = (model.engine.info(), model.engine.metrics());
    json!({
        "id": model.name,
        "aliases": model.aliases,
        "architecture": info.architecture,
        "device": info.device,
        "parameters": model.parameters,
        "file_bytes": model.file_bytes,
        "context": info.max_context,
        "trained_context": info.trained_context,
        "vocab_size": info.vocab_size,
        "chat": model.template().is_some(),
        "output_format": model.family().to_string(),
        "memory": {"weights": info.memory.weights, "kv": info.memory.kv, "scratch": info.memory.arena},
        "kv": {"tokens": info.kv_tokens, "blocks": now.kv_blocks, "free_blocks": now.kv_free},
        "running": now.running,
        "waiting": now.waiting,
        "generated_tokens": now.generated_tokens,
        "prompt_tokens": now.prompt_tokens,
        "prefix_cache": {"queries": now.prefix_queries, "hits": now.prefix_hits},
    })
}

async fn server_info(State(app): State<Arc<App>>) -> Json {
    let models: Vec<Value> = app.registry.list().iter().map(|m| describe(m)).collect();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": app.started.elapsed().as_secs_f64(),
        "draining": app.is_draining(),
        "models": models,
    }))
}

async fn model_info(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    Ok(Json(describe(&*app.registry.get(None).await?)))
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], OPENAPI).into_response()
}
