//! `/v1/completions`: plain text, continued or filled in.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::try_join_all;
use hanzo_engine::{SamplingParams, Token, TokenLogprob, TokenScore};
use hanzo_text::detokenize::DecodeOptions;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::chat::{ResponseFormat, StreamOptions};
use super::output;
use super::sampling::{Length, MAX_LOGPROBS, MOST, Sampling};
use crate::context::{Notes, RequestId};
use crate::error::{ApiError, Dialect};
use crate::generate::{Event, Generation, Held, Job, Reply, Usage, Write, blocking, written};
use crate::json::{JsonBody, within};
use crate::lora::{self, LoraFields};
use crate::model::{LoadedModel, Prompt, TextError};
use crate::respond::Json;
use crate::state::App;
use crate::{ids, score, sse};

/// Tokens of a reply where the request does not say, as OpenAI has it.
const DEFAULT_TOKENS: usize = 16;

/// What a request says beside sampling and length.
#[derive(Debug, Deserialize)]
struct CompletionRequest {
    model: Option<String>,
    prompt: Value,
    suffix: Option<String>,
    echo: Option<bool>,
    logprobs: Option<i64>,
    max_tokens: Option<i64>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    response_format: Option<ResponseFormat>,
    #[serde(rename = "user")]
    _user: Option<serde::de::IgnoredAny>,
}

/// What comes before a prompt's choices.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The prompt, if it is echoed.
    echo: String,
    /// Its tokens, if their log-probabilities are wanted, with their scores from the second on.
    scored: Vec<u32>,
    scores: Vec<TokenScore>,
}

/// A request in the engine's terms.
struct Work {
    jobs: Vec<Job>,
    places: Vec<Place>,
    /// The prompt alone is wanted.
    echo_only: bool,
    /// Alternatives of a token that are told.
    alternatives: usize,
}

/// How the replies are written.
struct Manner {
    id: String,
    created: u64,
    model: Arc<LoadedModel>,
    /// What the request called the model.
    name: String,
    places: Vec<Place>,
    /// Choices of a prompt.
    n: usize,
    logprobs: bool,
    usage: bool,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    Extension(notes): Extension<Notes>,
    mut body: JsonBody,
) -> Result<Response, ApiError> {
    let request: CompletionRequest = body.read()?;
    let (sampling, length): (Sampling, Length) = (body.read()?, body.read()?);
    let lora: LoraFields = body.read()?;
    drop(body);
    let lora::Choice { model, name, adapters } = lora::choose(&app, request.model.as_deref(), lora).await?;
    let stream = request.stream.unwrap_or(false);
    let usage = request.stream_options.is_some_and(|o| o.include_usage.unwrap_or(false));
    let (most, for_work) = (app.config.limits.prompts, Arc::clone(&model));
    let work = blocking(move || work(request, &sampling, &length, &for_work, most)).await??;
    let (n, logprobs) = work.jobs.first().map_or((1, false), |j| (j.n, j.sampling.logprobs.is_some()));
    let mut places = work.places;
    for place in places.iter_mut().filter(|p| !p.scored.is_empty()) {
        place.scores = score::prompt(&model, place.scored.clone(), work.alternatives).await?;
    }
    let manner =
        Manner { id: ids::unique("cmpl-"), created: ids::now(), model, name, places, n, logprobs, usage };
    let mut generations = Vec::new();
    for job in work.jobs.into_iter().filter(|_| !work.echo_only) {
        let job = Job { adapters: adapters.clone(), ..job };
        generations.push(job.start(&app, &id, &notes).await?);
    }
    if stream {
        let writer = Writer::new(manner, work.echo_only);
        return Ok(sse::response(written(generations, writer), app.config.limits.keep_alive));
    }
    let replies = try_join_all(generations.into_iter().map(Generation::collect)).await?;
    Ok(Json(manner.whole(&replies)).into_response())
}

