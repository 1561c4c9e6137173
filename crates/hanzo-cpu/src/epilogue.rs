//! Where the results of a contraction go, and what is done to them while they are still in the first-level cache.
//!
//! A core computes outputs in segments of up to [`SEGMENT`] consecutive columns of one row, and hands each to an epilogue exactly once.
//! The epilogues here store, add a bias, add a residual, and gate (`act(gate) · up`, two matrices in one walk) with or without
//! quantization for the next contraction. A plan executor can write its own.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::activations::Activations;
use crate::isa::Isa;

/// Most columns in a segment; segments start at multiples of it.
pub const SEGMENT: usize = 32;

/// Receives the outputs of one matrix.
pub trait Epilogue: Sync {
    /// `y` holds columns `n0..n0 + y.len()` of row `m`; `n0` is a multiple of [`SEGMENT`], `y.len() ≤ SEGMENT` and shorter only at the
    /// end of a row. `y` may be used as scratch.
    ///
    /// # Safety
    /// Over a contraction the core calls this once for every segment, from any thread; nobody else may call it for the same
    /// segments at the same time.
    unsafe fn finish(&self, m: usize, n0: usize, y: &mut [f32]);

    /// Told some thousand cycles before [`finish`](Self::finish) is called for this segment: a chance to have the memory brought in that will be
    /// written. Does nothing by default.
    fn prefetch(&self, m: usize, n0: usize) {
        let _ = (m, n0);
    }
}

/// Receives the outputs of two matrices that are contracted with the same activations (gate and up).
pub trait PairEpilogue: Sync {
    /// As [`Epilogue::finish`], with the same segment of both results.
    ///
    /// # Safety
    /// As [`Epilogue::finish`].
    unsafe fn finish(&self, m: usize, n0: usize, gate: &mut [f32], up: &mut [f32]);

    /// As [`Epilogue::prefetch`].
    fn prefetch(&self, m: usize, n0: usize) {
        let _ = (m, n0);
    }
}

/// A row-major `f32` matrix that several threads write disjoint parts of.
#[derive(Clone, Copy, Debug)]
pub struct RowsMut<'a> {
    data: *mut f32,
    rows: usize,
    stride: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: access is only by unsafe methods, whose callers promise disjoint segments.
unsafe impl Sync for RowsMut<'_> {}
// SAFETY: as above.
unsafe impl Send for RowsMut<'_> {}

impl<'a> RowsMut<'a> {
    /// Rows of `stride` elements; as many as `data` holds whole ones.
    pub fn new(data: &'a mut [f32], stride: usize) -> Self {
        let rows = data.len().checked_div(stride).unwrap_or(0);
        RowsMut { data: data.as_mut_ptr(), rows, stride, life: PhantomData }
    }

    /// The same over memory that the caller manages (an arena).
    ///
    /// # Safety
    /// `data` must be valid for reads and writes of `rows * stride` elements for `'a`, and others may not touch what is being written.
    pub unsafe fn from_raw(data: *mut f32, rows: usize, stride: usize) -> Self {
        RowsMut { data, rows, stride, life: PhantomData }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Prefetches a segment for writing. It need not exist.
    #[inline]
    pub fn prefetch(&self, m: usize, n0: usize) {
        let _ = (m, n0);
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::*;
            let at = self.data.wrapping_add(m * self.stride + n0);
            // SAFETY: a prefetch never faults.
            unsafe {
                _mm_prefetch::<_MM_HINT_ET0>(at.cast());
                _mm_prefetch::<_MM_HINT_ET0>(at.wrapping_add(16).cast());
            }
        }
    }

    /// Columns `n0..n0 + len` of row `m`. Panics where they are outside.
    ///
    /// # Safety
    /// No other reference to this segment may be in use.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn segment(&self, m: usize, n0: usize, len: usize) -> &mut [f32] {
        assert!(
            m < self.rows && n0 <= self.stride && len <= self.stride - n0,
            "segment outside of the matrix"
        );
        // SAFETY: inside the allocation by the assertion; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(m * self.stride + n0), len) }
    }
}

/// `out = y`.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a>(pub RowsMut<'a>);

impl Epilogue for Store<'_> {
    unsafe fn finish(&self, m: usize, n0: usize, y: &mut [f32]) {
        // SAFETY: the core hands out disjoint segments.
        let out = unsafe { self.0.segment(m, n0, y.len()) };
        // The known length of a whole segment makes this a few vector moves, not a call.
        match (out.first_chunk_mut::<SEGMENT>(), y.first_chunk::<SEGMENT>()) {
            (Some(out), Some(y)) => *out = *y,
            _ => out.copy_from_slice(y),
        }
    }

    fn prefetch(&self, m: usize, n0: usize) {
        self.0.prefetch(m, n0);
    }
}

