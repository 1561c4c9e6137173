//! The compiler: what a model computes (a [`Graph`] of primitive ops), how it is grouped into launches (a plan),
//! and the [`Device`] trait that runs a plan.
//!
//! Knows ops, shapes and buffers. Leaves architectures to `hanzo-models`, arithmetic to the devices, and files to
//! `hanzo-gguf`: weights are named here and read through [`WeightSource`].
#![forbid(unsafe_code)]

pub mod adapter;
pub mod device;
pub mod graph;
pub mod kernel;
pub mod kernels;
pub mod observe;
pub mod plan;
pub mod step;

pub use adapter::{Adapter, AdapterError, LowRank};
pub use device::{
    Device, DeviceError, LoadOptions, LoadedModel, MemoryReport, Progress, SourcePart, StepTimes,
    WeightSource,
};
pub use graph::{Builder, Graph, GraphError, Op, Shape, Value, Weight};
pub use observe::{ContractionInput, Observer};
pub use plan::{Domain, Launch, LaunchKind, Plan, PlanOptions};
pub use step::{
    AdapterUse, BLOCK_TOKENS, KvConfig, KvLayer, KvType, SequenceStep, StateLayer, StateSave, StateUse, Step,
};
