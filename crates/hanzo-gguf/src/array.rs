//! Arrays of metadata in place. A vocabulary of 262 144 tokens costs nothing but the bytes of the header and an
//! index of every eighth string: iteration walks the bytes, random access walks at most seven strings.

#![forbid(unsafe_code)]

use std::fmt;
use std::iter::FusedIterator;

use crate::error::{Error, Result, ValueKind};
use crate::value::{Value, ValueType};

/// Every how manieth string of an array is indexed. Eight strings of a vocabulary lie in two cache lines.
pub(crate) const INDEX_STRIDE: usize = 8;

/// An array of metadata, viewed in place. Copying it copies a few pointers.
#[derive(Clone, Copy)]
pub struct ArrayRef<'a> {
    pub(crate) key: &'a str,
    pub(crate) element: ValueType,
    pub(crate) len: usize,
    /// The elements as the file has them.
    pub(crate) bytes: &'a [u8],
    /// Where `bytes` starts in the file.
    pub(crate) offset: u64,
    /// For strings: where every `INDEX_STRIDE`-th begins in `bytes`. Empty for inner arrays.
    pub(crate) index: &'a [u32],
}

impl fmt::Debug for ArrayRef<'_> {
    /// Not the elements: there may be a million.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {} at byte {}", self.len, self.element, self.offset)
    }
}

impl<'a> ArrayRef<'a> {
    /// The key that it belongs to.
    #[must_use]
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// Type of the elements.
    #[must_use]
    pub fn element(&self) -> ValueType {
        self.element
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements as the file has them: little-endian numbers one after the other, strings with their lengths.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the first element is, in bytes from the start of the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The elements in order, of whatever type.
    #[must_use]
    pub fn iter(&self) -> Values<'a> {
        Values { array: *self, done: 0, at: 0 }
    }

    /// The elements as strings.
    ///
    /// # Errors
    /// [`Error::WrongType`] if they are not strings.
    pub fn strings(&self) -> Result<StringArray<'a>> {
        if self.element == ValueType::String {
            Ok(StringArray { array: *self })
        } else {
            Err(self.wrong("array of string"))
        }
    }

    /// The elements as `u32`, from any integer type.
    ///
    /// # Errors
    /// [`Error::WrongType`] if they are not integers, [`Error::OutOfRange`] for one that does not fit.
    pub fn to_u32_vec(&self) -> Result<Vec<u32>> {
        self.integers("array of u32", "u32")
    }

    /// The elements as `i32`, from any integer type. Errors as [`ArrayRef::to_u32_vec`].
    ///
    /// # Errors
    /// See above.
    pub fn to_i32_vec(&self) -> Result<Vec<i32>> {
        self.integers("array of i32", "i32")
    }

    /// The elements as `u64`, from any integer type. Errors as [`ArrayRef::to_u32_vec`].
    ///
    /// # Errors
    /// See above.
    pub fn to_u64_vec(&self) -> Result<Vec<u64>> {
        self.integers("array of u64", "u64")
    }

    /// The elements as `i64`, from any integer type. Errors as [`ArrayRef::to_u32_vec`].
    ///
    /// # Errors
    /// See above.
    pub fn to_i64_vec(&self) -> Result<Vec<i64>> {
        self.integers("array of i64", "i64")
    }

    /// The elements as `f32`, from `f32` or (rounded) `f64`.
    ///
    /// # Errors
    /// [`Error::WrongType`] if they are neither.
    pub fn to_f32_vec(&self) -> Result<Vec<f32>> {
        if !matches!(self.element, ValueType::F32 | ValueType::F64) {
            return Err(self.wrong("array of f32"));
        }
        Ok(self.iter().filter_map(|value| value.as_float()).map(|value| value as f32).collect())
    }

    /// The elements as `bool`.
    ///
    /// # Errors
    /// [`Error::WrongType`] if they are not.
    pub fn to_bool_vec(&self) -> Result<Vec<bool>> {
        if self.element == ValueType::Bool {
            Ok(self.bytes.iter().map(|byte| *byte != 0).collect())
        } else {
            Err(self.wrong("array of bool"))
        }
    }

    fn integers<T: TryFrom<i128>>(&self, expected: &'static str, ty: &'static str) -> Result<Vec<T>> {
        let size = match self.element {
            ValueType::F32 | ValueType::F64 | ValueType::Bool => None,
            element => element.size(),
        };
        let size = size.ok_or_else(|| self.wrong(expected))?;
        let mut out = Vec::with_capacity(self.len);
        for (value, i) in self.iter().filter_map(|value| value.as_integer()).zip(0u64..) {
            out.push(T::try_from(value).map_err(|_| Error::OutOfRange {
                key: self.key.to_owned(),
                offset: self.offset + i * size,
                value,
                expected: ty,
            })?);
        }
        Ok(out)
    }

    pub(crate) fn wrong(&self, expected: &'static str) -> Error {
        Error::WrongType {
            key: self.key.to_owned(),
            offset: self.offset,
            expected,
            found: ValueKind { ty: ValueType::Array, element: Some(self.element) },
        }
    }

    /// The element at byte `at`, and where the next one begins.
    fn value_at(&self, at: usize) -> Option<(Value<'a>, usize)> {
        let bytes = self.bytes.get(at..)?;
        if self.element != ValueType::Array {
            let value = Value::scalar(self.element, bytes)?;
            let size = match value {
                Value::String(text) => 8 + text.len(),
                _ => usize::try_from(self.element.size()?).ok()?,
            };
            return Some((value, at + size));
        }
        let (element, len, size) = walk_array(bytes)?;
        let inner = ArrayRef {
            key: self.key,
            element,
            len,
            bytes: bytes.get(12..size)?,
            offset: self.offset + at as u64 + 12,
            index: &[],
        };
        Some((Value::Array(inner), at + size))
    }
}

