//! The executor against a plain evaluation in f64, and one answer whatever the batch, the chunks, the threads, the
//! instruction set and the fusion.

mod adapters;

use std::sync::Arc;

use hanzo_fusion::graph::{Activation, AttentionSpec, Builder, Graph, Op, RopeSpec, RopeStyle, WeightDecl};
use hanzo_fusion::step::{KvConfig, KvLayer, KvType, SequenceStep, Step};
use hanzo_fusion::{Device, DeviceError, LoadOptions, LoadedModel, StateUse, WeightSource};
use hanzo_quant::{QuantType, decode_row};

use super::{CpuDevice, reference};
use crate::isa::{CpuConfig, Isa};

mod observed;
mod recurrent;

const VOCAB: usize = 96;
const WIDTH: usize = 64;
const N_BLOCKS: usize = 80;
const N_STATES: usize = 6;

/// Random weights, as bytes of each weight's format.
struct Weights(Vec<Vec<u8>>);

fn noise(seed: u32, i: usize) -> u32 {
    let mut h = (i as u32).wrapping_mul(0x9e37_79b9) ^ seed.wrapping_mul(0x85eb_ca6b);
    for _ in 0..2 {
        h ^= h >> 15;
        h = h.wrapping_mul(0x2c1b_3c6d);
        h ^= h >> 12;
        h = h.wrapping_mul(0x297a_2d39);
    }
    h ^ h >> 15
}

/// A number between -1 and 1.
fn unit(seed: u32, i: usize) -> f32 {
    (noise(seed, i) >> 8) as f32 / (1 << 23) as f32 - 1.0
}

impl Weights {
    fn new(graph: &Graph) -> Self {
        let bytes = |(w, decl): (usize, &WeightDecl)| {
            let n = decl.n_stack * decl.n_out * decl.n_in;
            let value = |i: usize| {
                let x = unit(w as u32, i);
                // Vectors are norms or biases, near 1 or near 0; matrices keep magnitudes.
                match (decl.n_out, decl.name.contains("norm")) {
                    (1, true) => 1.0 + 0.2 * x,
                    (1, false) => 0.1 * x,
                    _ => x * (3.0 / decl.n_in as f32).sqrt(),
                }
            };
            match decl.ty {
                QuantType::F32 => (0..n).flat_map(|i| value(i).to_le_bytes()).collect(),
                QuantType::Q8_0 => (0..n / 32)
                    .flat_map(|b| {
                        let d = hanzo_quant::f16::from_f32((3.0 / decl.n_in as f32).sqrt() / 127.0);
                        let codes = (0..32).map(move |i| (unit(w as u32, b * 32 + i) * 127.0) as i8 as u8);
                        d.to_le_bytes().into_iter().chain(codes).collect::<Vec<_>>()
                    })
                    .collect(),
                QuantType::Q4_1 => (0..n / 32)
                    .flat_map(|b| {
                        let scale = 2.0 * (3.0 / decl.n_in as f32).sqrt() / 15.0;
                        let (d, m) =
                            (hanzo_quant::f16::from_f32(scale), hanzo_quant::f16::from_f32(-7.5 * scale));
                        let codes = (0..16).map(move |i| noise(w as u32, b * 32 + i) as u8);
                        d.to_le_bytes().into_iter().chain(m.to_le_bytes()).chain(codes).collect::<Vec<_>>()
                    })
                    .collect(),
                other => panic!("no noise of {other}"),
            }
        };
        Weights(graph.weights.iter().enumerate().map(bytes).collect())
    }

    fn decoded(&self, graph: &Graph) -> Vec<Vec<f32>> {
        let decode = |(decl, bytes): (&WeightDecl, &Vec<u8>)| {
            let mut out = vec![0.0; decl.n_stack * decl.n_out * decl.n_in];
            decode_row(decl.ty, bytes, &mut out).unwrap();
            out
        };
        graph.weights.iter().zip(&self.0).map(decode).collect()
    }
}

struct Source<'a>(&'a Graph, &'a Weights);

impl WeightSource for Source<'_> {
    fn read(&self, weight: &WeightDecl, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let at = self.0.weights.iter().position(|w| w.name == weight.name).unwrap();
        out.copy_from_slice(&self.1.0[at][offset as usize..][..out.len()]);
        Ok(())
    }
}

