//! The paged KV pool: where keys and values lie.
//!
//! A layer's pool is `[kv head][block]` of records of 16 tokens: a key tile, then a value tile.
//!
//! ```text
//! key tile     [k_head_dim][16 tokens]            keys transposed, so that the keys of a block sit in lanes
//! value tile   [16 tokens][v_head_dim, padded to 16]
//! ```
//!
//! Elements are f16, f32, or int8 with one f32 scale a token after each tile; int8 ones are of heads that were rotated first
//! ([`super::rotate`]). Padding is zero and stays so. A head's blocks are contiguous, so a sequence whose blocks follow each other is
//! read as one stream.

use hanzo_fusion::step::{BLOCK_TOKENS, KvLayer, KvType};
use hanzo_quant::canonical::TINY;
use hanzo_quant::f16;

use super::rotate::{LONGEST, rotated};
use crate::CpuError;
use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, dispatch};

const _: () = assert!(BLOCK_TOKENS == LANES, "the keys of a block fill a vector");

/// Offsets in a record, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kv_type: KvType,
    pub(crate) k_dim: usize,
    pub(crate) v_dim: usize,
    /// `v_dim` padded to whole vectors.
    pub(crate) v_stride: usize,
    /// Scales of the keys (int8).
    pub(crate) k_scales: usize,
    /// Values.
    pub(crate) values: usize,
    /// Scales of the values (int8).
    pub(crate) v_scales: usize,
    /// Bytes of a record, whole cache lines.
    pub(crate) bytes: usize,
}

impl Record {
    fn new(layer: &KvLayer, kv_type: KvType) -> Option<Self> {
        let elem = match kv_type {
            KvType::F16 => 2,
            KvType::Int8 => 1,
            KvType::F32 => 4,
        };
        let scales = if kv_type == KvType::Int8 { 4 * BLOCK_TOKENS } else { 0 };
        let v_stride = layer.v_head_dim.checked_next_multiple_of(LANES)?;
        let k_scales = layer.k_head_dim.checked_mul(BLOCK_TOKENS * elem)?.checked_next_multiple_of(64)?;
        let values = k_scales.checked_add(scales)?;
        let v_scales = values.checked_add(v_stride.checked_mul(BLOCK_TOKENS * elem)?)?;
        let bytes = v_scales.checked_add(scales)?.checked_next_multiple_of(64)?;
        Some(Record {
            kv_type,
            k_dim: layer.k_head_dim,
            v_dim: layer.v_head_dim,
            v_stride,
            k_scales,
            values,
            v_scales,
            bytes,
        })
    }
}

/// The cache of one attention layer.
#[derive(Debug)]
pub(crate) struct LayerPool {
    pub(crate) record: Record,
    n_blocks: usize,
    n_heads: usize,
    data: memmap2::MmapMut,
    /// Start of `data`; threads write disjoint tokens through it.
    base: *mut u8,
}

// SAFETY: `base` points into `data`, which the pool owns; shared writes go through unsafe methods whose callers keep tokens disjoint.
unsafe impl Send for LayerPool {}
// SAFETY: as above.
unsafe impl Sync for LayerPool {}

impl LayerPool {
    /// Reserves `n_blocks` blocks; memory is taken as they are used.
    pub(crate) fn new(layer: &KvLayer, kv_type: KvType, n_blocks: usize) -> Result<Self, CpuError> {
        let refused = |bytes| CpuError::Memory { what: "the KV pool", bytes };
        let record = Record::new(layer, kv_type).ok_or(refused(usize::MAX))?;
        let bytes = record
            .bytes
            .checked_mul(n_blocks)
            .and_then(|b| b.checked_mul(layer.n_kv_heads))
            .filter(|&b| b <= isize::MAX as usize)
            .ok_or(refused(usize::MAX))?;
        let mut data = memmap2::MmapMut::map_anon(bytes.max(1)).map_err(|_| refused(bytes))?;
        #[cfg(target_os = "linux")]
        let _ = data.advise(memmap2::Advice::HugePage);
        let base = data.as_mut_ptr();
        Ok(LayerPool { record, n_blocks, n_heads: layer.n_kv_heads, data, base })
    }

    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Blocks in the pool.
    pub(crate) fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Start of a block's record of a head. Panics where there is none.
    pub(crate) fn record_ptr(&self, head: usize, block: usize) -> *mut u8 {
        assert!(head < self.n_heads && block < self.n_blocks, "KV block outside of the pool");
        // SAFETY: inside the mapping by the assertion.
        unsafe { self.base.add((head * self.n_blocks + block) * self.record.bytes) }
    }

