//! Quantized activations: the left operand of every contraction with a block format.
//!
//! One row is one record of memory, so that a core needs one base and one stride and a row can be gathered by one copy:
//!
//! ```text
//! codes   i8  × K, padded to 64          in k order: four consecutive codes are one broadcast of a core
//! groups  K/32 × { d, Σ codes, Σ codes of the first half, of the second }         f32
//! sums    i16 × K/16                     Σ codes of each half group
//! ```
//!
//! Rounding and scales are those of `hanzo_quant::canonical`, in every instruction set.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod x86;

use std::cell::UnsafeCell;

use hanzo_quant::canonical::{self, GROUP};

use crate::CpuError;
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::Vectors;
use crate::simd::{Kernel, LANES, Simd, dispatch};

/// Floats that a core reads for each group of 32: `d`, the sum of its codes, and that of each half.
pub(crate) const GROUP_FLOATS: usize = 4;

/// A matrix of quantized activations, `rows` × `k`.
///
/// Threads fill disjoint rows (or groups) through the `_shared` methods between two barriers, and read them after.
#[derive(Debug)]
pub struct Activations {
    rows: usize,
    k: usize,
    layout: RowLayout,
    data: Vec<Line>,
}

/// Unit of allocation: a cache line.
#[repr(C, align(64))]
struct Line(UnsafeCell<[u8; 64]>);

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

// SAFETY: shared writes go only through unsafe methods, whose callers promise that no two touch the same row part at a time.
unsafe impl Sync for Line {}

/// Offsets in a row's record, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLayout {
    pub(crate) groups: usize,
    pub(crate) sums: usize,
    pub(crate) stride: usize,
}

impl RowLayout {
    /// For rows of `k` elements, a multiple of 32; `None` where sizes overflow.
    pub(crate) fn new(k: usize) -> Option<Self> {
        let groups = k.checked_next_multiple_of(64)?;
        let sums = groups.checked_add((k / GROUP).checked_mul(4 * GROUP_FLOATS)?)?;
        let mut stride = sums.checked_add(k / 16 * 2)?.checked_next_multiple_of(64)?;
        if stride % 4096 < 64 {
            stride += 64; // rows a page apart would share one set of the first-level cache
        }
        Some(RowLayout { groups, sums, stride })
    }
}

impl Activations {
    /// Room for `rows` rows of `k` elements, all zero. `k` must be a multiple of 32.
    ///
    /// # Errors
    /// [`CpuError::Operands`] where `k` is not a multiple of 32, [`CpuError::Memory`] where the size is out of reach.
    pub fn new(rows: usize, k: usize) -> Result<Self, CpuError> {
        let mut a = Activations {
            rows: 0,
            k: 0,
            layout: RowLayout { groups: 0, sums: 0, stride: 0 },
            data: Vec::new(),
        };
        a.reshape(rows, k)?;
        Ok(a)
    }

