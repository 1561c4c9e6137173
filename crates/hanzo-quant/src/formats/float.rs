//! F32, F16 and BF16: plain numbers, contracted in floating point. A block is one element.

use half::{bf16, f16};

use crate::Format;

macro_rules! float_format {
    ($(#[doc = $doc:literal])+ $name:ident = $id:literal, $ty:ty, |$bytes:ident| $value:expr) => {
        $(#[doc = $doc])+
        pub const $name: Format = {
            const BYTES: usize = size_of::<$ty>();

            fn decode(bytes: &[u8], out: &mut [f32]) {
                debug_assert_eq!(bytes.len(), BYTES * out.len());
                for (&$bytes, out) in bytes.as_chunks::<BYTES>().0.iter().zip(out) {
                    *out = $value;
                }
            }

            Format {
                name: stringify!($name),
                id: $id,
                elems: 1,
                bytes: BYTES,
                doc: concat!($($doc),+),
                layout: concat!("x: ", stringify!($ty)),
                decode,
                int: None,
            }
        };
    };
}

float_format! {
    /// IEEE 754 binary32.
    F32 = 0, f32, |b| f32::from_le_bytes(b)
}

float_format! {
    /// IEEE 754 binary16.
    F16 = 1, f16, |b| crate::f16_to_f32(f16::from_le_bytes(b))
}

float_format! {
    /// The upper half of an IEEE 754 binary32.
    BF16 = 30, bf16, |b| f32::from_bits(u32::from(bf16::from_le_bytes(b).to_bits()) << 16)
}
