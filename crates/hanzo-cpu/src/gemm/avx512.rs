//! The many-rows core with AVX-512 VNNI: a register tile of 32 outputs × 7 rows.
//!
//! Registers of a tile: 14 float accumulators (zmm0–13), 14 integer ones (zmm14–27), two weight vectors (zmm28, 29) and two for broadcasts. A
//! broadcast of four activations feeds two dots, a weight vector seven. Per unit of 32 elements the tile issues 112 dots and 42 float
//! instructions (convert, times scale, fma; with mins 56) on the same two ports: so the bound is 73 % (67 %) of the dot peak.
//! With sub-blocks of 16 a group's sum needs a register while the second half is being multiplied; there the accumulators live in memory (first
//! level, one load and one store a unit, on ports that have room), and the bound is 112 dots to 70 float instructions, 62 %.
//!
//! The body is assembly because register allocation is all there is to it: compilers spill a tile this full, which costs a quarter of the speed.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::*;

use crate::packed::avx512::{Sink, scales, unit};
use crate::packed::layout::{GROUP_ELEMS, LANES, Layout, QUAD_BYTES, QUADS, UNIT};
use crate::packed::{FloatKind, STRIP};

use super::{Block, PanelShape};

/// Rows of a register tile at most.
pub(super) const TILE: usize = 7;

