//! The register tile of the AVX2 core: 16 outputs × up to 4 rows, in assembly.
//!
//! The integer sums of all rows (8 registers), the weights of a quad (2), and what is being multiplied fill the 16 registers; a compiler
//! given the same loop as intrinsics reorders it by rows and keeps the weights on the stack, which costs a third of the time. The
//! accumulators live in memory: one fma reads them and one store writes them back, once a unit. Ways, by the width of the codes (`super::avx2` chooses):
//!
//! ```text
//! narrow   up to 8 products' pairs are added in 16 bits, then widened   2 operations a quad and 8 outputs, and a bit
//! halves   the same, in two groups of 4 quads
//! pairs    two of them                                                  2.5
//! single   widened at once                                              3
//! signed   likewise; the sign of the code is moved to the activation    4, the whole of four ports
//! ```
//!
//! Order of accumulation, as everywhere: `p = scale0 · dot0`, `p = fma(scale1, dot1, p)` where sub-blocks have 16 elements, mins by
//! `fnmadd`, then `acc = fma(d, p, acc)`.
#![allow(unsafe_code)]

use std::arch::asm;

use crate::packed::layout::{QUAD_BYTES, QUADS};

/// Most rows of a tile.
pub(super) const ROWS: usize = 4;

/// How the products of a quad are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In 16 bits over a whole sub-block.
    Narrow,
    /// In 16 bits over 4 quads.
    Halves,
    /// In 16 bits over 2 quads (sub-blocks of 16).
    Pairs,
    /// Widened quad by quad.
    Single,
    /// The same, with signed codes.
    Signed,
}

impl Way {
    /// Bytes that a unit of a tile asks memory for: what two such tiles (8 rows) multiply while the same number of units is to be read,
    /// by the widest codes of the way and less their scales, which the unpacking asks for.
    pub(super) fn fetched(self) -> usize {
        match self {
            Way::Narrow => 128,
            Way::Halves | Way::Pairs | Way::Single => 192,
            Way::Signed => 256,
        }
    }
}
/// Asks for that many bytes.
macro_rules! fetch {
    (narrow) => {
        "prefetcht0 [{f}]\nprefetcht0 [{f}+64]\nsub {f}, -128\n"
    };
    (signed) => {
        "prefetcht0 [{f}]\nprefetcht0 [{f}+64]\nprefetcht0 [{f}+128]\nprefetcht0 [{f}+192]\nadd {f}, 256\n"
    };
    ($way:ident) => {
        "prefetcht0 [{f}]\nprefetcht0 [{f}+64]\nprefetcht0 [{f}+128]\nadd {f}, 192\n"
    };
}

/// Operands of a tile: pointers at its first unit of k, strides in bytes.
pub(super) struct Pointers {
    /// Codes of the tile's 16 outputs.
    pub(super) w: *const u8,
    /// Their scales, then mins.
    pub(super) scales: *const u8,
    /// Codes, and group floats, of the first row.
    pub(super) a: *const u8,
    pub(super) d: *const u8,
    pub(super) stride: usize,
    /// Initial values of the dots; not read where there are mins, nor for signed codes.
    pub(super) init: *const i32,
    pub(super) init_stride: usize,
    pub(super) units: usize,
    /// Accumulators: rows of 128 bytes.
    pub(super) y: *mut f32,
    /// What to ask memory for, [`Way::fetched`] bytes with every unit.
    pub(super) next: *const u8,
}

/// What a tile keeps in memory: sixteen-bit ones, then a product of each row.
#[repr(C, align(32))]
struct Memory {
    ones: [i16; 16],
    kept: [[u8; 64]; ROWS],
}

impl Memory {
    fn new() -> Self {
        Memory { ones: [1; 16], kept: [[0; 64]; ROWS] }
    }
}

