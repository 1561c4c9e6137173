//! The few-rows core with AVX2: one tile of 16 outputs in two halves of eight, 2 activation rows a pass (4 with AVX-VNNI).
//!
//! With AVX-VNNI four products are one `vpdpbusd`. Without, `vpmaddubsw` adds pairs of products in 16 bits, which saturates for codes
//! above 129: codes that wide are kept signed, and their sign is moved to the activations (`|w| · sign(w)·a`, at most 128 · 127 · 2). Where they
//! come from a table, none of which has −128, the activations' sign is moved to them: `|a|` is computed for both halves at once.
// Loops over lanes and rows index: iterator chains are not unrolled in functions of another instruction set.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::arch::x86_64::*;

use super::{IntRows, StripOut, Tile, prefetch};
use crate::activations::GROUP_FLOATS;
use crate::isa::ahead;
use crate::packed::avx2::{GroupScales, unit};
use crate::packed::layout::{GROUP_ELEMS, LANES, Layout, QUADS, UNIT};
use crate::packed::{FloatKind, STRIP};

/// Rows of a pass: with AVX-VNNI four have registers for their sums, without two. A tile stays in the first-level cache from pass to pass.
const PASS: usize = 2;
const PASS_VNNI: usize = 4;

/// The body of both: a macro, because the two differ in the instruction sets they are compiled for. Quads outermost, then rows, then the
/// halves of the tile: a quad of weights is picked apart once, an activation is spread once.
macro_rules! body {
    ($dot:ident, $DOT:expr, $BITS:ident, $TABLE:ident, $SUB16:ident, $ASYM:ident, $SC:ident, $MB:ident, $M:ident, $t:ident, $y:ident, $at:ident) => {{
        let Some(rows) = $t.rows.first_chunk::<$M>() else { return };
        let per_unit = if $SUB16 { 2 } else { 1 };
        let per = QUADS / per_unit;
        let full = $t.layout.group(GROUP_ELEMS);
        // Wide codes are multiplied signed: no offset to start from. Neither where there are mins.
        let (wide, offset) = ($DOT == WIDE || $DOT == SIGNED, $t.layout.offset);
        // SAFETY: all offsets are those of the layouts; prefetches may point anywhere.
        unsafe {
            let mut s = GroupScales::<$SC, $MB>::new($t.layout);
            let table = $t.layout.table.map_or(_mm256_setzero_si256(), |t| {
                _mm256_broadcastsi128_si256(_mm_loadu_si128(t.as_ptr().cast()))
            });
            let sign = _mm256_set1_epi8(offset as i8);
            let table = if $DOT == SIGNED { _mm256_sub_epi8(table, sign) } else { table };
            let init: [*const i32; $M] = std::array::from_fn(|m| $t.init.as_ptr().add(m * $t.init_stride));
            let mut acc = [[_mm256_setzero_ps(); 2]; $M];
            let mut group = $t.tile;
            for k0 in (0..$t.k).step_by(GROUP_ELEMS) {
                let elems = GROUP_ELEMS.min($t.k - k0);
                let part = if elems == GROUP_ELEMS { full } else { $t.layout.group(elems) };
                prefetch::<_MM_HINT_T1>($t.ahead, group, part.codes.div_ceil(64));
                s.begin::<$SUB16>($t.layout, &part, group, elems);
                for u in 0..elems / UNIT {
                    let planes = group.add(part.codes + u * 64 * $BITS as usize);
                    prefetch::<_MM_HINT_T1>($t.ahead, planes, $BITS as usize);
                    let k = k0 + u * UNIT;
                    let mut w =
                        [unit::<$BITS, $TABLE>(planes, table), unit::<$BITS, $TABLE>(planes.add(32), table)];
                    if $DOT == WIDE {
                        for w in w.as_flattened_mut() {
                            *w = _mm256_sub_epi8(*w, sign);
                        }
                    }
                    let mut p = [[_mm256_setzero_ps(); 2]; $M];
                    for half in 0..per_unit {
                        let mut idot = [[_mm256_setzero_si256(); 2]; $M];
                        if !wide && !$ASYM {
                            for m in 0..$M {
                                let start = *init[m].add(k / UNIT * per_unit + half);
                                idot[m] = [_mm256_set1_epi32(start); 2];
                            }
                        }
                        let mut sums = [[_mm256_setzero_si256(); 2]; $M];
                        for i in 0..per {
                            // Quads of one load one after the other: nothing is spilled.
                            let q = if $BITS & 4 > 0 && !$SUB16 { i % 2 * 4 + i / 2 } else { half * per + i };
                            for m in 0..$M {
                                let a = rows[m].add(k).cast::<i32>().add(q);
                                let a = _mm256_set1_epi32(a.read_unaligned());
                                for h in 0..2 {
                                    $dot!(idot[m][h], sums[m][h], w[h][q], a, i, per);
                                }
                            }
                        }
                        for h in 0..2 {
                            let scale = s.scale(u * per_unit + half, h);
                            for m in 0..$M {
                                let idot = _mm256_cvtepi32_ps(idot[m][h]);
                                p[m][h] = if half == 0 {
                                    _mm256_mul_ps(scale, idot)
                                } else {
                                    _mm256_fmadd_ps(scale, idot, p[m][h])
                                };
                            }
                        }
                    }
                    let floats: [*const f32; $M] = std::array::from_fn(|m| {
                        rows[m].add($t.groups).cast::<f32>().add(k / UNIT * GROUP_FLOATS)
                    });
                    if $ASYM {
                        for half in 0..per_unit {
                            for h in 0..2 {
                                let min = s.min(u * per_unit + half, h);
                                for m in 0..$M {
                                    let sum = *floats[m].add(if $SUB16 { 2 + half } else { 1 });
                                    p[m][h] = _mm256_fnmadd_ps(min, _mm256_set1_ps(sum), p[m][h]);
                                }
                            }
                        }
                    }
                    for m in 0..$M {
                        let d = _mm256_set1_ps(*floats[m]);
                        for h in 0..2 {
                            acc[m][h] = _mm256_fmadd_ps(d, p[m][h], acc[m][h]);
                        }
                    }
                }
                group = group.add(part.bytes);
            }
            for (acc, y) in acc.into_iter().zip($y) {
                let y: *mut f32 = y[$at..$at + LANES].as_mut_ptr();
                _mm256_storeu_ps(y, acc[0]);
                _mm256_storeu_ps(y.add(8), acc[1]);
            }
        }
    }};
}
/// How four products a lane are added up.
const VNNI: u8 = 0;
const NARROW: u8 = 1;
/// Plain codes of more than 7 bits: signed.
const WIDE: u8 = 2;
/// Codes of a table, none above [`FOURS_WIDEST`]: four sums stay in 16 bits.
const FOURS: u8 = 3;
/// Codes of a table with wider ones, none −128: signed, with the sign of the activations moved to them.
const SIGNED: u8 = 4;

