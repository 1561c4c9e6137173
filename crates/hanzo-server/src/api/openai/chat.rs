//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hanzo_engine::constraint::Grammar;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::sampling::{Length, MAX_LOGPROBS, MOST, Sampling};
use super::tools::ToolUse;
use super::{messages, output};
use crate::api::conversation::Chat;
use crate::context::{Notes, RequestId};
use crate::error::{ApiError, Dialect};
use crate::generate::{Event, Job, Part, Reply, Usage, Write, blocking, written};
use crate::json::{JsonBody, within};
use crate::lora::{self, Choice, LoraFields};
use crate::model::LoadedModel;
use crate::respond::Json;
use crate::state::App;
use crate::{ids, sse};

/// What a request says beside sampling and length.
#[derive(Debug, Deserialize)]
struct ChatRequest {
    model: Option<String>,
    messages: Vec<Value>,
    #[serde(default)]
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_completion_tokens: Option<i64>,
    max_tokens: Option<i64>,
    logprobs: Option<bool>,
    top_logprobs: Option<i64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<ResponseFormat>,
    reasoning_effort: Option<String>,
    /// Most tokens of reasoning; also as `thinking_budget`.
    #[serde(alias = "thinking_budget")]
    reasoning_budget: Option<i64>,
    enable_thinking: Option<bool>,
    chat_template_kwargs: Option<Map<String, Value>>,
    // What OpenAI's clients send for OpenAI's own bookkeeping.
    #[serde(rename = "user")]
    _user: Option<serde::de::IgnoredAny>,
    #[serde(rename = "metadata")]
    _metadata: Option<serde::de::IgnoredAny>,
    #[serde(rename = "store")]
    _store: Option<serde::de::IgnoredAny>,
}

/// What a stream shall have beside the reply.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: Option<bool>,
}

