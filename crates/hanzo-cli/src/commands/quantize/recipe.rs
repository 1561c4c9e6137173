//! Which type each tensor gets: the named recipes (`Q4_K_M`, `IQ3_XS`, …) and the roles that they tell apart.
//!
//! A recipe is a base type and a set of exceptions: the tensors that hurt most when they are coarse (the output, the
//! values of attention, the down projections of the first and last layers) get more bits. The names, the exceptions
//! and the numbers of `general.file_type` are those of llama.cpp, so that a name means the same file everywhere.

use hanzo_quant::QuantType::{self, *};

macro_rules! recipes {
    ($($name:ident = $file_type:literal, $base:ident, $what:literal;)*) => {
        /// A named recipe.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Recipe {
            $(#[doc = $what] $name,)*
        }

        impl Recipe {
            /// All of them.
            pub(crate) const ALL: &'static [Recipe] = &[$(Recipe::$name,)*];

            /// The name.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Recipe::$name => stringify!($name),)* }
            }

            /// The number that `general.file_type` gets.
            pub(crate) const fn file_type(self) -> u32 {
                match self { $(Recipe::$name => $file_type,)* }
            }

            /// The type of most tensors.
            pub(crate) const fn base(self) -> QuantType {
                match self { $(Recipe::$name => $base,)* }
            }

            /// What it is, in a few words.
            pub(crate) const fn what(self) -> &'static str {
                match self { $(Recipe::$name => $what,)* }
            }
        }
    };
}

recipes! {
    F32 = 0, F32, "every matrix as 32-bit floats";
    F16 = 1, F16, "every matrix as 16-bit floats";
    BF16 = 32, BF16, "every matrix as bfloat16";
    Q8_0 = 7, Q8_0, "8.5 bits, next to no loss";
    Q6_K = 18, Q6_K, "6.6 bits, very little loss";
    Q5_K_M = 17, Q5_K, "5.5 bits, some tensors 6.6";
    Q5_K_S = 16, Q5_K, "5.5 bits";
    Q5_1 = 9, Q5_1, "6 bits, 32-element blocks";
    Q5_0 = 8, Q5_0, "5.5 bits, 32-element blocks";
    Q4_K_M = 15, Q4_K, "4.5 bits, some tensors 6.6: the usual choice";
    Q4_K_S = 14, Q4_K, "4.5 bits, some tensors 5.5";
    IQ4_NL = 25, IQ4_NL, "4.5 bits, uneven steps, 32-element blocks";
    IQ4_XS = 30, IQ4_XS, "4.25 bits, uneven steps";
    Q4_1 = 3, Q4_1, "5 bits, 32-element blocks";
    Q4_0 = 2, Q4_0, "4.5 bits, 32-element blocks";
    MXFP4 = 38, MXFP4, "4.25 bits, floating-point codes";
    MXFP4_MOE = 38, MXFP4, "experts in MXFP4, the rest in Q8_0";
    NVFP4 = 39, NVFP4, "4.5 bits, floating-point codes and scales";
    Q3_K_L = 13, Q3_K, "3.4 bits, some tensors 5.5";
    Q3_K_M = 12, Q3_K, "3.4 bits, some tensors 4.5 or 5.5";
    Q3_K_S = 11, Q3_K, "3.4 bits";
    IQ3_M = 27, IQ3_S, "3.4 bits from a codebook, some tensors 4.5";
    IQ3_S = 26, IQ3_S, "3.4 bits from a codebook";
    IQ3_XS = 22, IQ3_S, "3.4 and 3.1 bits from codebooks";
    IQ3_XXS = 23, IQ3_XXS, "3.1 bits from a codebook";
    Q2_K = 10, Q2_K, "2.6 bits, some tensors 3.4";
    Q2_K_S = 21, Q2_K, "2.6 bits";
    IQ2_M = 29, IQ2_S, "2.6 bits from a codebook; wants an importance matrix";
    IQ2_S = 28, IQ2_XS, "2.3 bits from a codebook, some tensors 3.4; wants an importance matrix";
    IQ2_XS = 20, IQ2_XS, "2.3 bits from a codebook; wants an importance matrix";
    IQ2_XXS = 19, IQ2_XXS, "2.1 bits from a codebook; wants an importance matrix";
    IQ1_M = 31, IQ1_M, "1.75 bits from a codebook; wants an importance matrix";
    IQ1_S = 24, IQ1_S, "1.6 bits from a codebook; wants an importance matrix";
    TQ2_0 = 37, TQ2_0, "2.1 bits, for models trained to ternary weights";
    TQ1_0 = 36, TQ1_0, "1.7 bits, for models trained to ternary weights";
    Q2_0 = 41, Q2_0, "2.25 bits, four levels";
    Q1_0 = 40, Q1_0, "1.125 bits, signs only";
}