/// The widest code of which 16 bits hold four sums of two products, at 127 each.
const FOURS_WIDEST: u32 = i16::MAX as u32 / (4 * 2 * 127);

/// Outputs `at..at + 16` of every row, for a block format.
///
/// # Safety
/// Needs AVX2, FMA and F16C, with `vnni` AVX-VNNI; `tile` must be a tile of this layout of `k` elements, the rows records of `k` codes.
pub(super) unsafe fn int_tile(
    layout: &Layout,
    tile: *const u8,
    k: usize,
    x: &IntRows<'_>,
    at: usize,
    y: &mut StripOut,
    vnni: bool,
) {
    let widest = layout.table.map_or((1 << layout.bits) - 1, |t| u32::from(t.into_iter().max().unwrap_or(0)));
    let of = if vnni { PASS_VNNI } else { PASS };
    for (pass, rows) in x.rows.chunks(of).enumerate() {
        let first = pass * of;
        let t = Tile::new(layout, tile, k, x, first, rows);
        let y = &mut y[first..];
        // SAFETY: passed through.
        unsafe {
            if vnni {
                by_format!(by_rows, [VNNI], &t, y, at);
            } else if layout.table.is_some() && widest <= FOURS_WIDEST {
                by_format!(by_rows, [FOURS], &t, y, at);
            } else if widest <= 129 {
                by_format!(by_rows, [NARROW], &t, y, at);
            } else if layout.table.is_some() && layout.offset < 128 {
                by_format!(by_rows, [SIGNED], &t, y, at);
            } else {
                by_format!(by_rows, [WIDE], &t, y, at);
            }
        }
    }
}

