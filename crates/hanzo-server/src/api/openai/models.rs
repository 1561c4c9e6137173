//! `/v1/models`: which models there are.

use std::sync::Arc;

use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::model::LoadedModel;
use crate::respond::Json;
use crate::state::App;

fn object(model: &LoadedModel) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "hanzo",
        "max_model_len": model.engine.info().max_context,
    })
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Json {
    let models: Vec<Value> = app.registry.list().iter().map(|m| object(m)).collect();
    Json(json!({"object": "list", "data": models}))
}

pub(super) async fn get(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json, ApiError> {
    Ok(Json(object(&*app.registry.get(Some(&name)).await?)))
}
