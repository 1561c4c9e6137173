//! The engine's device kernels, each written once in the kernel language.
//!
//! A kernel is a function from what may differ (format, subgroup width, rows at a time) to a [`crate::kernel::Kernel`]. What is quantized
//! is read through [`weights`], which knows every block format by its integer view: no kernel names one. Buffers and parameters are named in
//! the doc of what makes the kernel, in no particular order: bind them by [`crate::kernel::Kernel::buffers`].
//!
//! Every kernel keeps the order of operations of its CPU counterpart, so their results can be compared bit by bit; `add_rms_norm` and
//! everything else that divides is off by the quotient's 2.5 ulp on Vulkan only.

pub mod argmax;
pub mod attention;
pub mod compose;
pub mod copy;
pub mod embed;
pub mod kv;
pub mod layout;
pub mod math;
pub mod matmul;
pub mod moe;
pub mod norm;
pub mod pointwise;
pub mod quantize;
pub mod reduce;
pub mod registry;
pub mod roofline;
pub mod rope;
pub mod select;
pub mod top_k;
pub mod variants;
pub mod weights;
