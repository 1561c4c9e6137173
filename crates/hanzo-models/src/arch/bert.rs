//! BERT and what shares its file format: encoders whose texts become embeddings. Attention sees the whole text; norms come
//! after each block; positions are learned.

use hanzo_fusion::graph::{Activation, AttentionSpec};
use hanzo_fusion::{Builder, KvLayer, Value, Weight};

use crate::Result;
use crate::hyper::{Hyper, MAX_CONTEXT, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_WIDTH};
use crate::weights::Weights;

/// A product and its bias.
struct Linear {
    weight: Weight,
    bias: Weight,
}

impl Linear {
    fn new(w: &mut Weights<'_>, name: &str, n_out: usize, n_in: usize) -> Result<Self> {
        let weight = w.matrix(&format!("{name}.weight"), n_out, n_in)?;
        Ok(Self { weight, bias: w.vector(&format!("{name}.bias"), n_out)? })
    }

    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let y = g.matmul(x, self.weight);
        g.add_weight(y, self.bias)
    }
}

/// A layer norm.
struct Norm {
    weight: Weight,
    bias: Weight,
    eps: f32,
}

impl Norm {
    fn new(w: &mut Weights<'_>, name: &str, n: usize, eps: f32) -> Result<Self> {
        let weight = w.vector(&format!("{name}.weight"), n)?;
        Ok(Self { weight, bias: w.vector(&format!("{name}.bias"), n)?, eps })
    }

    fn build(&self, g: &mut Builder, x: Value) -> Value {
        g.layer_norm(x, Some(self.weight), Some(self.bias), self.eps)
    }
}

pub(super) fn build(h: &Hyper<'_>, w: &mut Weights<'_>) -> Result<Value> {
    let n_layers = h.count("block_count", 1..=MAX_LAYERS)?;
    let n_embd = h.count("embedding_length", 1..=MAX_WIDTH)?;
    let n_heads = h.count("attention.head_count", 1..=MAX_HEADS)?;
    let n_ff = h.count("feed_forward_length", 1..=MAX_WIDTH)?;
    let n_positions = h.count("context_length", 1..=MAX_CONTEXT)?;
    let eps = h.float("attention.layer_norm_epsilon", 0.0..=1.0)?;
    let head_dim = n_embd / n_heads;
    if head_dim * n_heads != n_embd || head_dim > MAX_HEAD_DIM as usize {
        return Err(h.fault("attention.head_count", n_heads, format!("a divisor of the width, {n_embd}")));
    }
    w.g.set_bidirectional();
    let embed = w.matrix("token_embd.weight", w.vocab_size, n_embd)?;
    let positions = w.matrix("position_embd.weight", n_positions, n_embd)?;
    // A text is all of the first type.
    let types = w.first_row("token_types.weight", n_embd)?;
    let norm = Norm::new(w, "token_embd_norm", n_embd, eps)?;
    let (x, p) = (w.g.embed(embed), w.g.embed_position(positions));
    let x = w.g.add_weight(x, types);
    let x = w.g.add(x, p);
    let mut x = norm.build(&mut w.g, x);
    for i in 0..n_layers {
        w.g.set_layer(Some(i as u32));
        let name = |part: &str| format!("blk.{i}.{part}");
        let [q, k, v, o] = ["attn_q", "attn_k", "attn_v", "attn_output"]
            .map(|part| Linear::new(w, &name(part), n_embd, n_embd));
        let (q, k, v, o) = (q?, k?, v?, o?);
        let attn_norm = Norm::new(w, &name("attn_output_norm"), n_embd, eps)?;
        let up = Linear::new(w, &name("ffn_up"), n_ff, n_embd)?;
        let down = Linear::new(w, &name("ffn_down"), n_embd, n_ff)?;
        let out_norm = Norm::new(w, &name("layer_output_norm"), n_embd, eps)?;
        let (k_head_dim, v_head_dim) = (head_dim, head_dim);
        let kv =
            w.g.kv_layer(KvLayer { n_kv_heads: n_heads, k_head_dim, v_head_dim, window: None, group: 0 });
        let g = &mut w.g;
        let (q, k, v) = (q.build(g, x), k.build(g, x), v.build(g, x));
        let a = g.attention(q, k, v, kv, AttentionSpec::scaled(n_heads, head_dim));
        let a = o.build(g, a);
        let a = g.add(a, x);
        x = attn_norm.build(g, a);
        let f = up.build(g, x);
        let f = g.activate(f, Activation::Gelu);
        let f = down.build(g, f);
        let f = g.add(f, x);
        x = out_norm.build(g, f);
    }
    w.g.set_layer(None);
    let x = w.g.select_outputs(x);
    w.g.set_hidden(x);
    Ok(x)
}
