//! The engine: many requests, one device, one answer each.
//!
//! Owns the KV blocks, the schedule and the sampler; [`Engine`] is the project's public Rust API. Leaves arithmetic
//! to the device behind [`hanzo_fusion::Device`], architectures to `hanzo-models`, and text to `hanzo-text`.
//!
//! ```
//! use hanzo_engine::{Engine, EngineError, Request};
//!
//! # fn main() -> Result<(), EngineError> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../hanzo-cli/assets/hanzo-tiny.gguf");
//! let engine = Engine::builder(path).context(256).build()?;
//! let prompt = engine.encode("Once upon a time")?;
//! let story: String = engine.reply(Request::new(prompt, 16))?.texts().collect::<Result<_, _>>()?;
//! assert!(!story.is_empty());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod adapters;
mod builder;
pub mod constraint;
mod embed;
mod engine;
mod error;
pub mod kv;
mod memory;
mod metrics;
mod pace;
mod read;
mod reply;
mod request;
pub mod sampler;
mod scheduler;
mod score;
mod sequence;
pub mod speculate;
mod stop;
#[cfg(feature = "stream")]
mod stream;
mod text;
mod worker;

pub use adapters::{AdapterError, AdapterId, AdapterInfo, AdapterLimits};
pub use builder::{EngineBuilder, ModelSource};
pub use constraint::{Constraint, ConstraintError};
pub use embed::{EmbedRequest, Embedding};
pub use engine::{Cancel, Engine, EngineInfo, EngineOptions, Events};
pub use error::EngineError;
pub use hanzo_models::Pooling;
pub use hanzo_text::chat::ChatMessage;
pub use memory::available_memory;
pub use metrics::Metrics;
pub use reply::{TextEvent, TextEvents, TextFinish, TextOptions, text_sink};
pub use request::{Event, Finish, FinishReason, Request, Sink, Token};
pub use sampler::{
    Distribution, Divergence, Mirostat, ParamError, SamplingParams, Stage, TokenLogprob, argmax,
};
pub use score::{LogitsRequest, ScoreEvent, ScoreRequest, Scores, TokenScore};
pub use speculate::{DraftModel, PromptLookup, Proposer, Speculation};
pub use stop::{MAX_STOP_BYTES, MAX_STOP_STRINGS, StopError, StopScan, StopStrings};
#[cfg(feature = "stream")]
pub use stream::EventStream;
