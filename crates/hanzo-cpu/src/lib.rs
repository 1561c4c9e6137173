//! The CPU device: packed weights, integer contraction cores, row-wise ops, attention and the thread pool.
//!
//! Start with [`pool`] (how work is split), then [`packed`] (how a weight matrix lies in memory), [`activations`] (its
//! other operand) and [`contract`] (the product of the two and where its results go). `matvec`, `gemm` and `moe` hold the
//! cores, `low_rank` what adapters add to their results; [`ops`], [`attention`] and `recurrent` hold what is not a contraction,
//! and [`exec`] runs a whole plan. [`probe`] measures what the machine could do at most.
//!
//! Every number this crate computes has one order of operations, written down in `hanzo_quant::canonical`, whatever the
//! batch, the thread count or the instruction set. It knows nothing of models, their files or requests; the one
//! thing it keeps on disk, where it is asked to, is what it packed (`exec::pack_cache`).

mod error;

pub mod activations;
pub mod attention;
pub mod contract;
pub mod epilogue;
pub mod exec;
pub mod isa;
pub mod ops;
pub mod packed;
pub mod pool;
pub mod probe;

mod gemm;
#[cfg(test)]
mod lora_numeric;
mod low_rank;
mod matvec;
mod moe;
#[cfg(test)]
mod numeric;
mod recurrent;
mod simd;

pub use error::CpuError;
