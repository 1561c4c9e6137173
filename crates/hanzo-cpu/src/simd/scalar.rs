//! The portable path: arrays of 16, which compilers turn into whatever vectors the target has.

use hanzo_quant::f16;

use super::{LANES, Simd};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

#[inline(always)]
fn map2<T: Copy, U: Copy + Default>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> U) -> [U; LANES] {
    let mut out = [U::default(); LANES];
    for i in 0..LANES {
        out[i] = f(a[i], b[i]);
    }
    out
}

impl Simd for Scalar {
    const WIDE: bool = false;
    type F = [f32; LANES];
    type I = [i32; LANES];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; LANES]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, v: Self::F, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; LANES]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's promise.
        let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|b| f16::from_bits(b).to_f32())
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        // SAFETY: the caller's promise.
        let codes = unsafe { p.cast::<[i8; LANES]>().read_unaligned() };
        codes.map(f32::from)
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: Self::F, p: *mut u16) {
        let bits = v.map(|x| f16::from_f32(x).to_bits());
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(bits) }
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        let mut out = c;
        for i in 0..LANES {
            out[i] = a[i].mul_add(b[i], c[i]);
        }
        out
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        let mut out = y;
        for i in 0..LANES {
            if a[i] < b[i] {
                out[i] = x[i];
            }
        }
        out
    }
    #[inline(always)]
    fn swap_pairs(self, a: Self::F) -> Self::F {
        let mut out = a;
        for i in 0..LANES {
            out[i] = a[i ^ 1];
        }
        out
    }

    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        a.map(|x| x.to_bits().cast_signed())
    }
    #[inline(always)]
    fn from_bits(self, a: Self::I) -> Self::F {
        a.map(|x| f32::from_bits(x.cast_unsigned()))
    }
    #[inline(always)]
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I {
        map2(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I {
        map2(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I {
        map2(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I {
        map2(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: Self::I) -> Self::I {
        a.map(|x| x.wrapping_shl(N as u32))
    }
    #[inline(always)]
    fn half_i(self, a: Self::I) -> Self::I {
        a.map(|x| x >> 1)
    }
}