fn rope(n_rot: usize, style: RopeStyle) -> RopeSpec {
    let inv_freq = (0..n_rot / 2).map(|i| 1e4f64.powf(-2.0 * i as f64 / n_rot as f64)).collect();
    RopeSpec { style, inv_freq, magnitude: 1.0 }
}

/// Like llama and qwen: grouped heads, head norms, biases, a tied head, one windowed layer with sinks and a soft cap.
fn dense(ty: QuantType) -> Graph {
    let mut g = Builder::new(VOCAB);
    let embd = g.matrix("embd", VOCAB, WIDTH, ty);
    let (heads, kv_heads, dim, v_dim) = (4, 2, 24, 32);
    let table = g.rope_table(rope(16, RopeStyle::Halves));
    let mut x = g.embed(embd);
    for l in 0..3u32 {
        g.set_layer(Some(l));
        let name = |n: &str| format!("blk.{l}.{n}");
        let norm = g.vector(&name("attn_norm"), WIDTH, QuantType::F32);
        let h = g.rms_norm(x, norm, 1e-5);
        let wq = g.matrix(&name("q"), heads * dim, WIDTH, ty);
        let wk = g.matrix(&name("k"), kv_heads * dim, WIDTH, ty);
        let wv = g.matrix(&name("v"), kv_heads * v_dim, WIDTH, ty);
        let wo = g.matrix(&name("o"), WIDTH, heads * v_dim, ty);
        let bias = g.vector(&name("q.bias"), heads * dim, QuantType::F32);
        let (qn, kn) =
            (g.vector(&name("q_norm"), dim, QuantType::F32), g.vector(&name("k_norm"), dim, QuantType::F32));
        let q = g.matmul(h, wq);
        let q = g.add_weight(q, bias);
        let q = g.rms_norm_heads(q, qn, 1e-6);
        let q = g.rope(q, dim, table);
        let k = g.matmul(h, wk);
        let k = g.rms_norm_heads(k, kn, 1e-6);
        let k = g.rope(k, dim, table);
        let v = g.matmul(h, wv);
        let windowed = l == 1;
        let kv = g.kv_layer(KvLayer {
            n_kv_heads: kv_heads,
            k_head_dim: dim,
            v_head_dim: v_dim,
            window: windowed.then_some(37),
            group: windowed.into(),
        });
        let sinks = windowed.then(|| g.vector(&name("sinks"), heads, QuantType::F32));
        let spec = AttentionSpec {
            n_heads: heads,
            scale: (dim as f32).powf(-0.5),
            softcap: windowed.then_some(5.0),
            sinks,
        };
        let a = g.attention(q, k, v, kv, spec);
        let a = g.matmul(a, wo);
        x = g.add(x, a);
        let norm = g.vector(&name("ffn_norm"), WIDTH, QuantType::F32);
        let h = g.rms_norm(x, norm, 1e-5);
        let gate = g.matrix(&name("gate"), 160, WIDTH, ty);
        let up = g.matrix(&name("up"), 160, WIDTH, ty);
        let down = g.matrix(&name("down"), WIDTH, 160, ty);
        let (a, b) = (g.matmul(h, gate), g.matmul(h, up));
        let a = g.silu(a);
        let h = g.mul(a, b);
        let h = g.matmul(h, down);
        x = g.add(x, h);
    }
    g.set_layer(None);
    let norm = g.vector("output_norm", WIDTH, QuantType::F32);
    let x = g.rms_norm(x, norm, 1e-5);
    let x = g.select_outputs(x);
    g.set_hidden(x);
    let logits = g.matmul(x, embd);
    let logits = g.softcap(logits, 30.0);
    g.finish(logits).unwrap()
}

