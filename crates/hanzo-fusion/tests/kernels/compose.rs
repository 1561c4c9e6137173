//! Row-wise groups as the fusion pass finds them, composed of their ops' bodies.

use std::collections::HashMap;

use hanzo_fusion::graph::{
    Activation, AttentionSpec, Builder, DeltaSpec, KeyHeads, Op, RopeSpec, RopeStyle, Rows, Value, Weight,
};
use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_fusion::kernels::compose::{Binding, ComposeError, Composed, compose, group};
use hanzo_fusion::step::KvLayer;
use hanzo_fusion::{LaunchKind, Plan, PlanOptions};
use hanzo_quant::canonical::QuantizedRow;
use hanzo_quant::{QuantType, math};

use crate::harness::{Check, Rng, bits, everywhere, words};
use crate::rows::{rms_norm, row_fold};

/// A graph whose middle is row-wise: a value that three read, one of every pointwise op, a norm and the quantizer behind it.
fn plan(cols: usize, fuse: bool) -> Plan {
    let mut b = Builder::new(64);
    let table = b.matrix("embed", 64, cols, QuantType::Q8_0);
    let square = b.matrix("square", cols, cols, QuantType::Q8_0);
    let head = b.matrix("head", 64, cols, QuantType::Q8_0);
    let [bias, gain, weight] = ["bias", "gain", "weight"].map(|n| b.vector(n, cols, QuantType::F32));
    let x = b.embed(table);
    let y = b.matmul(x, square);
    // Read by three, so no epilogue of the contraction.
    let s = b.activate(y, Activation::Silu);
    let t = b.mul(s, y);
    let t = b.add_weight(t, bias);
    let t = b.softcap(t, 2.0);
    let t = b.mul_weight(t, gain);
    let u = b.add(t, y);
    let u = b.scale(u, 0.5);
    let u = b.add(x, u);
    let n = b.rms_norm(u, weight, 1e-5);
    let z = b.matmul(n, square);
    let u = b.add(u, z);
    let u = b.select_outputs(u);
    let logits = b.matmul(u, head);
    Plan::new(&b.finish(logits).unwrap(), PlanOptions { fuse }).unwrap()
}

/// Each group of a row alone.
fn by_group(x: &[f32], group: usize, f: impl FnMut(&[f32]) -> Vec<f32>) -> Vec<f32> {
    x.chunks(group).flat_map(f).collect()
}

/// As the CPU's: the variance is that of the differences from the rounded mean.
fn layer_norm(x: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32) -> Vec<f32> {
    let n = x.len() as f32;
    let mean = row_fold(x, |acc, x| acc + x) / n;
    let squares = row_fold(x, |acc, x| (x - mean).mul_add(x - mean, acc));
    let inv = 1.0 / (squares / n + eps).sqrt();
    let one = |(i, &x): (usize, &f32)| {
        let x = (x - mean) * inv;
        let x = weight.map_or(x, |w| x * w[i]);
        bias.map_or(x, |b| x + b[i])
    };
    x.iter().enumerate().map(one).collect()
}

