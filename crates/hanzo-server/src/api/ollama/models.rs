//! Which models there are, as Ollama tells it.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::ids;
use crate::json::JsonBody;
use crate::model::LoadedModel;
use crate::registry::{Listed, Status};
use crate::respond::Json;
use crate::state::App;

fn details(model: &LoadedModel) -> Value {
    let architecture = model.engine.info().architecture;
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": architecture,
        "families": [architecture],
        "parameter_size": size(model.parameters),
        "quantization_level": "",
    })
}

/// Weights as people say it: `1.7B`, `135M`.
fn size(parameters: u64) -> String {
    let n = parameters as f64;
    match parameters {
        1_000_000_000.. => format!("{:.1}B", n / 1e9),
        1_000_000.. => format!("{:.1}M", n / 1e6),
        _ => format!("{:.0}K", n / 1e3),
    }
}

fn entry(model: &LoadedModel) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": ids::rfc3339(model.created),
        "size": model.file_bytes,
        "digest": "",
        "details": details(model),
    })
}

/// All models; of those that are not in memory only the name is known.
pub(super) async fn tags(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    let known = |listed: &Listed| match &listed.model {
        Some(model) => entry(model),
        None => json!({"name": listed.name, "model": listed.name, "details": {"format": "gguf"}}),
    };
    let models: Vec<Value> = app.registry.all().await?.iter().map(known).collect();
    Ok(Json(json!({"models": models})))
}

/// The models in memory.
pub(super) async fn ps(State(app): State<Arc<App>>) -> Json {
    let running = |listed: &Listed| {
        let model = listed.model.as_ref()?;
        let mut entry = entry(model);
        let memory = model.engine.info().memory;
        entry["size"] = (memory.weights + memory.kv + memory.arena).into();
        entry["size_vram"] = 0.into();
        entry["context_length"] = model.engine.info().max_context.into();
        entry["expires_at"] = match listed.status {
            Status::Loaded { expires: Some(left), .. } => {
                ids::rfc3339(ids::now().saturating_add(left.as_secs()))
            }
            // Nothing unloads it but the room that another one needs.
            _ => "9999-12-31T23:59:59Z".to_owned(),
        }
        .into();
        Some(entry)
    };
    let models: Vec<Value> = app.registry.listed().iter().filter_map(running).collect();
    Json(json!({"models": models}))
}

#[derive(Debug, Deserialize)]
struct ShowRequest {
    #[serde(alias = "name")]
    model: Option<String>,
    #[serde(rename = "verbose")]
    _verbose: Option<serde::de::IgnoredAny>,
}

pub(super) async fn show(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Json, ApiError> {
    let request: ShowRequest = body.read()?;
    drop(body);
    let model = app.registry.get(request.model.as_deref()).await?;
    let info = model.engine.info();
    let template = model.template().map(|t| t.source()).unwrap_or_default();
    let mut capabilities = vec!["completion"];
    if template.contains("tools") {
        capabilities.push("tools");
    }
    if model.family().reasoning_marks().is_some() {
        capabilities.push("thinking");
    }
    if model.tokenizer.special_ids().fim_pre.is_some() {
        capabilities.push("insert");
    }
    let architecture = info.architecture;
    Ok(Json(json!({
        "modelfile": "",
        "parameters": "",
        "template": template,
        "details": details(&model),
        "model_info": {
            "general.architecture": architecture,
            "general.parameter_count": model.parameters,
            (format!("{architecture}.context_length")): info.trained_context,
            (format!("{architecture}.vocab_size")): info.vocab_size,
        },
        "capabilities": capabilities,
        "modified_at": ids::rfc3339(model.created),
    })))
}

pub(super) async fn version() -> Json {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_people_say_them() {
        assert_eq!(size(1_720_000_000), "1.7B");
        assert_eq!(size(134_515_008), "134.5M");
        assert_eq!(size(2_900), "3K");
    }
}
