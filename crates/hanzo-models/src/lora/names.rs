//! Names of modules in Hugging Face's implementations, and of the tensors that GGUF makes of their weights.

/// The embedding's tensor.
pub(crate) const EMBEDDING: &str = "token_embd.weight";
/// The output head's tensor.
pub(crate) const OUTPUT: &str = "output.weight";

/// Modules of a layer, and their tensors' names after the layer's number.
type Modules = &'static [(&'static str, &'static str)];

/// Projections around an attention, as nearly all name them.
pub(crate) const ATTENTION: Modules = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
];

/// Gated feed-forward blocks, likewise.
pub(crate) const GLU: Modules =
    &[("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")];

/// What comes before `layers.` in a module's path: of a plain model, and of text models inside others. Layers of image or sound
/// encoders have other prefixes.
const PREFIXES: &[&str] = &["", "model.", "language_model.model.", "model.language_model."];

/// The names of an architecture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HfNames {
    /// All modules of a layer that have a tensor of their own.
    pub(crate) modules: &'static [Modules],
    /// Whether converters permute the rows of q and k from rotated halves to rotated pairs.
    pub(crate) rotated_pairs: bool,
}

impl HfNames {
    /// The tensor of a module, and whether its rows are permuted.
    pub(crate) fn tensor(&self, module: &str) -> Result<(String, bool), String> {
        for (ending, tensor) in [("embed_tokens", EMBEDDING), ("lm_head", OUTPUT)] {
            let prefix = module.strip_suffix(ending);
            if prefix.is_some_and(|p| PREFIXES.contains(&p) || p == "language_model.") {
                return Ok((tensor.to_owned(), false));
            }
        }
        let unknown = || "the architecture has no such module that an adapter can update".to_owned();
        let layer = PREFIXES.iter().find_map(|p| module.strip_prefix(p)?.strip_prefix("layers."));
        let (layer, part) = layer.and_then(|l| l.split_once('.')).ok_or_else(unknown)?;
        let layer: u32 = layer.parse().map_err(|_| unknown())?;
        if part.contains("experts") {
            return Err("updates of experts are not supported".to_owned());
        }
        let found = self.modules.iter().copied().flatten().find(|(name, _)| *name == part);
        let (_, tensor) = found.ok_or_else(unknown)?;
        let permuted = self.rotated_pairs && matches!(*tensor, "attn_q" | "attn_k");
        Ok((format!("blk.{layer}.{tensor}.weight"), permuted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_tensors() {
        let names = HfNames { modules: &[ATTENTION, GLU], rotated_pairs: true };
        for (module, tensor, permuted) in [
            ("model.layers.7.self_attn.q_proj", "blk.7.attn_q.weight", true),
            ("model.layers.0.self_attn.v_proj", "blk.0.attn_v.weight", false),
            ("language_model.model.layers.12.mlp.down_proj", "blk.12.ffn_down.weight", false),
            ("model.language_model.layers.1.self_attn.k_proj", "blk.1.attn_k.weight", true),
            ("model.embed_tokens", EMBEDDING, false),
            ("lm_head", OUTPUT, false),
        ] {
            assert_eq!(names.tensor(module), Ok((tensor.to_owned(), permuted)), "{module}");
        }
        for module in [
            "",
            "model.layers",
            "model.layers.x.self_attn.q_proj",
            "model.layers.-1.self_attn.q_proj",
            "model.layers.0.self_attn.qkv_proj",
            "vision_tower.encoder.layers.0.self_attn.q_proj",
            "model.vision.embed_tokens",
            "model.layers.0.mlp.experts.3.up_proj",
        ] {
            assert!(names.tensor(module).is_err(), "{module}");
        }
    }
}
