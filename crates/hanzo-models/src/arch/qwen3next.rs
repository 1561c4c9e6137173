//! Qwen 3 Next and Qwen 3.5: gated delta nets, and every fourth layer a gated attention with a partial rotation.
//!
//! A delta net (Yang et al. 2024, "Gated Delta Networks") keeps a matrix a value head in place of keys and values. Its queries, keys
//! and values pass a short convolution over the tokens; queries and keys are scaled to length 1. Qwen 3 Next has
//! routed experts and a shared one, Qwen 3.5 is dense. The two files differ in how beta and alpha are stored, and in which
//! key head a value head goes with.

use hanzo_fusion::graph::{Activation, AttentionSpec, DeltaSpec, KeyHeads, RopeStyle};
use hanzo_fusion::{Builder, Value, Weight};

use crate::Result;
use crate::decoder::{Decoder, LayerDims};
use crate::ffn::{Ffn, Glu, Moe};
use crate::hyper::{Hyper, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_WIDTH};
use crate::rope;
use crate::weights::Weights;

/// Every so many layers one has attention, unless the file says otherwise.
const PERIOD: usize = 4;
/// Longest filter of the convolution.
const MAX_TAPS: u32 = 16;
/// Added to the squared length of a query or key.
const LENGTH_EPS: f32 = 1e-6;

pub(super) fn build_next(h: &Hyper<'_>, w: &mut Weights<'_>) -> Result<Value> {
    let d = Decoder::from_metadata(h)?;
    let n_ff = h.count("expert_feed_forward_length", 1..=MAX_WIDTH)?;
    let n_shared = h.count("expert_shared_feed_forward_length", 1..=MAX_WIDTH)?;
    build(h, w, &d, KeyHeads::Grouped, |w, i, _| {
        let gate = w.matrix(&format!("blk.{i}.ffn_gate_inp_shexp.weight"), 1, d.n_embd)?;
        let routed = Moe::new(h, w, i, d.n_embd, n_ff)?;
        Ok(Ffn::Shared { routed, shared: Glu::shared(w, i, d.n_embd, n_shared)?, gate })
    })
}

pub(super) fn build_35(h: &Hyper<'_>, w: &mut Weights<'_>) -> Result<Value> {
    let d = Decoder::from_metadata(h)?;
    build(h, w, &d, KeyHeads::Tiled, |w, i, dims| Ok(Ffn::Dense(Glu::new(w, i, d.n_embd, dims.n_ff)?)))
}

