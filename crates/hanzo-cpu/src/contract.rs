//! Contractions: `y[m, n] = Σ_k w[n, k] · x[m, k]`, for one matrix, for two at once, and over routed experts.
//!
//! All threads of a run call the same function with the same arguments; they share the work by [`Ctx::claim`] and do not wait at the
//! end (the caller puts a [`Ctx::barrier`] before the results are read, and may start further contractions before it). Results go to an
//! [`Epilogue`] segment by segment.
//!
//! Few rows go through the `matvec` core, which streams the packed weights once for all of them; many through the `gemm` core, which
//! unpacks a panel of weights once for a block of rows. Bits do not depend on which: both follow `hanzo_quant::canonical`.
#![allow(unsafe_code)]

use crate::CpuError;
use crate::activations::Activations;
use crate::epilogue::{Epilogue, PairEpilogue};
use crate::packed::PackedMatrix;
use crate::pool::Ctx;
use crate::{gemm, matvec, moe};

pub use crate::moe::Routes;

/// The left operand: what the weight's format asks for ([`PackedMatrix::takes_quantized`]).
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// Quantized rows, for block formats.
    Quantized(&'a Activations),
    /// `f32` rows, for F32, F16 and BF16: row `m` starts at `m * stride`.
    Float {
        /// The elements.
        data: &'a [f32],
        /// Elements from one row to the next.
        stride: usize,
    },
}

/// Contracts the first `m` rows of `x` with `w`; row `i`, column `n` of the result goes to `out`.
///
/// # Errors
/// [`CpuError::Operands`] where the operands do not fit together. All threads get the same error, and no work is done.
pub fn matmul(
    ctx: &Ctx<'_>,
    w: &PackedMatrix,
    x: Rows<'_>,
    m: usize,
    out: &dyn Epilogue,
) -> Result<(), CpuError> {
    check(w, x, m, 1)?;
    run(ctx, [w], x, m, &Single(out));
    Ok(())
}

/// Contracts the first `m` rows of `x` with two matrices of one shape in one walk; segments of both results go to `out` together.
///
/// # Errors
/// As [`matmul`]; also where the two matrices differ in shape.
pub fn matmul_pair(
    ctx: &Ctx<'_>,
    gate: &PackedMatrix,
    up: &PackedMatrix,
    x: Rows<'_>,
    m: usize,
    out: &dyn PairEpilogue,
) -> Result<(), CpuError> {
    check(gate, x, m, 1)?;
    check_pair(gate, up, x, m, 1)?;
    run(ctx, [gate, up], x, m, &Pair(out));
    Ok(())
}

/// Contracts rows with the experts that `routes` names: for every pair `p = token · top_k + slot`, row `p` of the result is the
/// product of the expert chosen there with row `p / x_div` of `x`. `x_div = top_k` where `x` has one row a token (gate and up),
/// 1 where it has one a pair (down).
///
/// # Errors
/// As [`matmul`]; also where `routes` was built for another number of experts.
pub fn moe_matmul(
    ctx: &Ctx<'_>,
    w: &PackedMatrix,
    x: Rows<'_>,
    x_div: usize,
    routes: &Routes,
    out: &dyn Epilogue,
) -> Result<(), CpuError> {
    check_routes(w, routes, x_div)?;
    check(w, x, routes.rows(x_div), w.experts())?;
    moe::run(ctx, [w], x, x_div, routes, &Single(out));
    Ok(())
}

/// [`moe_matmul`] with two matrices in one walk.
///
/// # Errors
/// As [`moe_matmul`]; also where the two matrices differ in shape.
pub fn moe_matmul_pair(
    ctx: &Ctx<'_>,
    gate: &PackedMatrix,
    up: &PackedMatrix,
    x: Rows<'_>,
    x_div: usize,
    routes: &Routes,
    out: &dyn PairEpilogue,
) -> Result<(), CpuError> {
    check_routes(gate, routes, x_div)?;
    check(gate, x, routes.rows(x_div), gate.experts())?;
    check_pair(gate, up, x, routes.rows(x_div), gate.experts())?;
    moe::run(ctx, [gate, up], x, x_div, routes, &Pair(out));
    Ok(())
}

