//! The engine: many requests, one device, one answer each.
//!
//! Owns the KV blocks, the schedule and the sampler; [`Engine`] is the project's public Rust API. Leaves arithmetic
//! to the device behind [`hanzo_fusion::Device`], architectures to `hanzo-models`, and text to `hanzo-text`.
//!
//! ```no_run
//! use hanzo_cpu::{exec::CpuDevice, isa::CpuConfig};
//! use hanzo_engine::{Engine, EngineOptions, Event, Request};
//! use hanzo_gguf::GgufFile;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = GgufFile::open("model.gguf")?;
//! let device = CpuDevice::new(&CpuConfig::default())?;
//! let engine = Engine::load(&file, &device, EngineOptions::default(), &())?;
//! for event in engine.generate(Request::new(vec![1, 2, 3], 16))? {
//!     match event {
//!         Event::Token(token) => println!("{}", token.id),
//!         Event::Finished(finish) => println!("{finish:?}"),
//!         Event::Failed(error) => return Err(error.into()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod constraint;
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
mod worker;

pub use constraint::{Constraint, ConstraintError};
pub use engine::{Cancel, Engine, EngineInfo, EngineOptions, Events};
pub use error::EngineError;
pub use memory::available_memory;
pub use metrics::Metrics;
pub use reply::{TextEvent, TextEvents, TextFinish, TextOptions, text_sink};
pub use request::{Event, Finish, FinishReason, Request, Sink, Token};
pub use sampler::{Distribution, Mirostat, ParamError, SamplingParams, Stage, TokenLogprob};
pub use score::{LogitsRequest, ScoreEvent, ScoreRequest, Scores, TokenScore};
pub use speculate::{DraftModel, PromptLookup, Proposer, Speculation};
pub use stop::{MAX_STOP_BYTES, MAX_STOP_STRINGS, StopError, StopScan, StopStrings};