unsafe fn by_rows<
    const DOT: u8,
    const BITS: u32,
    const TABLE: bool,
    const SUB16: bool,
    const ASYM: bool,
    const SC: u32,
    const MB: u32,
>(
    t: &Tile<'_>,
    y: &mut [[f32; STRIP]],
    at: usize,
) {
    // SAFETY: passed through.
    unsafe {
        // Ways that no format of these constants takes are not compiled.
        if TABLE && DOT == WIDE || !TABLE && (DOT == FOURS || DOT == SIGNED) || BITS < 8 && DOT == WIDE {
            return t.portable(y, at);
        }
        match t.rows.len() {
            1 if DOT == VNNI => run_vnni::<BITS, TABLE, SUB16, ASYM, SC, MB, 1>(t, y, at),
            2 if DOT == VNNI => run_vnni::<BITS, TABLE, SUB16, ASYM, SC, MB, 2>(t, y, at),
            _ if DOT == VNNI => {
                padded::<PASS_VNNI>(t, y, |t, y| {
                    run_vnni::<BITS, TABLE, SUB16, ASYM, SC, MB, PASS_VNNI>(t, y, at);
                });
            }
            1 => run::<DOT, BITS, TABLE, SUB16, ASYM, SC, MB, 1>(t, y, at),
            _ => run::<DOT, BITS, TABLE, SUB16, ASYM, SC, MB, PASS>(t, y, at),
        }
    }
}

