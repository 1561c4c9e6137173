//! The declarations: one `quant_format!` a format, and the list of them all.
//!
//! A new format is its declaration in the file of its family, its name in [`for_each_quant!`](crate::for_each_quant), and its
//! reference blocks under `tests/data`.

pub mod codebook;
mod declare;
mod float;
mod fp4;
mod iq;
mod iq4;
mod k;
mod legacy;
mod ternary;

pub use float::{BF16, F16, F32};
pub use fp4::{MXFP4, NVFP4};
pub use iq::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
pub use iq4::{IQ4_NL, IQ4_VALUES, IQ4_XS};
pub use k::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K};
pub use legacy::{Q1_0, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1};
pub use ternary::{TQ1_0, TQ2_0};

/// Expands `$callback! { F32 F16 … }` with the names of all formats, by ascending GGUF id.
#[macro_export]
macro_rules! for_each_quant {
    ($callback:ident) => {
        $callback! {
            F32 F16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_1
            Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K
            IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS IQ1_M
            BF16 TQ1_0 TQ2_0 MXFP4 NVFP4 Q1_0 Q2_0
        }
    };
}

/// Element `i` of 32 nibbles in 16 bytes: the low ones are the first 16, the high ones the rest.
#[inline(always)]
fn nibble(qs: &[u8; 16], i: usize) -> u8 {
    qs[i % 16] >> (4 * (i / 16)) & 15
}

/// Bit `i`, lowest of the first byte first.
#[inline(always)]
fn bit(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 8] >> (i % 8) & 1
}

#[cfg(test)]
mod tests;