fn work(
    request: CompletionRequest,
    sampling: &Sampling,
    length: &Length,
    model: &Arc<LoadedModel>,
    most_prompts: usize,
) -> Result<Work, ApiError> {
    let mut params = sampling.params(model)?;
    params.logprobs = within("logprobs", request.logprobs, 0, MAX_LOGPROBS)?;
    let echo = request.echo.unwrap_or(false);
    let grammar = request.response_format.as_ref().map(ResponseFormat::grammar).transpose()?.flatten();
    let least = i64::from(!echo);
    let max_tokens = within("max_tokens", request.max_tokens, least, MOST)?.unwrap_or(DEFAULT_TOKENS);
    let prompts = prompts(request.prompt, "/prompt", model, most_prompts)?;
    let (mut jobs, mut places) = (Vec::new(), Vec::new());
    for (i, (at, prompt)) in prompts.into_iter().enumerate() {
        let echo = if echo { prompt.text(model) } else { String::new() };
        let prompt = match &request.suffix {
            Some(suffix) => prompt.around(suffix, model).map_err(|e| e.or_pointer(&at))?,
            None => prompt.ids(model).map_err(|e| ApiError::at(at, e.to_string()))?,
        };
        let scored =
            if params.logprobs.is_some() && !echo.is_empty() { prompt.ids.clone() } else { Vec::new() };
        places.push(Place { echo, scored, scores: Vec::new() });
        // Each prompt draws from its own stream.
        let seed = params.seed.wrapping_add(i as u64);
        let sampling = SamplingParams { seed, ..params.clone() };
        let mut job = Job {
            sampling,
            grammar: grammar.clone().map(Held::Whole),
            ..Job::new(Arc::clone(model), prompt)
        };
        length.apply(&mut job)?;
        job.max_tokens = Some(max_tokens);
        jobs.push(job);
    }
    Ok(Work { jobs, places, echo_only: max_tokens == 0, alternatives: params.logprobs.unwrap_or(0) })
}

/// A prompt as it came.
pub(crate) enum Given {
    Text(String),
    Ids(Vec<u32>),
}

impl Given {
    fn text(&self, model: &LoadedModel) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Ids(ids) => model.tokenizer.decode(ids, DecodeOptions::default()).unwrap_or_default(),
        }
    }

    pub(crate) fn ids(self, model: &LoadedModel) -> Result<Prompt, TextError> {
        match self {
            Self::Text(text) => model.text_prompt(&text),
            Self::Ids(ids) => Ok(Prompt::of_ids(ids)),
        }
    }

    /// The prompt for what stands between this and a suffix.
    pub(crate) fn around(self, suffix: &str, model: &LoadedModel) -> Result<Prompt, ApiError> {
        let special = model.tokenizer.special_ids();
        let (Some(pre), Some(suf), Some(mid)) = (special.fim_pre, special.fim_suf, special.fim_mid) else {
            let message = "the model cannot fill in: its vocabulary has no tokens for it; leave out `suffix`";
            return Err(ApiError::at("/suffix", message));
        };
        let prefix = self.text(model);
        let plain = |text: &str, at: &str| model.plain_ids(text).map_err(|e| ApiError::at(at, e.to_string()));
        let mut ids: Vec<u32> =
            model.tokenizer.bos().filter(|_| model.tokenizer.adds_bos()).into_iter().collect();
        ids.push(pre);
        ids.extend(plain(&prefix, "/prompt")?);
        ids.push(suf);
        ids.extend(plain(suffix, "/suffix")?);
        ids.push(mid);
        Ok(Prompt::of_ids(ids))
    }
}

