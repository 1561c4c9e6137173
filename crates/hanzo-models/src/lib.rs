//! Architectures: what a GGUF file's metadata says, as a graph of primitive ops with the names of its weights.
//!
//! [`load`] reads the hyper-parameters, checks every one, finds the weights by name, checks their shapes, and hands
//! back a [`Model`]. One file an architecture under `arch/`, and that file says the architecture and nothing else: no
//! device, no request, no kernel. Adding one is that file and a line in [`ARCHITECTURES`].
#![forbid(unsafe_code)]

mod arch;
mod decoder;
mod error;
mod ffn;
mod hyper;
pub mod lora;
mod pooling;
mod rope;
mod source;
mod weights;

use std::sync::Arc;

use hanzo_fusion::Graph;
use hanzo_gguf::GgufFile;

pub use arch::{ARCHITECTURES, Architecture};
pub use error::ModelError;
pub use pooling::Pooling;
pub use source::GgufWeights;

/// Result of this crate.
pub type Result<T, E = ModelError> = std::result::Result<T, E>;

/// A model as its file describes it, ready for a device.
#[derive(Clone, Debug)]
pub struct Model {
    /// The architecture's name in GGUF (`general.architecture`).
    pub architecture: &'static str,
    /// What is computed.
    pub graph: Arc<Graph>,
    /// Longest context that the model was made for, in tokens.
    pub context_length: usize,
    /// How the model's texts become embeddings, where the file says it.
    pub pooling: Option<Pooling>,
}

/// Reads a model's architecture from its file. No weight is read but small ones that shape the graph (rotary factors).
///
/// # Errors
/// [`ModelError`] naming the key or tensor at fault.
pub fn load(file: &GgufFile) -> Result<Model> {
    let name = file.metadata().required_str("general.architecture")?;
    let Some(architecture) = ARCHITECTURES.iter().find(|a| a.name == name) else {
        return Err(ModelError::UnknownArchitecture {
            name: name.to_owned(),
            known: ARCHITECTURES.iter().map(|a| a.name).collect::<Vec<_>>().join(", "),
        });
    };
    let hyper = hyper::Hyper::new(file.metadata(), architecture.name);
    let mut weights = weights::Weights::new(file)?;
    let context_length = hyper.count("context_length", 1..=hyper::MAX_CONTEXT)?;
    let pooling = Pooling::from_metadata(&hyper)?;
    let logits = (architecture.build)(&hyper, &mut weights)?;
    let graph = Arc::new(weights.finish(logits)?);
    Ok(Model { architecture: architecture.name, graph, context_length, pooling })
}
