//! The engine's device kernels, each written once in the kernel language.
//!
//! A kernel is a function from what may differ (format, subgroup width, rows at a time) to a [`crate::kernel::Kernel`]. What is quantized
//! is read through [`weights`], which knows every block format by its integer view: no kernel names one.

pub mod layout;
pub mod math;
pub mod matmul;
pub mod moe;
pub mod norm;
pub mod pointwise;
pub mod quantize;
pub mod reduce;
pub mod registry;
pub mod weights;