    /// Gives it another shape; memory is kept where it suffices. The contents become unspecified.
    ///
    /// # Errors
    /// As [`Activations::new`].
    pub fn reshape(&mut self, rows: usize, k: usize) -> Result<(), CpuError> {
        if !k.is_multiple_of(GROUP) {
            return Err(CpuError::Operands(format!(
                "activations of {k} columns; a multiple of {GROUP} is needed"
            )));
        }
        let memory = CpuError::Memory { what: "activations", bytes: usize::MAX };
        let Some(layout) = RowLayout::new(k) else { return Err(memory) };
        // One line more: cores read whole vectors at the end of a record.
        let Some(bytes) = layout.stride.checked_mul(rows).and_then(|b| b.checked_add(64)) else {
            return Err(memory);
        };
        let lines = bytes / 64;
        if let Some(more) = lines.checked_sub(self.data.len()) {
            self.data.try_reserve_exact(more).map_err(|_| CpuError::Memory { what: "activations", bytes })?;
            self.data.resize_with(lines, || Line(UnsafeCell::new([0; 64])));
        }
        (self.rows, self.k, self.layout) = (rows, k, layout);
        Ok(())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.data.len() * 64
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Quantizes `x` (`k` values) as row `row`. Panics where sizes do not fit.
    pub fn quantize_row(&mut self, isa: Isa, row: usize, x: &[f32]) {
        // SAFETY: exclusive access.
        unsafe { self.quantize_row_shared(isa, row, x) }
    }

    /// As [`quantize_row`](Self::quantize_row), for several threads at once.
    ///
    /// # Safety
    /// No other thread may read or write this row at the same time.
    pub unsafe fn quantize_row_shared(&self, isa: Isa, row: usize, x: &[f32]) {
        assert_eq!(x.len(), self.k, "activation row length");
        for (g, x) in x.chunks_exact(GROUP).enumerate() {
            // SAFETY: the caller's promise.
            unsafe { self.quantize_group_shared(isa, row, g, x) }
        }
    }

    /// Quantizes the 32 values `x` as group `group` of row `row`. Panics where sizes do not fit.
    ///
    /// # Safety
    /// No other thread may read or write this group at the same time.
    #[inline]
    pub unsafe fn quantize_group_shared(&self, isa: Isa, row: usize, group: usize, x: &[f32]) {
        assert!(row < self.rows && group < self.k / GROUP, "activation group outside of the matrix");
        let Some(x) = x.first_chunk::<GROUP>() else {
            panic_short(x.len());
        };
        // SAFETY: in bounds by the assertion and the record's layout; exclusive by the caller's promise.
        unsafe {
            let record = self.row_ptr(row).cast_mut();
            let codes = record.add(group * GROUP).cast::<[i8; GROUP]>();
            let floats = record.add(self.layout.groups).cast::<[f32; GROUP_FLOATS]>().add(group);
            let sums = record.add(self.layout.sums).cast::<[i16; 2]>().add(group);
            #[cfg(target_arch = "x86_64")]
            match isa.vectors() {
                Vectors::Portable => {}
                Vectors::Avx2 { .. } | Vectors::Avx512 => return x86::quantize(x, codes, floats, sums),
            }
            let _ = isa;
            quantize(x, &mut *codes, &mut *floats, &mut *sums);
        }
    }

    /// Start of the record of row `row`, which must exist.
    pub(crate) fn row_ptr(&self, row: usize) -> *const u8 {
        debug_assert!(row < self.rows);
        // SAFETY: rows · stride bytes are allocated. `UnsafeCell` is transparent, lines are contiguous.
        unsafe { self.data.as_ptr().cast::<u8>().add(row * self.layout.stride) }
    }

    pub(crate) fn layout(&self) -> RowLayout {
        self.layout
    }

    /// What row `row` stands for, `code · d`, as low-rank updates see it. Panics where sizes do not fit.
    pub(crate) fn dequantize_row(&self, isa: Isa, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.k, "activation row");
        let record = self.row_ptr(row);
        // SAFETY: in bounds by the record's layout; the caller has the row to itself or others only read it.
        let (codes, groups) = unsafe {
            let groups = record.add(self.layout.groups).cast::<[f32; GROUP_FLOATS]>();
            (
                std::slice::from_raw_parts(record.cast::<i8>(), self.k),
                std::slice::from_raw_parts(groups, self.k / GROUP),
            )
        };
        dispatch(isa, Dequantize { codes, groups, out });
    }

    /// Row `row` as codes and scales, for tests and debugging.
    pub fn row(&self, row: usize) -> canonical::QuantizedRow {
        assert!(row < self.rows);
        let record = self.row_ptr(row);
        // SAFETY: in bounds by the record's layout.
        unsafe {
            let codes = std::slice::from_raw_parts(record.cast::<i8>(), self.k).to_vec();
            let floats = std::slice::from_raw_parts(
                record.add(self.layout.groups).cast::<[f32; GROUP_FLOATS]>(),
                self.k / GROUP,
            );
            canonical::QuantizedRow { codes, d: floats.iter().map(|f| f[0]).collect() }
        }
    }
}