impl Recipe {
    /// The recipe of this name; case does not matter, and a bare `Q4_K` means `Q4_K_M`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let name = match name.to_ascii_uppercase().as_str() {
            "Q3_K" => "Q3_K_M".to_owned(),
            "Q4_K" => "Q4_K_M".to_owned(),
            "Q5_K" => "Q5_K_M".to_owned(),
            upper => upper.to_owned(),
        };
        Self::ALL.iter().copied().find(|recipe| recipe.name() == name)
    }

    /// The one type of a pure file: that of the recipe's name, or its base.
    pub(crate) fn pure_type(self) -> QuantType {
        QuantType::from_name(self.name()).unwrap_or(self.base())
    }
}

/// What a tensor is to the model, as far as recipes care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Output,
    TokenEmbedding,
    AttnQ,
    AttnK,
    /// Values of attention, alone or in one matrix with queries and keys or with what keys come from.
    AttnV,
    AttnOutput,
    FfnGateUp,
    FfnDown,
    Other,
}

impl Role {
    /// The role of the tensor of this name.
    pub(crate) fn of(name: &str) -> Self {
        let Some(stem) = name.strip_suffix(".weight") else { return Role::Other };
        match stem.rsplit('.').next().unwrap_or(stem) {
            "output" if stem == "output" => Role::Output,
            "token_embd" | "per_layer_token_embd" => Role::TokenEmbedding,
            "attn_q" => Role::AttnQ,
            "attn_k" => Role::AttnK,
            "attn_v" | "attn_qkv" | "attn_kv_b" => Role::AttnV,
            "attn_output" => Role::AttnOutput,
            "ffn_gate" | "ffn_up" | "ffn_gate_exps" | "ffn_up_exps" | "ffn_gate_shexp" | "ffn_up_shexp" => {
                Role::FfnGateUp
            }
            "ffn_down" | "ffn_down_exps" | "ffn_down_shexp" => Role::FfnDown,
            _ => Role::Other,
        }
    }
}

/// What a recipe needs to know of a tensor and its model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) role: Role,
    /// Which layer of those that have the role, of how many.
    pub(crate) layer: usize,
    pub(crate) layers: usize,
    /// Query heads for each key/value head.
    pub(crate) gqa: u64,
    pub(crate) experts: u64,
    pub(crate) falcon: bool,
    /// Whether it is one of the models of 80 layers (Llama and Qwen2 of 70 billion weights) whose values serve many query heads.
    pub(crate) seventy: bool,
    /// Whether the tensor's rows are no whole blocks of the recipe's base type.
    pub(crate) ragged: bool,
    /// Whether the tensor holds the matrices of several experts.
    pub(crate) stacked: bool,
    /// Whether an importance matrix is at hand.
    pub(crate) importance: bool,
}

impl Place {
    /// The first eighth of the layers.
    fn early(self) -> bool {
        self.layer < self.layers / 8
    }

    /// The first and the last eighth, and every third between.
    fn sensitive(self) -> bool {
        self.early() || self.layer >= 7 * self.layers / 8 || (self.layer - self.layers / 8) % 3 == 2
    }
}

impl Recipe {
    /// The type of a tensor, if its rows are whole blocks of it.
    pub(crate) fn choose(self, at: Place) -> QuantType {
        let base = self.base();
        if base.is_float() {
            return base;
        }
        if self == Recipe::MXFP4_MOE {
            return if at.stacked { MXFP4 } else { Q8_0 };
        }
        match at.role {
            Role::Output => self.output(at),
            Role::TokenEmbedding => self.token_embedding(),
            _ if self.is_tiny() => self.tiny(at),
            Role::AttnV => self.attn_v(at),
            Role::AttnQ | Role::AttnK => self.attn_qk(at),
            Role::AttnOutput => self.attn_output(at),
            Role::FfnDown => self.ffn_down(at),
            Role::FfnGateUp => {
                let middle = !at.early() && at.layer < 7 * at.layers / 8;
                if self == Recipe::IQ3_XS && middle { IQ3_XXS } else { base }
            }
            Role::Other => base,
        }
    }

    /// Recipes of less than three bits from codebooks, which have rules of their own.
    fn is_tiny(self) -> bool {
        use Recipe as R;
        matches!(self, R::IQ1_S | R::IQ1_M | R::IQ2_XXS | R::IQ2_XS | R::IQ2_S | R::IQ2_M)
    }

    fn output(self, at: Place) -> QuantType {
        match self.base() {
            Q8_0 => Q8_0,
            _ if at.falcon || at.ragged => Q8_0,
            _ if self.is_tiny() || self == Recipe::IQ3_XXS => Q5_K,
            _ => Q6_K,
        }
    }

