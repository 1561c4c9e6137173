//! What a step has to read and to compute, by its plan: the bytes and operations that predictions and shares of roofs rest on.
//!
//! Bytes are those of the file's weights and of the cache, each counted once a step; activations of a step with few rows stay
//! in caches and are not counted. Operations count multiply and add as two.

use hanzo_fusion::graph::{Elem, Op, Rows, Value};
use hanzo_fusion::{KvType, LaunchKind, Plan};

/// What a step is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepShape {
    /// Sequences.
    pub sequences: usize,
    /// Tokens of each.
    pub rows: usize,
    /// Tokens of each once the step is done.
    pub context: usize,
    /// Element type of the cache.
    pub kv_type: KvType,
}

/// Bytes and operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes of weights and cache that are read.
    pub bytes: f64,
    /// Operations of integer dots.
    pub int8_ops: f64,
    /// Operations on f32.
    pub f32_ops: f64,
    /// Times that all threads meet: none after a row-wise launch of one row, which one thread does while the others wait.
    pub barriers: f64,
}

impl Work {
    /// The sum.
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            int8_ops: self.int8_ops + other.int8_ops,
            f32_ops: self.f32_ops + other.f32_ops,
            barriers: self.barriers + other.barriers,
        }
    }

    /// So many times as much.
    pub fn times(self, k: f64) -> Self {
        Self {
            bytes: k * self.bytes,
            int8_ops: k * self.int8_ops,
            f32_ops: k * self.f32_ops,
            barriers: k * self.barriers,
        }
    }

    /// Of launch `at` of a plan.
    pub fn of_launch(plan: &Plan, at: usize, step: StepShape) -> Self {
        let Some(launch) = plan.launches.get(at) else { return Self::default() };
        let cost = plan.cost(at);
        let tokens = (step.sequences * step.rows) as f64;
        let rows = match launch.nodes.first().and_then(|v| plan.graph.node(*v)).map(|n| n.shape.rows) {
            Some(Rows::Outputs | Rows::Logits) => step.sequences as f64,
            Some(Rows::Tokens | Rows::Slots(_)) | None => tokens,
        };
        let alone = matches!(launch.kind, LaunchKind::Rows(_)) && rows <= 1.0;
        let barriers = if alone { 0.0 } else { 1.0 };
        let mut work = Self { f32_ops: cost.row_ops as f64 * rows, barriers, ..Self::default() };
        for &v in &launch.nodes {
            work = work.plus(of_node(plan, v, rows, step));
        }
        // What the integer cores do is no f32 work.
        work.f32_ops = (work.f32_ops - work.int8_ops).max(0.0);
        work
    }

    /// Of a whole step.
    pub fn of_step(plan: &Plan, step: StepShape) -> Self {
        (0..plan.launches.len()).fold(Self::default(), |sum, at| sum.plus(Self::of_launch(plan, at, step)))
    }
}

/// Bytes of weights or cache, integer operations, and operations that depend on the context.
fn of_node(plan: &Plan, v: Value, rows: f64, step: StepShape) -> Work {
    let mut work = Work::default();
    let Some(node) = plan.graph.node(v) else { return work };
    match &node.op {
        Op::MatMul { x, weight } | Op::MoeMatMul { x, weight, .. } => {
            let Some(w) = plan.graph.weights.get(weight.index()) else { return work };
            let slots = if let Rows::Slots(k) = node.shape.rows { k as f64 } else { 1.0 };
            // Of experts at most as many as there are rows to route.
            let stacked = (w.n_stack as f64).min((rows * slots).max(1.0));
            work.bytes = w.ty.row_bytes(w.n_in).unwrap_or(0) as f64 * w.n_out as f64 * stacked;
            if plan.graph.node(*x).is_some_and(|n| n.shape.elem == Elem::Quantized) {
                work.int8_ops = 2.0 * w.n_out as f64 * w.n_in as f64 * slots * rows;
            }
        }
        Op::Attention { kv, spec, .. } => {
            let Some(layer) = plan.graph.kv_layers.get(*kv) else { return work };
            let dims = (layer.k_head_dim + layer.v_head_dim) as f64;
            let window = layer.window.map_or(usize::MAX, |w| w as usize);
            let first = step.context.saturating_sub(step.rows);
            let seen: f64 = (first..step.context).map(|p| (p + 1).min(window) as f64).sum();
            let keys = step.context.min(window.saturating_add(step.rows - 1)) as f64;
            let sequences = step.sequences as f64;
            let bytes = match step.kv_type {
                KvType::F16 => dims * 2.0,
                KvType::F32 => dims * 4.0,
                // Codes, and a scale each for key and value.
                KvType::Int8 => dims + 8.0,
            };
            work.bytes = sequences * keys * layer.n_kv_heads as f64 * bytes;
            work.f32_ops = sequences * seen * spec.n_heads as f64 * 2.0 * dims;
        }
        _ => {}
    }
    work
}