fn build(
    h: &Hyper<'_>,
    w: &mut Weights<'_>,
    d: &Decoder,
    order: KeyHeads,
    ffn: impl Fn(&mut Weights<'_>, usize, LayerDims) -> Result<Ffn>,
) -> Result<Value> {
    let recurrent = recurrent_layers(h, d.layers.len())?;
    let (spec, taps) = delta_spec(h, order)?;
    let base = rope::base(h, "rope.freq_base", 1e7)?;
    let table = rope::scaled(h, RopeStyle::Halves, rope::n_rot(h, d.head_dim)?, base, None)?;
    let table = w.g.rope_table(table);
    d.frame(
        w,
        |_, x| x,
        |w, i, dims, x| {
            let name = |part: &str| format!("blk.{i}.{part}.weight");
            let attn_norm = w.vector(&name("attn_norm"), d.n_embd)?;
            let ffn_norm = w.vector(&name("post_attention_norm"), d.n_embd)?;
            let normed = w.g.rms_norm(x, attn_norm, d.eps);
            let y = if recurrent.get(i).copied().unwrap_or(false) {
                DeltaNet::new(w, d, i, spec, taps)?.build(&mut w.g, d, normed)
            } else {
                GatedAttention::new(w, d, i, dims)?.build(&mut w.g, d, dims, table, normed)
            };
            let x = w.g.add(x, y);
            let normed = w.g.rms_norm(x, ffn_norm, d.eps);
            let y = ffn(w, i, dims)?.build(&mut w.g, normed, Activation::Silu);
            Ok(w.g.add(x, y))
        },
    )
}

/// Which layers are delta nets. Prefixes of texts are found by the blocks of attention, so there must be some.
fn recurrent_layers(h: &Hyper<'_>, n_layers: usize) -> Result<Vec<bool>> {
    const NAME: &str = "attention.recurrent_layers";
    const INTERVAL: &str = "full_attention_interval";
    let (name, layers) = match h.opt_flags(NAME, n_layers)? {
        Some(flags) => (NAME, flags),
        None => {
            let period = h.opt_count(INTERVAL, 1..=MAX_LAYERS)?.unwrap_or(PERIOD);
            (INTERVAL, (1..=n_layers).map(|i| !i.is_multiple_of(period)).collect())
        }
    };
    if layers.iter().all(|&r| r) {
        return Err(h.fault(
            name,
            format!("such that all {n_layers} layers are recurrent"),
            "one with attention at least",
        ));
    }
    Ok(layers)
}

/// The heads of the delta nets, and the taps of their convolutions.
fn delta_spec(h: &Hyper<'_>, order: KeyHeads) -> Result<(DeltaSpec, usize)> {
    let taps = h.count("ssm.conv_kernel", 1..=MAX_TAPS)?;
    let k_head_dim = h.count("ssm.state_size", 1..=MAX_HEAD_DIM)?;
    let n_k_heads = h.count("ssm.group_count", 1..=MAX_HEADS)?;
    let n_v_heads = h.count("ssm.time_step_rank", 1..=MAX_HEADS)?;
    let values = h.count("ssm.inner_size", 1..=MAX_WIDTH)?;
    if !n_v_heads.is_multiple_of(n_k_heads) {
        return Err(h.fault(
            "ssm.time_step_rank",
            n_v_heads,
            format!("a multiple of the {n_k_heads} key heads"),
        ));
    }
    if !values.is_multiple_of(n_v_heads) || values / n_v_heads > MAX_HEAD_DIM as usize {
        let expected = format!("{n_v_heads} heads of at most {MAX_HEAD_DIM}");
        return Err(h.fault("ssm.inner_size", values, expected));
    }
    Ok((DeltaSpec { n_k_heads, n_v_heads, k_head_dim, v_head_dim: values / n_v_heads, order }, taps))
}

/// Where beta and alpha come from.
enum BetaAlpha {
    /// One matrix; of each key head, its value heads' betas and then their alphas.
    Together(Weight),
    Apart {
        beta: Weight,
        alpha: Weight,
    },
}

struct DeltaNet {
    spec: DeltaSpec,
    qkv: Weight,
    gate: Weight,
    beta_alpha: BetaAlpha,
    conv: Weight,
    /// Added to alpha.
    dt: Weight,
    /// The logarithm of the decay for an alpha of 1 (negative).
    a: Weight,
    norm: Weight,
    out: Weight,
}

impl DeltaNet {
    fn new(w: &mut Weights<'_>, d: &Decoder, i: usize, spec: DeltaSpec, taps: usize) -> Result<Self> {
        let name = |part: &str| format!("blk.{i}.{part}");
        let (n, values) = (spec.n_v_heads, spec.n_v_heads * spec.v_head_dim);
        let channels = 2 * spec.n_k_heads * spec.k_head_dim + values;
        Ok(Self {
            spec,
            qkv: w.matrix(&name("attn_qkv.weight"), channels, d.n_embd)?,
            gate: w.matrix(&name("attn_gate.weight"), values, d.n_embd)?,
            beta_alpha: match spec.order {
                KeyHeads::Grouped => {
                    BetaAlpha::Together(w.matrix(&name("ssm_ba.weight"), 2 * n, d.n_embd)?)
                }
                KeyHeads::Tiled => BetaAlpha::Apart {
                    beta: w.matrix(&name("ssm_beta.weight"), n, d.n_embd)?,
                    alpha: w.matrix(&name("ssm_alpha.weight"), n, d.n_embd)?,
                },
            },
            conv: w.matrix(&name("ssm_conv1d.weight"), channels, taps)?,
            dt: w.vector(&name("ssm_dt.bias"), n)?,
            a: w.vector(&name("ssm_a"), n)?,
            norm: w.vector(&name("ssm_norm.weight"), spec.v_head_dim)?,
            out: w.matrix(&name("ssm_out.weight"), d.n_embd, values)?,
        })
    }

    fn build(&self, g: &mut Builder, d: &Decoder, x: Value) -> Value {
        let (beta, alpha) = self.beta_alpha(g, x);
        let beta = g.activate(beta, Activation::Sigmoid);
        let alpha = g.add_weight(alpha, self.dt);
        let alpha = g.activate(alpha, Activation::Softplus);
        let decay = g.mul_weight(alpha, self.a);
        let z = g.matmul(x, self.gate);
        let z = g.silu(z);
        let qkv = g.matmul(x, self.qkv);
        let qkv = g.causal_conv(qkv, self.conv);
        let qkv = g.silu(qkv);
        let spec = self.spec;
        let (dim, keys) = (spec.k_head_dim, spec.n_k_heads * spec.k_head_dim);
        let q = g.slice_cols(qkv, 0, keys);
        let k = g.slice_cols(qkv, keys, keys);
        let v = g.slice_cols(qkv, 2 * keys, spec.n_v_heads * spec.v_head_dim);
        // A vector of length 1 is one of mean square 1, over the root of its dimension; queries are scaled by that once more.
        let [q, k] = [q, k].map(|x| g.rms_norm_groups(x, None, dim, LENGTH_EPS / dim as f32));
        let q = g.scale(q, 1.0 / dim as f32);
        let k = g.scale(k, (1.0 / (dim as f64).sqrt()) as f32);
        let o = g.delta_rule([q, k, v], [decay, beta], spec);
        let o = g.rms_norm_heads(o, self.norm, d.eps);
        let o = g.mul(o, z);
        g.matmul(o, self.out)
    }

    fn beta_alpha(&self, g: &mut Builder, x: Value) -> (Value, Value) {
        match self.beta_alpha {
            BetaAlpha::Together(weight) => {
                let n = self.spec.n_v_heads / self.spec.n_k_heads;
                let both = g.matmul(x, weight);
                (g.slice_groups(both, 2 * n, 0, n), g.slice_groups(both, 2 * n, n, n))
            }
            BetaAlpha::Apart { beta, alpha } => (g.matmul(x, beta), g.matmul(x, alpha)),
        }
    }
}

/// Attention whose result is weighed, element by element, by the sigmoid of a gate that comes with the queries.
struct GatedAttention {
    /// Of each head, its query and then its gate.
    q: Weight,
    k: Weight,
    v: Weight,
    o: Weight,
    q_norm: Weight,
    k_norm: Weight,
    kv: usize,
}

impl GatedAttention {
    fn new(w: &mut Weights<'_>, d: &Decoder, i: usize, dims: LayerDims) -> Result<Self> {
        let name = |part: &str| format!("blk.{i}.attn_{part}.weight");
        Ok(Self {
            q: w.matrix(&name("q"), dims.n_heads * 2 * d.head_dim, d.n_embd)?,
            k: w.matrix(&name("k"), dims.n_kv_heads * d.head_dim, d.n_embd)?,
            v: w.matrix(&name("v"), dims.n_kv_heads * d.v_head_dim, d.n_embd)?,
            o: w.matrix(&name("output"), d.n_embd, dims.n_heads * d.v_head_dim)?,
            q_norm: w.vector(&name("q_norm"), d.head_dim)?,
            k_norm: w.vector(&name("k_norm"), d.head_dim)?,
            kv: w.g.kv_layer(d.kv_layer(dims, None, 0)),
        })
    }

    fn build(&self, g: &mut Builder, d: &Decoder, dims: LayerDims, rope: usize, x: Value) -> Value {
        let dim = d.head_dim;
        let q_gate = g.matmul(x, self.q);
        let (q, gate) = (g.slice_groups(q_gate, 2 * dim, 0, dim), g.slice_groups(q_gate, 2 * dim, dim, dim));
        let k = g.matmul(x, self.k);
        let v = g.matmul(x, self.v);
        let q = g.rms_norm_heads(q, self.q_norm, d.eps);
        let k = g.rms_norm_heads(k, self.k_norm, d.eps);
        let q = g.rope(q, dim, rope);
        let k = g.rope(k, dim, rope);
        let a = g.attention(q, k, v, self.kv, AttentionSpec::scaled(dims.n_heads, dim));
        let gate = g.activate(gate, Activation::Sigmoid);
        let a = g.mul(a, gate);
        g.matmul(a, self.o)
    }
}
