//! `options`, `format` and `think` of a request.

use hanzo_engine::constraint::Grammar;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::openai::chat::json_schema;
use crate::api::openai::sampling::{Length, MOST, Sampling};
use crate::context::Notes;
use crate::error::ApiError;
use crate::json::OneOrMany;
use crate::model::LoadedModel;

/// Options that say how the model is loaded, which is the server's to say.
const LOADING: [&str; 9] = [
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "use_mmap",
    "use_mlock",
    "num_keep",
    "numa",
];

#[derive(Debug, Default, Deserialize)]
struct More {
    num_predict: Option<i64>,
    stop: Option<OneOrMany<String>>,
}

/// What options come to.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) sampling: hanzo_engine::SamplingParams,
    pub(super) length: Length,
    /// `None` for as many as the context holds.
    pub(super) max_tokens: Option<usize>,
}

/// Reads options; what has no meaning here is told in the response's headers.
///
/// # Errors
/// What is out of bounds, with its pointer.
pub(super) fn read(
    options: Option<Map<String, Value>>,
    model: &LoadedModel,
    notes: &Notes,
) -> Result<Options, ApiError> {
    let options = options.unwrap_or_default();
    let loading: Vec<_> = LOADING.iter().filter(|name| options.contains_key(**name)).copied().collect();
    if !loading.is_empty() {
        notes.warn(format!("set when the server starts, not by a request: {}", loading.join(", ")));
    }
    let options = Value::Object(options);
    let inside = |e: ApiError| {
        let pointer = format!("/options{}", e.pointer.as_deref().unwrap_or_default());
        e.with_pointer(pointer)
    };
    let sampling: Sampling = part(&options)?;
    let more: More = part(&options)?;
    let max_tokens = match more.num_predict {
        // As Ollama has it: −1 is without bound, −2 fills the context.
        None | Some(-2 | -1) => None,
        n => crate::json::within("num_predict", n, 1, MOST).map_err(inside)?,
    };
    Ok(Options {
        sampling: sampling.params(model).map_err(inside)?,
        length: Length { stop: more.stop, ..Length::default() },
        max_tokens,
    })
}

fn part<T: serde::de::DeserializeOwned>(options: &Value) -> Result<T, ApiError> {
    let mut track = serde_path_to_error::Track::new();
    let value = T::deserialize(serde_path_to_error::Deserializer::new(options, &mut track));
    value.map_err(|e| {
        let path = crate::json::pointer(&track.path());
        ApiError::at(format!("/options{path}"), e.to_string())
    })
}

/// `"json"`, or a schema.
///
/// # Errors
/// For anything else.
pub(super) fn format(format: Option<&Value>) -> Result<Option<Grammar>, ApiError> {
    match format {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) if word.is_empty() => Ok(None),
        Some(Value::String(word)) if word == "json" => Ok(Some(json_schema(json!({"type": "object"})))),
        Some(schema @ Value::Object(_)) => Ok(Some(json_schema(schema.clone()))),
        Some(_) => Err(ApiError::at("/format", "expected \"json\" or a JSON schema, an object")),
    }
}

/// Whether to reason, and how much: a boolean, or a level.
///
/// # Errors
/// For anything else.
pub(super) fn think(think: Option<&Value>) -> Result<(Option<&str>, Option<bool>), ApiError> {
    match think {
        None | Some(Value::Null) => Ok((None, None)),
        Some(Value::Bool(on)) => Ok((None, Some(*on))),
        Some(Value::String(level)) if matches!(level.as_str(), "low" | "medium" | "high") => {
            Ok((Some(level), None))
        }
        Some(_) => Err(ApiError::at("/think", "expected true, false, low, medium or high")),
    }
}
