//! Every kernel that the crate knows, in one table: what the proofs compile, what the cost model weighs, what `hanzo kernels` lists.
//!
//! A kernel joins by one [`Family`] in [`FAMILIES`]; nothing else names it. An [`Instance`] is a family with its parameters chosen, together
//! with a launch that stands for its use: the shapes of an 8-billion-parameter model at one decoded token, or at a prompt of 512.

use hanzo_quant::canonical::GROUP;
use hanzo_quant::{Format, QuantType};

use super::copy::{self, CopyRows};
use super::embed::{self, embed};
use super::kv::{KvShape, kv_write};
use super::layout::Layout;
use super::matmul::float::Float;
use super::matmul::matvec::MatVec;
use super::norm::Residual;
use super::rope::RopeNorm;
use super::{argmax, matmul, norm, quantize};
use crate::graph::RopeStyle;
use crate::kernel::{Kernel, KernelError};
use crate::step::KvType;

/// A kernel before its parameters are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// A lower-case C identifier.
    pub name: &'static str,
    /// What it computes, in one line.
    pub about: &'static str,
    /// Its representative instances for subgroups of that many lanes; none where it does not run at that width.
    pub instances: fn(u32) -> Vec<Instance>,
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

/// All families, in the order of a layer's work.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "rms_norm",
        about: "row norm",
        instances: |subgroup| vec![norm_instance(subgroup, Residual::None)],
    },
    Family {
        name: "add_rms_norm",
        about: "residual sum and row norm",
        instances: |subgroup| vec![norm_instance(subgroup, Residual::Add)],
    },
    Family {
        name: "quantize_q8",
        about: "activations to int8 with a scale a group",
        instances: |subgroup| vec![quantize_instance(subgroup)],
    },
    Family {
        name: "qmatvec",
        about: "quantized weights by few rows of activations",
        instances: |subgroup| {
            layouts()
                .flat_map(|layout| [1, 4].map(|batch| matvec_instance(subgroup, layout, batch)))
                .collect()
        },
    },
    Family {
        name: "embed",
        about: "rows of a quantized table by token ids",
        instances: |subgroup| {
            let sampled = layouts().filter(|layout| ["Q4_K", "Q6_K"].contains(&layout.format.name));
            sampled.map(|layout| embed_instance(subgroup, layout)).collect()
        },
    },
    Family {
        name: "rope_norm_positions",
        about: "heads normalized, then rotated by position",
        instances: |subgroup| vec![rope_instance(subgroup)],
    },
    Family {
        name: "kv_write",
        about: "keys and values into the paged cache",
        instances: |subgroup| {
            [KvType::F16, KvType::Int8, KvType::F32]
                .map(|kv_type| kv_write_instance(subgroup, kv_type))
                .into()
        },
    },
    Family {
        name: "copy",
        about: "rows copied and converted",
        instances: |subgroup| vec![copy_instance(subgroup)],
    },
    Family {
        name: "argmax",
        about: "the greatest logit of a row",
        instances: |subgroup| {
            let kernel = argmax::argmax(subgroup);
            vec![logits_instance("argmax", format!("1 row of {VOCAB}"), kernel)]
        },
    },
];

/// The instances of all families for subgroups of that many lanes.
pub fn instances(subgroup: u32) -> impl Iterator<Item = (&'static Family, Instance)> {
    FAMILIES.iter().flat_map(move |family| (family.instances)(subgroup).into_iter().map(move |i| (family, i)))
}

/// The layout of every block format, in the order of [`QuantType::ALL`].
pub fn layouts() -> impl Iterator<Item = Layout> {
    QuantType::ALL.iter().filter_map(|t| Layout::of(t.format()))
}

/// Width of the model whose shapes stand for all.
pub const HIDDEN: u32 = 4096;

/// Tokens of its vocabulary.
const VOCAB: u32 = 128_256;
/// Elements of its heads.
const HEAD_DIM: u32 = 128;
/// Heads of its queries.
const HEADS: u32 = 32;
/// Heads of its keys and values.
const KV_HEADS: u32 = 8;

fn norm_instance(subgroup: u32, residual: Residual) -> Instance {
    let name = if residual == Residual::Add { "add_rms_norm" } else { "rms_norm" };
    Instance {
        name: name.to_owned(),
        format: None,
        kernel: norm::rms_norm(subgroup, residual),
        launch: Launch {
            shape: format!("512 rows of {HIDDEN}"),
            grid: [512, 1, 1],
            params: vec![("n", HIDDEN), ("eps", 1e-5f32.to_bits())],
            reads: vec![],
        },
    }
}

fn quantize_instance(subgroup: u32) -> Instance {
    let groups = 512 * HIDDEN / GROUP as u32;
    let kernel = quantize::quantize_q8(subgroup);
    let workgroup = kernel.as_ref().map_or(1, |k| k.workgroup);
    Instance {
        name: "quantize_q8".to_owned(),
        format: None,
        kernel,
        launch: Launch {
            shape: format!("512 rows of {HIDDEN}"),
            grid: [(groups * 8).div_ceil(workgroup), 1, 1],
            params: vec![("n_groups", groups)],
            reads: vec![],
        },
    }
}

