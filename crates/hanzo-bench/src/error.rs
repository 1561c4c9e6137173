//! What can be wrong with samples, runs and models.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Errors of measurement and of its evaluation. Each names the file and what is wrong in it.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A file could not be read or written.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// "read" or "write".
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no JSON, or not of the form that samples have.
    #[error("{path}: {why}")]
    Form {
        /// Which.
        path: PathBuf,
        /// What was expected and what is there.
        why: String,
    },
    /// A folder is no run.
    #[error("{path} is no run: {why}")]
    Run {
        /// Which.
        path: PathBuf,
        /// What it lacks.
        why: String,
    },
    /// What was asked for cannot be measured.
    #[error("{0}")]
    Asked(String),
    /// A model file.
    #[error(transparent)]
    Gguf(#[from] hanzo_gguf::Error),
    /// A model.
    #[error(transparent)]
    Model(#[from] hanzo_models::ModelError),
    /// A device.
    #[error(transparent)]
    Device(#[from] hanzo_fusion::DeviceError),
    /// The CPU device.
    #[error(transparent)]
    Cpu(#[from] hanzo_cpu::CpuError),
    /// A Vulkan device.
    #[error(transparent)]
    Vulkan(#[from] hanzo_vulkan::VulkanError),
    /// A kernel of the roofline.
    #[error(transparent)]
    Kernel(#[from] hanzo_fusion::kernel::KernelError),
    /// Its SPIR-V.
    #[error(transparent)]
    Spirv(#[from] hanzo_fusion::kernel::emit::spirv::SpirvError),
    /// A device computes something else than it must, or not all of it.
    #[error(
        "{device}: {wrong} of {of} {what} are wrong, so no figure of it can be believed; its driver may be at fault"
    )]
    Wrong {
        /// Which.
        device: String,
        /// What was computed.
        what: &'static str,
        /// How many results are wrong.
        wrong: usize,
        /// Of how many.
        of: usize,
    },
    /// The engine.
    #[error(transparent)]
    Engine(#[from] hanzo_engine::EngineError),
}

impl BenchError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what: "read", path, source }
    }

    pub(crate) fn write(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what: "write", path, source }
    }

    pub(crate) fn form(path: &Path, why: impl ToString) -> Self {
        Self::Form { path: path.to_owned(), why: why.to_string() }
    }
}
