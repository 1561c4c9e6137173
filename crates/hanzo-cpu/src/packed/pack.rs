//! From raw rows to the packed layout.
//!
//! Strips of 32 rows are claimed by the threads of the pool; each reads its rows into a small buffer and writes its tiles.
#![allow(unsafe_code, clippy::needless_range_loop)]

#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use half::f16;
use hanzo_quant::Format;

use super::layout::{GROUP_ELEMS, GroupLayout, LANES, Layout, Super, UNIT, plane_widths};
use super::raw::RawBlock;
use super::unpack::ue4m3_of_half;
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
        let packer = match self.kind {
            Kind::Int(layout) => Some(Packer::new(layout)),
            Kind::Float(_) => None,
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
                        self.tile(raw, packer.as_ref(), tile);
                    }
                    advance(progress, raw.len());
                }
            });
        })?;
        error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Packs up to 16 raw rows into one tile of zero bytes.
    fn tile(&self, raw: &[u8], packer: Option<&Packer<'_>>, tile: &mut [u8]) {
        match (self.kind, packer) {
            (Kind::Float(kind), _) => floats(*kind, raw, self.row_bytes, tile),
            (Kind::Int(layout), Some(packer)) => {
                let whole = layout.group(GROUP_ELEMS).bytes;
                let group_bytes = GROUP_ELEMS / self.format.elems * self.format.bytes;
                // Rows that are not there stay zero.
                let mut rows = Rows::default();
                for (g, out) in tile.chunks_mut(whole).enumerate() {
                    let elems = GROUP_ELEMS.min(self.n_in - g * GROUP_ELEMS);
                    packer.group(raw, self.row_bytes, g * group_bytes, elems, &mut rows, out);
                }
            }
            (Kind::Int(_), None) => {}
        }
    }
}

/// Interleaves the elements of up to 16 rows.
fn floats(kind: FloatKind, raw: &[u8], row_bytes: usize, tile: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the machine has AVX2.
        return unsafe { floats_avx2(kind, raw, row_bytes, tile) };
    }
    floats_any::<false>(kind, raw, row_bytes, tile);
}

/// The same code, compiled for AVX2.
///
/// # Safety
/// Needs AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn floats_avx2(kind: FloatKind, raw: &[u8], row_bytes: usize, tile: &mut [u8]) {
    floats_any::<true>(kind, raw, row_bytes, tile);
}

/// Words of 32 bits are transposed as those of block formats are; halves come in pairs, which are parted after.
#[inline(always)]
fn floats_any<const AVX2: bool>(kind: FloatKind, raw: &[u8], row_bytes: usize, tile: &mut [u8]) {
    let mut words = [[0u32; WORDS]; LANES];
    let mut pairs = [0u8; 4 * LANES * WORDS];
    for (start, out) in (0..row_bytes).step_by(4 * WORDS).zip(tile.chunks_mut(4 * LANES * WORDS)) {
        let len = (row_bytes - start).min(4 * WORDS);
        for (lane, row) in raw.chunks_exact(row_bytes).enumerate() {
            let (whole, rest) = row[start..start + len].as_chunks::<4>();
            for (word, bytes) in words[lane].iter_mut().zip(whole) {
                *word = u32::from_le_bytes(*bytes);
            }
            if let [a, b] = *rest {
                words[lane][len / 4] = u32::from_le_bytes([a, b, 0, 0]);
            }
        }
        if kind == FloatKind::F32 {
            interleave::<AVX2>(&words, len / 4, out);
            continue;
        }
        let count = len.div_ceil(4);
        interleave::<AVX2>(&words, count, &mut pairs[..4 * LANES * count]);
        for (out, pairs) in out.chunks_mut(4 * LANES).zip(pairs.as_chunks::<{ 4 * LANES }>().0) {
            let (first, second) = out.split_at_mut(2 * LANES);
            for lane in 0..LANES {
                first[2 * lane] = pairs[4 * lane];
                first[2 * lane + 1] = pairs[4 * lane + 1];
            }
            // The last element of an odd row has no partner.
            if second.len() == 2 * LANES {
                for lane in 0..LANES {
                    second[2 * lane] = pairs[4 * lane + 2];
                    second[2 * lane + 1] = pairs[4 * lane + 3];
                }
            }
        }
    }
}

