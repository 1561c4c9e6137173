//! Kernels in the languages that drivers compile.
//!
//! Every emitter is a pure function of the kernel: the same kernel gives the same bytes.

pub mod c;
pub mod spirv;
