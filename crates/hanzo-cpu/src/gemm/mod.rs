//! The core for many rows: a panel of weights is unpacked once for a block of rows, then multiplied in register tiles.
//!
//! ```text
//! for each block of up to 512 rows, 1 MB at most          their records stay in the second-level cache
//!   for each claimed chunk of strips (32 outputs each)    shared by the threads
//!     for each block of k                                 2048 elements
//!       unpack the chunk's panels                         80 KB a strip
//!       for each tile of rows (7)                         its codes stay in the first-level cache
//!         for each strip of the chunk: one register tile over the block of k
//! ```
//!
//! After the last block of k a tile's outputs go to the epilogue at once. Bound: the dot units (see the tile's own comment).
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_dots;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::cell::RefCell;

use crate::contract::{Finish, Rows};
use crate::isa::{Isa, Vectors};
use crate::matvec::{MAX_ROWS, push_init};
use crate::packed::layout::{GROUP_ELEMS, Layout, QUAD_BYTES, QUADS, UNIT};
use crate::packed::{Kind, PackedMatrix, STRIP};
use crate::pool::Ctx;

/// Most rows of a register tile.
pub(crate) const TILE: usize = 8;
/// From this many rows on a panel pays with AVX2: for plain codes, for tables of codes, whose lookups it spares all rows but one, and for floats,
/// whose few-rows core is at the rate of the multiply-adds while its rows fit a cache; and with AVX-VNNI, which was not measured.
const AVX2_ROWS: usize = 8;
const AVX2_ROWS_TABLE: usize = 3;
const AVX2_ROWS_FLOAT: usize = 33;
const AVX_VNNI_ROWS: usize = 6;
/// Rows of a block at most, and their bytes: what leaves room in the second-level cache. Rows that come from the third for every chunk of
/// strips cost up to a third of the speed while others use that cache (`docs/levers.md`).
const BLOCK_ROWS: usize = 512;
const BLOCK_BYTES: usize = 1 << 20;
/// Elements of k in a block, for block formats.
const BLOCK_K: usize = 2048;
/// The same where one tile has all rows: the panel of a strip stays in the first-level cache.
const BLOCK_K_FEW: usize = 512;
/// The same for float formats, whose panels are wider.
const BLOCK_K_FLOAT: usize = 512;
/// Elements of k in a block with AMX: the panel of a strip stays in the first-level cache while all rows pass by.
const BLOCK_K_AMX: usize = 512;
/// Strips of a chunk, over all matrices of a walk.
const CHUNK: usize = 4;

/// Whether a panel pays for `m` rows of these matrices. Below, the few-rows core re-reads a tile from a cache for every pass, which costs less than
/// writing a panel, and it reads memory while it multiplies; with AVX2 the panel's tile is much the faster.
pub(crate) fn pays(isa: Isa, w: &[&PackedMatrix], m: usize) -> bool {
    let avx2 = |w: &&PackedMatrix| match w.kind() {
        Kind::Int(layout) if layout.table.is_none() => AVX2_ROWS,
        Kind::Int(_) => AVX2_ROWS_TABLE,
        Kind::Float(_) => AVX2_ROWS_FLOAT,
    };
    match isa.vectors() {
        Vectors::Portable => false,
        Vectors::Avx2 { vnni: false } => w.iter().map(avx2).min().is_some_and(|from| m >= from),
        Vectors::Avx2 { vnni: true } => m >= AVX_VNNI_ROWS,
        Vectors::Avx512 => m > MAX_ROWS,
    }
}

/// Rows of a register tile of this instruction set and these weights, at most [`TILE`].
fn tile_rows(isa: Isa, w: &PackedMatrix) -> usize {
    #[cfg(target_arch = "x86_64")]
    match isa.vectors() {
        Vectors::Avx2 { .. } if !w.takes_quantized() => return avx2::FLOAT_ROWS,
        Vectors::Avx2 { vnni: false } => return avx2::TILE,
        Vectors::Avx2 { vnni: true } => return avx2::TILE_VNNI,
        Vectors::Avx512 => return avx512::TILE,
        Vectors::Portable => {}
    }
    let _ = (isa, w);
    TILE
}

/// Offsets in a panel's unit, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PanelShape {
    pub(crate) scales: usize,
    pub(crate) unit: usize,
}

