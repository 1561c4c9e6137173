//! Llama 1 to 3 and what shares its file format: SmolLM2, Mistral, Mixtral (routed experts).

use hanzo_fusion::graph::{Activation, AttentionSpec, RopeStyle};
use hanzo_fusion::{Builder, Value, Weight};

use crate::Result;
use crate::decoder::{Decoder, LayerDims, Projections};
use crate::ffn::{Ffn, Glu, Moe};
use crate::hyper::{Hyper, MAX_EXPERTS};
use crate::lora::names::{ATTENTION, GLU, HfNames};
use crate::rope;
use crate::weights::Weights;

pub(super) const HF_NAMES: HfNames =
    HfNames { modules: &[ATTENTION, GLU, &[("block_sparse_moe.gate", "ffn_gate_inp")]], rotated_pairs: true };

struct Layer {
    attn_norm: Weight,
    proj: Projections,
    ffn_norm: Weight,
    ffn: Ffn,
    kv: usize,
}

pub(super) fn build(h: &Hyper<'_>, w: &mut Weights<'_>) -> Result<Value> {
    let d = Decoder::from_metadata(h)?;
    let has_experts = h.opt_count("expert_count", 0..=MAX_EXPERTS)?.is_some_and(|n| n > 0);
    let n_rot = rope::n_rot(h, d.head_dim)?;
    let factors = w.values("rope_freqs.weight", n_rot / 2)?;
    let base = rope::base(h, "rope.freq_base", 10_000.0)?;
    let table = rope::scaled(h, RopeStyle::Pairs, n_rot, base, factors.as_deref())?;
    let table = w.g.rope_table(table);
    d.frame(
        w,
        |_, x| x,
        |w, i, dims, x| {
            let ffn = match has_experts {
                true => Ffn::Experts(Moe::new(h, w, i, d.n_embd, dims.n_ff)?),
                false => Ffn::Dense(Glu::new(w, i, d.n_embd, dims.n_ff)?),
            };
            Ok(Layer::new(w, &d, i, dims, ffn)?.build(&mut w.g, &d, dims, table, x))
        },
    )
}

impl Layer {
    fn new(w: &mut Weights<'_>, d: &Decoder, i: usize, dims: LayerDims, ffn: Ffn) -> Result<Self> {
        Ok(Self {
            attn_norm: w.vector(&format!("blk.{i}.attn_norm.weight"), d.n_embd)?,
            proj: Projections::new(w, d, i, dims)?,
            ffn_norm: w.vector(&format!("blk.{i}.ffn_norm.weight"), d.n_embd)?,
            ffn,
            kv: w.g.kv_layer(d.kv_layer(dims, None, 0)),
        })
    }

    fn build(&self, g: &mut Builder, d: &Decoder, dims: LayerDims, rope: usize, x: Value) -> Value {
        let h = g.rms_norm(x, self.attn_norm, d.eps);
        let q = g.matmul(h, self.proj.q);
        let k = g.matmul(h, self.proj.k);
        let v = g.matmul(h, self.proj.v);
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
