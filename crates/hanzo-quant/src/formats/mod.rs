//! The declarations: one [`quant_format!`](declare) a format, and the list of them all.

mod declare;
mod float;
mod k;
mod legacy;

pub use float::{BF16, F16, F32};
pub use k::{Q4_K, Q6_K};
pub use legacy::{Q4_0, Q4_1, Q8_0};

/// Expands `$callback! { F32 F16 … }` with the names of all formats, by ascending GGUF id.
#[macro_export]
macro_rules! for_each_quant {
    ($callback:ident) => {
        $callback! {
            F32 F16 Q4_0 Q4_1 Q8_0 Q4_K Q6_K BF16
        }
    };
}

#[cfg(test)]
mod tests;