/// Like the mixtures: routed experts with a shared one, layer norms, paired rotation, values narrower than keys.
fn moe(ty: QuantType) -> Graph {
    let mut g = Builder::new(VOCAB);
    let embd = g.matrix("embd", VOCAB, WIDTH, ty);
    let table = g.rope_table(rope(32, RopeStyle::Pairs));
    let mut x = g.embed(embd);
    for l in 0..2u32 {
        g.set_layer(Some(l));
        let name = |n: &str| format!("blk.{l}.{n}");
        let (norm, bias) =
            (g.vector(&name("norm"), WIDTH, QuantType::F32), g.vector(&name("bias"), WIDTH, QuantType::F32));
        let h = g.layer_norm(x, Some(norm), Some(bias), 1e-5);
        let qkv = g.matrix(&name("qkv"), 3 * 32 + 32 + 16, WIDTH, ty);
        let all = g.matmul(h, qkv);
        let q = g.slice_cols(all, 0, 96);
        let k = g.slice_cols(all, 96, 32);
        let v = g.slice_cols(all, 128, 16);
        let (q, k) = (g.rope(q, 32, table), g.rope(k, 32, table));
        let kv =
            g.kv_layer(KvLayer { n_kv_heads: 1, k_head_dim: 32, v_head_dim: 16, window: None, group: 0 });
        let a =
            g.attention(q, k, v, kv, AttentionSpec { n_heads: 3, scale: 0.2, softcap: None, sinks: None });
        let wo = g.matrix(&name("o"), WIDTH, 48, QuantType::F32);
        let a = g.matmul(a, wo);
        x = g.add(x, a);
        let norm = g.vector(&name("ffn_norm"), WIDTH, QuantType::F32);
        let h = g.rms_norm(x, norm, 1e-5);
        let router = g.matrix(&name("router"), 6, WIDTH, QuantType::F32);
        let p = g.matmul(h, router);
        let p = g.softmax(p);
        let ids = g.top_k(p, 2);
        let w = g.gather_cols(p, ids);
        let w = g.normalize_sum(w, 1e-20);
        let (gate, up) =
            (g.experts(&name("gate"), 6, 64, WIDTH, ty), g.experts(&name("up"), 6, 64, WIDTH, ty));
        let down = g.experts(&name("down"), 6, WIDTH, 64, ty);
        let (a, b) = (g.moe_matmul(h, gate, ids), g.moe_matmul(h, up, ids));
        let a = g.activate(a, Activation::GeluTanh);
        let e = g.mul(a, b);
        let e = g.moe_matmul(e, down, ids);
        let e = g.combine_slots(e, w);
        let shared = g.matrix(&name("shared"), WIDTH, WIDTH, ty);
        let s = g.matmul(h, shared);
        let s = g.activate(s, Activation::Gelu);
        let e = g.add(e, s);
        let e = g.scale(e, 0.7);
        x = g.add(x, e);
    }
    g.set_layer(None);
    let norm = g.vector("output_norm", WIDTH, QuantType::F32);
    let x = g.select_outputs(x);
    let x = g.rms_norm(x, norm, 1e-5);
    g.set_hidden(x);
    let head = g.matrix("head", VOCAB, WIDTH, ty);
    let logits = g.matmul(x, head);
    g.finish(logits).unwrap()
}

/// Like BERT: attention both ways, learned positions, layer norms after the blocks, no head.
fn encoder(ty: QuantType) -> Graph {
    let mut g = Builder::new(VOCAB);
    g.set_bidirectional();
    let (embd, positions) =
        (g.matrix("embd", VOCAB, WIDTH, ty), g.matrix("positions", 80, WIDTH, QuantType::F32));
    let (x, p) = (g.embed(embd), g.embed_position(positions));
    let mut x = g.add(x, p);
    for l in 0..2u32 {
        g.set_layer(Some(l));
        let name = |n: &str| format!("blk.{l}.{n}");
        let [q, k, v, o] = ["q", "k", "v", "o"].map(|n| g.matrix(&name(n), WIDTH, WIDTH, ty));
        let bias = g.vector(&name("q.bias"), WIDTH, QuantType::F32);
        let (q, k, v) = (g.matmul(x, q), g.matmul(x, k), g.matmul(x, v));
        let q = g.add_weight(q, bias);
        let kv =
            g.kv_layer(KvLayer { n_kv_heads: 4, k_head_dim: 16, v_head_dim: 16, window: None, group: 0 });
        let a = g.attention(q, k, v, kv, AttentionSpec::scaled(4, 16));
        let a = g.matmul(a, o);
        let a = g.add(a, x);
        let norm = g.vector(&name("norm"), WIDTH, QuantType::F32);
        let norm_bias = g.vector(&name("bias"), WIDTH, QuantType::F32);
        x = g.layer_norm(a, Some(norm), Some(norm_bias), 1e-12);
        let (up, down) = (g.matrix(&name("up"), 128, WIDTH, ty), g.matrix(&name("down"), WIDTH, 128, ty));
        let f = g.matmul(x, up);
        let f = g.activate(f, Activation::Gelu);
        let f = g.matmul(f, down);
        let f = g.add(f, x);
        x = g.layer_norm(f, Some(norm), None, 1e-12);
    }
    g.set_layer(None);
    let x = g.select_outputs(x);
    g.set_hidden(x);
    g.finish(x).unwrap()
}

