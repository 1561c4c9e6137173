//! Kernels of rows: norms, the quantizer, compositions, and what stands at a step's ends.

use hanzo_quant::QuantType;
use hanzo_quant::canonical::GROUP;

use super::super::compose::{self, ComposeError, Composed};
use super::super::copy::{self, CopyRows};
use super::super::kv::KvShape;
use super::super::layout::Layout;
use super::super::matmul::float::Float;
use super::super::norm::{self, Residual};
use super::super::rope::RopeNorm;
use super::super::variants::Variants;
use super::super::{argmax as greatest, embed as table, kv, quantize as quantizer, top_k as best};
use super::{
    FEED_FORWARD, HEAD_DIM, HEADS, HIDDEN, Instance, KV_HEADS, Launch, PROMPT, VOCAB, layouts, suffix,
};
use crate::graph::{Activation, Builder, GraphError, RopeStyle, Value};
use crate::kernel::{Kernel, KernelError};
use crate::plan::{LaunchKind, Plan, PlanOptions};
use crate::step::KvType;

pub(super) fn rms_norm(subgroup: u32, _: &Variants) -> Vec<Instance> {
    vec![norm_instance("rms_norm", norm::rms_norm(subgroup, Residual::None))]
}

pub(super) fn add_rms_norm(subgroup: u32, _: &Variants) -> Vec<Instance> {
    vec![norm_instance("add_rms_norm", norm::rms_norm(subgroup, Residual::Add))]
}

fn norm_instance(name: &str, kernel: Result<Kernel, KernelError>) -> Instance {
    let launch = Launch {
        shape: format!("{PROMPT} rows of {HIDDEN}"),
        grid: [PROMPT, 1, 1],
        params: vec![("n", HIDDEN), ("eps", 1e-5f32.to_bits())],
        reads: vec![],
    };
    Instance::new(name, kernel, launch)
}

pub(super) fn quantize(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let groups = PROMPT * HIDDEN / GROUP as u32;
    let kernel = quantizer::quantize_q8(subgroup);
    let workgroup = kernel.as_ref().map_or(1, |k| k.workgroup);
    let launch = Launch {
        shape: format!("{PROMPT} rows of {HIDDEN}"),
        grid: [(groups * 8).div_ceil(workgroup), 1, 1],
        params: vec![("n_groups", groups)],
        reads: vec![],
    };
    vec![Instance::new("quantize_q8", kernel, launch)]
}

pub(super) fn embed(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let one = |layout: Layout| {
        let n_groups = HIDDEN / GROUP as u32;
        let launch = Launch {
            shape: format!("{PROMPT} tokens of {HIDDEN}"),
            grid: [n_groups.div_ceil(table::GROUPS), PROMPT, 1],
            params: vec![("n_groups", n_groups), ("n_vocab", VOCAB)],
            reads: vec![],
        };
        let name = format!("embed_{}", suffix(&layout));
        let i = Instance::new(&name, table::embed(layout, subgroup), launch).reading(layout.format);
        Instance { representative: ["Q4_K", "Q6_K"].contains(&layout.format.name), ..i }
    };
    layouts().map(one).collect()
}

pub(super) fn rope(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let plan = RopeNorm { style: RopeStyle::Halves, norm: true, head_dim: HEAD_DIM, n_rot: HEAD_DIM };
    let launch = Launch {
        shape: format!("{PROMPT} tokens, {HEADS} heads of {HEAD_DIM}"),
        grid: [HEADS, PROMPT, 1],
        params: vec![("eps", 1e-6f32.to_bits())],
        reads: vec![],
    };
    vec![Instance::new("rope_norm_positions", plan.kernel(subgroup), launch)]
}

pub(super) fn kv_write(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let one = |(name, kv_type)| {
        let shape = KvShape { kv_type, n_kv_heads: KV_HEADS, k_dim: HEAD_DIM, v_dim: HEAD_DIM };
        let launch = Launch {
            shape: format!("{PROMPT} tokens, {KV_HEADS} heads of {HEAD_DIM}"),
            grid: [KV_HEADS, PROMPT, 1],
            params: vec![],
            reads: vec![("slots", 0)],
        };
        Instance::new(name, kv::kv_write(shape, subgroup), launch)
    };
    [("kv_write_f16", KvType::F16), ("kv_write_int8", KvType::Int8), ("kv_write_f32", KvType::F32)]
        .map(one)
        .into()
}

pub(super) fn copy(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let plan = CopyRows { from: Float::F32, to: Float::F16, gather: false };
    let launch = Launch {
        shape: format!("{PROMPT} rows of {HIDDEN}"),
        grid: [HIDDEN.div_ceil(copy::WORKGROUP), PROMPT, 1],
        params: vec![
            ("n", HIDDEN),
            ("x_stride", HIDDEN),
            ("x_start", 0),
            ("y_stride", HIDDEN),
            ("y_start", 0),
        ],
        reads: vec![],
    };
    vec![Instance::new("copy_f32_f16", plan.kernel(subgroup), launch)]
}

