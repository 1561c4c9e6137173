//! `/api/generate`: one prompt, in the model's chat format unless `raw`.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hanzo_text::chat::ChatMessage;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::reply::{self, Kind, Manner};
use super::{keep_alive, options};
use crate::api::conversation::Chat;
use crate::api::openai::chat::template_kwargs;
use crate::api::openai::completions::Given;
use crate::context::{Notes, RequestId};
use crate::error::ApiError;
use crate::generate::{Held, Job, blocking};
use crate::json::JsonBody;
use crate::model::LoadedModel;
use crate::registry::Keep;
use crate::respond::Json;
use crate::state::App;

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    prompt: Option<String>,
    suffix: Option<String>,
    system: Option<String>,
    template: Option<String>,
    images: Option<Vec<Value>>,
    context: Option<Vec<Value>>,
    raw: Option<bool>,
    format: Option<Value>,
    options: Option<Map<String, Value>>,
    stream: Option<bool>,
    think: Option<Value>,
    keep_alive: Option<Value>,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let request: Request = body.read()?;
    drop(body);
    let keep = keep_alive::read(request.keep_alive.as_ref())?;
    let nothing = request.prompt.as_ref().is_none_or(String::is_empty) && request.suffix.is_none();
    if nothing && keep.is_some_and(Keep::is_over) {
        return reply::unload(&app, request.model.as_deref(), Kind::Generate).await;
    }
    let model = app.registry.get(request.model.as_deref()).await?;
    keep_alive::apply(&app.registry, &model.name, keep, &notes);
    let manner = Manner { model: model.name.clone(), kind: Kind::Generate, began };
    if nothing {
        return Ok(Json(manner.loaded()).into_response());
    }
    let stream = request.stream.unwrap_or(true);
    let for_notes = notes.clone();
    let job = blocking(move || job(request, model, &for_notes)).await??;
    reply::answer(&app, &id, &notes, job, stream, manner).await
}

fn job(request: Request, model: Arc<LoadedModel>, notes: &Notes) -> Result<Job, ApiError> {
    if request.images.is_some_and(|images| !images.is_empty()) {
        return Err(ApiError::at("/images", "images cannot be read: this server takes text only"));
    }
    if request.template.is_some() {
        let message = "templates are set when the server starts; send the text you want with `raw`: true";
        return Err(ApiError::at("/template", message));
    }
    if request.context.is_some_and(|context| !context.is_empty()) {
        return Err(ApiError::at("/context", "`context` is not kept: send the conversation to /api/chat"));
    }
    let options = options::read(request.options, &model, notes)?;
    let format = options::format(request.format.as_ref())?;
    let (effort, thinking) = options::think(request.think.as_ref())?;
    let prompt = request.prompt.unwrap_or_default();
    // A model without a chat format continues the text.
    let raw = request.raw.unwrap_or(false) || model.template().is_none();
    let prompt = match &request.suffix {
        Some(suffix) => Some(Given::Text(prompt.clone()).around(suffix, &model)?),
        None if raw => {
            let made = Given::Text(prompt.clone()).ids(&model);
            Some(made.map_err(|e| ApiError::at("/prompt", e.to_string()))?)
        }
        None => None,
    }
    .ok_or(prompt);
    match prompt {
        Ok(ids) => {
            let mut job =
                Job { sampling: options.sampling, grammar: format.map(Held::Whole), ..Job::new(model, ids) };
            options.length.apply(&mut job)?;
            job.max_tokens = options.max_tokens;
            Ok(job)
        }
        Err(text) => {
            let system = request.system.filter(|s| !s.is_empty()).map(|s| ChatMessage::system(&s));
            let chat = Chat {
                messages: system.into_iter().chain([ChatMessage::user(&text)]).collect(),
                tools: None,
                format,
                kwargs: template_kwargs(None, effort, thinking)?,
                sampling: options.sampling,
                length: options.length,
                max_tokens: options.max_tokens,
                reasoning_budget: None,
            };
            chat.job(model, notes)
        }
    }
}
