//! Elementwise operations.

use hanzo_fusion::graph::Activation;

use super::{Map, Map2, map, map_in_place, map2, map2_in_place};
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, dispatch, math};

/// A function of two elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Binary {
    Add,
    Mul,
}

/// A function of one element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unary {
    Scale(f32),
    Activate(Activation),
    /// `cap · tanh(x / cap)`.
    Softcap(f32),
}

macro_rules! unary_map {
    ($($name:ident: |$s:ident, $x:ident| $body:expr;)+) => {
        $(
            #[derive(Clone, Copy)]
            struct $name;
            impl Map for $name {
                #[inline(always)]
                fn at<S: Simd>(self, $s: S, $x: S::F) -> S::F {
                    $body
                }
            }
        )+
    };
}

unary_map! {
    Silu: |s, x| math::silu(s, x);
    GeluTanh: |s, x| math::gelu_tanh(s, x);
    Gelu: |s, x| math::gelu_erf(s, x);
    Relu: |s, x| s.max(s.splat(0.0), x);
    Sigmoid: |s, x| math::sigmoid(s, x);
    Tanh: |s, x| math::tanh(s, x);
    Softplus: |s, x| math::softplus(s, x);
}

#[derive(Clone, Copy)]
struct Scale(f32);
impl Map for Scale {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.mul(x, s.splat(self.0))
    }
}

#[derive(Clone, Copy)]
struct Softcap(f32);
impl Map for Softcap {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::F) -> S::F {
        let cap = s.splat(self.0);
        s.mul(cap, math::tanh(s, s.div(x, cap)))
    }
}

#[derive(Clone, Copy)]
struct Add;
impl Map2 for Add {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F {
        s.add(a, b)
    }
}

#[derive(Clone, Copy)]
struct Mul;
impl Map2 for Mul {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F {
        s.mul(a, b)
    }
}

/// Calls `$run` with the function that `$op` names.
macro_rules! with_unary {
    ($op:expr, $f:ident => $run:expr) => {
        match $op {
            Unary::Scale(factor) => {
                let $f = Scale(factor);
                $run
            }
            Unary::Softcap(cap) => {
                let $f = Softcap(cap);
                $run
            }
            Unary::Activate(Activation::Silu) => {
                let $f = Silu;
                $run
            }
            Unary::Activate(Activation::GeluTanh) => {
                let $f = GeluTanh;
                $run
            }
            Unary::Activate(Activation::Gelu) => {
                let $f = Gelu;
                $run
            }
            Unary::Activate(Activation::Relu) => {
                let $f = Relu;
                $run
            }
            Unary::Activate(Activation::Sigmoid) => {
                let $f = Sigmoid;
                $run
            }
            Unary::Activate(Activation::Tanh) => {
                let $f = Tanh;
                $run
            }
            Unary::Activate(Activation::Softplus) => {
                let $f = Softplus;
                $run
            }
        }
    };
}

struct Binaries<'a>(Binary, &'a [f32], &'a [f32], &'a mut [f32]);

impl Kernel for Binaries<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Binaries(op, a, b, out) = self;
        match op {
            Binary::Add => map2(s, a, b, out, Add),
            Binary::Mul => map2(s, a, b, out, Mul),
        }
    }
}

/// `out = a ∘ b`, all of one length.
pub(crate) fn binary(isa: Isa, op: Binary, a: &[f32], b: &[f32], out: &mut [f32]) {
    debug_assert!(a.len() == out.len() && b.len() == out.len());
    dispatch(isa, Binaries(op, a, b, out));
}

struct Unaries<'a>(Unary, &'a [f32], &'a mut [f32]);

impl Kernel for Unaries<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Unaries(op, x, out) = self;
        with_unary!(op, f => map(s, x, out, f));
    }
}

/// `out = f(x)`, both of one length.
pub(crate) fn unary(isa: Isa, op: Unary, x: &[f32], out: &mut [f32]) {
    debug_assert!(x.len() == out.len());
    dispatch(isa, Unaries(op, x, out));
}

/// `y = f(y)`, for kernels that are already on an instruction set.
#[inline(always)]
pub(crate) fn unary_in_place<S: Simd>(s: S, op: Unary, y: &mut [f32]) {
    with_unary!(op, f => map_in_place(s, y, f));
}

/// `y = y ∘ b`, likewise, for as many elements as both have.
#[inline(always)]
pub(crate) fn binary_in_place<S: Simd>(s: S, op: Binary, y: &mut [f32], b: &[f32]) {
    match op {
        Binary::Add => map2_in_place(s, y, b, Add),
        Binary::Mul => map2_in_place(s, y, b, Mul),
    }
}
