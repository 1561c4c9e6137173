//! Adapters in the executor: near the merged model, the same bits in any company, and none for rows without.

use hanzo_fusion::adapter::{LowRankShape, Place, has_place};
use hanzo_fusion::{Adapter, AdapterUse, LowRank};

use super::*;

/// `A` and `B` of every weight's update.
struct Factors {
    rank: usize,
    scale: f32,
    a: Vec<Vec<f32>>,
    b: Vec<Vec<f32>>,
}

impl Factors {
    fn new(graph: &Graph, seed: u32, rank: usize, scale: f32) -> Self {
        let random = |salt: u32, n: usize, by: usize| {
            (0..n).map(|i| unit(seed * 1000 + salt, i) * (3.0 / by as f32).sqrt()).collect::<Vec<_>>()
        };
        let weights = || graph.weights.iter().zip(0..);
        Self {
            rank,
            scale,
            a: weights().map(|(w, i)| random(2 * i, rank * w.n_in, w.n_in)).collect(),
            b: weights().map(|(w, i)| random(2 * i + 1, rank * w.n_out, rank)).collect(),
        }
    }

    /// Updates wherever there can be one; that of a looked-up row is the same as that of the product.
    fn adapter(&self, graph: &Graph) -> Adapter {
        let mut adapter = Adapter::new();
        for (i, decl) in graph.weights.iter().enumerate() {
            let Some(weight) = graph.nodes.iter().find_map(|n| match n.op {
                Op::MatMul { weight, .. } | Op::Embed { weight } if weight.index() == i => Some(weight),
                _ => None,
            }) else {
                continue;
            };
            let shape = LowRankShape { rank: self.rank, n_in: decl.n_in, n_out: decl.n_out };
            let (a, b) = (&self.a[i], &self.b[i]);
            if has_place(graph, weight, Place::Product) {
                let update = LowRank::new(shape, self.scale, a, b).unwrap();
                adapter.insert(graph, weight, Place::Product, update).unwrap();
            }
            if has_place(graph, weight, Place::Embedding) {
                let shape = LowRankShape { n_in: decl.n_out, n_out: decl.n_in, ..shape };
                let (a, b) = (transpose(b, self.rank), transpose(a, decl.n_in));
                let update = LowRank::new(shape, self.scale, &a, &b).unwrap();
                adapter.insert(graph, weight, Place::Embedding, update).unwrap();
            }
        }
        adapter
    }

    /// Adds the updates to decoded weights.
    fn merge(&self, graph: &Graph, scale: f32, weights: &mut [Vec<f32>]) {
        for (i, decl) in graph.weights.iter().enumerate().filter(|(_, d)| d.n_stack == 1 && d.n_out > 1) {
            for (n, row) in weights[i].chunks_mut(decl.n_in).enumerate() {
                for (k, w) in row.iter_mut().enumerate() {
                    let products = (0..self.rank).map(|j| {
                        f64::from(self.b[i][n * self.rank + j]) * f64::from(self.a[i][j * decl.n_in + k])
                    });
                    *w += (products.sum::<f64>() * f64::from(self.scale) * f64::from(scale)) as f32;
                }
            }
        }
    }
}

fn transpose(x: &[f32], cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|c| x.chunks(cols).map(move |row| row[c])).collect()
}

/// One sequence of a step, with what it uses.
type Share<'a> = (&'a Seq, usize, usize, &'a [AdapterUse<'a>]);

