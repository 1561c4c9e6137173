//! The many-rows core with AMX: tiles of 16 rows × 16 outputs, integer dots in the matrix unit, floats in vector registers.
//!
//! ```text
//! for each unit of 32 elements of k
//!   dot     16 rows × 32 codes times 32 codes × 16 outputs, into an i32 tile register       unit u + 4
//!   keep    the tile register, 1 KB, goes to a ring of four in the first-level cache        unit u + 2
//!   scale   16 rows, one vector each: two or three fmas into the row's accumulator          unit u
//! ```
//!
//! The distances hide the latency of the matrix unit and let a store reach the cache before it is read (tile stores are not forwarded to
//! loads). The pipeline runs on from tile to tile of a strip; sub-blocks of 16 make two dots a unit, and the same ring.
//!
//! Bound: while tiles are in use 512-bit float instructions have one port, so a unit takes at least as many cycles as it has float
//! instructions, 32 (with mins 48), for 8192 products; the vector core's bound is 84 (96). `docs/levers.md` has what is reached.
//!
//! The conversion of dots to floats is saved where scales allow it: tile registers start from the bits of [`SEED`] = 1.5 · 2²³, so
//! that a dot `i` is kept as the float `SEED + i`, and `scale · i` is one fma, `scale · (SEED + i) − scale · SEED`. It has the bits of the
//! product, rounded once, since everything before the rounding is exact: `|i| < 2²²`, and a scale that is an f16 times a small integer has at
//! most 19 significant bits, so that `scale · SEED` has at most 21. (Only a zero's sign may differ, which the sum it is added to takes away.)
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::packed::STRIP;
use crate::packed::layout::{LANES, Layout, QUAD_BYTES, Super, UNIT};

use super::{Block, PanelShape};

/// Rows of a tile.
pub(super) const ROWS: usize = 16;
/// Elements of k that a strip must have a multiple of: what the ring holds at most.
pub(super) const K_STEP: usize = 4 * UNIT;

const SEED: f32 = 12_582_912.0;

/// What `ldtilecfg` reads (palette 1).
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    /// Registers 0 to 3: dots of 16 rows and 16 outputs. 4, 5: `k` codes of 16 rows. 6, 7: those of 16 outputs, a quad a row.
    const fn new(k: u8) -> Self {
        let mut config =
            TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut i = 0;
        while i < 8 {
            config.row_bytes[i] = if i == 4 || i == 5 { k as u16 } else { QUAD_BYTES as u16 };
            config.rows[i] = if i < 6 { ROWS as u8 } else { k / 4 };
            i += 1;
        }
        config
    }
}

static UNITS: TileConfig = TileConfig::new(32);
static HALVES: TileConfig = TileConfig::new(16);

/// The row that tile registers start from, sixteen times.
#[repr(C, align(64))]
struct SeedRow([u32; LANES]);
static SEEDS: SeedRow = SeedRow([SEED.to_bits(); LANES]);

#[repr(C, align(64))]
struct Ring(MaybeUninit<[[[i32; LANES]; ROWS]; 4]>);

/// Operands of a strip.
struct Operands {
    /// First unit of the panel, and bytes from unit to unit.
    panel: *const u8,
    shape: PanelShape,
    /// Codes and group floats of the first row, and bytes from row to row.
    codes: *const u8,
    groups: *const f32,
    stride: usize,
    rows: usize,
    /// A multiple of four.
    units: usize,
    y: *mut f32,
}

/// Where the operands of a tile begin.
#[derive(Clone, Copy)]
struct Tile {
    codes: *const u8,
    groups: *const f32,
    panel: *const u8,
    y: *mut f32,
}

/// First row of tile `t` of `m` rows: the last one begins early enough to be whole.
pub(super) fn first_row(t: usize, m: usize) -> usize {
    (t * ROWS).min(m - ROWS)
}

impl Operands {
    fn tiles(&self) -> usize {
        2 * self.rows.div_ceil(ROWS)
    }

    /// Tile `t`: two after one another have the same rows.
    fn tile(&self, t: usize) -> Tile {
        let (t, half) = (t / 2, t % 2);
        let at = first_row(t, self.rows) * self.stride;
        Tile {
            codes: self.codes.wrapping_add(at),
            groups: self.groups.wrapping_byte_add(at),
            panel: self.panel.wrapping_add(half * QUAD_BYTES),
            y: self.y.wrapping_add(t * ROWS * STRIP + half * LANES),
        }
    }
}

