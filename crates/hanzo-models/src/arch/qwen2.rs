//! Qwen 2 and 2.5: biases on q, k and v, and NeoX rotary pairs.

use hanzo_fusion::graph::{Activation, AttentionSpec, RopeStyle};
use hanzo_fusion::{Builder, Value, Weight};

use crate::Result;
use crate::decoder::{Decoder, LayerDims, Projections};
use crate::ffn::Glu;
use crate::hyper::Hyper;
use crate::lora::names::{ATTENTION, GLU, HfNames};
use crate::rope;
use crate::weights::Weights;

pub(super) const HF_NAMES: HfNames = HfNames { modules: &[ATTENTION, GLU], rotated_pairs: false };

struct Layer {
    attn_norm: Weight,
    proj: Projections,
    bq: Weight,
    bk: Weight,
    bv: Weight,
    ffn_norm: Weight,
    ffn: Glu,
    kv: usize,
}

pub(super) fn build(h: &Hyper<'_>, w: &mut Weights<'_>) -> Result<Value> {
    let d = Decoder::from_metadata(h)?;
    let base = rope::base(h, "rope.freq_base", 10_000.0)?;
    let table = rope::scaled(h, RopeStyle::Halves, rope::n_rot(h, d.head_dim)?, base, None)?;
    let table = w.g.rope_table(table);
    d.frame(w, |_, x| x, |w, i, dims, x| Ok(Layer::new(w, &d, i, dims)?.build(&mut w.g, &d, dims, table, x)))
}

impl Layer {
    fn new(w: &mut Weights<'_>, d: &Decoder, i: usize, dims: LayerDims) -> Result<Self> {
        let bias = |part: &str| format!("blk.{i}.attn_{part}.bias");
        Ok(Self {
            attn_norm: w.vector(&format!("blk.{i}.attn_norm.weight"), d.n_embd)?,
            proj: Projections::new(w, d, i, dims)?,
            bq: w.vector(&bias("q"), dims.n_heads * d.head_dim)?,
            bk: w.vector(&bias("k"), dims.n_kv_heads * d.head_dim)?,
            bv: w.vector(&bias("v"), dims.n_kv_heads * d.v_head_dim)?,
            ffn_norm: w.vector(&format!("blk.{i}.ffn_norm.weight"), d.n_embd)?,
            ffn: Glu::new(w, i, d.n_embd, dims.n_ff)?,
            kv: w.g.kv_layer(d.kv_layer(dims, None, 0)),
        })
    }

    fn build(&self, g: &mut Builder, d: &Decoder, dims: LayerDims, rope: usize, x: Value) -> Value {
        let h = g.rms_norm(x, self.attn_norm, d.eps);
        let q = linear(g, h, self.proj.q, self.bq);
        let k = linear(g, h, self.proj.k, self.bk);
        let v = linear(g, h, self.proj.v, self.bv);
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

fn linear(g: &mut Builder, x: Value, weight: Weight, bias: Weight) -> Value {
    let y = g.matmul(x, weight);
    g.add_weight(y, bias)
}
