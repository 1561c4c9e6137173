//! Rows of a table by the step's token ids, decoded to f32: the values of `to_float`, bit for bit.

use hanzo_quant::canonical::GROUP;

use super::layout::Layout;
use super::weights::Weights;
use crate::kernel::{Builder, Kernel, KernelError};

/// Groups that a workgroup decodes, one an invocation.
pub const GROUPS: u32 = 64;

/// `y[t, i] = value of w[ids[t], i]`. Buffers: the planes of `w`, `ids` `[T]`, `y` `[T, n_in]`. Parameters: `n_groups` of a row, `n_vocab` (ids are
/// below it). Grid: `[n_groups / GROUPS, T]`, rounded up. Tables of floats are read by [`super::copy`].
///
/// # Errors
/// Never for widths that exist.
pub fn embed(layout: Layout, subgroup: u32) -> Result<Kernel, KernelError> {
    let format = layout.format.name;
    let doc = format!(
        "{format} weights. A group an invocation, written through workgroup memory in order. Order: none. Bound: bytes of y."
    );
    let k = Builder::new(&format!("embed_{}", format.to_lowercase()), &doc, GROUPS, subgroup);
    let n_groups = k.param::<u32>("n_groups");
    let weights = Weights::declare(&k, "w", layout, n_groups);
    let (ids, y) = (k.input::<u32>("ids"), k.output::<f32>("y"));
    let n_vocab = k.param::<u32>("n_vocab");
    // A stray id must not lead out of the table.
    let row = ids.at(k.workgroup_id(1)).min(n_vocab - 1);
    let first = k.workgroup_id(0) * GROUPS;
    let size = GROUP as u32;
    // One element more a row: neighbours write to different banks.
    let tile = k.shared::<f32>("tile", GROUPS * (size + 1));
    let g = first + k.local_id();
    k.when(g.lt(n_groups), || {
        let (codes, subs) = (weights.codes(row, g), weights.sub_blocks(row, g));
        let per = size / subs.len() as u32;
        let to = k.local_id() * (size + 1);
        for e in 0..size {
            let (Some(&word), Some(sub)) = (codes.words.get(e as usize / 4), subs.get((e / per) as usize))
            else {
                continue;
            };
            let code = ((word << (24 - 8 * (e % 4))).i32() >> 24) - i32::from(codes.offset);
            let product = sub.scale * code.f32();
            tile.set(to + e, sub.min.map_or(product, |min| product - min));
        }
    });
    k.barrier();
    let n = (n_groups - first).min(GROUPS) * size;
    let out = (k.workgroup_id(1) * n_groups + first) * size;
    k.each(n, |i| y.set(out + i, tile.at((i / size) * (size + 1) + i % size)));
    k.finish()
}
