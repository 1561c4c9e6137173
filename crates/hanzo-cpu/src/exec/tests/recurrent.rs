//! Hybrid models: recurrent ops between attention layers, their states in slots.

use hanzo_fusion::graph::{DeltaSpec, KeyHeads};
use hanzo_fusion::{StateSave, StateUse};

use super::*;

/// Like Qwen 3 Next: two gated delta nets, whose heads go together in either way, and a gated attention.
fn hybrid(ty: QuantType) -> Graph {
    let mut g = Builder::new(VOCAB);
    let embd = g.matrix("embd", VOCAB, WIDTH, ty);
    let table = g.rope_table(rope(8, RopeStyle::Halves));
    let mut x = g.embed(embd);
    for l in 0..3u32 {
        g.set_layer(Some(l));
        let name = |n: &str| format!("blk.{l}.{n}");
        let norm = g.vector(&name("norm"), WIDTH, QuantType::F32);
        let h = g.rms_norm(x, norm, 1e-6);
        let y = if l < 2 {
            let spec = DeltaSpec {
                n_k_heads: 2,
                n_v_heads: 4,
                k_head_dim: 8,
                v_head_dim: 16 + 16 * l as usize,
                order: [KeyHeads::Grouped, KeyHeads::Tiled][l as usize],
            };
            let (keys, values) = (16, 4 * spec.v_head_dim);
            let qkv = g.matrix(&name("qkv"), 2 * keys + values, WIDTH, ty);
            let (alpha, beta) =
                (g.matrix(&name("ba"), 8, WIDTH, ty), g.matrix(&name("z"), values, WIDTH, ty));
            let conv = g.matrix(&name("conv"), 2 * keys + values, 4 - l as usize, QuantType::F32);
            let (ba, z) = (g.matmul(h, alpha), g.matmul(h, beta));
            let (b, a) = (g.slice_groups(ba, 4, 0, 2), g.slice_groups(ba, 4, 2, 2));
            let bias = g.vector(&name("dt"), 4, QuantType::F32);
            let a = g.add_weight(a, bias);
            let a = g.activate(a, Activation::Softplus);
            let decay = g.scale(a, -0.7);
            let b = g.activate(b, Activation::Sigmoid);
            let c = g.matmul(h, qkv);
            let c = g.causal_conv(c, conv);
            let c = g.silu(c);
            let [q, k] = [0, keys].map(|at| g.slice_cols(c, at, keys));
            let v = g.slice_cols(c, 2 * keys, values);
            let [q, k] = [q, k].map(|x| g.rms_norm_groups(x, None, 8, 1e-6));
            let (q, k) = (g.scale(q, 0.125), g.scale(k, 0.35));
            let o = g.delta_rule([q, k, v], [decay, b], spec);
            let o_norm = g.vector(&name("o_norm"), spec.v_head_dim, QuantType::F32);
            let o = g.rms_norm_heads(o, o_norm, 1e-6);
            let z = g.silu(z);
            let o = g.mul(o, z);
            let out = g.matrix(&name("out"), WIDTH, values, ty);
            g.matmul(o, out)
        } else {
            let (wq, wo) = (g.matrix(&name("q"), 2 * 64, WIDTH, ty), g.matrix(&name("o"), WIDTH, 64, ty));
            let [wk, wv] = ["k", "v"].map(|n| g.matrix(&name(n), 32, WIDTH, ty));
            let (q, k, v) = (g.matmul(h, wq), g.matmul(h, wk), g.matmul(h, wv));
            let (q, gate) = (g.slice_groups(q, 32, 0, 16), g.slice_groups(q, 32, 16, 16));
            let (q, k) = (g.rope(q, 16, table), g.rope(k, 16, table));
            let kv =
                g.kv_layer(KvLayer { n_kv_heads: 2, k_head_dim: 16, v_head_dim: 16, window: None, group: 0 });
            let a = g.attention(q, k, v, kv, AttentionSpec::scaled(4, 16));
            let gate = g.activate(gate, Activation::Sigmoid);
            let a = g.mul(a, gate);
            g.matmul(a, wo)
        };
        let one = g.matrix(&name("shared"), 1, WIDTH, ty);
        let one = g.matmul(h, one);
        let one = g.activate(one, Activation::Sigmoid);
        let y = g.mul_groups(y, one);
        x = g.add(x, y);
    }
    g.set_layer(None);
    let norm = g.vector("output_norm", WIDTH, QuantType::F32);
    let x = g.rms_norm(x, norm, 1e-5);
    let x = g.select_outputs(x);
    g.set_hidden(x);
    let logits = g.matmul(x, embd);
    g.finish(logits).unwrap()
}

/// A share of a sequence, and where its states are.
type Share<'a> = (&'a Seq, usize, usize, StateUse<'a>);

