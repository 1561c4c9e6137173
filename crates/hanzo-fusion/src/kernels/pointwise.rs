//! Elementwise functions: what the graph's pointwise ops do to one element. Kernels are composed of these.

use super::math;
use crate::graph::Activation;
use crate::kernel::{Builder, IntoVal, Val};

/// `f(x)`, the bits of [`hanzo_quant::math`].
#[track_caller]
pub fn activate<'k>(k: &'k Builder, f: Activation, x: Val<'k, f32>) -> Val<'k, f32> {
    match f {
        Activation::Silu => math::silu(k, x),
        Activation::GeluTanh => math::gelu_tanh(k, x),
        Activation::Gelu => math::gelu_erf(k, x),
        Activation::Relu => 0.0.val(k).max(x),
        Activation::Sigmoid => math::sigmoid(k, x),
        Activation::Tanh => math::tanh(k, x),
        Activation::Softplus => math::softplus(k, x),
    }
}

/// `cap · tanh(x / cap)`.
#[track_caller]
pub fn softcap<'k>(k: &'k Builder, x: Val<'k, f32>, cap: Val<'k, f32>) -> Val<'k, f32> {
    cap * math::tanh(k, x / cap)
}
