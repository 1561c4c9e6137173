//! The crate's one error type.

/// Why the CPU device could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// A weight matrix whose sizes contradict its format or each other.
    #[error("weight matrix {n_out} x {n_in} of {format}: {why}")]
    Shape {
        /// Format name.
        format: &'static str,
        /// Rows (outputs).
        n_out: usize,
        /// Columns (inputs, the contracted dimension).
        n_in: usize,
        /// What is wrong.
        why: String,
    },
    /// A format that the packed layout cannot hold.
    #[error("format {format} cannot be packed: {why}")]
    Format {
        /// Format name.
        format: &'static str,
        /// What is missing.
        why: String,
    },
    /// The source of raw weight rows failed.
    #[error("reading weight rows {first}..{last}: {source}")]
    Read {
        /// First row asked for.
        first: usize,
        /// One past the last row asked for.
        last: usize,
        /// The reader's error.
        source: std::io::Error,
    },
    /// Memory for packed weights or activations could not be had.
    #[error("no memory for {bytes} bytes of {what}")]
    Memory {
        /// What it was for.
        what: &'static str,
        /// How much.
        bytes: usize,
    },
    /// Operands that do not fit together.
    #[error("contraction: {0}")]
    Operands(String),
    /// A thread of the pool could not be started.
    #[error("cannot start worker thread: {0}")]
    Spawn(std::io::Error),
    /// Work given to the pool panicked; the pool itself stays usable.
    #[error("worker panicked: {0}")]
    WorkerPanic(String),
    /// `Pool::run` was called from inside `Pool::run`.
    #[error("the thread pool was entered again from inside its own work")]
    NestedRun,
    /// An instruction set that was asked for is unknown or absent on this machine.
    #[error("instruction set {asked:?} is not available; this machine has: {available}")]
    Isa {
        /// What was asked for.
        asked: String,
        /// What there is.
        available: String,
    },
}
