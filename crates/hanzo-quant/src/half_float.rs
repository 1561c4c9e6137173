//! The 16-bit floating-point types of [`half`], and a widening that compilers can put in lanes.

pub use half::slice::HalfFloatSliceExt;
pub use half::{bf16, f16};

/// The f32 of the same value; NaNs become quiet and keep their payload. Branch-free: the same bits as [`half::f16::to_f32`],
/// without its look for processor features, so that a loop over it is vectorized.
#[inline(always)]
pub const fn f16_to_f32(x: f16) -> f32 {
    let bits = x.to_bits() as u32;
    // Subnormals go by way of an integer, not of a product of subnormals, which many processors compute slowly.
    let subnormal = ((bits & 0x3ff) as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    let normal = ((bits & 0x7fff) << 13) + (112 << 23);
    let magnitude = if bits & 0x7c00 == 0 { subnormal } else { normal };
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    let quiet = if bits & 0x7fff > 0x7c00 { 0x0040_0000 } else { 0 };
    f32::from_bits(magnitude | special | quiet | (bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_is_exact_for_all_bits() {
        for bits in 0..=u16::MAX {
            let x = f16::from_bits(bits);
            assert_eq!(f16_to_f32(x).to_bits(), x.to_f32_const().to_bits(), "{bits:#06x}");
            assert_eq!(x.to_f32().to_bits(), x.to_f32_const().to_bits(), "{bits:#06x}, in hardware");
            assert!(x.is_nan() || f16::from_f32(f16_to_f32(x)).to_bits() == bits);
        }
    }

    /// Narrowing rounds to nearest, ties to even, in hardware and software alike.
    #[test]
    fn narrowing_rounds_once() {
        for bits in (0..0x7c00u16).chain(0x8000..0xfc00) {
            let (low, high) = (f16::from_bits(bits), f16::from_bits(bits + 1));
            if high.is_infinite() {
                continue;
            }
            let middle = (f16_to_f32(low) + f16_to_f32(high)) / 2.0;
            let even = if bits & 1 == 0 { low } else { high };
            let above = f32::from_bits(middle.to_bits() + 1);
            let below = f32::from_bits(middle.to_bits() - 1);
            for (x, want) in [(middle, even), (above, high), (below, low)] {
                assert_eq!(f16::from_f32(x).to_bits(), want.to_bits(), "{x:e}");
                assert_eq!(f16::from_f32_const(x).to_bits(), want.to_bits(), "{x:e}");
            }
        }
    }
}