/// Element type, count and total bytes of the array that starts `bytes`. The header was checked when it was
/// read, so the nesting is bounded; a stack keeps it off the call stack all the same.
fn walk_array(bytes: &[u8]) -> Option<(ValueType, usize, usize)> {
    let head = |at: usize| {
        let id = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        let len = u64::from_le_bytes(*bytes.get(at + 4..)?.first_chunk()?);
        Some((ValueType::from_id(id)?, usize::try_from(len).ok()?))
    };
    let (element, len) = head(0)?;
    let mut at = 12;
    let mut open = vec![(element, len)];
    while let Some((element, left)) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        match element {
            ValueType::Array => {
                *left -= 1;
                let inner = head(at)?;
                at += 12;
                open.push(inner);
            }
            ValueType::String => {
                *left -= 1;
                let len = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
                at = at.checked_add(8)?.checked_add(usize::try_from(len).ok()?)?;
            }
            scalar => {
                let size = usize::try_from(scalar.size()?).ok()?;
                at = at.checked_add(left.checked_mul(size)?)?;
                *left = 0;
            }
        }
    }
    Some((element, len, at))
}

/// Iterator over the elements of an [`ArrayRef`].
#[derive(Clone)]
pub struct Values<'a> {
    array: ArrayRef<'a>,
    done: usize,
    at: usize,
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        if self.done == self.array.len {
            return None;
        }
        let (value, next) = self.array.value_at(self.at)?;
        self.at = next;
        self.done += 1;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.array.len - self.done;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Values<'_> {}
impl FusedIterator for Values<'_> {}

/// An array of strings: no string is allocated or checked before it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct StringArray<'a> {
    array: ArrayRef<'a>,
}

impl<'a> StringArray<'a> {
    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.array.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.array.len == 0
    }

    /// The `i`-th string as bytes; `None` beyond the end. Constant time (for an array inside an array: linear).
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        self.locate(i).map(|(text, _)| text)
    }

    /// The `i`-th string as text.
    ///
    /// # Errors
    /// [`Error::NotUtf8`]; `Ok(None)` beyond the end.
    pub fn get_str(&self, i: usize) -> Result<Option<&'a str>> {
        self.locate(i).map(|(text, at)| self.text(text, at)).transpose()
    }

    /// All strings as bytes, in order.
    #[must_use]
    pub fn iter(&self) -> Strings<'a> {
        Strings { bytes: self.array.bytes, at: 0, left: self.array.len }
    }

    /// All strings as text, in order; each that is not UTF-8 gives [`Error::NotUtf8`].
    pub fn iter_str(&self) -> impl Iterator<Item = Result<&'a str>> + use<'a> {
        let whole = *self;
        let mut strings = self.iter();
        std::iter::from_fn(move || {
            let text = strings.next()?;
            Some(whole.text(text, strings.at - text.len()))
        })
    }

    fn text(&self, bytes: &'a [u8], at: usize) -> Result<&'a str> {
        std::str::from_utf8(bytes).map_err(|error| Error::NotUtf8 {
            key: self.array.key.to_owned(),
            offset: self.array.offset + at as u64,
            valid_up_to: error.valid_up_to(),
        })
    }

    /// The `i`-th string and where its text starts in the array's bytes.
    fn locate(&self, i: usize) -> Option<(&'a [u8], usize)> {
        if i >= self.array.len {
            return None;
        }
        let (start, skip) = match self.array.index.get(i / INDEX_STRIDE) {
            Some(&start) => (start as usize, i % INDEX_STRIDE),
            None => (0, i),
        };
        let mut strings = Strings { bytes: self.array.bytes, at: start, left: skip + 1 };
        let text = strings.nth(skip)?;
        Some((text, strings.at - text.len()))
    }
}

/// Iterator over the strings of a [`StringArray`], as bytes.
#[derive(Clone)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let rest = self.bytes.get(self.at..)?;
        let len = usize::try_from(u64::from_le_bytes(*rest.first_chunk()?)).ok()?;
        let text = rest.get(8..)?.get(..len)?;
        self.at += 8 + len;
        Some(text)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Strings<'_> {}
impl FusedIterator for Strings<'_> {}
