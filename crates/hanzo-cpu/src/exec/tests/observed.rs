//! What an observer is shown, against a plain evaluation.

use std::collections::BTreeMap;
use std::sync::Mutex;

use hanzo_fusion::graph::{Op, Rows};
use hanzo_fusion::{ContractionInput, Observer};

use super::*;

/// By matrix, the rows that it met, each with its expert (0 where there is one matrix).
type Met<T> = BTreeMap<String, Vec<(u32, Vec<T>)>>;

/// What was shown.
#[derive(Default)]
struct Seen(Mutex<Met<f32>>);

impl Observer for Seen {
    fn contraction(&self, input: &ContractionInput<'_>) {
        let mut seen = self.0.lock().unwrap();
        for decl in input.weights {
            let rows: Vec<_> = input.rows.chunks_exact(decl.n_in).collect();
            let met = seen.entry(decl.name.clone()).or_default();
            match input.routes {
                None => met.extend(rows.iter().map(|row| (0, row.to_vec()))),
                Some(r) => met.extend(
                    r.ids.iter().enumerate().map(|(p, id)| (*id, rows[p / r.pairs_per_row].to_vec())),
                ),
            }
        }
    }
}

/// The same by the reference.
fn expected(graph: &Graph, weights: &Weights, tokens: &[u32]) -> Met<f64> {
    let values = reference::values(graph, &weights.decoded(graph), tokens);
    let mut all = Met::<f64>::new();
    for node in &graph.nodes {
        match node.op {
            Op::MatMul { x, weight } => {
                let rows = values[x.index()].iter().map(|row| (0, row.clone()));
                all.entry(graph.weights[weight.index()].name.clone()).or_default().extend(rows);
            }
            Op::MoeMatMul { x, weight, ids } => {
                let (rows, ids) = (&values[x.index()], &values[ids.index()]);
                let k = ids[0].len();
                let div = if matches!(graph.nodes[x.index()].shape.rows, Rows::Slots(_)) { 1 } else { k };
                let pairs =
                    ids.iter().flatten().enumerate().map(|(p, &id)| (id as u32, rows[p / div].clone()));
                all.entry(graph.weights[weight.index()].name.clone()).or_default().extend(pairs);
            }
            _ => {}
        }
    }
    all
}

/// A model with an observer.
fn load(graph: &Graph, weights: &Weights, fuse: bool, threads: usize) -> (Arc<Seen>, Box<dyn LoadedModel>) {
    let seen = Arc::new(Seen::default());
    let config = CpuConfig { threads: Some(threads), no_fuse: !fuse, ..CpuConfig::default() };
    let kv = KvConfig::equal(N_BLOCKS, KvType::F32);
    let options = LoadOptions { max_tokens: 96, max_outputs: 96, kv };
    let device = CpuDevice::new(&config).unwrap();
    let observer: Arc<Seen> = Arc::clone(&seen);
    let source = Source(graph, weights);
    (seen, device.load_observed(Arc::new(graph.clone()), &source, options, observer, &()).unwrap())
}

#[test]
fn an_observer_sees_what_the_reference_contracts() {
    for (graph, bound) in [
        (dense(QuantType::F32), 1e-4),
        (moe(QuantType::F32), 1e-4),
        // The rows are those before they are quantized, but earlier layers computed with quantized ones.
        (dense(QuantType::Q8_0), 0.25),
    ] {
        let weights = Weights::new(&graph);
        let seq = Seq::new(3, 40, 5);
        let want = expected(&graph, &weights, &seq.tokens);
        for fuse in [true, false] {
            let (seen, mut model) = load(&graph, &weights, fuse, 2);
            step(&mut *model, &[(&seq, 0, 40)]);
            let seen = seen.0.lock().unwrap();
            assert_eq!(seen.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>());
            for (name, want) in &want {
                let got = &seen[name];
                assert_eq!(got.len(), want.len(), "{name}");
                for ((expert, row), (want_expert, want)) in got.iter().zip(want) {
                    assert_eq!(expert, want_expert, "{name}");
                    for (a, b) in row.iter().zip(want) {
                        assert!((f64::from(*a) - b).abs() < bound * (1.0 + b.abs()), "{name}: {a} {b}");
                    }
                }
            }
        }
    }
}

/// The first layer's input is exact whatever the weights: nothing was quantized before it.
#[test]
fn rows_are_those_before_quantization() {
    let graph = dense(QuantType::Q8_0);
    let weights = Weights::new(&graph);
    let seq = Seq::new(3, 20, 5);
    let want = expected(&graph, &weights, &seq.tokens);
    let (seen, mut model) = load(&graph, &weights, true, 2);
    step(&mut *model, &[(&seq, 0, 20)]);
    let seen = seen.0.lock().unwrap();
    for ((_, row), (_, want)) in seen["blk.0.q"].iter().zip(&want["blk.0.q"]) {
        for (a, b) in row.iter().zip(want) {
            assert!((f64::from(*a) - b).abs() < 1e-5, "{a} {b}");
        }
    }
}

/// Observing changes neither the logits nor what is seen: not by threads, nor by the cut of the text. Rows that nobody wants
/// are seen too.
#[test]
fn observing_changes_nothing() {
    for graph in [dense(QuantType::Q4_1), moe(QuantType::Q8_0)] {
        let weights = Weights::new(&graph);
        let seq = Seq::new(9, 48, 3);
        let plain = step(
            &mut *Setup { kv_type: KvType::F32, ..Setup::new() }.load(&graph, &weights),
            &[(&seq, 0, 48)],
        );
        let (seen, mut model) = load(&graph, &weights, true, 2);
        assert_eq!(bits(&step(&mut *model, &[(&seq, 0, 48)])), bits(&plain));
        let (alone, mut model) = load(&graph, &weights, true, 1);
        let tables = [&seq.tables[0][..], &seq.tables[1][..]];
        for (from, to) in [(0, 17), (17, 48)] {
            let sequence =
                SequenceStep { n_tokens: to - from, context_len: to, block_tables: &tables, adapters: &[] };
            let tokens = &seq.tokens[from..to];
            let step = Step { tokens, sequences: &[sequence], ..Step::default() };
            model.step(&step, &mut []).unwrap();
        }
        let (mut seen, alone) = (seen.0.lock().unwrap().clone(), alone.0.lock().unwrap());
        // The head alone sees wanted rows only.
        assert!(seen.remove("embd").or(seen.remove("head")).is_some());
        assert_eq!(seen, *alone);
    }
}
