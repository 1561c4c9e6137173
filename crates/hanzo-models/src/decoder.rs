//! What decoders have in common: the hyper-parameters that nearly all share, the projections around attention, and the
//! frame of embedding, layers, norm and output head.

use hanzo_fusion::{Builder, KvLayer, Value, Weight};

use crate::Result;
use crate::hyper::{Hyper, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_WIDTH};
use crate::weights::Weights;

/// Hyper-parameters that nearly every decoder has.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    pub(crate) n_embd: usize,
    /// Elements of a query or key head.
    pub(crate) head_dim: usize,
    /// Elements of a value head.
    pub(crate) v_head_dim: usize,
    /// Epsilon of the RMS norms.
    pub(crate) eps: f32,
    /// What may differ from layer to layer.
    pub(crate) layers: Vec<LayerDims>,
}

/// Dimensions of one layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerDims {
    /// Query heads.
    pub(crate) n_heads: usize,
    /// Key and value heads.
    pub(crate) n_kv_heads: usize,
    /// Width of the feed-forward block.
    pub(crate) n_ff: usize,
}

impl Decoder {
    pub(crate) fn from_metadata(h: &Hyper<'_>) -> Result<Self> {
        let n_layers = h.count("block_count", 1..=MAX_LAYERS)?;
        let n_embd = h.count("embedding_length", 1..=MAX_WIDTH)?;
        let n_heads = h.per_layer("attention.head_count", n_layers, 1..=MAX_HEADS)?;
        let n_kv_heads = match h.has("attention.head_count_kv") {
            true => h.per_layer("attention.head_count_kv", n_layers, 1..=MAX_HEADS)?,
            false => n_heads.clone(),
        };
        let n_ff = h.per_layer("feed_forward_length", n_layers, 1..=MAX_WIDTH)?;
        let derived = n_heads.first().map_or(0, |&n| n_embd / n);
        let head_dim = h.opt_count("attention.key_length", 1..=MAX_HEAD_DIM)?.unwrap_or(derived);
        let v_head_dim = h.opt_count("attention.value_length", 1..=MAX_HEAD_DIM)?.unwrap_or(derived);
        for (name, dim) in [("attention.key_length", head_dim), ("attention.value_length", v_head_dim)] {
            if dim == 0 || !dim.is_multiple_of(2) || dim > MAX_HEAD_DIM as usize {
                return Err(h.fault(name, dim, format!("an even number up to {MAX_HEAD_DIM}")));
            }
        }
        // Without an epsilon, a row of zeros would be divided by nothing.
        let eps = h.float("attention.layer_norm_rms_epsilon", 1e-20..=1.0)?;
        let mut layers = Vec::with_capacity(n_layers);
        for ((&n_heads, &n_kv_heads), &n_ff) in n_heads.iter().zip(&n_kv_heads).zip(&n_ff) {
            if !n_heads.is_multiple_of(n_kv_heads) {
                let expected = format!("a divisor of the {n_heads} query heads");
                return Err(h.fault("attention.head_count_kv", n_kv_heads, expected));
            }
            layers.push(LayerDims { n_heads, n_kv_heads, n_ff });
        }
        Ok(Self { n_embd, head_dim, v_head_dim, eps, layers })
    }

    /// The cache of a layer.
    pub(crate) fn kv_layer(&self, dims: LayerDims, window: Option<u32>, group: usize) -> KvLayer {
        let (k_head_dim, v_head_dim) = (self.head_dim, self.v_head_dim);
        KvLayer { n_kv_heads: dims.n_kv_heads, k_head_dim, v_head_dim, window, group }
    }

    /// The whole model: embedding, `prepare` on it, every layer by `layer`, norm, output head. Returns the logits.
    pub(crate) fn frame(
        &self,
        w: &mut Weights<'_>,
        prepare: impl FnOnce(&mut Builder, Value) -> Value,
        mut layer: impl FnMut(&mut Weights<'_>, usize, LayerDims, Value) -> Result<Value>,
    ) -> Result<Value> {
        let embed = w.matrix("token_embd.weight", w.vocab_size, self.n_embd)?;
        let x = w.g.embed(embed);
        let mut x = prepare(&mut w.g, x);
        for (i, &dims) in self.layers.iter().enumerate() {
            w.g.set_layer(Some(i as u32));
            x = layer(w, i, dims, x)?;
        }
        w.g.set_layer(None);
        let norm = w.vector("output_norm.weight", self.n_embd)?;
        let output = w.output(self.n_embd)?;
        let x = w.g.select_outputs(x);
        let x = w.g.rms_norm(x, norm, self.eps);
        w.g.set_hidden(x);
        Ok(w.g.matmul(x, output))
    }
}

/// The matrices around an attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Projections {
    pub(crate) q: Weight,
    pub(crate) k: Weight,
    pub(crate) v: Weight,
    pub(crate) o: Weight,
}

impl Projections {
    pub(crate) fn new(w: &mut Weights<'_>, d: &Decoder, layer: usize, dims: LayerDims) -> Result<Self> {
        let name = |part: &str| format!("blk.{layer}.attn_{part}.weight");
        Ok(Self {
            q: w.matrix(&name("q"), dims.n_heads * d.head_dim, d.n_embd)?,
            k: w.matrix(&name("k"), dims.n_kv_heads * d.head_dim, d.n_embd)?,
            v: w.matrix(&name("v"), dims.n_kv_heads * d.v_head_dim, d.n_embd)?,
            o: w.matrix(&name("output"), d.n_embd, dims.n_heads * d.v_head_dim)?,
        })
    }
}
