//! The plan: what happens to each tensor, decided before a byte is written.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use hanzo_gguf::{GgufFile, TensorInfo, TensorType, Value};
use hanzo_quant::{QuantType, encodable};
use regex_lite::Regex;

use super::importance::Importance;
use super::recipe::{Place, Recipe, Role, fallback};
use crate::failure::usage;

/// What the user asked for.
#[derive(Debug)]
pub(crate) struct Wishes {
    pub(crate) recipe: Recipe,
    /// No exceptions: one type for all.
    pub(crate) pure_type: bool,
    pub(crate) output: Option<QuantType>,
    pub(crate) token_embedding: Option<QuantType>,
    /// Types for tensors whose names match; the first match counts.
    pub(crate) by_name: Vec<(Regex, QuantType)>,
    pub(crate) allow_requantize: bool,
}

/// What happens to one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Its bytes stay.
    Copy,
    /// Its values are encoded anew.
    Encode {
        /// From which type.
        from: QuantType,
        /// To which.
        to: QuantType,
    },
}

/// What happens to all tensors, in file order, and what the user should know about it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) notes: Vec<String>,
}

/// Whether a recipe applies to a tensor: matrices that are multiplied with. Vectors, norms, convolution kernels, routers and
/// positional tables are small and delicate, and stay what they are.
fn is_weight_matrix(tensor: &TensorInfo) -> bool {
    const STAY: &[&str] = &[
        "_norm.weight",
        "ffn_gate_inp",
        "position_embd",
        "token_types",
        "attn_rel_b",
        "ssm_conv1d",
        "shortconv.conv",
        "time_mix_first",
        "time_mix_w0",
        "time_mix_w1",
        "time_mix_w2",
        "time_mix_v0",
        "time_mix_v1",
        "time_mix_v2",
        "time_mix_a0",
        "time_mix_a1",
        "time_mix_a2",
        "time_mix_g1",
        "time_mix_g2",
        "time_mix_decay_w1",
        "time_mix_decay_w2",
        "time_mix_lerp_fused",
        "altup",
        "laurel",
        "per_layer_model_proj",
    ];
    let name = tensor.name();
    let matrix = tensor.dims().iter().filter(|&&dim| dim > 1).count() >= 2;
    matrix && name.ends_with("weight") && !STAY.iter().any(|part| name.contains(part))
}

/// Decides.
///
/// # Errors
/// A tensor that is quantized already where that is not allowed, or metadata that make no sense.
pub(crate) fn plan(file: &GgufFile, wishes: &Wishes, importance: Option<&Importance>) -> Result<Plan> {
    let model = Model::of(file, importance.is_some())?;
    let mut plan = Plan { actions: Vec::with_capacity(file.tensors().len()), notes: Vec::new() };
    let (mut fallen, mut unknown) = (Fallen::default(), 0usize);
    let mut quantized: Vec<&TensorInfo> = Vec::new();
    check_patterns(file, wishes)?;
    for tensor in file.tensors() {
        let wanted = if is_weight_matrix(tensor) { Some(model.wanted(tensor, wishes)) } else { None };
        let Some(wanted) = wanted else {
            plan.actions.push(Action::Copy);
            continue;
        };
        let to = fallback(wanted, tensor.row_elems());
        if to != wanted {
            fallen.add(wanted, to, tensor);
        }
        let from = QuantType::from_id(tensor.ty().id()).with_context(|| {
            format!("tensor `{}` is {}, which has no values to encode", tensor.name(), tensor.ty())
        })?;
        if from == to {
            plan.actions.push(Action::Copy);
            continue;
        }
        if !from.is_float() {
            quantized.push(tensor);
        }
        if !to.is_float() && importance.is_some_and(|importance| !importance.has(tensor)) {
            unknown += 1;
        }
        plan.actions.push(Action::Encode { from, to });
    }
    if let Some(first) = quantized.first() {
        let (n, name, ty) = (quantized.len(), first.name(), first.ty());
        if !wishes.allow_requantize {
            bail!(
                "{n} tensors are quantized already (`{name}` is {ty}), and quantizing twice loses more than once. Start \
                 from an F32, F16 or BF16 file, or insist with --allow-requantize"
            );
        }
        plan.notes.push(format!("{n} tensors are quantized a second time (`{name}` was {ty})"));
    }
    plan.notes.extend(fallen.notes());
    if unknown > 0 {
        plan.notes.push(format!(
            "the importance matrix does not know {unknown} tensors; all their columns count the same"
        ));
    }
    Ok(plan)
}

/// A pattern that no tensor follows is a slip of the pen, and the file would not be what was asked for.
fn check_patterns(file: &GgufFile, wishes: &Wishes) -> Result<()> {
    for (pattern, ty) in &wishes.by_name {
        let matrices = || file.tensors().iter().filter(|tensor| is_weight_matrix(tensor));
        if matrices().any(|tensor| pattern.is_match(tensor.name())) {
            continue;
        }
        let wish = format!("--tensor-type `{pattern}={}`", ty.name());
        if file.tensors().iter().any(|tensor| pattern.is_match(tensor.name())) {
            return Err(usage(format!(
                "{wish} names only tensors that stay as they are (vectors, norms and the like)"
            )));
        }
        let example = matrices().next().map_or("none", TensorInfo::name);
        return Err(usage(format!("{wish} matches no tensor; names here are as `{example}`")));
    }
    Ok(())
}