/// Packs groups of one layout: 16 rows × 256 elements at a time.
///
/// Each row's blocks are turned into the words of its lane (bit planes of 32 elements), then the words of 16 rows are transposed.
struct Packer<'a> {
    layout: &'a Layout,
    raw: RawBlock,
    /// From code (as a byte) to what is stored, for formats whose codes are not found in the raw bytes.
    inverse: [u8; 256],
}

/// Most 32-bit words of a row's group: 8 units of 8.
const WORDS: usize = 64;

/// The rows of a group before they are interleaved: words of codes, and integer scales and mins, one a byte.
#[repr(C, align(64))]
struct Rows {
    words: [[u32; WORDS]; LANES],
    sc: [[u8; 16]; LANES],
    m: [[u8; 16]; LANES],
}

impl Default for Rows {
    fn default() -> Self {
        Rows { words: [[0; WORDS]; LANES], sc: [[0; 16]; LANES], m: [[0; 16]; LANES] }
    }
}

impl<'a> Packer<'a> {
    fn new(layout: &'a Layout) -> Self {
        let inverse = std::array::from_fn(|byte| {
            let u = (i32::from(byte as u8 as i8) + layout.offset) as u8;
            layout.table.map_or(u, |table| table.iter().position(|&t| t == u).unwrap_or(0) as u8)
        });
        Packer { layout, raw: RawBlock::find(layout), inverse }
    }

