//! The few-rows core with AVX-512 VNNI: one tile of 16 outputs, up to 8 activation rows in registers.
//!
//! A unit of codes (32 elements of k, 16 outputs) is unpacked to eight vectors once, and each is multiplied with four broadcast activations
//! of every row by one `vpdpbusd`. Offsets of signed codes enter as the integer accumulator's initial value. Bound: reading the weights; at
//! one row there are about 64 cycles for the 8 dots, 20 unpacking and 4 float instructions of a unit of Q4_K.
//!
//! Every unit prefetches at one or two distances, near into the first level, far into the second, where the machine's prefetchers do not read
//! fast enough by themselves ([`ahead`]).
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{IntRows, StripOut, Tile, prefetch};
use crate::activations::GROUP_FLOATS;
use crate::isa::ahead;
use crate::packed::FloatKind;
use crate::packed::avx512::{GroupScales, unit};
use crate::packed::layout::{GROUP_ELEMS, LANES, Layout, QUADS, UNIT};

/// Rows that a pass holds accumulators for.
const PASS: usize = 8;

/// Outputs `at..at + 16` of every row, for a block format.
///
/// # Safety
/// Needs AVX-512 VNNI; `tile` must be a tile of this layout of `k` elements, and the rows records of `k` codes.
pub(super) unsafe fn int_tile(
    layout: &Layout,
    tile: *const u8,
    k: usize,
    x: &IntRows<'_>,
    at: usize,
    y: &mut StripOut,
) {
    for (pass, rows) in x.rows.chunks(PASS).enumerate() {
        let first = pass * PASS;
        let t = Tile::new(layout, tile, k, x, first, rows);
        // SAFETY: passed through.
        unsafe { by_format!(by_rows, [], &t, &mut y[first..], at) }
    }
}

unsafe fn by_rows<
    const BITS: u32,
    const TABLE: bool,
    const SUB16: bool,
    const ASYM: bool,
    const SC: u32,
    const MB: u32,
