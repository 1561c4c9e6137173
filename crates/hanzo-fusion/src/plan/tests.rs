//! Rules on toy graphs, and the arena.

use std::collections::{HashMap, HashSet};

use hanzo_quant::QuantType;

use super::*;
use crate::graph::{Activation, AttentionSpec, Builder, Elem, RopeSpec, RopeStyle, Weight};
use crate::step::KvLayer;

const FUSED: PlanOptions = PlanOptions { fuse: true };
const ALONE: PlanOptions = PlanOptions { fuse: false };

/// A graph under construction, with short names.
struct Toy(Builder, usize);

impl Toy {
    fn new() -> Self {
        Toy(Builder::new(64), 0)
    }
    fn matrix(&mut self, n_out: usize, n_in: usize) -> Weight {
        self.1 += 1;
        self.0.matrix(&format!("m{}", self.1), n_out, n_in, QuantType::Q8_0)
    }
    fn vector(&mut self, n: usize) -> Weight {
        self.1 += 1;
        self.0.vector(&format!("v{}", self.1), n, QuantType::F32)
    }
    fn embed(&mut self) -> Value {
        let w = self.matrix(64, 64);
        self.0.embed(w)
    }
    fn mm(&mut self, x: Value, n_out: usize) -> Value {
        let n_in = self.0.shape(x).cols;
        let w = self.matrix(n_out, n_in);
        self.0.matmul(x, w)
    }
    fn norm(&mut self, x: Value) -> Value {
        let n = self.0.shape(x).cols;
        let w = self.vector(n);
        self.0.rms_norm(x, w, 1e-5)
    }
    fn finish(mut self, x: Value) -> Graph {
        let x = self.norm(x);
        let x = self.0.select_outputs(x);
        let logits = self.mm(x, 64);
        self.0.finish(logits).unwrap()
    }
}

/// Names of the ops of each launch.
fn names(plan: &Plan) -> Vec<String> {
    let name = |l: &Launch| {
        let ops: Vec<&str> = l.nodes.iter().map(|v| plan.op(*v).unwrap().name()).collect();
        ops.join("+")
    };
    plan.launches.iter().map(name).collect()
}

fn plan(graph: &Graph) -> Plan {
    Plan::new(graph, FUSED).unwrap()
}

fn attention_layer(t: &mut Toy, x: Value) -> Value {
    let table =
        t.0.rope_table(RopeSpec { style: RopeStyle::Halves, inv_freq: vec![1.0; 16], magnitude: 1.0 });
    let kv = t.0.kv_layer(KvLayer { n_kv_heads: 1, k_head_dim: 32, v_head_dim: 32, window: None, group: 0 });
    let h = t.norm(x);
    let q = t.mm(h, 64);
    let w = t.vector(32);
    let q = t.0.rms_norm_heads(q, w, 1e-6);
    let q = t.0.rope(q, 32, table);
    let k = t.mm(h, 32);
    let k = t.0.rms_norm_heads(k, w, 1e-6);
    let k = t.0.rope(k, 32, table);
    let v = t.mm(h, 32);
    let spec = AttentionSpec { n_heads: 2, scale: 0.1, softcap: Some(3.0), sinks: None };
    let a = t.0.attention(q, k, v, kv, spec);
    let o = t.mm(a, 64);
    t.0.add(x, o)
}

fn gated(t: &mut Toy, x: Value) -> Value {
    let h = t.norm(x);
    let (gate, up) = (t.mm(h, 96), t.mm(h, 96));
    let gate = t.0.silu(gate);
    let h = t.0.mul(gate, up);
    let h = t.mm(h, 64);
    t.0.add(x, h)
}

#[test]
fn a_transformer_layer() {
    let mut t = Toy::new();
    let mut x = t.embed();
    for layer in 0..2 {
        t.0.set_layer(Some(layer));
        x = attention_layer(&mut t, x);
        x = gated(&mut t, x);
    }
    t.0.set_layer(None);
    let graph = t.finish(x);
    let plan = plan(&graph);
    let layer = [
        "rms_norm+quantize",
        "matmul+matmul+matmul",
        "rms_norm+rope+rms_norm+rope+kv_write",
        "attention+quantize",
        "matmul+add",
        "rms_norm+quantize",
        "matmul+matmul+silu+mul+quantize",
        "matmul+add",
    ];
    let names = names(&plan);
    assert_eq!(names[0], "embed+rms_norm+quantize");
    assert_eq!(names[1..8], layer[1..]);
    assert_eq!(names[8..11], layer[..3]);
    // From here on only wanted rows are computed.
    assert_eq!(names[11..14], ["attention", "select_outputs+quantize+select_outputs", "matmul+add"]);
    assert_eq!(
        names[14..],
        ["rms_norm+quantize", "matmul+matmul+silu+mul+quantize", "matmul+add", "rms_norm+quantize", "matmul"]
    );
    assert!(plan.text().contains("softcap"), "{}", plan.text());
}

