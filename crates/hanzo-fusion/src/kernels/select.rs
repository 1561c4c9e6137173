//! Which kernels a launch of a plan takes on a device: the names that [`super::registry`] knows them by, for few rows and for many.

use super::compose;
use super::matmul::float::Float;
use super::variants::Variants;
use crate::graph::{Elem, Op, Value};
use crate::plan::{Launch, LaunchKind, Plan};
use crate::step::KvType;

/// Width that compositions are tried at; none of them depends on it.
const SUBGROUP: u32 = 32;

/// Names of kernels, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of decoding sequences, some tokens at a time.
    pub few: Vec<String>,
    /// Of prompts.
    pub many: Vec<String>,
}

impl Selection {
    fn both(&mut self, name: &str) {
        self.few.push(name.to_owned());
        self.many.push(name.to_owned());
    }
}

/// The kernels of a launch. An op that has none yet stands there with a question mark.
pub fn kernels(plan: &Plan, launch: &Launch, kv_type: KvType, variants: Variants) -> Selection {
    let mut out = Selection::default();
    match launch.kind {
        // Recurrent ops have no kernels yet: `rows` says so.
        LaunchKind::Rows(_) | LaunchKind::Recurrent => rows(plan, &launch.nodes, kv_type, &mut out),
        LaunchKind::Contract { anchors, ids, .. } => {
            let (anchors, rest) = launch.nodes.split_at(anchors.min(launch.nodes.len()));
            contract(plan, anchors, rest, ids.is_some(), variants, &mut out);
        }
        LaunchKind::Attention => {
            let kind = kv_name(kv_type);
            if variants.unsplit_attention {
                out.few.push(format!("attention_decode_whole_{kind}"));
            } else {
                out.few.push(format!("attention_decode_{kind}"));
                out.few.push("attention_combine".to_owned());
            }
            out.many.push(format!("attention_prefill_{kind}"));
            rows(plan, launch.nodes.get(1..).unwrap_or_default(), kv_type, &mut out);
        }
    }
    out
}

fn kv_name(kv_type: KvType) -> &'static str {
    match kv_type {
        KvType::F16 => "f16",
        KvType::Int8 => "int8",
        KvType::F32 => "f32",
    }
}

/// The format of a contraction's or a table's weight: its name in kernels' names, and whether it is floats.
fn format(plan: &Plan, op: &Op) -> (String, bool) {
    let (Op::MatMul { weight, .. }
    | Op::MoeMatMul { weight, .. }
    | Op::Embed { weight }
    | Op::EmbedPosition { weight }) = *op
    else {
        return (String::new(), false);
    };
    let format = plan.graph.weights.get(weight.index()).map(|w| w.ty.format());
    let name = format.map_or("", |f| f.name);
    (name.to_lowercase(), Float::of(name).is_some())
}

fn contract(
    plan: &Plan,
    anchors: &[Value],
    rest: &[Value],
    experts: bool,
    variants: Variants,
    out: &mut Selection,
) {
    let twin = if experts { "_experts" } else { "" };
    let pair = pair(plan, anchors, rest).filter(|_| !variants.plain_matvec);
    if let Some(gate) = &pair {
        out.few.push(format!("qmatvec_pair{twin}_{gate}"));
    }
    let grouped = |list: &mut Vec<String>| {
        let name = "moe_group_slots";
        if experts && !list.iter().any(|n| n == name) {
            list.push(name.to_owned());
        }
    };
    let formats = anchors.iter().filter_map(|&v| plan.op(v)).map(|op| format(plan, op));
    for (name, float) in formats {
        if float {
            out.few.push(format!("matmul{twin}_{name}{}", if experts { "" } else { "_x1" }));
            out.many.push(format!("matmul{twin}_{name}"));
            continue;
        }
        match (pair.is_some(), variants.plain_matvec) {
            (true, _) => {}
            (false, true) => {
                grouped(&mut out.few);
                out.few.push(format!("qmatvec{twin}_column_{name}"));
            }
            (false, false) => out.few.push(format!("qmatvec{twin}_{name}")),
        }
        grouped(&mut out.many);
        let rung = match Variants::rung_name(variants.gemm) {
            "" => String::new(),
            rung => format!("{rung}_"),
        };
        out.many.push(format!("qgemm{twin}_{rung}{name}"));
    }
    // What is left of the epilogue is a composition's.
    let mut after = Selection::default();
    rows(plan, rest, KvType::F16, &mut after);
    out.many.extend(after.many);
    let left = if pair.is_some() { rest.get(2..).unwrap_or_default() } else { rest };
    let mut after = Selection::default();
    rows(plan, left, KvType::F16, &mut after);
    out.few.extend(after.few);
}