/// Repeats the last row until there are `M`, and drops what is computed for the repetitions: fewer copies of the kernel.
fn padded<const M: usize>(
    t: &Tile<'_>,
    y: &mut [[f32; STRIP]],
    kernel: impl FnOnce(&Tile<'_>, &mut [[f32; STRIP]]),
) {
    let (have, Some(&last)) = (t.rows.len(), t.rows.last()) else { return };
    if have == M {
        return kernel(t, y);
    }
    let mut rows = [last; M];
    rows[..have].copy_from_slice(t.rows);
    let mut init = vec![0; M * t.init_stride];
    let given = (have * t.init_stride).min(t.init.len());
    init[..given].copy_from_slice(&t.init[..given]);
    let mut all = [[0.0; STRIP]; M];
    for (all, y) in all.iter_mut().zip(y.iter()).take(have) {
        *all = *y;
    }
    kernel(&Tile { rows: &rows, init: &init, ..*t }, &mut all);
    for (all, y) in all.iter().zip(y).take(have) {
        *y = *all;
    }
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn run_vnni<
    const BITS: u32,
    const TABLE: bool,
    const SUB16: bool,
    const ASYM: bool,
    const SC: u32,
    const MB: u32,
    const M: usize,
>(
    t: &Tile<'_>,
    y: &mut [[f32; STRIP]],
    at: usize,
) {
    macro_rules! dot {
        ($idot:expr, $sums:expr, $w:expr, $a:expr, $i:expr, $count:expr) => {{
            // One instruction: nothing is kept in 16 bits.
            let _: &mut __m256i = &mut $sums;
            $idot = _mm256_dpbusd_avx_epi32($idot, $w, $a)
        }};
    }
    body!(dot, VNNI, BITS, TABLE, SUB16, ASYM, SC, MB, M, t, y, at)
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run<
    const DOT: u8,
    const BITS: u32,
    const TABLE: bool,
    const SUB16: bool,
    const ASYM: bool,
    const SC: u32,
    const MB: u32,
    const M: usize,
>(
    t: &Tile<'_>,
    y: &mut [[f32; STRIP]],
    at: usize,
) {
    let ones = _mm256_set1_epi16(1);
    // Sums of products that 16 bits hold: two at 127 times the widest code each.
    let span = match BITS {
        _ if DOT == FOURS => 4,
        _ if DOT == WIDE || TABLE => 1,
        5 => 4,
        6 => 2,
        7.. => 1,
        _ => QUADS,
    };
    macro_rules! dot {
        ($idot:expr, $sums:expr, $w:expr, $a:expr, $i:expr, $count:expr) => {{
            let pairs = match DOT {
                WIDE => _mm256_maddubs_epi16(_mm256_abs_epi8($w), _mm256_sign_epi8($a, $w)),
                SIGNED => _mm256_maddubs_epi16(_mm256_abs_epi8($a), _mm256_sign_epi8($w, $a)),
                _ => _mm256_maddubs_epi16($w, $a),
            };
            $sums = if $i % span == 0 { pairs } else { _mm256_add_epi16($sums, pairs) };
            if $i % span == span - 1 || $i == $count - 1 {
                $idot = _mm256_add_epi32($idot, _mm256_madd_epi16($sums, ones));
            }
        }};
    }
    body!(dot, DOT, BITS, TABLE, SUB16, ASYM, SC, MB, M, t, y, at)
}

/// The 32 outputs of every row, for a float format.
///
/// # Safety
/// Needs AVX2, FMA and F16C; `tiles` must be tiles of `k` elements of this kind, and the rows `k` floats each.
pub(super) unsafe fn float_strip(
    kind: FloatKind,
    tiles: [*const u8; 2],
    k: usize,
    rows: &[*const u8],
    y: &mut StripOut,
) {
    for (rows, y) in rows.chunks(4).zip(y.chunks_mut(4)) {
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

/// An output is one chain of fmas, each waiting for the one before: both tiles at once where registers allow, four chains a row.
unsafe fn float_rows<const BYTES: usize, const BF16: bool>(
    tiles: [*const u8; 2],
    k: usize,
    rows: &[*const u8],
    y: &mut [[f32; STRIP]],
) {
    // SAFETY: passed through.
    unsafe {
        match rows.len() {
            1 => float_run::<BYTES, BF16, 1, 2>(tiles, k, rows, 0, y),
            2 => float_run::<BYTES, BF16, 2, 2>(tiles, k, rows, 0, y),
            3 => float_run::<BYTES, BF16, 3, 2>(tiles, k, rows, 0, y),
            4 => {
                for (half, tile) in tiles.into_iter().enumerate() {
                    float_run::<BYTES, BF16, 4, 1>([tile], k, rows, half * LANES, y);
                }
            }
            _ => {}
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn float_run<const BYTES: usize, const BF16: bool, const M: usize, const T: usize>(
    tiles: [*const u8; T],
    k: usize,
    rows: &[*const u8],
    at: usize,
    y: &mut [[f32; STRIP]],
) {
    let Some(rows) = rows.first_chunk::<M>() else { return };
    let mut acc = [[[_mm256_setzero_ps(); 2]; T]; M];
    let ahead = ahead(M);
    macro_rules! step {
        ($k:expr) => {{
            let k = $k;
            let mut x = [_mm256_setzero_ps(); M];
            for m in 0..M {
                x[m] = _mm256_set1_ps(*rows[m].cast::<f32>().add(k));
            }
            for t in 0..T {
                for h in 0..2 {
                    let from = tiles[t].add((k * LANES + 8 * h) * BYTES);
                    let w = if BYTES == 4 {
                        _mm256_loadu_ps(from.cast())
                    } else if BF16 {
                        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
                    } else {
                        _mm256_cvtph_ps(_mm_loadu_si128(from.cast()))
                    };
                    for m in 0..M {
                        acc[m][t][h] = _mm256_fmadd_ps(w, x[m], acc[m][t][h]);
                    }
                }
            }
        }};
    }
    // SAFETY: k values in every row and 16 · k in the tile; prefetches may point anywhere.
    unsafe {
        // A line of the tile at a time.
        let line = 64 / (LANES * BYTES);
        let lines = k / line;
        for l in 0..lines {
            for tile in &tiles {
                prefetch::<_MM_HINT_T1>(ahead, tile.add(64 * l), 1);
            }
            for i in 0..line {
                step!(l * line + i);
            }
        }
        for k in lines * line..k {
            step!(k);
        }
        for (acc, y) in acc.into_iter().zip(y) {
            let y: *mut f32 = y[at..at + T * LANES].as_mut_ptr();
            for t in 0..T {
                for h in 0..2 {
                    _mm256_storeu_ps(y.add(t * LANES + 8 * h), acc[t][h]);
                }
            }
        }
    }
}