fn adapted_step(model: &mut dyn LoadedModel, shares: &[Share<'_>]) -> Vec<f32> {
    let tables: Vec<[&[u32]; 2]> =
        shares.iter().map(|(s, ..)| [&s.tables[0][..], &s.tables[1][..]]).collect();
    let mut sequences = Vec::new();
    for (&(_, from, to, adapters), tables) in shares.iter().zip(&tables) {
        sequences.push(SequenceStep { n_tokens: to - from, context_len: to, block_tables: tables, adapters });
    }
    let tokens: Vec<u32> = shares.iter().flat_map(|(s, from, to, _)| s.tokens[*from..*to].to_vec()).collect();
    let outputs: Vec<u32> = (0..tokens.len() as u32).collect();
    let mut logits = vec![f32::NAN; tokens.len() * VOCAB];
    model
        .step(&Step { tokens: &tokens, sequences: &sequences, outputs: &outputs, hidden: &[] }, &mut logits)
        .unwrap();
    logits
}

#[test]
fn adapted_logits_are_near_those_of_the_merged_model() {
    for (graph, bound) in
        [(dense(QuantType::F32), 2e-5), (moe(QuantType::F32), 2e-5), (dense(QuantType::Q8_0), 1e-1)]
    {
        let weights = Weights::new(&graph);
        let (one, two) = (Factors::new(&graph, 1, 5, 0.2), Factors::new(&graph, 2, 16, 0.1));
        let (first, second) = (one.adapter(&graph), two.adapter(&graph));
        let uses = [AdapterUse { adapter: &first, scale: 1.0 }, AdapterUse { adapter: &second, scale: -0.5 }];
        let mut merged = weights.decoded(&graph);
        one.merge(&graph, 1.0, &mut merged);
        two.merge(&graph, -0.5, &mut merged);
        let seq = Seq::new(1, 60, 3);
        let want = reference::logits(&graph, &merged, &seq.tokens);
        let plain = reference::logits(&graph, &weights.decoded(&graph), &seq.tokens);
        for fuse in [true, false] {
            let mut model = Setup { kv_type: KvType::F32, fuse, ..Setup::new() }.load(&graph, &weights);
            let got = adapted_step(&mut *model, &[(&seq, 0, 60, &uses)]);
            for (row, ((got, want), plain)) in got.chunks(VOCAB).zip(&want).zip(&plain).enumerate() {
                let distance = |to: &[f64]| {
                    let squares = got.iter().zip(to).map(|(got, to)| (f64::from(*got) - to).powi(2));
                    (squares.sum::<f64>() / VOCAB as f64).sqrt()
                };
                assert!(distance(want) <= bound, "fuse {fuse}, row {row}: {}", distance(want));
                assert!(distance(plain) > 2.0 * bound, "the adapters change row {row} too little to tell");
            }
        }
    }
}

#[test]
fn one_answer_in_any_company() {
    for (graph, kv_type) in [(dense(QuantType::Q8_0), KvType::F16), (moe(QuantType::Q4_1), KvType::Int8)] {
        let weights = Weights::new(&graph);
        let first = Factors::new(&graph, 1, 5, 0.2).adapter(&graph);
        let second = Factors::new(&graph, 2, 16, 0.1).adapter(&graph);
        let one = [AdapterUse { adapter: &first, scale: 0.7 }];
        let both = [AdapterUse { adapter: &second, scale: 1.0 }, AdapterUse { adapter: &first, scale: -1.0 }];
        let seqs = [Seq::new(1, 70, 0), Seq::new(2, 41, 10), Seq::new(3, 33, 20)];
        let uses: [&[AdapterUse<'_>]; 3] = [&[], &one, &both];
        let base = Setup { kv_type, ..Setup::new() };
        let mut model = base.load(&graph, &weights);
        let want: Vec<Vec<u32>> = (0..3)
            .map(|i| bits(&adapted_step(&mut *model, &[(&seqs[i], 0, seqs[i].tokens.len(), uses[i])])))
            .collect();
        let mut other = base.load(&graph, &weights);
        assert!(bits(&step(&mut *other, &[(&seqs[0], 0, 70)])) == want[0], "no adapter, no difference");

        let mut setups: Vec<Setup> = [1, 3].map(|threads| Setup { threads, ..base }).to_vec();
        setups.push(Setup { fuse: false, ..base });
        setups.extend(Isa::available().map(|isa| Setup { isa, ..base }));
        for setup in setups {
            let mut model = setup.load(&graph, &weights);
            let mut got = [Vec::new(), Vec::new(), Vec::new()];
            for shares in [
                vec![(0, 0, 7), (2, 0, 30)],
                vec![(1, 0, 1), (0, 7, 8), (2, 30, 31)],
                vec![(2, 31, 33), (0, 8, 40), (1, 1, 18)],
                vec![(1, 18, 41), (0, 40, 69)],
                vec![(0, 69, 70)],
            ] {
                let step: Vec<Share<'_>> =
                    shares.iter().map(|&(i, from, to)| (&seqs[i], from, to, uses[i])).collect();
                let logits = adapted_step(&mut *model, &step);
                let mut at = 0;
                for (i, from, to) in shares {
                    let n = (to - from) * VOCAB;
                    got[i].extend(bits(&logits[at..at + n]));
                    at += n;
                }
            }
            for i in 0..3 {
                assert!(got[i] == want[i], "{setup:?}: sequence {i}");
            }
        }
    }
}

#[test]
fn only_wanted_rows_are_projected_right() {
    let graph = dense(QuantType::Q8_0);
    let weights = Weights::new(&graph);
    let adapter = Factors::new(&graph, 1, 5, 0.2).adapter(&graph);
    let uses = [AdapterUse { adapter: &adapter, scale: 1.0 }];
    let (plain, adapted) = (Seq::new(5, 20, 0), Seq::new(6, 30, 10));
    let mut model = Setup::new().load(&graph, &weights);
    let all = adapted_step(&mut *model, &[(&plain, 0, 20, &[]), (&adapted, 0, 30, &uses)]);
    let tables: [[&[u32]; 2]; 2] =
        [&plain, &adapted].map(|s| [s.tables[0].as_slice(), s.tables[1].as_slice()]);
    let sequences = [
        SequenceStep { n_tokens: 20, context_len: 20, block_tables: &tables[0], adapters: &[] },
        SequenceStep { n_tokens: 30, context_len: 30, block_tables: &tables[1], adapters: &uses },
    ];
    let tokens = [plain.tokens.as_slice(), &adapted.tokens].concat();
    let outputs = [3, 19, 20, 33, 49];
    let mut logits = vec![0.0; outputs.len() * VOCAB];
    model
        .step(&Step { tokens: &tokens, sequences: &sequences, outputs: &outputs, hidden: &[] }, &mut logits)
        .unwrap();
    for (&row, got) in outputs.iter().zip(logits.chunks(VOCAB)) {
        assert_eq!(bits(got), bits(&all[row as usize * VOCAB..][..VOCAB]), "row {row}");
    }
}

#[test]
fn an_adapter_of_another_model_is_refused() {
    let (graph, other) = (dense(QuantType::F32), moe(QuantType::F32));
    let weights = Weights::new(&graph);
    let adapter = Factors::new(&other, 1, 4, 1.0).adapter(&other);
    let uses = [AdapterUse { adapter: &adapter, scale: 1.0 }];
    let mut model = Setup::new().load(&graph, &weights);
    let seq = Seq::new(1, 10, 0);
    let tables: [&[u32]; 2] = [&seq.tables[0], &seq.tables[1]];
    let sequences = [SequenceStep { n_tokens: 10, context_len: 10, block_tables: &tables, adapters: &uses }];
    let step = Step { tokens: &seq.tokens, sequences: &sequences, outputs: &[], hidden: &[] };
    let error = model.step(&step, &mut []).unwrap_err();
    assert!(matches!(&error, DeviceError::InvalidStep(why) if why.contains("another model")), "{error}");
}
