//! The core for few rows: packed weights are streamed once, unpacked in registers, and multiplied with every row of the batch.
//!
//! The unit of work is a strip of 32 outputs. Bound: the read bandwidth of the packed weights for up to about eight rows.
#![allow(unsafe_code)]

/// The stage that varies by format: width of codes, table, sub-blocks of 16, mins; then width of integer scales and mins. Calls `$rows` with
/// these, after what else it is generic over; unsafe as that is.
#[cfg(target_arch = "x86_64")]
macro_rules! by_format {
    ($rows:ident, [$($way:ident),*], $t:expr, $y:expr, $at:expr) => {{
        use crate::packed::layout::Super;
        use crate::packed::unpack::{ANY, E8M0, PLAIN, UE4M3};
        let (t, y, at): (&$crate::matvec::Tile<'_>, _, _) = ($t, $y, $at);
        let l = t.layout;
        let sc = match l.super_scale {
            Super::F16 { .. } => l.sc_bits,
            Super::F32 => ANY,
            Super::E8M0 => E8M0,
            Super::Ue4m3 => UE4M3,
        };
        match (l.bits, l.table.is_some(), l.sub == 16, l.asymmetric, sc, l.m_bits) {
            (1, true, false, false, PLAIN, 0) => $rows::<$($way,)* 1, true, false, false, PLAIN, 0>(t, y, at),
            (2, false, false, false, PLAIN, 0) => $rows::<$($way,)* 2, false, false, false, PLAIN, 0>(t, y, at),
            (2, false, true, true, 4, 4) => $rows::<$($way,)* 2, false, true, true, 4, 4>(t, y, at),
            (3, false, true, false, 6, 0) => $rows::<$($way,)* 3, false, true, false, 6, 0>(t, y, at),
            (3, true, false, false, 4, 0) => $rows::<$($way,)* 3, true, false, false, 4, 0>(t, y, at),
            (3, true, false, false, 5, 0) => $rows::<$($way,)* 3, true, false, false, 5, 0>(t, y, at),
            (3, true, true, false, 4, 0) => $rows::<$($way,)* 3, true, true, false, 4, 0>(t, y, at),
            (3, true, true, false, 5, 0) => $rows::<$($way,)* 3, true, true, false, 5, 0>(t, y, at),
            (4, false, false, false, PLAIN, 0) => $rows::<$($way,)* 4, false, false, false, PLAIN, 0>(t, y, at),
            (4, false, false, true, PLAIN, 0) => $rows::<$($way,)* 4, false, false, true, PLAIN, 0>(t, y, at),
            (4, false, false, true, 6, 6) => $rows::<$($way,)* 4, false, false, true, 6, 6>(t, y, at),
            (4, true, false, false, PLAIN, 0) => $rows::<$($way,)* 4, true, false, false, PLAIN, 0>(t, y, at),
            (4, true, false, false, 5, 0) => $rows::<$($way,)* 4, true, false, false, 5, 0>(t, y, at),
            (4, true, false, false, 6, 0) => $rows::<$($way,)* 4, true, false, false, 6, 0>(t, y, at),
            (4, true, true, false, 5, 0) => $rows::<$($way,)* 4, true, true, false, 5, 0>(t, y, at),
            (4, true, false, false, E8M0, 0) => $rows::<$($way,)* 4, true, false, false, E8M0, 0>(t, y, at),
            (4, true, true, false, UE4M3, 0) => $rows::<$($way,)* 4, true, true, false, UE4M3, 0>(t, y, at),
            (5, false, false, false, PLAIN, 0) => $rows::<$($way,)* 5, false, false, false, PLAIN, 0>(t, y, at),
            (5, false, false, true, PLAIN, 0) => $rows::<$($way,)* 5, false, false, true, PLAIN, 0>(t, y, at),
            (5, false, false, true, 6, 6) => $rows::<$($way,)* 5, false, false, true, 6, 6>(t, y, at),
            (6, false, true, false, 8, 0) => $rows::<$($way,)* 6, false, true, false, 8, 0>(t, y, at),
            (8, false, false, false, PLAIN, 0) => $rows::<$($way,)* 8, false, false, false, PLAIN, 0>(t, y, at),
            // Other scales: all of a group's are computed at its beginning.
            (8, false, false, false, ..) => $rows::<$($way,)* 8, false, false, false, ANY, 0>(t, y, at),
            _ => t.portable(y, at),
        }
    }};
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod scalar;

use crate::contract::{Finish, Rows};
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::{Ahead, Vectors, ahead};
use crate::packed::layout::{LANES, Layout};
use crate::packed::{FloatKind, Kind, PackedMatrix, STRIP};

/// Rows that one pass over a strip serves.
pub(crate) const MAX_ROWS: usize = 32;

/// Results of a strip: a row of 32 outputs for every activation row.
pub(crate) type StripOut = [[f32; STRIP]; MAX_ROWS];

/// Quantized rows as a core reads them.
pub(crate) struct IntRows<'a> {
    /// Records (see `crate::activations`).
    pub(crate) rows: &'a [*const u8],
    /// Byte offset of the group floats in a record.
    pub(crate) groups: usize,
    /// `−offset · Σ codes` of each sub-block, `init_stride` apart from row to row: what integer dots start from.
    pub(crate) init: &'a [i32],
    pub(crate) init_stride: usize,
}

/// The contraction of some rows with any strip of `P` matrices; made once a thread and contraction.
pub(crate) struct Strips<'a, const P: usize> {
    isa: Isa,
    w: [&'a PackedMatrix; P],
    /// Input record (or float row) and output row of each batch row.
    inputs: Vec<*const u8>,
    outputs: Vec<usize>,
    groups: usize,
    inits: [Vec<i32>; P],
    init_strides: [usize; P],
    /// Results of the strip at hand: kept, because clearing it for every strip costs as much as a unit or two of the core.
    y: Box<[StripOut; P]>,
}

impl<'a, const P: usize> Strips<'a, P> {
    /// For `m` rows; `row(i)` says which row of `x` is contracted and which row of the result it is.
    pub(crate) fn new(
        isa: Isa,
        w: [&'a PackedMatrix; P],
        x: Rows<'a>,
        m: usize,
        row: impl Fn(usize) -> (usize, usize),
    ) -> Self {
        let (mut inputs, mut outputs) = (Vec::with_capacity(m), Vec::with_capacity(m));
        for (input, output) in (0..m).map(row) {
            inputs.push(match x {
                Rows::Quantized(a) => a.row_ptr(input),
                Rows::Float { data, stride } => data[input * stride..].as_ptr().cast(),
            });
            outputs.push(output);
        }
        let mut groups = 0;
        let mut inits = [const { Vec::new() }; P];
        let mut init_strides = [0; P];
        if let Rows::Quantized(a) = x {
            let layout = a.layout();
            groups = layout.groups;
            for ((w, init), stride) in w.iter().zip(&mut inits).zip(&mut init_strides) {
                if let Kind::Int(weights) = w.kind() {
                    *stride = a.k() / weights.sub;
                    init.reserve_exact(*stride * m);
                    for &record in &inputs {
                        // SAFETY: the record has k/16 sums at `sums`.
                        let sums = unsafe {
                            std::slice::from_raw_parts(record.add(layout.sums).cast::<i16>(), a.k() / 16)
                        };
                        push_init(weights, sums, init);
                    }
                }
            }
        }
        let y = Box::new([[[0.0; STRIP]; MAX_ROWS]; P]);
        Strips { isa, w, inputs, outputs, groups, inits, init_strides, y }
    }

    /// Computes strip `strip` of expert `expert` for all rows and hands the results to `out`.
    pub(crate) fn compute(&mut self, expert: usize, strip: usize, out: &dyn Finish<P>) {
        let Some(first) = self.w.first() else { return };
        let n0 = strip * STRIP;
        let n = STRIP.min(first.n_out() - n0);
        for (c, (inputs, outputs)) in
            self.inputs.chunks(MAX_ROWS).zip(self.outputs.chunks(MAX_ROWS)).enumerate()
        {
            for (p, (w, y)) in self.w.iter().zip(self.y.iter_mut()).enumerate() {
                match w.kind() {
                    Kind::Int(layout) => {
                        let stride = self.init_strides[p];
                        let rows = IntRows {
                            rows: inputs,
                            groups: self.groups,
                            init: &self.inits[p][c * MAX_ROWS * stride..],
                            init_stride: stride,
                        };
                        int_strip(self.isa, layout, w, expert, strip, &rows, y);
                    }
                    Kind::Float(kind) => float_strip(self.isa, *kind, w, expert, strip, inputs, y),
                }
            }
            for (i, &m) in outputs.iter().enumerate() {
                let y = self.y.each_mut().map(|y| &mut y[i][..n]);
                // SAFETY: every strip is claimed once, and output rows are distinct.
                unsafe { out.finish(m, n0, y) };
            }
        }
    }
}

/// Appends `−offset · Σ codes` of every sub-block.
pub(crate) fn push_init(layout: &Layout, sums: &[i16], init: &mut Vec<i32>) {
    if layout.sub == 16 {
        init.extend(sums.iter().map(|&s| -layout.offset * i32::from(s)));
    } else {
        init.extend(
            sums.as_chunks::<2>().0.iter().map(|&[a, b]| -layout.offset * (i32::from(a) + i32::from(b))),
        );
    }
}

/// A tile of 16 outputs, and the rows of a pass over it.
#[cfg(target_arch = "x86_64")]
struct Tile<'a> {
    layout: &'a Layout,
    tile: *const u8,
    k: usize,
    rows: &'a [*const u8],
    groups: usize,
    init: &'a [i32],
    init_stride: usize,
    ahead: Ahead,
}

#[cfg(target_arch = "x86_64")]
impl<'a> Tile<'a> {
    /// With `rows` of `x`, which begin at its row `first`.
    fn new(
        layout: &'a Layout,
        tile: *const u8,
        k: usize,
        x: &IntRows<'a>,
        first: usize,
        rows: &'a [*const u8],
    ) -> Self {
        let init = &x.init[first * x.init_stride..];
        Tile {
            layout,
            tile,
            k,
            rows,
            groups: x.groups,
            init,
            init_stride: x.init_stride,
            ahead: ahead(rows.len()),
        }
    }

    /// By the portable core, for formats that no other has.
    ///
    /// # Safety
    /// All pointers must be what they are said to be.
    unsafe fn portable(&self, y: &mut [[f32; STRIP]], at: usize) {
        let bytes = self.layout.tile_bytes(self.k).unwrap_or(0);
        let x =
            IntRows { rows: self.rows, groups: self.groups, init: self.init, init_stride: self.init_stride };
        // SAFETY: passed through.
        unsafe {
            scalar::int_tile(self.layout, std::slice::from_raw_parts(self.tile, bytes), self.k, &x, at, y)
        }
    }
}

/// Prefetches `lines` lines at both distances, the far ones to the level that `FAR` hints at.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch<const FAR: i32>(ahead: Ahead, from: *const u8, lines: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    if ahead.near > 0 {
        for i in 0..lines {
            // SAFETY: a prefetch never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(ahead.near + 64 * i).cast()) };
        }
    }
    if ahead.far > 0 {
        for i in 0..lines {
            // SAFETY: as above.
            unsafe { _mm_prefetch::<FAR>(from.wrapping_add(ahead.far + 64 * i).cast()) };
        }
    }
}