macro_rules! row {
    (0) => {
        ""
    };
    (1) => {
        "+{s}"
    };
    (2) => {
        "+2*{s}"
    };
    (3) => {
        "+{s3}"
    };
}
macro_rules! init {
    (0) => {
        ""
    };
    (1) => {
        "+{t}"
    };
    (2) => {
        "+2*{t}"
    };
    (3) => {
        "+{t3}"
    };
}
/// The sum of outputs 0 to 7, and of 8 to 15, of a row.
macro_rules! s0 {
    (0) => {
        "ymm0"
    };
    (1) => {
        "ymm2"
    };
    (2) => {
        "ymm4"
    };
    (3) => {
        "ymm6"
    };
}
macro_rules! s1 {
    (0) => {
        "ymm1"
    };
    (1) => {
        "ymm3"
    };
    (2) => {
        "ymm5"
    };
    (3) => {
        "ymm7"
    };
}
/// An instruction: its parts, one after the other.
macro_rules! op {
    ($($part:expr),+) => {
        concat!($($part),+, "\n")
    };
}
/// A piece of text for every row.
macro_rules! each {
    ($piece:ident, [$($c:tt)*], $x:tt) => {
        concat!($($piece!($c, $x)),*)
    };
}

/// The weights of a quad.
macro_rules! weights {
    ($q:tt, $w0:expr, $w1:expr) => {
        concat!(op!("vmovdqa ", $w0, ", [{w}+64*", $q, "]"), op!("vmovdqa ", $w1, ", [{w}+64*", $q, "+32]"))
    };
}
macro_rules! activations {
    ($c:tt, $q:tt, $a:expr) => {
        op!("vpbroadcastd ", $a, ", dword ptr [{a}", row!($c), "+4*", $q, "]")
    };
}

/// First quad of a group that is added in 16 bits, and the others.
macro_rules! narrow_first {
    ($c:tt, $q:tt) => {
        concat!(
            activations!($c, $q, "ymm10"),
            op!("vpmaddubsw ", s0!($c), ", ymm8, ymm10"),
            op!("vpmaddubsw ", s1!($c), ", ymm9, ymm10")
        )
    };
}
macro_rules! narrow_more {
    ($c:tt, $q:tt) => {
        concat!(
            activations!($c, $q, "ymm10"),
            "vpmaddubsw ymm11, ymm8, ymm10\n",
            "vpmaddubsw ymm12, ymm9, ymm10\n",
            op!("vpaddw ", s0!($c), ", ", s0!($c), ", ymm11"),
            op!("vpaddw ", s1!($c), ", ", s1!($c), ", ymm12")
        )
    };
}
macro_rules! widen {
    ($c:tt, $x:tt) => {
        concat!(
            op!("vpmaddwd ", s0!($c), ", ", s0!($c), ", ymm15"),
            op!("vpmaddwd ", s1!($c), ", ", s1!($c), ", ymm15")
        )
    };
}
/// Four quads from `q` on, of every row, as sums of 32 bits.
macro_rules! narrow4 {
    ($cols:tt, $q0:tt, $q1:tt, $q2:tt, $q3:tt) => {
        concat!(
            weights!($q0, "ymm8", "ymm9"),
            each!(narrow_first, $cols, $q0),
            narrow_rest!($cols, [$q1 $q2 $q3]),
            each!(widen, $cols, 0)
        )
    };
}
macro_rules! narrow_rest {
    ($cols:tt, [$($q:tt)*]) => {
        concat!($(weights!($q, "ymm8", "ymm9"), each!(narrow_more, $cols, $q)),*)
    };
}
/// Keeps the sums in memory; adds them again; starts from them as products.
macro_rules! keep {
    ($c:tt, $x:tt) => {
        concat!(
            op!("vmovdqa [{m}+32+64*", $c, "], ", s0!($c)),
            op!("vmovdqa [{m}+64+64*", $c, "], ", s1!($c))
        )
    };
}
macro_rules! join {
    ($c:tt, $x:tt) => {
        concat!(
            op!("vpaddd ", s0!($c), ", ", s0!($c), ", [{m}+32+64*", $c, "]"),
            op!("vpaddd ", s1!($c), ", ", s1!($c), ", [{m}+64+64*", $c, "]")
        )
    };
}

