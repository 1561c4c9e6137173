//! What can be wrong with a model file beyond its container.

use thiserror::Error;

/// A fault of a model's metadata or tensors. Each names the key or tensor, what was found, and what was expected.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The file itself is at fault.
    #[error(transparent)]
    Gguf(#[from] hanzo_gguf::Error),
    /// No architecture of that name.
    #[error("architecture `{name}` is not supported; known: {known}")]
    UnknownArchitecture {
        /// What `general.architecture` says.
        name: String,
        /// Names that are known.
        known: String,
    },
    /// A hyper-parameter is out of its bounds.
    #[error("`{key}` is {found}; expected {expected}")]
    Hyper {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What would do.
        expected: String,
    },
    /// A weight is missing.
    #[error("tensor `{name}` is missing; expected shape {expected}")]
    MissingTensor {
        /// The tensor's name.
        name: String,
        /// Its shape in GGUF's order, the contiguous dimension first.
        expected: String,
    },
    /// A weight has another shape than the hyper-parameters say.
    #[error("tensor `{name}` has shape {found}; expected {expected}")]
    TensorShape {
        /// The tensor's name.
        name: String,
        /// Its shape.
        found: String,
        /// The shape that the hyper-parameters call for.
        expected: String,
    },
    /// A weight has a type that weights cannot have.
    #[error("tensor `{name}` has type {found}, which is not a weight format")]
    TensorType {
        /// The tensor's name.
        name: String,
        /// Its type.
        found: String,
    },
    /// Tensors that the architecture does not use: ignoring them would compute something else than the file says.
    #[error("{count} tensors are not used by architecture `{architecture}`, the first is `{first}`")]
    UnusedTensors {
        /// The architecture.
        architecture: String,
        /// How many.
        count: usize,
        /// The first.
        first: String,
    },
    /// The graph contradicts itself.
    #[error(transparent)]
    Graph(#[from] hanzo_fusion::GraphError),
}
