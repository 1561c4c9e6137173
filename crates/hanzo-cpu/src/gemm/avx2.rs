//! The many-rows core with AVX2: a register tile of 16 outputs × 4 rows (`avx2_dots`), with AVX-VNNI × 3 rows, twice for a strip.
//!
//! `vpmaddubsw` leaves sums of two products in 16 bits. Where codes are narrow several such sums fit into 16 bits as well (eight for codes
//! of 4 bits, four for 5, two for 6), so that most of a dot is one multiplication and one addition for four products, and the widening to 32 bits comes once a
//! span. All of it is exact. Codes of 8 bits are kept signed, and their sign is moved to the activations, as in the few-rows core; with
//! AVX-VNNI a dot is one `vpdpbusd` for all formats. Bound without VNNI: 2 multiplications a cycle.
// Loops over lanes and rows index: iterator chains are not unrolled in functions of another instruction set.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::arch::x86_64::*;

use crate::activations::GROUP_FLOATS;
use crate::packed::avx2::{scales, unit};
use crate::packed::layout::{GROUP_ELEMS, LANES, Layout, QUAD_BYTES, QUADS, UNIT};
use crate::packed::unpack::Scales;
use crate::packed::{FloatKind, STRIP};

use super::avx2_dots::{Pointers, ROWS, Way};
use super::{Block, PanelShape};

/// Rows of a tile as the core above sees it, without AVX-VNNI and with.
pub(super) const TILE: usize = 2 * ROWS;
pub(super) const TILE_VNNI: usize = 2 * ROWS_VNNI;
/// Rows of a tile of floats: 12 accumulators, the weights' two and a broadcast.
pub(super) const FLOAT_ROWS: usize = 6;
/// Rows of a register tile with AVX-VNNI.
const ROWS_VNNI: usize = 3;

/// How far ahead of a panel's unpacking memory is asked for.
const AHEAD: usize = 2 << 10;

/// The way for codes of this layout: how many products at 127 times the widest code, two each, 16 bits hold.
fn way(layout: &Layout) -> Way {
    let widest =
        layout.table.map_or((1 << layout.bits) - 1, |t| usize::from(t.into_iter().max().unwrap_or(0)));
    match i16::MAX as usize / (2 * 127 * widest.max(1)) {
        0 => Way::Signed,
        1 => Way::Single,
        2..4 => Way::Pairs,
        4..8 => Way::Halves,
        _ => Way::Narrow,
    }
}