/// Rows of a value, op by op. Of a value that is slots, the row is all slots of its token.
fn evaluate(plan: &Plan, v: Value, row: &HashMap<Value, Vec<f32>>, weights: &[Vec<f32>]) -> Vec<f32> {
    let of = |v: &Value| row[v].clone();
    let with = |x: &Value, f: &dyn Fn(usize, f32) -> f32| {
        of(x).into_iter().enumerate().map(|(i, x)| f(i, x)).collect::<Vec<_>>()
    };
    match plan.op(v).unwrap() {
        Op::Add { a, b } => with(a, &|i, x| x + row[b][i]),
        Op::Mul { a, b } => with(a, &|i, x| x * row[b][i]),
        Op::Scale { x, factor } => with(x, &|_, x| x * factor),
        Op::Activate { x, f: Activation::Silu } => with(x, &|_, x| math::silu(x)),
        Op::Activate { x, f: Activation::GeluTanh } => with(x, &|_, x| math::gelu_tanh(x)),
        Op::Activate { x, f: Activation::Gelu } => with(x, &|_, x| math::gelu_erf(x)),
        Op::Activate { x, f: Activation::Relu } => with(x, &|_, x| if x > 0.0 { x } else { 0.0 }),
        Op::Softcap { x, cap } => with(x, &|_, x| cap * math::tanh(x / cap)),
        Op::AddWeight { x, weight } => with(x, &|i, x| x + weights[weight.index()][i]),
        Op::MulWeight { x, weight } => with(x, &|i, x| x * weights[weight.index()][i]),
        Op::RmsNorm { x, weight, group, eps } => by_group(&of(x), *group, |x| match weight {
            Some(w) => rms_norm(x, &weights[w.index()], *eps),
            None => rms_norm(x, &vec![1.0; x.len()], *eps),
        }),
        Op::LayerNorm { x, weight, bias, group, eps } => {
            let vector = |w: &Option<Weight>| w.map(|w| weights[w.index()].as_slice());
            by_group(&of(x), *group, |x| layer_norm(x, vector(weight), vector(bias), *eps))
        }
        Op::Softmax { x } => {
            let max = row[x].iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
            let exps = with(x, &|_, x| math::exp(x - max));
            let sum = row_fold(&exps, |acc, x| acc + x);
            exps.iter().map(|x| x / sum).collect()
        }
        Op::NormalizeSum { x, floor } => {
            let sum = row_fold(&row[x], |acc, x| acc + x);
            with(x, &|_, x| x / if sum > *floor { sum } else { *floor })
        }
        Op::SliceCols { x, group, start, len } => {
            row[x].chunks(*group).flat_map(|g| &g[*start..start + len]).copied().collect()
        }
        Op::CombineSlots { x, weights: shares } => {
            let cols = row[x].len() / row[shares].len();
            let one = |i: usize| {
                row[shares].iter().enumerate().fold(0f32, |sum, (j, w)| w.mul_add(row[x][j * cols + i], sum))
            };
            (0..cols).map(one).collect()
        }
        op => panic!("{}", op.name()),
    }
}

const ROWS: usize = 3;

/// A composed kernel on random rows.
fn check(plan: &Plan, nodes: &[Value], made: &Composed, rng: &mut Rng) -> Check {
    let weights: Vec<_> = plan.graph.weights.iter().map(|w| rng.floats(w.n_in)).collect();
    // Elements of a token's row: of slots, of all of them.
    let width = |v: Value| {
        let shape = plan.graph.node(v).unwrap().shape;
        let slots = if let Rows::Slots(k) = shape.rows { k } else { 1 };
        slots * shape.cols
    };
    let read = |b: &&Binding| matches!(b, Binding::Value(v) if !nodes.contains(v));
    let mut results: HashMap<Value, Vec<f32>> = HashMap::new();
    for binding in made.bindings.iter().filter(read) {
        let Binding::Value(v) = *binding else { continue };
        results.insert(v, rng.floats(ROWS * width(v)));
    }
    let given = results.clone();
    let mut codes: HashMap<Value, QuantizedRow> = HashMap::new();
    for &v in nodes {
        if let Some(Op::Quantize { x }) = plan.op(v) {
            codes.insert(v, QuantizedRow::new(&results[x]));
            continue;
        }
        let mut all = Vec::new();
        for r in 0..ROWS {
            let row = |(v, x): (&Value, &Vec<f32>)| (*v, x[r * width(*v)..(r + 1) * width(*v)].to_vec());
            all.extend(evaluate(plan, v, &results.iter().map(row).collect(), &weights));
        }
        results.insert(v, all);
    }
    let (mut buffers, mut want) = (Vec::new(), Vec::new());
    for (i, binding) in made.bindings.iter().enumerate() {
        let name: &'static str = made.kernel.buffers[i].name.clone().leak();
        match binding {
            Binding::Weight(w) => buffers.push((name, BufferData::of_f32(&weights[w.index()]))),
            Binding::Value(v) if given.contains_key(v) => buffers.push((name, BufferData::of_f32(&given[v]))),
            Binding::Value(v) => {
                buffers.push((name, BufferData::empty(ROWS * width(*v))));
                want.push((name, bits(&results[v])));
            }
            Binding::Codes(v) => {
                buffers.push((name, BufferData::empty(codes[v].codes.len() / 4)));
                want.push((name, words(&codes[v].codes).collect()));
            }
            Binding::Scales(v) => {
                buffers.push((name, BufferData::empty(codes[v].d.len())));
                want.push((name, bits(&codes[v].d)));
            }
        }
    }
    Check::new(&made.kernel, [ROWS as u32, 1, 1], buffers, &[], want)
}

