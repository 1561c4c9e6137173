//! The plan as text.

use std::fmt::Write as _;

use crate::graph::{Elem, Op, Rows, Shape, Value};

use super::{LaunchKind, Plan};

/// Bytes that a launch moves and operations that it does: `fixed` ones, and those a token row or output row adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of weights (all experts of an expert launch).
    pub weight_bytes: u64,
    /// Bytes of operands and results a row.
    pub row_bytes: u64,
    /// Multiply-adds (counted as two operations) and elementwise operations a row; of an attention without its keys.
    pub row_ops: u64,
}

fn per_row(shape: Shape) -> u64 {
    let cols = shape.cols as u64;
    match shape.rows {
        Rows::Slots(k) => cols.saturating_mul(k as u64),
        Rows::Tokens | Rows::Outputs | Rows::Logits => cols,
    }
}

fn elem_bytes(shape: Shape) -> u64 {
    let n = per_row(shape);
    match shape.elem {
        Elem::F32 | Elem::U32 => n.saturating_mul(4),
        // int8 codes and, every 32, a scale and a sum.
        Elem::Quantized => n.saturating_add(n / 32 * 8),
    }
}

impl Plan {
    /// What launch `at` moves and does.
    pub fn cost(&self, at: usize) -> Cost {
        let mut cost = Cost::default();
        let Some(launch) = self.launches.get(at) else { return cost };
        let shape = |v: Value| self.graph.nodes[v.index()].shape;
        for &v in launch.reads.iter().chain(&launch.writes) {
            cost.row_bytes = cost.row_bytes.saturating_add(elem_bytes(shape(v)));
        }
        for &v in &launch.nodes {
            let out = per_row(shape(v));
            let ops = match &self.graph.nodes[v.index()].op {
                Op::MatMul { weight, .. } | Op::MoeMatMul { weight, .. } => {
                    let w = &self.graph.weights[weight.index()];
                    let bytes = w.ty.row_bytes(w.n_in).unwrap_or(0) as u64;
                    let rows = (w.n_out as u64).saturating_mul(w.n_stack as u64);
                    cost.weight_bytes = cost.weight_bytes.saturating_add(bytes.saturating_mul(rows));
                    out.saturating_mul(2).saturating_mul(w.n_in as u64)
                }
                Op::Embed { .. }
                | Op::EmbedPosition { .. }
                | Op::SelectOutputs { .. }
                | Op::SliceCols { .. }
                | Op::GatherCols { .. } => 0,
                Op::RmsNorm { .. } | Op::LayerNorm { .. } | Op::Softmax { .. } => out.saturating_mul(4),
                Op::Rope { .. } => out.saturating_mul(3),
                // Decay, product with the key, update, product with the query.
                Op::DeltaRule { spec, .. } => out.saturating_mul(7).saturating_mul(spec.k_head_dim as u64),
                Op::CausalConv { weight, .. } => {
                    let w = &self.graph.weights[weight.index()];
                    out.saturating_mul(2).saturating_mul(w.n_in as u64)
                }
                Op::CombineSlots { x, .. } => per_row(shape(*x)).saturating_mul(2),
                _ => out,
            };
            cost.row_ops = cost.row_ops.saturating_add(ops);
        }
        cost
    }

    /// One line a launch: number, layer, what it fuses, and what it costs.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (i, launch) in self.launches.iter().enumerate() {
            let nodes = launch.nodes.iter().filter_map(|v| self.graph.node(*v));
            let layer = nodes.clone().find_map(|n| n.layer);
            let layer = layer.map_or_else(|| "-".to_owned(), |l| l.to_string());
            let kind = match launch.kind {
                LaunchKind::Rows(_) => "rows",
                LaunchKind::Contract { ids: None, .. } => "contract",
                LaunchKind::Contract { ids: Some(_), .. } => "contract experts",
                LaunchKind::Attention => "attention",
                LaunchKind::Recurrent => "recurrent",
            };
            let what: Vec<String> = nodes.map(|n| self.node_text(&n.op)).collect();
            let cost = self.cost(i);
            let _ = writeln!(
                out,
                "{i:4} layer {layer:>3}  {kind}: {}  | weights {} B, rows {} B, {} ops a row",
                what.join(" + "),
                cost.weight_bytes,
                cost.row_bytes,
                cost.row_ops
            );
        }
        let _ = writeln!(out, "{} launches, {} slots", self.launches.len(), self.slots.len());
        out
    }

    fn node_text(&self, op: &Op) -> String {
        match op {
            Op::MatMul { weight, .. }
            | Op::MoeMatMul { weight, .. }
            | Op::Embed { weight }
            | Op::EmbedPosition { weight } => {
                let w = &self.graph.weights[weight.index()];
                format!("{} {} {} [{}, {}]", op.name(), w.name, w.ty, w.n_out, w.n_in)
            }
            Op::Attention { kv, spec, .. } => {
                let mut text = format!("attention kv {kv} (scale");
                if spec.softcap.is_some() {
                    text.push_str(", softcap");
                }
                if self.graph.kv_layers.get(*kv).is_some_and(|l| l.window.is_some()) {
                    text.push_str(", window");
                }
                if spec.sinks.is_some() {
                    text.push_str(", sinks");
                }
                text.push(')');
                text
            }
            _ => op.name().to_owned(),
        }
    }
}