fn try_step(model: &mut dyn LoadedModel, shares: &[Share<'_>]) -> Result<Vec<f32>, DeviceError> {
    let (shares, states): (Vec<_>, Vec<_>) =
        shares.iter().map(|&(s, from, to, state)| ((s, from, to), state)).unzip();
    super::try_step(model, 1, &shares, &states)
}

fn step(model: &mut dyn LoadedModel, shares: &[Share<'_>]) -> Vec<u32> {
    bits(&try_step(model, shares).unwrap())
}

fn slot(n: u32) -> StateUse<'static> {
    StateUse::in_slot(n)
}

#[test]
fn logits_are_near_the_plain_evaluation() {
    let graph = hybrid(QuantType::F32);
    let weights = Weights::new(&graph);
    let seq = Seq::new(1, 90, 3);
    let want = reference::logits(&graph, &weights.decoded(&graph), &seq.tokens);
    for fuse in [true, false] {
        let setup = Setup { kv_type: KvType::F32, fuse, ..Setup::new() };
        let got = try_step(&mut *setup.load(&graph, &weights), &[(&seq, 0, 90, slot(0))]).unwrap();
        for (row, (got, want)) in got.chunks(VOCAB).zip(&want).enumerate() {
            let squares = got.iter().zip(want).map(|(got, want)| (f64::from(*got) - want).powi(2));
            let error = (squares.sum::<f64>() / VOCAB as f64).sqrt();
            assert!(error <= 2e-5, "fuse {fuse}, row {row}: {error}");
        }
    }
}

#[test]
fn one_answer() {
    for ty in [QuantType::F32, QuantType::Q8_0] {
        let graph = hybrid(ty);
        let weights = Weights::new(&graph);
        let (a, b, c) = (Seq::new(1, 90, 0), Seq::new(2, 41, 10), Seq::new(3, 70, 20));
        let base = Setup::new();
        let mut model = base.load(&graph, &weights);
        let want = [(&a, 90), (&b, 41), (&c, 70)].map(|(s, n)| step(&mut *model, &[(s, 0, n, slot(3))]));
        let mut setups: Vec<Setup> = [1, 2, 3].map(|threads| Setup { threads, ..base }).to_vec();
        setups.push(Setup { fuse: false, ..base });
        setups.extend(Isa::available().map(|isa| Setup { isa, ..base }));
        for setup in setups {
            let mut model = setup.load(&graph, &weights);
            assert!(step(&mut *model, &[(&a, 0, 90, slot(1))]) == want[0], "{setup:?}: whole");
            // In chunks, with the other sequences beside it, the states moving from slot to slot.
            let mut got: [Vec<u32>; 3] = Default::default();
            let moves = |from, to| StateUse { from, to, saves: &[] };
            for shares in [
                vec![(&a, 0, 7, slot(0)), (&c, 0, 33, slot(2))],
                vec![(&b, 0, 1, slot(1)), (&a, 7, 8, moves(0, 4)), (&c, 33, 34, slot(2))],
                vec![(&c, 34, 70, slot(2)), (&a, 8, 40, slot(4)), (&b, 1, 18, moves(1, 0))],
                vec![(&b, 18, 41, slot(0)), (&a, 40, 89, moves(4, 5))],
                vec![(&a, 89, 90, slot(5))],
            ] {
                let logits = step(&mut *model, &shares);
                let mut at = 0;
                for (s, from, to, _) in shares {
                    let which = [&a, &b, &c].iter().position(|x| std::ptr::eq(*x, s)).unwrap();
                    got[which].extend(&logits[at * VOCAB..(at + to - from) * VOCAB]);
                    at += to - from;
                }
            }
            assert!(got == want, "{setup:?}: in chunks");
        }
    }
}

/// A state that was saved on the way, or copied, is that of the rows before it: what follows has the same bits.
#[test]
fn saved_and_copied_states_go_on() {
    let graph = hybrid(QuantType::Q8_0);
    let weights = Weights::new(&graph);
    let seq = Seq::new(1, 60, 0);
    let mut model = Setup::new().load(&graph, &weights);
    let want = step(&mut *model, &[(&seq, 0, 60, slot(0))]);
    let rest = |n: usize| want[n * VOCAB..].to_vec();
    let saves = [
        StateSave { after: 16, slot: 1 },
        StateSave { after: 33, slot: 2 },
        StateSave { after: 33, slot: 0 },
    ];
    step(&mut *model, &[(&seq, 0, 50, StateUse { from: 9, to: 3, saves: &saves })]);
    model.copy_states(&[(1, 4), (2, 5), (4, 1)]).unwrap();
    for (at, slots) in [(16, [1, 4]), (33, [2, 5]), (50, [3, 3])] {
        for from in slots {
            // The slot stays as it is.
            let to = StateUse { from, to: 0, saves: &[] };
            assert!(step(&mut *model, &[(&seq, at, 60, to)]) == rest(at), "from slot {from} after {at}");
        }
    }
    // A save in the slot that is read, as when drafts follow.
    let saves = [StateSave { after: 2, slot: 1 }];
    step(&mut *model, &[(&seq, 16, 30, StateUse { from: 1, to: 0, saves: &saves })]);
    assert!(step(&mut *model, &[(&seq, 18, 60, slot(1))]) == rest(18));
}

#[test]
fn what_contradicts_itself_is_refused() {
    let graph = hybrid(QuantType::F32);
    let weights = Weights::new(&graph);
    let (a, b) = (Seq::new(1, 20, 0), Seq::new(2, 20, 10));
    let mut model = Setup::new().load(&graph, &weights);
    let save = |after, slot| [StateSave { after, slot }];
    let with = |saves| StateUse { from: 0, to: 0, saves };
    let n = N_STATES as u32;
    step(&mut *model, &[(&a, 0, 10, slot(0)), (&b, 0, 5, slot(1))]);
    for shares in [
        vec![(&a, 0, 20, slot(n))],
        vec![(&a, 5, 20, StateUse { from: n, to: 0, saves: &[] })],
        vec![(&a, 0, 20, with(&save(1, n)))],
        vec![(&a, 0, 20, with(&save(0, 1)))],
        vec![(&a, 10, 20, with(&save(11, 1)))],
        vec![(&a, 0, 20, with(&save(5, 0)))],
        vec![(&a, 0, 20, with(&[StateSave { after: 7, slot: 1 }, StateSave { after: 6, slot: 2 }]))],
        vec![(&a, 9, 20, slot(0))],
        vec![(&a, 10, 20, slot(2))],
        vec![(&a, 0, 20, slot(1)), (&b, 0, 20, slot(1))],
        vec![(&a, 0, 20, slot(1)), (&b, 5, 20, StateUse { from: 1, to: 2, saves: &[] })],
    ] {
        let refused = try_step(&mut *model, &shares);
        assert!(
            matches!(refused, Err(DeviceError::InvalidStep(_))),
            "{:?}",
            shares.iter().map(|s| s.3).collect::<Vec<_>>()
        );
    }
    assert!(matches!(model.copy_states(&[(0, n)]), Err(DeviceError::InvalidStep(_))));
    let one = [slot(0)];
    let two = Step {
        tokens: &[1, 2],
        sequences: &[(); 2].map(|()| SequenceStep {
            n_tokens: 1,
            context_len: 1,
            block_tables: &[&[0]],
            adapters: &[],
        }),
        outputs: &[],
        hidden: &[],
    };
    assert!(matches!(model.step_states(&two, &one, &mut []), Err(DeviceError::InvalidStep(_))));
    // A model without such states takes none.
    let plain = dense(QuantType::F32);
    let weights = Weights::new(&plain);
    let mut model = Setup::new().load(&plain, &weights);
    let tables: [&[u32]; 2] = [&a.tables[0], &a.tables[1]];
    let sequences = [SequenceStep { n_tokens: 20, context_len: 20, block_tables: &tables, adapters: &[] }];
    let step = Step { tokens: &a.tokens, sequences: &sequences, outputs: &[], hidden: &[] };
    assert!(matches!(model.step_states(&step, &one, &mut []), Err(DeviceError::InvalidStep(_))));
    assert!(matches!(model.copy_states(&[(0, 0)]), Err(DeviceError::InvalidStep(_))));
    assert!(model.step_states(&step, &[], &mut []).is_ok());
}

#[test]
fn memory_counts_the_states() {
    let graph = hybrid(QuantType::F32);
    let weights = Weights::new(&graph);
    let memory = Setup::new().load(&graph, &weights).memory();
    let state = (3 * 96 + 4 * 8 * 16 + 2 * 160 + 4 * 8 * 32) * 4;
    assert_eq!(graph.state_bytes(), state as u64);
    let blocks = N_BLOCKS * 16 * 2 * (16 + 16) * 2;
    assert_eq!(memory.kv as usize, blocks + N_STATES * state);
    let wide = {
        let mut g = Builder::new(VOCAB);
        let embd = g.matrix("embd", VOCAB, 24, QuantType::F32);
        let conv = g.matrix("conv", 24, 4, QuantType::F32);
        let x = g.embed(embd);
        let x = g.causal_conv(x, conv);
        let x = g.select_outputs(x);
        let x = g.matmul(x, embd);
        g.finish(x).unwrap()
    };
    let weights = Weights::new(&wide);
    let device = CpuDevice::new(&CpuConfig::default()).unwrap();
    let options = LoadOptions { max_tokens: 1, max_outputs: 1, kv: KvConfig::equal(1, KvType::F32) };
    let refused = device.load(Arc::new(wide.clone()), &Source(&wide, &weights), options, &());
    assert!(matches!(refused.err(), Some(DeviceError::Unsupported { .. })));
}