>(
    t: &Tile<'_>,
    y: &mut [[f32; 2 * LANES]],
    at: usize,
) {
    // SAFETY: passed through.
    unsafe {
        match t.rows.len() {
            1 => run::<BITS, TABLE, SUB16, ASYM, SC, MB, 1>(t, y, at),
            2 => run::<BITS, TABLE, SUB16, ASYM, SC, MB, 2>(t, y, at),
            3 => run::<BITS, TABLE, SUB16, ASYM, SC, MB, 3>(t, y, at),
            4 => run::<BITS, TABLE, SUB16, ASYM, SC, MB, 4>(t, y, at),
            5 => run::<BITS, TABLE, SUB16, ASYM, SC, MB, 5>(t, y, at),
            6 => run::<BITS, TABLE, SUB16, ASYM, SC, MB, 6>(t, y, at),
            7 => run::<BITS, TABLE, SUB16, ASYM, SC, MB, 7>(t, y, at),
            8 => run::<BITS, TABLE, SUB16, ASYM, SC, MB, 8>(t, y, at),
            _ => {}
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn run<
    const BITS: u32,
    const TABLE: bool,
    const SUB16: bool,
    const ASYM: bool,
    const SC: u32,
    const MB: u32,
    const M: usize,
>(
    t: &Tile<'_>,
    y: &mut [[f32; 2 * LANES]],
    at: usize,
) {
    let Some(rows) = t.rows.first_chunk::<M>() else { return };
    let mut acc = [_mm512_setzero_ps(); M];
    let full = t.layout.group(GROUP_ELEMS);
    let subs_per_unit = if SUB16 { 2 } else { 1 };
    // SAFETY: all offsets are those of the layouts; prefetches may point anywhere.
    unsafe {
        let mut s = GroupScales::<SC, MB>::new(t.layout);
        let table = t
            .layout
            .table
            .map_or(_mm512_setzero_si512(), |t| _mm512_broadcast_i32x4(_mm_loadu_si128(t.as_ptr().cast())));
        let init: [*const i32; M] = std::array::from_fn(|m| t.init.as_ptr().add(m * t.init_stride));
        let mut group = t.tile;
        for k0 in (0..t.k).step_by(GROUP_ELEMS) {
            let elems = GROUP_ELEMS.min(t.k - k0);
            let part = if elems == GROUP_ELEMS { full } else { t.layout.group(elems) };
            prefetch::<_MM_HINT_T2>(t.ahead, group, part.codes.div_ceil(64));
            s.begin::<SUB16>(t.layout, &part, group, elems);
            for u in 0..elems / UNIT {
                let planes = group.add(part.codes + u * 64 * BITS as usize);
                prefetch::<_MM_HINT_T2>(t.ahead, planes, BITS as usize);
                let w = unit::<BITS, TABLE>(planes, table);
                let k = k0 + u * UNIT;
                let first = u * subs_per_unit;
                let scale = [s.scale(first), if SUB16 { s.scale(first + 1) } else { _mm512_setzero_ps() }];
                let min = if ASYM { [s.min(first), s.min(first + subs_per_unit - 1)] } else { scale };
                for m in 0..M {
                    let a = rows[m].add(k).cast::<i32>();
                    let floats = rows[m].add(t.groups).cast::<f32>().add(k / UNIT * GROUP_FLOATS);
                    let mut p = _mm512_setzero_ps();
                    for half in 0..subs_per_unit {
                        let mut idot = _mm512_set1_epi32(*init[m].add((k / UNIT) * subs_per_unit + half));
                        let per = QUADS / subs_per_unit;
                        for (q, &w) in w.iter().enumerate().skip(half * per).take(per) {
                            idot = _mm512_dpbusd_epi32(idot, w, _mm512_set1_epi32(a.add(q).read_unaligned()));
                        }
                        let idot = _mm512_cvtepi32_ps(idot);
                        p = if half == 0 {
                            _mm512_mul_ps(scale[0], idot)
                        } else {
                            _mm512_fmadd_ps(scale[1], idot, p)
                        };
                    }
                    if ASYM {
                        for (half, min) in min.into_iter().enumerate().take(subs_per_unit) {
                            let sum = _mm512_set1_ps(*floats.add(if SUB16 { 2 + half } else { 1 }));
                            p = _mm512_fnmadd_ps(min, sum, p);
                        }
                    }
                    acc[m] = _mm512_fmadd_ps(_mm512_set1_ps(*floats), p, acc[m]);
                }
            }
            group = group.add(part.bytes);
        }
        for (acc, y) in acc.into_iter().zip(y) {
            _mm512_storeu_ps(y[at..].as_mut_ptr(), acc);
        }
    }
}

/// The 32 outputs of every row, for a float format.
///
/// # Safety
/// Needs AVX-512; `tiles` must be tiles of `k` elements of this kind, and the rows `k` floats each.
pub(super) unsafe fn float_strip(
    kind: FloatKind,
    tiles: [*const u8; 2],
    k: usize,
    rows: &[*const u8],
    y: &mut StripOut,
) {
    for (rows, y) in rows.chunks(PASS).zip(y.chunks_mut(PASS)) {
        // SAFETY: passed through.
        unsafe {
            match kind {
                FloatKind::F32 => float_rows::<4, false>(tiles, k, rows, y),
                FloatKind::F16 => float_rows::<2, false>(tiles, k, rows, y),
                FloatKind::Bf16 => float_rows::<2, true>(tiles, k, rows, y),
            }
        }
    }
}

/// An output is one chain of fmas, each waiting for the one before: one and two rows take both tiles at once, two chains a row.
unsafe fn float_rows<const BYTES: usize, const BF16: bool>(
    tiles: [*const u8; 2],
    k: usize,
    rows: &[*const u8],
    y: &mut [[f32; 2 * LANES]],
) {
    macro_rules! apart {
        ($m:literal) => {
            for (half, tile) in tiles.into_iter().enumerate() {
                float_run::<BYTES, BF16, $m, 1>([tile], k, rows, half * LANES, y);
            }
        };
    }
    // SAFETY: passed through.
    unsafe {
        match rows.len() {
            1 => float_run::<BYTES, BF16, 1, 2>(tiles, k, rows, 0, y),
            2 => float_run::<BYTES, BF16, 2, 2>(tiles, k, rows, 0, y),
            3 => apart!(3),
            4 => apart!(4),
            5 => apart!(5),
            6 => apart!(6),
            7 => apart!(7),
            8 => apart!(8),
            _ => {}
        }
    }
}

/// Sixteen weights of one k, as f32.
///
/// # Safety
/// Needs AVX-512; they must be readable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
pub(crate) unsafe fn floats<const BYTES: usize, const BF16: bool>(at: *const u8) -> __m512 {
    // SAFETY: reads 16 · BYTES bytes.
    unsafe {
        if BYTES == 4 {
            _mm512_loadu_ps(at.cast())
        } else if BF16 {
            let half = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(half))
        } else {
            _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()))
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn float_run<const BYTES: usize, const BF16: bool, const M: usize, const T: usize>(
    tiles: [*const u8; T],
    k: usize,
    rows: &[*const u8],
    at: usize,
    y: &mut [[f32; 2 * LANES]],
) {
    let Some(rows) = rows.first_chunk::<M>() else { return };
    let mut acc = [[_mm512_setzero_ps(); T]; M];
    let ahead = ahead(M);
    // Values of k in a line of a tile.
    let line = 64 / (LANES * BYTES);
    // SAFETY: k values in every row and 16 · k in each tile; prefetches may point anywhere.
    unsafe {
        for k in 0..k {
            let at = k * LANES * BYTES;
            let mut w = [_mm512_setzero_ps(); T];
            for t in 0..T {
                if k.is_multiple_of(line) {
                    prefetch::<_MM_HINT_T2>(ahead, tiles[t].add(at), 1);
                }
                w[t] = floats::<BYTES, BF16>(tiles[t].add(at));
            }
            for m in 0..M {
                let x = _mm512_set1_ps(*rows[m].cast::<f32>().add(k));
                for t in 0..T {
                    acc[m][t] = _mm512_fmadd_ps(w[t], x, acc[m][t]);
                }
            }
        }
        for (acc, y) in acc.into_iter().zip(y) {
            let y: *mut f32 = y[at..at + T * LANES].as_mut_ptr();
            for (t, acc) in acc.into_iter().enumerate() {
                _mm512_storeu_ps(y.add(t * LANES), acc);
            }
        }
    }
}
