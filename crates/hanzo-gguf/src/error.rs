//! The one error of this crate. Each message says which thing, at which byte, what was found and what was
//! expected; where there is a way out, it says that too.

#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

use crate::value::ValueType;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a GGUF file could not be opened, read, understood or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something went wrong in this file; the inner error says what.
    #[error("{}: {source}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was attempted, such as `open` or `read 64 bytes at byte 0`.
        action: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("is {kind}, not a regular file")]
    NotAFile {
        /// What it is, with its article.
        kind: &'static str,
    },
    /// The file is shorter than the fixed part of a header.
    #[error("the file has {len} bytes; a GGUF header has at least 24")]
    TooShort {
        /// Length of the file in bytes.
        len: u64,
    },
    /// The file does not begin with `GGUF`.
    #[error("not a GGUF file: it begins with {magic:02x?}{looks_like}")]
    BadMagic {
        /// The first four bytes.
        magic: [u8; 4],
        /// What the file seems to be, with advice; empty if unknown.
        looks_like: &'static str,
    },
    /// The file was written for a big-endian machine.
    #[error(
        "this is a big-endian GGUF file (version {version} byte-swapped at byte 4); convert it to little-endian"
    )]
    BigEndian {
        /// The version after swapping.
        version: u32,
    },
    /// The version is neither 2 nor 3.
    #[error("GGUF version {version} at byte 4 is not supported; versions 2 and 3 are")]
    UnsupportedVersion {
        /// The version found.
        version: u32,
    },
    /// The file ends before something that it announces.
    #[error("the file ends inside {what}: {need} bytes needed at byte {offset}, {have} left")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where it starts.
        offset: u64,
        /// Bytes that it needs.
        need: u64,
        /// Bytes that are there.
        have: u64,
    },
    /// A count promises more than the rest of the file could hold.
    #[error(
        "{count} {what} announced at byte {offset}, but the {have} bytes that follow hold at most {possible}"
    )]
    ImpossibleCount {
        /// What is counted.
        what: &'static str,
        /// The announced number.
        count: u64,
        /// Where it is announced.
        offset: u64,
        /// Bytes that follow.
        have: u64,
        /// How many of these would fit.
        possible: u64,
    },
    /// A count or length is beyond a limit of [`crate::limits`].
    #[error("{what} at byte {offset} is {value}; the limit is {limit}")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// The value found.
        value: u64,
        /// The limit.
        limit: u64,
        /// Where the value is.
        offset: u64,
    },
    /// A metadata key is empty, not UTF-8, or contains NUL.
    #[error("metadata key {index} at byte {offset} {problem}")]
    BadKey {
        /// Position among the keys.
        index: u64,
        /// Where the key's text starts.
        offset: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A metadata key occurs twice.
    #[error("metadata key `{key}` at byte {offset} repeats the one at byte {first}")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where the second one is.
        offset: u64,
        /// Where the first one is.
        first: u64,
    },
    /// A metadata value has a type id that GGUF does not define.
    #[error("metadata key `{key}`: value type {id} at byte {offset} is unknown; types 0 to 12 exist")]
    BadValueType {
        /// The key.
        key: String,
        /// Where the type id is.
        offset: u64,
        /// The id.
        id: u32,
    },
    /// A boolean is neither 0 nor 1.
    #[error("metadata key `{key}`: the bool at byte {offset} is {value}; 0 or 1 expected")]
    BadBool {
        /// The key.
        key: String,
        /// Where the byte is.
        offset: u64,
        /// Its value.
        value: u8,
    },
    /// Arrays nested too deep.
    #[error("metadata key `{key}`: arrays nested deeper than {limit} at byte {offset}")]
    ArrayDepth {
        /// The key.
        key: String,
        /// Where the array that is too deep begins.
        offset: u64,
        /// The limit.
        limit: usize,
    },
    /// `general.alignment` is unusable.
    #[error(
        "`general.alignment` at byte {offset} is {found}; a u32 that is a power of two, at most {limit}, expected"
    )]
    BadAlignment {
        /// Where its value is.
        offset: u64,
        /// Its type and value.
        found: String,
        /// The largest alignment accepted.
        limit: u32,
    },
    /// A required metadata key is absent.
    #[error("metadata key `{key}` is missing; {expected} expected")]
    MissingKey {
        /// The key.
        key: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A metadata value has another type than asked for.
    #[error("metadata key `{key}` at byte {offset} is {found}; {expected} expected")]
    WrongType {
        /// The key.
        key: String,
        /// Where its value is.
        offset: u64,
        /// What was asked for.
        expected: &'static str,
        /// What is there.
        found: ValueKind,
    },
    /// A metadata number does not fit the type asked for.
    #[error("metadata key `{key}` at byte {offset} is {value}, out of range for {expected}")]
    OutOfRange {
        /// The key.
        key: String,
        /// Where the number is.
        offset: u64,
        /// The number.
        value: i128,
        /// The type asked for.
        expected: &'static str,
    },
    /// A string that must be text is not UTF-8.
    #[error("metadata key `{key}`: the string at byte {offset} is not UTF-8 from its byte {valid_up_to} on")]
    NotUtf8 {
        /// The key.
        key: String,
        /// Where the string's text starts.
        offset: u64,
        /// Bytes of it that are valid.
        valid_up_to: usize,
    },
    /// A tensor's name is empty, not UTF-8, or contains NUL.
    #[error("the name of tensor {index} at byte {offset} {problem}")]
    BadTensorName {
        /// Position among the tensors.
        index: u64,
        /// Where the name's text starts.
        offset: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Two tensors have the same name.
    #[error("tensor `{tensor}` at byte {offset} repeats the one at byte {first}")]
    DuplicateTensor {
        /// The name.
        tensor: String,
        /// Where the second entry is.
        offset: u64,
        /// Where the first entry is.
        first: u64,
    },
    /// A tensor's shape cannot be.
    #[error("tensor `{tensor}` at byte {offset}: {problem}")]
    BadShape {
        /// The name.
        tensor: String,
        /// Where the shape is.
        offset: u64,
        /// What is wrong, with the numbers.
        problem: String,
    },
    /// A tensor has a type that ggml has withdrawn.
    #[error(
        "tensor `{tensor}` at byte {offset} has type {id} ({name}), which ggml has removed; quantize the model anew"
    )]
    RemovedType {
        /// The tensor.
        tensor: String,
        /// Where the type id is.
        offset: u64,
        /// The id.
        id: u32,
        /// The name that the type had.
        name: &'static str,
    },
    /// A tensor has a type that this program does not know.
    #[error("tensor `{tensor}` at byte {offset} has type {id}, which is unknown to this version")]
    UnknownType {
        /// The tensor.
        tensor: String,
        /// Where the type id is.
        offset: u64,
        /// The id.
        id: u32,
    },
    /// A tensor's data offset is not a multiple of the alignment.
    #[error(
        "tensor `{tensor}` at byte {offset}: data offset {data_offset} is not a multiple of the alignment {alignment}"
    )]
    Unaligned {
        /// The tensor.
        tensor: String,
        /// Where its offset field is.
        offset: u64,
        /// The offset, relative to the data section.
        data_offset: u64,
        /// The file's alignment.
        alignment: u32,
    },
    /// A tensor's data lies beyond the end of the file.
    #[error(
        "tensor `{tensor}` at byte {offset}: its {n_bytes} bytes at data offset {data_offset} end beyond the file, \
         whose data section (from byte {data_start}) has {have} bytes; the download may be incomplete"
    )]
    OutOfFile {
        /// The tensor.
        tensor: String,
        /// Where its offset field is.
        offset: u64,
        /// The offset, relative to the data section.
        data_offset: u64,
        /// Bytes that the tensor needs.
        n_bytes: u64,
        /// Where the data section starts.
        data_start: u64,
        /// Bytes of the data section.
        have: u64,
    },
    /// Two tensors share bytes.
    #[error(
        "tensor `{tensor}` (bytes {start} on) overlaps tensor `{other}` (which ends at byte {other_end})"
    )]
    Overlap {
        /// The tensor that starts later.
        tensor: String,
        /// Its first byte in the file.
        start: u64,
        /// The tensor that starts earlier.
        other: String,
        /// One past its last byte.
        other_end: u64,
    },
    /// There is no tensor of this name.
    #[error("tensor `{tensor}` is missing")]
    NoTensor {
        /// The name.
        tensor: String,
    },
    /// A read beyond the end of a tensor.
    #[error("bytes {start}..{end} of tensor `{tensor}` asked for; it has {n_bytes}")]
    ReadRange {
        /// The tensor.
        tensor: String,
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Bytes of the tensor.
        n_bytes: u64,
    },
    /// The file was truncated, rewritten or replaced after it was opened.
    #[error("the file changed after it was opened ({what}); open it again")]
    Changed {
        /// What differs.
        what: String,
    },
    /// Not enough memory for a copy of a tensor.
    #[error("no memory for {bytes} bytes of tensor `{tensor}`")]
    NoMemory {
        /// The tensor.
        tensor: String,
        /// Bytes wanted.
        bytes: u64,
    },
    /// A shard's file name is not `PREFIX-00001-of-0000N.gguf` as its metadata demands.
    #[error("is shard {number} of {count}, so its name must end in `{expected}`; rename it back")]
    SplitName {
        /// Shard number, from 1.
        number: u32,
        /// Shards of the model.
        count: u32,
        /// The end of name that was expected.
        expected: String,
    },
    /// A shard's name contains a path.
    #[error("shard name {name:?} is not a plain file name")]
    SplitPath {
        /// The name.
        name: String,
    },
    /// A shard is not there.
    #[error(
        "shard {number} of {count} is missing: `{name}`; a split model needs all of its shards in one folder"
    )]
    SplitMissing {
        /// Shard number, from 1.
        number: u32,
        /// Shards of the model.
        count: u32,
        /// The file name looked for.
        name: String,
    },
    /// A shard's content is another shard, one that occurs already.
    #[error("shard {number} of {count} is there twice: also as `{other}`")]
    SplitRepeated {
        /// Shard number, from 1, by its metadata.
        number: u32,
        /// Shards of the model.
        count: u32,
        /// The other file.
        other: String,
    },
    /// A shard stands where another is expected.
    #[error("holds shard {found} of {count} where shard {expected} is expected")]
    SplitOrder {
        /// Number expected, from 1.
        expected: u32,
        /// Number that the metadata gives, from 1.
        found: u64,
        /// Shards of the model.
        count: u32,
    },
    /// Shards disagree about how many there are.
    #[error("says that the model has {found} shards (`split.count`); {expected} expected")]
    SplitCount {
        /// Number expected, from the name or from the shard that was opened.
        expected: u64,
        /// Number that this shard's metadata gives.
        found: u64,
    },
    /// The shards together have another number of tensors than announced.
    #[error("the shards hold {found} tensors; `split.tensors.count` says {expected}")]
    SplitTensors {
        /// Number announced.
        expected: u64,
        /// Number found.
        found: u64,
    },
    /// A shard of a split model in memory, where its siblings cannot be found.
    #[error("this is shard {number} of {count}; a model in memory must be whole (merge the shards first)")]
    SplitInMemory {
        /// Shard number, from 1.
        number: u32,
        /// Shards of the model.
        count: u32,
    },
    /// What was asked of the writer cannot be written.
    #[error("cannot write {what}: {problem}")]
    Unwritable {
        /// The key, tensor or file.
        what: String,
        /// Why not.
        problem: String,
    },
}

impl Error {
    /// The error without the file names around it.
    #[must_use]
    pub fn root(&self) -> &Error {
        let mut error = self;
        while let Error::InFile { source, .. } = error {
            error = source;
        }
        error
    }

    /// This error, with the file that it is about (unless it already names one).
    #[must_use]
    pub(crate) fn in_file(self, path: &Path) -> Error {
        match self {
            Error::InFile { .. } => self,
            other => Error::InFile { path: path.to_owned(), source: Box::new(other) },
        }
    }

    pub(crate) fn io(action: impl Into<String>, source: io::Error) -> Error {
        Error::Io { action: action.into(), source }
    }
}

/// The type of a metadata value as an error shows it: `u32`, `string`, `array of f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueKind {
    /// The value's type.
    pub ty: ValueType,
    /// For an array, the type of its elements.
    pub element: Option<ValueType>,
}

impl std::fmt::Display for ValueKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.element {
            Some(element) => write!(f, "array of {element}"),
            None => self.ty.fmt(f),
        }
    }
}
