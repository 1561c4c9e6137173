//! LoRA adapters of the models: which ones a request means.
//!
//! As vLLM has it, an adapter's name may stand where a model's does: the reply is the model's with the adapter. As llama.cpp's server
//! has it, a field `lora` lists adapters with their scales, and `/lora-adapters` sets those of requests without one. What an
//! adapter is and who uses it is the engine's business.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use hanzo_engine::{AdapterError, AdapterId, AdapterInfo};
use serde::Deserialize;

use crate::error::ApiError;
use crate::generate::blocking;
use crate::model::LoadedModel;
use crate::state::App;

/// Scales of requests that do not say; none at first.
#[derive(Debug, Default)]
pub(crate) struct Scales(Mutex<Vec<(AdapterId, f32)>>);

impl Scales {
    fn get(&self) -> Vec<(AdapterId, f32)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the place of all scales; those that are left out are 0.
    pub(crate) fn set(&self, scales: Vec<(AdapterId, f32)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = scales;
    }

    /// The scale of an adapter.
    pub(crate) fn of(&self, id: AdapterId) -> f32 {
        self.get().iter().find(|(i, _)| *i == id).map_or(0.0, |(_, scale)| *scale)
    }
}

/// The part of a request's body that chooses adapters.
#[derive(Debug, Deserialize)]
pub(crate) struct LoraFields {
    lora: Option<Vec<Entry>>,
}

/// An adapter and its scale.
#[derive(Debug, Deserialize)]
pub(crate) struct Entry {
    id: Which,
    scale: f64,
}

/// How an entry names its adapter.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "an adapter's id, a number, or its name")]
enum Which {
    Number(u64),
    Name(String),
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(id) => write!(f, "{id}"),
            Self::Name(name) => write!(f, "`{name:.200}`"),
        }
    }
}

/// The model that a request means, and the adapters on it.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) model: Arc<LoadedModel>,
    /// What the reply calls the model.
    pub(crate) name: String,
    pub(crate) adapters: Vec<(AdapterId, f32)>,
}

/// Finds the model or adapter of that name.
///
/// # Errors
/// 404 for a name that neither a model nor an adapter has; 400 for adapters that do not exist.
pub(crate) async fn choose(app: &App, name: Option<&str>, fields: LoraFields) -> Result<Choice, ApiError> {
    if let Some(name) = name
        && let Some((model, adapter)) = find(app, name)
    {
        if fields.lora.is_some() {
            let message = format!("`{name:.200}` is an adapter already: name the model, or leave out `lora`");
            return Err(ApiError::at("/lora", message));
        }
        return Ok(Choice { model, name: adapter.name, adapters: vec![(adapter.id, 1.0)] });
    }
    let model = app.registry.get(name).await.map_err(|error| match (error.status, name) {
        (StatusCode::NOT_FOUND, Some(name)) => ApiError::unknown_model(name, &names(app)),
        _ => error,
    })?;
    let adapters = match fields.lora {
        Some(entries) => scales(&model, &entries, "/lora")?,
        None => model.scales.get(),
    };
    Ok(Choice { name: model.name.clone(), model, adapters })
}

/// The adapter of that name, with its model.
pub(crate) fn find(app: &App, name: &str) -> Option<(Arc<LoadedModel>, AdapterInfo)> {
    let with = |model: Arc<LoadedModel>| {
        let adapter = model.engine.adapters().into_iter().find(|a| a.name == name)?;
        Some((model, adapter))
    };
    app.registry.list().into_iter().find_map(with)
}

/// Names of all models and adapters.
fn names(app: &App) -> Vec<String> {
    let of = |model: Arc<LoadedModel>| {
        let adapters = model.engine.adapters().into_iter().map(|a| a.name);
        std::iter::once(model.name.clone()).chain(adapters).collect::<Vec<_>>()
    };
    app.registry.list().into_iter().flat_map(of).collect()
}

