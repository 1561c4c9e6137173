//! `/v1/models`: which models there are, in memory or not.

use std::sync::Arc;

use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::ApiError;
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

pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    let models: Vec<Value> = app.registry.all().await?.iter().map(object).collect();
    Ok(Json(json!({"object": "list", "data": models})))
}

/// One model; it is not loaded for that.
pub(super) async fn get(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json, ApiError> {
    Ok(Json(object(&app.registry.look(&name).await?)))
}