/// What the reply must be.
#[derive(Debug, Deserialize)]
pub(crate) struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<JsonSchema>,
    /// llama.cpp's place for it.
    schema: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct JsonSchema {
    schema: Option<Value>,
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    /// A schema is always kept to.
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

impl ResponseFormat {
    /// The grammar that it means; `None` for plain text.
    pub(crate) fn grammar(&self) -> Result<Option<Grammar>, ApiError> {
        match self.kind.as_str() {
            "text" => Ok(None),
            "json_object" if self.schema.is_none() => Ok(Some(json_schema(json!({"type": "object"})))),
            "json_object" | "json_schema" => {
                let schema =
                    self.json_schema.as_ref().and_then(|s| s.schema.as_ref()).or(self.schema.as_ref());
                match schema {
                    Some(schema @ Value::Object(_)) => Ok(Some(json_schema(schema.clone()))),
                    _ => Err(ApiError::at(
                        "/response_format/json_schema/schema",
                        "expected a JSON schema, an object",
                    )),
                }
            }
            _ => Err(ApiError::at("/response_format/type", "expected text, json_object or json_schema")),
        }
    }
}

/// What a reply is that fits a schema.
pub(crate) fn json_schema(schema: Value) -> Grammar {
    Grammar::JsonSchema(schema.to_string())
}

/// How the reply is written.
#[derive(Clone, Debug)]
struct Manner {
    id: String,
    created: u64,
    model: Arc<LoadedModel>,
    /// What the request called the model.
    name: String,
    usage: bool,
    logprobs: bool,
    n: usize,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Response, ApiError> {
    let request: ChatRequest = body.read()?;
    let (sampling, length): (Sampling, Length) = (body.read()?, body.read()?);
    let lora: LoraFields = body.read()?;
    drop(body);
    let Choice { model, name, adapters } = lora::choose(&app, request.model.as_deref(), lora).await?;
    let stream = request.stream.unwrap_or(false);
    let usage = request.stream_options.is_some_and(|o| o.include_usage.unwrap_or(false));
    let most_tools = app.config.limits.tools;
    let (for_job, for_notes) = (Arc::clone(&model), notes.clone());
    let job = blocking(move || job(request, &sampling, length, for_job, most_tools, &for_notes)).await??;
    let job = Job { adapters, ..job };
    let manner = Manner {
        id: ids::unique("chatcmpl-"),
        created: ids::now(),
        model,
        name,
        usage,
        logprobs: job.sampling.logprobs.is_some(),
        n: job.n,
    };
    let generation = job.start(&app, &id, &notes).await?;
    if stream {
        return Ok(sse::response(written([generation], manner), app.config.limits.keep_alive));
    }
    let (replies, usage) = generation.collect().await?;
    Ok(Json(whole(&replies, &usage, &manner)).into_response())
}

/// The request in the engine's terms.
fn job(
    request: ChatRequest,
    sampling: &Sampling,
    length: Length,
    model: Arc<LoadedModel>,
    most_tools: usize,
    notes: &Notes,
) -> Result<Job, ApiError> {
    let messages = messages::check(request.messages)?;
    let tools =
        ToolUse::check(request.tools, request.tool_choice.as_ref(), request.parallel_tool_calls, most_tools)?;
    let format = request.response_format.as_ref().map(ResponseFormat::grammar).transpose()?.flatten();
    let kwargs = template_kwargs(
        request.chat_template_kwargs,
        request.reasoning_effort.as_deref(),
        request.enable_thinking,
    )?;
    let mut params = sampling.params(&model)?;
    params.logprobs = match (request.logprobs.unwrap_or(false), request.top_logprobs) {
        (true, n) => Some(within("top_logprobs", n, 0, MAX_LOGPROBS)?.unwrap_or(0)),
        (false, None | Some(0)) => None,
        (false, Some(_)) => {
            return Err(ApiError::at("/top_logprobs", "`top_logprobs` needs `logprobs: true`"));
        }
    };
    let max = within("max_completion_tokens", request.max_completion_tokens, 1, MOST)?;
    let chat = Chat {
        messages,
        tools,
        format,
        kwargs,
        sampling: params,
        length,
        max_tokens: max.or(within("max_tokens", request.max_tokens, 1, MOST)?),
        reasoning_budget: within("reasoning_budget", request.reasoning_budget, 0, MOST)?,
    };
    chat.job(model, notes)
}

/// The template's variables that a request sets.
pub(crate) fn template_kwargs(
    kwargs: Option<Map<String, Value>>,
    effort: Option<&str>,
    thinking: Option<bool>,
) -> Result<Map<String, Value>, ApiError> {
    let mut kwargs = kwargs.unwrap_or_default();
    let mut set = |name: &str, value: Value| {
        kwargs.entry(name).or_insert(value);
    };
    match effort {
        None => {}
        Some("none" | "minimal") => {
            set("enable_thinking", false.into());
            set("thinking", false.into());
            set("reasoning_effort", "low".into());
        }
        Some(effort @ ("low" | "medium" | "high" | "xhigh")) => {
            set("enable_thinking", true.into());
            set("thinking", true.into());
            set("reasoning_effort", effort.replace("xhigh", "high").into());
        }
        Some(_) => {
            let message = "expected none, minimal, low, medium, high or xhigh";
            return Err(ApiError::at("/reasoning_effort", message));
        }
    }
    if let Some(on) = thinking {
        set("enable_thinking", on.into());
        set("thinking", on.into());
    }
    Ok(kwargs)
}

fn call(call: &crate::generate::Call) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

/// A whole response.
fn whole(replies: &[Reply], usage: &Usage, manner: &Manner) -> Value {
    let choice = |(index, reply): (usize, &Reply)| {
        let mut message = json!({"role": "assistant", "content": reply.content, "refusal": null});
        if let Some(fields) = message.as_object_mut() {
            if !reply.reasoning.is_empty() {
                fields.insert("reasoning_content".to_owned(), reply.reasoning.as_str().into());
            }
            if !reply.calls.is_empty() {
                fields.insert("tool_calls".to_owned(), reply.calls.iter().map(call).collect());
                if reply.content.is_empty() {
                    fields.insert("content".to_owned(), Value::Null);
                }
            }
        }
        let logprobs = manner.logprobs.then(|| {
            let entry = |t| output::logprobs_entry(&manner.model.tokenizer, t);
            json!({"content": reply.tokens.iter().filter_map(entry).collect::<Vec<_>>(), "refusal": null})
        });
        json!({
            "index": index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": reply.end.as_ref().map(output::finish_reason),
            "stop_reason": reply.end.as_ref().and_then(|end| end.stop.as_deref()),
        })
    };
    json!({
        "id": manner.id,
        "object": "chat.completion",
        "created": manner.created,
        "model": manner.name,
        "choices": replies.iter().enumerate().map(choice).collect::<Vec<_>>(),
        "usage": output::usage(usage),
    })
}

/// A message of a stream. One is written a token, so its text is not copied on the way.
#[derive(Serialize)]
struct Chunk<'m> {
    id: &'m str,
    object: &'static str,
    created: u64,
    model: &'m str,
    choices: &'m [ChunkChoice<'m>],
    /// `null` in all messages but the last, if it is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

#[derive(Serialize)]
struct ChunkChoice<'m> {
    index: usize,
    delta: Delta<'m>,
    logprobs: Value,
    finish_reason: Option<&'m str>,
}