/// `out = out + y`: the residual stream is updated in place.
#[derive(Clone, Copy, Debug)]
pub struct AddTo<'a>(pub RowsMut<'a>);

impl Epilogue for AddTo<'_> {
    unsafe fn finish(&self, m: usize, n0: usize, y: &mut [f32]) {
        // SAFETY: the core hands out disjoint segments.
        let out = unsafe { self.0.segment(m, n0, y.len()) };
        if let (Some(out), Some(y)) = (out.first_chunk_mut::<SEGMENT>(), y.first_chunk::<SEGMENT>()) {
            (0..SEGMENT).for_each(|i| out[i] += y[i]);
        } else {
            out.iter_mut().zip(y).for_each(|(out, y)| *out += *y);
        }
    }

    fn prefetch(&self, m: usize, n0: usize) {
        self.0.prefetch(m, n0);
    }
}

/// `out = residual + y`, rows of `residual` being as long as those of `out`.
#[derive(Clone, Copy, Debug)]
pub struct AddResidual<'a> {
    /// What is added, row-major with the stride of `out`.
    pub residual: &'a [f32],
    /// Where the sum goes.
    pub out: RowsMut<'a>,
}

impl Epilogue for AddResidual<'_> {
    unsafe fn finish(&self, m: usize, n0: usize, y: &mut [f32]) {
        // SAFETY: the core hands out disjoint segments.
        let out = unsafe { self.out.segment(m, n0, y.len()) };
        let at = m * self.out.stride() + n0;
        for ((out, y), r) in out.iter_mut().zip(y.iter()).zip(&self.residual[at..at + y.len()]) {
            *out = r + *y;
        }
    }

    fn prefetch(&self, m: usize, n0: usize) {
        self.out.prefetch(m, n0);
    }
}

/// Adds `bias[n]` before the next epilogue.
#[derive(Clone, Copy, Debug)]
pub struct Bias<'a, E> {
    /// One value a column.
    pub bias: &'a [f32],
    /// What happens then.
    pub then: E,
}

impl<E: Epilogue> Epilogue for Bias<'_, E> {
    unsafe fn finish(&self, m: usize, n0: usize, y: &mut [f32]) {
        for (y, b) in y.iter_mut().zip(&self.bias[n0..]) {
            *y += b;
        }
        // SAFETY: passed through.
        unsafe { self.then.finish(m, n0, y) }
    }

    fn prefetch(&self, m: usize, n0: usize) {
        self.then.prefetch(m, n0);
    }
}

/// `gate = act(gate) · up`, in place, over slices of equal length.
pub type Gate = fn(isa: Isa, gate: &mut [f32], up: &[f32]);

/// `out = act(gate) · up`.
#[derive(Clone, Copy)]
pub struct GatedStore<'a> {
    /// Activation and product.
    pub gate: Gate,
    /// Instruction set for it.
    pub isa: Isa,
    /// Where the product goes.
    pub out: RowsMut<'a>,
}

impl PairEpilogue for GatedStore<'_> {
    unsafe fn finish(&self, m: usize, n0: usize, gate: &mut [f32], up: &mut [f32]) {
        (self.gate)(self.isa, gate, up);
        // SAFETY: the core hands out disjoint segments.
        unsafe { self.out.segment(m, n0, gate.len()) }.copy_from_slice(gate);
    }

    fn prefetch(&self, m: usize, n0: usize) {
        self.out.prefetch(m, n0);
    }
}

/// `act(gate) · up`, quantized as the next contraction's activations.
#[derive(Clone, Copy)]
pub struct GatedQuantize<'a> {
    /// Activation and product.
    pub gate: Gate,
    /// Instruction set for it.
    pub isa: Isa,
    /// Where the codes go: row `m`, group `n0 / 32`.
    pub out: &'a Activations,
}

impl PairEpilogue for GatedQuantize<'_> {
    unsafe fn finish(&self, m: usize, n0: usize, gate: &mut [f32], up: &mut [f32]) {
        (self.gate)(self.isa, gate, up);
        // SAFETY: a segment is a whole group (the outputs are a multiple of 32 where they feed a contraction), written once.
        unsafe { self.out.quantize_group_shared(self.isa, m, n0 / SEGMENT, gate) }
    }
}