/// Every token sees its whole sequence and no other; part of a sequence is refused.
#[test]
fn attention_goes_both_ways() {
    for (graph, kv_type, bound) in
        [(encoder(QuantType::F32), KvType::F32, 1e-10), (encoder(QuantType::Q8_0), KvType::F16, 1e-2)]
    {
        let weights = Weights::new(&graph);
        let (a, b) = (Seq::new(1, 77, 0), Seq::new(2, 19, 10));
        let tables: [[&[u32]; 2]; 2] = [&a, &b].map(|s| [&s.tables[0][..], &s.tables[1][..]]);
        let share = |n: usize, context_len: usize, t: usize| SequenceStep {
            n_tokens: n,
            context_len,
            block_tables: &tables[t],
            adapters: &[],
        };
        let run = |setup: Setup, tokens: &[u32], sequences: &[SequenceStep<'_>]| {
            let mut model = setup.load(&graph, &weights);
            let hidden: Vec<u32> = (0..tokens.len() as u32).collect();
            let step = Step { tokens, sequences, outputs: &[], hidden: &hidden };
            model.step(&step, &mut []).map(|()| model.hidden().to_vec())
        };
        let base = Setup { kv_type, ..Setup::new() };
        let alone = run(base, &a.tokens, &[share(77, 77, 0)]).unwrap();
        let want = reference::value(&graph, &weights.decoded(&graph), &a.tokens, graph.hidden.unwrap());
        for (row, (got, want)) in alone.chunks(WIDTH).zip(&want).enumerate() {
            let error: f64 = got.iter().zip(want).map(|(g, w)| (f64::from(*g) - w).powi(2)).sum();
            let norm: f64 = want.iter().map(|w| w * w).sum();
            assert!(error <= bound * norm, "row {row}: {error} of {norm}");
        }
        let both = [&b.tokens[..], &a.tokens].concat();
        for setup in
            [Setup { threads: 3, ..base }, Setup { fuse: false, ..base }, Setup { isa: Isa::Scalar, ..base }]
        {
            let together = run(setup, &both, &[share(19, 19, 1), share(77, 77, 0)]).unwrap();
            assert!(bits(&together[19 * WIDTH..]) == bits(&alone), "{setup:?}");
        }
        let part = run(base, &a.tokens[..10], &[share(10, 30, 0)]);
        assert!(matches!(part, Err(DeviceError::InvalidStep(_))));
    }
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    threads: usize,
    isa: Isa,
    fuse: bool,
    kv_type: KvType,
}

impl Setup {
    fn new() -> Self {
        Setup { threads: 2, isa: Isa::best(), fuse: true, kv_type: KvType::F16 }
    }

    fn load(self, graph: &Graph, weights: &Weights) -> Box<dyn LoadedModel> {
        let config = CpuConfig {
            threads: Some(self.threads),
            isa: Some(self.isa),
            no_fuse: !self.fuse,
            ..CpuConfig::default()
        };
        let kv = KvConfig { n_states: N_STATES, ..KvConfig::equal(N_BLOCKS, self.kv_type) };
        let options = LoadOptions { max_tokens: 96, max_outputs: 96, kv };
        let device = CpuDevice::new(&config).unwrap();
        device.load(Arc::new(graph.clone()), &Source(graph, weights), options, &()).unwrap()
    }
}

fn tokens(seed: u32, n: usize) -> Vec<u32> {
    (0..n).map(|i| noise(seed, i) % VOCAB as u32).collect()
}

/// One sequence of the test: its tokens and its blocks in both groups.
struct Seq {
    tokens: Vec<u32>,
    tables: [Vec<u32>; 2],
}

impl Seq {
    /// Blocks are scattered over the pool, different ones in each group.
    fn new(seed: u32, n: usize, first_block: u32) -> Self {
        let blocks = n.div_ceil(16) as u32;
        let table = |stride: u32| (0..blocks).map(|b| (first_block + b) * stride % N_BLOCKS as u32).collect();
        Seq { tokens: tokens(seed, n), tables: [table(7), table(11)] }
    }
}

