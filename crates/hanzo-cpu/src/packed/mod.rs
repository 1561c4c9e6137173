//! Weight matrices in the row-interleaved layout of the cores: the only resident copy.
//!
//! [`PackedMatrix::pack`] reads raw GGUF rows from a [`RowSource`] in parallel and rearranges them ([`layout`] says how). Contractions
//! (`crate::contract`) stream it; [`PackedMatrix::dequantize_row`] gives back single rows, exactly as the format decodes them, for
//! embedding lookups.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod buffer;
pub(crate) mod layout;
mod pack;
mod raw;
pub(crate) mod unpack;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hanzo_quant::Format;

use crate::CpuError;
use crate::pool::Pool;
pub(crate) use buffer::Buffer;
pub(crate) use layout::LAYOUT_VERSION;
use layout::{GROUP_ELEMS, LANES, Layout};

/// Rows that are computed and padded together: two tiles, one activation group of outputs.
pub(crate) const STRIP: usize = 2 * LANES;

/// Where raw weight rows come from. Implementations copy out of the file (a checked positioned read), so that no page of the file stays
/// mapped once a matrix is packed.
pub trait RowSource: Sync {
    /// Fills `out` with the bytes of rows `first..first + rows`, one after the other, as the file has them.
    ///
    /// # Errors
    /// Whatever reading can meet.
    fn read_rows(&self, first: usize, rows: usize, out: &mut [u8]) -> std::io::Result<()>;
}

/// Rows that already are in memory.
impl RowSource for [u8] {
    fn read_rows(&self, first: usize, rows: usize, out: &mut [u8]) -> std::io::Result<()> {
        let row = out.len().checked_div(rows).unwrap_or(0);
        let start = first.checked_mul(row);
        let bytes = start.and_then(|s| self.get(s..s.checked_add(out.len())?));
        out.copy_from_slice(bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// How elements are stored.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A block format.
    Int(Layout),
    /// F32, F16 or BF16: `[k][16 rows]` a tile.
    Float(FloatKind),
}

/// The float formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatKind {
    F32,
    F16,
    Bf16,
}

impl FloatKind {
    pub(crate) fn bytes(self) -> usize {
        if self == FloatKind::F32 { 4 } else { 2 }
    }
}

/// A weight matrix `[n_out, n_in]`, or a stack of them, one an expert.
#[derive(Debug)]
pub struct PackedMatrix {
    format: &'static Format,
    kind: Kind,
    experts: usize,
    n_out: usize,
    n_in: usize,
    tile_bytes: usize,
    data: Buffer,
}

impl PackedMatrix {
    /// Packs a matrix of `n_out` rows of `n_in` elements of `format`.
    ///
    /// `progress`, if given, is advanced by the file's bytes as they are packed.
    ///
    /// # Errors
    /// [`CpuError::Shape`] for sizes that are zero, ragged or out of reach, [`CpuError::Format`] for formats that the layout does
    /// not hold, [`CpuError::Read`] where the source fails, [`CpuError::Memory`].
    pub fn pack(
        format: &'static Format,
        n_out: usize,
        n_in: usize,
        source: &(impl RowSource + ?Sized),
        pool: &Pool,
        progress: Option<&AtomicU64>,
    ) -> Result<Self, CpuError> {
        Self::pack_experts(format, 1, n_out, n_in, source, pool, progress)
    }

    /// Packs `experts` matrices of `n_out` × `n_in`; the source has all their rows, expert after expert.
    ///
    /// # Errors
    /// As [`PackedMatrix::pack`].
    pub fn pack_experts(
        format: &'static Format,
        experts: usize,
        n_out: usize,
        n_in: usize,
        source: &(impl RowSource + ?Sized),
        pool: &Pool,
        progress: Option<&AtomicU64>,
    ) -> Result<Self, CpuError> {
        let Sizes { kind, tile_bytes, row_bytes, bytes } = Sizes::of(format, experts, n_out, n_in)?;
        let mut data = Buffer::zeroed(bytes, "packed weights")?;
        let job = pack::Job { format, kind: &kind, experts, n_out, n_in, tile_bytes, row_bytes };
        job.run(&mut data, source, pool, progress)?;
        Ok(PackedMatrix { format, kind, experts, n_out, n_in, tile_bytes, data })
    }

    /// A matrix whose packed bytes are there already: `fill(i, piece)` writes the `i`-th `piece_bytes` of them (the last piece may be
    /// shorter), called from all threads of the pool, and says whether it could. `None` where one could not.
    ///
    /// # Errors
    /// As [`PackedMatrix::pack`].
    pub(crate) fn restore(
        format: &'static Format,
        [experts, n_out, n_in]: [usize; 3],
        piece_bytes: usize,
        pool: &Pool,
        fill: impl Fn(usize, &mut [u8]) -> bool + Sync,
    ) -> Result<Option<Self>, CpuError> {
        let Sizes { kind, tile_bytes, bytes, .. } = Sizes::of(format, experts, n_out, n_in)?;
        let mut data = Buffer::zeroed(bytes, "packed weights")?;
        let whole = data.fill(piece_bytes, pool, fill)?;
        Ok(whole.then_some(PackedMatrix { format, kind, experts, n_out, n_in, tile_bytes, data }))
    }

