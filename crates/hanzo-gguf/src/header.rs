//! From bytes to a header: magic, version, counts, keys and values. The tensor table is read by
//! [`crate::table`].
//!
//! Nothing is believed: counts are compared with the bytes that remain, lengths with both the file and
//! [`crate::limits`], and nested arrays are walked with a stack of our own.

#![forbid(unsafe_code)]

use crate::array::INDEX_STRIDE;
use crate::cursor::{Cursor, Span};
use crate::error::{Error, Result};
use crate::limits::{
    DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_ARRAY_DEPTH, MAX_KEY_BYTES, MAX_KEYS, MAX_STRING_BYTES, MAX_TENSORS,
};
use crate::metadata::{ArrayHead, Entry};
use crate::table;
use crate::tensor::TensorInfo;
use crate::value::{Value, ValueType};

/// Key of the alignment of tensor data.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// Told of each fault that would not keep the rest from being read. Opening a file returns the fault as an
/// error, which ends the reading; the validator collects it and goes on.
pub(crate) type Report<'r> = &'r mut dyn FnMut(Error) -> Result<()>;

/// A header as read, its spans pointing into the header's bytes.
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) alignment: u32,
    pub(crate) entries: Vec<Entry>,
    pub(crate) by_key: Vec<u32>,
    pub(crate) tensors: Vec<TensorInfo>,
    /// One past the last byte of the tensor table.
    pub(crate) end: u64,
    /// Where the data section starts: `end`, rounded up to the alignment.
    pub(crate) data_start: u64,
}

/// Reads a whole header.
pub(crate) fn read(cursor: &mut Cursor<'_>, report: Report<'_>) -> Result<Header> {
    let version = preamble(cursor)?;
    let tensors_at = cursor.pos();
    let n_tensors = cursor.u64("the tensor count")?;
    let keys_at = cursor.pos();
    let n_keys = cursor.u64("the metadata count")?;
    for (what, value, limit, offset) in [
        ("the tensor count", n_tensors, MAX_TENSORS, tensors_at),
        ("the metadata count", n_keys, MAX_KEYS, keys_at),
    ] {
        if value > limit {
            return Err(Error::Limit { what, value, limit, offset });
        }
    }
    cursor.check_count(n_tensors, table::MIN_ENTRY_BYTES, "tensors", tensors_at)?;
    cursor.check_count(n_keys, MIN_ENTRY_BYTES, "metadata keys", keys_at)?;

    let mut entries = Vec::with_capacity(n_keys as usize);
    for index in 0..n_keys {
        entries.push(entry(cursor, index, report)?);
    }
    let by_key = index_keys(cursor.bytes(), &entries, report)?;
    let alignment = alignment(cursor.bytes(), &entries, report)?;
    let tensors = table::read(cursor, n_tensors, report)?;
    let end = cursor.pos();
    // The header is at most MAX_HEADER_BYTES long, so this cannot overflow.
    let data_start = end.next_multiple_of(u64::from(alignment));
    let tensors = table::place(tensors, alignment, data_start, cursor.file_len(), report)?;
    Ok(Header { version, alignment, entries, by_key, tensors, end, data_start })
}

/// Key length, one byte of key, type, one byte of value.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;

/// Magic and version.
fn preamble(cursor: &mut Cursor<'_>) -> Result<u32> {
    let len = cursor.file_len();
    if len >= 4 {
        let magic = cursor.bytes4("the magic")?;
        if magic != *b"GGUF" {
            return Err(Error::BadMagic { magic, looks_like: looks_like(magic) });
        }
    }
    if len < 24 {
        return Err(Error::TooShort { len });
    }
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => Ok(version),
        _ if (1..=3).contains(&version.swap_bytes()) => {
            Err(Error::BigEndian { version: version.swap_bytes() })
        }
        _ => Err(Error::UnsupportedVersion { version }),
    }
}

/// What a file with this beginning probably is.
fn looks_like(magic: [u8; 4]) -> &'static str {
    match &magic {
        b"lmgg" | b"ggml" | b"GGML" => " (a GGML file, older than GGUF; convert the original model anew)",
        b"fmgg" | b"ggmf" | b"GGMF" => " (a GGMF file, older than GGUF; convert the original model anew)",
        b"tjgg" | b"ggjt" | b"GGJT" => " (a GGJT file, older than GGUF; convert the original model anew)",
        b"algg" | b"ggla" | b"GGLA" => {
            " (a GGLA adapter, older than GGUF; convert the original adapter anew)"
        }
        b"FUGG" => " (GGUF backwards: written with the wrong byte order)",
        b"PK\x03\x04" => " (a ZIP archive, perhaps a PyTorch checkpoint)",
        b"vers" => " (perhaps a Git LFS pointer; fetch the file itself)",
        b"<!DO" | b"<htm" | b"<!do" | b"<HTM" => " (a web page; the download went wrong)",
        [0x1f, 0x8b, _, _] => " (gzip-compressed; unpack it first)",
        [_, _, _, 0] => " (perhaps a safetensors file)",
        _ => "",
    }
}

fn entry(cursor: &mut Cursor<'_>, index: u64, report: Report<'_>) -> Result<Entry> {
    let key = cursor.string("a metadata key", MAX_KEY_BYTES)?;
    if let Some(problem) = name_problem(key.of(cursor.bytes())) {
        report(Error::BadKey { index, offset: u64::from(key.start), problem })?;
    }
    let at = cursor.pos();
    let id = cursor.u32("a value type")?;
    let ty = ValueType::from_id(id).ok_or_else(|| bad_type(cursor, key, at, id))?;
    let (value, array) = match ty {
        ValueType::Array => {
            let (value, head) = array(cursor, key)?;
            (value, Some(Box::new(head)))
        }
        ValueType::String => {
            let start = cursor.pos() as u32;
            let text = cursor.string("a metadata string", MAX_STRING_BYTES)?;
            (Span { start, len: text.len + 8 }, None)
        }
        scalar => {
            let value = cursor.span(scalar.min_size(), "a metadata value")?;
            check_bools(cursor, key, scalar, value)?;
            (value, None)
        }
    };
    Ok(Entry { key, ty, value, array })
}