/// Unpacks `units` units of k, from element `k0` on (a multiple of a group), of the strip's two tiles into a panel: a unit is
/// `[tile][quad][64 bytes of codes]`, then `[sub-block][32 scales]`, then mins likewise.
///
/// # Safety
/// Needs AVX2 and F16C; the tiles must be of this layout and hold these units, the panel must have room for them.
pub(super) unsafe fn unpack(
    layout: &Layout,
    tiles: [*const u8; 2],
    k: usize,
    (k0, units): (usize, usize),
    panel: *mut u8,
    vnni: bool,
) {
    let signed = !vnni && way(layout) == Way::Signed;
    // SAFETY: passed through.
    unsafe {
        match (layout.bits, layout.table.is_some()) {
            (1, false) => unpack_as::<1, false>(layout, tiles, k, (k0, units), panel, signed),
            (1, true) => unpack_as::<1, true>(layout, tiles, k, (k0, units), panel, signed),
            (2, false) => unpack_as::<2, false>(layout, tiles, k, (k0, units), panel, signed),
            (2, true) => unpack_as::<2, true>(layout, tiles, k, (k0, units), panel, signed),
            (3, false) => unpack_as::<3, false>(layout, tiles, k, (k0, units), panel, signed),
            (3, true) => unpack_as::<3, true>(layout, tiles, k, (k0, units), panel, signed),
            (4, false) => unpack_as::<4, false>(layout, tiles, k, (k0, units), panel, signed),
            (4, true) => unpack_as::<4, true>(layout, tiles, k, (k0, units), panel, signed),
            (5, _) => unpack_as::<5, false>(layout, tiles, k, (k0, units), panel, signed),
            (6, _) => unpack_as::<6, false>(layout, tiles, k, (k0, units), panel, signed),
            (7, _) => unpack_as::<7, false>(layout, tiles, k, (k0, units), panel, signed),
            _ => unpack_as::<8, false>(layout, tiles, k, (k0, units), panel, signed),
        }
    }
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn unpack_as<const BITS: u32, const TABLE: bool>(
    layout: &Layout,
    tiles: [*const u8; 2],
    k: usize,
    (k0, units): (usize, usize),
    panel: *mut u8,
    signed: bool,
) {
    let shape = PanelShape::of(layout);
    let subs = UNIT / layout.sub;
    let full = layout.group(GROUP_ELEMS);
    let end = k0 + units * UNIT;
    let offset = _mm256_set1_epi8(if signed { layout.offset as i8 } else { 0 });
    let mut s = Scales::default();
    // SAFETY: offsets are those of the layouts.
    unsafe {
        let table = match &layout.table {
            Some(t) => _mm256_broadcastsi128_si256(_mm_loadu_si128(t.as_ptr().cast())),
            None => _mm256_setzero_si256(),
        };
        for (t, tile) in tiles.into_iter().enumerate() {
            let mut out = panel;
            for first in (k0..end).step_by(GROUP_ELEMS) {
                let group = tile.add(first / GROUP_ELEMS * full.bytes);
                let elems = GROUP_ELEMS.min(k - first);
                let at = if elems == GROUP_ELEMS { full } else { layout.group(elems) };
                scales(layout, &at, group, elems, &mut s);
                for u in 0..elems / UNIT {
                    let planes = group.add(at.codes + u * 64 * BITS as usize);
                    for line in 0..BITS as usize {
                        _mm_prefetch::<_MM_HINT_T0>(planes.wrapping_add(AHEAD + 64 * line).cast());
                    }
                    for h in 0..2 {
                        let quads = unit::<BITS, TABLE>(planes.add(32 * h), table);
                        for (q, &quad) in quads.iter().enumerate() {
                            let to = out.add((QUADS * t + q) * QUAD_BYTES + 32 * h);
                            _mm256_store_si256(to.cast(), _mm256_sub_epi8(quad, offset));
                        }
                    }
                    let to = out.add(shape.scales).cast::<[[f32; LANES]; 2]>();
                    for j in 0..subs {
                        (*to.add(j))[t] = s.scale[u * subs + j];
                        if layout.asymmetric {
                            (*to.add(subs + j))[t] = s.min[u * subs + j];
                        }
                    }
                    out = out.add(shape.unit);
                }
            }
        }
    }
}

/// Adds `units` (at least 1) units of k, from element `k0` on, to the tile of rows `first..first + cols` of the block.
///
/// # Safety
/// Needs AVX2 and FMA, with `vnni` AVX-VNNI; the panel must hold these units, unpacked with the same `vnni`, the block these rows, `y` `cols` rows of 32
/// accumulators.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn tile(
    layout: &Layout,
    panel: *const u8,
    block: &Block<'_>,
    init: &[i32],
    (first, cols): (usize, usize),
    (k0, units): (usize, usize),
    y: *mut f32,
    vnni: bool,
    next: Option<[*const u8; 2]>,
) {
    let shape = PanelShape::of(layout);
    let init_stride = block.k / layout.sub;
    let (way, rows) = (way(layout), if vnni { ROWS_VNNI } else { ROWS });
    for done in (0..cols).step_by(rows) {
        for t in 0..2 {
            // SAFETY: offsets are those of a panel and of an activation record; the rest is the caller's promise.
            unsafe {
                let record = block.base.add((first + done) * block.stride);
                let p = Pointers {
                    w: panel.add(t * QUADS * QUAD_BYTES),
                    scales: panel.add(shape.scales + t * 4 * LANES),
                    a: record.add(k0),
                    d: record.add(block.groups + 4 * (k0 / UNIT * GROUP_FLOATS)),
                    stride: block.stride,
                    init: init.as_ptr().wrapping_add((first + done) * init_stride + k0 / layout.sub),
                    init_stride: 4 * init_stride,
                    units,
                    y: y.add(STRIP * done + LANES * t),
                    // Without, what is about to be read anyway.
                    next: next
                        .map_or(panel, |tiles| tiles[t].wrapping_add(done / rows * units * way.fetched())),
                };
                let cols = rows.min(cols - done);
                if vnni {
                    vnni_tile(layout, cols, &p);
                } else {
                    super::avx2_dots::tile(way, layout.sub, layout.asymmetric, cols, &p);
                }
            }
        }
    }
}

