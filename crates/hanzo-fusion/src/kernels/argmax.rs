//! The greatest logit of a row: greedy decoding without a sampler.

use crate::kernel::{Builder, Kernel, KernelError};

/// Invocations of a workgroup.
const WORKGROUP: u32 = 256;

/// `ids[r]` is the column of the greatest `x[r, i]`, `i` below `n`: the lowest among equals; NaN counts as less than everything. Buffers: `x`,
/// `ids`. Parameter: `n`, at least 1. Grid: the rows.
///
/// # Errors
/// Never for widths that exist.
pub fn argmax(subgroup: u32) -> Result<Kernel, KernelError> {
    let doc = "One workgroup a row. Order: none (a maximum of pairs). Bound: bytes of x.";
    let k = Builder::new("argmax", doc, WORKGROUP, subgroup);
    let (x, ids) = (k.input::<f32>("x"), k.output::<u32>("ids"));
    let n = k.param::<u32>("n");
    let (value, column) = (k.reg::<f32>(f32::NEG_INFINITY), k.reg::<u32>(u32::MAX));
    let (values, columns) = (k.shared::<f32>("values", WORKGROUP), k.shared::<u32>("columns", WORKGROUP));
    let row = k.workgroup_id(0) * n;
    let take = |v, i| {
        let better = value.get().lt(v) | (value.get().eq(v) & column.get().gt(i));
        column.set(better.select(i, column.get()));
        value.set(better.select(v, value.get()));
    };
    k.each(n, |i| {
        let v = x.at(row + i);
        take(v.eq(v).select(v, f32::NEG_INFINITY), i);
    });
    let id = k.local_id();
    let mut half = WORKGROUP / 2;
    while half > 0 {
        values.set(id, value.get());
        columns.set(id, column.get());
        k.barrier();
        k.when(id.lt(half), || take(values.at(id + half), columns.at(id + half)));
        k.barrier();
        half /= 2;
    }
    k.when(id.eq(0), || ids.set(k.workgroup_id(0), column.get()));
    k.finish()
}