impl PanelShape {
    pub(crate) fn of(layout: &Layout) -> Self {
        let scales = 2 * QUADS * QUAD_BYTES;
        let vectors = UNIT / layout.sub * if layout.asymmetric { 2 } else { 1 };
        PanelShape { scales, unit: scales + vectors * 2 * QUAD_BYTES }
    }
}

/// Rows at a constant distance: a whole batch, or an expert's rows gathered.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// First row: an activation record, or floats.
    pub(crate) base: *const u8,
    /// Bytes from row to row.
    pub(crate) stride: usize,
    /// Offset of the group floats and of the sums in a record.
    pub(crate) groups: usize,
    pub(crate) sums: usize,
    /// Elements of a row.
    pub(crate) k: usize,
    /// Number of rows.
    pub(crate) m: usize,
    /// Result row of each, where it is not `first + i`.
    pub(crate) outputs: Option<&'a [u32]>,
    pub(crate) first: usize,
}

impl Block<'_> {
    fn output(&self, i: usize) -> usize {
        self.outputs.map_or(self.first + i, |o| o[i] as usize)
    }
}

/// A growing, cache-line aligned piece of memory.
#[derive(Default)]
pub(crate) struct Scratch(Vec<[u128; 4]>);

impl Scratch {
    /// At least `bytes` bytes, contents unspecified, 64-byte aligned.
    pub(crate) fn get(&mut self, bytes: usize) -> *mut u8 {
        let lines = bytes.div_ceil(64) + 1;
        if self.0.len() < lines {
            self.0.resize(lines, [0; 4]);
        }
        let start = self.0.as_mut_ptr().cast::<u8>();
        start.wrapping_add(start.align_offset(64))
    }
}

/// What a thread keeps from contraction to contraction.
#[derive(Default)]
pub(crate) struct Workspace {
    panels: Scratch,
    sums: Scratch,
    gathered: Scratch,
    inits: [Vec<i32>; 2],
}

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

/// Runs `work` with this thread's workspace.
pub(crate) fn with_workspace<R>(work: impl FnOnce(&mut Workspace) -> R) -> R {
    WORKSPACE.with(|w| match w.try_borrow_mut() {
        Ok(mut w) => work(&mut w),
        // An epilogue that contracts again: rare, and right with a workspace of its own.
        Err(_) => work(&mut Workspace::default()),
    })
}

/// Contracts rows `0..m` of `x` with all strips of `w`.
pub(crate) fn run<const P: usize>(
    ctx: &Ctx<'_>,
    w: [&PackedMatrix; P],
    x: Rows<'_>,
    m: usize,
    out: &dyn Finish<P>,
) {
    let Some(first) = w.first() else { return };
    let strips = first.strips();
    let chunk = chunk::<P>(strips, ctx.threads());
    with_workspace(|space| {
        let rows = block_rows(x, m);
        for row in (0..m).step_by(rows) {
            let block = block_of(x, row, rows.min(m - row));
            let core = Core::new(ctx.isa(), w, block, space);
            ctx.claim(strips.div_ceil(chunk), |i| {
                core.strips(space, 0, i * chunk..strips.min((i + 1) * chunk), out);
            });
        }
    });
}

/// Rows of a block: whole tiles of 16, all blocks alike.
fn block_rows(x: Rows<'_>, m: usize) -> usize {
    let row = match x {
        Rows::Quantized(a) => a.layout().stride,
        Rows::Float { stride, .. } => 4 * stride,
    };
    let blocks = m.saturating_mul(row).div_ceil(BLOCK_BYTES).max(m.div_ceil(BLOCK_ROWS)).max(1);
    m.div_ceil(blocks).next_multiple_of(16).max(16)
}

