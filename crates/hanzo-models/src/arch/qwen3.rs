//! Qwen 3, dense and mixture of experts: q and k normalized head by head before rotation, no biases.

use hanzo_fusion::graph::{Activation, AttentionSpec, RopeStyle};
use hanzo_fusion::{Builder, Value, Weight};

use crate::Result;
use crate::decoder::{Decoder, LayerDims, Projections};
use crate::ffn::{Ffn, Glu, Moe};
use crate::hyper::{Hyper, MAX_WIDTH};
use crate::lora::names::{ATTENTION, GLU, HfNames};
use crate::rope;
use crate::weights::Weights;

pub(super) const HF_NAMES: HfNames =
    HfNames { modules: &[ATTENTION, GLU, &[("mlp.gate", "ffn_gate_inp")]], rotated_pairs: false };

struct Layer {
    attn_norm: Weight,
    proj: Projections,
    q_norm: Weight,
    k_norm: Weight,
    ffn_norm: Weight,
    ffn: Ffn,
    kv: usize,
}

pub(super) fn build(h: &Hyper<'_>, w: &mut Weights<'_>) -> Result<Value> {
    let d = Decoder::from_metadata(h)?;
    decoder(h, w, &d, |w, i, dims| Ok(Ffn::Dense(Glu::new(w, i, d.n_embd, dims.n_ff)?)))
}

pub(super) fn build_moe(h: &Hyper<'_>, w: &mut Weights<'_>) -> Result<Value> {
    let d = Decoder::from_metadata(h)?;
    let n_ff = h.count("expert_feed_forward_length", 1..=MAX_WIDTH)?;
    decoder(h, w, &d, |w, i, _| Ok(Ffn::Experts(Moe::new(h, w, i, d.n_embd, n_ff)?)))
}

fn decoder(
    h: &Hyper<'_>,
    w: &mut Weights<'_>,
    d: &Decoder,
    ffn: impl Fn(&mut Weights<'_>, usize, LayerDims) -> Result<Ffn>,
) -> Result<Value> {
    let base = rope::base(h, "rope.freq_base", 10_000.0)?;
    let table = rope::scaled(h, RopeStyle::Halves, rope::n_rot(h, d.head_dim)?, base, None)?;
    let table = w.g.rope_table(table);
    d.frame(
        w,
        |_, x| x,
        |w, i, dims, x| {
            let ffn = ffn(w, i, dims)?;
            Ok(Layer::new(w, d, i, dims, ffn)?.build(&mut w.g, d, dims, table, x))
        },
    )
}

impl Layer {
    fn new(w: &mut Weights<'_>, d: &Decoder, i: usize, dims: LayerDims, ffn: Ffn) -> Result<Self> {
        let name = |part: &str| format!("blk.{i}.{part}.weight");
        Ok(Self {
            attn_norm: w.vector(&name("attn_norm"), d.n_embd)?,
            proj: Projections::new(w, d, i, dims)?,
            q_norm: w.vector(&name("attn_q_norm"), d.head_dim)?,
            k_norm: w.vector(&name("attn_k_norm"), d.head_dim)?,
            ffn_norm: w.vector(&name("ffn_norm"), d.n_embd)?,
            ffn,
            kv: w.g.kv_layer(d.kv_layer(dims, None, 0)),
        })
    }

    fn build(&self, g: &mut Builder, d: &Decoder, dims: LayerDims, rope: usize, x: Value) -> Value {
        let h = g.rms_norm(x, self.attn_norm, d.eps);
        let q = g.matmul(h, self.proj.q);
        let k = g.matmul(h, self.proj.k);
        let v = g.matmul(h, self.proj.v);
        let q = g.rms_norm_heads(q, self.q_norm, d.eps);
        let k = g.rms_norm_heads(k, self.k_norm, d.eps);
        let q = g.rope(q, d.head_dim, rope);
        let k = g.rope(k, d.head_dim, rope);
        let a = g.attention(q, k, v, self.kv, AttentionSpec::scaled(dims.n_heads, d.head_dim));
        let a = g.matmul(a, self.proj.o);
        let x = g.add(x, a);
        let h = g.rms_norm(x, self.ffn_norm, d.eps);
        let y = self.ffn.build(g, h, Activation::Silu);
        g.add(x, y)
    }
}