struct Dequantize<'a> {
    codes: &'a [i8],
    groups: &'a [[f32; GROUP_FLOATS]],
    out: &'a mut [f32],
}

impl Kernel for Dequantize<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.codes.chunks_exact(GROUP).zip(self.groups).zip(self.out.chunks_exact_mut(GROUP));
        for ((codes, group), out) in rows {
            let d = s.splat(group[0]);
            for at in (0..GROUP).step_by(LANES) {
                // SAFETY: a group has 32 elements, two vectors.
                unsafe {
                    let codes = s.load_i8(codes.as_ptr().add(at));
                    s.store(s.mul(d, codes), out.as_mut_ptr().add(at));
                }
            }
        }
    }
}

#[cold]
fn panic_short(len: usize) -> ! {
    std::panic::resume_unwind(Box::new(format!("an activation group of {len} values; {GROUP} are needed")))
}

/// The portable path.
fn quantize(
    x: &[f32; GROUP],
    codes: &mut [i8; GROUP],
    floats: &mut [f32; GROUP_FLOATS],
    sums: &mut [i16; 2],
) {
    let d = canonical::quantize_group(x, codes);
    for (half, sum) in codes.chunks_exact(GROUP / 2).zip(sums.iter_mut()) {
        *sum = half.iter().map(|&c| i16::from(c)).sum();
    }
    let [a, b] = *sums;
    *floats = [d, f32::from(a + b), f32::from(a), f32::from(b)];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(a: &Activations, row: usize) -> Vec<u8> {
        // SAFETY: in bounds.
        unsafe { std::slice::from_raw_parts(a.row_ptr(row), a.layout.stride) }.to_vec()
    }

    #[test]
    fn every_instruction_set_writes_the_same_record() {
        let specials =
            [0.0, -0.0, 1e-45, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN, -1.5, 0.5, 127.0];
        for k in [32, 96, 256] {
            let rows = 60;
            let x: Vec<f32> = (0..rows * k)
                .map(|i: usize| {
                    let h = (i as u32).wrapping_mul(0x9e37_79b9) ^ 0x5bd1;
                    let h = h ^ h >> 15;
                    let row = i / k;
                    match row % 4 {
                        0 => (h % 1000) as f32 - 500.0,
                        1 => (h % 255) as f32 * 0.5 - 63.5,
                        2 => f32::from_bits(h.wrapping_mul(0x85eb_ca6b)),
                        _ if h.is_multiple_of(7) => specials[row / 4 % specials.len()],
                        _ => (h % 17) as f32 * 1e-3,
                    }
                })
                .collect();
            let make = |isa| {
                let mut a = Activations::new(rows, k).unwrap();
                x.chunks(k).enumerate().for_each(|(m, x)| a.quantize_row(isa, m, x));
                a
            };
            let want = make(Isa::Scalar);
            for (m, x) in x.chunks(k).enumerate() {
                let (got, reference) = (want.row(m), canonical::QuantizedRow::new(x));
                assert_eq!(got.codes, reference.codes);
                assert_eq!(
                    got.d.iter().map(|d| d.to_bits()).collect::<Vec<_>>(),
                    reference.d.iter().map(|d| d.to_bits()).collect::<Vec<_>>()
                );
            }
            for isa in Isa::available() {
                let got = make(isa);
                for m in 0..rows {
                    assert_eq!(record(&got, m), record(&want, m), "{isa:?} row {m} of {k}");
                }
            }
        }
    }

    #[test]
    fn ragged_columns_are_refused() {
        assert!(matches!(Activations::new(1, 33), Err(CpuError::Operands(_))));
        assert!(matches!(Activations::new(usize::MAX / 2, 64), Err(CpuError::Memory { .. })));
    }
}