    /// Packs the group of `elems` elements that starts `start` bytes into each of up to 16 rows. `rows` is scratch, zero where there are no rows.
    fn group(
        &self,
        raw: &[u8],
        row_bytes: usize,
        start: usize,
        elems: usize,
        rows: &mut Rows,
        out: &mut [u8],
    ) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has AVX2.
            return unsafe { self.group_avx2(raw, row_bytes, start, elems, rows, out) };
        }
        self.group_by_width::<false>(raw, row_bytes, start, elems, rows, out);
    }

    /// The same code, compiled for AVX2.
    ///
    /// # Safety
    /// Needs AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn group_avx2(
        &self,
        raw: &[u8],
        row_bytes: usize,
        start: usize,
        elems: usize,
        rows: &mut Rows,
        out: &mut [u8],
    ) {
        self.group_by_width::<true>(raw, row_bytes, start, elems, rows, out);
    }

    #[inline(always)]
    fn group_by_width<const AVX2: bool>(
        &self,
        raw: &[u8],
        row_bytes: usize,
        start: usize,
        elems: usize,
        rows: &mut Rows,
        out: &mut [u8],
    ) {
        match self.layout.bits {
            1 => self.group_of::<1, AVX2>(raw, row_bytes, start, elems, rows, out),
            2 => self.group_of::<2, AVX2>(raw, row_bytes, start, elems, rows, out),
            3 => self.group_of::<3, AVX2>(raw, row_bytes, start, elems, rows, out),
            4 => self.group_of::<4, AVX2>(raw, row_bytes, start, elems, rows, out),
            5 => self.group_of::<5, AVX2>(raw, row_bytes, start, elems, rows, out),
            6 => self.group_of::<6, AVX2>(raw, row_bytes, start, elems, rows, out),
            7 => self.group_of::<7, AVX2>(raw, row_bytes, start, elems, rows, out),
            _ => self.group_of::<8, AVX2>(raw, row_bytes, start, elems, rows, out),
        }
    }

    #[inline(always)]
    fn group_of<const BITS: usize, const AVX2: bool>(
        &self,
        raw: &[u8],
        row_bytes: usize,
        start: usize,
        elems: usize,
        rows: &mut Rows,
        out: &mut [u8],
    ) {
        let layout = self.layout;
        let format = layout.format;
        let at = layout.group(elems);
        let subs = format.elems / layout.sub;
        for (lane, row) in raw.chunks_exact(row_bytes).enumerate() {
            let blocks = &row[start..start + elems / format.elems * format.bytes];
            let words = &mut rows.words[lane];
            for (b, block) in blocks.chunks_exact(format.bytes).enumerate() {
                let first = b * (format.elems / UNIT);
                match self.raw.codes {
                    Some(codes) => {
                        for u in 0..format.elems / UNIT {
                            let words = words[(first + u) * BITS..].first_chunk_mut();
                            let Some(words) = words else { continue };
                            #[cfg(target_arch = "x86_64")]
                            if AVX2 {
                                // SAFETY: `AVX2` is set on machines that have it.
                                unsafe { x86::planes::<BITS>(codes.unit_avx2(block, u), words) };
                                continue;
                            }
                            planes::<BITS>(&codes.unit(block, u), words);
                        }
                    }
                    None => {
                        let mut codes = [0i8; GROUP_ELEMS];
                        let codes = &mut codes[..format.elems];
                        (layout.view.read_codes)(block, codes);
                        for (u, codes) in codes.as_chunks::<UNIT>().0.iter().enumerate() {
                            let mut q = [0; UNIT];
                            for i in 0..UNIT {
                                q[i] = self.inverse[usize::from(codes[i] as u8)];
                            }
                            if let Some(words) = words[(first + u) * BITS..].first_chunk_mut() {
                                planes::<BITS>(&q, words);
                            }
                        }
                    }
                }
                self.supers(block, b, lane, &at, out);
                if layout.sc_bits > 0 || layout.m_bits > 0 {
                    let (mut sc, mut m) = ([0; 16], [0; 16]);
                    match self.raw.scales {
                        Some(scales) => scales.read(block, &mut sc, &mut m),
                        None => {
                            for j in 0..subs {
                                let s = (layout.view.sub_scale)(block, j);
                                (sc[j], m[j]) = ((i32::from(s.sc) + layout.sc_offset) as u8, s.m);
                            }
                        }
                    }
                    (rows.sc[lane], rows.m[lane]) = (sc, m);
                }
            }
        }
        if layout.sc_bits > 0 {
            scale_planes(layout.sc_bits, &transposed::<AVX2>(&rows.sc)[..subs], &mut out[at.sc..at.m]);
        }
        if layout.m_bits > 0 {
            scale_planes(layout.m_bits, &transposed::<AVX2>(&rows.m)[..subs], &mut out[at.m..at.codes]);
        }
        let count = elems / UNIT * BITS;
        interleave::<AVX2>(&rows.words, count, &mut out[at.codes..at.codes + count * 4 * LANES]);
    }

    /// Super-scales of block `b` of the group.
    #[inline(always)]
    fn supers(&self, block: &[u8], b: usize, lane: usize, at: &GroupLayout, out: &mut [u8]) {
        let layout = self.layout;
        if let (Some(d), Super::F16 { .. }) = (self.raw.d, layout.super_scale)
            && (!layout.asymmetric || self.raw.dmin.is_some())
        {
            let index = 2 * (b * LANES + lane);
            [out[index], out[index + 1]] = [block[d], block[d + 1]];
            if let Some((from, negated)) = self.raw.dmin {
                let sign = if negated { 0x80 } else { 0 };
                let to = at.dmin + index;
                [out[to], out[to + 1]] = [block[from], block[from + 1] ^ sign];
            }
            return;
        }
        let per = layout.format.elems / layout.super_elems;
        for i in 0..per {
            let s = (layout.view.sub_scale)(block, i * layout.super_elems / layout.sub);
            let index = (b * per + i) * LANES + lane;
            store_super(layout, s.d, index, out);
            if layout.asymmetric {
                let bits = f16::from_f32(s.dmin).to_le_bytes();
                out[at.dmin + 2 * index..at.dmin + 2 * index + 2].copy_from_slice(&bits);
            }
        }
    }
}

