//! `/completion` and `/infill`.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hanzo_engine::constraint::Grammar;
use hanzo_engine::{Token, TokenLogprob};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::openai::chat::json_schema;
use crate::api::openai::completions::{Given, prompts};
use crate::api::openai::output;
use crate::api::openai::sampling::{Length, MAX_LOGPROBS, MOST, Sampling};
use crate::context::{Notes, RequestId};
use crate::error::{ApiError, Dialect};
use crate::generate::{End, EndReason, Event, Held, Job, Usage, Write, blocking, written};
use crate::json::{JsonBody, within};
use crate::model::LoadedModel;
use crate::respond::Json;
use crate::sse;
use crate::state::App;

/// What both endpoints say beside sampling and length.
#[derive(Debug, Deserialize)]
struct Common {
    model: Option<String>,
    n_predict: Option<i64>,
    stream: Option<bool>,
    n_probs: Option<i64>,
    grammar: Option<String>,
    json_schema: Option<Value>,
    #[serde(rename = "cache_prompt")]
    _cache_prompt: Option<serde::de::IgnoredAny>,
    #[serde(rename = "id_slot")]
    _id_slot: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct CompletionRequest {
    prompt: Value,
}

#[derive(Debug, Deserialize)]
struct InfillRequest {
    input_prefix: String,
    input_suffix: String,
    prompt: Option<String>,
    input_extra: Option<Vec<Extra>>,
}

/// A file beside the one that is filled in.
#[derive(Debug, Deserialize)]
struct Extra {
    text: String,
    filename: Option<String>,
}

/// What is filled in or continued.
enum Wanted {
    After(Value),
    Between(InfillRequest),
}

pub(super) async fn complete(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Response, ApiError> {
    let request: CompletionRequest = body.read()?;
    reply(&app, &id, &notes, Wanted::After(request.prompt), body).await
}

pub(super) async fn infill(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Response, ApiError> {
    let request: InfillRequest = body.read()?;
    reply(&app, &id, &notes, Wanted::Between(request), body).await
}

async fn reply(
    app: &App,
    id: &RequestId,
    notes: &Notes,
    wanted: Wanted,
    mut body: JsonBody,
) -> Result<Response, ApiError> {
    let (common, sampling, length): (Common, Sampling, Length) = (body.read()?, body.read()?, body.read()?);
    drop(body);
    let model = app.registry.get(common.model.as_deref()).await?;
    let stream = common.stream.unwrap_or(false);
    let for_job = Arc::clone(&model);
    let job = blocking(move || job(wanted, &common, &sampling, &length, for_job)).await??;
    let generation = job.start(app, id, notes).await?;
    if stream {
        return Ok(sse::response(written([generation], Writer(model)), app.config.limits.keep_alive));
    }
    let (replies, _) = generation.collect().await?;
    let reply = replies.into_iter().next().unwrap_or_default();
    let mut out = reply.end.as_ref().map_or_else(|| json!({}), |end| last(end, &model));
    out["content"] = reply.content.into();
    out["tokens"] = json!(reply.tokens.iter().map(|t| t.id).collect::<Vec<_>>());
    let probabilities: Vec<Value> = reply.tokens.iter().filter_map(|t| probabilities(&model, t)).collect();
    if !probabilities.is_empty() {
        out["completion_probabilities"] = probabilities.into();
    }
    Ok(Json(out).into_response())
}

fn job(
    wanted: Wanted,
    common: &Common,
    sampling: &Sampling,
    length: &Length,
    model: Arc<LoadedModel>,
) -> Result<Job, ApiError> {
    let prompt = match wanted {
        Wanted::After(prompt) => {
            let (at, given) = prompts(prompt, "/prompt", &model, 1)?
                .pop()
                .ok_or_else(|| ApiError::at("/prompt", "the prompt is empty"))?;
            given.ids(&model).map_err(|e| ApiError::at(at, e.to_string()))?
        }
        Wanted::Between(infill) => {
            let extra = infill.input_extra.iter().flatten().map(|e| {
                let name = e.filename.as_deref().unwrap_or("tmp");
                format!("{name}\n{}\n", e.text)
            });
            let prompt = infill.prompt.as_deref().unwrap_or_default();
            let before = format!("{}{}{prompt}", extra.collect::<String>(), infill.input_prefix);
            let place = |mut e: ApiError| {
                if e.pointer.as_deref() == Some("/suffix") {
                    e.pointer = Some("/input_suffix".to_owned());
                }
                e
            };
            Given::Text(before).around(&infill.input_suffix, &model).map_err(place)?
        }
    };
    let mut params = sampling.params(&model)?;
    params.logprobs = within("n_probs", common.n_probs, 0, MAX_LOGPROBS)?.filter(|&n| n > 0);
    let grammar = match (&common.grammar, &common.json_schema) {
        (Some(grammar), None) if !grammar.is_empty() => Some(Grammar::Gbnf(grammar.clone())),
        (None | Some(_), None) => None,
        (None, Some(schema)) => Some(json_schema(schema.clone())),
        (Some(_), Some(_)) => return Err(ApiError::at("/grammar", "a grammar or a schema, not both")),
    };
    let mut job = Job { sampling: params, grammar: grammar.map(Held::Whole), ..Job::new(model, prompt) };
    length.apply(&mut job)?;
    if job.n != 1 {
        return Err(ApiError::at("/n", "one reply a request here; /v1/completions gives several"));
    }
    job.max_tokens = match common.n_predict {
        // As llama.cpp has it: −1 is without bound, −2 fills the context.
        None | Some(-2 | -1) => None,
        n => within("n_predict", n, 1, MOST)?,
    };
    Ok(job)
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Counts, times and the reason of the end.
fn last(end: &End, model: &LoadedModel) -> Value {
    let f = &end.finish;
    let kind = match (end.reason, &end.stop) {
        (EndReason::Length, _) => "limit",
        (_, Some(_)) => "word",
        (_, None) => "eos",
    };
    let computed = f.prompt_tokens.saturating_sub(f.cached_tokens);
    let rate = |n: usize, d: Duration| n as f64 / d.as_secs_f64().max(1e-9);
    json!({
        "content": "",
        "tokens": [],
        "index": 0,
        "id_slot": 0,
        "stop": true,
        "model": model.name,
        "tokens_predicted": f.generated_tokens,
        "tokens_evaluated": f.prompt_tokens,
        "tokens_cached": f.cached_tokens,
        "truncated": false,
        "stop_type": kind,
        "stopping_word": end.stop.as_deref().unwrap_or_default(),
        "timings": {
            "cache_n": f.cached_tokens,
            "prompt_n": computed,
            "prompt_ms": ms(f.prompt_time),
            "prompt_per_second": rate(computed, f.prompt_time),
            "predicted_n": f.generated_tokens,
            "predicted_ms": ms(f.generation_time),
            "predicted_per_second": rate(f.generated_tokens, f.generation_time),
        },
    })
}

fn probabilities(model: &LoadedModel, token: &Token) -> Option<Value> {
    let (own, others) = token.logprobs.as_ref()?;
    let entry = |t: &TokenLogprob| {
        json!({
            "id": t.id,
            "token": output::token_text(&model.tokenizer, t.id),
            "bytes": model.tokenizer.token_bytes(t.id).unwrap_or_default(),
            "logprob": output::finite(t.logprob),
        })
    };
    let mut out = entry(own);
    out["top_logprobs"] = others.iter().map(entry).collect();
    Some(out)
}

/// Writes the chunks of a streamed reply; the last is told by its `stop`, and no mark follows it.
struct Writer(Arc<LoadedModel>);

impl Write for Writer {
    fn event(&mut self, event: Event, out: &mut Vec<Bytes>) {
        let (model, text) = (&self.0, event.text());
        let probability = event.token.as_ref().and_then(|t| probabilities(model, t));
        if !text.is_empty() || probability.is_some() {
            let ids: Vec<u32> = event.token.iter().map(|t| t.id).collect();
            let mut chunk = json!({"index": 0, "content": text, "tokens": ids, "stop": false});
            if let Some(probability) = probability {
                chunk["completion_probabilities"] = json!([probability]);
            }
            out.push(sse::data(&chunk));
        }
        out.extend(event.end.as_ref().map(|end| sse::data(&last(end, model))));
    }

    fn end(&mut self, _usage: &Usage, _out: &mut Vec<Bytes>) {}

    fn failed(&mut self, error: &ApiError, out: &mut Vec<Bytes>) {
        out.push(sse::data(&error.body(Dialect::OpenAi)));
    }
}
