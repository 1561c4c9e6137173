//! Metadata values as the writer keeps them: already in the form that the file will have.

#![forbid(unsafe_code)]

use crate::value::{Value, ValueType};

/// A metadata value to be written: from a number, a `bool`, text, a slice of numbers, or a [`Value`] of another
/// file (copied byte for byte).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataValue {
    ty: ValueType,
    bytes: Vec<u8>,
}

impl MetadataValue {
    /// A string that need not be UTF-8 (some vocabularies have such).
    #[must_use]
    pub fn byte_string(text: impl AsRef<[u8]>) -> Self {
        let mut bytes = Vec::new();
        put_string(&mut bytes, text.as_ref());
        MetadataValue { ty: ValueType::String, bytes }
    }

    /// An array of strings, UTF-8 or not.
    #[must_use]
    pub fn strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Self {
        let mut bytes = array_head(ValueType::String, 0);
        let mut count = 0u64;
        for text in strings {
            put_string(&mut bytes, text.as_ref());
            count += 1;
        }
        if let Some(place) = bytes.get_mut(4..12) {
            place.copy_from_slice(&count.to_le_bytes());
        }
        MetadataValue { ty: ValueType::Array, bytes }
    }

    /// The value's type.
    #[must_use]
    pub fn ty(&self) -> ValueType {
        self.ty
    }

    /// The value in the file: an array with its head, a string with its length.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.bytes
    }

    /// The value, if it is no array.
    pub(crate) fn scalar(&self) -> Option<Value<'_>> {
        Value::scalar(self.ty, &self.bytes)
    }
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}

fn array_head(element: ValueType, len: usize) -> Vec<u8> {
    let mut head = element.id().to_le_bytes().to_vec();
    head.extend_from_slice(&(len as u64).to_le_bytes());
    head
}

macro_rules! numbers {
    ($($ty:ty => $value_type:ident)*) => {$(
        impl From<$ty> for MetadataValue {
            fn from(value: $ty) -> Self {
                MetadataValue { ty: ValueType::$value_type, bytes: value.to_le_bytes().to_vec() }
            }
        }

        impl From<&[$ty]> for MetadataValue {
            fn from(values: &[$ty]) -> Self {
                let mut bytes = array_head(ValueType::$value_type, values.len());
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                MetadataValue { ty: ValueType::Array, bytes }
            }
        }
    )*};
}

numbers! { u8 => U8 i8 => I8 u16 => U16 i16 => I16 u32 => U32 i32 => I32 u64 => U64 i64 => I64 f32 => F32 f64 => F64 }

impl From<bool> for MetadataValue {
    fn from(value: bool) -> Self {
        MetadataValue { ty: ValueType::Bool, bytes: vec![value.into()] }
    }
}

impl From<&[bool]> for MetadataValue {
    fn from(values: &[bool]) -> Self {
        let mut bytes = array_head(ValueType::Bool, values.len());
        bytes.extend(values.iter().map(|value| u8::from(*value)));
        MetadataValue { ty: ValueType::Array, bytes }
    }
}

impl From<&str> for MetadataValue {
    fn from(text: &str) -> Self {
        Self::byte_string(text)
    }
}

impl From<String> for MetadataValue {
    fn from(text: String) -> Self {
        Self::byte_string(text)
    }
}

impl From<&[&str]> for MetadataValue {
    fn from(strings: &[&str]) -> Self {
        Self::strings(strings)
    }
}

impl From<&[String]> for MetadataValue {
    fn from(strings: &[String]) -> Self {
        Self::strings(strings)
    }
}

impl From<Value<'_>> for MetadataValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::F32(v) => v.into(),
            Value::Bool(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            Value::F64(v) => v.into(),
            Value::String(text) => Self::byte_string(text),
            Value::Array(array) => {
                let mut bytes = array_head(array.element(), array.len());
                bytes.extend_from_slice(array.raw());
                MetadataValue { ty: ValueType::Array, bytes }
            }
        }
    }
}