/// Fills a tile register with the dots of 16 rows of codes and 16 outputs of quads.
macro_rules! dot {
    ($seeded:ident, $c:literal, $a:literal, $b:literal, $codes:expr, $stride:expr, $quads:expr) => {
        if $seeded {
            asm!(
                concat!("tileloadd tmm", $c, ", [{seeds} + {none}]"),
                concat!("tileloadd tmm", $a, ", [{codes} + {stride}]"),
                concat!("tileloadd tmm", $b, ", [{quads} + {two}]"),
                concat!("tdpbssd tmm", $c, ", tmm", $a, ", tmm", $b),
                seeds = in(reg) &raw const SEEDS, none = in(reg) 0usize, codes = in(reg) $codes, stride = in(reg) $stride,
                quads = in(reg) $quads, two = in(reg) 2 * QUAD_BYTES, options(nostack, readonly, preserves_flags)
            )
        } else {
            asm!(
                concat!("tilezero tmm", $c),
                concat!("tileloadd tmm", $a, ", [{codes} + {stride}]"),
                concat!("tileloadd tmm", $b, ", [{quads} + {two}]"),
                concat!("tdpbssd tmm", $c, ", tmm", $a, ", tmm", $b),
                codes = in(reg) $codes, stride = in(reg) $stride, quads = in(reg) $quads, two = in(reg) 2 * QUAD_BYTES,
                options(nostack, readonly, preserves_flags)
            )
        }
    };
}

/// Puts a tile register into the ring.
macro_rules! keep {
    ($c:literal, $ring:ident) => {
        asm!(
            concat!("tilestored [{ring} + {row} + ", $c, "*1024], tmm", $c),
            ring = in(reg) $ring, row = in(reg) 4 * LANES, options(nostack, preserves_flags)
        )
    };
}

// The steps of a row of `scale`. `d` and `e` are the group floats of rows 0 and 8, `i` is its slot of the ring.
#[rustfmt::skip]
macro_rules! at {
    (0) => {"{d}"}; (1) => {"{d}+{s}"}; (2) => {"{d}+2*{s}"}; (3) => {"{d}+{s3}"};
    (4) => {"{d}+4*{s}"}; (5) => {"{d}+{s5}"}; (6) => {"{d}+2*{s3}"}; (7) => {"{d}+{s7}"};
    (8) => {"{e}"}; (9) => {"{e}+{s}"}; (10) => {"{e}+2*{s}"}; (11) => {"{e}+{s3}"};
    (12) => {"{e}+4*{s}"}; (13) => {"{e}+{s5}"}; (14) => {"{e}+2*{s3}"}; (15) => {"{e}+{s7}"};
}
#[rustfmt::skip]
macro_rules! step {
    (seeded, $r:tt) => { concat!("vmovaps zmm30, [{i}+64*", $r, "]\nvfmadd213ps zmm30, {s0}, {c0}\n") };
    (plain, $r:tt) => { concat!("vcvtdq2ps zmm30, [{i}+64*", $r, "]\nvmulps zmm30, zmm30, {s0}\n") };
    (seeded16, $r:tt) => { concat!(step!(seeded, $r), "vaddps zmm31, {g}, [{i}+64*", $r, "+1024]\nvfmadd231ps zmm30, zmm31, {s1}\n") };
    (plain16, $r:tt) => { concat!(step!(plain, $r), "vcvtdq2ps zmm31, [{i}+64*", $r, "+1024]\nvfmadd231ps zmm30, zmm31, {s1}\n") };
    (none, $r:tt) => { "" };
    (mins, $r:tt) => { concat!("vfnmadd231ps zmm30, {m0}, dword ptr [", at!($r), "+4]{{1to16}}\n") };
    (mins16, $r:tt) => { concat!("vfnmadd231ps zmm30, {m0}, dword ptr [", at!($r), "+8]{{1to16}}\n",
        "vfnmadd231ps zmm30, {m1}, dword ptr [", at!($r), "+12]{{1to16}}\n") };
    (sum, $r:tt) => { concat!("vfmadd231ps {y", $r, "}, zmm30, dword ptr [", at!($r), "]{{1to16}}\n") };
}
macro_rules! steps {
    ($product:ident, $mins:ident, [$($r:tt)*]) => { concat!($(step!($product, $r), step!($mins, $r), step!(sum, $r)),*) };
}