/// The prompts of a request with their places: a text, texts, token ids, or lists of these.
/// Faults name places below `root`.
pub(crate) fn prompts(
    prompt: Value,
    root: &str,
    model: &LoadedModel,
    most: usize,
) -> Result<Vec<(String, Given)>, ApiError> {
    let vocab_size = model.engine.info().vocab_size;
    let wrong = |at: &str| ApiError::at(at, "expected a string, an array of strings, or token ids");
    let ids = |items: &[Value], at: &str| -> Result<Given, ApiError> {
        let id = |(i, item): (usize, &Value)| match item.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(id) if (id as usize) < vocab_size => Ok(id),
            _ => Err(ApiError::at(
                format!("{at}/{i}"),
                format!("{item:.40} is no token id; they are 0 to {}", vocab_size - 1),
            )),
        };
        if items.is_empty() {
            return Err(ApiError::at(at, "the prompt is empty"));
        }
        items.iter().enumerate().map(id).collect::<Result<_, _>>().map(Given::Ids)
    };
    let items = match prompt {
        Value::String(text) => return Ok(vec![(root.to_owned(), Given::Text(text))]),
        Value::Array(items) => items,
        _ => return Err(wrong(root)),
    };
    match items.first() {
        Some(Value::Number(_)) | None => return Ok(vec![(root.to_owned(), ids(&items, root)?)]),
        _ => {}
    }
    if items.len() > most {
        let message = format!("{} texts were given; at most {most} are possible", items.len());
        return Err(ApiError::at(root, message));
    }
    let one = |(i, item): (usize, Value)| {
        let at = format!("{root}/{i}");
        let given = match item {
            Value::String(text) => Given::Text(text),
            Value::Array(items) => ids(&items, &at)?,
            _ => return Err(wrong(&at)),
        };
        Ok((at, given))
    };
    items.into_iter().enumerate().map(one).collect()
}

/// Log-probabilities as completions have them: four lists, one entry a token.
#[derive(Debug, Default)]
struct Lists {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<Map<String, Value>>>,
    text_offset: Vec<usize>,
    /// Characters so far.
    offset: usize,
}

impl Lists {
    fn push(&mut self, model: &LoadedModel, id: u32, logprob: Option<f32>, top: Option<&[TokenLogprob]>) {
        let text = output::token_text(&model.tokenizer, id);
        let named =
            |t: &TokenLogprob| (output::token_text(&model.tokenizer, t.id), output::finite(t.logprob).into());
        self.text_offset.push(self.offset);
        self.offset += text.chars().count();
        self.tokens.push(text);
        self.token_logprobs.push(logprob.map(output::finite));
        self.top_logprobs.push(top.map(|top| top.iter().map(named).collect()));
    }

    fn reply(&mut self, model: &LoadedModel, tokens: &[Token]) {
        for (own, top) in tokens.iter().filter_map(|t| t.logprobs.as_ref()) {
            self.push(model, own.id, Some(own.logprob), Some(top));
        }
    }

    /// The prompt's tokens. Nothing comes before the first.
    fn prompt(&mut self, model: &LoadedModel, place: &Place) {
        let first = place.scored.first();
        first.iter().for_each(|&&id| self.push(model, id, None, None));
        for score in &place.scores {
            self.push(model, score.token.id, Some(score.token.logprob), Some(&score.top));
        }
    }

    fn json(&self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        })
    }
}

