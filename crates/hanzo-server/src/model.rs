//! A loaded model: an engine with the text around it. What `hanzo run` and the server share.

use std::fmt;
use std::sync::{Arc, OnceLock};

use hanzo_engine::constraint::GrammarCompiler;
use hanzo_engine::{ConstraintError, Engine, EngineError, EngineOptions, Speculation, available_memory};
use hanzo_fusion::{Device, KvType, Progress};
use hanzo_gguf::GgufFile;
use hanzo_text::chat::ChatMessage;
use hanzo_text::parse::Family;
use hanzo_text::template::{Adaptation, ChatTemplate, RenderRequest, TemplateError};
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer, TokenizerError};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::ids;
use crate::lora::Scales;
use crate::metrics::ModelMetrics;

/// Context by default, where the model was made for more: the cache is reserved at once.
const DEFAULT_CONTEXT: usize = 8192;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadSettings {
    /// Longest sequence in tokens; the model's own, but at most 8192, if `None`.
    pub context: Option<usize>,
    /// Tokens of the KV pool, over all sequences; by what memory is free if `None`.
    pub kv_tokens: Option<usize>,
    /// Bytes of the KV pool; goes before `kv_tokens`.
    pub kv_bytes: Option<u64>,
    /// Bytes that weights and cache may take together; no bound if `None`.
    pub memory: Option<u64>,
    /// Element type of the cache.
    pub kv_type: KvType,
    /// A chat template in place of the model's.
    pub template: Option<String>,
    /// How replies are read, if not as the template tells.
    pub family: Option<Family>,
    /// Sequences that run at once.
    pub max_sequences: usize,
    /// Requests that may wait.
    pub max_waiting: usize,
    /// Drafts of a sequence in a step, by prompt lookup.
    pub max_drafts: usize,
    /// How long a step with a part of a prompt may take beside running replies, as a multiple of one without; no bound if `None`.
    pub max_slowdown: Option<f64>,
}

impl LoadSettings {
    /// Longest sequence of a model that was made for `trained` tokens.
    #[must_use]
    pub fn context_of(&self, trained: usize) -> usize {
        self.context.unwrap_or(trained.min(DEFAULT_CONTEXT))
    }
}

impl Default for LoadSettings {
    fn default() -> Self {
        let engine = EngineOptions::default();
        Self {
            context: None,
            kv_tokens: None,
            kv_bytes: None,
            memory: available_memory(),
            kv_type: engine.kv_type,
            template: None,
            family: None,
            max_sequences: engine.max_sequences,
            max_waiting: engine.max_waiting,
            max_drafts: Speculation::MOST,
            max_slowdown: engine.max_slowdown,
        }
    }
}

