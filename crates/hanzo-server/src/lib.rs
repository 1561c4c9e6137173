//! HTTP on top of the engine: the APIs that clients already speak.
//!
//! A request goes through `limits` (connections, sizes, times), `hosts`, `auth`, and `json` (what the bytes mean, and where
//! they are wrong) to a handler under `api`, one file an endpoint. Handlers that generate hand a validated
//! [`generate::Job`] to the one bridge to the engine and get typed events back; what differs between the dialects is how
//! these are written. `error` renders a failure in the dialect of the path that it happened on.
//!
//! Leaves models to [`registry`] and whoever fills it, arithmetic to the engine, text to `hanzo-text`. The page at `/` (`web`) is a client
//! of the API like any other.
#![forbid(unsafe_code)]

mod api;
mod auth;
pub mod config;
mod context;
mod cors;
pub mod error;
mod generate;
mod hosts;
pub mod ids;
mod json;
pub mod limits;
mod lora;
mod metrics;
pub mod model;
mod on_mark;
#[cfg(feature = "otel")]
pub mod otel;
pub mod pull;
mod reasoning;
pub mod registry;
mod respond;
mod score;
pub mod serve;
mod sse;
pub mod state;
mod tls;
mod web;

pub use config::{Config, Limits, TlsFiles};
pub use error::ApiError;
pub use model::{LoadSettings, LoadedModel};
pub use registry::Registry;
pub use serve::{ServeError, Server};
pub use state::App;