fn block_of(x: Rows<'_>, first: usize, m: usize) -> Block<'static> {
    match x {
        Rows::Quantized(a) => {
            let l = a.layout();
            let base = a.row_ptr(first);
            Block {
                base,
                stride: l.stride,
                groups: l.groups,
                sums: l.sums,
                k: a.k(),
                m,
                outputs: None,
                first,
            }
        }
        Rows::Float { data, stride } => {
            let base = data[first * stride..].as_ptr().cast();
            Block { base, stride: 4 * stride, groups: 0, sums: 0, k: stride, m, outputs: None, first }
        }
    }
}

/// The rows `input(i)` of `x`, `k` elements each, copied one after the other into the workspace; they are rows `outputs[i]` of the result.
pub(crate) fn gather<'a>(
    x: Rows<'_>,
    k: usize,
    outputs: &'a [u32],
    input: impl Fn(u32) -> usize,
    space: &mut Workspace,
) -> Block<'a> {
    let m = outputs.len();
    let (stride, groups, sums) = match x {
        Rows::Quantized(a) => (a.layout().stride, a.layout().groups, a.layout().sums),
        Rows::Float { .. } => (4 * k, 0, 0),
    };
    let base = space.gathered.get(stride * m);
    for (i, &pair) in outputs.iter().enumerate() {
        let from: *const u8 = match x {
            Rows::Quantized(a) => a.row_ptr(input(pair)),
            Rows::Float { data, stride } => data[input(pair) * stride..][..k].as_ptr().cast(),
        };
        // SAFETY: a whole record (or `k` floats), into the memory just reserved.
        unsafe { std::ptr::copy_nonoverlapping(from, base.add(i * stride), stride) };
    }
    Block { base, stride, groups, sums, k, m, outputs: Some(outputs), first: 0 }
}

/// Strips that a thread takes at a time.
pub(crate) fn chunk<const P: usize>(strips: usize, threads: usize) -> usize {
    (strips / (8 * threads)).clamp(1, CHUNK.div_ceil(P))
}

/// The contraction of a block of rows with any strips of `P` matrices.
pub(crate) struct Core<'a, const P: usize> {
    isa: Isa,
    w: [&'a PackedMatrix; P],
    block: Block<'a>,
    /// Whether the block goes through AMX tiles.
    tiled: bool,
}

