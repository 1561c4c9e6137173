//! `/v1/models`: which models there are, in memory or not.

use std::sync::Arc;

use axum::extract::{Path, State};
use hanzo_engine::AdapterInfo;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::lora;
use crate::model::LoadedModel;
use crate::registry::Listed;
use crate::respond::Json;
use crate::state::App;

fn object(listed: &Listed) -> Value {
    let model = listed.model.as_ref();
    json!({
        "id": listed.name,
        "object": "model",
        "created": model.map_or(0, |m| m.created),
        "owned_by": "hanzo",
        "max_model_len": model.map(|m| m.engine.info().max_context),
    })
}

/// An adapter: a model on top of another, as vLLM lists it.
fn adapter(model: &LoadedModel, adapter: &AdapterInfo) -> Value {
    json!({
        "id": adapter.name,
        "object": "model",
        "created": model.created,
        "owned_by": "hanzo",
        "max_model_len": model.engine.info().max_context,
        "root": adapter.path.display().to_string(),
        "parent": model.name,
    })
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    let of = |listed: &Listed| {
        let adapters =
            listed.model.iter().flat_map(|m| m.engine.adapters().into_iter().map(|a| adapter(m, &a)));
        std::iter::once(object(listed)).chain(adapters).collect::<Vec<_>>()
    };
    let models: Vec<Value> = app.registry.all().await?.iter().flat_map(of).collect();
    Ok(Json(json!({"object": "list", "data": models})))
}

/// One model; it is not loaded for that.
pub(super) async fn get(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json, ApiError> {
    if let Some((model, info)) = lora::find(&app, &name) {
        return Ok(Json(adapter(&model, &info)));
    }
    Ok(Json(object(&app.registry.look(&name).await?)))
}
