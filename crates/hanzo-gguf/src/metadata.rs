//! The keys and values of a header, in the order of the file, with typed access.
//!
//! `get_*` tells absent (`Ok(None)`) from wrong (`Err`); `required_*` makes absence an error too. Integers of any
//! width are accepted where they fit. What keys mean is left to the crates that read them.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::array::ArrayRef;
use crate::cursor::Span;
use crate::error::{Error, Result, ValueKind};
use crate::value::{Value, ValueType};

/// The bytes that a header's views point into.
#[derive(Clone)]
pub(crate) enum HeaderBytes {
    Static(&'static [u8]),
    Shared(Arc<Vec<u8>>),
}

impl HeaderBytes {
    pub(crate) fn get(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// One key and where its value is.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Span,
    pub(crate) ty: ValueType,
    /// The value: for an array its elements, without the head; for a string with its length.
    pub(crate) value: Span,
    pub(crate) array: Option<Box<ArrayHead>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ArrayHead {
    pub(crate) element: ValueType,
    pub(crate) len: usize,
    pub(crate) index: Box<[u32]>,
}

/// The metadata of a GGUF file, in file order.
#[derive(Clone)]
pub struct Metadata {
    pub(crate) bytes: HeaderBytes,
    pub(crate) entries: Vec<Entry>,
    /// Entries in order of their keys, for look-up.
    pub(crate) by_key: Vec<u32>,
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|item| (item.key, item.value.to_string()))).finish()
    }
}

/// A key with its value.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: Value<'a>,
    /// Where the value is, in bytes from the start of the file (an array's first element).
    pub offset: u64,
}

impl<'a> Item<'a> {
    fn wrong(&self, expected: &'static str) -> Error {
        let element = match self.value {
            Value::Array(array) => Some(array.element()),
            _ => None,
        };
        let found = ValueKind { ty: self.value.ty(), element };
        Error::WrongType { key: self.key.to_owned(), offset: self.offset, expected, found }
    }

    fn integer<T: TryFrom<i128>>(&self, expected: &'static str) -> Result<T> {
        let value = self.value.as_integer().ok_or_else(|| self.wrong(expected))?;
        T::try_from(value).map_err(|_| Error::OutOfRange {
            key: self.key.to_owned(),
            offset: self.offset,
            value,
            expected,
        })
    }

    fn f32(&self) -> Result<f32> {
        self.value.as_float().map(|v| v as f32).ok_or_else(|| self.wrong("f32"))
    }

    fn bool(&self) -> Result<bool> {
        match self.value {
            Value::Bool(v) => Ok(v),
            _ => Err(self.wrong("bool")),
        }
    }

    fn bytes(&self) -> Result<&'a [u8]> {
        match self.value {
            Value::String(bytes) => Ok(bytes),
            _ => Err(self.wrong("string")),
        }
    }

    fn str(&self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|error| Error::NotUtf8 {
            key: self.key.to_owned(),
            offset: self.offset + 8,
            valid_up_to: error.valid_up_to(),
        })
    }

    fn array(&self) -> Result<ArrayRef<'a>> {
        match self.value {
            Value::Array(array) => Ok(array),
            _ => Err(self.wrong("array")),
        }
    }
}

macro_rules! accessors {
    ($($(#[$doc:meta])* $get:ident, $required:ident: $ty:ty, $expected:literal, $read:expr;)*) => {
        impl Metadata {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`Error::WrongType`], [`Error::OutOfRange`] or [`Error::NotUtf8`], with the key, the byte, and
                /// what was expected and found. `Ok(None)` if the key is absent.
                pub fn $get(&self, key: &str) -> Result<Option<$ty>> {
                    self.item(key).map(|item| ($read)(&item)).transpose()
                }

                #[doc = concat!("As [`Metadata::", stringify!($get), "`], where absence is [`Error::MissingKey`].")]
                ///
                /// # Errors
                /// As above.
                pub fn $required(&self, key: &str) -> Result<$ty> {
                    self.$get(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned(), expected: $expected })
                }
            )*
        }
    };
}

