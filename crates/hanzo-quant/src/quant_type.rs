//! [`QuantType`]: the formats by name and GGUF id, generated from the list of declarations.

use crate::{Format, QuantError, formats};

macro_rules! quant_type {
    ($($name:ident)+) => {
        /// A tensor's type in a GGUF file. The discriminant is the file's type id.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types)]
        #[repr(u32)]
        pub enum QuantType {
            $(
                #[doc = concat!("See [`formats::", stringify!($name), "`].")]
                $name = formats::$name.id,
            )+
        }

        impl QuantType {
            /// All formats, by ascending id of their declaration order.
            pub const ALL: &[QuantType] = &[$(QuantType::$name),+];

            /// The declaration: sizes, decode, integer view.
            pub const fn format(self) -> &'static Format {
                match self {
                    $(QuantType::$name => {
                        const FORMAT: &Format = &formats::$name;
                        FORMAT
                    })+
                }
            }
        }
    };
}
crate::for_each_quant!(quant_type);

impl QuantType {
    /// The type with this GGUF id, if it is a format that we know.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.id() == id)
    }

    /// The type of this name, as GGUF tools print it; case does not matter ("q4_k" is [`QuantType::Q4_K`]).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// The GGUF type id.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The name as GGUF tools print it ("Q4_K").
    pub const fn name(self) -> &'static str {
        self.format().name
    }

    /// Elements of a block.
    pub const fn block_elems(self) -> usize {
        self.format().elems
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.format().bytes
    }

    /// Whether values are stored as plain floating-point numbers (F32, F16, BF16).
    pub const fn is_float(self) -> bool {
        self.format().int.is_none()
    }

    /// Bits that one element takes, scales included.
    pub fn bits_per_weight(self) -> f64 {
        let f = self.format();
        8.0 * f.bytes as f64 / f.elems as f64
    }

    /// Bytes of a row of `n` elements; `None` where `n` is not a whole number of blocks or the product overflows.
    pub const fn row_bytes(self, n: usize) -> Option<usize> {
        let f = self.format();
        if !n.is_multiple_of(f.elems) {
            return None;
        }
        (n / f.elems).checked_mul(f.bytes)
    }
}

impl std::fmt::Display for QuantType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl TryFrom<u32> for QuantType {
    type Error = QuantError;

    fn try_from(id: u32) -> Result<Self, QuantError> {
        Self::from_id(id).ok_or(QuantError::UnknownId { id })
    }
}

/// Decodes `out.len()` elements (`to_float`). `bytes` must hold exactly them; nothing is written on error.
///
/// # Errors
/// [`QuantError::RaggedRow`] where `out.len()` is not a whole number of blocks, [`QuantError::ByteLength`] where
/// `bytes` has another length than [`QuantType::row_bytes`].
pub fn decode_row(ty: QuantType, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    let (format, elems) = (ty.format(), out.len());
    if !elems.is_multiple_of(format.elems) {
        return Err(QuantError::RaggedRow { ty, elems, block: format.elems });
    }
    let expected = ty.row_bytes(elems).unwrap_or(usize::MAX);
    if bytes.len() != expected {
        return Err(QuantError::ByteLength { ty, elems, expected, found: bytes.len() });
    }
    (format.decode)(bytes, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_lead_back() {
        for &ty in QuantType::ALL {
            assert_eq!(QuantType::from_id(ty.id()), Some(ty));
            assert_eq!(QuantType::from_name(&ty.name().to_lowercase()), Some(ty));
            assert_eq!(format!("{ty:>9}"), format!("{:>9}", ty.name()));
        }
        // 4 and 5 were Q4_2 and Q4_3, long removed from the file format.
        assert_eq!(QuantType::try_from(4), Err(QuantError::UnknownId { id: 4 }));
        assert_eq!(QuantType::from_name("Q4"), None);
    }

    #[test]
    fn row_bytes_is_checked() {
        assert_eq!(QuantType::Q4_K.row_bytes(4096), Some(16 * 144));
        assert_eq!(QuantType::Q4_K.row_bytes(4095), None);
        assert_eq!(QuantType::F32.row_bytes(usize::MAX), None);
        assert_eq!(QuantType::F32.row_bytes(0), Some(0));
    }

    #[test]
    fn wrong_lengths_are_errors() {
        for &ty in QuantType::ALL {
            let (n, bytes) = (3 * ty.block_elems(), vec![0xff; 3 * ty.block_bytes()]);
            let mut out = vec![0.0; n];
            assert_eq!(decode_row(ty, &bytes, &mut out), Ok(()));
            for cut in 0..bytes.len() {
                let got = decode_row(ty, &bytes[..cut], &mut out);
                assert!(matches!(got, Err(QuantError::ByteLength { found, .. }) if found == cut), "{ty}");
            }
            if ty.block_elems() > 1 {
                let got = decode_row(ty, &bytes, &mut out[1..]);
                assert!(matches!(got, Err(QuantError::RaggedRow { .. })), "{ty}");
            }
        }
    }
}
