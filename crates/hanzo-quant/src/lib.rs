//! The values of a model: every GGUF block format, declared once.
//!
//! Knows bytes and numbers. Leaves files to `hanzo-gguf` and speed to the devices.
//!
//! * [`QuantType`] names the formats; [`QuantType::format`] gives sizes, exact decode and [integer view](IntView).
//! * [`decode_row`] is `to_float`: the oracle for every kernel.
//! * [`encode_rows`] is the way back: f32 rows to blocks, by least squared error.
//! * [`FiniteCheck`] finds NaN and infinity in blocks without decoding them.
//! * [`canonical`] fixes the order of every contraction, and is its oracle.
//! * [`math`] has the transcendental functions that every device on the CPU evaluates alike.
//! * `f16` and `bf16` are re-exported from `half`, so that all crates mean the same types.
#![forbid(unsafe_code)]

pub mod canonical;
pub mod encode;
mod error;
mod finite;
pub mod formats;
mod half_float;
pub mod math;
mod quant_type;
mod view;

pub use encode::{EncodeError, encodable, encode_rows, wants_importance};
pub use error::QuantError;
pub use finite::FiniteCheck;
pub use half_float::{HalfFloatSliceExt, bf16, f16, f16_to_f32};
pub use quant_type::{QuantType, decode_row};
pub use view::*;
