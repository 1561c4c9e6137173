//! The architectures, one file each.

mod bert;
mod gemma3;
mod llama;
mod qwen2;
mod qwen3;
mod qwen3next;

use hanzo_fusion::Value;

use crate::Result;
use crate::hyper::Hyper;
use crate::lora::names::HfNames;
use crate::weights::Weights;

/// An architecture: its name in GGUF and what builds its graph.
pub struct Architecture {
    /// `general.architecture`.
    pub name: &'static str,
    /// Reads hyper-parameters, declares weights, emits ops; returns the logits, or the hidden states of a model without.
    pub(crate) build: fn(&Hyper<'_>, &mut Weights<'_>) -> Result<Value>,
}

/// All architectures.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "llama", build: llama::build },
    Architecture { name: "qwen2", build: qwen2::build },
    Architecture { name: "qwen3", build: qwen3::build },
    Architecture { name: "qwen3moe", build: qwen3::build_moe },
    Architecture { name: "qwen3next", build: qwen3next::build_next },
    Architecture { name: "qwen35", build: qwen3next::build_35 },
    Architecture { name: "gemma3", build: gemma3::build },
    Architecture { name: "bert", build: bert::build },
];

/// Hugging Face's names of an architecture's modules, for adapters; `None` where they are not known.
pub(crate) fn hf_names(architecture: &str) -> Option<HfNames> {
    Some(match architecture {
        "llama" => llama::HF_NAMES,
        "qwen2" => qwen2::HF_NAMES,
        "qwen3" | "qwen3moe" => qwen3::HF_NAMES,
        "gemma3" => gemma3::HF_NAMES,
        _ => return None,
    })
}