impl<'a, const P: usize> Core<'a, P> {
    /// Prepares the initial values of the block's dots in the workspace.
    pub(crate) fn new(isa: Isa, w: [&'a PackedMatrix; P], block: Block<'a>, space: &mut Workspace) -> Self {
        let tiled = isa == Isa::Amx && tiles_fit(&w, &block);
        for (w, init) in w.iter().zip(&mut space.inits) {
            init.clear();
            if tiled {
                continue; // its codes are signed
            }
            let Kind::Int(layout) = w.kind() else { continue };
            if layout.asymmetric && layout.offset == 0 {
                continue;
            }
            init.reserve_exact(block.m * w.n_in() / layout.sub);
            for i in 0..block.m {
                // SAFETY: a record has k/16 sums.
                let sums = unsafe {
                    let at = block.base.add(i * block.stride + block.sums).cast::<i16>();
                    std::slice::from_raw_parts(at, w.n_in() / 16)
                };
                push_init(layout, sums, init);
            }
        }
        Core { isa, w, block, tiled }
    }

    /// Computes strips of expert `expert`, all rows of the block.
    pub(crate) fn strips(
        &self,
        space: &mut Workspace,
        expert: usize,
        strips: std::ops::Range<usize>,
        out: &dyn Finish<P>,
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.tiled {
            return self.tiled_strips(space, expert, strips, out);
        }
        let Some(first) = self.w.first() else { return };
        let (k, m, count) = (first.n_in(), self.block.m, strips.len());
        let few = m <= tile_rows(self.isa, first);
        if few && count > 1 {
            for strip in strips {
                self.strips(space, expert, strip..strip + 1, out);
            }
            return;
        }
        let step = match first.takes_quantized() {
            true if few => BLOCK_K_FEW,
            true => BLOCK_K,
            false => BLOCK_K_FLOAT,
        };
        let panel_bytes = self.w.iter().map(|w| panel_bytes(w, step.min(k))).max().unwrap_or(0);
        let panels = space.panels.get(P * count * panel_bytes);
        let panel = |p: usize, s: usize| panels.wrapping_add((p * count + s) * panel_bytes);
        let whole = k <= step;
        let sums = space.sums.get(4 * STRIP * if whole { P * TILE } else { P * count * m }).cast::<f32>();
        if !whole {
            // SAFETY: just reserved.
            unsafe { std::ptr::write_bytes(sums, 0, STRIP * P * count * m) };
        }
        let tiles = m.div_ceil(tile_rows(self.isa, first));
        for k0 in (0..k).step_by(step) {
            let ks = step.min(k - k0);
            for (p, w) in self.w.iter().enumerate() {
                for (s, strip) in strips.clone().enumerate() {
                    unpack(self.isa, w, expert, strip, (k0, ks), panel(p, s), false);
                }
            }
            for t in 0..tiles {
                // Tiles of equal width, give or take one: a tile of one row costs nearly as much as one of seven.
                let (row, end) = (m * t / tiles, m * (t + 1) / tiles);
                for (s, strip) in strips.clone().enumerate() {
                    if k0 + ks == k {
                        self.prefetch(out, strip, row..end);
                    }
                    let y: [*mut f32; P] = std::array::from_fn(|p| {
                        let index = if whole { p * TILE } else { (p * count + s) * m + row };
                        sums.wrapping_add(STRIP * index)
                    });
                    for (p, w) in self.w.iter().enumerate() {
                        let next = match few {
                            true => self.next_block(w, expert, strip, k0 + ks),
                            false => None,
                        };
                        // SAFETY: `y[p]` has room for the tile's rows; panel and block are those of this block of k.
                        unsafe {
                            if whole {
                                y[p].cast::<[[f32; STRIP]; TILE]>().write([[0.0; STRIP]; TILE]);
                            }
                            let init = space.inits.get(p).map_or(&[][..], Vec::as_slice);
                            let rows = (row, end - row);
                            tile(self.isa, w, panel(p, s), &self.block, init, rows, (k0, ks), y[p], next);
                        }
                    }
                    if k0 + ks == k {
                        // SAFETY: the tile's rows, of 32 sums each; strips are claimed once, output rows distinct.
                        unsafe { self.finish(out, strip, row..end, y) };
                    }
                }
            }
        }
    }

    /// Where the packed weights that are unpacked after a block of k lie, of the strip's two tiles: the block from `k` on, or the next strip's first.
    fn next_block(&self, w: &PackedMatrix, expert: usize, strip: usize, k: usize) -> Option<[*const u8; 2]> {
        let Kind::Int(layout) = w.kind() else { return None };
        let (strip, k) = if k < w.n_in() { (strip, k) } else { (strip + 1, 0) };
        let at = k / GROUP_ELEMS * layout.group(GROUP_ELEMS).bytes;
        let tile = |t: usize| w.tile(expert, 2 * strip + t).wrapping_add(at);
        (strip < w.strips()).then(|| [tile(0), tile(1)])
    }

    /// Says that the outputs of these rows of the block are next.
    fn prefetch(&self, out: &dyn Finish<P>, strip: usize, rows: std::ops::Range<usize>) {
        rows.for_each(|i| out.prefetch(self.block.output(i), strip * STRIP));
    }

    /// Hands these rows of the block to the epilogue.
    ///
    /// # Safety
    /// `y` has the rows' sums, [`STRIP`] a row; nobody else finishes these rows of this strip.
    unsafe fn finish(
        &self,
        out: &dyn Finish<P>,
        strip: usize,
        rows: std::ops::Range<usize>,
        y: [*mut f32; P],
    ) {
        let n = self.w.first().map_or(0, |w| STRIP.min(w.n_out() - strip * STRIP));
        for (i, row) in rows.enumerate() {
            // SAFETY: promised by the caller.
            unsafe {
                let y = y.map(|y| std::slice::from_raw_parts_mut(y.add(STRIP * i), n));
                out.finish(self.block.output(row), strip * STRIP, y);
            }
        }
    }

    /// [`strips`](Self::strips) through AMX tiles: strip by strip over all rows, since a block of k of one fits the first-level cache.
    #[cfg(target_arch = "x86_64")]
    fn tiled_strips(
        &self,
        space: &mut Workspace,
        expert: usize,
        strips: std::ops::Range<usize>,
        out: &dyn Finish<P>,
    ) {
        let Some(first) = self.w.first() else { return };
        let (k, m, count) = (first.n_in(), self.block.m, strips.len());
        let tiles = m.div_ceil(amx::ROWS);
        let panel = self.w.iter().map(|w| panel_bytes(w, BLOCK_K_AMX.min(k))).max().unwrap_or(0);
        let panel = space.panels.get(panel);
        let rows = tiles * amx::ROWS;
        let sums = space.sums.get(4 * STRIP * P * count * rows).cast::<f32>();
        let y = |p: usize, s: usize| sums.wrapping_add(STRIP * (p * count + s) * rows);
        // SAFETY: just reserved.
        unsafe { std::ptr::write_bytes(sums, 0, STRIP * P * count * rows) };
        for k0 in (0..k).step_by(BLOCK_K_AMX) {
            let ks = BLOCK_K_AMX.min(k - k0);
            for (s, strip) in strips.clone().enumerate() {
                for (p, w) in self.w.iter().enumerate() {
                    let Kind::Int(layout) = w.kind() else { continue };
                    unpack(self.isa, w, expert, strip, (k0, ks), panel, true);
                    // SAFETY: `tiles_fit` has checked rows and k; the panel was just filled, the sums are whole tiles.
                    unsafe { amx::strip(layout, panel, &self.block, (k0, ks / UNIT), y(p, s)) };
                }
            }
        }
        // SAFETY: an instruction set with tiles is in use; nothing is kept in them.
        unsafe { amx::release() };
        for (s, strip) in strips.enumerate() {
            for t in 0..tiles {
                let own = t * amx::ROWS..m.min((t + 1) * amx::ROWS);
                // The last tile begins among the rows of the one before.
                let first = t * amx::ROWS + own.start - amx::first_row(t, m);
                self.prefetch(out, strip, own.clone());
                // SAFETY: a tile's rows of sums; strips are claimed once, output rows distinct.
                unsafe { self.finish(out, strip, own, std::array::from_fn(|p| y(p, s).add(STRIP * first))) };
            }
        }
    }
}

/// Whether these matrices and rows can go through AMX tiles.
fn tiles_fit<const P: usize>(w: &[&PackedMatrix; P], block: &Block<'_>) -> bool {
    #[cfg(target_arch = "x86_64")]
    return block.m >= amx::ROWS
        && w.iter().all(|w| matches!(w.kind(), Kind::Int(_)) && w.n_in().is_multiple_of(amx::K_STEP));
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (w, block);
        false
    }
}