/// Unpacks `units` units of k, from element `k0` on (a multiple of a group), of the strip's two tiles into a panel: a unit is
/// `[quad][tile][64 bytes of codes less bias]`, then `[sub-block][tile][16 scales]`, then mins likewise.
///
/// # Safety
/// Needs AVX-512; the tiles must be of this layout and hold these units, the panel must have room for them.
pub(super) unsafe fn unpack(
    layout: &Layout,
    tiles: [*const u8; 2],
    k: usize,
    k0: usize,
    units: usize,
    panel: *mut u8,
    bias: i8,
) {
    // SAFETY: passed through.
    unsafe {
        match (layout.bits, layout.table.is_some()) {
            (1, false) => unpack_as::<1, false>(layout, tiles, k, k0, units, panel, bias),
            (1, true) => unpack_as::<1, true>(layout, tiles, k, k0, units, panel, bias),
            (2, false) => unpack_as::<2, false>(layout, tiles, k, k0, units, panel, bias),
            (2, true) => unpack_as::<2, true>(layout, tiles, k, k0, units, panel, bias),
            (3, false) => unpack_as::<3, false>(layout, tiles, k, k0, units, panel, bias),
            (3, true) => unpack_as::<3, true>(layout, tiles, k, k0, units, panel, bias),
            (4, false) => unpack_as::<4, false>(layout, tiles, k, k0, units, panel, bias),
            (4, true) => unpack_as::<4, true>(layout, tiles, k, k0, units, panel, bias),
            (5, false) => unpack_as::<5, false>(layout, tiles, k, k0, units, panel, bias),
            (6, false) => unpack_as::<6, false>(layout, tiles, k, k0, units, panel, bias),
            (7, false) => unpack_as::<7, false>(layout, tiles, k, k0, units, panel, bias),
            _ => unpack_as::<8, false>(layout, tiles, k, k0, units, panel, bias),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn unpack_as<const BITS: u32, const TABLE: bool>(
    layout: &Layout,
    tiles: [*const u8; 2],
    k: usize,
    k0: usize,
    units: usize,
    panel: *mut u8,
    bias: i8,
) {
    let shape = PanelShape::of(layout);
    let subs = UNIT / layout.sub;
    let full = layout.group(GROUP_ELEMS);
    let end = k0 + units * UNIT;
    let bias = _mm512_set1_epi8(bias);
    // SAFETY: offsets are those of the layouts.
    unsafe {
        let table = layout
            .table
            .map_or(_mm512_setzero_si512(), |t| _mm512_broadcast_i32x4(_mm_loadu_si128(t.as_ptr().cast())));
        for (t, tile) in tiles.into_iter().enumerate() {
            let mut out = panel.add(t * QUAD_BYTES);
            for first in (k0..end).step_by(GROUP_ELEMS) {
                let group = tile.add(first / GROUP_ELEMS * full.bytes);
                let elems = GROUP_ELEMS.min(k - first);
                let at = if elems == GROUP_ELEMS { full } else { layout.group(elems) };
                let to = out.add(shape.scales);
                let row = 2 * QUAD_BYTES;
                scales(
                    layout,
                    &at,
                    group,
                    elems,
                    Sink { to, subs, unit: shape.unit, sub: row, min: row * subs },
                );
                for u in 0..elems / UNIT {
                    let planes = group.add(at.codes + u * 64 * BITS as usize);
                    _mm_prefetch::<_MM_HINT_T0>(planes.wrapping_add(2048).cast());
                    let quads = unit::<BITS, TABLE>(planes, table);
                    for (q, quad) in quads.into_iter().enumerate() {
                        let quad = _mm512_sub_epi8(quad, bias);
                        _mm512_store_si512(out.add(2 * QUAD_BYTES * q).cast(), quad);
                    }
                    out = out.add(shape.unit);
                }
            }
        }
    }
}

// Registers and addresses of column c.
#[rustfmt::skip]
macro_rules! acc0 { (0) => {"zmm0"}; (1) => {"zmm2"}; (2) => {"zmm4"}; (3) => {"zmm6"}; (4) => {"zmm8"}; (5) => {"zmm10"}; (6) => {"zmm12"} }
#[rustfmt::skip]
macro_rules! acc1 { (0) => {"zmm1"}; (1) => {"zmm3"}; (2) => {"zmm5"}; (3) => {"zmm7"}; (4) => {"zmm9"}; (5) => {"zmm11"}; (6) => {"zmm13"} }
#[rustfmt::skip]
macro_rules! dot0 { (0) => {"zmm14"}; (1) => {"zmm16"}; (2) => {"zmm18"}; (3) => {"zmm20"}; (4) => {"zmm22"}; (5) => {"zmm24"}; (6) => {"zmm26"} }
#[rustfmt::skip]
macro_rules! dot1 { (0) => {"zmm15"}; (1) => {"zmm17"}; (2) => {"zmm19"}; (3) => {"zmm21"}; (4) => {"zmm23"}; (5) => {"zmm25"}; (6) => {"zmm27"} }
// `s`: stride of activation records; `t`: stride of initial values.
#[rustfmt::skip]
macro_rules! row { (0) => {""}; (1) => {"+{s}"}; (2) => {"+2*{s}"}; (3) => {"+{s3}"}; (4) => {"+4*{s}"}; (5) => {"+{s5}"}; (6) => {"+2*{s3}"} }
#[rustfmt::skip]
macro_rules! init_row { (0) => {""}; (1) => {"+{t}"}; (2) => {"+2*{t}"}; (3) => {"+{t3}"}; (4) => {"+4*{t}"}; (5) => {"+{t5}"}; (6) => {"+2*{t3}"} }

/// One line of assembly a column.
macro_rules! each { ($m:ident, [$($c:tt)*], $x:tt) => { concat!($($m!($c, $x)),*) } }

macro_rules! load_acc {
    ($c:tt, $x:tt) => {
        concat!(
            "vmovups ",
            acc0!($c),
            ", [{y}+128*",
            $c,
            "]\n",
            "vmovups ",
            acc1!($c),
            ", [{y}+128*",
            $c,
            "+64]\n"
        )
    };
}
macro_rules! store_acc {
    ($c:tt, $x:tt) => {
        concat!(
            "vmovups [{y}+128*",
            $c,
            "], ",
            acc0!($c),
            "\n",
            "vmovups [{y}+128*",
            $c,
            "+64], ",
            acc1!($c),
            "\n"
        )
    };
}
macro_rules! zero_dot {
    ($c:tt, $x:tt) => {
        concat!(
            "vpxord ",
            dot0!($c),
            ",",
            dot0!($c),
            ",",
            dot0!($c),
            "\n",
            "vpxord ",
            dot1!($c),
            ",",
            dot1!($c),
            ",",
            dot1!($c),
            "\n"
        )
    };
}
macro_rules! init_dot {
    ($c:tt, $off:tt) => {
        concat!(
            // Two loads: a register copy of this width is not free, it takes a slot of the dots' ports.
            "vpbroadcastd ",
            dot0!($c),
            ", dword ptr [{i}",
            init_row!($c),
            "+",
            $off,
            "]\n",
            "vpbroadcastd ",
            dot1!($c),
            ", dword ptr [{i}",
            init_row!($c),
            "+",
            $off,
            "]\n"
        )
    };
}
macro_rules! dot {
    ($c:tt, $q:tt) => {
        concat!(
            "vpbroadcastd zmm30, dword ptr [{a}",
            row!($c),
            "+4*",
            $q,
            "]\n",
            "vpdpbusd ",
            dot0!($c),
            ", zmm28, zmm30\n",
            "vpdpbusd ",
            dot1!($c),
            ", zmm29, zmm30\n"
        )
    };
}
macro_rules! quad {
    ($cols:tt, $q:tt) => {
        concat!(
            "vmovaps zmm28, [{w}+128*",
            $q,
            "]\n",
            "vmovaps zmm29, [{w}+128*",
            $q,
            "+64]\n",
            each!(dot, $cols, $q)
        )
    };
}
/// Dots to floats, times scale: the first product of a group.
macro_rules! product {
    ($c:tt, $x:tt) => {
        concat!(
            "vcvtdq2ps ",
            dot0!($c),
            ", ",
            dot0!($c),
            "\n",
            "vcvtdq2ps ",
            dot1!($c),
            ", ",
            dot1!($c),
            "\n",
            "vmulps ",
            dot0!($c),
            ", zmm28, ",
            dot0!($c),
            "\n",
            "vmulps ",
            dot1!($c),
            ", zmm29, ",
            dot1!($c),
            "\n"
        )
    };
}
/// The same where sums of the group are kept in the accumulators' registers (sub-blocks of 16).
macro_rules! product16 {
    ($c:tt, $x:tt) => {
        concat!(
            "vcvtdq2ps ",
            dot0!($c),
            ", ",
            dot0!($c),
            "\n",
            "vcvtdq2ps ",
            dot1!($c),
            ", ",
            dot1!($c),
            "\n",
            "vmulps ",
            acc0!($c),
            ", zmm28, ",
            dot0!($c),
            "\n",
            "vmulps ",
            acc1!($c),
            ", zmm29, ",
            dot1!($c),
            "\n"
        )
    };
}
macro_rules! product16_more {
    ($c:tt, $x:tt) => {
        concat!(
            "vcvtdq2ps ",
            dot0!($c),
            ", ",
            dot0!($c),
            "\n",
            "vcvtdq2ps ",
            dot1!($c),
            ", ",
            dot1!($c),
            "\n",
            "vfmadd231ps ",
            acc0!($c),
            ", zmm28, ",
            dot0!($c),
            "\n",
            "vfmadd231ps ",
            acc1!($c),
            ", zmm29, ",
            dot1!($c),
            "\n"
        )
    };
}
macro_rules! min32 {
    ($c:tt, $off:tt) => {
        concat!(
            "vbroadcastss zmm30, dword ptr [{d}",
            row!($c),
            "+",
            $off,
            "]\n",
            "vfnmadd231ps ",
            dot0!($c),
            ", zmm28, zmm30\n",
            "vfnmadd231ps ",
            dot1!($c),
            ", zmm29, zmm30\n"
        )
    };
}
macro_rules! min16 {
    ($c:tt, $off:tt) => {
        concat!(
            "vbroadcastss zmm30, dword ptr [{d}",
            row!($c),
            "+",
            $off,
            "]\n",
            "vfnmadd231ps ",
            acc0!($c),
            ", zmm28, zmm30\n",
            "vfnmadd231ps ",
            acc1!($c),
            ", zmm29, zmm30\n"
        )
    };
}
/// The group's sum times the activation's scale, into the accumulator.
macro_rules! add32 {
    ($c:tt, $x:tt) => {
        concat!(
            "vbroadcastss zmm30, dword ptr [{d}",
            row!($c),
            "]\n",
            "vfmadd231ps ",
            acc0!($c),
            ", zmm30, ",
            dot0!($c),
            "\n",
            "vfmadd231ps ",
            acc1!($c),
            ", zmm30, ",
            dot1!($c),
            "\n"
        )
    };
}
macro_rules! add16 {
    ($c:tt, $x:tt) => {
        concat!(
            "vbroadcastss zmm30, dword ptr [{d}",
            row!($c),
            "]\n",
            "vfmadd213ps ",
            acc0!($c),
            ", zmm30, [{y}+128*",
            $c,
            "]\n",
            "vfmadd213ps ",
            acc1!($c),
            ", zmm30, [{y}+128*",
            $c,
            "+64]\n",
            "vmovups [{y}+128*",
            $c,
            "], ",
            acc0!($c),
            "\n",
            "vmovups [{y}+128*",
            $c,
            "+64], ",
            acc1!($c),
            "\n"
        )
    };
}
/// Loads the pair of scale vectors at a panel offset.
macro_rules! pair {
    ($off:tt) => {
        concat!("vmovaps zmm28, [{w}+", $off, "]\n", "vmovaps zmm29, [{w}+", $off, "+64]\n")
    };
}

macro_rules! half0 {
    ($cols:tt) => {
        concat!(quad!($cols, 0), quad!($cols, 1), quad!($cols, 2), quad!($cols, 3))
    };
}
macro_rules! half1 {
    ($cols:tt) => {
        concat!(quad!($cols, 4), quad!($cols, 5), quad!($cols, 6), quad!($cols, 7))
    };
}

/// A unit of k for the four kinds of block format: sub-blocks of 32 or 16, symmetric (with initial values) or with mins.
macro_rules! unit {
    (sym32, $cols:tt) => {
        concat!(
            each!(init_dot, $cols, 0),
            half0!($cols),
            half1!($cols),
            pair!(1024),
            each!(product, $cols, 0),
            each!(add32, $cols, 0),
            "add {w}, 1152\n",
            "add {i}, 4\n"
        )
    };
    (asym32, $cols:tt) => {
        concat!(
            each!(zero_dot, $cols, 0),
            half0!($cols),
            half1!($cols),
            pair!(1024),
            each!(product, $cols, 0),
            pair!(1152),
            each!(min32, $cols, 4),
            each!(add32, $cols, 0),
            "add {w}, 1280\n"
        )
    };
    (sym16, $cols:tt) => {
        concat!(
            each!(init_dot, $cols, 0),
            half0!($cols),
            pair!(1024),
            each!(product16, $cols, 0),
            each!(init_dot, $cols, 4),
            half1!($cols),
            pair!(1152),
            each!(product16_more, $cols, 0),
            each!(add16, $cols, 0),
            "add {w}, 1280\n",
            "add {i}, 8\n"
        )
    };
    (asym16, $cols:tt) => {
        concat!(
            each!(zero_dot, $cols, 0),
            half0!($cols),
            pair!(1024),
            each!(product16, $cols, 0),
            each!(zero_dot, $cols, 0),
            half1!($cols),
            pair!(1152),
            each!(product16_more, $cols, 0),
            pair!(1280),
            each!(min16, $cols, 8),
            pair!(1408),
            each!(min16, $cols, 12),
            each!(add16, $cols, 0),
            "add {w}, 1536\n"
        )
    };
}
macro_rules! before {
    (sym32, $c:tt) => {
        each!(load_acc, $c, 0)
    };
    (asym32, $c:tt) => {
        each!(load_acc, $c, 0)
    };
    ($k:ident, $c:tt) => {
        ""
    };
}
macro_rules! after {
    (sym32, $c:tt) => {
        each!(store_acc, $c, 0)
    };
    (asym32, $c:tt) => {
        each!(store_acc, $c, 0)
    };
    ($k:ident, $c:tt) => {
        ""
    };
}

macro_rules! body {
    ($kind:ident, $cols:tt, $p:ident) => {
        asm!(
            before!($kind, $cols),
            ".p2align 5",
            "2:",
            unit!($kind, $cols),
            "add {a}, 32",
            "add {d}, 16",
            "dec {n}",
            "jnz 2b",
            after!($kind, $cols),
            // Columns and kinds that need fewer addresses leave some unused.
            "/* {s} {s3} {s5} {i} {t} {t3} {t5} */",
            w = inout(reg) $p.w => _,
            a = inout(reg) $p.a => _,
            d = inout(reg) $p.d => _,
            i = inout(reg) $p.init => _,
            n = inout(reg) $p.units => _,
            y = in(reg) $p.y,
            s = in(reg) $p.stride,
            s3 = in(reg) 3 * $p.stride,
            s5 = in(reg) 5 * $p.stride,
            t = in(reg) $p.init_stride,
            t3 = in(reg) 3 * $p.init_stride,
            t5 = in(reg) 5 * $p.init_stride,
            out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _, out("zmm6") _,
            out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _, out("zmm12") _, out("zmm13") _,
            out("zmm14") _, out("zmm15") _, out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _, out("zmm20") _,
            out("zmm21") _, out("zmm22") _, out("zmm23") _, out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
            out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
            options(nostack)
        )
    };
}

macro_rules! by_columns {
    ($kind:ident, $cols:expr, $p:ident) => {
        match $cols {
            1 => body!($kind, [0], $p),
            2 => body!($kind, [0 1], $p),
            3 => body!($kind, [0 1 2], $p),
            4 => body!($kind, [0 1 2 3], $p),
            5 => body!($kind, [0 1 2 3 4], $p),
            6 => body!($kind, [0 1 2 3 4 5], $p),
            _ => body!($kind, [0 1 2 3 4 5 6], $p),
        }
    };
}

/// Operands of a tile: pointers at its first unit of k, strides in bytes.
struct Pointers {
    w: *const u8,
    a: *const u8,
    d: *const u8,
    init: *const i32,
    y: *mut f32,
    units: usize,
    stride: usize,
    init_stride: usize,
}

/// Adds `units` (at least 1) units of k, from element `k0` on, to the tile of rows `first..first + cols` of the block.
///
/// # Safety
/// Needs AVX-512 VNNI; the panel must hold these units, the block these rows, `y` `cols` (1 to 7) rows of 32 accumulators.
pub(super) unsafe fn tile(
    layout: &Layout,
    panel: *const u8,
    block: &Block<'_>,
    init: &[i32],
    (first, cols): (usize, usize),
    (k0, units): (usize, usize),
    y: *mut f32,
) {
    debug_assert!((1..=TILE).contains(&cols) && units > 0 && first + cols <= block.m);
    // SAFETY: the caller's promise; offsets are those of an activation record.
    unsafe {
        let record = block.base.add(first * block.stride);
        let init_stride = block.k / layout.sub;
        let p = Pointers {
            w: panel,
            a: record.add(k0),
            d: record.add(block.groups + k0 / 2),
            init: init.as_ptr().wrapping_add(first * init_stride + k0 / layout.sub),
            y,
            units,
            stride: block.stride,
            init_stride: 4 * init_stride,
        };
        match (layout.sub, layout.asymmetric) {
            (32, false) => by_columns!(sym32, cols, p),
            (32, true) => by_columns!(asym32, cols, p),
            (_, false) => by_columns!(sym16, cols, p),
            (_, true) => by_columns!(asym16, cols, p),
        }
    }
}

/// Unpacks `ks` elements of k from `k0` on of the strip's two tiles as f32: `[k][32 outputs]`.
///
/// # Safety
/// Needs AVX-512; the tiles must hold these elements, the panel must have room for them.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn unpack_floats(
    kind: FloatKind,
    tiles: [*const u8; 2],
    k0: usize,
    ks: usize,
    panel: *mut f32,
) {
    use crate::matvec::avx512::floats;
    for (t, tile) in tiles.into_iter().enumerate() {
        for k in 0..ks {
            // SAFETY: the caller's promise.
            unsafe {
                let from = tile.add((k0 + k) * LANES * kind.bytes());
                let w = match kind {
                    FloatKind::F32 => floats::<4, false>(from),
                    FloatKind::F16 => floats::<2, false>(from),
                    FloatKind::Bf16 => floats::<2, true>(from),
                };
                _mm512_store_ps(panel.add(k * STRIP + t * LANES), w);
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
        match cols {
            1 => float_columns::<1>(panel, x, block.stride / 4, ks, y),
            2 => float_columns::<2>(panel, x, block.stride / 4, ks, y),
            3 => float_columns::<3>(panel, x, block.stride / 4, ks, y),
            4 => float_columns::<4>(panel, x, block.stride / 4, ks, y),
            5 => float_columns::<5>(panel, x, block.stride / 4, ks, y),
            6 => float_columns::<6>(panel, x, block.stride / 4, ks, y),
            _ => float_columns::<7>(panel, x, block.stride / 4, ks, y),
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn float_columns<const C: usize>(
    panel: *const f32,
    x: *const f32,
    stride: usize,
    ks: usize,
    y: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc: [[__m512; 2]; C] = std::array::from_fn(|c| {
            [_mm512_loadu_ps(y.add(STRIP * c)), _mm512_loadu_ps(y.add(STRIP * c + LANES))]
        });
        for k in 0..ks {
            let w = [_mm512_load_ps(panel.add(k * STRIP)), _mm512_load_ps(panel.add(k * STRIP + LANES))];
            for (c, acc) in acc.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*x.add(c * stride + k));
                acc[0] = _mm512_fmadd_ps(w[0], x, acc[0]);
                acc[1] = _mm512_fmadd_ps(w[1], x, acc[1]);
            }
        }
        for (c, acc) in acc.into_iter().enumerate() {
            _mm512_storeu_ps(y.add(STRIP * c), acc[0]);
            _mm512_storeu_ps(y.add(STRIP * c + LANES), acc[1]);
        }
    }
}

const _: () = assert!(QUADS == 8 && QUAD_BYTES == 64 && TILE == 7);
