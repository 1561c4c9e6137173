//! Every instruction set against the scalar functions of `hanzo_quant::math`, bit for bit.

use hanzo_quant::{f16, math as reference};

use super::*;

struct Map<'a>(&'a [f32], usize);

impl Kernel for Map<'_> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let mut out = Vec::new();
        for x in self.0.chunks(LANES) {
            let v = s.load_part(x, 1.0);
            let y = match self.1 {
                0 => math::exp(s, v),
                1 => math::sigmoid(s, v),
                2 => math::silu(s, v),
                3 => math::gelu_tanh(s, v),
                4 => math::gelu_erf(s, v),
                5 => math::tanh(s, v),
                _ => math::erf(s, v),
            };
            let mut part = vec![0.0; x.len()];
            s.store_part(y, &mut part);
            out.extend(part);
        }
        out
    }
}

#[test]
fn functions_have_the_scalar_bits() {
    let functions: [fn(f32) -> f32; 7] = [
        reference::exp,
        reference::sigmoid,
        reference::silu,
        reference::gelu_tanh,
        reference::gelu_erf,
        reference::tanh,
        reference::erf,
    ];
    let xs: Vec<f32> = (0..=u32::MAX).step_by(1_000_003).map(f32::from_bits).chain([0.0, -0.0]).collect();
    for isa in Isa::available() {
        for (i, f) in functions.iter().enumerate() {
            let got = dispatch(isa, Map(&xs, i));
            for (x, got) in xs.iter().zip(got) {
                let want = f(*x);
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{isa:?} function {i}: f({x:e}) = {got:e}, not {want:e}"
                );
            }
        }
    }
}

struct Rearrange;

impl Kernel for Rearrange {
    type Output = Vec<u32>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<u32> {
        let a: [f32; LANES] = std::array::from_fn(|i| (i as f32 - 7.3) * 1.7);
        let b: [f32; LANES] = std::array::from_fn(|i| (i as f32 * 0.37).sin());
        let (va, vb) = (s.from_array(a), s.from_array(b));
        let mut halves = [0u16; LANES];
        // SAFETY: the arrays have 16 elements.
        let (bytes, back) = unsafe {
            s.store_f16(va, halves.as_mut_ptr());
            let codes: [i8; LANES] = std::array::from_fn(|i| (i as i8).wrapping_mul(37));
            (s.load_i8(codes.as_ptr()), s.load_f16(halves.as_ptr()))
        };
        let vectors =
            [s.swap_pairs(va), s.fma(va, vb, vb), s.min(va, vb), s.max(va, vb), s.select_lt(va, vb, vb, va)];
        let mut out: Vec<u32> =
            vectors.into_iter().chain([bytes, back]).flat_map(|v| s.array(v)).map(f32::to_bits).collect();
        out.extend([s.sum(va).to_bits(), s.sum(vb).to_bits(), s.max_lane(vb).to_bits()]);
        out
    }
}

#[test]
fn operations_agree() {
    let want = dispatch(Isa::Scalar, Rearrange);
    assert_eq!(f32::from_bits(want[6 * LANES]), f16::from_f32(-7.3 * 1.7).to_f32());
    for isa in Isa::available() {
        assert_eq!(dispatch(isa, Rearrange), want, "{isa:?}");
    }
}
