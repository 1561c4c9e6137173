//! A loaded model and what is done with it: prompts to ids, ids to a reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_engine::{
    Engine, EngineError, EngineOptions, FinishReason, Request, SamplingParams, StopStrings, TextEvent,
    TextFinish, TextOptions,
};
use hanzo_fusion::{DeviceError, KvType};
use hanzo_text::chat::ChatMessage;
use hanzo_text::parse::{Family, ParseOptions};
use hanzo_text::template::{Adaptation, ChatTemplate, RenderRequest};
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};

use crate::interrupt::DuringReply;
use crate::model::{self, Source};
use crate::progress::Bar;

/// Context by default, where the model was made for more: the cache is reserved at once.
const DEFAULT_CONTEXT: usize = 8192;
/// Tokens of a reply without an end of its own, where the model has no chat format to end it.
const DEFAULT_COMPLETION: usize = 512;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub(crate) struct LoadSettings {
    pub(crate) threads: Option<usize>,
    pub(crate) context: Option<usize>,
    pub(crate) kv: KvType,
    /// A chat template in place of the model's.
    pub(crate) template: Option<String>,
}

/// What a reply is made with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) sampling: SamplingParams,
    /// A new one for each reply if `None`.
    pub(crate) seed: Option<u64>,
    /// Until the model ends the reply if `None`.
    pub(crate) max_tokens: Option<usize>,
    pub(crate) stop: Vec<String>,
}

/// Token ids to continue.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) ids: Vec<u32>,
    /// How the model writes its replies, if the prompt is in its chat format.
    pub(crate) chat: Option<ReplyFormat>,
    /// What the chat template did not take as it was.
    pub(crate) changes: Vec<Adaptation>,
}

/// A model's way to write replies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyFormat {
    family: Family,
    /// The prompt ends inside reasoning.
    in_reasoning: bool,
}

impl Prompt {
    /// How to read the reply; `None` for plain text.
    pub(crate) fn parse_options(&self) -> Option<ParseOptions> {
        let format = self.chat?;
        Some(ParseOptions {
            family: format.family,
            tools: None,
            split_reasoning: true,
            starts_in_reasoning: format.in_reasoning,
        })
    }
}

/// A complete reply.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
    /// What the draws came from; `None` if there were none.
    pub(crate) seed: Option<u64>,
    pub(crate) end: TextFinish,
    /// Whether the context is full.
    pub(crate) context_full: bool,
    pub(crate) max_tokens: usize,
}

impl Reply {
    pub(crate) fn was_interrupted(&self) -> bool {
        self.end.finish.reason == FinishReason::Cancelled
    }
}

/// A model, ready to reply.
pub(crate) struct Session {
    pub(crate) source: Source,
    pub(crate) engine: Engine,
    pub(crate) load_time: Duration,
    pub(crate) file_type: String,
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
}

impl Session {
    /// Loads a model.
    ///
    /// # Errors
    /// What is wrong with the file, the vocabulary or the template, or what the device lacks.
    pub(crate) fn load(source: Source, settings: &LoadSettings) -> Result<Self> {
        let started = Instant::now();
        let file = source.open()?;
        let name = source.name();
        let tokenizer = model::tokenizer_of(&file).with_context(|| name.clone())?;
        let template = match &settings.template {
            Some(text) => Some(text.as_str()),
            None => file.metadata().get_str("tokenizer.chat_template").with_context(|| name.clone())?,
        };
        let (bos, eos) = (tokenizer.bos(), tokenizer.eos());
        let text = |id| model::token_text(&tokenizer, id);
        let template = template
            .filter(|t| !t.trim().is_empty())
            .map(|t| ChatTemplate::compile(t, &text(bos), &text(eos)))
            .transpose()
            .with_context(|| format!("{name}: give another template with --chat-template, or use --raw"))?;
        let trained = hanzo_models::load(&file).with_context(|| name.clone())?.context_length;
        let options = EngineOptions {
            max_context: Some(settings.context.unwrap_or(trained.min(DEFAULT_CONTEXT))),
            kv_type: settings.kv,
            max_sequences: 1,
            eog: tokenizer.eog_ids().to_vec(),
            ..EngineOptions::default()
        };
        let mut config = CpuConfig::from_env()?;
        config.threads = settings.threads.or(config.threads);
        let device = CpuDevice::new(&config)?;
        let engine = {
            let bar = Bar::bytes("loading");
            Engine::load(&file, &device, options, &bar).map_err(|e| cannot_load(&name, e))?
        };
        let file_type = crate::describe::file_type(&file);
        let load_time = started.elapsed();
        Ok(Self { source, engine, load_time, file_type, tokenizer: Arc::new(tokenizer), template })
    }

