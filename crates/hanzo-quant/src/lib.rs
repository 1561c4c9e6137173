//! The values of a model: every GGUF block format, declared once.
//!
//! Knows bytes and numbers. Leaves files to `hanzo-gguf` and speed to the devices.
#![forbid(unsafe_code)]

mod view;

pub use view::*;
