//! Paged attention: decode, split and merged, and prompts.

use super::super::attention::{Attention, CHUNK, combine as merge};
use super::super::kv::KvShape;
use super::super::variants::{ATTENTION, Variants};
use super::{HEAD_DIM, HEADS, Instance, KV_HEADS, Launch, PROMPT};
use crate::step::{BLOCK_TOKENS, KvType};

/// Keys of the decoded token's sequence.
const KEYS: u32 = 4096;

const TYPES: [(&str, KvType); 3] = [("f16", KvType::F16), ("int8", KvType::Int8), ("f32", KvType::F32)];

fn plan(kv_type: KvType, decode: bool) -> Attention {
    let kv = KvShape { kv_type, n_kv_heads: KV_HEADS, k_dim: HEAD_DIM, v_dim: HEAD_DIM };
    Attention::tiled(kv, HEADS, decode)
}

/// What every launch is given: the block table's width, no window, the scale.
fn params(n_keys: u32) -> Vec<(&'static str, u32)> {
    vec![
        ("max_blocks", n_keys.div_ceil(BLOCK_TOKENS as u32)),
        ("window", u32::MAX),
        ("scale", (1.0 / (HEAD_DIM as f32).sqrt()).to_bits()),
    ]
}

/// One tile of one token, or of as many as the plan takes. Where blocks lie is not said: what is asked for counts, not one block for all.
fn reads(position: u32, tokens: u32) -> Vec<(&'static str, u32)> {
    vec![("positions", position), ("sequences", 0), ("tile_first", 0), ("tile_end", tokens)]
}

pub(super) fn decode(subgroup: u32, variants: &Variants) -> Vec<Instance> {
    let one = |(kind, kv_type)| {
        let split = !variants.unsplit_attention;
        let plan = Attention { split, ..plan(kv_type, true) };
        let usual = format!("attention_decode_{kind}");
        let chunks = if split { KEYS.div_ceil(CHUNK) } else { 1 };
        let mut launch = Launch {
            shape: format!("1 token, {HEADS} heads of {HEAD_DIM}, {KEYS} keys"),
            grid: [plan.n_heads / plan.heads, 1, chunks],
            params: params(KEYS),
            reads: reads(KEYS - 1, 1),
        };
        if split {
            launch.params.push(("n_rows", 1));
            return Instance::new(&usual, plan.kernel(subgroup), launch);
        }
        let name = format!("attention_decode_whole_{kind}");
        Instance::new(&name, plan.kernel(subgroup), launch).standing_in(usual, ATTENTION)
    };
    TYPES.map(one).into()
}

pub(super) fn combine(subgroup: u32, variants: &Variants) -> Vec<Instance> {
    if variants.unsplit_attention {
        return Vec::new();
    }
    let launch = Launch {
        shape: format!("1 token, {HEADS} heads of {HEAD_DIM}, {KEYS} keys"),
        grid: [HEADS, 1, 1],
        params: vec![("window", u32::MAX)],
        reads: vec![("positions", KEYS - 1)],
    };
    vec![Instance::new("attention_combine", merge(HEAD_DIM, false, subgroup), launch)]
}

pub(super) fn prefill(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let launch = |plan: &Attention| Launch {
        shape: format!("{PROMPT} tokens, {HEADS} heads of {HEAD_DIM}, keys of the middle one"),
        grid: [plan.n_heads / plan.heads, PROMPT.div_ceil(plan.tokens), 1],
        params: params(PROMPT),
        reads: reads(PROMPT / 2, plan.tokens),
    };
    let one = |(kind, kv_type)| {
        let plan = plan(kv_type, false);
        Instance::new(&format!("attention_prefill_{kind}"), plan.kernel(subgroup), launch(&plan))
    };
    let mut all: Vec<_> = TYPES.map(one).into();
    let plan = Attention { softcap: true, sinks: true, ..plan(KvType::F16, false) };
    let mut launch = launch(&plan);
    launch.params.push(("cap", 50f32.to_bits()));
    all.push(Instance::new("attention_prefill_f16_cap_sinks", plan.kernel(subgroup), launch));
    all
}