    fn token_embedding(self) -> QuantType {
        use Recipe as R;
        match self {
            R::IQ1_S | R::IQ1_M | R::IQ2_XXS | R::IQ2_XS => Q2_K,
            R::IQ2_S | R::IQ2_M | R::IQ3_XXS => IQ3_S,
            R::TQ1_0 | R::TQ2_0 | R::Q2_0 => Q4_K,
            _ => self.base(),
        }
    }

    fn tiny(self, at: Place) -> QuantType {
        use Recipe as R;
        let two_and_a_half = matches!(self, R::IQ2_S | R::IQ2_M);
        match at.role {
            Role::AttnV if at.gqa >= 4 || at.experts >= 4 => Q4_K,
            Role::AttnK if at.experts == 8 => Q4_K,
            Role::AttnV if two_and_a_half => IQ3_S,
            Role::AttnV => Q2_K,
            Role::FfnDown if at.early() && two_and_a_half => IQ3_S,
            Role::FfnDown if at.early() => Q2_K,
            Role::AttnOutput if at.experts == 8 => Q5_K,
            Role::AttnOutput if two_and_a_half => IQ3_S,
            Role::AttnOutput if matches!(self, R::IQ1_S | R::IQ1_M) => IQ2_XXS,
            _ => self.base(),
        }
    }

    fn attn_v(self, at: Place) -> QuantType {
        use Recipe as R;
        if at.experts == 8 {
            // Shared by all experts and small beside them.
            return Q8_0;
        }
        let ty = match self {
            R::Q2_K => {
                if at.gqa >= 4 {
                    Q4_K
                } else {
                    Q3_K
                }
            }
            R::Q2_K_S if at.gqa >= 4 => Q4_K,
            R::IQ3_XXS if at.gqa >= 4 => Q4_K,
            R::IQ3_XXS if !at.importance => IQ3_S,
            R::IQ3_XS | R::IQ3_S if at.gqa >= 4 => Q4_K,
            R::IQ3_M => Q4_K,
            R::Q3_K_M => {
                if at.layer < 2 {
                    Q5_K
                } else {
                    Q4_K
                }
            }
            R::Q3_K_L => Q5_K,
            R::IQ4_NL | R::IQ4_XS if at.gqa >= 4 => Q5_K,
            R::Q4_K_M | R::Q5_K_M if at.sensitive() => Q6_K,
            R::Q4_K_S if at.layer < 4 => Q5_K,
            _ => self.base(),
        };
        if at.seventy && matches!(ty, Q3_K | Q4_K) { Q5_K } else { ty }
    }

    fn attn_qk(self, at: Place) -> QuantType {
        match self {
            _ if at.role == Role::AttnK && at.experts == 8 => Q8_0,
            Recipe::IQ3_XS => IQ3_XXS,
            Recipe::IQ3_XXS => IQ2_S,
            _ => self.base(),
        }
    }

    fn attn_output(self, at: Place) -> QuantType {
        use Recipe as R;
        if at.falcon {
            return if self == R::Q3_K_L { Q4_K } else { self.base() };
        }
        if at.experts == 8 && matches!(self.base(), Q2_K | Q3_K | Q4_K | IQ3_XXS | IQ3_S | IQ4_NL | IQ4_XS) {
            return if matches!(self, R::Q2_K_S | R::Q3_K_L) { self.base() } else { Q5_K };
        }
        match self {
            R::Q2_K => Q3_K,
            R::IQ3_XXS => IQ3_S,
            R::Q3_K_M | R::IQ3_M => Q4_K,
            R::Q3_K_L => Q5_K,
            _ => self.base(),
        }
    }

    fn ffn_down(self, at: Place) -> QuantType {
        use Recipe as R;
        match self {
            R::Q2_K => Q3_K,
            R::Q2_K_S if at.early() => Q4_K,
            R::IQ3_XXS if !at.importance => {
                if at.early() {
                    Q4_K
                } else {
                    Q3_K
                }
            }
            R::Q3_K_M if at.layer < at.layers / 16 => Q5_K,
            R::Q3_K_M if !at.falcon || at.sensitive() => Q4_K,
            R::IQ3_M if at.early() || at.experts == 8 && at.sensitive() => Q4_K,
            R::Q3_K_L => {
                if at.falcon {
                    Q4_K
                } else {
                    Q5_K
                }
            }
            R::Q4_K_M if at.falcon && at.layer < at.layers / 16 => Q6_K,
            R::Q4_K_M if at.falcon => {
                if at.sensitive() {
                    Q5_K
                } else {
                    Q4_K
                }
            }
            R::Q4_K_M | R::Q5_K_M if at.sensitive() => Q6_K,
            R::IQ4_NL | R::IQ4_XS if at.early() && !at.importance => Q5_K,
            R::Q4_K_S if at.early() && !at.falcon => Q5_K,
            R::Q4_0 if at.early() && at.importance => Q4_1,
            R::Q5_0 if at.early() && at.importance => Q5_1,
            _ => self.base(),
        }
    }
}

