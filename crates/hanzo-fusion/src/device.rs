//! The device interface: load a planned model once, then run steps.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use thiserror::Error;

use crate::graph::{Graph, WeightDecl};
use crate::observe::Observer;
use crate::step::{KvConfig, StateUse, Step};

/// Errors of a device. Each names what failed.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// A weight could not be read.
    #[error("weight `{name}`: {reason}")]
    Weight {
        /// The weight's name in the model file.
        name: String,
        /// What went wrong.
        reason: String,
    },
    /// The device has no kernel for something that the model needs.
    #[error("{device}: {what} is not supported")]
    Unsupported {
        /// The device's name.
        device: &'static str,
        /// What is missing.
        what: String,
    },
    /// Memory that was asked for is not to be had.
    #[error("out of memory: {what} needs {bytes} bytes")]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// How much.
        bytes: u64,
    },
    /// A step's inputs contradict each other or the model (a fault of the caller, caught before any kernel runs).
    #[error("invalid step: {0}")]
    InvalidStep(String),
    /// A kernel or a worker failed; the step's results are void, the device goes on.
    #[error("step failed: {0}")]
    StepFailed(String),
    /// The model cannot be planned.
    #[error(transparent)]
    Graph(#[from] crate::graph::GraphError),
}

/// Where weights come from. Reads are checked copies: a file that shrinks under us gives an error, not a signal.
pub trait WeightSource: Sync {
    /// Fills `out` with the bytes of `weight` from byte `offset`, in GGUF's block layout, row-major.
    ///
    /// # Errors
    /// [`DeviceError::Weight`] when the bytes cannot be had.
    fn read(&self, weight: &WeightDecl, offset: u64, out: &mut [u8]) -> Result<(), DeviceError>;

    /// The files that the weights lie in, in order, each as it is now; none where they lie in no file. For devices that keep what
    /// they made of a model until it is loaded again.
    ///
    /// # Errors
    /// [`DeviceError::Weight`] when a file cannot be looked at.
    fn parts(&self) -> Result<Vec<SourcePart>, DeviceError> {
        Ok(Vec::new())
    }

    /// Fills `out` with the bytes of file `part` (its place in [`parts`](Self::parts)) from byte `offset`, whatever they mean.
    ///
    /// # Errors
    /// [`DeviceError::Weight`] when the bytes cannot be had.
    fn read_part(&self, part: usize, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let _ = (part, offset, out);
        Err(DeviceError::Unsupported { device: "this source of weights", what: "reading files".to_owned() })
    }
}

/// A file that weights lie in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePart {
    /// Its path, without links where they could be followed.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// Numbers that are others once its bytes have changed: its number in the file system, its times.
    pub stamp: Vec<u64>,
    /// When its bytes may have changed last; `None` where nobody knows.
    pub changed: Option<SystemTime>,
}

/// Hears how far a load has come.
pub trait Progress: Sync {
    /// `done` of `total` bytes of weights are packed. May be called from any thread.
    fn update(&self, done: u64, total: u64);
}

/// A [`Progress`] that hears nothing.
impl Progress for () {
    fn update(&self, _done: u64, _total: u64) {}
}

/// Limits of a loaded model.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Most rows a step may have.
    pub max_tokens: usize,
    /// Most rows of a step whose logits or hidden states are wanted.
    pub max_outputs: usize,
    /// The KV pool.
    pub kv: KvConfig,
}

/// What a loaded model occupies, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Packed weights.
    pub weights: u64,
    /// KV pool, and recurrent states.
    pub kv: u64,
    /// Activations and scratch.
    pub arena: u64,
}

/// Where the time of a step went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// From the call to the first launch: checks, tables, uploads.
    pub prepare: Duration,
    /// Of each launch of the plan, from the end of the one before to its own.
    pub launches: Vec<Duration>,
    /// From the end of the last launch to the return.
    pub finish: Duration,
}

impl StepTimes {
    /// All of it.
    pub fn total(&self) -> Duration {
        self.prepare + self.launches.iter().sum::<Duration>() + self.finish
    }
}

/// A kind of hardware that can run graphs.
pub trait Device: Send + Sync {
    /// Short name with what was found ("cpu (avx512-vnni, 2 threads)").
    fn describe(&self) -> String;