fn names(plan: &Plan, nodes: &[Value]) -> String {
    nodes.iter().map(|v| plan.op(*v).unwrap().name()).collect::<Vec<_>>().join("+")
}

/// Every launch of the plan that can be composed, on random rows; and the names of its ops.
fn composed(plan: &Plan, subgroup: u32) -> Vec<(String, Check)> {
    let mut rng = Rng(60);
    let mut out = Vec::new();
    for launch in plan.launches.iter().filter(|l| matches!(l.kind, LaunchKind::Rows(_))) {
        let made = match compose(plan, launch, subgroup) {
            Ok(made) => made,
            Err(ComposeError::Op { op: "embed" | "select_outputs", .. }) => continue,
            Err(e) => panic!("{e}"),
        };
        out.push((names(plan, &launch.nodes), check(plan, &launch.nodes, &made, &mut rng)));
    }
    out
}

#[test]
fn row_wise_groups_are_composed_of_their_ops() {
    let names: Vec<_> = composed(&plan(320, true), 32).into_iter().map(|c| c.0).collect();
    let group = "silu+mul+add_weight+softcap+mul_weight+add+scale+add+rms_norm+quantize";
    assert_eq!(names, [group], "one launch, one kernel");
    for cols in [32usize, 320] {
        for fuse in [true, false] {
            // Quotients are 2.5 ulp off on Vulkan, and what follows from them.
            everywhere(&format!("compose_{cols}_{fuse}"), 1 << 10, |subgroup| {
                composed(&plan(cols, fuse), subgroup).into_iter().map(|c| c.1).collect()
            });
        }
    }
}

/// `f(gate) · up` behind its two contractions.
fn gated(f: Activation) -> Plan {
    let (cols, wide) = (64, 320);
    let mut b = Builder::new(64);
    let table = b.matrix("embed", 64, cols, QuantType::Q8_0);
    let [gate, up] = ["gate", "up"].map(|n| b.matrix(n, wide, cols, QuantType::Q8_0));
    let down = b.matrix("down", 64, wide, QuantType::Q8_0);
    let x = b.embed(table);
    let (gate, up) = (b.matmul(x, gate), b.matmul(x, up));
    let gate = b.activate(gate, f);
    let y = b.mul(gate, up);
    let y = b.matmul(y, down);
    let y = b.select_outputs(y);
    let head = b.matrix("head", 64, cols, QuantType::Q8_0);
    let logits = b.matmul(y, head);
    Plan::new(&b.finish(logits).unwrap(), PlanOptions::default()).unwrap()
}

/// SwiGLU and GeGLU in both forms of GELU, as kernels of their own: what a contraction without an epilogue leaves to be done.
#[test]
fn geglu_and_swiglu_numeric() {
    for (f, name) in [
        (Activation::Silu, "silu+mul+quantize"),
        (Activation::GeluTanh, "gelu_tanh+mul+quantize"),
        (Activation::Gelu, "gelu+mul+quantize"),
    ] {
        let plan = gated(f);
        let rest = plan.launches.iter().find_map(|l| match l.kind {
            LaunchKind::Contract { anchors: 2, .. } => Some(&l.nodes[2..]),
            _ => None,
        });
        let rest = rest.unwrap();
        assert_eq!(names(&plan, rest), name);
        // The products alone, then with their quantizer.
        for nodes in [&rest[..2], rest] {
            // The sigmoid's quotient, and what it does to a code.
            let ulps = if nodes.len() == 2 { 16 } else { 1 << 10 };
            everywhere(&format!("glu_{f:?}_{}", nodes.len()), ulps, |subgroup| {
                let made = group(&plan, nodes, subgroup).unwrap();
                vec![check(&plan, nodes, &made, &mut Rng(61))]
            });
        }
    }
}