accessors! {
    /// An integer of any width that fits `u8`.
    get_u8, required_u8: u8, "u8", |item: &Item<'_>| item.integer("u8");
    /// An integer of any width that fits `u16`.
    get_u16, required_u16: u16, "u16", |item: &Item<'_>| item.integer("u16");
    /// An integer of any width that fits `u32`.
    get_u32, required_u32: u32, "u32", |item: &Item<'_>| item.integer("u32");
    /// An integer of any width that fits `u64`.
    get_u64, required_u64: u64, "u64", |item: &Item<'_>| item.integer("u64");
    /// An integer of any width that fits `i32`.
    get_i32, required_i32: i32, "i32", |item: &Item<'_>| item.integer("i32");
    /// An integer of any width that fits `i64`.
    get_i64, required_i64: i64, "i64", |item: &Item<'_>| item.integer("i64");
    /// An integer of any width that fits `usize`.
    get_usize, required_usize: usize, "unsigned integer", |item: &Item<'_>| item.integer("unsigned integer");
    /// A single, or a double rounded to one.
    get_f32, required_f32: f32, "f32", Item::f32;
    /// A truth value.
    get_bool, required_bool: bool, "bool", Item::bool;
    /// A string that is text.
    get_str, required_str: &str, "string", Item::str;
    /// A string as bytes, UTF-8 or not.
    get_bytes, required_bytes: &[u8], "string", Item::bytes;
    /// An array of any type.
    get_array, required_array: ArrayRef<'_>, "array", Item::array;
}

impl Metadata {
    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether `key` is there.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// The value of `key`, of whatever type.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.item(key).map(|item| item.value)
    }

    /// The value of `key` with its place in the file.
    #[must_use]
    pub fn item(&self, key: &str) -> Option<Item<'_>> {
        self.find(key).map(|entry| self.view(entry))
    }

    /// All keys with their values, in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Item<'_>> {
        self.entries.iter().map(|entry| self.view(entry))
    }

    /// An array of strings.
    ///
    /// # Errors
    /// [`Error::WrongType`] if it is something else; `Ok(None)` if the key is absent.
    pub fn get_strings(&self, key: &str) -> Result<Option<crate::StringArray<'_>>> {
        self.get_array(key)?.map(|array| array.strings()).transpose()
    }

    /// As [`Metadata::get_strings`], where absence is [`Error::MissingKey`].
    ///
    /// # Errors
    /// As above.
    pub fn required_strings(&self, key: &str) -> Result<crate::StringArray<'_>> {
        let missing = || Error::MissingKey { key: key.to_owned(), expected: "array of string" };
        self.get_strings(key)?.ok_or_else(missing)
    }

    fn key_of(&self, entry: &Entry) -> &str {
        // Keys were checked to be UTF-8 when the header was read.
        std::str::from_utf8(entry.key.of(self.bytes.get())).unwrap_or_default()
    }

    fn find(&self, key: &str) -> Option<&Entry> {
        let at = |i: &u32| self.entries.get(*i as usize);
        let found = self.by_key.binary_search_by(|i| {
            at(i).map_or(&[][..], |entry| entry.key.of(self.bytes.get())).cmp(key.as_bytes())
        });
        found.ok().and_then(|place| self.by_key.get(place)).and_then(at)
    }

    fn view<'a>(&'a self, entry: &'a Entry) -> Item<'a> {
        let key = self.key_of(entry);
        let bytes = entry.value.of(self.bytes.get());
        let offset = u64::from(entry.value.start);
        let value = match &entry.array {
            Some(head) => Value::Array(ArrayRef {
                key,
                element: head.element,
                len: head.len,
                bytes,
                offset,
                index: &head.index,
            }),
            // The span was checked to hold a value of this type when the header was read.
            None => Value::scalar(entry.ty, bytes).unwrap_or(Value::String(&[])),
        };
        Item { key, value, offset }
    }
}
