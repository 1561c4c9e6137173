//! Gemma 3 (text): five sliding-window layers to one global layer, each kind with its own rotary base; norms before
//! and after both blocks; GeGLU; embeddings scaled by the square root of their width.

use hanzo_fusion::graph::{Activation, AttentionSpec, RopeStyle};
use hanzo_fusion::{Builder, KvLayer, Value, Weight};

use crate::Result;
use crate::decoder::{Decoder, LayerDims, Projections};
use crate::ffn::Glu;
use crate::hyper::{Hyper, MAX_CONTEXT, MAX_LAYERS};
use crate::lora::names::{ATTENTION, GLU, HfNames};
use crate::rope;
use crate::weights::Weights;

/// The 27B model scales queries by its embedding width over its heads instead of by the head; this many layers tell it.
const LAYERS_OF_27B: usize = 62;
/// Every sixth layer is global unless the file says otherwise.
const PERIOD: usize = 6;

pub(super) const HF_NAMES: HfNames = HfNames { modules: &[ATTENTION, GLU], rotated_pairs: false };

struct Layer {
    attn_norm: Weight,
    proj: Projections,
    q_norm: Weight,
    k_norm: Weight,
    post_attn_norm: Weight,
    ffn_norm: Weight,
    ffn: Glu,
    post_ffn_norm: Weight,
    kv: usize,
}

pub(super) fn build(h: &Hyper<'_>, w: &mut Weights<'_>) -> Result<Value> {
    let d = Decoder::from_metadata(h)?;
    let window = h.count("attention.sliding_window", 1..=MAX_CONTEXT)? as u32;
    let period = h.opt_count("attention.sliding_window_pattern", 1..=MAX_LAYERS)?.unwrap_or(PERIOD);
    let n_rot = rope::n_rot(h, d.head_dim)?;
    let global = rope::scaled(h, RopeStyle::Halves, n_rot, rope::base(h, "rope.freq_base", 1e6)?, None)?;
    let local = rope::plain(RopeStyle::Halves, n_rot, rope::base(h, "rope.freq_base_swa", 1e4)?);
    let (global, local) = (w.g.rope_table(global), w.g.rope_table(local));

    let logits = d.frame(
        w,
        |g, x| g.scale(x, (d.n_embd as f32).sqrt()),
        |w, i, dims, x| {
            let is_global = (i + 1).is_multiple_of(period);
            let (kv, rope) = match is_global {
                true => (d.kv_layer(dims, None, 0), global),
                false => (d.kv_layer(dims, Some(window), 1), local),
            };
            let scaled_by =
                if d.layers.len() == LAYERS_OF_27B { d.n_embd / dims.n_heads } else { d.head_dim };
            let attention = AttentionSpec::scaled(dims.n_heads, scaled_by);
            Ok(Layer::new(w, &d, i, dims, kv)?.build(&mut w.g, &d, rope, attention, x))
        },
    )?;
    Ok(match h.opt_float("final_logit_softcapping", 0.0..=1e6)? {
        Some(cap) if cap > 0.0 => w.g.softcap(logits, cap),
        _ => logits,
    })
}

impl Layer {
    fn new(w: &mut Weights<'_>, d: &Decoder, i: usize, dims: LayerDims, kv: KvLayer) -> Result<Self> {
        let name = |part: &str| format!("blk.{i}.{part}.weight");
        Ok(Self {
            attn_norm: w.vector(&name("attn_norm"), d.n_embd)?,
            proj: Projections::new(w, d, i, dims)?,
            q_norm: w.vector(&name("attn_q_norm"), d.head_dim)?,
            k_norm: w.vector(&name("attn_k_norm"), d.head_dim)?,
            post_attn_norm: w.vector(&name("post_attention_norm"), d.n_embd)?,
            ffn_norm: w.vector(&name("ffn_norm"), d.n_embd)?,
            ffn: Glu::new(w, i, d.n_embd, dims.n_ff)?,
            post_ffn_norm: w.vector(&name("post_ffw_norm"), d.n_embd)?,
            kv: w.g.kv_layer(kv),
        })
    }

    fn build(&self, g: &mut Builder, d: &Decoder, rope: usize, attention: AttentionSpec, x: Value) -> Value {
        let h = g.rms_norm(x, self.attn_norm, d.eps);
        let q = g.matmul(h, self.proj.q);
        let k = g.matmul(h, self.proj.k);
        let v = g.matmul(h, self.proj.v);
        let q = g.rms_norm_heads(q, self.q_norm, d.eps);
        let k = g.rms_norm_heads(k, self.k_norm, d.eps);
        let q = g.rope(q, d.head_dim, rope);
        let k = g.rope(k, d.head_dim, rope);
        let a = g.attention(q, k, v, self.kv, attention);
        let a = g.matmul(a, self.proj.o);
        let a = g.rms_norm(a, self.post_attn_norm, d.eps);
        let x = g.add(x, a);
        let h = g.rms_norm(x, self.ffn_norm, d.eps);
        let y = self.ffn.build(g, h, Activation::GeluTanh);
        let y = g.rms_norm(y, self.post_ffn_norm, d.eps);
        g.add(x, y)
    }
}
