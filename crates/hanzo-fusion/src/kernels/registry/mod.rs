//! Every kernel that the crate knows, in one table: what the proofs compile, what the cost model weighs, what `hanzo kernels` lists.
//!
//! A kernel joins by one [`Family`] in [`FAMILIES`]; nothing else names it. An [`Instance`] is a family with its parameters chosen, together
//! with a launch that stands for its use: the shapes of an 8-billion-parameter model (of experts, of one of 30 billion with 3 active) at one decoded
//! token, or at a prompt of 512. Which of a kernel's variants an instance is, [`Variants`] say.

mod attention;
mod contract;
mod experts;
mod roofline;
mod rows;

use hanzo_quant::{Format, QuantType};

use super::layout::Layout;
use super::variants::Variants;
use crate::kernel::{Kernel, KernelError};

/// A kernel before its parameters are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// A lower-case C identifier.
    pub name: &'static str,
    /// What it computes, in one line.
    pub about: &'static str,
    /// Its instances for subgroups of that many lanes; none where it does not run at that width, or where a variant does without it.
    pub instances: fn(u32, &Variants) -> Vec<Instance>,
}

/// A kernel with its parameters chosen.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Unique in the registry, a lower-case C identifier that begins with the family's name.
    pub name: String,
    /// The weights' format, where the kernel reads any.
    pub format: Option<&'static Format>,
    /// The kernel, not optimized, or why it cannot be.
    pub kernel: Result<Kernel, KernelError>,
    /// A launch that stands for its use.
    pub launch: Launch,
    /// Whether it stands for others of its family, which differ from it by the format only: compilers' tables and short lists have these.
    pub representative: bool,
    /// Where it is not the usual kernel: which one it stands in for.
    pub stand_in: Option<StandIn>,
}

/// Why a plain variant runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// The name of the instance in whose place it is.
    pub usual: String,
    /// The variable that chose it.
    pub variable: &'static str,
}

impl Instance {
    /// A representative one of the usual kind.
    fn new(name: &str, kernel: Result<Kernel, KernelError>, launch: Launch) -> Self {
        Self { name: name.to_owned(), format: None, kernel, launch, representative: true, stand_in: None }
    }

    /// That reads weights of this format.
    fn reading(self, format: &'static Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// In the place of `usual`, by a variable.
    fn standing_in(self, usual: String, variable: &'static str) -> Self {
        Self { stand_in: Some(StandIn { usual, variable }), ..self }
    }

    /// Whether that is its name, or that of what it stands in for.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.stand_in.as_ref().is_some_and(|s| s.usual == name)
    }
}