    /// Whether the model has a chat format.
    pub(crate) fn can_chat(&self) -> bool {
        self.template.is_some()
    }

    /// The prompt that a conversation makes.
    ///
    /// # Errors
    /// When the template refuses the conversation.
    pub(crate) fn chat_prompt(&self, messages: &[ChatMessage]) -> Result<Prompt> {
        let template = self.template.as_ref().context("the model has no chat template")?;
        let request = RenderRequest { messages, add_generation_prompt: true, ..RenderRequest::default() };
        let rendered = template.render_adapted(&request)?;
        let ids = self.encode(&rendered.text)?;
        let family = Family::detect(template.source());
        let in_reasoning = template.capabilities().opens_reasoning;
        Ok(Prompt { ids, chat: Some(ReplyFormat { family, in_reasoning }), changes: rendered.changes })
    }

    /// The prompt that plain text makes.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub(crate) fn text_prompt(&self, text: &str) -> Result<Prompt> {
        Ok(Prompt { ids: self.encode(text)?, chat: None, changes: Vec::new() })
    }

    /// Special tokens that are spelled out count as such; BOS comes first where the vocabulary asks for it, once. EOS
    /// or separators never follow: the text is to be continued.
    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids =
            self.tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: true })?;
        if let Some(bos) = self.tokenizer.bos().filter(|_| self.tokenizer.adds_bos())
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// Most tokens of a reply to a prompt, and whether that is the context's bound.
    fn room(&self, prompt: &Prompt, settings: &Settings) -> (usize, bool) {
        let room = self.engine.info().max_context.saturating_sub(prompt.ids.len());
        let unbounded = if prompt.chat.is_some() { room } else { DEFAULT_COMPLETION };
        let wanted = settings.max_tokens.unwrap_or(unbounded);
        (wanted.min(room), room <= wanted)
    }

    /// Replies. `show` gets the text piece by piece; when it fails the reply is ended and the failure returned.
    ///
    /// # Errors
    /// A prompt that does not fit, a step that failed, and what `show` returns.
    pub(crate) fn reply(
        &self,
        prompt: &Prompt,
        settings: &Settings,
        show: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Reply> {
        let seed = settings.seed.unwrap_or_else(random_seed);
        let (max_tokens, bound_by_context) = self.room(prompt, settings);
        let mut request = Request::new(prompt.ids.clone(), max_tokens);
        request.sampling = SamplingParams { seed, ..settings.sampling.clone() };
        // The marks of reasoning may be special tokens.
        let render_special = prompt.chat.is_some_and(|format| format.family != Family::Generic);
        let options = TextOptions { stop: StopStrings::new(&settings.stop)?, render_special };
        let events = self.engine.generate_text(request, Arc::clone(&self.tokenizer), &options)?;
        let _during = DuringReply::new(events.cancel_handle());
        let (mut text, mut ids) = (String::new(), Vec::new());
        for event in events {
            match event {
                TextEvent::Token { token, text: piece } => {
                    ids.push(token.id);
                    text.push_str(&piece);
                    show(&piece)?;
                }
                TextEvent::Finished(end) => {
                    text.push_str(&end.text);
                    show(&end.text)?;
                    let context_full = bound_by_context && end.finish.reason == FinishReason::Length;
                    let seed = (settings.sampling.temperature > 0.0).then_some(seed);
                    return Ok(Reply { text, ids, seed, end, context_full, max_tokens });
                }
                TextEvent::Failed(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Stopped.into())
    }
}

/// The error of a load, with the way out where memory is short.
fn cannot_load(name: &str, error: EngineError) -> anyhow::Error {
    let hint = match &error {
        EngineError::Device(DeviceError::OutOfMemory { .. }) => "; a smaller --ctx, or --kv int8, needs less",
        _ => "",
    };
    anyhow::anyhow!("cannot load {name}: {error}{hint}")
}

/// A seed that nobody chose. 32 bits, so that JSON's readers keep it exact and people can type it.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The standard library keys its hashers from the system's randomness.
    RandomState::new().build_hasher().finish() & 0xffff_ffff
}