    /// Bytes that a matrix takes when it is packed.
    ///
    /// # Errors
    /// As [`PackedMatrix::pack`].
    pub(crate) fn packed_bytes(
        format: &'static Format,
        [experts, n_out, n_in]: [usize; 3],
    ) -> Result<usize, CpuError> {
        Ok(Sizes::of(format, experts, n_out, n_in)?.bytes)
    }

    /// The packed bytes.
    pub(crate) fn data(&self) -> &[u8] {
        self.data.as_slice()
    }

    /// The format of the weights.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Outputs (rows of the matrix; of one expert's where it is a stack).
    pub fn n_out(&self) -> usize {
        self.n_out
    }

    /// Inputs (the contracted dimension).
    pub fn n_in(&self) -> usize {
        self.n_in
    }

    /// Number of experts; 1 for a plain matrix.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Whether contractions take quantized activations (block formats) or `f32` rows (F32, F16, BF16).
    pub fn takes_quantized(&self) -> bool {
        matches!(self.kind, Kind::Int(_))
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Strips of 32 rows of one expert.
    pub(crate) fn strips(&self) -> usize {
        self.n_out.div_ceil(STRIP)
    }

    pub(crate) fn tile_bytes(&self) -> usize {
        self.tile_bytes
    }

    /// Start of tile `tile` (16 rows) of expert `expert`.
    pub(crate) fn tile(&self, expert: usize, tile: usize) -> *const u8 {
        let index = expert * 2 * self.strips() + tile;
        debug_assert!((index + 1) * self.tile_bytes <= self.data.len());
        // SAFETY: inside the allocation.
        unsafe { self.data.as_ptr().add(index * self.tile_bytes) }
    }

    /// Decodes row `row` (counted over all experts) into `out` (`n_in` values), bit for bit as the format's `decode` does.
    ///
    /// # Errors
    /// [`CpuError::Operands`] where there is no such row or `out` has another length.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) -> Result<(), CpuError> {
        if row >= self.n_out * self.experts || out.len() != self.n_in {
            return Err(CpuError::Operands(format!(
                "row {row} of {} with room for {} of {} values",
                self.n_out * self.experts,
                out.len(),
                self.n_in
            )));
        }
        let (expert, row) = (row / self.n_out, row % self.n_out);
        let at = (expert * 2 * self.strips() + row / LANES) * self.tile_bytes;
        let tile = &self.data.as_slice()[at..at + self.tile_bytes];
        let lane = row % LANES;
        match &self.kind {
            Kind::Float(f) => {
                for (values, out) in tile.chunks_exact(LANES * f.bytes()).zip(out) {
                    *out = unpack::float(*f, values, lane);
                }
            }
            Kind::Int(layout) => {
                let whole = layout.group(GROUP_ELEMS).bytes;
                for (group, out) in tile.chunks(whole).zip(out.chunks_mut(GROUP_ELEMS)) {
                    unpack::group_row(layout, group, lane, out);
                }
            }
        }
        Ok(())
    }
}

/// How large a packed matrix is.
struct Sizes {
    kind: Kind,
    tile_bytes: usize,
    /// Bytes of a row in the file.
    row_bytes: usize,
    /// Bytes of the whole, packed.
    bytes: usize,
}

impl Sizes {
    fn of(format: &'static Format, experts: usize, n_out: usize, n_in: usize) -> Result<Self, CpuError> {
        let shape = |why: &str| CpuError::Shape { format: format.name, n_out, n_in, why: why.to_owned() };
        if n_out == 0 || n_in == 0 || experts == 0 {
            return Err(shape("a size is zero"));
        }
        if !n_in.is_multiple_of(format.elems) {
            return Err(shape(&format!("rows are not whole blocks of {}", format.elems)));
        }
        let kind = match (&format.int, format.name) {
            (Some(_), _) => Kind::Int(Layout::new(format)?),
            (None, "F32") => Kind::Float(FloatKind::F32),
            (None, "F16") => Kind::Float(FloatKind::F16),
            (None, "BF16") => Kind::Float(FloatKind::Bf16),
            (None, name) => {
                return Err(CpuError::Format { format: name, why: "an unknown float format".to_owned() });
            }
        };
        let tile_bytes = match &kind {
            Kind::Int(layout) => layout.tile_bytes(n_in),
            Kind::Float(f) => n_in.checked_mul(f.bytes() * LANES),
        };
        let strips = n_out.div_ceil(STRIP);
        let bytes = tile_bytes.and_then(|t| t.checked_mul(2 * strips)?.checked_mul(experts));
        let rows = n_out.checked_mul(experts);
        let row_bytes = (n_in / format.elems).checked_mul(format.bytes);
        let (Some(tile_bytes), Some(bytes), Some(_), Some(row_bytes)) = (tile_bytes, bytes, rows, row_bytes)
        else {
            return Err(shape("the sizes overflow"));
        };
        Ok(Sizes { kind, tile_bytes, row_bytes, bytes })
    }
}

/// Notes `bytes` of progress.
fn advance(progress: Option<&AtomicU64>, bytes: usize) {
    if let Some(p) = progress {
        p.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Keeps the first error of several threads.
fn keep_first(slot: &Mutex<Option<CpuError>>, error: CpuError) {
    slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
}