/// The other row-wise ops: norms of rows and of heads, with and without weights, softmax and shares, slices, experts' slots put together.
fn others(cols: usize, fuse: bool) -> Plan {
    let mut b = Builder::new(64);
    let table = b.matrix("embed", 64, cols, QuantType::Q8_0);
    let square = b.matrix("square", cols, cols, QuantType::Q8_0);
    let double = b.matrix("double", 2 * cols, cols, QuantType::Q8_0);
    let router = b.matrix("router", 8, cols, QuantType::F32);
    let experts = b.experts("experts", 8, cols, cols, QuantType::Q8_0);
    let head = b.matrix("head", 64, cols, QuantType::Q8_0);
    let [weight, bias, post] = ["weight", "bias", "post"].map(|n| b.vector(n, cols, QuantType::F32));
    let per_head = b.vector("per_head", 16, QuantType::F32);
    let x = b.embed(table);
    let y = b.matmul(x, double);
    let (left, right) = (b.slice_groups(y, 32, 16, 16), b.slice_cols(y, cols, cols));
    let left = b.layer_norm(left, Some(weight), Some(bias), 1e-5);
    let right = b.rms_norm_heads(right, per_head, 1e-6);
    let right = b.rms_norm_groups(right, None, 32, 1e-6);
    let right = b.activate(right, Activation::Relu);
    let y = b.add(left, right);
    let y = b.layer_norm(y, None, None, 1e-12);
    let y = b.softmax(y);
    let y = b.matmul(y, square);
    let y = b.normalize_sum(y, 3.0);
    let y = b.layer_norm(y, Some(post), None, 1e-5);
    let routed = b.matmul(y, router);
    let p = b.softmax(routed);
    let ids = b.top_k(p, 2);
    let shares = b.gather_cols(p, ids);
    let shares = b.normalize_sum(shares, 1e-3);
    let slots = b.moe_matmul(y, experts, ids);
    let y = b.combine_slots(slots, shares);
    let y = b.add(x, y);
    let y = b.rms_norm(y, weight, 1e-5);
    // Experts want all rows: what is before them is not narrowed to those that are wanted.
    let slots = b.moe_matmul(y, experts, ids);
    let z = b.combine_slots(slots, shares);
    let y = b.add(y, z);
    let y = b.select_outputs(y);
    let logits = b.matmul(y, head);
    Plan::new(&b.finish(logits).unwrap(), PlanOptions { fuse }).unwrap()
}

/// The longest runs of nodes of each row-wise launch that compose.
fn runs(plan: &Plan) -> Vec<&[Value]> {
    let mut out = Vec::new();
    for launch in plan.launches.iter().filter(|l| matches!(l.kind, LaunchKind::Rows(_))) {
        let mut rest = launch.nodes.as_slice();
        while !rest.is_empty() {
            let n = (1..=rest.len()).take_while(|n| group(plan, &rest[..*n], 32).is_ok()).last();
            let (run, after) = rest.split_at(n.unwrap_or(1));
            out.extend(n.map(|_| run));
            rest = after;
        }
    }
    out
}

#[test]
fn every_row_wise_op_composes() {
    let fused = others(64, true);
    let found: Vec<_> = runs(&fused).into_iter().map(|nodes| names(&fused, nodes)).collect();
    for run in [
        "slice_cols+slice_cols+layer_norm+rms_norm+rms_norm+relu+add+layer_norm+softmax+quantize",
        "combine_slots+add+rms_norm+quantize",
    ] {
        assert!(found.iter().any(|f| f == run), "no {run} in {found:#?}");
    }
    for cols in [32usize, 192] {
        for fuse in [true, false] {
            let plan = others(cols, fuse);
            let runs = runs(&plan);
            // Quotients, one after the other, and a row that is scaled by their sum.
            everywhere(&format!("compose_others_{cols}_{fuse}"), 1 << 12, |subgroup| {
                let mut rng = Rng(62);
                let one =
                    |nodes: &&[Value]| check(&plan, nodes, &group(&plan, nodes, subgroup).unwrap(), &mut rng);
                runs.iter().map(one).collect()
            });
        }
    }
}