/// Adds the units of k to all tiles of a strip. `SUB16`: two sub-blocks a unit; `MINS`; `SEEDED`: as the module says.
///
/// # Safety
/// Needs AMX with int8 and AVX-512; operands as described, at least 16 rows.
#[target_feature(enable = "avx512f")]
unsafe fn run<const SUB16: bool, const MINS: bool, const SEEDED: bool>(o: &Operands) {
    let mut ring = MaybeUninit::<Ring>::uninit();
    let ring = ring.as_mut_ptr().cast::<i32>();
    let (stride, unit) = (o.stride, o.shape.unit);
    let (stride3, stride5, stride7) = (3 * stride, 5 * stride, 7 * stride);
    let minus_seed = _mm512_set1_ps(-SEED);
    let mut y = [_mm512_setzero_ps(); ROWS];

    // Dot `slot` of the four that begin at these codes and quads.
    macro_rules! dot_of {
        ($slot:literal, $c:literal, $a:literal, $b:literal, $codes:ident, $quads:ident) => {{
            let (codes, quads) = if SUB16 {
                (
                    $codes.wrapping_add(16 * $slot),
                    $quads.wrapping_add(unit * ($slot / 2) + 8 * QUAD_BYTES * ($slot % 2)),
                )
            } else {
                ($codes.wrapping_add(32 * $slot), $quads.wrapping_add(unit * $slot))
            };
            dot!(SEEDED, $c, $a, $b, codes, stride, quads)
        }};
    }
    macro_rules! dots {
        (0, $codes:ident, $quads:ident) => {
            dot_of!(0, 0, 4, 6, $codes, $quads)
        };
        (1, $codes:ident, $quads:ident) => {
            dot_of!(1, 1, 5, 7, $codes, $quads)
        };
        (2, $codes:ident, $quads:ident) => {
            dot_of!(2, 2, 4, 6, $codes, $quads)
        };
        (3, $codes:ident, $quads:ident) => {
            dot_of!(3, 3, 5, 7, $codes, $quads)
        };
    }
    macro_rules! rows {
        ($product:ident, $mins:ident, $i:ident, $d:ident, $s:ident, $m:ident) => {
            asm!(
                steps!($product, $mins, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]),
                // What some kinds leave unused.
                "/* {c0} {s1} {m0} {m1} {g} */",
                i = in(reg) $i, d = in(reg) $d, e = in(reg) $d.wrapping_byte_add(8 * stride),
                s = in(reg) stride, s3 = in(reg) stride3, s5 = in(reg) stride5, s7 = in(reg) stride7,
                s0 = in(zmm_reg) $s[0], c0 = in(zmm_reg) _mm512_mul_ps($s[0], minus_seed), s1 = in(zmm_reg) $s[1],
                m0 = in(zmm_reg) $m[0], m1 = in(zmm_reg) $m[1], g = in(zmm_reg) minus_seed,
                y0 = inout(zmm_reg) y[0], y1 = inout(zmm_reg) y[1], y2 = inout(zmm_reg) y[2], y3 = inout(zmm_reg) y[3],
                y4 = inout(zmm_reg) y[4], y5 = inout(zmm_reg) y[5], y6 = inout(zmm_reg) y[6], y7 = inout(zmm_reg) y[7],
                y8 = inout(zmm_reg) y[8], y9 = inout(zmm_reg) y[9], y10 = inout(zmm_reg) y[10], y11 = inout(zmm_reg) y[11],
                y12 = inout(zmm_reg) y[12], y13 = inout(zmm_reg) y[13], y14 = inout(zmm_reg) y[14], y15 = inout(zmm_reg) y[15],
                out("zmm30") _, out("zmm31") _, options(nostack, readonly, preserves_flags)
            )
        };
    }
    // Adds the unit `u` after `panel` and `groups`, whose first dot is in `slot`.
    macro_rules! scale {
        ($slot:literal, $u:literal, $panel:ident, $groups:ident) => {{
            let from = $panel.wrapping_add(unit * $u + o.shape.scales).cast::<f32>();
            let load = |i: usize| _mm512_load_ps(from.wrapping_add(STRIP * i));
            let s = [load(0), if SUB16 { load(1) } else { minus_seed }];
            let m = match (MINS, SUB16) {
                (true, true) => [load(2), load(3)],
                (true, false) => [load(1), minus_seed],
                _ => [minus_seed; 2],
            };
            let d = $groups.wrapping_add(4 * $u);
            let i = ring.wrapping_add($slot * ROWS * LANES);
            match (SUB16, MINS, SEEDED) {
                (false, false, false) => rows!(plain, none, i, d, s, m),
                (false, false, true) => rows!(seeded, none, i, d, s, m),
                (false, true, false) => rows!(plain, mins, i, d, s, m),
                (false, true, true) => rows!(seeded, mins, i, d, s, m),
                (true, false, false) => rows!(plain16, none, i, d, s, m),
                (true, false, true) => rows!(seeded16, none, i, d, s, m),
                (true, true, false) => rows!(plain16, mins16, i, d, s, m),
                (true, true, true) => rows!(seeded16, mins16, i, d, s, m),
            }
        }};
    }

    let four = if SUB16 { 2 } else { 4 };
    let mut tile = o.tile(0);
    // SAFETY: the caller's promise.
    unsafe {
        let config = if SUB16 { &raw const HALVES } else { &raw const UNITS };
        asm!("ldtilecfg [{}]", in(reg) config, options(nostack, readonly, preserves_flags));
        let (codes, panel) = (tile.codes, tile.panel);
        dots!(0, codes, panel);
        dots!(1, codes, panel);
        dots!(2, codes, panel);
        keep!(0, ring);
        dots!(3, codes, panel);
        keep!(1, ring);
        for t in 1..=o.tiles() {
            // The last tile's own first dots are made once more, for nobody.
            let next = if t < o.tiles() { o.tile(t) } else { tile };
            for (r, y) in y.iter_mut().enumerate() {
                *y = _mm512_loadu_ps(tile.y.add(STRIP * r));
            }
            let (mut panel, mut groups) = (tile.panel, tile.groups);
            let (mut codes, mut quads) = (tile.codes, tile.panel);
            let mut left = o.units;
            while left > 0 {
                left -= four;
                (codes, quads) = if left > 0 {
                    (codes.wrapping_add(four * UNIT), quads.wrapping_add(four * unit))
                } else {
                    (next.codes, next.panel)
                };
                dots!(0, codes, quads);
                keep!(2, ring);
                if SUB16 {
                    dots!(1, codes, quads);
                    keep!(3, ring);
                    scale!(0, 0, panel, groups);
                } else {
                    scale!(0, 0, panel, groups);
                    dots!(1, codes, quads);
                    keep!(3, ring);
                    scale!(1, 1, panel, groups);
                }
                dots!(2, codes, quads);
                keep!(0, ring);
                if SUB16 {
                    dots!(3, codes, quads);
                    keep!(1, ring);
                    scale!(2, 1, panel, groups);
                } else {
                    scale!(2, 2, panel, groups);
                    dots!(3, codes, quads);
                    keep!(1, ring);
                    scale!(3, 3, panel, groups);
                }
                panel = panel.wrapping_add(four * unit);
                groups = groups.wrapping_add(four * 4);
            }
            for (r, y) in y.into_iter().enumerate() {
                _mm512_storeu_ps(tile.y.add(STRIP * r), y);
            }
            tile = next;
        }
    }
}