/// What is wrong with the name of a key or tensor.
pub(crate) fn name_problem(name: &[u8]) -> Option<&'static str> {
    match std::str::from_utf8(name) {
        _ if name.is_empty() => Some("is empty"),
        Err(_) => Some("is not UTF-8"),
        Ok(text) if text.contains('\0') => Some("contains a NUL character"),
        Ok(_) => None,
    }
}

/// One array, from its head to its last element. Of arrays inside it only the extent is found out.
fn array(cursor: &mut Cursor<'_>, key: Span) -> Result<(Span, ArrayHead)> {
    let (element, len) = array_head(cursor, key)?;
    let start = cursor.pos();
    let mut index = Vec::new();
    if element == ValueType::String {
        index.reserve_exact((len as usize).div_ceil(INDEX_STRIDE));
        cursor.strings(len, INDEX_STRIDE as u64, &mut index)?;
    } else {
        let mut open = vec![(element, len)];
        while let Some((element, left)) = open.last_mut() {
            if *left == 0 {
                open.pop();
                continue;
            }
            match *element {
                ValueType::Array => {
                    *left -= 1;
                    let offset = cursor.pos();
                    if open.len() == MAX_ARRAY_DEPTH {
                        let key = key_text(cursor, key);
                        return Err(Error::ArrayDepth { key, offset, limit: MAX_ARRAY_DEPTH });
                    }
                    let inner = array_head(cursor, key)?;
                    open.push(inner);
                }
                ValueType::String => {
                    *left -= 1;
                    cursor.string("a string of an array", MAX_STRING_BYTES)?;
                }
                scalar => {
                    // array_head has compared the count with the bytes that remain.
                    let values = cursor.span(*left * scalar.min_size(), "an array")?;
                    check_bools(cursor, key, scalar, values)?;
                    *left = 0;
                }
            }
        }
    }
    let value = Span { start: start as u32, len: (cursor.pos() - start) as u32 };
    Ok((value, ArrayHead { element, len: len as usize, index: index.into_boxed_slice() }))
}

/// Element type and count of an array, the count no more than can follow.
fn array_head(cursor: &mut Cursor<'_>, key: Span) -> Result<(ValueType, u64)> {
    let at = cursor.pos();
    let id = cursor.u32("an array's element type")?;
    let element = ValueType::from_id(id).ok_or_else(|| bad_type(cursor, key, at, id))?;
    let at = cursor.pos();
    let len = cursor.u64("an array's length")?;
    cursor.check_count(len, element.min_size(), "array elements", at)?;
    Ok((element, len))
}

fn check_bools(cursor: &Cursor<'_>, key: Span, ty: ValueType, values: Span) -> Result<()> {
    if ty != ValueType::Bool {
        return Ok(());
    }
    let mut bytes = values.of(cursor.bytes()).iter().zip(u64::from(values.start)..);
    match bytes.find(|(value, _)| **value > 1) {
        None => Ok(()),
        Some((&value, offset)) => Err(Error::BadBool { key: key_text(cursor, key), offset, value }),
    }
}

fn bad_type(cursor: &Cursor<'_>, key: Span, offset: u64, id: u32) -> Error {
    Error::BadValueType { key: key_text(cursor, key), offset, id }
}

/// A key for an error message; the beginning is enough to find it.
fn key_text(cursor: &Cursor<'_>, key: Span) -> String {
    String::from_utf8_lossy(key.of(cursor.bytes())).chars().take(256).collect()
}

/// The entries' order by key, each key once.
fn index_keys(bytes: &[u8], entries: &[Entry], report: Report<'_>) -> Result<Vec<u32>> {
    let entry = |i: u32| entries.get(i as usize);
    let key = |i: u32| entry(i).map_or(&[][..], |entry| entry.key.of(bytes));
    let mut by_key: Vec<u32> = (0..entries.len() as u32).collect();
    by_key.sort_unstable_by(|a, b| key(*a).cmp(key(*b)).then(a.cmp(b)));
    for pair in by_key.windows(2) {
        if let &[a, b] = pair
            && key(a) == key(b)
            && let Some((first, second)) = entry(a).zip(entry(b))
        {
            report(Error::DuplicateKey {
                key: String::from_utf8_lossy(key(a)).chars().take(256).collect(),
                offset: second.key.start.into(),
                first: first.key.start.into(),
            })?;
        }
    }
    by_key.dedup_by(|later, kept| key(*later) == key(*kept));
    Ok(by_key)
}

fn alignment(bytes: &[u8], entries: &[Entry], report: Report<'_>) -> Result<u32> {
    let Some(entry) = entries.iter().find(|entry| entry.key.of(bytes) == ALIGNMENT_KEY.as_bytes()) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let value = Value::scalar(entry.ty, entry.value.of(bytes));
    let found = match value {
        Some(Value::U32(alignment)) if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => {
            return Ok(alignment);
        }
        Some(Value::String(_)) | None => entry.ty.to_string(),
        Some(value) => format!("{} {value}", entry.ty),
    };
    report(Error::BadAlignment { offset: entry.value.start.into(), found, limit: MAX_ALIGNMENT })?;
    Ok(DEFAULT_ALIGNMENT)
}
