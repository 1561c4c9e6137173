//! What mixtures of experts need beside their contractions: which experts a token takes, and which slots an expert gets.

use super::math;
use super::reduce::RowSum;
use crate::kernel::{Builder, IntoVal, Kernel, KernelError};

/// Invocations of a workgroup.
const WORKGROUP: u32 = 256;

/// A router.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Columns of the logits.
    pub n_experts: u32,
    /// Experts of a token, 1 to 64.
    pub top_k: u32,
    /// Whether the weights are divided by their sum, or by this if it is greater.
    pub normalize: Option<f32>,
}

impl Route {
    /// `ids[t, j]` and `weights[t, j]`: softmax of the logits, the `top_k` greatest, greatest first and the lower column first among equals,
    /// and their shares. NaN counts as less than everything. Buffers: `logits`, `ids`, `weights`. Grid: the tokens.
    ///
    /// # Errors
    /// More experts than workgroup memory holds.
    pub fn kernel(&self, subgroup: u32) -> Result<Kernel, KernelError> {
        let Self { n_experts, top_k, normalize } = *self;
        let doc = "One workgroup a token; an expert's rank is the number of experts before it. Order: the CPU's, 64 chains and a fixed tree. \
                   Bound: latency.";
        let k = Builder::new("moe_route", doc, WORKGROUP, subgroup);
        let logits = k.input::<f32>("logits");
        let (ids, weights) = (k.output::<u32>("ids"), k.output::<f32>("weights"));
        let (p, top) = (k.shared::<f32>("p", n_experts), k.shared::<f32>("top", top_k));
        let sums = RowSum::declare(&k);
        let (row, out) = (k.workgroup_id(0) * n_experts, k.workgroup_id(0) * top_k);

        let max = sums.max(n_experts, |i| logits.at(row + i));
        k.each(n_experts, |i| p.set(i, math::exp(&k, logits.at(row + i) - max)));
        k.barrier();
        let sum = sums.sum(n_experts, |i| p.at(i));
        k.each(n_experts, |i| p.set(i, p.at(i) / sum));
        k.barrier();

        let key = |i| {
            let v = p.at(i);
            v.eq(v).select(v, f32::NEG_INFINITY)
        };
        k.each(n_experts, |i| {
            let (mine, rank) = (key(i), k.reg::<u32>(0));
            k.for_range(0, n_experts, |j| {
                let other = key(j);
                let before = mine.lt(other) | (mine.eq(other) & j.lt(i));
                rank.set(rank.get() + before.select(1u32, 0));
            });
            k.when(rank.get().lt(top_k), || {
                ids.set(out + rank.get(), i);
                top.set(rank.get(), p.at(i));
            });
        });
        k.barrier();
        let divisor = match normalize {
            Some(floor) => {
                let sum = sums.sum(top_k, |j| top.at(j));
                sum.gt(floor).select(sum, floor)
            }
            None => 1.0.val(&k),
        };
        k.each(top_k, |j| weights.set(out + j, top.at(j) / divisor));
        k.finish()
    }
}

/// Tiles that `slots` slots of `n_experts` experts need at most, `height` slots a tile.
pub fn max_tiles(slots: usize, n_experts: usize, height: usize) -> usize {
    slots / height.max(1) + slots.min(n_experts)
}

/// Slots in the order of their experts, and the tiles of at most `height` slots of one expert that a grouped GEMM walks.
///
/// Buffers: `ids` `[n_slots]`; `order` `[n_slots]`, ascending within an expert; `tile_expert`, `tile_first`, `tile_end` `[n_tiles]`, where a tile
/// that is not needed has expert `n_experts`. Parameters: `n_slots`, `n_tiles` ([`max_tiles`]). Grid: 1.
///
/// # Errors
/// More experts than workgroup memory holds.
pub fn group_slots(n_experts: u32, height: u32, subgroup: u32) -> Result<Kernel, KernelError> {
    let doc = "One workgroup; an invocation an expert reads all ids. Order: ascending slots. Bound: latency of that walk.";
    let k = Builder::new("moe_group_slots", doc, WORKGROUP, subgroup);
    let (ids, order) = (k.input::<u32>("ids"), k.output::<u32>("order"));
    let [tile_expert, tile_first, tile_end] =
        ["tile_expert", "tile_first", "tile_end"].map(|name| k.output::<u32>(name));
    let (n_slots, n_tiles) = (k.param::<u32>("n_slots"), k.param::<u32>("n_tiles"));
    let counts = k.shared::<u32>("counts", n_experts);
    k.each(n_experts, |e| {
        let count = k.reg::<u32>(0);
        k.for_range(0, n_slots, |s| count.set(count.get() + ids.at(s).eq(e).select(1u32, 0)));
        counts.set(e, count.get());
    });
    k.barrier();
    let tiles_of = |count| (count + (height - 1)) / height;
    // Slots and tiles of the experts below `e`.
    let before = |e| {
        let (slots, tiles) = (k.reg::<u32>(0), k.reg::<u32>(0));
        k.for_range(0, e, |e| {
            let count = counts.at(e);
            slots.set(slots.get() + count);
            tiles.set(tiles.get() + tiles_of(count));
        });
        (slots.get(), tiles.get())
    };
    k.each(n_experts, |e| {
        let (first, first_tile) = before(e);
        let (count, at) = (counts.at(e), k.reg::<u32>(first));
        k.for_range(0, n_slots, |s| {
            k.when(ids.at(s).eq(e), || {
                order.set(at.get(), s);
                at.set(at.get() + 1);
            });
        });
        k.for_range(0, tiles_of(count), |t| {
            let (tile, start) = (first_tile + t, first + t * height);
            tile_expert.set(tile, e);
            tile_first.set(tile, start);
            tile_end.set(tile, (first + count).min(start + height));
        });
    });
    let (_, used) = before(n_experts.val(&k));
    k.for_step(used + k.local_id(), n_tiles, k.workgroup(), |tile| {
        tile_expert.set(tile, n_experts);
        tile_first.set(tile, 0);
        tile_end.set(tile, 0);
    });
    k.finish()
}
