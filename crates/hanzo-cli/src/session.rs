//! A loaded model and what is done with it: prompts to ids, ids to a reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use hanzo_engine::{
    AdapterId, Engine, EngineError, FinishReason, Request, SamplingParams, StopStrings, TextEvent,
    TextFinish, TextOptions,
};
use hanzo_fusion::{DeviceError, KvType};
use hanzo_server::model::{Conversation, LoadError, Prompt};
use hanzo_server::{LoadSettings as ModelSettings, LoadedModel, ids};
use hanzo_text::chat::ChatMessage;
use hanzo_text::parse::{Family, ParseOptions};

use crate::device::{self, PackCache};
use crate::interrupt::During;
use crate::lora::{self, LoraFlag};
use crate::model::Source;
use crate::out;
use crate::progress::Bar;

/// Tokens of a reply without an end of its own, where the model has no chat format to end it.
const DEFAULT_COMPLETION: usize = 512;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub(crate) struct LoadSettings {
    pub(crate) threads: Option<usize>,
    /// Where packed weights are kept, if they are.
    pub(crate) pack_cache: Option<PackCache>,
    pub(crate) context: Option<usize>,
    pub(crate) kv: KvType,
    /// Bytes for the cache; what the context needs if `None`.
    pub(crate) kv_memory: Option<u64>,
    /// A chat template in place of the model's.
    pub(crate) template: Option<String>,
    /// Adapters that every reply uses.
    pub(crate) lora: Vec<LoraFlag>,
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

/// How to read the reply to a prompt; `None` for plain text.
pub(crate) fn parse_options(prompt: &Prompt) -> Option<ParseOptions> {
    let format = prompt.chat?;
    Some(ParseOptions {
        family: format.family,
        tools: None,
        split_reasoning: true,
        held_calls: false,
        starts_in_reasoning: format.in_reasoning,
    })
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
    pub(crate) load_time: Duration,
    pub(crate) file_type: String,
    /// Whether the program should outlive a reply that is interrupted.
    pub(crate) chatting: bool,
    model: LoadedModel,
    /// Adapters of every reply, with their scales.
    adapters: Vec<(AdapterId, f32)>,
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
        let device = device::cpu(settings.threads, settings.pack_cache.as_ref())?;
        let flags = &settings.lora;
        let settings = ModelSettings {
            context: settings.context,
            kv_type: settings.kv,
            kv_bytes: settings.kv_memory,
            template: settings.template.clone(),
            max_sequences: 1,
            ..ModelSettings::default()
        };
        let model = {
            let bar = Bar::bytes("loading");
            LoadedModel::load(&name, &file, &device, &settings, &bar).map_err(|e| cannot_load(&name, e))?
        };
        for warning in model.tokenizer.warnings() {
            out::warning(format_args!("{}", out::for_terminal(warning)));
        }
        let holds = model.engine.info().max_context;
        if let Some(asked) = settings.context.filter(|&asked| holds < asked) {
            anyhow::bail!(
                "--kv-memory holds {holds} tokens, --ctx asks for {asked}: give more memory or a shorter context"
            );
        }
        let adapters = lora::load(&model.engine, flags)?;
        let file_type = crate::describe::file_type(&file);
        Ok(Self { source, load_time: started.elapsed(), file_type, chatting: false, model, adapters })
    }

    /// What runs the model.
    pub(crate) fn engine(&self) -> &Engine {
        &self.model.engine
    }

    /// Whether the model has a chat format.
    pub(crate) fn can_chat(&self) -> bool {
        self.model.template().is_some()
    }

    /// The prompt that a conversation makes.
    ///
    /// # Errors
    /// When the template refuses the conversation.
    pub(crate) fn chat_prompt(&self, messages: &[ChatMessage]) -> Result<Prompt> {
        Ok(self.model.chat_prompt(&Conversation { messages, ..Conversation::default() })?)
    }

    /// The prompt that plain text makes.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub(crate) fn text_prompt(&self, text: &str) -> Result<Prompt> {
        Ok(self.model.text_prompt(text)?)
    }

    /// Most tokens of a reply to a prompt, and whether that is the context's bound.
    fn room(&self, prompt: &Prompt, settings: &Settings) -> (usize, bool) {
        let room = self.engine().info().max_context.saturating_sub(prompt.ids.len());
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
        let seed = settings.seed.unwrap_or_else(ids::random_seed);
        let (max_tokens, bound_by_context) = self.room(prompt, settings);
        let mut request = Request::new(prompt.ids.clone(), max_tokens);
        request.adapters.clone_from(&self.adapters);
        request.sampling = SamplingParams { seed, ..settings.sampling.clone() };
        // The marks of reasoning may be special tokens.
        let render_special = prompt.chat.is_some_and(|format| format.family != Family::Generic);
        let options = TextOptions { stop: StopStrings::new(&settings.stop)?, render_special };
        let events = self.engine().generate_text(request, Arc::clone(&self.model.tokenizer), &options)?;
        let _during = During::reply(events.cancel_handle(), self.chatting);
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

/// The error of a load, with the way out.
pub(crate) fn cannot_load(name: &str, error: LoadError) -> anyhow::Error {
    let hint = match &error {
        LoadError::Engine(
            EngineError::Device(DeviceError::OutOfMemory { .. }) | EngineError::KvTooLarge(_),
        ) => "; a smaller --ctx, or keys and values as int8, need less",
        LoadError::Template(_) => " with --chat-template, or use --raw",
        _ => "",
    };
    anyhow::anyhow!("cannot load {name}: {error}{hint}")
}
