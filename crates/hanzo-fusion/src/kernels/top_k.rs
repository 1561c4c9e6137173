//! The greatest logits of a row, for samplers that look at so many only: a row of a vocabulary comes down to a few pairs before it leaves the device.

use crate::kernel::{Array, Builder, Combine, IntoVal, Kernel, KernelError, Reg, Val};

/// Invocations of a workgroup, and buckets of a pass.
const WORKGROUP: u32 = 256;
/// Columns are below this.
pub const MAX_COLUMNS: u32 = 1 << 24;

/// `ids[r, j]` and `values[r, j]`: the `k` greatest `x[r, i]`, greatest first and the lower column first among equals; NaN counts as −∞.
///
/// Buffers: `x` `[R, n]`, `ids`, `values` `[R, k]`. Parameter: `n`, at least `k` and below [`MAX_COLUMNS`]. Grid: the rows.
///
/// # Errors
/// More than workgroup memory holds: `k` beyond some 3000.
pub fn top_k(k_best: u32, subgroup: u32) -> Result<Kernel, KernelError> {
    let doc = "One workgroup a row. Radix selection of the last that is taken, eight bits of value and then of column a pass; what is taken is put \
               in order by rank. Order: none (counts of integers). Bound: seven readings of x, all but the first from cache.";
    let k = Builder::new("top_k", doc, WORKGROUP, subgroup);
    let (x, ids, values) = (k.input::<f32>("x"), k.output::<u32>("ids"), k.output::<f32>("values"));
    let n = k.param::<u32>("n");
    let row = k.workgroup_id(0) * n;
    let counts = k.shared::<u32>("counts", WORKGROUP);
    let (keys, columns) = (k.shared::<u32>("keys", k_best), k.shared::<u32>("columns", k_best));
    let taken = k.shared::<u32>("taken", 1);
    let key = |i| order(x.at(row + i));
    // Lower columns are the greater.
    let last = (MAX_COLUMNS - 1).val(&k);
    let place = |i| last - i;

    // The key and the place of the last that is taken, bits found so far; and which of those that agree with them it is.
    let (last_key, last_place, left) = (k.reg::<u32>(0), k.reg::<u32>(0), k.reg::<u32>(k_best));
    for shift in [24, 16, 8, 0] {
        let known = last_key.get();
        pass(&k, n, counts, left, last_key, shift, |i| {
            let key = key(i);
            (agrees(&k, key, known, shift), key)
        });
    }
    for shift in [16, 8, 0] {
        let (all, known) = (last_key.get(), last_place.get());
        pass(&k, n, counts, left, last_place, shift, |i| {
            let place = place(i);
            (key(i).eq(all) & agrees(&k, place, known, shift), place)
        });
    }
    k.when(k.local_id().eq(0), || taken.set(0, 0));
    k.barrier();
    let (last_key, last_place) = (last_key.get(), last_place.get());
    k.each(n, |i| {
        let key = key(i);
        k.when(key.gt(last_key) | (key.eq(last_key) & place(i).ge(last_place)), || {
            let at = taken.atomic(Combine::Add, 0, 1);
            keys.set(at, key);
            columns.set(at, i);
        });
    });
    k.barrier();
    // Where they stand depends on who came first; their ranks do not. Their number is `k`, but read: a compiler that knows it unrolls the walk
    // over them whole and keeps every comparison as a mask of the subgroup's lanes, for which there are too few scalar registers.
    let count = taken.at(0);
    k.each(count, |i| {
        let (key, column, rank) = (keys.at(i), columns.at(i), k.reg::<u32>(0));
        k.for_range(0, count, |j| {
            let before = keys.at(j).gt(key) | (keys.at(j).eq(key) & columns.at(j).lt(column));
            rank.set(rank.get() + before.select(1u32, 0));
        });
        let to = k.workgroup_id(0) * k_best + rank.get();
        ids.set(to, column);
        values.set(to, x.at(row + column));
    });
    k.finish()
}

/// Numbers in the order of floats; both zeros are one, NaN is −∞.
fn order(v: Val<'_, f32>) -> Val<'_, u32> {
    // By the bits: a compiler may take `v + 0.0` for `v`.
    let bits = v.eq(v).select(v, f32::NEG_INFINITY).bits();
    let bits = (bits << 1).eq(0).select(0u32, bits);
    bits.lt(1 << 31).select(bits | (1 << 31), !bits)
}

/// Whether `a` has the bits above `shift + 8` that are known.
fn agrees<'k>(k: &'k Builder, a: Val<'k, u32>, known: Val<'k, u32>, shift: u32) -> Val<'k, bool> {
    if shift == 24 { true.val(k) } else { (a >> (shift + 8)).eq(known >> (shift + 8)) }
}

/// Finds eight more bits of the `left`-th greatest number among those that take part: counts them by those bits, and goes down from the greatest bucket.
fn pass<'k>(
    k: &'k Builder,
    n: Val<'k, u32>,
    counts: Array<'k, u32>,
    left: Reg<'k, u32>,
    found: Reg<'k, u32>,
    shift: u32,
    number: impl FnOnce(Val<'k, u32>) -> (Val<'k, bool>, Val<'k, u32>),
) {
    counts.set(k.local_id(), 0);
    k.barrier();
    k.each(n, |i| {
        let (takes_part, number) = number(i);
        k.when(takes_part, || {
            counts.atomic(Combine::Add, (number >> shift) & (WORKGROUP - 1), 1);
        });
    });
    k.barrier();
    let done = k.reg::<bool>(false);
    k.for_range(0, WORKGROUP, |b| {
        let bucket = (WORKGROUP - 1).val(k) - b;
        let count = counts.at(bucket);
        let here = !done.get() & left.get().le(count);
        found.set(here.select(found.get() | (bucket << shift), found.get()));
        let passed = done.get() | here;
        left.set(passed.select(left.get(), left.get() - count));
        done.set(passed);
    });
    k.barrier();
}
