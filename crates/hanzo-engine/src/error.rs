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
    /// A text that is only read, longer than the context. Never cut silently.
    #[error(
        "the text has {tokens} tokens, the context holds {context}; shorten the text or enlarge the context"
    )]
    TextTooLong {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens that fit.
        context: usize,
    },
    /// Rows that a text does not have.
    #[error("{what} {first} to {end} (exclusive) of a text of {tokens} tokens: there are none")]
    NoRows {
        /// What was asked for.
        what: &'static str,
        /// The first wanted.
        first: usize,
        /// The first beyond.
        end: usize,
        /// Tokens of the text.
        tokens: usize,
    },
    /// The model's results are not numbers: its weights or what was computed from them are damaged.
    #[error("the {what} at position {position} are not finite numbers")]
    NotFinite {
        /// Which results.
        what: &'static str,
        /// Of which token.
        position: usize,
    },
    /// A model without logits.
    #[error("models of architecture `{architecture}` only embed texts; they neither continue nor score them")]
    NoLogits {
        /// The architecture.
        architecture: &'static str,
    },
    /// A model without hidden states.
    #[error("models of architecture `{architecture}` give no embeddings")]
    NoHidden {
        /// The architecture.
        architecture: &'static str,
    },
    /// An embedding of another size than can be had.
    #[error("{asked} dimensions were asked for; the model's embeddings have 1 to {size}")]
    Dimensions {
        /// What was asked for.
        asked: usize,
        /// All that there are.
        size: usize,
    },
    /// A text was not read to its end.
    #[error("the request ended before its text was read to the end: {0:?}")]
    Incomplete(crate::request::FinishReason),
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
    /// An adapter that cannot be loaded, unloaded or used.
    #[error(transparent)]
    Adapter(#[from] crate::adapters::AdapterError),
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
    /// A constraint that cannot be had, or that failed while the reply was being made.
    #[error(transparent)]
    Constraint(#[from] crate::constraint::ConstraintError),
    /// No token can be drawn.
    #[error("no token can be drawn at position {position}: {reason}")]
    NoToken {
        /// Tokens before.
        position: usize,
        /// Why.
        reason: &'static str,
    },
    /// More continuations than can run at once, or none.
    #[error("{n} continuations were asked for; 1 to {most} can run at once")]
    Continuations {
        /// What was asked for.
        n: usize,
        /// What the engine's options allow.
        most: usize,
    },
    /// The KV memory given does not hold a single block.
    #[error("{bytes} bytes of KV memory do not hold a block, which takes {block}; give more")]
    KvMemory {
        /// What was given.
        bytes: u64,
        /// Bytes of a block over all layers.
        block: u64,
    },
    /// The KV cache does not fit into the memory that there is.
    #[error(transparent)]
    KvTooLarge(#[from] crate::kv::KvTooLarge),
    /// The recurrent states of the sequences that may run at once exceed the memory that there is.
    #[error(
        "the recurrent states of {sequences} sequences take {needed} bytes and {available} are available for them; \
         let fewer run at once"
    )]
    StatesTooLarge {
        /// Sequences that may run at once.
        sequences: usize,
        /// Bytes of their states.
        needed: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// A draft model with recurrent states, which cannot take back what it read of wrong drafts.
    #[error(
        "a model of architecture `{architecture}` has recurrent states and cannot draft; use another, or prompt lookup"
    )]
    RecurrentDraft {
        /// The draft model's architecture.
        architecture: &'static str,
    },
    /// No device to run on.
    #[error("no device: {0}")]
    NoDevice(String),
    /// The model cannot turn this into tokens: no vocabulary, no chat format, or a text that they refuse.
    #[error("the model's text: {0}")]
    NoText(String),
    /// The engine's thread could not be started.
    #[error("the engine's thread could not be started: {0}")]
    Thread(String),
    /// The engine's own thread panicked; it was started anew, without the requests that it had.
    #[error("the engine failed and was restarted: {0}")]
    Restarted(String),
    /// The engine is gone.
    #[error("the engine has stopped")]
    Stopped,
}

#[cfg(feature = "cpu")]
impl EngineError {
    pub(crate) fn cpu(error: hanzo_cpu::CpuError) -> Self {
        Self::NoDevice(error.to_string())
    }
}