fn matvec_instance(subgroup: u32, layout: Layout, batch: u32) -> Instance {
    let plan = MatVec { layout, pair: None, rows: matmul::Rows::Dense, batch };
    Instance {
        name: format!("qmatvec_{}_x{batch}", layout.format.name.to_lowercase()),
        format: Some(layout.format),
        kernel: plan.kernel(subgroup),
        launch: Launch {
            shape: format!("{HIDDEN} × {HIDDEN}, rows: {batch}"),
            grid: [HIDDEN.div_ceil(plan.rows_per_workgroup(subgroup)), 1, 1],
            params: vec![("n_groups", HIDDEN / GROUP as u32), ("n_out", HIDDEN), ("n_rows", batch)],
            reads: vec![],
        },
    }
}

fn embed_instance(subgroup: u32, layout: Layout) -> Instance {
    let n_groups = HIDDEN / GROUP as u32;
    Instance {
        name: format!("embed_{}", layout.format.name.to_lowercase()),
        format: Some(layout.format),
        kernel: embed(layout, subgroup),
        launch: Launch {
            shape: format!("512 tokens of {HIDDEN}"),
            grid: [n_groups.div_ceil(embed::GROUPS), 512, 1],
            params: vec![("n_groups", n_groups), ("n_vocab", VOCAB)],
            reads: vec![],
        },
    }
}

fn rope_instance(subgroup: u32) -> Instance {
    let plan = RopeNorm { style: RopeStyle::Halves, norm: true, head_dim: HEAD_DIM, n_rot: HEAD_DIM };
    Instance {
        name: "rope_norm_positions".to_owned(),
        format: None,
        kernel: plan.kernel(subgroup),
        launch: Launch {
            shape: format!("512 tokens, {HEADS} heads of {HEAD_DIM}"),
            grid: [HEADS, 512, 1],
            params: vec![("eps", 1e-6f32.to_bits())],
            reads: vec![],
        },
    }
}

fn kv_write_instance(subgroup: u32, kv_type: KvType) -> Instance {
    let name = match kv_type {
        KvType::F16 => "kv_write_f16",
        KvType::Int8 => "kv_write_int8",
        KvType::F32 => "kv_write_f32",
    };
    let shape = KvShape { kv_type, n_kv_heads: KV_HEADS, k_dim: HEAD_DIM, v_dim: HEAD_DIM };
    Instance {
        name: name.to_owned(),
        format: None,
        kernel: kv_write(shape, subgroup),
        launch: Launch {
            shape: format!("512 tokens, {KV_HEADS} heads of {HEAD_DIM}"),
            grid: [KV_HEADS, 512, 1],
            params: vec![],
            reads: vec![("slots", 0)],
        },
    }
}

fn copy_instance(subgroup: u32) -> Instance {
    let plan = CopyRows { from: Float::F32, to: Float::F16, gather: false };
    Instance {
        name: "copy_f32_f16".to_owned(),
        format: None,
        kernel: plan.kernel(subgroup),
        launch: Launch {
            shape: format!("512 rows of {HIDDEN}"),
            grid: [HIDDEN.div_ceil(copy::WORKGROUP), 512, 1],
            params: vec![
                ("n", HIDDEN),
                ("x_stride", HIDDEN),
                ("x_start", 0),
                ("y_stride", HIDDEN),
                ("y_start", 0),
            ],
            reads: vec![],
        },
    }
}

/// A kernel that takes a row of logits a workgroup.
fn logits_instance(name: &str, shape: String, kernel: Result<Kernel, KernelError>) -> Instance {
    let launch = Launch { shape, grid: [1; 3], params: vec![("n", VOCAB)], reads: vec![] };
    Instance { name: name.to_owned(), format: None, kernel, launch }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn instances_build_at_every_width_and_launch_with_what_they_declare() {
        let mut seen = HashSet::new();
        for subgroup in [8, 16, 32, 64] {
            for (family, i) in instances(subgroup) {
                let kernel = i.kernel.unwrap_or_else(|e| panic!("{}: {e}", i.name));
                assert!(i.name.starts_with(family.name), "{} of {}", i.name, family.name);
                assert!(seen.insert((subgroup, i.name.clone())), "{} stands twice", i.name);
                assert_eq!(kernel.subgroup, subgroup, "{}", i.name);
                let named = |name: &str| i.launch.params.iter().any(|(n, _)| *n == name);
                assert!(kernel.params.iter().all(|p| named(&p.name)), "{}: a parameter has no value", i.name);
                assert!(i.launch.grid.iter().all(|&n| n > 0), "{}: an empty launch", i.name);
                for (name, _) in &i.launch.reads {
                    assert!(kernel.buffers.iter().any(|b| b.name == *name), "{} has no `{name}`", i.name);
                }
            }
        }
        let formats = QuantType::ALL.iter().filter(|t| t.format().int.is_some()).count();
        assert_eq!(seen.iter().filter(|(w, n)| *w == 32 && n.starts_with("qmatvec")).count(), 2 * formats);
    }
}