/// A share of a sequence: its tokens `from .. to`.
type Share<'a> = (&'a Seq, usize, usize);

/// Runs a step of these shares, with their states if the model has some, and returns the logits of all its rows. The model keeps `groups` groups of blocks.
fn try_step(
    model: &mut dyn LoadedModel,
    groups: usize,
    shares: &[Share<'_>],
    states: &[StateUse<'_>],
) -> Result<Vec<f32>, DeviceError> {
    let tables: Vec<[&[u32]; 2]> =
        shares.iter().map(|(s, ..)| s.tables.each_ref().map(Vec::as_slice)).collect();
    let sequences: Vec<SequenceStep<'_>> = shares
        .iter()
        .zip(&tables)
        .map(|((_, from, to), t)| SequenceStep {
            n_tokens: to - from,
            context_len: *to,
            block_tables: &t[..groups],
            adapters: &[],
        })
        .collect();
    let tokens: Vec<u32> = shares.iter().flat_map(|(s, from, to)| s.tokens[*from..*to].to_vec()).collect();
    let outputs: Vec<u32> = (0..tokens.len() as u32).collect();
    let mut logits = vec![f32::NAN; tokens.len() * VOCAB];
    let step = Step { tokens: &tokens, sequences: &sequences, outputs: &outputs, hidden: &[] };
    model.step_states(&step, states, &mut logits).map(|()| logits)
}

fn step(model: &mut dyn LoadedModel, shares: &[Share<'_>]) -> Vec<f32> {
    try_step(model, 2, shares, &[]).unwrap()
}

/// Logits and hidden states share a step, each for its own rows; neither changes the other's bits.
#[test]
fn hidden_states_come_beside_logits() {
    for graph in [dense(QuantType::F32), dense(QuantType::Q8_0), moe(QuantType::F32)] {
        let (n_embd, weights) = (graph.hidden_size(), Weights::new(&graph));
        let seq = Seq::new(3, 40, 0);
        let tables: [&[u32]; 2] = [&seq.tables[0], &seq.tables[1]];
        let sequences =
            [SequenceStep { n_tokens: 40, context_len: 40, block_tables: &tables, adapters: &[] }];
        let run = |setup: Setup, outputs: &[u32], hidden: &[u32]| {
            let mut model = setup.load(&graph, &weights);
            let mut logits = vec![f32::NAN; outputs.len() * VOCAB];
            let step = Step { tokens: &seq.tokens, sequences: &sequences, outputs, hidden };
            model.step(&step, &mut logits).unwrap();
            let rows = |all: &[f32], n: usize| all.chunks(n).map(bits).collect::<Vec<_>>();
            (rows(&logits, VOCAB), rows(model.hidden(), n_embd))
        };
        let all: Vec<u32> = (0..40).collect();
        let (logits, none) = run(Setup::new(), &all, &[]);
        assert!(none.is_empty());
        let (none, hidden) = run(Setup::new(), &[], &all);
        assert!(none.is_empty() && hidden.len() == 40);
        let portable = Setup { isa: Isa::Scalar, threads: 3, ..Setup::new() };
        for setup in [Setup::new(), Setup { fuse: false, ..Setup::new() }, portable] {
            let (some_logits, some_hidden) = run(setup, &[0, 7, 39], &[2, 7, 8, 30]);
            assert_eq!(some_logits, [0, 7, 39].map(|row: usize| logits[row].clone()));
            assert_eq!(some_hidden, [2, 7, 8, 30].map(|row: usize| hidden[row].clone()));
        }
        // The states are what the head reads: by the plain evaluation they are near.
        let decoded = weights.decoded(&graph);
        let plain = reference::value(&graph, &decoded, &seq.tokens, graph.hidden.unwrap());
        for (row, plain) in hidden.iter().zip(&plain) {
            let error: f64 =
                row.iter().zip(plain).map(|(x, p)| (f64::from(f32::from_bits(*x)) - p).powi(2)).sum();
            let norm: f64 = plain.iter().map(|p| p * p).sum();
            assert!(error < norm * 1e-2, "{error} of {norm}");
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn logits_are_near_the_plain_evaluation() {
    // Greatest root mean square error of a row; logits are about 1.
    for (graph, kv_type, bound) in [
        (dense(QuantType::F32), KvType::F32, 4e-6),
        (moe(QuantType::F32), KvType::F32, 4e-6),
        (dense(QuantType::F32), KvType::F16, 1e-3),
        (dense(QuantType::F32), KvType::Int8, 3e-2),
        (dense(QuantType::Q8_0), KvType::F32, 5e-2),
    ] {
        let weights = Weights::new(&graph);
        let seq = Seq::new(1, 90, 3);
        let want = reference::logits(&graph, &weights.decoded(&graph), &seq.tokens);
        for fuse in [true, false] {
            let mut model = Setup { kv_type, fuse, ..Setup::new() }.load(&graph, &weights);
            let got = step(&mut *model, &[(&seq, 0, 90)]);
            for (row, (got, want)) in got.chunks(VOCAB).zip(&want).enumerate() {
                let squares = got.iter().zip(want).map(|(got, want)| (f64::from(*got) - want).powi(2));
                let error = (squares.sum::<f64>() / VOCAB as f64).sqrt();
                assert!(error <= bound, "{kv_type:?}, bound {bound}, fuse {fuse}, row {row}: {error}");
            }
        }
    }
}

#[test]
fn one_answer() {
    for (graph, kv_type) in [
        (dense(QuantType::Q8_0), KvType::F16),
        (dense(QuantType::Q4_1), KvType::Int8),
        (moe(QuantType::Q8_0), KvType::F16),
        (moe(QuantType::F32), KvType::F32),
    ] {
        let weights = Weights::new(&graph);
        let (a, b, c) = (Seq::new(1, 90, 0), Seq::new(2, 41, 10), Seq::new(3, 70, 20));
        let base = Setup { kv_type, ..Setup::new() };
        let mut model = base.load(&graph, &weights);
        let want = bits(&step(&mut *model, &[(&a, 0, 90)]));
        let want_b = bits(&step(&mut *model, &[(&b, 0, 41)]));
        let want_c = bits(&step(&mut *model, &[(&c, 0, 70)]));

        let mut setups: Vec<Setup> = [1, 2, 3].map(|threads| Setup { threads, ..base }).to_vec();
        setups.push(Setup { fuse: false, ..base });
        setups.extend(Isa::available().map(|isa| Setup { isa, ..base }));
        for setup in setups {
            let mut model = setup.load(&graph, &weights);
            assert!(bits(&step(&mut *model, &[(&a, 0, 90)])) == want, "{setup:?}: whole");
            // In chunks, with the other sequences beside it.
            let mut model = setup.load(&graph, &weights);
            let mut got = [Vec::new(), Vec::new(), Vec::new()];
            for shares in [
                vec![(&a, 0, 7), (&c, 0, 33)],
                vec![(&b, 0, 1), (&a, 7, 8), (&c, 33, 34)],
                vec![(&c, 34, 70), (&a, 8, 40), (&b, 1, 18)],
                vec![(&b, 18, 41), (&a, 40, 89)],
                vec![(&a, 89, 90)],
            ] {
                let logits = step(&mut *model, &shares);
                let mut at = 0;
                for (s, from, to) in shares {
                    let n = (to - from) * VOCAB;
                    let which = [&a, &b, &c].iter().position(|x| std::ptr::eq(*x, s)).unwrap();
                    got[which].extend(bits(&logits[at..at + n]));
                    at += n;
                }
            }
            assert!(got[0] == want, "{setup:?}: chunks of a");
            assert!(got[1] == want_b, "{setup:?}: chunks of b");
            assert!(got[2] == want_c, "{setup:?}: chunks of c");
        }
    }
}

#[test]
fn wanted_outputs_only() {
    let graph = moe(QuantType::Q8_0);
    let weights = Weights::new(&graph);
    let mut model = Setup::new().load(&graph, &weights);
    let seq = Seq::new(5, 50, 0);
    let all = step(&mut *model, &[(&seq, 0, 50)]);
    let tables: [&[u32]; 2] = [&seq.tables[0], &seq.tables[1]];
    let sequences = [SequenceStep { n_tokens: 50, context_len: 50, block_tables: &tables, adapters: &[] }];
    for outputs in [vec![], vec![49], vec![0, 17, 48]] {
        let mut logits = vec![0.0; outputs.len() * VOCAB];
        model
            .step(
                &Step { tokens: &seq.tokens, sequences: &sequences, outputs: &outputs, hidden: &[] },
                &mut logits,
            )
            .unwrap();
        for (&row, got) in outputs.iter().zip(logits.chunks(VOCAB)) {
            assert_eq!(bits(got), bits(&all[row as usize * VOCAB..][..VOCAB]));
        }
    }
}

#[test]
fn blocks_are_copied() {
    let graph = dense(QuantType::F32);
    let weights = Weights::new(&graph);
    let mut model = Setup::new().load(&graph, &weights);
    let seq = Seq::new(5, 40, 0);
    step(&mut *model, &[(&seq, 0, 39)]);
    let mut moved = Seq::new(5, 40, 40);
    for group in 0..2 {
        let pairs: Vec<(u32, u32)> =
            seq.tables[group].iter().copied().zip(moved.tables[group].iter().copied()).collect();
        model.copy_blocks(group, &pairs).unwrap();
    }
    let want = bits(&step(&mut *model, &[(&seq, 39, 40)]));
    moved.tokens = seq.tokens.clone();
    assert_eq!(bits(&step(&mut *model, &[(&moved, 39, 40)])), want);
    for (group, pair) in [(2, (0, 1)), (0, (0, N_BLOCKS as u32)), (1, (N_BLOCKS as u32, 0))] {
        assert!(matches!(model.copy_blocks(group, &[pair]), Err(DeviceError::InvalidStep(_))));
    }
}

#[test]
fn faulty_steps_are_refused() {
    let graph = dense(QuantType::F32);
    let weights = Weights::new(&graph);
    let mut model = Setup::new().load(&graph, &weights);
    let table: Vec<u32> = (0..7).collect();
    let far = [0, 1, N_BLOCKS as u32];
    let behind: Vec<u32> = [u32::MAX, 1, 2, 3, 4].to_vec();
    let (good, short): ([&[u32]; 2], [&[u32]; 2]) = ([&table, &table], [&table, &table[..2]]);
    let (strange, one): ([&[u32]; 2], [&[u32]; 1]) = ([&table, &far], [&table]);
    let (windowed, unwindowed): ([&[u32]; 2], [&[u32]; 2]) = ([&table, &behind], [&behind, &table]);
    let seq = |n_tokens, context_len, block_tables| SequenceStep {
        n_tokens,
        context_len,
        block_tables,
        adapters: &[],
    };
    let ids = tokens(9, 97);
    let vocab = [VOCAB as u32];
    type Case<'a> = (&'a [u32], Vec<SequenceStep<'a>>, Vec<u32>, usize, bool);
    let cases: Vec<Case<'_>> = vec![
        (&ids[..40], vec![seq(40, 40, &good)], vec![39], 1, true),
        (&ids[..1], vec![seq(1, 70, &windowed)], vec![0], 1, true),
        (&ids[..1], vec![seq(1, 70, &unwindowed)], vec![0], 1, false),
        (&ids[..40], vec![seq(40, 40, &good)], vec![40], 1, false),
        (&ids[..40], vec![seq(40, 40, &good)], vec![3, 3], 2, false),
        (&ids[..40], vec![seq(40, 40, &good)], vec![4, 3], 2, false),
        (&ids[..40], vec![seq(40, 40, &good)], vec![3], 2, false),
        (&ids[..40], vec![seq(39, 40, &good)], vec![], 0, false),
        (&ids[..40], vec![seq(41, 41, &good)], vec![], 0, false),
        (&ids[..40], vec![seq(40, 39, &good)], vec![], 0, false),
        (&ids[..40], vec![seq(40, usize::MAX, &good)], vec![], 0, false),
        (&ids[..40], vec![seq(40, 40, &good), seq(0, 4, &good)], vec![], 0, false),
        (&ids[..40], vec![seq(40, 40, &short)], vec![], 0, false),
        (&ids[..40], vec![seq(40, 40, &strange)], vec![], 0, false),
        (&ids[..40], vec![seq(40, 40, &one)], vec![], 0, false),
        (&ids[..40], vec![seq(20, 20, &good), seq(20, 20, &good)], vec![], 0, false),
        (&ids[..97], vec![seq(97, 97, &good)], vec![], 0, false),
        (&vocab, vec![seq(1, 1, &good)], vec![], 0, false),
    ];
    for (i, (tokens, sequences, outputs, rows, fine)) in cases.into_iter().enumerate() {
        let mut logits = vec![0.0; rows * VOCAB];
        let result =
            model.step(&Step { tokens, sequences: &sequences, outputs: &outputs, hidden: &[] }, &mut logits);
        match result {
            Ok(()) => assert!(fine, "case {i} ran"),
            Err(e) => assert!(!fine && matches!(e, DeviceError::InvalidStep(_)), "case {i}: {e}"),
        }
    }
}

#[test]
fn a_refused_step_leaves_the_model_as_it_was() {
    let graph = dense(QuantType::Q8_0);
    let weights = Weights::new(&graph);
    let (seq, mut fresh, mut model) =
        (Seq::new(5, 40, 0), Setup::new().load(&graph, &weights), Setup::new().load(&graph, &weights));
    step(&mut *fresh, &[(&seq, 0, 30)]);
    step(&mut *model, &[(&seq, 0, 30)]);
    let tables: [&[u32]; 2] = [&seq.tables[0], &seq.tables[1]];
    let sequences = [SequenceStep { n_tokens: 2, context_len: 32, block_tables: &tables, adapters: &[] }];
    let faulty = Step { tokens: &[1, VOCAB as u32], sequences: &sequences, outputs: &[], hidden: &[] };
    assert!(matches!(model.step(&faulty, &mut []), Err(DeviceError::InvalidStep(_))));
    let want = bits(&step(&mut *fresh, &[(&seq, 30, 40)]));
    assert!(bits(&step(&mut *model, &[(&seq, 30, 40)])) == want);
}

#[test]
fn a_timed_step_computes_the_same_and_leaves_no_time_out() {
    let graph = dense(QuantType::Q8_0);
    let weights = Weights::new(&graph);
    let seq = Seq::new(3, 20, 0);
    let tables: [&[u32]; 2] = [&seq.tables[0], &seq.tables[1]];
    for (threads, fuse) in [(1, true), (2, true), (3, false)] {
        let load = || Setup { threads, fuse, ..Setup::new() }.load(&graph, &weights);
        let (mut plain, mut timed) = (load(), load());
        let launches = timed.plan_text().lines().count() - 1;
        // A chunk of a prompt, then single rows, which one thread computes between the barriers.
        for (from, to) in [(0, 18), (18, 19), (19, 20)] {
            let want = step(&mut *plain, &[(&seq, from, to)]);
            let sequences =
                [SequenceStep { n_tokens: to - from, context_len: to, block_tables: &tables, adapters: &[] }];
            let outputs: Vec<u32> = (0..(to - from) as u32).collect();
            let mut logits = vec![f32::NAN; (to - from) * VOCAB];
            let step =
                Step { tokens: &seq.tokens[from..to], sequences: &sequences, outputs: &outputs, hidden: &[] };
            let start = std::time::Instant::now();
            let times = timed.step_timed(&step, &mut logits).unwrap();
            let wall = start.elapsed();
            assert!(bits(&logits) == bits(&want), "{threads} threads, fused {fuse}, rows {from} to {to}");
            assert_eq!(times.launches.len(), launches);
            // Every launch took some time, and together with what is before and after them they are the whole step.
            assert!(times.launches.iter().all(|t| !t.is_zero()), "{times:?}");
            assert!(times.total() <= wall, "{times:?} in {wall:?}");
        }
        let faulty = Step { tokens: &[VOCAB as u32], sequences: &[], outputs: &[], hidden: &[] };
        assert!(matches!(timed.step_timed(&faulty, &mut []), Err(DeviceError::InvalidStep(_))));
    }
}

#[test]
fn memory_and_plan_are_told() {
    let graph = dense(QuantType::Q8_0);
    let weights = Weights::new(&graph);
    let model = Setup::new().load(&graph, &weights);
    let (memory, plan) = (model.memory(), model.plan_text());
    let file: usize = weights.0.iter().map(Vec::len).sum();
    // Rows are padded to 32; nothing is held twice.
    assert!(
        memory.weights as usize >= file && (memory.weights as usize) < 2 * file,
        "{memory:?} for {file} bytes"
    );
    let token = 3 * 2 * (24 + 32) * 2;
    assert!(memory.kv as usize >= N_BLOCKS * 16 * token, "{memory:?}");
    assert!(memory.arena > 0);
    for what in [
        "matmul blk.0.gate Q8_0",
        "silu + mul + quantize",
        "rope",
        "attention kv 1 (scale, softcap, window, sinks)",
    ] {
        assert!(plan.contains(what), "{what:?} is not in\n{plan}");
    }
}