/// The adapters that entries name, with their scales; `at` is the entries' place in the body.
///
/// # Errors
/// An adapter that is not loaded, or a scale that cannot be.
pub(crate) fn scales(
    model: &LoadedModel,
    entries: &[Entry],
    at: &str,
) -> Result<Vec<(AdapterId, f32)>, ApiError> {
    let adapters = model.engine.adapters();
    let mut out: Vec<(AdapterId, f32)> = Vec::with_capacity(entries.len().min(adapters.len()));
    for (i, entry) in entries.iter().enumerate() {
        let found = adapters.iter().find(|a| match &entry.id {
            Which::Number(id) => a.id.number() == *id,
            Which::Name(name) => a.name == *name,
        });
        let Some(adapter) = found else {
            let known: Vec<String> =
                adapters.iter().map(|a| format!("{} ({})", a.id.number(), a.name)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message = format!("there is no adapter {}; there is: {known}", entry.id);
            return Err(ApiError::at(format!("{at}/{i}/id"), message));
        };
        if out.iter().any(|(id, _)| *id == adapter.id) {
            let message = format!("adapter {} is there twice", entry.id);
            return Err(ApiError::at(format!("{at}/{i}/id"), message));
        }
        let scale = entry.scale as f32;
        if !scale.is_finite() {
            return Err(ApiError::at(format!("{at}/{i}/scale"), "the scale is out of bounds"));
        }
        out.push((adapter.id, scale));
    }
    out.retain(|(_, scale)| *scale != 0.0);
    Ok(out)
}

/// Loads an adapter from the folder that the server may load from.
///
/// # Errors
/// 403 where there is no such folder or the path leads out of it, 409 for a name that is taken, 400 for a file that will not do.
pub(crate) async fn load(
    app: &App,
    model: Arc<LoadedModel>,
    name: String,
    path: &str,
) -> Result<AdapterInfo, ApiError> {
    let path = permitted(app, path)?;
    check_name(app, &name)?;
    blocking(move || {
        let id = model.engine.load_adapter(&name, &path)?;
        let loaded = model.engine.adapters().into_iter().find(|a| a.id == id);
        loaded.ok_or_else(|| ApiError::new(StatusCode::CONFLICT, format!("`{name}` was unloaded meanwhile")))
    })
    .await?
}

/// The path within the folder that adapters may be loaded from: clients must not read the rest of the disk.
fn permitted(app: &App, path: &str) -> Result<PathBuf, ApiError> {
    let Some(folder) = &app.config.lora_dir else {
        let message = "this server loads no adapters at run time; start it with --lora-dir FOLDER";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    };
    let missing = || {
        let message = format!("there is no `{path:.200}` in the server's folder of adapters");
        ApiError::new(StatusCode::NOT_FOUND, message).with_pointer("/lora_path")
    };
    let folder = folder.canonicalize().map_err(|_| missing())?;
    let path = folder.join(Path::new(path)).canonicalize().map_err(|_| missing())?;
    // One answer for what is elsewhere and for what is not there: neither tells of the rest of the disk.
    if path.starts_with(&folder) && path != folder { Ok(path) } else { Err(missing()) }
}

/// A name that no model has: requests could not tell them apart.
fn check_name(app: &App, name: &str) -> Result<(), ApiError> {
    let taken = |m: &Arc<LoadedModel>| m.name == name || m.aliases.iter().any(|a| a == name);
    if app.registry.list().iter().any(taken) {
        let message = format!("`{name:.200}` is a model's name; give the adapter another");
        return Err(ApiError::new(StatusCode::CONFLICT, message).with_pointer("/lora_name"));
    }
    if find(app, name).is_some() {
        let message = format!("an adapter `{name:.200}` is loaded already; unload it first");
        return Err(ApiError::new(StatusCode::CONFLICT, message).with_pointer("/lora_name"));
    }
    Ok(())
}

/// An adapter's error as clients should see it.
pub(crate) fn error(error: &AdapterError) -> ApiError {
    let status = match error {
        AdapterError::Exists { .. } | AdapterError::TooMany { .. } | AdapterError::Memory { .. } => {
            StatusCode::CONFLICT
        }
        AdapterError::Unknown { .. } => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_REQUEST,
    };
    ApiError::new(status, error.to_string())
}

/// Unloads an adapter; requests that use it go on.
///
/// # Errors
/// 403 where the server may not load at run time, 404 for a name that no adapter has.
pub(crate) fn unload(app: &App, name: &str) -> Result<(), ApiError> {
    if app.config.lora_dir.is_none() {
        let message = "this server unloads no adapters at run time; start it with --lora-dir FOLDER";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    }
    let Some((model, adapter)) = find(app, name) else {
        let message = format!("no adapter `{name:.200}` is loaded");
        return Err(ApiError::new(StatusCode::NOT_FOUND, message).with_pointer("/lora_name"));
    };
    model.engine.unload_adapter(&adapter.name).map_err(ApiError::from)
}