/// What is not composed says why, and what does it instead.
#[test]
fn what_is_no_row_of_bodies_is_refused_with_its_reason() {
    let mut b = Builder::new(64);
    let table = b.matrix("embed", 64, 64, QuantType::Q8_0);
    let positions = b.matrix("positions", 64, 64, QuantType::F32);
    let square = b.matrix("square", 64, 64, QuantType::Q8_0);
    let router = b.matrix("router", 8, 64, QuantType::F32);
    let experts = b.experts("experts", 8, 64, 64, QuantType::Q8_0);
    let spec = RopeSpec { style: RopeStyle::Halves, inv_freq: vec![1.0; 16], magnitude: 1.0 };
    let rope = b.rope_table(spec);
    let kv = b.kv_layer(KvLayer { n_kv_heads: 2, k_head_dim: 32, v_head_dim: 32, window: None, group: 0 });
    let x = b.embed(table);
    let at = b.embed_position(positions);
    let x = b.add(x, at);
    let q = b.matmul(x, square);
    let q = b.rope(q, 32, rope);
    let x = b.attention(q, q, q, kv, AttentionSpec::scaled(2, 32));
    let filter = b.matrix("filter", 64, 4, QuantType::F32);
    let x = b.causal_conv(x, filter);
    let two = b.slice_cols(x, 0, 2);
    let x = b.mul_groups(x, two);
    let key = b.slice_cols(x, 0, 32);
    let spec =
        DeltaSpec { n_k_heads: 1, n_v_heads: 2, k_head_dim: 32, v_head_dim: 32, order: KeyHeads::Grouped };
    let x = b.delta_rule([key, key, x], [two, two], spec);
    let routed = b.matmul(x, router);
    let p = b.softmax(routed);
    let ids = b.top_k(p, 2);
    let shares = b.gather_cols(p, ids);
    let y = b.moe_matmul(x, experts, ids);
    let y = b.combine_slots(y, shares);
    let y = b.select_outputs(y);
    let y = b.scale(y, 0.5);
    // Hidden states are wanted of the selected rows, so that the selection stays where it is.
    let logits = b.matmul(y, square);
    let plan = Plan::new(&b.finish(logits).unwrap(), PlanOptions { fuse: false }).unwrap();
    let mut refused = HashMap::new();
    for launch in &plan.launches {
        let op = plan.op(launch.nodes[0]).unwrap().name();
        if let Err(e) = group(&plan, &launch.nodes, 32) {
            refused.insert(op, e.to_string());
        }
    }
    for (op, part) in [
        ("embed", "`embed` and `gather` copy them"),
        ("embed_position", "`embed` and `gather` copy them"),
        ("matmul", "kernels are built around it"),
        ("moe_matmul", "kernels are built around it"),
        ("attention", "kernels are built around it"),
        ("rope", "`rope_norm_positions` does it, a head a workgroup"),
        ("kv_write", "`kv_write` does it"),
        ("top_k", "`moe_route` and `top_k` find them"),
        ("gather_cols", "`moe_route` does it"),
        ("causal_conv", "its sequence's rows one after the other"),
        ("delta_rule", "its sequence's rows one after the other"),
        ("mul_groups", "it has no body"),
        ("select_outputs", "`gather` copies them"),
    ] {
        let text = refused.remove(op).unwrap_or_else(|| panic!("{op} is composed, or not there"));
        assert!(
            text.contains(&format!("`{op}` is not made of row-wise bodies")) && text.contains(part),
            "{text}"
        );
    }
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn anchors_are_not_composed() {
    let plan = plan(64, true);
    let anchored = plan.launches.iter().find(|l| matches!(l.kind, LaunchKind::Contract { .. })).unwrap();
    assert_eq!(compose(&plan, anchored, 32).unwrap_err(), ComposeError::Anchor);
}