/// Two quads, whose pairs are added in 16 bits: `into` is the first or a later contribution to the sums.
macro_rules! pair {
    ($c:tt, ($q:tt, $next:tt, $into:ident)) => {
        concat!(
            activations!($c, $q, "ymm12"),
            activations!($c, $next, "ymm13"),
            "vpmaddubsw ymm14, ymm8, ymm12\n",
            "vpmaddubsw ymm15, ymm10, ymm13\n",
            "vpaddw ymm14, ymm14, ymm15\n",
            $into!(s0!($c), "ymm14", "[{m}]"),
            "vpmaddubsw ymm12, ymm9, ymm12\n",
            "vpmaddubsw ymm13, ymm11, ymm13\n",
            "vpaddw ymm12, ymm12, ymm13\n",
            $into!(s1!($c), "ymm12", "[{m}]")
        )
    };
}
macro_rules! begin {
    ($s:expr, $x:expr, $ones:expr) => {
        op!("vpmaddwd ", $s, ", ", $x, ", ", $ones)
    };
}
macro_rules! add {
    ($s:expr, $x:expr, $ones:expr) => {
        concat!(op!("vpmaddwd ", $x, ", ", $x, ", ", $ones), op!("vpaddd ", $s, ", ", $s, ", ", $x))
    };
}
macro_rules! two {
    ($cols:tt, $q:tt, $next:tt, $into:ident) => {
        concat!(
            weights!($q, "ymm8", "ymm9"),
            weights!($next, "ymm10", "ymm11"),
            each!(pair, $cols, ($q, $next, $into))
        )
    };
}

macro_rules! single {
    ($c:tt, ($q:tt, $into:ident)) => {
        concat!(
            activations!($c, $q, "ymm10"),
            "vpmaddubsw ymm13, ymm8, ymm10\n",
            "vpmaddubsw ymm14, ymm9, ymm10\n",
            $into!(s0!($c), "ymm13", "ymm15"),
            $into!(s1!($c), "ymm14", "ymm15")
        )
    };
}
macro_rules! signed {
    ($c:tt, ($q:tt, $into:ident)) => {
        concat!(
            activations!($c, $q, "ymm10"),
            "vpsignb ymm13, ymm10, ymm8\n",
            "vpsignb ymm14, ymm10, ymm9\n",
            "vpmaddubsw ymm13, ymm11, ymm13\n",
            "vpmaddubsw ymm14, ymm12, ymm14\n",
            $into!(s0!($c), "ymm13", "ymm15"),
            $into!(s1!($c), "ymm14", "ymm15")
        )
    };
}
macro_rules! one {
    (single, $cols:tt, $q:tt, $into:ident) => {
        concat!(weights!($q, "ymm8", "ymm9"), each!(single, $cols, ($q, $into)))
    };
    (signed, $cols:tt, $q:tt, $into:ident) => {
        concat!(
            weights!($q, "ymm8", "ymm9"),
            "vpabsb ymm11, ymm8\n",
            "vpabsb ymm12, ymm9\n",
            each!(signed, $cols, ($q, $into))
        )
    };
}

/// Quads of a whole unit, or of half of one, as sums of 32 bits, by way.
macro_rules! whole {
    (narrow, $cols:tt) => {
        concat!(
            weights!(0, "ymm8", "ymm9"),
            each!(narrow_first, $cols, 0),
            narrow_rest!($cols, [1 2 3 4 5 6 7]),
            each!(widen, $cols, 0)
        )
    };
    (halves, $cols:tt) => {
        concat!(
            narrow4!($cols, 0, 1, 2, 3),
            each!(keep, $cols, 0),
            narrow4!($cols, 4, 5, 6, 7),
            each!(join, $cols, 0)
        )
    };
    ($way:ident, $cols:tt) => {
        concat!(
            one!($way, $cols, 0, begin),
            one!($way, $cols, 1, add),
            one!($way, $cols, 2, add),
            one!($way, $cols, 3, add),
            one!($way, $cols, 4, add),
            one!($way, $cols, 5, add),
            one!($way, $cols, 6, add),
            one!($way, $cols, 7, add)
        )
    };
}
macro_rules! half {
    (narrow, $cols:tt, $q0:tt, $q1:tt, $q2:tt, $q3:tt) => {
        narrow4!($cols, $q0, $q1, $q2, $q3)
    };
    (pairs, $cols:tt, $q0:tt, $q1:tt, $q2:tt, $q3:tt) => {
        concat!(two!($cols, $q0, $q1, begin), two!($cols, $q2, $q3, add))
    };
    ($way:ident, $cols:tt, $q0:tt, $q1:tt, $q2:tt, $q3:tt) => {
        concat!(
            one!($way, $cols, $q0, begin),
            one!($way, $cols, $q1, add),
            one!($way, $cols, $q2, add),
            one!($way, $cols, $q3, add)
        )
    };
}

