//! The engine: many requests, one device, one answer each.
//!
//! Owns the KV blocks, the schedule and the sampler; [`Engine`] is the project's public Rust API. Leaves arithmetic
//! to the device behind [`hanzo_fusion::Device`], architectures to `hanzo-models`, and text to `hanzo-text`.
#![forbid(unsafe_code)]

pub mod constraint;
mod engine;
mod error;
pub mod kv;
mod metrics;
mod pace;
mod reply;
mod request;
pub mod sampler;
mod scheduler;
mod sequence;
pub mod speculate;
mod stop;
mod worker;

pub use constraint::{Constraint, ConstraintError};
pub use engine::{Cancel, Engine, EngineInfo, EngineOptions, Events};
pub use error::EngineError;
pub use metrics::Metrics;
pub use reply::{TextEvent, TextEvents, TextFinish, TextOptions, text_sink};
pub use request::{Event, Finish, FinishReason, Request, Sink, Token};
pub use sampler::{Mirostat, ParamError, SamplingParams, Stage, TokenLogprob};
pub use speculate::{Proposer, Speculation};
pub use stop::{MAX_STOP_BYTES, MAX_STOP_STRINGS, StopError, StopScan, StopStrings};