/// `out` = word 0 of all rows, word 1 of all rows, …; `count` words.
#[inline(always)]
fn interleave<const AVX2: bool>(words: &[[u32; WORDS]; LANES], count: usize, out: &mut [u8]) {
    // Blocks of 8 words × 8 rows, so that reads and writes both are of whole vectors.
    let mut out = out.as_chunks_mut::<{ 4 * LANES }>().0;
    let mut first = 0;
    while first < count {
        let (now, rest) = out.split_at_mut(8.min(count - first).min(out.len()));
        for half in 0..2 {
            let mut block = [[0u32; 8]; 8];
            for lane in 0..8 {
                if let Some(row) = words[8 * half + lane][first..].first_chunk::<8>() {
                    block[lane] = *row;
                }
            }
            #[cfg(target_arch = "x86_64")]
            if AVX2 {
                // SAFETY: `AVX2` is set on machines that have it.
                block = unsafe { x86::transpose(&block) };
            }
            if !AVX2 {
                let old = block;
                for i in 0..8 {
                    for j in 0..8 {
                        block[i][j] = old[j][i];
                    }
                }
            }
            for i in 0..now.len() {
                for j in 0..8 {
                    if let Some(to) = now[i][32 * half + 4 * j..].first_chunk_mut() {
                        *to = block[i][j].to_le_bytes();
                    }
                }
            }
        }
        (out, first) = (rest, first + 8);
    }
}

/// `[row][sub-block]` to `[sub-block][row]`.
#[inline(always)]
fn transposed<const AVX2: bool>(rows: &[[u8; 16]; LANES]) -> [[u8; LANES]; 16] {
    #[cfg(target_arch = "x86_64")]
    if AVX2 {
        // SAFETY: `AVX2` is set on machines that have it.
        return unsafe { x86::transpose_bytes(rows) };
    }
    let mut out = [[0; LANES]; 16];
    for i in 0..16 {
        for j in 0..16 {
            out[i][j] = rows[j][i];
        }
    }
    out
}

/// The words of one row's unit: its planes, lowest bits first (see [`super::layout`] for which element is where). Word `i` of `q` is quad `i`.
#[inline(always)]
fn planes<const BITS: usize>(q: &[u8; UNIT], words: &mut [u32; BITS]) {
    let mut quads = [0u32; 8];
    for i in 0..8 {
        quads[i] = u32::from_le_bytes([q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]]);
    }
    if BITS == 8 {
        words.copy_from_slice(&quads[..BITS]);
        return;
    }
    let (mut base, mut low) = (0, 0);
    if BITS & 4 != 0 {
        for i in 0..4 {
            words[i] = quads[i] & 0x0f0f_0f0f | (quads[i + 4] & 0x0f0f_0f0f) << 4;
        }
        (base, low) = (4, 4);
    }
    if BITS & 2 != 0 {
        let two = 0x0303_0303;
        for i in 0..2 {
            words[base + i] = quads[i] >> low & two
                | (quads[i + 2] >> low & two) << 2
                | (quads[i + 4] >> low & two) << 4
                | (quads[i + 6] >> low & two) << 6;
        }
        (base, low) = (base + 2, low + 2);
    }
    if BITS & 1 != 0 {
        let mut word = 0;
        for i in 0..8 {
            word |= (quads[i] >> low & 0x0101_0101) << i;
        }
        words[base] = word;
    }
}

/// Bit planes of integer scales, 16 rows beside each other.
#[inline(always)]
fn scale_planes(bits: u32, items: &[[u8; LANES]], out: &mut [u8]) {
    let (mut out, mut low) = (out.as_chunks_mut::<LANES>().0, 0);
    for &p in plane_widths(bits) {
        let words = items.len() * p as usize / 8;
        let (plane, rest) = out.split_at_mut(words.min(out.len()));
        for (w, word) in plane.iter_mut().enumerate() {
            for (s, item) in items.iter().skip(w).step_by(words).enumerate() {
                for lane in 0..LANES {
                    word[lane] |= (item[lane] >> low & ((1u32 << p) - 1) as u8) << (p * s as u32);
                }
            }
        }
        (out, low) = (rest, low + p);
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
        Super::Ue4m3 => out[index] = ue4m3_of_half(d),
    }
}