fn check_routes(w: &PackedMatrix, routes: &Routes, x_div: usize) -> Result<(), CpuError> {
    if routes.experts() != w.experts() || x_div == 0 {
        let (routed, has) = (routes.experts(), w.experts());
        return Err(CpuError::Operands(format!(
            "routes over {routed} experts, {has} in the weights, {x_div} pairs a row"
        )));
    }
    Ok(())
}

fn check_pair(
    gate: &PackedMatrix,
    up: &PackedMatrix,
    x: Rows<'_>,
    m: usize,
    experts: usize,
) -> Result<(), CpuError> {
    check(up, x, m, experts)?;
    if gate.n_out() != up.n_out() {
        let (g, u) = (gate.n_out(), up.n_out());
        return Err(CpuError::Operands(format!("a pair of matrices with {g} and {u} outputs")));
    }
    Ok(())
}

fn check(w: &PackedMatrix, x: Rows<'_>, m: usize, experts: usize) -> Result<(), CpuError> {
    let refuse = |why: String| Err(CpuError::Operands(why));
    let k = w.n_in();
    if w.experts() != experts {
        return refuse(format!("a stack of {} experts without routes", w.experts()));
    }
    match x {
        Rows::Quantized(a) => {
            if !w.takes_quantized() {
                return refuse(format!("{} weights take f32 rows", w.format().name));
            }
            if a.k() != k || a.rows() < m {
                return refuse(format!("{m} rows of {k} needed, {} of {} given", a.rows(), a.k()));
            }
        }
        Rows::Float { data, stride } => {
            if w.takes_quantized() {
                return refuse(format!("{} weights take quantized rows", w.format().name));
            }
            let need = m.checked_sub(1).map_or(Some(0), |last| last.checked_mul(stride)?.checked_add(k));
            if need.is_none_or(|need| need > data.len()) {
                return refuse(format!("{m} rows of {k}, {stride} apart, in {} values", data.len()));
            }
        }
    }
    Ok(())
}

/// Results of `P` matrices, taken together.
pub(crate) trait Finish<const P: usize>: Sync {
    /// # Safety
    /// As [`Epilogue::finish`].
    unsafe fn finish(&self, m: usize, n0: usize, y: [&mut [f32]; P]);
    fn prefetch(&self, m: usize, n0: usize);
}

pub(crate) struct Single<'a>(pub(crate) &'a dyn Epilogue);
pub(crate) struct Pair<'a>(pub(crate) &'a dyn PairEpilogue);

impl Finish<1> for Single<'_> {
    unsafe fn finish(&self, m: usize, n0: usize, [y]: [&mut [f32]; 1]) {
        // SAFETY: passed through.
        unsafe { self.0.finish(m, n0, y) }
    }
    fn prefetch(&self, m: usize, n0: usize) {
        self.0.prefetch(m, n0);
    }
}

impl Finish<2> for Pair<'_> {
    unsafe fn finish(&self, m: usize, n0: usize, [gate, up]: [&mut [f32]; 2]) {
        // SAFETY: passed through.
        unsafe { self.0.finish(m, n0, gate, up) }
    }
    fn prefetch(&self, m: usize, n0: usize) {
        self.0.prefetch(m, n0);
    }
}

fn run<const P: usize>(ctx: &Ctx<'_>, w: [&PackedMatrix; P], x: Rows<'_>, m: usize, out: &dyn Finish<P>) {
    let Some(first) = w.first() else { return };
    if m == 0 {
        return;
    }
    if gemm::pays(ctx.isa(), &w, m) {
        gemm::run(ctx, w, x, m, out);
    } else {
        let strips = first.strips();
        let mut strip_of = matvec::Strips::new(ctx.isa(), w, x, m, |i| (i, i));
        ctx.claim(strips, |strip| strip_of.compute(0, strip, out));
    }
}