/// A kernel that takes a row of logits a workgroup.
fn of_logits(name: &str, kernel: Result<Kernel, KernelError>) -> Vec<Instance> {
    let shape = format!("1 row of {VOCAB}");
    let launch = Launch { shape, grid: [1; 3], params: vec![("n", VOCAB)], reads: vec![] };
    vec![Instance::new(name, kernel, launch)]
}

pub(super) fn argmax(subgroup: u32, _: &Variants) -> Vec<Instance> {
    of_logits("argmax", greatest::argmax(subgroup))
}

pub(super) fn top_k(subgroup: u32, _: &Variants) -> Vec<Instance> {
    of_logits("top_k_40", best::top_k(40, subgroup))
}

/// What stands between two contractions of a graph: given the builder, rows of the residual stream and those of a contraction.
type Middle = fn(&mut Builder, Value, Value) -> Value;

/// What models have between contractions, one group each; more are composed as their plans ask for them.
const MIDDLES: [(u32, Middle); 7] = [
    // SwiGLU and GeGLU behind their contractions.
    (FEED_FORWARD, |b, x, y| gated(b, x, y, Activation::Silu)),
    (FEED_FORWARD, |b, x, y| gated(b, x, y, Activation::GeluTanh)),
    (FEED_FORWARD, |b, x, y| gated(b, x, y, Activation::Gelu)),
    // A feed-forward part with biases.
    (FEED_FORWARD, |b, _, y| {
        let bias = b.vector("bias", FEED_FORWARD as usize, QuantType::F32);
        let y = b.add_weight(y, bias);
        b.activate(y, Activation::GeluTanh)
    }),
    // The residual stream's sum and norm.
    (HIDDEN, |b, x, y| {
        let weight = b.vector("norm", HIDDEN as usize, QuantType::F32);
        let x = b.add(x, y);
        b.rms_norm(x, weight, 1e-5)
    }),
    // The same of encoders and older decoders.
    (HIDDEN, |b, x, y| {
        let [weight, bias] = ["norm", "norm_bias"].map(|n| b.vector(n, HIDDEN as usize, QuantType::F32));
        let x = b.add(x, y);
        b.layer_norm(x, Some(weight), Some(bias), 1e-5)
    }),
    // Norms on both sides of it.
    (HIDDEN, |b, x, y| {
        let [post, pre] = ["post", "norm"].map(|n| b.vector(n, HIDDEN as usize, QuantType::F32));
        let y = b.rms_norm(y, post, 1e-6);
        let x = b.add(x, y);
        b.rms_norm(x, pre, 1e-6)
    }),
];

fn gated(b: &mut Builder, x: Value, gate: Value, f: Activation) -> Value {
    let up = b.matrix("up", FEED_FORWARD as usize, HIDDEN as usize, QuantType::Q8_0);
    let up = b.matmul(x, up);
    let gate = b.activate(gate, f);
    b.mul(gate, up)
}

pub(super) fn composed(subgroup: u32, _: &Variants) -> Vec<Instance> {
    MIDDLES.iter().filter_map(|&(cols, middle)| composition(cols, middle, subgroup)).collect()
}

fn composition(cols: u32, middle: Middle, subgroup: u32) -> Option<Instance> {
    let plan = between_contractions(cols, middle).ok()?;
    // The longest group that composes: the embedding's and the selection's do not.
    let groups = plan.launches.iter().map(|launch| match launch.kind {
        LaunchKind::Contract { anchors, .. } => launch.nodes.get(anchors..).unwrap_or_default(),
        LaunchKind::Rows(_) | LaunchKind::Attention | LaunchKind::Recurrent => launch.nodes.as_slice(),
    });
    let made = groups.filter_map(|nodes| match compose::group(&plan, nodes, subgroup) {
        Ok(Composed { kernel, .. }) => Some((nodes.len(), kernel.name.clone(), Ok(kernel))),
        Err(ComposeError::Kernel(e)) => Some((nodes.len(), e.kernel.clone(), Err(e))),
        Err(_) => None,
    });
    // The first of them: what follows the second contraction is as long as some.
    let (_, name, kernel) = made.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    let launch = Launch {
        shape: format!("{PROMPT} rows of {cols}"),
        grid: [PROMPT, 1, 1],
        params: vec![],
        reads: vec![],
    };
    Some(Instance::new(&name, kernel, launch))
}

/// The plan of a graph that has `middle` between two contractions.
fn between_contractions(cols: u32, middle: Middle) -> Result<Plan, GraphError> {
    let (hidden, cols) = (HIDDEN as usize, cols as usize);
    let mut b = Builder::new(64);
    let table = b.matrix("embed", 64, hidden, QuantType::Q8_0);
    let first = b.matrix("first", cols, hidden, QuantType::Q8_0);
    let second = b.matrix("second", hidden, cols, QuantType::Q8_0);
    let head = b.matrix("head", 64, hidden, QuantType::Q8_0);
    let x = b.embed(table);
    let y = b.matmul(x, first);
    let y = middle(&mut b, x, y);
    let y = b.matmul(y, second);
    // What runs over prompts must not be narrowed to the rows that are wanted.
    let x = b.add(x, y);
    let rows = b.select_outputs(x);
    let logits = b.matmul(rows, head);
    Plan::new(&b.finish(logits)?, PlanOptions::default())
}