/// Whether the epilogue begins with the gate of two contractions of one format; which it is.
fn pair(plan: &Plan, anchors: &[Value], rest: &[Value]) -> Option<String> {
    let (&[gate, up], &[act, mul, ..]) = (anchors, rest) else { return None };
    let (first, second) = (format(plan, plan.op(gate)?), format(plan, plan.op(up)?));
    let Op::Activate { x, .. } = *plan.op(act)? else { return None };
    let Op::Mul { a, b } = *plan.op(mul)? else { return None };
    let other = if x == gate { up } else { gate };
    let meets = (a, b) == (act, other) || (b, a) == (act, other);
    ((x == gate || x == up) && meets && first == second && !first.1).then_some(first.0)
}

/// Row-wise ops: runs of them that compose are a kernel each, the others have theirs.
fn rows(plan: &Plan, nodes: &[Value], kv_type: KvType, out: &mut Selection) {
    let inside: Vec<Inside> = nodes.iter().map(|&v| Inside::of(plan, v, nodes)).collect();
    let mut at = 0;
    while let (Some(&v), Some(place)) = (nodes.get(at), inside.get(at)) {
        let open = inside[at..].iter().take_while(|i| **i == Inside::Nothing).count();
        let run = longest(plan, &nodes[at..at + open]);
        if run > 0 {
            match &nodes[at..at + run] {
                &[one] if matches!(plan.op(one), Some(Op::Quantize { .. })) => out.both("quantize_q8"),
                part => {
                    if let Ok(made) = compose::group(plan, part, SUBGROUP) {
                        out.both(&made.kernel.name);
                    }
                }
            }
            at += run;
            continue;
        }
        at += 1;
        let Some(op) = plan.op(v) else { return };
        match *op {
            Op::TopK { .. } if *place == Inside::Route => out.both("moe_route"),
            // Part of what another node of the launch names.
            _ if *place != Inside::Nothing => {}
            Op::Embed { .. } => match format(plan, op) {
                (name, true) => out.both(&format!("gather_{name}_f32")),
                (name, false) => out.both(&format!("embed_{name}")),
            },
            Op::EmbedPosition { .. } => out.both(&format!("gather_{}_f32", format(plan, op).0)),
            Op::Rope { x, .. } => {
                let normed = nodes.contains(&x) && matches!(plan.op(x), Some(Op::RmsNorm { .. }));
                out.both(if normed { "rope_norm_positions" } else { "rope_positions" });
            }
            Op::KvWrite { .. } => out.both(&format!("kv_write_{}", kv_name(kv_type))),
            Op::TopK { k, .. } => out.both(&format!("top_k_{k}")),
            Op::SelectOutputs { .. } => out.both("gather_f32_f32"),
            ref other => out.both(&format!("{}?", other.name())),
        }
    }
}

/// The larger kernel that a node is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Nothing,
    /// `moe_route`: softmax, selection, shares.
    Route,
    /// `rope_norm_positions`: a head's norm before its rotation.
    Rotation,
}

