//! The two halves of a low-rank update: `u = A·x` for some rows, and `y += s·B·u` for some outputs of one.
//!
//! Both have outputs in lanes and one chain of fused multiply-adds an output, in the order of `hanzo_quant::canonical`. Bound: the
//! latency of that chain for one row (four cycles an input), the read bandwidth of `A` and `B` for many.
#![allow(unsafe_code)]

use hanzo_fusion::LowRank;

use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, dispatch};

/// Rows that [`project`] serves at once: as many chains as hide a multiply-add's latency.
pub(crate) const ROWS: usize = 4;

/// `out[i] = A · x[i]`, padded to the update's rank stride. `x` holds [`ROWS`] rows of inputs, of which as many count as `out` has room
/// for. Panics where sizes do not fit.
pub(crate) fn project(isa: Isa, update: &LowRank, x: &[f32], out: &mut [f32]) {
    let shape = update.shape();
    assert!(
        x.len() == ROWS * shape.n_in && out.len() <= ROWS * update.rank_stride(),
        "operands of a low-rank projection"
    );
    dispatch(isa, Project { update, x, out });
}

struct Project<'a> {
    update: &'a LowRank,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Project<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (n_in, stride) = (self.update.shape().n_in, self.update.rank_stride());
        let (x0, rest) = self.x.split_at(n_in);
        let (x1, rest) = rest.split_at(n_in);
        let (x2, x3) = rest.split_at(n_in);
        for tile in (0..stride).step_by(LANES) {
            let mut acc = [s.splat(0.0); ROWS];
            let columns = self.update.a().chunks_exact(stride);
            for ((((column, x0), x1), x2), x3) in columns.zip(x0).zip(x1).zip(x2).zip(x3) {
                // SAFETY: a column has `stride` elements, a multiple of the lanes, and `tile` is below it.
                let a = unsafe { s.load(column.as_ptr().add(tile)) };
                acc[0] = s.fma(a, s.splat(*x0), acc[0]);
                acc[1] = s.fma(a, s.splat(*x1), acc[1]);
                acc[2] = s.fma(a, s.splat(*x2), acc[2]);
                acc[3] = s.fma(a, s.splat(*x3), acc[3]);
            }
            for (out, acc) in self.out.chunks_exact_mut(stride).zip(acc) {
                if let Some(out) = out.get_mut(tile..tile + LANES) {
                    s.store_part(acc, out);
                }
            }
        }
    }
}

/// `y[i] += scale · (B · u)[n0 + i]`; `n0` is a multiple of the lanes. Panics where sizes do not fit.
pub(crate) fn add(isa: Isa, update: &LowRank, u: &[f32], scale: f32, n0: usize, y: &mut [f32]) {
    let shape = update.shape();
    let fits = n0.is_multiple_of(LANES) && n0 <= shape.n_out && y.len() <= shape.n_out - n0;
    assert!(fits && u.len() >= shape.rank, "operands of a low-rank update");
    dispatch(isa, Add { update, u, scale, n0, y });
}

struct Add<'a> {
    update: &'a LowRank,
    u: &'a [f32],
    scale: f32,
    n0: usize,
    y: &'a mut [f32],
}

impl Kernel for Add<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (rank, stride) = (self.update.shape().rank, self.update.out_stride());
        let scale = s.splat(self.scale);
        for (i, y) in self.y.chunks_mut(LANES).enumerate() {
            let mut acc = s.splat(0.0);
            let rows = self.update.b().chunks_exact(stride).take(rank);
            for (row, u) in rows.zip(self.u) {
                // SAFETY: a row has `stride` elements, a multiple of the lanes that `n0 + y.len()` does not exceed.
                let b = unsafe { s.load(row.as_ptr().add(self.n0 + i * LANES)) };
                acc = s.fma(b, s.splat(*u), acc);
            }
            let sum = s.fma(scale, acc, s.load_part(y, 0.0));
            s.store_part(sum, y);
        }
    }
}