/// Why a model cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file's metadata cannot be read.
    #[error(transparent)]
    File(#[from] hanzo_gguf::Error),
    /// The file is of no model that is known.
    #[error(transparent)]
    Model(#[from] hanzo_models::ModelError),
    /// The vocabulary.
    #[error("the model's vocabulary cannot be used: {0}")]
    Vocabulary(#[from] TokenizerError),
    /// The chat template.
    #[error("{0}; give another template")]
    Template(#[from] TemplateError),
    /// The device.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Token ids to continue.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// The ids, special tokens included.
    pub ids: Vec<u32>,
    /// How the model writes its replies, if the prompt is in its chat format.
    pub chat: Option<ReplyFormat>,
    /// What the chat template did not take as it was.
    pub changes: Vec<Adaptation>,
}

/// A model's way to write replies.
#[derive(Clone, Copy, Debug)]
pub struct ReplyFormat {
    /// The marks it uses.
    pub family: Family,
    /// The prompt ends inside reasoning.
    pub in_reasoning: bool,
}

/// A conversation to reply to.
#[derive(Clone, Debug, Default)]
pub struct Conversation<'c> {
    /// The messages.
    pub messages: &'c [ChatMessage],
    /// Tools that may be called, in OpenAI's form.
    pub tools: Option<&'c [Value]>,
    /// Further variables of the template.
    pub kwargs: Option<&'c Map<String, Value>>,
}

/// A model, ready to reply.
pub struct LoadedModel {
    /// What requests call it.
    pub name: String,
    /// What else they may call it.
    pub aliases: Vec<String>,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    /// Number of weights.
    pub parameters: u64,
    /// Bytes of its weights in the file.
    pub file_bytes: u64,
    /// What runs it.
    pub engine: Engine,
    /// Text to ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Counts of what was asked of it.
    pub(crate) metrics: Arc<ModelMetrics>,
    /// Scales of its adapters where requests do not say.
    pub(crate) scales: Scales,
    template: Option<ChatTemplate>,
    family: Family,
    grammars: OnceLock<Result<GrammarCompiler, ConstraintError>>,
}

impl fmt::Debug for LoadedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedModel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LoadedModel {
    /// Loads a model onto a device.
    ///
    /// # Errors
    /// What is wrong with the file, the vocabulary or the template, or what the device lacks.
    pub fn load(
        name: impl Into<String>,
        file: &GgufFile,
        device: &dyn Device,
        settings: &LoadSettings,
        progress: &dyn Progress,
    ) -> Result<Self, LoadError> {
        // First what it is: a model that cannot be run need not have a vocabulary that can.
        let trained = hanzo_models::load(file)?.context_length;
        let tokenizer = Tokenizer::from_gguf(file.metadata())?;
        let template = match &settings.template {
            Some(text) => Some(text.as_str()),
            None => file.metadata().get_str("tokenizer.chat_template")?,
        };
        let (bos, eos) = (token_text(&tokenizer, tokenizer.bos()), token_text(&tokenizer, tokenizer.eos()));
        let template = template
            .filter(|t| !t.trim().is_empty())
            .map(|t| ChatTemplate::compile(t, &bos, &eos))
            .transpose()?;
        let context = settings.context_of(trained);
        let options = EngineOptions {
            max_context: Some(context),
            kv_tokens: settings.kv_tokens,
            kv_bytes: settings.kv_bytes,
            memory: settings.memory,
            kv_type: settings.kv_type,
            max_sequences: settings.max_sequences,
            max_waiting: settings.max_waiting,
            speculation: Speculation::prompt_lookup_of(settings.max_drafts),
            max_slowdown: settings.max_slowdown,
            eog: tokenizer.eog_ids().to_vec(),
            ..EngineOptions::default()
        };
        let engine = Engine::load(file, device, options, progress)?;
        let detected = template.as_ref().map_or(Family::Generic, |t| Family::detect(t.source()));
        Ok(Self {
            name: name.into(),
            aliases: Vec::new(),
            created: ids::now(),
            parameters: file.tensors().iter().map(|t| t.n_elements()).fold(0, u64::saturating_add),
            file_bytes: file.tensor_bytes_total(),
            engine,
            tokenizer: Arc::new(tokenizer),
            metrics: Arc::default(),
            scales: Scales::default(),
            template,
            family: settings.family.unwrap_or(detected),
            grammars: OnceLock::new(),
        })
    }

    /// The chat template, if there is one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// How the model writes its replies.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The text that the chat template makes of a conversation.
    ///
    /// # Errors
    /// Where there is no template, or it refuses the conversation.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<(String, Vec<Adaptation>), TextError> {
        let template = self.template.as_ref().ok_or(TextError::NoTemplate)?;
        let request = RenderRequest {
            messages: conversation.messages,
            tools: conversation.tools,
            kwargs: conversation.kwargs,
            add_generation_prompt: true,
            now: None,
        };
        let rendered = template.render_adapted(&request)?;
        Ok((rendered.text, rendered.changes))
    }

    /// The prompt that a conversation makes.
    ///
    /// # Errors
    /// As [`LoadedModel::render`], and when the vocabulary cannot express the text.
    pub fn chat_prompt(&self, conversation: &Conversation<'_>) -> Result<Prompt, TextError> {
        let (text, changes) = self.render(conversation)?;
        let in_reasoning = self.family.ends_in_reasoning(&text);
        let chat = Some(ReplyFormat { family: self.family, in_reasoning });
        Ok(Prompt { ids: self.encode(&text)?, chat, changes })
    }

    /// The prompt that plain text makes.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub fn text_prompt(&self, text: &str) -> Result<Prompt, TextError> {
        Ok(Prompt::of_ids(self.encode(text)?))
    }

    /// The ids of a text, and no others: special tokens that are spelled out in it are text.
    ///
    /// # Errors
    /// When the vocabulary cannot express the text.
    pub fn plain_ids(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: false })
    }

    /// Special tokens that are spelled out count as such; BOS comes first where the vocabulary asks for it, once. EOS
    /// or separators never follow: the text is to be continued.
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids =
            self.tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: true })?;
        if let Some(bos) = self.tokenizer.bos().filter(|_| self.tokenizer.adds_bos())
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// What compiles grammars for the vocabulary; made when it is first needed.
    ///
    /// # Errors
    /// For a vocabulary that grammars cannot work with.
    pub fn grammars(&self) -> Result<&GrammarCompiler, ConstraintError> {
        self.grammars
            .get_or_init(|| GrammarCompiler::new(Arc::clone(&self.tokenizer)))
            .as_ref()
            .map_err(Clone::clone)
    }
}

impl Drop for LoadedModel {
    fn drop(&mut self) {
        self.metrics.keep(&self.engine.metrics());
    }
}

impl Prompt {
    /// A prompt of token ids, outside of any chat format.
    #[must_use]
    pub fn of_ids(ids: Vec<u32>) -> Self {
        Self { ids, chat: None, changes: Vec::new() }
    }
}

/// Why a text makes no prompt.
#[derive(Debug, Error)]
pub enum TextError {
    /// A conversation for a model without a chat format.
    #[error("the model has no chat template: complete plain text instead, or start with a template")]
    NoTemplate,
    /// The template does not take the conversation.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The vocabulary does not have the text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// The text of a special token, as chat templates want it; empty where there is none.
#[must_use]
pub fn token_text(tokenizer: &Tokenizer, id: Option<u32>) -> String {
    let bytes = id.and_then(|id| tokenizer.token_bytes(id)).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}