#[derive(Default, Serialize)]
struct Delta<'m> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[Value; 1]>,
}

impl Manner {
    fn message(&self, choices: &[ChunkChoice<'_>], usage: Value) -> Bytes {
        sse::data(&Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.name,
            choices,
            usage: self.usage.then_some(usage),
        })
    }

    fn chunk(&self, index: usize, delta: Delta<'_>, logprobs: Value, finish: Option<&str>) -> Bytes {
        self.message(&[ChunkChoice { index, delta, logprobs, finish_reason: finish }], Value::Null)
    }
}

impl Write for Manner {
    fn begin(&mut self, out: &mut Vec<Bytes>) {
        let role = || Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
        out.extend((0..self.n).map(|i| self.chunk(i, role(), Value::Null, None)));
    }

    /// The log-probabilities of an event go with its first chunk.
    fn event(&mut self, event: Event, out: &mut Vec<Bytes>) {
        let entry = event.token.as_ref().and_then(|t| output::logprobs_entry(&self.model.tokenizer, t));
        let mut logprobs = entry.map_or(Value::Null, |entry| json!({"content": [entry], "refusal": null}));
        let mut write = |delta: Delta<'_>, finish: Option<&str>| {
            out.push(self.chunk(event.choice, delta, std::mem::take(&mut logprobs), finish));
        };
        for part in &event.parts {
            match part {
                Part::Reasoning(text) => {
                    write(Delta { reasoning_content: Some(text), ..Delta::default() }, None)
                }
                Part::Content(text) => write(Delta { content: Some(text), ..Delta::default() }, None),
                Part::Call(c) => {
                    let mut start = call(c);
                    start["index"] = c.index.into();
                    write(Delta { tool_calls: Some([start]), ..Delta::default() }, None);
                }
                Part::Arguments { call, text } => {
                    let more = json!({"index": call, "function": {"arguments": text}});
                    write(Delta { tool_calls: Some([more]), ..Delta::default() }, None);
                }
            }
        }
        match &event.end {
            Some(end) => write(Delta::default(), Some(output::finish_reason(end))),
            None if event.parts.is_empty() && event.token.as_ref().is_some_and(|t| t.logprobs.is_some()) => {
                write(Delta { content: Some(""), ..Delta::default() }, None);
            }
            None => {}
        }
    }

    fn end(&mut self, usage: &Usage, out: &mut Vec<Bytes>) {
        if self.usage {
            out.push(self.message(&[], output::usage(usage)));
        }
        out.push(sse::done());
    }

    fn failed(&mut self, error: &ApiError, out: &mut Vec<Bytes>) {
        out.push(sse::data(&error.body(Dialect::OpenAi)));
    }
}
