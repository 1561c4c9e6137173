//! The portable path of both cores: one tile of 16 outputs at a time, straight from the definition of the layout.
#![allow(unsafe_code)]

use super::IntRows;
use crate::activations::GROUP_FLOATS;
use crate::packed::layout::{GROUP_ELEMS, LANES, Layout, QUAD_BYTES, QUADS, UNIT};
use crate::packed::unpack::{self, Scales};
use crate::packed::{FloatKind, STRIP};

/// Outputs `at..at + 16` of every row, for a block format.
pub(super) fn int_tile(
    layout: &Layout,
    tile: &[u8],
    k: usize,
    x: &IntRows<'_>,
    at: usize,
    y: &mut [[f32; STRIP]],
) {
    for y in y.iter_mut().take(x.rows.len()) {
        y[at..at + LANES].fill(0.0);
    }
    let whole = layout.group(GROUP_ELEMS).bytes;
    let mut scales = Scales::default();
    let mut codes = [[0; QUAD_BYTES]; QUADS];
    for (g, group) in tile.chunks(whole).enumerate() {
        let elems = GROUP_ELEMS.min(k - g * GROUP_ELEMS);
        unpack::scales(layout, group, elems, &mut scales);
        for u in 0..elems / UNIT {
            unpack::unit(layout, group, elems, u, &mut codes);
            let first = g * GROUP_ELEMS + u * UNIT;
            for (m, (&record, y)) in x.rows.iter().zip(y.iter_mut()).enumerate() {
                // SAFETY: a record has `k` codes, and the floats of `k / 32` groups at `groups`.
                let (a, floats) = unsafe {
                    let floats = record.add(x.groups).cast::<[f32; GROUP_FLOATS]>().add(first / UNIT);
                    (&*record.add(first).cast::<[i8; UNIT]>(), &*floats)
                };
                let per_unit = UNIT / layout.sub;
                let init = &x.init[m * x.init_stride + first / layout.sub..][..per_unit];
                for (lane, acc) in y[at..at + LANES].iter_mut().enumerate() {
                    let mut p = 0.0f32;
                    for (s, &init) in init.iter().enumerate() {
                        let mut idot = init;
                        for q in s * layout.sub / 4..(s + 1) * layout.sub / 4 {
                            for e in 0..4 {
                                idot += i32::from(codes[q][4 * lane + e]) * i32::from(a[4 * q + e]);
                            }
                        }
                        let scale = scales.scale[u * per_unit + s][lane];
                        p = if s == 0 { scale * idot as f32 } else { scale.mul_add(idot as f32, p) };
                    }
                    if layout.asymmetric {
                        for s in 0..per_unit {
                            let sum = if per_unit == 1 { floats[1] } else { floats[2 + s] };
                            p = (-scales.min[u * per_unit + s][lane]).mul_add(sum, p);
                        }
                    }
                    *acc = floats[0].mul_add(p, *acc);
                }
            }
        }
    }
}

/// Outputs `at..at + 16` of every row, for a float format.
///
/// # Safety
/// Every row must have `k` floats.
pub(super) unsafe fn float_tile(
    kind: FloatKind,
    tile: &[u8],
    k: usize,
    rows: &[*const u8],
    at: usize,
    y: &mut [[f32; STRIP]],
) {
    for (&row, y) in rows.iter().zip(y.iter_mut()) {
        // SAFETY: the caller's promise.
        let x = unsafe { std::slice::from_raw_parts(row.cast::<f32>(), k) };
        let acc: &mut [f32] = &mut y[at..at + LANES];
        acc.fill(0.0);
        for (x, w) in x.iter().zip(tile.chunks_exact(LANES * kind.bytes())) {
            for (lane, acc) in acc.iter_mut().enumerate() {
                *acc = unpack::float(kind, w, lane).mul_add(*x, *acc);
            }
        }
    }
}