/// Adds the dots' initial values; nothing where there are mins, or codes are signed.
macro_rules! start {
    ($c:tt, $off:tt) => {
        concat!(
            op!("vpbroadcastd ymm10, dword ptr [{i}", init!($c), "+", $off, "]"),
            op!("vpaddd ", s0!($c), ", ", s0!($c), ", ymm10"),
            op!("vpaddd ", s1!($c), ", ", s1!($c), ", ymm10")
        )
    };
}
macro_rules! started {
    (init, $cols:tt, $off:tt) => {
        each!(start, $cols, $off)
    };
    ($x:ident, $cols:tt, $off:tt) => {
        ""
    };
}
/// Loads a pair of vectors of scales or mins.
macro_rules! scales {
    ($off:tt) => {
        concat!(op!("vmovaps ymm8, [{c}+", $off, "]"), op!("vmovaps ymm9, [{c}+", $off, "+32]"))
    };
}
macro_rules! product {
    ($c:tt, $x:tt) => {
        concat!(
            op!("vcvtdq2ps ", s0!($c), ", ", s0!($c)),
            op!("vcvtdq2ps ", s1!($c), ", ", s1!($c)),
            op!("vmulps ", s0!($c), ", ", s0!($c), ", ymm8"),
            op!("vmulps ", s1!($c), ", ", s1!($c), ", ymm9")
        )
    };
}
macro_rules! product_more {
    ($c:tt, $x:tt) => {
        concat!(
            op!("vcvtdq2ps ", s0!($c), ", ", s0!($c)),
            op!("vcvtdq2ps ", s1!($c), ", ", s1!($c)),
            op!("vfmadd213ps ", s0!($c), ", ymm8, [{m}+32+64*", $c, "]"),
            op!("vfmadd213ps ", s1!($c), ", ymm9, [{m}+64+64*", $c, "]")
        )
    };
}
macro_rules! min {
    ($c:tt, $off:tt) => {
        concat!(
            op!("vbroadcastss ymm10, dword ptr [{d}", row!($c), "+", $off, "]"),
            op!("vfnmadd231ps ", s0!($c), ", ymm8, ymm10"),
            op!("vfnmadd231ps ", s1!($c), ", ymm9, ymm10")
        )
    };
}
macro_rules! mins {
    (mins, $cols:tt, $off:tt, $sum:tt) => {
        concat!(scales!($off), each!(min, $cols, $sum))
    };
    ($x:ident, $cols:tt, $off:tt, $sum:tt) => {
        ""
    };
}
/// The unit's products times the activation's scale, into the accumulators.
macro_rules! accumulate {
    ($c:tt, $x:tt) => {
        concat!(
            op!("vbroadcastss ymm10, dword ptr [{d}", row!($c), "]"),
            op!("vfmadd213ps ", s0!($c), ", ymm10, [{y}+128*", $c, "]"),
            op!("vfmadd213ps ", s1!($c), ", ymm10, [{y}+128*", $c, "+32]"),
            op!("vmovups [{y}+128*", $c, "], ", s0!($c)),
            op!("vmovups [{y}+128*", $c, "+32], ", s1!($c))
        )
    };
}

/// A unit of k: sub-blocks of 32 or 16, dots with initial values, with mins, or neither.
macro_rules! unit {
    (32, $way:ident, $from:ident, $cols:tt) => {
        concat!(
            whole!($way, $cols),
            started!($from, $cols, 0),
            scales!(0),
            each!(product, $cols, 0),
            mins!($from, $cols, 128, 4),
            each!(accumulate, $cols, 0)
        )
    };
    (16, $way:ident, $from:ident, $cols:tt) => {
        concat!(
            half!($way, $cols, 0, 1, 2, 3),
            started!($from, $cols, 0),
            scales!(0),
            each!(product, $cols, 0),
            each!(keep, $cols, 0),
            half!($way, $cols, 4, 5, 6, 7),
            started!($from, $cols, 4),
            scales!(128),
            each!(product_more, $cols, 0),
            mins!($from, $cols, 256, 8),
            mins!($from, $cols, 384, 12),
            each!(accumulate, $cols, 0)
        )
    };
}
/// To the next unit: its bytes in the panel are codes of two tiles, then vectors of 128 bytes.
macro_rules! advance {
    (32, mins) => {
        "add {w}, 1280\nadd {c}, 1280\n"
    };
    (32, init) => {
        "add {w}, 1152\nadd {c}, 1152\nadd {i}, 4\n"
    };
    (32, none) => {
        "add {w}, 1152\nadd {c}, 1152\n"
    };
    (16, mins) => {
        "add {w}, 1536\nadd {c}, 1536\n"
    };
    (16, init) => {
        "add {w}, 1280\nadd {c}, 1280\nadd {i}, 8\n"
    };
    (16, none) => {
        "add {w}, 1280\nadd {c}, 1280\n"
    };
}