unsafe fn vnni_tile(layout: &Layout, cols: usize, p: &Pointers) {
    let unit = PanelShape::of(layout).unit;
    // SAFETY: passed through.
    unsafe {
        match (layout.sub == 16, layout.asymmetric) {
            (false, false) => vnni_columns::<false, false>(unit, cols, p),
            (false, true) => vnni_columns::<false, true>(unit, cols, p),
            (true, false) => vnni_columns::<true, false>(unit, cols, p),
            (true, true) => vnni_columns::<true, true>(unit, cols, p),
        }
    }
}

unsafe fn vnni_columns<const SUB16: bool, const ASYM: bool>(unit: usize, cols: usize, p: &Pointers) {
    // SAFETY: passed through.
    unsafe {
        match cols {
            1 => vnni_run::<SUB16, ASYM, 1>(unit, p),
            2 => vnni_run::<SUB16, ASYM, 2>(unit, p),
            _ => vnni_run::<SUB16, ASYM, ROWS_VNNI>(unit, p),
        }
    }
}

/// The tile with `vpdpbusd`; `unit` is the bytes of a unit of the panel.
#[target_feature(enable = "avx2,fma,avxvnni")]
unsafe fn vnni_run<const SUB16: bool, const ASYM: bool, const C: usize>(unit: usize, p: &Pointers) {
    let per_unit = if SUB16 { 2 } else { 1 };
    let per = QUADS / per_unit;
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[_mm256_setzero_ps(); 2]; C];
        for c in 0..C {
            for h in 0..2 {
                acc[c][h] = _mm256_loadu_ps(p.y.add(STRIP * c + 8 * h));
            }
        }
        for u in 0..p.units {
            let codes = p.w.add(u * unit);
            let scales = p.scales.add(u * unit).cast::<f32>();
            let a = p.a.add(u * UNIT);
            let d = p.d.add(4 * u * GROUP_FLOATS);
            let mut product = [[_mm256_setzero_ps(); 2]; C];
            for half in 0..per_unit {
                let mut idot = [[_mm256_setzero_si256(); 2]; C];
                if !ASYM {
                    for c in 0..C {
                        let start = *p.init.add(c * p.init_stride / 4 + u * per_unit + half);
                        idot[c] = [_mm256_set1_epi32(start); 2];
                    }
                }
                for q in half * per..(half + 1) * per {
                    let w: *const __m256i = codes.add(q * QUAD_BYTES).cast();
                    let w = [_mm256_load_si256(w), _mm256_load_si256(w.add(1))];
                    for c in 0..C {
                        let a = a.add(c * p.stride).cast::<i32>().add(q);
                        let a = _mm256_set1_epi32(a.read_unaligned());
                        for h in 0..2 {
                            idot[c][h] = _mm256_dpbusd_avx_epi32(idot[c][h], w[h], a);
                        }
                    }
                }
                for h in 0..2 {
                    let scale = _mm256_loadu_ps(scales.add(STRIP * half + 8 * h));
                    for c in 0..C {
                        let idot = _mm256_cvtepi32_ps(idot[c][h]);
                        product[c][h] = if half == 0 {
                            _mm256_mul_ps(scale, idot)
                        } else {
                            _mm256_fmadd_ps(scale, idot, product[c][h])
                        };
                    }
                }
            }
            if ASYM {
                for half in 0..per_unit {
                    for h in 0..2 {
                        let min = _mm256_loadu_ps(scales.add(STRIP * (per_unit + half) + 8 * h));
                        for c in 0..C {
                            let sums = d.add(c * p.stride).cast::<f32>();
                            let sum = *sums.add(if SUB16 { 2 + half } else { 1 });
                            product[c][h] = _mm256_fnmadd_ps(min, _mm256_set1_ps(sum), product[c][h]);
                        }
                    }
                }
            }
            for c in 0..C {
                let d = _mm256_set1_ps(*d.add(c * p.stride).cast::<f32>());
                for h in 0..2 {
                    acc[c][h] = _mm256_fmadd_ps(d, product[c][h], acc[c][h]);
                }
            }
        }
        for c in 0..C {
            for h in 0..2 {
                _mm256_storeu_ps(p.y.add(STRIP * c + 8 * h), acc[c][h]);
            }
        }
    }
}

