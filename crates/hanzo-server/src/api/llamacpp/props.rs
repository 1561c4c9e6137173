//! What the server is set to, and what its places do.

use std::sync::Arc;

use axum::extract::State;
use hanzo_engine::{SamplingParams, Stage};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::model::token_text;
use crate::respond::Json;
use crate::state::App;

/// The settings of a request that sets none.
fn settings() -> Value {
    let p = SamplingParams::default();
    json!({
        "temperature": p.temperature,
        "top_k": p.top_k,
        "top_p": p.top_p,
        "min_p": p.min_p,
        "typical_p": p.typical_p,
        "top_n_sigma": p.top_n_sigma,
        "xtc_probability": p.xtc_probability,
        "xtc_threshold": p.xtc_threshold,
        "repeat_penalty": p.repeat_penalty,
        "repeat_last_n": p.penalty_last_n,
        "presence_penalty": p.presence_penalty,
        "frequency_penalty": p.frequency_penalty,
        "dry_multiplier": p.dry_multiplier,
        "dry_base": p.dry_base,
        "dry_allowed_length": p.dry_allowed_length,
        "mirostat_tau": p.mirostat_tau,
        "mirostat_eta": p.mirostat_eta,
        "samplers": Stage::DEFAULT_ORDER.iter().map(|s| s.name()).collect::<Vec<_>>(),
    })
}

pub(super) async fn props(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    let model = app.registry.get(None).await?;
    let (info, tokenizer) = (model.engine.info(), &model.tokenizer);
    Ok(Json(json!({
        "default_generation_settings": {"n_ctx": info.max_context, "params": settings()},
        "total_slots": model.engine.max_sequences(),
        "model_alias": model.name,
        "model_path": model.name,
        "modalities": {"vision": false, "audio": false},
        "chat_template": model.template().map(|t| t.source()).unwrap_or_default(),
        "bos_token": token_text(tokenizer, tokenizer.bos()),
        "eos_token": token_text(tokenizer, tokenizer.eos()),
        "build_info": format!("hanzo {}", env!("CARGO_PKG_VERSION")),
        "is_sleeping": false,
    })))
}

/// The places of the default model: the first so many are taken, as many as sequences run.
pub(super) async fn slots(State(app): State<Arc<App>>) -> Result<Json, ApiError> {
    let model = app.registry.get(None).await?;
    let running = model.engine.metrics().running;
    let slot = |id: usize| json!({"id": id, "n_ctx": model.engine.info().max_context, "is_processing": id < running});
    Ok(Json((0..model.engine.max_sequences()).map(slot).collect()))
}