impl Manner {
    fn head(&self) -> Map<String, Value> {
        let head = json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.name,
        });
        head.as_object().cloned().unwrap_or_default()
    }

    fn choice(&self, index: usize, text: &str, logprobs: Value, finish: Option<&str>) -> Value {
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish})
    }

    /// Those of the echoed prompt and of a reply, where they are wanted.
    fn logprobs(&self, place: &Place, tokens: &[Token]) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        let mut lists = Lists::default();
        lists.prompt(&self.model, place);
        lists.reply(&self.model, tokens);
        lists.json()
    }

    fn whole(&self, replies: &[(Vec<Reply>, Usage)]) -> Value {
        let mut total = Usage::default();
        let mut choices = Vec::new();
        for (i, place) in self.places.iter().enumerate() {
            let Some((replies, usage)) = replies.get(i) else {
                // Nothing but the prompt was wanted.
                let logprobs = self.logprobs(place, &[]);
                for j in 0..self.n {
                    choices.push(self.choice(i * self.n + j, &place.echo, logprobs.clone(), Some("length")));
                }
                continue;
            };
            total.add(usage);
            for (j, reply) in replies.iter().enumerate() {
                let text = format!("{}{}", place.echo, reply.content);
                let logprobs = self.logprobs(place, &reply.tokens);
                let finish = reply.end.as_ref().map(output::finish_reason);
                choices.push(self.choice(i * self.n + j, &text, logprobs, finish));
            }
        }
        let mut out = self.head();
        out.insert("choices".to_owned(), choices.into());
        out.insert("usage".to_owned(), output::usage(&total));
        Value::Object(out)
    }

    fn chunk(&self, choices: &[Choice<'_>], usage: Value) -> Bytes {
        sse::data(&Chunk {
            id: &self.id,
            object: "text_completion",
            created: self.created,
            model: &self.name,
            choices,
            usage: self.usage.then_some(usage),
        })
    }
}

/// A message of a stream. One is written a token, so its text is not copied on the way.
#[derive(Serialize)]
struct Chunk<'m> {
    id: &'m str,
    object: &'static str,
    created: u64,
    model: &'m str,
    choices: &'m [Choice<'m>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

#[derive(Serialize)]
struct Choice<'m> {
    index: usize,
    text: &'m str,
    logprobs: Value,
    finish_reason: Option<&'m str>,
}

/// Writes the chunks of a streamed response.
struct Writer {
    manner: Manner,
    /// Nothing but the prompts was wanted.
    echo_only: bool,
    /// Characters of each choice so far.
    offsets: Vec<usize>,
}

impl Writer {
    fn new(manner: Manner, echo_only: bool) -> Self {
        let offsets = manner.places.iter().flat_map(|p| vec![p.echo.chars().count(); manner.n]).collect();
        Self { manner, echo_only, offsets }
    }
}

impl Write for Writer {
    fn begin(&mut self, out: &mut Vec<Bytes>) {
        let manner = &self.manner;
        let finish = self.echo_only.then_some("length");
        for (i, place) in manner.places.iter().enumerate().filter(|(_, place)| !place.echo.is_empty()) {
            for index in i * manner.n..(i + 1) * manner.n {
                let logprobs = manner.logprobs(place, &[]);
                let choice = Choice { index, text: &place.echo, logprobs, finish_reason: finish };
                out.push(manner.chunk(&[choice], Value::Null));
            }
        }
    }

    fn event(&mut self, event: Event, out: &mut Vec<Bytes>) {
        let manner = &self.manner;
        let (index, text) = (event.choice, event.text());
        let mut entry = Value::Null;
        if let (true, Some(token), Some(offset)) =
            (manner.logprobs, &event.token, self.offsets.get_mut(index))
        {
            let mut lists = Lists { offset: *offset, ..Lists::default() };
            lists.reply(&manner.model, std::slice::from_ref(token));
            (entry, *offset) = (lists.json(), lists.offset);
        }
        let finish = event.end.as_ref().map(output::finish_reason);
        if !text.is_empty() || finish.is_some() || !entry.is_null() {
            let choice = Choice { index, text: &text, logprobs: entry, finish_reason: finish };
            out.push(manner.chunk(&[choice], Value::Null));
        }
    }

    fn end(&mut self, usage: &Usage, out: &mut Vec<Bytes>) {
        if self.manner.usage {
            out.push(self.manner.chunk(&[], output::usage(usage)));
        }
        out.push(sse::done());
    }

    fn failed(&mut self, error: &ApiError, out: &mut Vec<Bytes>) {
        out.push(sse::data(&error.body(Dialect::OpenAi)));
    }
}
