//! Measurement: samples, their statistics, the board, the machine's roofs, and synthetic models to measure.
//!
//! A sample is `[wall_s, tokens]` of one repetition, by the wall clock, over a fixed number of tokens; nothing that an
//! engine says of its own speed goes in ([`samples`]). Every figure of the board is a pure function of committed samples
//! ([`statistics`], [`board`], [`render`]). `docs/benchmarking.md` gives the protocol and its reasons.
//!
//! [`cli`] is the command line of the `hanzo-bench` binary, of `hanzo bench` and `hanzo explain`, and the only part that prints.

pub mod board;
pub mod cli;
pub mod device;
mod error;
pub mod explain;
pub mod model;
pub mod process;
pub mod readme;
pub mod render;
pub mod requests;
pub mod roofline;
pub mod run;
pub mod sample;
pub mod samples;
pub mod statistics;
pub mod stats;
pub mod synth;
pub mod work;

pub use error::BenchError;
