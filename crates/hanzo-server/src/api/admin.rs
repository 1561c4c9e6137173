//! `/models`: which models there are and whether they are in memory; loading and unloading them. The paths and the form of
//! llama.cpp's router.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Routes;
use crate::error::ApiError;
use crate::json::JsonBody;
use crate::registry::{Listed, Status};
use crate::respond::Json;
use crate::state::App;

pub(super) fn routes(routes: Routes) -> Routes {
    routes.get("/models", list).post("/models/load", load).post("/models/unload", unload)
}

#[derive(Debug, Deserialize)]
struct Which {
    model: String,
}

fn object(listed: &Listed) -> Value {
    let status = match listed.status {
        Status::Unloaded => {
            json!({"value": "unloaded", "failed": listed.failure.is_some(), "error": listed.failure})
        }
        Status::Loading => json!({"value": "loading"}),
        Status::Loaded { bytes, users, expires } => json!({
            "value": "loaded",
            "bytes": bytes,
            "users": users,
            "expires_in_seconds": expires.map(|left| left.as_secs()),
        }),
    };
    json!({"id": listed.name, "object": "model", "owned_by": "hanzo", "status": status})
}

async fn list(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    let models: Vec<Value> = app.registry.all().await?.iter().map(object).collect();
    Ok(Json(json!({"object": "list", "data": models})))
}

/// Answers when the model is in memory.
async fn load(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let which: Which = body.read()?;
    let model = app.registry.get(Some(&which.model)).await?;
    Ok(Json(json!({"success": true, "model": model.name})))
}

/// Requests that use the model go on, and its memory is free when they have ended.
async fn unload(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let which: Which = body.read()?;
    let was_loaded = app.registry.unload(&which.model).await?;
    Ok(Json(json!({"success": true, "was_loaded": was_loaded})))
}