impl Inside {
    fn of(plan: &Plan, v: Value, nodes: &[Value]) -> Self {
        let selected = |ids: Value| match plan.op(ids) {
            Some(&Op::TopK { x, .. }) => {
                nodes.contains(&ids) && nodes.contains(&x) && matches!(plan.op(x), Some(Op::Softmax { .. }))
            }
            _ => false,
        };
        let ops = || nodes.iter().filter_map(|&n| Some((n, plan.op(n)?)));
        let gathered = |v: Value| matches!(plan.op(v), Some(&Op::GatherCols { ids, .. }) if selected(ids));
        let route = match plan.op(v) {
            Some(Op::Softmax { .. }) => {
                ops().any(|(n, op)| matches!(op, Op::TopK { x, .. } if *x == v) && selected(n))
            }
            Some(Op::TopK { .. }) => selected(v),
            Some(Op::GatherCols { .. }) => gathered(v),
            Some(&Op::NormalizeSum { x, .. }) => gathered(x),
            _ => false,
        };
        let rotated = matches!(plan.op(v), Some(Op::RmsNorm { .. }))
            && ops().any(|(_, op)| matches!(op, Op::Rope { x, .. } if *x == v));
        match (route, rotated) {
            (true, _) => Self::Route,
            (_, true) => Self::Rotation,
            _ => Self::Nothing,
        }
    }
}

