//! Metadata values as views into the header's bytes: scalars by value, strings and arrays in place.
//!
//! Strings are bytes: GGUF promises UTF-8, but vocabularies in use hold tokens that are not. Text is checked
//! where text is asked for.

#![forbid(unsafe_code)]

use std::fmt;

use crate::array::ArrayRef;

/// The type of a metadata value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// Unsigned, 8 bits.
    U8 = 0,
    /// Signed, 8 bits.
    I8 = 1,
    /// Unsigned, 16 bits.
    U16 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Unsigned, 32 bits.
    U32 = 4,
    /// Signed, 32 bits.
    I32 = 5,
    /// IEEE single.
    F32 = 6,
    /// One byte, 0 or 1.
    Bool = 7,
    /// Length in 64 bits, then the bytes.
    String = 8,
    /// Element type, count, elements.
    Array = 9,
    /// Unsigned, 64 bits.
    U64 = 10,
    /// Signed, 64 bits.
    I64 = 11,
    /// IEEE double.
    F64 = 12,
}

impl ValueType {
    const ALL: [ValueType; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type with this id in a file.
    #[must_use]
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The id in a file.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Bytes of one value; `None` for strings and arrays, which differ.
    #[must_use]
    pub const fn size(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    /// The fewest bytes that a value can take: an empty string has its length, an empty array its head.
    pub(crate) const fn min_size(self) -> u64 {
        match self {
            Self::String => 8,
            Self::Array => 12,
            other => match other.size() {
                Some(size) => size,
                None => 1,
            },
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        })
    }
}

/// A metadata value, viewed in place.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Unsigned, 8 bits.
    U8(u8),
    /// Signed, 8 bits.
    I8(i8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Signed, 16 bits.
    I16(i16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Signed, 32 bits.
    I32(i32),
    /// IEEE single.
    F32(f32),
    /// Truth value.
    Bool(bool),
    /// Text, not yet checked to be UTF-8.
    String(&'a [u8]),
    /// Elements of one type.
    Array(ArrayRef<'a>),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Signed, 64 bits.
    I64(i64),
    /// IEEE double.
    F64(f64),
}

impl<'a> Value<'a> {
    /// The value's type.
    #[must_use]
    pub fn ty(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Any integer, widened.
    #[must_use]
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// A single or double.
    #[must_use]
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            _ => None,
        }
    }

    /// The text, if this is a string and UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Self::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// A scalar of type `ty` from its bytes in the file; `None` for arrays and for too few bytes.
    pub(crate) fn scalar(ty: ValueType, bytes: &'a [u8]) -> Option<Self> {
        fn le<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.first_chunk::<N>().copied()
        }
        Some(match ty {
            ValueType::U8 => Self::U8(*bytes.first()?),
            ValueType::I8 => Self::I8(i8::from_le_bytes(le(bytes)?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(le(bytes)?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(le(bytes)?)),
            ValueType::U32 => Self::U32(u32::from_le_bytes(le(bytes)?)),
            ValueType::I32 => Self::I32(i32::from_le_bytes(le(bytes)?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(le(bytes)?)),
            ValueType::Bool => Self::Bool(*bytes.first()? != 0),
            ValueType::U64 => Self::U64(u64::from_le_bytes(le(bytes)?)),
            ValueType::I64 => Self::I64(i64::from_le_bytes(le(bytes)?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(le(bytes)?)),
            ValueType::String => {
                let len = usize::try_from(u64::from_le_bytes(le(bytes)?)).ok()?;
                Self::String(bytes.get(8..)?.get(..len)?)
            }
            ValueType::Array => return None,
        })
    }
}

impl fmt::Display for Value<'_> {
    /// As one would show it in a listing: strings quoted, arrays cut after three elements. (`{:#}`: in full.)
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
            Self::String(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Self::Array(array) => {
                let shown = if f.alternate() { array.len() } else { array.len().min(3) };
                write!(f, "[")?;
                for (i, value) in array.iter().take(shown).enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{value}")?;
                }
                if shown < array.len() {
                    write!(f, ", … ({} {})", array.len(), array.element())?;
                }
                write!(f, "]")
            }
        }
    }
}