    /// Plans `graph`, reads and packs its weights, and reserves the KV pool.
    ///
    /// # Errors
    /// [`DeviceError`] when a weight cannot be read, an op is unsupported, or memory is short.
    fn load(
        &self,
        graph: Arc<Graph>,
        weights: &dyn WeightSource,
        options: LoadOptions,
        progress: &dyn Progress,
    ) -> Result<Box<dyn LoadedModel>, DeviceError>;

    /// As [`load`](Self::load), for a model whose steps show `observer` what enters their contractions. Such a model computes
    /// every row of every layer, wanted or not; its logits are those of any other.
    ///
    /// # Errors
    /// As [`load`](Self::load), and [`DeviceError::Unsupported`] on devices that cannot.
    fn load_observed(
        &self,
        graph: Arc<Graph>,
        weights: &dyn WeightSource,
        options: LoadOptions,
        observer: Arc<dyn Observer>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn LoadedModel>, DeviceError> {
        let _ = (graph, weights, options, observer, progress);
        Err(DeviceError::Unsupported { device: "this device", what: "observing a model".to_owned() })
    }
}

/// A model on a device, with its KV pool.
pub trait LoadedModel: Send {
    /// Runs one step: writes keys and values of its tokens, and the logits of `step.outputs` to `logits`
    /// (`[outputs, vocab]` f32, row-major). Recurrent states, where the model has some, stay in slots: that of the step's
    /// `i`-th sequence in slot `i`.
    ///
    /// # Errors
    /// [`DeviceError::InvalidStep`] when the inputs contradict each other, [`DeviceError::StepFailed`] when a kernel
    /// failed. The model can be used again after either.
    fn step(&mut self, step: &Step<'_>, logits: &mut [f32]) -> Result<(), DeviceError>;

    /// As [`step`](Self::step), with the recurrent states of the step's sequences where `states` says, one entry a sequence.
    /// A model without recurrent states takes none.
    ///
    /// # Errors
    /// As [`step`](Self::step), which leaves the states that were to be written undefined;
    /// [`DeviceError::Unsupported`] from a device without recurrent states.
    fn step_states(
        &mut self,
        step: &Step<'_>,
        states: &[StateUse<'_>],
        logits: &mut [f32],
    ) -> Result<(), DeviceError> {
        if states.is_empty() {
            return self.step(step, logits);
        }
        Err(DeviceError::Unsupported { device: "this device", what: "a recurrent state".to_owned() })
    }

    /// Final hidden states of the last step's `hidden` rows (`[hidden, n_embd]` f32, row-major), in their order. Empty after a
    /// step that failed.
    fn hidden(&self) -> &[f32];

    /// As [`step`](Self::step), and says where its time went. The launches are those of [`Plan`](crate::Plan) for the same graph
    /// and options. A step that is not timed takes no times and costs nothing more for being able to.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`DeviceError::Unsupported`] from a device that cannot tell.
    fn step_timed(&mut self, step: &Step<'_>, logits: &mut [f32]) -> Result<StepTimes, DeviceError> {
        let _ = (step, logits);
        Err(DeviceError::Unsupported { device: "this device", what: "timing of launches".to_owned() })
    }

    /// Copies KV blocks `(from, to)` of a group, for copy-on-write.
    ///
    /// # Errors
    /// [`DeviceError::InvalidStep`] when a block does not exist.
    fn copy_blocks(&mut self, group: usize, pairs: &[(u32, u32)]) -> Result<(), DeviceError>;

    /// Copies recurrent states `(from, to)`, slot to slot, in order.
    ///
    /// # Errors
    /// [`DeviceError::InvalidStep`] when a slot does not exist; [`DeviceError::Unsupported`] from a device without recurrent states.
    fn copy_states(&mut self, pairs: &[(u32, u32)]) -> Result<(), DeviceError> {
        if pairs.is_empty() {
            return Ok(());
        }
        Err(DeviceError::Unsupported { device: "this device", what: "a recurrent state".to_owned() })
    }

    /// Bytes held.
    fn memory(&self) -> MemoryReport;

    /// The plan as text, one line a launch: what it fuses, bytes and operations (`HANZO_PLAN=print`).
    fn plan_text(&self) -> String;
}