/// The type that stands in for `ty` where rows of `n` elements are no whole blocks of it: of about its size, in blocks
/// of 32, and 16-bit floats where even those do not fit.
pub(crate) fn fallback(ty: QuantType, n: u64) -> QuantType {
    let fits = |ty: QuantType| n.is_multiple_of(ty.block_elems() as u64);
    if fits(ty) {
        return ty;
    }
    let smaller = match ty {
        Q6_K => Q8_0,
        Q5_K => Q5_1,
        Q4_K => Q5_0,
        TQ1_0 | TQ2_0 => Q4_0,
        _ => IQ4_NL,
    };
    if fits(smaller) { smaller } else { F16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(role: Role, layer: usize) -> Place {
        let (layers, gqa, experts) = (32, 1, 0);
        let (falcon, seventy, ragged, stacked, importance) = (false, false, false, false, false);
        Place { role, layer, layers, gqa, experts, falcon, seventy, ragged, stacked, importance }
    }

    #[test]
    fn names_lead_to_recipes() {
        for &recipe in Recipe::ALL {
            assert_eq!(Recipe::from_name(&recipe.name().to_lowercase()), Some(recipe));
            assert!(
                hanzo_quant::encodable(recipe.base()) && hanzo_quant::encodable(recipe.pure_type()),
                "{recipe:?}"
            );
        }
        assert_eq!(Recipe::from_name("q4_k"), Some(Recipe::Q4_K_M));
        assert_eq!(Recipe::from_name("Q4"), None);
        assert_eq!((Recipe::IQ2_S.base(), Recipe::IQ2_S.pure_type()), (IQ2_XS, IQ2_S));
    }

    #[test]
    fn roles_come_from_names() {
        assert_eq!(Role::of("output.weight"), Role::Output);
        assert_eq!(Role::of("blk.3.attn_output.weight"), Role::AttnOutput);
        assert_eq!(Role::of("blk.11.ffn_down_exps.weight"), Role::FfnDown);
        assert_eq!(Role::of("blk.11.ffn_down.bias"), Role::Other);
        assert_eq!(Role::of("blk.0.attn_v_b.weight"), Role::Other);
    }

    /// The layers of 32 that get Q6_K in llama.cpp's Q4_K_M.
    #[test]
    fn q4_k_m_spends_its_bits_where_it_should() {
        let more = |role| -> Vec<usize> {
            (0..32).filter(|&layer| Recipe::Q4_K_M.choose(place(role, layer)) == Q6_K).collect()
        };
        let expected = [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31];
        assert_eq!(more(Role::FfnDown), expected);
        assert_eq!(more(Role::AttnV), expected);
        assert!(more(Role::AttnQ).is_empty());
        assert_eq!(Recipe::Q4_K_M.choose(place(Role::Output, 0)), Q6_K);
        assert_eq!(Recipe::Q4_K_M.choose(place(Role::TokenEmbedding, 0)), Q4_K);
        assert_eq!(Recipe::Q8_0.choose(place(Role::Output, 0)), Q8_0);
    }

    /// Beside the rules of layers: outputs whose rows fit no block, fused values, the models of 80 layers.
    #[test]
    fn exceptions_of_exceptions() {
        let ragged = Place { ragged: true, ..place(Role::Output, 0) };
        assert_eq!(Recipe::IQ2_XS.choose(ragged), Q8_0);
        assert_eq!(Recipe::IQ2_XS.choose(place(Role::Output, 0)), Q5_K);
        assert_eq!(Recipe::Q4_K_M.choose(place(Role::of("blk.0.attn_qkv.weight"), 0)), Q6_K);
        assert_eq!(Recipe::Q4_K_M.choose(place(Role::of("blk.4.attn_qkv.weight"), 4)), Q4_K);
        let large = Place { seventy: true, layers: 80, gqa: 8, ..place(Role::AttnV, 40) };
        assert_eq!(Recipe::Q4_K_S.choose(large), Q5_K);
        assert_eq!(Recipe::Q2_K.choose(large), Q5_K);
        assert_eq!(Recipe::Q6_K.choose(large), Q6_K);
    }

    #[test]
    fn ragged_rows_fall_back() {
        assert_eq!(fallback(Q4_K, 4096), Q4_K);
        assert_eq!(fallback(Q4_K, 896), Q5_0);
        assert_eq!(fallback(Q6_K, 896), Q8_0);
        assert_eq!(fallback(IQ2_XXS, 96), IQ4_NL);
        assert_eq!(fallback(Q8_0, 40), F16);
        assert_eq!(fallback(F32, 7), F32);
    }
}
