//! What can be wrong with an adapter.

use std::path::PathBuf;

use thiserror::Error;

/// A fault of an adapter, or of its use with a model. Each names the key, tensor or module.
#[derive(Debug, Error)]
pub enum LoraError {
    /// The file itself is at fault, or the system would not give its bytes.
    #[error(transparent)]
    Gguf(#[from] hanzo_gguf::Error),
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is larger than any adapter.
    #[error("{} has {bytes} bytes; at most {limit} can be an adapter's", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A file's own format is broken.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A GGUF file that is something else, such as a model.
    #[error("{} is no LoRA adapter: `{key}` is {found}, not {expected}", path.display())]
    NotAnAdapter {
        /// The file.
        path: PathBuf,
        /// The key that tells.
        key: &'static str,
        /// Its value.
        found: String,
        /// What an adapter has there.
        expected: &'static str,
    },
    /// A key of the description has a value that cannot be.
    #[error("`{key}` is {found}; expected {expected}")]
    Key {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// A key asks for something that is not supported.
    #[error("`{key}` is {found}: {what} is not supported")]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What it asks for.
        what: &'static str,
    },
    /// A tensor that cannot be used.
    #[error("tensor `{name}`: {reason}")]
    Tensor {
        /// Its name in the file.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// An adapter without updates.
    #[error("the adapter updates nothing")]
    Empty,
    /// An adapter of another architecture.
    #[error("the adapter is for architecture `{adapter}`, the model is `{model}`")]
    Architecture {
        /// The adapter's.
        adapter: String,
        /// The model's.
        model: String,
    },
    /// A module that the architecture does not have, or that cannot be updated.
    #[error("module `{module}`: {reason}")]
    Module {
        /// Its path from the model's root.
        module: String,
        /// What is wrong.
        reason: String,
    },
    /// PEFT's names are not known for the architecture.
    #[error(
        "the module names of architecture `{architecture}` are not known; convert the adapter with llama.cpp's convert_lora_to_gguf.py"
    )]
    NoModuleNames {
        /// The model's architecture.
        architecture: String,
    },
    /// An update does not fit its weight.
    #[error(transparent)]
    Update(#[from] hanzo_fusion::AdapterError),
}
