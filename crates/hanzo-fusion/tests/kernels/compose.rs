//! Row-wise groups as the fusion pass finds them, composed of their ops' bodies.

use std::collections::HashMap;

use hanzo_fusion::graph::{Activation, Builder, Op, Value};
use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_fusion::kernels::compose::{Binding, ComposeError, compose};
use hanzo_fusion::{LaunchKind, Plan, PlanOptions};
use hanzo_quant::canonical::QuantizedRow;
use hanzo_quant::{QuantType, math};

use crate::harness::{Check, Rng, bits, everywhere, words};
use crate::rows::rms_norm;

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

/// Rows of a value, op by op.
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
        Op::Softcap { x, cap } => with(x, &|_, x| cap * math::tanh(x / cap)),
        Op::AddWeight { x, weight } => with(x, &|i, x| x + weights[weight.index()][i]),
        Op::MulWeight { x, weight } => with(x, &|i, x| x * weights[weight.index()][i]),
        Op::RmsNorm { x, weight, eps, .. } => rms_norm(&of(x), &weights[weight.unwrap().index()], *eps),
        op => panic!("{}", op.name()),
    }
}

/// Every launch of the plan that can be composed, on random rows; and the names of its ops.
fn composed(plan: &Plan, cols: usize, subgroup: u32) -> Vec<(String, Check)> {
    let mut rng = Rng(60);
    let weights: Vec<_> = plan.graph.weights.iter().map(|_| rng.floats(cols)).collect();
    let rows = 3;
    let mut out = Vec::new();
    for launch in plan.launches.iter().filter(|l| matches!(l.kind, LaunchKind::Rows(_))) {
        let made = match compose(plan, launch, subgroup) {
            Ok(made) => made,
            Err(ComposeError::Op("embed" | "select_outputs") | ComposeError::Rows) => continue,
            Err(e) => panic!("{e}"),
        };
        let values: HashMap<Value, Vec<f32>> =
            launch.reads.iter().map(|&v| (v, rng.floats(rows * cols))).collect();
        let mut results: HashMap<Value, Vec<f32>> = values.clone();
        let mut codes: HashMap<Value, QuantizedRow> = HashMap::new();
        for &v in &launch.nodes {
            let mut all = Vec::new();
            if let Some(Op::Quantize { x }) = plan.op(v) {
                codes.insert(v, QuantizedRow::new(&results[x]));
                continue;
            }
            for r in 0..rows {
                let row = results.iter().map(|(v, x)| (*v, x[r * cols..(r + 1) * cols].to_vec())).collect();
                all.extend(evaluate(plan, v, &row, &weights));
            }
            results.insert(v, all);
        }
        let (mut buffers, mut want) = (Vec::new(), Vec::new());
        for (i, binding) in made.bindings.iter().enumerate() {
            let name: &'static str = made.kernel.buffers[i].name.clone().leak();
            match binding {
                Binding::Weight(w) => buffers.push((name, BufferData::of_f32(&weights[w.index()]))),
                Binding::Value(v) if values.contains_key(v) => {
                    buffers.push((name, BufferData::of_f32(&values[v])))
                }
                Binding::Value(v) => {
                    buffers.push((name, BufferData::empty(rows * cols)));
                    want.push((name, bits(&results[v])));
                }
                Binding::Codes(v) => {
                    buffers.push((name, BufferData::empty(rows * cols / 4)));
                    want.push((name, words(&codes[v].codes).collect()));
                }
                Binding::Scales(v) => {
                    buffers.push((name, BufferData::empty(rows * cols / 32)));
                    want.push((name, bits(&codes[v].d)));
                }
            }
        }
        let ops: Vec<_> = launch.nodes.iter().map(|v| plan.op(*v).unwrap().name()).collect();
        out.push((ops.join("+"), Check::new(&made.kernel, [rows as u32, 1, 1], buffers, &[], want)));
    }
    out
}

#[test]
fn row_wise_groups_are_composed_of_their_ops() {
    let names: Vec<_> = composed(&plan(320, true), 320, 32).into_iter().map(|c| c.0).collect();
    let group = "silu+mul+add_weight+softcap+mul_weight+add+scale+add+rms_norm+quantize";
    assert_eq!(names, [group], "one launch, one kernel");
    for cols in [32usize, 320] {
        for fuse in [true, false] {
            // Quotients are 2.5 ulp off on Vulkan, and what follows from them.
            everywhere(&format!("compose_{cols}_{fuse}"), 1 << 10, |subgroup| {
                composed(&plan(cols, fuse), cols, subgroup).into_iter().map(|c| c.1).collect()
            });
        }
    }
}

#[test]
fn anchors_are_not_composed() {
    let plan = plan(64, true);
    let anchored = plan.launches.iter().find(|l| matches!(l.kind, LaunchKind::Contract { .. })).unwrap();
    assert_eq!(compose(&plan, anchored, 32).unwrap_err(), ComposeError::Anchor);
}
