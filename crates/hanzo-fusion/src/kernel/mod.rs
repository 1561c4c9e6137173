//! The kernel language: device kernels written once, in Rust, and lowered to every target.
//!
//! * [`build`]: what kernels are written with.
//! * [`ir`]: what they are: typed values in structured blocks.
//! * [`names`]: what a kernel and its buffers may be called.
//! * [`verify`]: types, scopes, and that every barrier is met by all.
//! * [`opt`]: constants folded, common subexpressions merged, dead code gone.
//! * [`interpret`]: runs a kernel on the CPU, a whole workgroup in lockstep, and reports races, stray accesses and undefined reads.
//! * [`print`](mod@print): the IR as text.
//! * [`cost`]: what a launch should cost on which device, and what binds it.
//! * [`emit`]: CUDA, HIP and Metal source, and SPIR-V.
//!
//! Nothing here knows models, drivers or files. What no target may do differently: f32 operations round once and are never contracted
//! or reassociated, integers wrap.

pub mod build;
pub mod cost;
pub mod emit;
pub mod interpret;
pub mod ir;
pub mod names;
pub mod opt;
pub mod print;
pub mod verify;

use std::panic::Location;

use thiserror::Error;

pub use build::{Array, Builder, F16, IntoVal, Reg, Tile, Val};
pub use ir::{Access, Combine, Dot, Elem, Frag, Kernel, Side};

/// A language of the C family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// CUDA C++.
    Cuda,
    /// HIP C++.
    Hip,
    /// Metal Shading Language.
    Metal,
}

/// A kernel that cannot be.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("kernel `{kernel}`, {at}: {reason}")]
pub struct KernelError {
    /// Its name.
    pub kernel: String,
    /// Where in the kernel's source.
    pub at: &'static Location<'static>,
    /// What is wrong with it.
    pub reason: String,
}

/// The page on the language: its code runs as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/dsl.md")]
pub struct Page;