/// Unpacks `ks` elements of k from `k0` on of the strip's two tiles as f32: `[k][32 outputs]`.
///
/// # Safety
/// Needs AVX2 and F16C; the tiles must hold these elements, the panel must have room for them.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn unpack_floats(
    kind: FloatKind,
    tiles: [*const u8; 2],
    k0: usize,
    ks: usize,
    panel: *mut f32,
) {
    for (t, tile) in tiles.into_iter().enumerate() {
        for k in 0..ks {
            for h in 0..2 {
                // SAFETY: the caller's promise.
                unsafe {
                    let from = tile.add(((k0 + k) * LANES + 8 * h) * kind.bytes());
                    let w = match kind {
                        FloatKind::F32 => _mm256_loadu_ps(from.cast()),
                        FloatKind::F16 => _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                        FloatKind::Bf16 => {
                            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
                        }
                    };
                    _mm256_store_ps(panel.add(k * STRIP + LANES * t + 8 * h), w);
                }
            }
        }
    }
}

/// As [`tile`], for float weights: `ks` elements of k.
///
/// # Safety
/// As [`tile`].
pub(super) unsafe fn float_tile(
    panel: *const f32,
    block: &Block<'_>,
    (first, cols): (usize, usize),
    (k0, ks): (usize, usize),
    y: *mut f32,
) {
    // SAFETY: passed through.
    unsafe {
        let x = block.base.add(first * block.stride + 4 * k0).cast::<f32>();
        let stride = block.stride / 4;
        match cols {
            1 => float_columns::<1>(panel, x, stride, ks, y),
            2 => float_columns::<2>(panel, x, stride, ks, y),
            3 => float_columns::<3>(panel, x, stride, ks, y),
            4 => float_columns::<4>(panel, x, stride, ks, y),
            5 => float_columns::<5>(panel, x, stride, ks, y),
            _ => float_columns::<FLOAT_ROWS>(panel, x, stride, ks, y),
        }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn float_columns<const C: usize>(
    panel: *const f32,
    x: *const f32,
    stride: usize,
    ks: usize,
    y: *mut f32,
) {
    for half in [0, LANES] {
        // SAFETY: the caller's promise.
        unsafe {
            let (panel, y) = (panel.add(half), y.add(half));
            let mut acc = [[_mm256_setzero_ps(); 2]; C];
            for c in 0..C {
                acc[c] = [_mm256_loadu_ps(y.add(STRIP * c)), _mm256_loadu_ps(y.add(STRIP * c + 8))];
            }
            for k in 0..ks {
                let w = [_mm256_load_ps(panel.add(k * STRIP)), _mm256_load_ps(panel.add(k * STRIP + 8))];
                for c in 0..C {
                    let x = _mm256_set1_ps(*x.add(c * stride + k));
                    acc[c] = [_mm256_fmadd_ps(w[0], x, acc[c][0]), _mm256_fmadd_ps(w[1], x, acc[c][1])];
                }
            }
            for c in 0..C {
                _mm256_storeu_ps(y.add(STRIP * c), acc[c][0]);
                _mm256_storeu_ps(y.add(STRIP * c + 8), acc[c][1]);
            }
        }
    }
}
