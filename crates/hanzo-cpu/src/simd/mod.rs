//! Sixteen lanes: one vector type for every instruction set.
//!
//! A kernel is written once, generic over [`Simd`], and compiled for each instruction set by [`dispatch`]. Every
//! method is one IEEE 754 operation a lane (or a pure rearrangement), and the vector has 16 lanes whatever the registers
//! are, so the order of operations, and with it every bit, is the same on all of them. Fused multiply-adds are explicit;
//! the compiler never contracts.
//!
//! An implementation is a token that exists only where the machine has the instructions: [`dispatch`] makes it.
#![allow(unsafe_code)]
// `from_bits` and `from_array` take the token that proves the instructions.
#![allow(clippy::wrong_self_convention)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
mod scalar;

use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::Vectors;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use avx512::Avx512;
use scalar::Scalar;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Operations on vectors of 16 lanes. `F` holds f32, `I` holds i32.
pub(crate) trait Simd: Copy {
    /// Whether registers are wide and many enough for the larger register tiles.
    const WIDE: bool;
    type F: Copy;
    type I: Copy;

    fn splat(self, x: f32) -> Self::F;
    fn splat_i(self, x: i32) -> Self::I;
    /// 16 f32 from `p` (any alignment).
    ///
    /// # Safety
    /// `p` is readable for 16 elements.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// # Safety
    /// `p` is writable for 16 elements.
    unsafe fn store(self, v: Self::F, p: *mut f32);
    /// 16 IEEE halves, widened exactly.
    ///
    /// # Safety
    /// `p` is readable for 16 elements.
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    /// 16 signed bytes, converted exactly.
    ///
    /// # Safety
    /// `p` is readable for 16 elements.
    unsafe fn load_i8(self, p: *const i8) -> Self::F;
    /// Rounded to the nearest half, ties to even.
    ///
    /// # Safety
    /// `p` is writable for 16 elements.
    unsafe fn store_f16(self, v: Self::F, p: *mut u16);

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a < b ? a : b`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? x : y`, lane by lane.
    fn select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;
    /// Lanes `2i` and `2i + 1` exchanged.
    fn swap_pairs(self, a: Self::F) -> Self::F;

    fn bits(self, a: Self::F) -> Self::I;
    fn from_bits(self, a: Self::I) -> Self::F;
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shifts left by `N`.
    fn shl<const N: i32>(self, a: Self::I) -> Self::I;
    /// `p · 2^n` rounded once, where `n` stands in the low bits of `rounded = n + ROUND` (`hanzo_quant::math`).
    #[inline(always)]
    fn scale_by_power(self, p: Self::F, rounded: Self::F) -> Self::F {
        math::scale(self, p, rounded)
    }
    /// Shifts right by one, keeping the sign.
    fn half_i(self, a: Self::I) -> Self::I;

    /// Asks for the cache line at `p`, soon to be read; any address will do.
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        let _ = p;
    }
    /// Asks for the cache line at `p` to be brought to the second-level cache.
    #[inline(always)]
    fn prefetch_far(self, p: *const u8) {
        let _ = p;
    }

    /// The lanes as an array.
    #[inline(always)]
    fn array(self, a: Self::F) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: the array has 16 elements.
        unsafe { self.store(a, out.as_mut_ptr()) };
        out
    }

    /// The vector of an array.
    #[inline(always)]
    fn from_array(self, a: [f32; LANES]) -> Self::F {
        // SAFETY: the array has 16 elements.
        unsafe { self.load(a.as_ptr()) }
    }

    /// The first `n` elements of `x` (at most 16), `fill` in the other lanes.
    #[inline(always)]
    fn load_part(self, x: &[f32], fill: f32) -> Self::F {
        let mut lanes = [fill; LANES];
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = *x;
        }
        self.from_array(lanes)
    }

    /// The first lanes of `a` to all of `out` (at most 16).
    #[inline(always)]
    fn store_part(self, a: Self::F, out: &mut [f32]) {
        for (out, lane) in out.iter_mut().zip(self.array(a)) {
            *out = lane;
        }
    }

    /// The sum of the lanes by a fixed tree: halves are added until one lane is left.
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        tree(self.array(a), |a, b| a + b)
    }

    /// The greatest lane.
    #[inline(always)]
    fn max_lane(self, a: Self::F) -> f32 {
        tree(self.array(a), |a, b| if a > b { a } else { b })
    }
}

/// Combines lanes `i` and `i + 8`, then `i` and `i + 4`, `i + 2`, `i + 1`.
#[inline(always)]
fn tree(mut a: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut n = LANES / 2;
    while n > 0 {
        for i in 0..n {
            a[i] = f(a[i], a[i + n]);
        }
        n /= 2;
    }
    a[0]
}

/// A computation that is compiled for every instruction set.
pub(crate) trait Kernel {
    type Output;
    /// The computation. Implementations are `#[inline(always)]`, so that they take on the caller's instruction set.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Runs `kernel` with the instructions of `isa`, which the machine must have: one that it lacks gives the portable path.
#[inline]
pub(crate) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn avx2<K: Kernel>(kernel: K) -> K::Output {
            // SAFETY: this function's own features are those of the token.
            kernel.run(unsafe { Avx2::new() })
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
        fn avx512<K: Kernel>(kernel: K) -> K::Output {
            // SAFETY: this function's own features are those of the token.
            kernel.run(unsafe { Avx512::new() })
        }
        match isa.vectors() {
            // SAFETY: the machine has what is asked for.
            Vectors::Avx512 if Isa::Avx512 <= best() => return unsafe { avx512(kernel) },
            // SAFETY: as above; what has AVX-512 or AVX-VNNI here has AVX2 too.
            Vectors::Avx2 { .. } if Isa::Avx2 <= best() => return unsafe { avx2(kernel) },
            _ => {}
        }
    }
    let _ = isa;
    kernel.run(Scalar)
}

/// [`Isa::best`], found out once: kernels are dispatched some hundred thousand times a step.
#[cfg(target_arch = "x86_64")]
#[inline]
fn best() -> Isa {
    static BEST: std::sync::OnceLock<Isa> = std::sync::OnceLock::new();
    *BEST.get_or_init(Isa::best)
}

#[cfg(test)]
mod tests;