    /// Copies a block over another.
    pub(crate) fn copy_block(&mut self, from: usize, to: usize) {
        for head in 0..self.n_heads {
            let (from, to) = (self.record_ptr(head, from), self.record_ptr(head, to));
            if from != to {
                // SAFETY: two different records of the pool, to which we have exclusive access.
                unsafe { std::ptr::copy_nonoverlapping(from, to, self.record.bytes) };
            }
        }
    }

    /// Writes one token's keys and values of all heads (rows of heads side by side) to `slot` of `block`.
    ///
    /// # Safety
    /// No other thread reads or writes this token's slot at the same time.
    pub(crate) unsafe fn write(&self, isa: Isa, block: usize, slot: usize, k: &[f32], v: &[f32]) {
        assert!(slot < BLOCK_TOKENS, "slot outside of the block");
        let heads = k.chunks_exact(self.record.k_dim).zip(v.chunks_exact(self.record.v_dim));
        for (head, (k, v)) in heads.enumerate() {
            let base = self.record_ptr(head, block);
            dispatch(isa, Write { record: &self.record, base, slot, k, v });
        }
    }
}

struct Write<'a> {
    record: &'a Record,
    base: *mut u8,
    slot: usize,
    k: &'a [f32],
    v: &'a [f32],
}

impl Kernel for Write<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let r = self.record;
        // SAFETY: all offsets are inside the record; the caller of `write` keeps the token's slot to itself.
        unsafe {
            let values = self.base.add(r.values);
            match r.kv_type {
                KvType::F32 => {
                    for (d, &x) in self.k.iter().enumerate() {
                        *self.base.cast::<f32>().add(d * BLOCK_TOKENS + self.slot) = x;
                    }
                    let out = values.cast::<f32>().add(self.slot * r.v_stride);
                    std::ptr::copy_nonoverlapping(self.v.as_ptr(), out, self.v.len());
                }
                KvType::F16 => {
                    for (i, x) in self.k.chunks(LANES).enumerate() {
                        for (t, half) in halves(s, x).iter().enumerate().take(x.len()) {
                            *self.base.cast::<u16>().add((i * LANES + t) * BLOCK_TOKENS + self.slot) = *half;
                        }
                    }
                    for (i, x) in self.v.chunks(LANES).enumerate() {
                        let out = values.cast::<u16>().add(self.slot * r.v_stride + i * LANES);
                        out.cast::<[u16; LANES]>().write_unaligned(halves(s, x));
                    }
                }
                KvType::Int8 => {
                    let mut buffer = [0.0; LONGEST];
                    let k = rotated(self.k, &mut buffer);
                    let (scale, inv) = int8_scale(k);
                    *self.base.add(r.k_scales).cast::<f32>().add(self.slot) = scale;
                    for (d, &x) in k.iter().enumerate() {
                        *self.base.cast::<i8>().add(d * BLOCK_TOKENS + self.slot) = int8_code(x, inv);
                    }
                    let v = rotated(self.v, &mut buffer);
                    let (scale, inv) = int8_scale(v);
                    *self.base.add(r.v_scales).cast::<f32>().add(self.slot) = scale;
                    let out = values.cast::<i8>().add(self.slot * r.v_stride);
                    for (d, &x) in v.iter().enumerate() {
                        *out.add(d) = int8_code(x, inv);
                    }
                }
            }
        }
    }
}

/// Up to 16 values as halves, zero beyond. What is too large for a half becomes the largest one, not infinity.
#[inline(always)]
fn halves<S: Simd>(s: S, x: &[f32]) -> [u16; LANES] {
    let mut out = [0; LANES];
    let limit = f32::from(f16::MAX);
    let v = s.max(s.splat(-limit), s.min(s.splat(limit), s.load_part(x, 0.0)));
    // SAFETY: the array has 16 elements.
    unsafe { s.store_f16(v, out.as_mut_ptr()) };
    out
}

/// Scale of a head's values and its reciprocal: `amax / 127` and `127 / amax`; zero for a head that is (as good as) zero, NaN
/// for one that is not finite.
fn int8_scale(x: &[f32]) -> (f32, f32) {
    let amax = f32::from_bits(x.iter().map(|v| v.to_bits() & 0x7fff_ffff).max().unwrap_or(0));
    if !amax.is_finite() {
        (f32::NAN, 0.0)
    } else if amax < TINY {
        (0.0, 0.0)
    } else {
        (amax / 127.0, 127.0 / amax)
    }
}

/// Rounded to nearest even; 0 for NaN.
fn int8_code(x: f32, inv: f32) -> i8 {
    (x * inv).round_ties_even() as i8
}
