//! The kernels against the CPU oracle, on every executor that a machine without a GPU has: the interpreter with subgroups of 8, 32 and 64,
//! the text of each C dialect on fibres, and SPIR-V on Vulkan.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod compose;
mod experts;
mod harness;
mod made_up;
mod matmul;
mod roofline;
mod rows;
mod tokens;
mod units;