#[test]
fn a_bias_a_cap_and_a_residual_follow_their_contraction() {
    let mut t = Toy::new();
    let x = t.embed();
    let y = t.mm(x, 64);
    let bias = t.vector(64);
    let y = t.0.add_weight(y, bias);
    let y = t.0.softcap(y, 4.0);
    let y = t.0.scale(y, 0.5);
    let x = t.0.add(x, y);
    let graph = t.finish(x);
    let names = names(&plan(&graph));
    assert!(names.contains(&"matmul+add_weight+softcap+scale+add".to_owned()), "{names:?}");
}

#[test]
fn what_others_read_is_not_swallowed() {
    let mut t = Toy::new();
    let x = t.embed();
    let y = t.mm(x, 64);
    let a = t.0.silu(y);
    let b = t.0.add(y, a);
    let x = t.0.add(x, b);
    let graph = t.finish(x);
    let names = names(&plan(&graph));
    let at = names.iter().position(|n| n == "matmul").unwrap();
    assert_eq!(names[at + 1], "silu+add+add+rms_norm+quantize");
}

#[test]
fn an_epilogue_takes_two_contractions_at_most() {
    let mut t = Toy::new();
    let x = t.embed();
    let (a, b, c) = (t.mm(x, 64), t.mm(x, 64), t.mm(x, 64));
    let s = t.0.add(a, b);
    let s = t.0.add(s, c);
    let x = t.0.add(x, s);
    let graph = t.finish(x);
    let names = names(&plan(&graph));
    let at = names.iter().position(|n| n == "matmul+matmul+matmul+add").unwrap();
    assert_eq!(names[at + 1], "add+add+rms_norm+quantize");
}

#[test]
fn routing_is_one_launch() {
    let mut t = Toy::new();
    let x = t.embed();
    let h = t.norm(x);
    let router = t.0.matrix("router", 8, 64, QuantType::F32);
    let p = t.0.matmul(h, router);
    let p = t.0.softmax(p);
    let ids = t.0.top_k(p, 2);
    let w = t.0.gather_cols(p, ids);
    let w = t.0.normalize_sum(w, 1e-9);
    let (gate, up) =
        (t.0.experts("gate", 8, 96, 64, QuantType::Q8_0), t.0.experts("up", 8, 96, 64, QuantType::Q8_0));
    let down = t.0.experts("down", 8, 64, 96, QuantType::Q8_0);
    let (a, b) = (t.0.moe_matmul(h, gate, ids), t.0.moe_matmul(h, up, ids));
    let a = t.0.activate(a, Activation::GeluTanh);
    let e = t.0.mul(a, b);
    let e = t.0.moe_matmul(e, down, ids);
    let e = t.0.combine_slots(e, w);
    let x = t.0.add(x, e);
    let graph = t.finish(x);
    let plan = plan(&graph);
    assert_eq!(
        names(&plan),
        [
            "embed+rms_norm+quantize",
            "matmul",
            "softmax+top_k+gather_cols+normalize_sum",
            "moe_matmul+moe_matmul+gelu_tanh+mul+quantize",
            "moe_matmul",
            "combine_slots",
            "select_outputs+select_outputs+add+rms_norm+quantize",
            "matmul"
        ]
    );
}

#[test]
fn quantized_once_and_only_where_integers_are_multiplied() {
    let mut t = Toy::new();
    let x = t.embed();
    let (a, b) = (t.mm(x, 64), t.mm(x, 64));
    let float = t.0.matrix("float", 64, 64, QuantType::F16);
    let c = t.0.matmul(x, float);
    let (s, r) = (t.0.add(a, b), t.0.mul(x, c));
    let x = t.0.add(s, r);
    let dead = t.mm(x, 32);
    t.norm(dead);
    let graph = t.finish(x);
    let plan = plan(&graph);
    let count = |name: &str| plan.graph.nodes.iter().filter(|n| n.op.name() == name).count();
    assert_eq!(count("quantize"), 2);
    assert_eq!(count("matmul"), 4);
    for node in &plan.graph.nodes {
        if let Op::MatMul { x, weight } = node.op {
            let int = plan.graph.weights[weight.index()].ty.format().int.is_some();
            assert_eq!(plan.graph.node(x).unwrap().shape.elem == Elem::Quantized, int);
        }
    }
}

