//! The model's side of text: its vocabulary and its chat format, and requests in words.

use std::sync::Arc;

use hanzo_gguf::GgufFile;
use hanzo_text::chat::ChatMessage;
use hanzo_text::template::{ChatTemplate, RenderRequest};
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::reply::{TextEvent, TextEvents, TextOptions};
use crate::request::Request;
use crate::sampler::SamplingParams;

/// Vocabulary and chat format of a model file.
#[derive(Debug)]
pub(crate) struct ModelText {
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// What is wrong with the template, or that there is none.
    template: Result<ChatTemplate, String>,
}

impl ModelText {
    /// Reads it from the file's metadata; else why the file has no vocabulary.
    pub(crate) fn of(file: &GgufFile) -> Result<Self, String> {
        let metadata = file.metadata();
        let tokenizer = Tokenizer::from_gguf(metadata).map_err(|e| e.to_string())?;
        let text = |id: Option<u32>| {
            let bytes = id.and_then(|id| tokenizer.token_bytes(id)).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let template = match metadata.get_str("tokenizer.chat_template") {
            Ok(Some(source)) => {
                let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
                ChatTemplate::compile(source, &bos, &eos).map_err(|e| e.to_string())
            }
            Ok(None) => Err("the model has no chat template".to_owned()),
            Err(e) => Err(e.to_string()),
        };
        Ok(Self { tokenizer: Arc::new(tokenizer), template })
    }
}

impl Engine {
    /// The model's vocabulary.
    ///
    /// # Errors
    /// [`EngineError::NoText`] where the file has none, or the engine was not made by [`Engine::builder`].
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>, EngineError> {
        Ok(&self.text()?.tokenizer)
    }

    /// A prompt's tokens: special tokens that are spelled out count as such, and the one that begins a text comes first
    /// where the vocabulary asks for it, once. None that ends a text follows: the prompt is to be continued.
    ///
    /// # Errors
    /// As [`Engine::tokenizer`], and for a text that the vocabulary cannot express.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        let tokenizer = self.tokenizer()?;
        let options = EncodeOptions { add_special: false, parse_special: true };
        let mut ids = tokenizer.encode(text, options).map_err(|e| EngineError::NoText(e.to_string()))?;
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos())
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// A whole text's tokens, with those that begin and end one where the vocabulary asks for them: what is embedded.
    ///
    /// # Errors
    /// As [`Engine::encode`].
    pub fn encode_whole(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        let options = EncodeOptions { add_special: true, parse_special: false };
        self.tokenizer()?.encode(text, options).map_err(|e| EngineError::NoText(e.to_string()))
    }

    /// The prompt that a conversation makes, up to where the reply begins.
    ///
    /// # Errors
    /// As [`Engine::encode`], and where the model has no chat template or the template refuses the conversation.
    pub fn chat_prompt(&self, messages: &[ChatMessage]) -> Result<Vec<u32>, EngineError> {
        let template = self.text()?.template.as_ref().map_err(|why| EngineError::NoText(why.clone()))?;
        let request = RenderRequest { messages, add_generation_prompt: true, ..RenderRequest::default() };
        let rendered = template.render_adapted(&request).map_err(|e| EngineError::NoText(e.to_string()))?;
        self.encode(&rendered.text)
    }

    /// The reply to a conversation, until the model ends it or the context is full.
    ///
    /// # Errors
    /// As [`Engine::chat_prompt`] and [`Engine::submit`].
    pub fn chat(
        &self,
        messages: &[ChatMessage],
        sampling: SamplingParams,
    ) -> Result<TextEvents, EngineError> {
        let prompt = self.chat_prompt(messages)?;
        self.reply(Request { sampling, ..Request::new(prompt, usize::MAX) })
    }

    /// Queues a request and gives its reply as text, without stop strings.
    ///
    /// # Errors
    /// As [`Engine::tokenizer`] and [`Engine::submit`].
    pub fn reply(&self, request: Request) -> Result<TextEvents, EngineError> {
        self.generate_text(request, Arc::clone(self.tokenizer()?), &TextOptions::default())
    }
}

impl TextEvents {
    /// The pieces of text only; the last one is an error if the request failed.
    pub fn texts(self) -> impl Iterator<Item = Result<String, EngineError>> {
        self.filter_map(|event| match event {
            TextEvent::Token { text, .. } => (!text.is_empty()).then_some(Ok(text)),
            TextEvent::Finished(end) => (!end.text.is_empty()).then_some(Ok(end.text)),
            TextEvent::Failed(error) => Some(Err(error)),
        })
    }
}