fn int_strip(
    isa: Isa,
    layout: &Layout,
    w: &PackedMatrix,
    expert: usize,
    strip: usize,
    rows: &IntRows<'_>,
    y: &mut StripOut,
) {
    for half in 0..2 {
        let tile = w.tile(expert, 2 * strip + half);
        let at = half * LANES;
        // SAFETY: a tile has `tile_bytes` bytes, the pool has checked the instruction set.
        unsafe {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Amx => avx512::int_tile(layout, tile, w.n_in(), rows, at, y),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 | Isa::AvxVnni => {
                    avx2::int_tile(layout, tile, w.n_in(), rows, at, y, isa == Isa::AvxVnni);
                }
                _ => {
                    let tile = std::slice::from_raw_parts(tile, w.tile_bytes());
                    scalar::int_tile(layout, tile, w.n_in(), rows, at, y);
                }
            }
        }
    }
}

fn float_strip(
    isa: Isa,
    kind: FloatKind,
    w: &PackedMatrix,
    expert: usize,
    strip: usize,
    rows: &[*const u8],
    y: &mut StripOut,
) {
    let tiles = [0, 1].map(|half| w.tile(expert, 2 * strip + half));
    // SAFETY: a tile has `tile_bytes` bytes, every row has `n_in` floats, the pool has checked the instruction set.
    unsafe {
        match isa.vectors() {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => avx512::float_strip(kind, tiles, w.n_in(), rows, y),
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 { .. } => avx2::float_strip(kind, tiles, w.n_in(), rows, y),
            _ => {
                for (half, tile) in tiles.into_iter().enumerate() {
                    let tile = std::slice::from_raw_parts(tile, w.tile_bytes());
                    scalar::float_tile(kind, tile, w.n_in(), rows, half * LANES, y);
                }
            }
        }
    }
}
