//! Adapters over HTTP: vLLM's way to load and unload them by name, llama.cpp's way to set their scales.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Routes;
use crate::error::ApiError;
use crate::json::{JsonBody, JsonList};
use crate::lora::{self, Entry};
use crate::model::LoadedModel;
use crate::respond::Json;
use crate::state::App;

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .post("/v1/load_lora_adapter", load)
        .post("/v1/unload_lora_adapter", unload)
        .get("/lora-adapters", list)
        .post("/lora-adapters", set)
}

#[derive(Debug, Deserialize)]
struct Load {
    lora_name: String,
    lora_path: String,
    base_model_name: Option<String>,
}

async fn load(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let request: Load = body.read()?;
    drop(body);
    let model = app
        .registry
        .get(request.base_model_name.as_deref())
        .await
        .map_err(|e| if e.pointer.is_some() { e.with_pointer("/base_model_name") } else { e })?;
    let adapter = lora::load(&app, model, request.lora_name, &request.lora_path).await?;
    Ok(Json(json!({
        "status": "ok",
        "message": format!("Success: LoRA adapter '{}' added successfully.", adapter.name),
        "id": adapter.id.number(),
        "rank": adapter.rank,
        "bytes": adapter.bytes,
        "unknown_keys": adapter.unknown_keys,
    })))
}

#[derive(Debug, Deserialize)]
struct Unload {
    lora_name: String,
}

async fn unload(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let request: Unload = body.read()?;
    drop(body);
    lora::unload(&app, &request.lora_name)?;
    Ok(Json(json!({
        "status": "ok",
        "message": format!("Success: LoRA adapter '{}' removed successfully.", request.lora_name),
    })))
}

/// Adapters of a model, as llama.cpp's server lists them.
fn adapters(model: &LoadedModel) -> Value {
    let entry = |a: hanzo_engine::AdapterInfo| {
        json!({
            "id": a.id.number(),
            "path": a.path.display().to_string(),
            "scale": model.scales.of(a.id),
            "name": a.name,
            "rank": a.rank,
            "bytes": a.bytes,
            "running": a.running,
            "waiting": a.waiting,
        })
    };
    model.engine.adapters().into_iter().map(entry).collect()
}

async fn list(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    Ok(Json(adapters(&*app.registry.get(None).await?)))
}

/// Sets the scales of requests without their own; adapters that are left out get 0.
async fn set(State(app): State<Arc<App>>, JsonList(mut body): JsonList) -> Result<Json, ApiError> {
    let entries: Vec<Entry> = body.read()?;
    drop(body);
    let model = app.registry.get(None).await?;
    let scales = lora::scales(&model, &entries, "")?;
    model.scales.set(scales);
    Ok(Json(adapters(&model)))
}
