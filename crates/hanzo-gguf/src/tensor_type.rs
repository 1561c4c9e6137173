//! The tensor types of GGUF, as sizes only: id, name, elements and bytes of a block.
//!
//! What the bytes mean is the business of `hanzo-quant`; the container needs the sizes to check that a tensor
//! lies inside its file.

#![forbid(unsafe_code)]

use std::fmt;

use crate::Error;

macro_rules! tensor_types {
    ($($name:ident = $id:literal, $elems:literal, $bytes:literal;)*) => {
        /// A tensor type that a GGUF file may name. `as u32` (or [`TensorType::id`]) is its id in the file.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum TensorType {
            $(
                #[doc = concat!("Type ", $id, ": blocks of ", $elems, " elements in ", $bytes, " bytes.")]
                $name = $id,
            )*
        }

        impl TensorType {
            /// All types, in order of their ids.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The type with this id, if there is one.
            #[must_use]
            pub const fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$name),)* _ => None }
            }

            /// The name as people write it, such as `Q4_K`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Elements of one block; a row must be a whole number of blocks.
            #[must_use]
            pub const fn block_elems(self) -> u64 {
                match self { $(Self::$name => $elems,)* }
            }

            /// Bytes of one block.
            #[must_use]
            pub const fn block_bytes(self) -> u64 {
                match self { $(Self::$name => $bytes,)* }
            }
        }
    };
}

tensor_types! {
    F32 = 0, 1, 4;
    F16 = 1, 1, 2;
    Q4_0 = 2, 32, 18;
    Q4_1 = 3, 32, 20;
    Q5_0 = 6, 32, 22;
    Q5_1 = 7, 32, 24;
    Q8_0 = 8, 32, 34;
    Q8_1 = 9, 32, 36;
    Q2_K = 10, 256, 84;
    Q3_K = 11, 256, 110;
    Q4_K = 12, 256, 144;
    Q5_K = 13, 256, 176;
    Q6_K = 14, 256, 210;
    Q8_K = 15, 256, 292;
    IQ2_XXS = 16, 256, 66;
    IQ2_XS = 17, 256, 74;
    IQ3_XXS = 18, 256, 98;
    IQ1_S = 19, 256, 50;
    IQ4_NL = 20, 32, 18;
    IQ3_S = 21, 256, 110;
    IQ2_S = 22, 256, 82;
    IQ4_XS = 23, 256, 136;
    I8 = 24, 1, 1;
    I16 = 25, 1, 2;
    I32 = 26, 1, 4;
    I64 = 27, 1, 8;
    F64 = 28, 1, 8;
    IQ1_M = 29, 256, 56;
    BF16 = 30, 1, 2;
    TQ1_0 = 34, 256, 54;
    TQ2_0 = 35, 256, 66;
    MXFP4 = 39, 32, 17;
    NVFP4 = 40, 64, 36;
    Q1_0 = 41, 128, 18;
    Q2_0 = 42, 64, 18;
}

/// Ids that once were types and that ggml has withdrawn, with the names they had.
const REMOVED: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl TensorType {
    /// The id in the file.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The name that a withdrawn id had: `removed_name(4)` is `Some("Q4_2")`.
    #[must_use]
    pub fn removed_name(id: u32) -> Option<&'static str> {
        REMOVED.iter().find(|(removed, _)| *removed == id).map(|(_, name)| *name)
    }

    /// Bytes of a tensor of `dims` (GGUF order, `dims[0]` contiguous).
    ///
    /// # Errors
    /// The problem in words, where a dimension is 0, a row is not a whole number of blocks, or the number of
    /// elements or bytes does not fit in 63 bits.
    pub fn tensor_bytes(self, dims: &[u64]) -> Result<u64, String> {
        let row = dims.first().copied().unwrap_or(1);
        let elements = checked_elements(dims)?;
        if row % self.block_elems() != 0 {
            return Err(format!(
                "a row of {row} elements is not a whole number of {self} blocks ({} elements each)",
                self.block_elems()
            ));
        }
        (elements / self.block_elems())
            .checked_mul(self.block_bytes())
            .filter(|bytes| i64::try_from(*bytes).is_ok())
            .ok_or_else(|| format!("{elements} elements of {self} are more bytes than a file can have"))
    }

    /// The type with this id, or the error that a tensor of this type gives.
    pub(crate) fn checked(id: u32, tensor: &str, offset: u64) -> Result<Self, Error> {
        Self::from_id(id).ok_or_else(|| match Self::removed_name(id) {
            Some(name) => Error::RemovedType { tensor: tensor.to_owned(), offset, id, name },
            None => Error::UnknownType { tensor: tensor.to_owned(), offset, id },
        })
    }
}

/// The product of `dims`, where none is 0 and it fits in 63 bits (ggml counts in signed 64-bit).
fn checked_elements(dims: &[u64]) -> Result<u64, String> {
    let mut elements = 1u64;
    for (axis, &dim) in dims.iter().enumerate() {
        if dim == 0 {
            return Err(format!("dimension {axis} is 0"));
        }
        elements = elements
            .checked_mul(dim)
            .filter(|n| i64::try_from(*n).is_ok())
            .ok_or_else(|| format!("the product of the dimensions {dims:?} overflows"))?;
    }
    Ok(elements)
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
