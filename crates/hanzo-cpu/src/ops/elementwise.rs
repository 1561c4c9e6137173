//! Elementwise operations.

use hanzo_fusion::graph::Activation;

use super::{map, map2};
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, dispatch, math};

/// A function of two elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Binary {
    Add,
    Mul,
}

struct Binaries<'a>(Binary, &'a [f32], &'a [f32], &'a mut [f32]);

impl Kernel for Binaries<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Binaries(op, a, b, out) = self;
        match op {
            Binary::Add => map2(s, a, b, out, |a, b| s.add(a, b)),
            Binary::Mul => map2(s, a, b, out, |a, b| s.mul(a, b)),
        }
    }
}

/// `out = a ∘ b`, all of one length.
pub(crate) fn binary(isa: Isa, op: Binary, a: &[f32], b: &[f32], out: &mut [f32]) {
    debug_assert!(a.len() == out.len() && b.len() == out.len());
    dispatch(isa, Binaries(op, a, b, out));
}

/// A function of one element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unary {
    Scale(f32),
    Activate(Activation),
    /// `cap · tanh(x / cap)`.
    Softcap(f32),
}

struct Unaries<'a>(Unary, &'a [f32], &'a mut [f32]);

impl Kernel for Unaries<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Unaries(op, x, out) = self;
        match op {
            Unary::Scale(factor) => map(s, x, out, |x| s.mul(x, s.splat(factor))),
            Unary::Softcap(cap) => {
                let cap = s.splat(cap);
                map(s, x, out, |x| s.mul(cap, math::tanh(s, s.div(x, cap))));
            }
            Unary::Activate(Activation::Silu) => map(s, x, out, |x| math::silu(s, x)),
            Unary::Activate(Activation::GeluTanh) => map(s, x, out, |x| math::gelu_tanh(s, x)),
            Unary::Activate(Activation::Gelu) => map(s, x, out, |x| math::gelu_erf(s, x)),
            Unary::Activate(Activation::Relu) => map(s, x, out, |x| s.max(s.splat(0.0), x)),
            Unary::Activate(Activation::Sigmoid) => map(s, x, out, |x| math::sigmoid(s, x)),
            Unary::Activate(Activation::Tanh) => map(s, x, out, |x| math::tanh(s, x)),
        }
    }
}

/// `out = f(x)`, both of one length.
pub(crate) fn unary(isa: Isa, op: Unary, x: &[f32], out: &mut [f32]) {
    debug_assert!(x.len() == out.len());
    dispatch(isa, Unaries(op, x, out));
}

/// The same operations in place, for kernels that are already on an instruction set.
pub(crate) mod apply {
    use super::{Binary, Unary};
    use crate::simd::{LANES, Simd, math};
    use hanzo_fusion::graph::Activation;

    #[inline(always)]
    fn each<S: Simd>(s: S, y: &mut [f32], f: impl Fn(S::F) -> S::F) {
        let mut whole = y.chunks_exact_mut(LANES);
        for y in &mut whole {
            // SAFETY: the chunk has 16 elements.
            unsafe { s.store(f(s.load(y.as_ptr())), y.as_mut_ptr()) };
        }
        let tail = whole.into_remainder();
        if !tail.is_empty() {
            s.store_part(f(s.load_part(tail, 0.0)), tail);
        }
    }

    /// `y = f(y)`.
    #[inline(always)]
    pub(crate) fn unary<S: Simd>(s: S, op: Unary, y: &mut [f32]) {
        match op {
            Unary::Scale(factor) => each(s, y, |x| s.mul(x, s.splat(factor))),
            Unary::Softcap(cap) => {
                let cap = s.splat(cap);
                each(s, y, |x| s.mul(cap, math::tanh(s, s.div(x, cap))));
            }
            Unary::Activate(Activation::Silu) => each(s, y, |x| math::silu(s, x)),
            Unary::Activate(Activation::GeluTanh) => each(s, y, |x| math::gelu_tanh(s, x)),
            Unary::Activate(Activation::Gelu) => each(s, y, |x| math::gelu_erf(s, x)),
            Unary::Activate(Activation::Relu) => each(s, y, |x| s.max(s.splat(0.0), x)),
            Unary::Activate(Activation::Sigmoid) => each(s, y, |x| math::sigmoid(s, x)),
            Unary::Activate(Activation::Tanh) => each(s, y, |x| math::tanh(s, x)),
        }
    }

    /// `y = y ∘ b`, for as many elements as `b` has.
    #[inline(always)]
    pub(crate) fn binary<S: Simd>(s: S, op: Binary, y: &mut [f32], b: &[f32]) {
        let f = |x, b| match op {
            Binary::Add => s.add(x, b),
            Binary::Mul => s.mul(x, b),
        };
        let mut whole = y.chunks_exact_mut(LANES);
        let mut bs = b.chunks_exact(LANES);
        for (y, b) in (&mut whole).zip(&mut bs) {
            // SAFETY: both chunks have 16 elements.
            unsafe { s.store(f(s.load(y.as_ptr()), s.load(b.as_ptr())), y.as_mut_ptr()) };
        }
        let tail = whole.into_remainder();
        if !tail.is_empty() {
            s.store_part(f(s.load_part(tail, 0.0), s.load_part(bs.remainder(), 0.0)), tail);
        }
    }
}