/// Adds `units` units (a multiple of four) of k, from element `k0` on, to all rows of the block (at least 16). `y` has 32 sums a row, tile after
/// tile ([`first_row`]). Tile registers stay in use until [`release`].
///
/// # Safety
/// Needs AMX with int8 and AVX-512; the panel must hold these units with signed codes, `y` whole tiles of sums.
pub(super) unsafe fn strip(
    layout: &Layout,
    panel: *const u8,
    block: &Block<'_>,
    (k0, units): (usize, usize),
    y: *mut f32,
) {
    debug_assert!(units.is_multiple_of(4) && units > 0 && block.m >= ROWS);
    let o = &Operands {
        panel,
        shape: PanelShape::of(layout),
        codes: block.base.wrapping_add(k0),
        groups: block.base.wrapping_add(block.groups + k0 / 2).cast(),
        stride: block.stride,
        rows: block.m,
        units,
        y,
    };
    let seeded = matches!(layout.super_scale, Super::F16 { .. });
    // SAFETY: passed through.
    unsafe {
        match (layout.sub == 16, layout.asymmetric, seeded) {
            (false, false, false) => run::<false, false, false>(o),
            (false, false, true) => run::<false, false, true>(o),
            (false, true, false) => run::<false, true, false>(o),
            (false, true, true) => run::<false, true, true>(o),
            (true, false, false) => run::<true, false, false>(o),
            (true, false, true) => run::<true, false, true>(o),
            (true, true, false) => run::<true, true, false>(o),
            (true, true, true) => run::<true, true, true>(o),
        }
    }
}

/// Gives the tile registers back, so that a thread's switches cost no more than before.
///
/// # Safety
/// Needs AMX.
pub(super) unsafe fn release() {
    // SAFETY: passed through.
    unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) }
}

const _: () = assert!(STRIP == 2 * LANES && QUAD_BYTES == 64 && LANES == 16);