/// How many of the first nodes compose.
fn longest(plan: &Plan, nodes: &[Value]) -> usize {
    let composes = |n: &usize| {
        let part = nodes.get(..*n).unwrap_or_default();
        part.iter().all(|&v| plan.graph.node(v).is_some_and(|node| node.shape.elem != Elem::U32))
            && compose::group(plan, part, SUBGROUP).is_ok()
    };
    (1..=nodes.len()).take_while(composes).last().unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use hanzo_quant::QuantType;

    use super::super::variants::{ATTENTION, QGEMM, QGEMM_TILE, QMATVEC};
    use super::*;
    use crate::graph::{Activation, AttentionSpec, Builder, RopeSpec, RopeStyle};
    use crate::plan::PlanOptions;
    use crate::step::KvLayer;

    /// Attention with norms of heads, a gated part, experts, and a head of floats.
    fn plan() -> Plan {
        let mut b = Builder::new(64);
        let matrix = |b: &mut Builder, name: &str, n: usize| b.matrix(name, n, 256, QuantType::Q4_K);
        let [wq, wk, wv, wo] = ["q", "k", "v", "o"].map(|n| matrix(&mut b, n, 256));
        let [gate, up, down] = ["gate", "up", "down"].map(|n| matrix(&mut b, n, 256));
        let table = b.matrix("embed", 64, 256, QuantType::Q6_K);
        let router = b.matrix("router", 8, 256, QuantType::F32);
        let [eg, eu, ed] = ["eg", "eu", "ed"].map(|n| b.experts(n, 8, 256, 256, QuantType::Q8_0));
        let head = b.matrix("head", 64, 256, QuantType::F16);
        let [norm, heads] = [("norm", 256), ("heads", 64)].map(|(n, w)| b.vector(n, w, QuantType::F32));
        let spec = RopeSpec { style: RopeStyle::Halves, inv_freq: vec![1.0; 32], magnitude: 1.0 };
        let rope = b.rope_table(spec);
        let kv =
            b.kv_layer(KvLayer { n_kv_heads: 4, k_head_dim: 64, v_head_dim: 64, window: None, group: 0 });

        let x = b.embed(table);
        let h = b.rms_norm(x, norm, 1e-5);
        let q = b.matmul(h, wq);
        let q = b.rms_norm_heads(q, heads, 1e-5);
        let q = b.rope(q, 64, rope);
        let k = b.matmul(h, wk);
        let k = b.rope(k, 64, rope);
        let v = b.matmul(h, wv);
        let a = b.attention(q, k, v, kv, AttentionSpec::scaled(4, 64));
        let o = b.matmul(a, wo);
        let x = b.add(x, o);
        let h = b.rms_norm(x, norm, 1e-5);
        let (g, u) = (b.matmul(h, gate), b.matmul(h, up));
        let g = b.activate(g, Activation::Silu);
        let y = b.mul(g, u);
        let y = b.matmul(y, down);
        let x = b.add(x, y);
        let h = b.rms_norm(x, norm, 1e-5);
        let p = b.matmul(h, router);
        let p = b.softmax(p);
        let ids = b.top_k(p, 2);
        let w = b.gather_cols(p, ids);
        let w = b.normalize_sum(w, 0.0);
        let (g, u) = (b.moe_matmul(h, eg, ids), b.moe_matmul(h, eu, ids));
        let g = b.activate(g, Activation::Silu);
        let y = b.mul(g, u);
        let y = b.moe_matmul(y, ed, ids);
        let y = b.combine_slots(y, w);
        let x = b.add(x, y);
        let x = b.rms_norm(x, norm, 1e-5);
        let x = b.select_outputs(x);
        let logits = b.matmul(x, head);
        Plan::new(&b.finish(logits).unwrap(), PlanOptions::default()).unwrap()
    }

    /// All of a plan's kernels in order, for few rows and for many.
    fn all(variants: Variants) -> [String; 2] {
        let plan = plan();
        let chosen: Vec<_> =
            plan.launches.iter().map(|l| kernels(&plan, l, KvType::Int8, variants)).collect();
        let join = |of: fn(&Selection) -> &Vec<String>| {
            chosen.iter().flat_map(of).map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        [join(|s| &s.few), join(|s| &s.many)]
    }

    #[test]
    fn every_launch_of_a_plan_has_its_kernels() {
        let [few, many] = all(Variants::default());
        for list in [&few, &many] {
            assert!(!list.contains('?'), "{list}");
            for part in [
                "embed_q6_k rows_rms_norm_quantize ",
                "rope_norm_positions rope_positions kv_write_int8",
                " moe_route ",
                "rows_combine_slots gather_f32_f32",
            ] {
                assert!(list.contains(part), "no `{part}` in {list}");
            }
            assert!(!list.contains("rows_softmax"), "{list}");
        }
        for part in [
            "qmatvec_q4_k qmatvec_q4_k qmatvec_q4_k ",
            "attention_decode_int8 attention_combine quantize_q8",
            "qmatvec_pair_q4_k quantize_q8",
            "matmul_f32_x1",
            "qmatvec_pair_experts_q8_0 quantize_q8",
            "qmatvec_experts_q8_0",
            "matmul_f16_x1",
        ] {
            assert!(few.contains(part), "no `{part}` in {few}");
        }
        for part in [
            "qgemm_q4_k qgemm_q4_k rows_silu_mul_quantize",
            "attention_prefill_int8 quantize_q8",
            "moe_group_slots qgemm_experts_q8_0 qgemm_experts_q8_0 rows_silu_mul_quantize",
            "matmul_f32",
        ] {
            assert!(many.contains(part), "no `{part}` in {many}");
        }
    }

    #[test]
    fn what_variables_choose_is_selected() {
        let usual = all(Variants::default());
        for (variable, which, part) in [
            (QGEMM, 1, "qgemm_f32_q4_k"),
            (QGEMM, 1, "qgemm_experts_f32_q8_0"),
            (QGEMM_TILE, 1, "qgemm_column_q4_k"),
            (QMATVEC, 0, "qmatvec_column_q4_k qmatvec_column_q4_k rows_silu_mul_quantize"),
            (QMATVEC, 0, "moe_group_slots qmatvec_experts_column_q8_0"),
            (ATTENTION, 0, "attention_decode_whole_int8 quantize_q8"),
        ] {
            let chosen = all(Variants::from(|n| (n == variable).then(|| "1".to_owned())).unwrap());
            assert!(
                chosen[which].contains(part) && !usual[which].contains(part),
                "{variable}: {}",
                chosen[which]
            );
            assert_eq!(chosen[1 - which], usual[1 - which], "{variable}");
        }
    }
}