macro_rules! body {
    ($sub:tt, $way:ident, $from:ident, $cols:tt, $p:ident) => {{
        let mut memory = Memory::new();
        asm!(
            "vmovdqa ymm15, [{m}]",
            ".p2align 5",
            "2:",
            fetch!($way),
            unit!($sub, $way, $from, $cols),
            advance!($sub, $from),
            "add {a}, 32",
            "add {d}, 16",
            "dec {n}",
            "jnz 2b",
            // Columns and kinds that need fewer addresses leave some unused.
            "/* {s} {s3} {i} {t} {t3} */",
            w = inout(reg) $p.w => _,
            c = inout(reg) $p.scales => _,
            a = inout(reg) $p.a => _,
            d = inout(reg) $p.d => _,
            i = inout(reg) $p.init => _,
            n = inout(reg) $p.units => _,
            y = in(reg) $p.y,
            s = in(reg) $p.stride,
            s3 = in(reg) 3 * $p.stride,
            t = in(reg) $p.init_stride,
            t3 = in(reg) 3 * $p.init_stride,
            m = in(reg) &raw mut memory,
            f = inout(reg) $p.next => _,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _, out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack)
        );
    }};
}

/// A function of its own for every kind: they are long.
macro_rules! by_columns {
    ($name:ident, $sub:tt, $way:ident, $from:ident) => {
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $name(cols: usize, p: &Pointers) {
            // SAFETY: the caller's promise.
            unsafe {
                match cols {
                    1 => body!($sub, $way, $from, [0], p),
                    2 => body!($sub, $way, $from, [0 1], p),
                    3 => body!($sub, $way, $from, [0 1 2], p),
                    _ => body!($sub, $way, $from, [0 1 2 3], p),
                }
            }
        }
    };
}
by_columns!(narrow32, 32, narrow, init);
by_columns!(narrow32_mins, 32, narrow, mins);
by_columns!(narrow16, 16, narrow, init);
by_columns!(narrow16_mins, 16, narrow, mins);
by_columns!(halves32, 32, halves, init);
by_columns!(halves32_mins, 32, halves, mins);
by_columns!(pairs16, 16, pairs, init);
by_columns!(single32, 32, single, init);
by_columns!(single32_mins, 32, single, mins);
by_columns!(single16, 16, single, init);
by_columns!(single16_mins, 16, single, mins);
by_columns!(signed32, 32, signed, none);
by_columns!(signed16, 16, signed, none);

/// Adds `units` (at least 1) units of k to a tile of `cols` rows (1 to [`ROWS`]) of a format with sub-blocks of `sub` elements.
///
/// # Safety
/// Needs AVX2 and FMA; the pointers must be those of a panel unpacked for this way and of this many rows and units.
pub(super) unsafe fn tile(way: Way, sub: usize, mins: bool, cols: usize, p: &Pointers) {
    debug_assert!((1..=ROWS).contains(&cols) && p.units > 0);
    // SAFETY: passed through. A way for narrower codes than these would overflow; a way for wider ones is right for all.
    unsafe {
        match (way, sub == 16, mins) {
            (Way::Narrow, false, false) => narrow32(cols, p),
            (Way::Narrow, false, true) => narrow32_mins(cols, p),
            (Way::Narrow | Way::Halves, true, false) => narrow16(cols, p),
            (Way::Narrow | Way::Halves, true, true) => narrow16_mins(cols, p),
            (Way::Halves, false, false) => halves32(cols, p),
            (Way::Halves, false, true) => halves32_mins(cols, p),
            (Way::Pairs, true, false) => pairs16(cols, p),
            (Way::Signed, false, _) => signed32(cols, p),
            (Way::Signed, true, _) => signed16(cols, p),
            (_, false, false) => single32(cols, p),
            (_, false, true) => single32_mins(cols, p),
            (_, true, false) => single16(cols, p),
            (_, true, true) => single16_mins(cols, p),
        }
    }
}

const _: () = assert!(QUADS == 8 && QUAD_BYTES == 64);