/// A launch's shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launch {
    /// In words: "4096 × 4096, 1 row".
    pub shape: String,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Bits of the parameters, by name.
    pub params: Vec<(&'static str, u32)>,
    /// What a load from the named buffer gives, where loop bounds or conditions depend on it (lengths, expert ids).
    pub reads: Vec<(&'static str, u32)>,
}

impl Launch {
    /// The bits of the parameters in the kernel's order; 0 for what the launch does not name.
    pub fn bits(&self, kernel: &Kernel) -> Vec<u32> {
        let named = |name: &str| self.params.iter().find(|(n, _)| *n == name).map_or(0, |(_, bits)| *bits);
        kernel.params.iter().map(|p| named(&p.name)).collect()
    }
}

/// All families, in the order of a layer's work; what measures a device stands last.
pub const FAMILIES: &[Family] = &[
    Family { name: "rms_norm", about: "row norm", instances: rows::rms_norm },
    Family { name: "add_rms_norm", about: "residual sum and row norm", instances: rows::add_rms_norm },
    Family {
        name: "quantize_q8",
        about: "activations to int8 with a scale a group",
        instances: rows::quantize,
    },
    Family {
        name: "rows",
        about: "row-wise groups of a plan, composed of their ops' bodies",
        instances: rows::composed,
    },
    Family {
        name: "qmatvec",
        about: "quantized weights by few rows of activations",
        instances: contract::matvec,
    },
    Family {
        name: "qmatvec_pair",
        about: "a gate and what it gates by few rows, f(gate) · up",
        instances: contract::pair,
    },
    Family {
        name: "qmatvec_experts",
        about: "experts' quantized weights by few slots",
        instances: contract::expert_matvec,
    },
    Family {
        name: "qmatvec_pair_experts",
        about: "experts' gate and what it gates by few slots",
        instances: contract::expert_pair,
    },
    Family {
        name: "qgemm",
        about: "quantized weights by many rows of activations",
        instances: contract::gemm,
    },
    Family {
        name: "qgemm_experts",
        about: "experts' quantized weights by slots grouped by expert",
        instances: contract::expert_gemm,
    },
    Family { name: "matmul", about: "float weights by rows of activations", instances: contract::float },
    Family {
        name: "matmul_experts",
        about: "experts' float weights by slots",
        instances: contract::expert_float,
    },
    Family { name: "moe_route", about: "which experts a token takes", instances: experts::route },
    Family {
        name: "moe_group_slots",
        about: "which slots an expert gets, in tiles",
        instances: experts::group_slots,
    },
    Family { name: "embed", about: "rows of a quantized table by token ids", instances: rows::embed },
    Family {
        name: "rope_norm_positions",
        about: "heads normalized, then rotated by position",
        instances: rows::rope,
    },
    Family { name: "kv_write", about: "keys and values into the paged cache", instances: rows::kv_write },
    Family {
        name: "attention_decode",
        about: "one token's attention over the paged cache, keys split among workgroups",
        instances: attention::decode,
    },
    Family {
        name: "attention_combine",
        about: "what those workgroups found, merged in order",
        instances: attention::combine,
    },
    Family {
        name: "attention_prefill",
        about: "a prompt's attention over the paged cache",
        instances: attention::prefill,
    },
    Family { name: "copy", about: "rows copied and converted", instances: rows::copy },
    Family { name: "argmax", about: "the greatest logit of a row", instances: rows::argmax },
    Family { name: "top_k", about: "the greatest logits of a row, in order", instances: rows::top_k },
    Family {
        name: "roofline",
        about: "what a device reads, dots and multiply-adds at most",
        instances: roofline::all,
    },
];

/// The instances of all families for subgroups of that many lanes, as the engine runs them.
pub fn instances(subgroup: u32) -> impl Iterator<Item = (&'static Family, Instance)> {
    instances_with(subgroup, Variants::default())
}

/// As [`instances`], with the variants that were chosen.
pub fn instances_with(
    subgroup: u32,
    variants: Variants,
) -> impl Iterator<Item = (&'static Family, Instance)> {
    FAMILIES
        .iter()
        .flat_map(move |family| (family.instances)(subgroup, &variants).into_iter().map(move |i| (family, i)))
}

/// The layout of every block format, in the order of [`QuantType::ALL`].
pub fn layouts() -> impl Iterator<Item = Layout> {
    QuantType::ALL.iter().filter_map(|t| Layout::of(t.format()))
}

/// Formats that stand for all where a kernel is too large to compile for each: linear codes with mins, of more planes and half groups, of whole
/// bytes; a codebook of vectors; a table of values.
pub const REPRESENTATIVES: [&str; 5] = ["Q4_K", "Q6_K", "Q8_0", "IQ3_S", "MXFP4"];

/// A layout's name in kernels' names.
fn suffix(layout: &Layout) -> String {
    layout.format.name.to_lowercase()
}

/// Width of the model whose shapes stand for all.
pub const HIDDEN: u32 = 4096;

/// Width of its feed-forward part.
const FEED_FORWARD: u32 = 14_336;
/// Tokens of its vocabulary.
const VOCAB: u32 = 128_256;
/// Tokens of a prompt.
const PROMPT: u32 = 512;
/// Elements of its heads.
const HEAD_DIM: u32 = 128;
/// Heads of its queries.
const HEADS: u32 = 32;
/// Heads of its keys and values.
const KV_HEADS: u32 = 8;
/// Experts of the model that has them.
const EXPERTS: u32 = 128;
/// Of these a token takes so many.
const PER_TOKEN: u32 = 8;
/// Its width.
const EXPERTS_HIDDEN: u32 = 2048;
/// Width of an expert.
const EXPERT_WIDTH: u32 = 768;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
