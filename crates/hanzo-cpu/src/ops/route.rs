//! Choosing columns: top-k and gather.

/// Columns of the `ids.len()` greatest elements of a row, greatest first, the lower column first among equals. NaN counts
/// as less than everything, so the columns are valid and distinct whatever the row holds. `ids.len()` must not exceed the row.
pub(crate) fn top_k(x: &[f32], ids: &mut [u32]) {
    let key = |x: f32| if x.is_nan() { f32::NEG_INFINITY } else { x };
    let mut n = 0;
    for (col, &value) in x.iter().enumerate() {
        // Insertion from the end: columns come in ascending order, so an equal element stays behind.
        let mut at = n;
        while at > 0 && key(value) > ids.get(at - 1).map_or(f32::NEG_INFINITY, |&i| key(x[i as usize])) {
            at -= 1;
        }
        if at < ids.len() {
            n = (n + 1).min(ids.len());
            ids.copy_within(at..n - 1, at + 1);
            ids[at] = col as u32;
        }
    }
}

/// `out[j] = x[ids[j]]`.
pub(crate) fn gather(x: &[f32], ids: &[u32], out: &mut [f32]) {
    for (out, &id) in out.iter_mut().zip(ids) {
        *out = x.get(id as usize).copied().unwrap_or(f32::NAN);
    }
}