fn panel_bytes(w: &PackedMatrix, ks: usize) -> usize {
    match w.kind() {
        Kind::Int(layout) => ks.div_ceil(UNIT) * PanelShape::of(layout).unit,
        Kind::Float(_) => ks * STRIP * 4,
    }
}

/// Unpacks a block of k of one strip; with AVX-512 with signed codes, where asked for.
fn unpack(
    isa: Isa,
    w: &PackedMatrix,
    expert: usize,
    strip: usize,
    (k0, ks): (usize, usize),
    panel: *mut u8,
    signed: bool,
) {
    let tiles = [w.tile(expert, 2 * strip), w.tile(expert, 2 * strip + 1)];
    // SAFETY: tiles of this matrix; the panel has `panel_bytes`; `pays` has checked the instruction set.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        match (w.kind(), isa.vectors()) {
            (Kind::Int(layout), Vectors::Avx512) => {
                // Modulo 256: 128 is the largest.
                let bias = if signed { layout.offset as i8 } else { 0 };
                avx512::unpack(layout, tiles, w.n_in(), k0, ks / UNIT, panel, bias);
            }
            (Kind::Float(kind), Vectors::Avx512) => avx512::unpack_floats(*kind, tiles, k0, ks, panel.cast()),
            (Kind::Int(layout), vectors) => {
                let vnni = vectors == Vectors::Avx2 { vnni: true };
                avx2::unpack(layout, tiles, w.n_in(), (k0, ks / UNIT), panel, vnni);
            }
            (Kind::Float(kind), _) => avx2::unpack_floats(*kind, tiles, k0, ks, panel.cast()),
        }
    }
}

/// Adds a block of k to one register tile; `next` are the packed weights of two tiles to ask for meanwhile (AVX2).
///
/// # Safety
/// The panel must hold this block of k, `y` the sums of `columns.1` rows.
#[allow(clippy::too_many_arguments)]
unsafe fn tile(
    isa: Isa,
    w: &PackedMatrix,
    panel: *const u8,
    block: &Block<'_>,
    init: &[i32],
    columns: (usize, usize),
    (k0, ks): (usize, usize),
    y: *mut f32,
    next: Option<[*const u8; 2]>,
) {
    // SAFETY: passed through; `pays` has checked the instruction set.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        match (w.kind(), isa.vectors()) {
            (Kind::Int(layout), Vectors::Avx512) => {
                avx512::tile(layout, panel, block, init, columns, (k0, ks / UNIT), y);
            }
            (Kind::Float(_), Vectors::Avx512) => {
                avx512::float_tile(panel.cast(), block, columns, (k0, ks), y);
            }
            (Kind::Int(layout), vectors) => {
                let vnni = vectors == Vectors::Avx2 { vnni: true };
                avx2::tile(layout, panel, block, init, columns, (k0, ks / UNIT), y, vnni, next);
            }
            (Kind::Float(_), _) => avx2::float_tile(panel.cast(), block, columns, (k0, ks), y),
        }
    }
}
