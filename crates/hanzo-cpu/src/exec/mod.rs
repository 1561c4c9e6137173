//! Runs a plan: the CPU as a [`Device`].
//!
//! A step is one [`Pool::run`]: all threads walk the launches together and meet at a barrier after each. Inside a launch they
//! share strips of rows ([`rows`]), strips of outputs ([`contract`]) or pieces of attention. What a step brings is checked
//! ([`step`]) before any thread starts, so that kernels need not distrust it.
#![allow(unsafe_code)]

mod adapters;
mod arena;
mod clock;
mod contract;
mod observe;
mod pack_cache;
mod recurrent;
mod rows;
mod run;
mod step;
mod weights;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use hanzo_fusion::graph::Graph;
use hanzo_fusion::{
    Device, DeviceError, LoadOptions, LoadedModel, MemoryReport, Observer, Plan, PlanOptions, Progress,
    StateUse, Step, StepTimes, WeightSource,
};

use crate::CpuError;
use crate::isa::CpuConfig;
use crate::pool::Pool;

/// The CPU.
#[derive(Debug)]
pub struct CpuDevice {
    pool: Arc<Pool>,
    plan: PlanOptions,
    print_plan: bool,
    pack_cache: Option<pack_cache::PackCache>,
}

impl CpuDevice {
    /// A device with its own threads.
    ///
    /// # Errors
    /// [`CpuError::Isa`] for an instruction set that the machine lacks, [`CpuError::Spawn`] where threads are refused.
    pub fn new(config: &CpuConfig) -> Result<Self, CpuError> {
        Ok(Self {
            pool: Arc::new(Pool::configured(config)?),
            plan: PlanOptions { fuse: !config.no_fuse },
            print_plan: config.print_plan,
            pack_cache: None,
        })
    }

    /// The same, keeping packed weights in `folder` (made when it is needed), from which the next load of the same file reads them in place
    /// of packing. What is not as it was is packed anew; a folder that cannot be read or written costs a warning.
    #[must_use]
    pub fn with_pack_cache(self, folder: &Path) -> Self {
        Self { pack_cache: Some(pack_cache::PackCache::new(folder)), ..self }
    }
}

impl Device for CpuDevice {
    fn describe(&self) -> String {
        let threads = self.pool.threads();
        format!("cpu ({}, {threads} thread{})", self.pool.isa().name(), if threads == 1 { "" } else { "s" })
    }

    fn load(
        &self,
        graph: Arc<Graph>,
        weights: &dyn WeightSource,
        options: LoadOptions,
        progress: &dyn Progress,
    ) -> Result<Box<dyn LoadedModel>, DeviceError> {
        Ok(Box::new(self.load_plan(Plan::new(&graph, self.plan)?, weights, options, progress)?))
    }

    fn load_observed(
        &self,
        graph: Arc<Graph>,
        weights: &dyn WeightSource,
        options: LoadOptions,
        observer: Arc<dyn Observer>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn LoadedModel>, DeviceError> {
        let plan = Plan::observed(&graph, self.plan)?;
        let model = self.load_plan(plan, weights, options, progress)?;
        Ok(Box::new(model.observed_by(observer)))
    }
}

impl CpuDevice {
    fn load_plan(
        &self,
        plan: Plan,
        weights: &dyn WeightSource,
        options: LoadOptions,
        progress: &dyn Progress,
    ) -> Result<run::Model, DeviceError> {
        if self.print_plan {
            use std::io::Write as _;
            // Asked for by a debugging variable; a closed stderr is no reason to fail.
            let _ = std::io::stderr().write_all(plan.text().as_bytes());
        }
        let cache = self.pack_cache.as_ref();
        run::Model::load(Arc::clone(&self.pool), plan, weights, options, cache, progress)
    }
}

impl LoadedModel for run::Model {
    fn step(&mut self, step: &Step<'_>, logits: &mut [f32]) -> Result<(), DeviceError> {
        self.run(step, &[], logits, None)
    }

    fn step_states(
        &mut self,
        step: &Step<'_>,
        states: &[StateUse<'_>],
        logits: &mut [f32],
    ) -> Result<(), DeviceError> {
        self.run(step, states, logits, None)
    }

    fn copy_states(&mut self, pairs: &[(u32, u32)]) -> Result<(), DeviceError> {
        self.copy_slots(pairs)
    }

    fn step_timed(&mut self, step: &Step<'_>, logits: &mut [f32]) -> Result<StepTimes, DeviceError> {
        let clock = clock::Clock::new(self.plan().launches.len());
        self.run(step, &[], logits, Some(&clock))?;
        Ok(clock.times())
    }

    fn hidden(&self) -> &[f32] {
        self.hidden_states()
    }

    fn copy_blocks(&mut self, group: usize, pairs: &[(u32, u32)]) -> Result<(), DeviceError> {
        self.copy(group, pairs)
    }

    fn memory(&self) -> MemoryReport {
        self.report()
    }

    fn plan_text(&self) -> String {
        self.plan().text()
    }
}

/// A fault of loading, in the device's terms.
fn load_error(name: &str, error: CpuError) -> DeviceError {
    match error {
        CpuError::Memory { what, bytes } => {
            DeviceError::OutOfMemory { what: what.to_owned(), bytes: bytes as u64 }
        }
        CpuError::Format { format, why } => {
            DeviceError::Unsupported { device: "cpu", what: format!("`{name}`: format {format}: {why}") }
        }
        // The source's own error names the weight.
        CpuError::Read { first, last, source } => source.downcast().unwrap_or_else(|source| {
            let reason = CpuError::Read { first, last, source }.to_string();
            DeviceError::Weight { name: name.to_owned(), reason }
        }),
        error => DeviceError::Weight { name: name.to_owned(), reason: error.to_string() },
    }
}