#[test]
fn a_graph_without_result_is_refused() {
    assert_eq!(Plan::new(&Graph::default(), FUSED).unwrap_err(), GraphError::NoOutput);
}

/// A pseudo-random graph: row-wise ops and contractions over whatever was made before.
fn random(seed: u64) -> Graph {
    let mut h = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |n: usize| {
        h ^= h << 13;
        h ^= h >> 7;
        h ^= h << 17;
        (h >> 32) as usize % n
    };
    let mut t = Toy::new();
    let mut values = vec![t.embed()];
    for _ in 0..5 + next(30) {
        let (a, b) = (values[next(values.len())], values[next(values.len())]);
        let v = match next(10) {
            0 => t.0.add(a, b),
            1 => t.0.mul(a, b),
            2 => t.norm(a),
            3 => t.0.silu(a),
            4 | 5 => t.mm(a, 64),
            6 => attention_layer(&mut t, a),
            7 => gated(&mut t, a),
            8 => {
                let ids = t.0.top_k(a, 2);
                let w = t.0.gather_cols(a, ids);
                let w = t.0.softmax(w);
                t.1 += 1;
                let e = t.0.experts(&format!("e{}", t.1), 64, 64, 64, QuantType::Q8_0);
                let y = t.0.moe_matmul(a, e, ids);
                t.0.combine_slots(y, w)
            }
            _ => {
                let s = t.0.slice_cols(a, 0, 32);
                t.mm(s, 64)
            }
        };
        values.push(v);
    }
    let x = *values.last().unwrap();
    t.finish(x)
}

/// Every node once, operands before readers, values that cross launches in slots, no slot with two live values.
fn check(plan: &Plan) {
    let graph = &plan.graph;
    let mut launch_of = HashMap::new();
    let mut done = HashSet::new();
    for (i, launch) in plan.launches.iter().enumerate() {
        for &v in &launch.nodes {
            graph
                .node(v)
                .unwrap()
                .op
                .for_each_input(|x| assert!(done.contains(&x), "{x:?} is read before it is made"));
            assert!(done.insert(v), "{v:?} is made twice");
            launch_of.insert(v, i);
        }
    }
    assert_eq!(done.len(), graph.nodes.len());
    // Whose value a slot holds, by simulation.
    let mut holds: Vec<Option<Value>> = vec![None; plan.slots.len()];
    for launch in &plan.launches {
        let read: HashSet<usize> = launch.reads.iter().filter_map(|v| plan.slot_of[v.index()]).collect();
        for &v in &launch.nodes {
            graph.node(v).unwrap().op.for_each_input(|x| {
                if launch_of[&x] != launch_of[&v] && graph.node(x).unwrap().shape.cols > 0 {
                    assert!(launch.reads.contains(&x));
                    let slot = plan.slot_of[x.index()].unwrap();
                    assert_eq!(holds[slot], Some(x), "the slot was overwritten");
                }
            });
        }
        for &v in &launch.writes {
            if Some(v) == graph.logits {
                assert_eq!(plan.slot_of[v.index()], None);
                continue;
            }
            let slot = plan.slot_of[v.index()].unwrap();
            let shape = graph.node(v).unwrap().shape;
            assert!(!read.contains(&slot), "a result in the slot of an operand");
            assert!(plan.slots[slot].elem == shape.elem && plan.slots[slot].shapes.contains(&shape));
            assert!(shape.elem != Elem::Quantized || plan.slots[slot].shapes.len() == 1);
            holds[slot] = Some(v);
        }
        if let LaunchKind::Contract { x, anchors, .. } = launch.kind {
            let anchor = |v: &Value| matches!(plan.op(*v), Some(Op::MatMul { .. } | Op::MoeMatMul { .. }));
            assert!(
                launch.nodes[..anchors].iter().all(anchor) && !launch.nodes[anchors..].iter().any(anchor)
            );
            assert!(launch.reads.contains(&x));
        }
    }
}

#[test]
fn the_arena_never_aliases_live_values() {
    for seed in 0..300 {
        let graph = random(seed);
        let (fused, alone) = (plan(&graph), Plan::new(&graph, ALONE).unwrap());
        check(&fused);
        check(&alone);
        assert_eq!(fused.graph.nodes.len(), alone.graph.nodes.len());
        assert_eq!(alone.launches.len(), alone.graph.nodes.len());
        assert!(fused.launches.len() < alone.launches.len());
        assert!(alone.slots.len() < alone.graph.nodes.len());
    }
}