/// What recipes need to know of the model.
struct Model {
    gqa: u64,
    experts: u64,
    falcon: bool,
    seventy: bool,
    importance: bool,
    /// Whether there is an output matrix; else the token embedding serves as one.
    has_output: bool,
    /// The layers that have each role, ascending.
    layers: HashMap<Role, Vec<u64>>,
}

impl Model {
    fn of(file: &GgufFile, importance: bool) -> Result<Self> {
        let metadata = file.metadata();
        let arch = metadata.get_str("general.architecture")?.unwrap_or("");
        let (heads, kv_heads) = (
            most(file, &format!("{arch}.attention.head_count"))?,
            most(file, &format!("{arch}.attention.head_count_kv"))?,
        );
        let blocks = metadata.get_u64(&format!("{arch}.block_count"))?;
        let mut layers: HashMap<Role, Vec<u64>> = HashMap::new();
        for tensor in file.tensors() {
            if let Some(layer) = layer_of(tensor.name()) {
                layers.entry(Role::of(tensor.name())).or_default().push(layer);
            }
        }
        for layers in layers.values_mut() {
            layers.sort_unstable();
            layers.dedup();
        }
        Ok(Model {
            gqa: heads.and_then(|heads| heads.checked_div(kv_heads?)).unwrap_or(1),
            experts: metadata.get_u64(&format!("{arch}.expert_count"))?.unwrap_or(0),
            falcon: arch == "falcon",
            seventy: match arch {
                "llama" => blocks == Some(80) && heads != kv_heads,
                "qwen2" | "deci" | "olmo" => blocks == Some(80),
                "jais2" => blocks == Some(68),
                _ => false,
            },
            importance,
            has_output: file.tensor("output.weight").is_some(),
            layers,
        })
    }

    /// The type that the user's wishes give a matrix, whatever its rows.
    fn wanted(&self, tensor: &TensorInfo, wishes: &Wishes) -> QuantType {
        let name = tensor.name();
        if let Some((_, ty)) = wishes.by_name.iter().find(|(pattern, _)| pattern.is_match(name)) {
            return *ty;
        }
        let mut role = Role::of(name);
        if role == Role::TokenEmbedding
            && let Some(ty) = wishes.token_embedding
        {
            return ty;
        }
        if name == "token_embd.weight" && !self.has_output {
            role = Role::Output;
        }
        if role == Role::Output
            && let Some(ty) = wishes.output
        {
            return ty;
        }
        if wishes.pure_type {
            return wishes.recipe.pure_type();
        }
        let layers = self.layers.get(&role).map(Vec::as_slice).unwrap_or_default();
        let layer = layer_of(name).and_then(|layer| layers.binary_search(&layer).ok()).unwrap_or(0);
        wishes.recipe.choose(Place {
            role,
            layer,
            layers: layers.len(),
            gqa: self.gqa,
            experts: self.experts,
            falcon: self.falcon,
            seventy: self.seventy,
            ragged: !tensor.row_elems().is_multiple_of(wishes.recipe.base().block_elems() as u64),
            stacked: tensor.dims().iter().skip(2).any(|&dim| dim > 1),
            importance: self.importance,
        })
    }
}

/// The number of a key, or the largest of its numbers where every layer has its own.
fn most(file: &GgufFile, key: &str) -> Result<Option<u64>> {
    Ok(match file.metadata().get(key) {
        Some(Value::Array(array)) => array.to_u64_vec()?.into_iter().max(),
        _ => file.metadata().get_u64(key)?,
    })
}

/// `N` of `blk.N.…`.
fn layer_of(name: &str) -> Option<u64> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// Tensors whose rows did not fit their type, by what became of them.
#[derive(Default)]
struct Fallen(Vec<(QuantType, QuantType, usize, String)>);

impl Fallen {
    fn add(&mut self, wanted: QuantType, got: QuantType, tensor: &TensorInfo) {
        match self.0.iter_mut().find(|(w, g, ..)| (*w, *g) == (wanted, got)) {
            Some((_, _, n, _)) => *n += 1,
            None => self.0.push((
                wanted,
                got,
                1,
                format!("`{}` has rows of {}", tensor.name(), tensor.row_elems()),
            )),
        }
    }

    fn notes(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(wanted, got, n, example)| {
            let block = wanted.block_elems();
            format!(
                "{n} tensors become {got} instead of {wanted}, whose blocks have {block} elements ({example})"
            )
        })
    }
}

/// The type of this name, if there is an encoder for it.
pub(crate) fn encodable_type(name: &str) -> Result<QuantType> {
    QuantType::from_name(name).filter(|&ty| encodable(ty)).ok_or_else(|| {
        let names: Vec<_> = QuantType::ALL.iter().filter(|&&ty| encodable(ty)).map(|ty| ty.name()).collect();
        usage(format!("unknown tensor type `{name}`; there are {}", names.join(" ")))
    })
}

/// The type that the plan gives a tensor in the new file.
pub(crate) fn new_type(tensor: &TensorInfo, action: Action) -> TensorType {
    match action {
        Action::Copy => tensor.ty(),
        Action::Encode { to, .. } => TensorType::from_id(to.id()).unwrap_or(tensor.ty()),
    }
}
