//! What mixtures of experts need beside their contractions.

use super::super::matmul::gemm::Tile;
use super::super::moe::{self, Route};
use super::super::variants::Variants;
use super::{EXPERTS, Instance, Launch, PER_TOKEN, PROMPT};

/// The tile of the grouped GEMM for a prompt, and how many of them there are at most.
pub(super) fn prompt_tiles() -> (Tile, u32) {
    let slots = (PROMPT * PER_TOKEN) as usize;
    let tile = Tile::for_fill(slots / EXPERTS as usize);
    (tile, moe::max_tiles(slots, EXPERTS as usize, tile.height() as usize) as u32)
}

pub(super) fn route(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let plan = Route { n_experts: EXPERTS, top_k: PER_TOKEN, normalize: Some(0.0) };
    let launch = Launch {
        shape: format!("{PROMPT} tokens, {PER_TOKEN} of {EXPERTS} experts each"),
        grid: [PROMPT, 1, 1],
        params: vec![],
        reads: vec![],
    };
    vec![Instance::new("moe_route", plan.kernel(subgroup), launch)]
}

pub(super) fn group_slots(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let (tile, n_tiles) = prompt_tiles();
    let launch = Launch {
        shape: format!("{PROMPT} tokens, {PER_TOKEN} of {EXPERTS} experts each"),
        grid: [1; 3],
        params: vec![("n_slots", PROMPT * PER_TOKEN), ("n_tiles", n_tiles)],
        reads: vec![],
    };
    vec![Instance::new("moe_group_slots", moe::group_slots(EXPERTS, tile.height(), subgroup), launch)]
}
