//! From raw rows to the packed layout.
//!
//! Strips of 32 rows are claimed by the threads of the pool; each reads its rows into a small buffer and writes its tiles.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use half::f16;
use hanzo_quant::Format;

use super::layout::{GROUP_ELEMS, LANES, Layout, QUAD_BYTES, QUADS, Super, UNIT, write_planes};
use super::unpack::ue4m3_half;
use super::{Buffer, FloatKind, Kind, RowSource, STRIP, advance, keep_first};
use crate::CpuError;
use crate::pool::Pool;

/// A matrix to be packed; sizes are checked.
pub(super) struct Job<'a> {
    pub(super) format: &'static Format,
    pub(super) kind: &'a Kind,
    pub(super) experts: usize,
    pub(super) n_out: usize,
    pub(super) n_in: usize,
    pub(super) tile_bytes: usize,
    pub(super) row_bytes: usize,
}

/// Lets threads write disjoint tiles of one buffer.
struct Tiles(*mut u8);
// SAFETY: every tile is written by the one thread that claimed its strip.
unsafe impl Sync for Tiles {}

impl Tiles {
    /// # Safety
    /// `at..at + len` must lie in the buffer, and nobody else may hold it.
    #[allow(clippy::mut_from_ref)]
    unsafe fn slice(&self, at: usize, len: usize) -> &mut [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(at), len) }
    }
}

impl Job<'_> {
    pub(super) fn run(
        &self,
        data: &mut Buffer,
        source: &(impl RowSource + ?Sized),
        pool: &Pool,
        progress: Option<&AtomicU64>,
    ) -> Result<(), CpuError> {
        let strips = self.n_out.div_ceil(STRIP);
        let error = Mutex::new(None);
        let tiles = Tiles(data.as_mut_ptr());
        let inverse = match self.kind {
            Kind::Int(layout) => inverse(layout),
            Kind::Float(_) => [0; 256],
        };
        // Few enough claims for any matrix, and few enough rows for a small read buffer.
        let total = strips * self.experts;
        let step = total.div_ceil(1 << 20).max(1);
        pool.run(|ctx| {
            let mut raw = Vec::new();
            ctx.claim(total.div_ceil(step), |chunk| {
                for index in chunk * step..total.min((chunk + 1) * step) {
                    let (expert, strip) = (index / strips, index % strips);
                    let rows = STRIP.min(self.n_out - strip * STRIP);
                    let first = expert * self.n_out + strip * STRIP;
                    raw.resize(rows * self.row_bytes, 0);
                    if let Err(source) = source.read_rows(first, rows, &mut raw) {
                        return keep_first(&error, CpuError::Read { first, last: first + rows, source });
                    }
                    for (t, raw) in raw.chunks(LANES * self.row_bytes).enumerate() {
                        // SAFETY: tile `2 · index + t` belongs to this strip and lies in the buffer.
                        let tile = unsafe { tiles.slice((2 * index + t) * self.tile_bytes, self.tile_bytes) };
                        self.tile(raw, &inverse, tile);
                    }
                    advance(progress, raw.len());
                }
            });
        })?;
        error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Packs up to 16 raw rows into one tile of zero bytes.
    fn tile(&self, raw: &[u8], inverse: &[u8; 256], tile: &mut [u8]) {
        match self.kind {
            Kind::Float(kind) => floats(*kind, raw, self.row_bytes, tile),
            Kind::Int(layout) => {
                let whole = layout.group(GROUP_ELEMS).bytes;
                for (g, out) in tile.chunks_mut(whole).enumerate() {
                    let elems = GROUP_ELEMS.min(self.n_in - g * GROUP_ELEMS);
                    let (bytes, per_group) = (self.format.bytes, GROUP_ELEMS / self.format.elems);
                    for (lane, row) in raw.chunks(self.row_bytes).enumerate() {
                        let start = g * per_group * bytes;
                        let blocks = &row[start..start + elems / self.format.elems * bytes];
                        group_row(layout, inverse, blocks, lane, elems, out);
                    }
                }
            }
        }
    }
}

/// Interleaves the elements of up to 16 rows.
fn floats(kind: FloatKind, raw: &[u8], row_bytes: usize, tile: &mut [u8]) {
    let size = kind.bytes();
    for (lane, row) in raw.chunks(row_bytes).enumerate() {
        for (value, out) in row.chunks_exact(size).zip(tile.chunks_exact_mut(LANES * size)) {
            out[lane * size..(lane + 1) * size].copy_from_slice(value);
        }
    }
}

/// From code (as a byte) to what is stored.
fn inverse(layout: &Layout) -> [u8; 256] {
    std::array::from_fn(|byte| {
        let u = (i32::from(byte as u8 as i8) + layout.offset) as u8;
        layout.table.map_or(u, |table| table.iter().position(|&t| t == u).unwrap_or(0) as u8)
    })
}

/// Packs the blocks of one row into its lane of a group, one element at a time: right for every format.
fn group_row(layout: &Layout, inverse: &[u8; 256], blocks: &[u8], lane: usize, elems: usize, out: &mut [u8]) {
    let format = layout.format;
    let at = layout.group(elems);
    let subs_of_block = format.elems / layout.sub;
    let subs = elems / layout.sub;
    let mut codes = [0i8; GROUP_ELEMS];
    for (b, block) in blocks.chunks_exact(format.bytes).enumerate() {
        (layout.view.read_codes)(block, &mut codes[b * format.elems..(b + 1) * format.elems]);
        for j in 0..subs_of_block {
            let s = (layout.view.sub_scale)(block, j);
            let sub = b * subs_of_block + j;
            if (sub * layout.sub).is_multiple_of(layout.super_elems) {
                let index = sub * layout.sub / layout.super_elems * LANES + lane;
                store_super(layout, s.d, index, out);
                if layout.asymmetric {
                    let bits = f16::from_f32(s.dmin).to_le_bytes();
                    out[at.dmin + 2 * index..at.dmin + 2 * index + 2].copy_from_slice(&bits);
                }
            }
            if layout.sc_bits > 0 {
                let sc = (i32::from(s.sc) + layout.sc_offset) as u8;
                write_planes(&mut out[at.sc..at.m], layout.sc_bits, subs, LANES, sub, lane, sc);
            }
            if layout.m_bits > 0 {
                write_planes(&mut out[at.m..at.codes], layout.m_bits, subs, LANES, sub, lane, s.m);
            }
        }
    }
    for (u, codes) in codes[..elems].chunks_exact(UNIT).enumerate() {
        let start = at.codes + u * layout.unit_bytes();
        let planes = &mut out[start..start + layout.unit_bytes()];
        for (k, code) in codes.iter().enumerate() {
            let q = inverse[usize::from(*code as u8)];
            write_planes(planes, layout.bits, QUADS, QUAD_BYTES, k / 4, 4 * lane + k % 4, q);
        }
    }
}

fn store_super(layout: &Layout, d: f32, index: usize, out: &mut [u8]) {
    match layout.super_scale {
        // Exact: `d` is an f16 times a power of two.
        Super::F16 { factor } => {
            out[2 * index..2 * index + 2].copy_from_slice(&f16::from_f32(d / factor).to_le_bytes());
        }
        Super::F32 => out[4 * index..4 * index + 4].copy_from_slice(&d.to_le_bytes()),
        Super::E8M0 => {
            let bits = d.to_bits();
            out[index] = if bits < 0x0080_0000 { (bits >> 22) as u8 } else { (bits >> 23) as u8 + 1 };
        }
        Super::Ue4m3 => out[index] = (0..0x7f).find(|&s| ue4m3_half(s) == d).unwrap_or(0),
    }
}
