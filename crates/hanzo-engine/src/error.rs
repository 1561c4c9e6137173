//! What can go wrong with an engine or a request.

use thiserror::Error;

use crate::sampler::ParamError;

/// Errors of the engine. Those of one request leave the others alone.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The model file is at fault.
    #[error(transparent)]
    Model(#[from] hanzo_models::ModelError),
    /// The device could not load the model.
    #[error(transparent)]
    Device(#[from] hanzo_fusion::DeviceError),
    /// A prompt without tokens.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A prompt that leaves no room for a reply. Never cut silently.
    #[error(
        "the prompt has {prompt} tokens, the context holds {context}; shorten the prompt or enlarge the context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that fit, at least one of them for the reply.
        context: usize,
    },
    /// A token id that the model does not have.
    #[error("token id {id} is not below the vocabulary's {vocab_size}")]
    TokenId {
        /// The id.
        id: u32,
        /// Ids below this exist.
        vocab_size: usize,
    },
    /// A sampling setting out of its bounds.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// The queue is full: try again later.
    #[error("{waiting} requests are waiting, which is the limit; try again later")]
    Busy {
        /// Requests that wait.
        waiting: usize,
    },
    /// A token of the reply has no text.
    #[error("the reply cannot be shown: {0}; the vocabulary is smaller than the model's output")]
    Text(#[source] hanzo_text::tokenizer::TokenizerError),
    /// The step that this request took part in failed.
    #[error("the step failed: {0}")]
    Step(String),
    /// The engine is gone.
    #[error("the engine has stopped")]
    Stopped,
}
