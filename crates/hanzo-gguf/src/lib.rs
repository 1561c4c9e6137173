//! The GGUF container: read, validate, write, split.
//!
//! A [`GgufFile`] is a model's header (metadata in file order, a table of tensors) and access to the bytes of its
//! tensors. The crate knows sizes, not values: what blocks mean is for `hanzo-quant`, what keys mean for the
//! crates that read them.
//!
//! # Files that change
//!
//! Headers and, by way of [`GgufFile::read_tensor_at`], tensors are read by position into memory of our own. The
//! file's length, time of modification, device and inode are recorded at opening and compared after every read,
//! so a file that is truncated or rewritten meanwhile gives [`Error::Changed`] and nothing worse. Replacing a file
//! by renaming another over it does no harm: the open handle keeps the old one. The zero-copy views of
//! [`GgufFile::tensor_bytes`] go through a memory map, which is made only when one is asked for; the file is
//! checked before each view is handed out, and what remains is the time while a view is in use: a file truncated
//! then raises SIGBUS. Loaders therefore copy.
//!
//! # Hostile files
//!
//! Every count, length, offset and product is checked before it is used; [`limits`] names the bounds. Opening
//! any file, good or bad, takes less than 64 MiB of memory, and never blocks.

mod array;
mod atomic;
mod cursor;
mod encode;
mod error;
mod file;
mod header;
mod known_keys;
pub mod limits;
mod map;
mod metadata;
mod part;
mod repack;
mod source;
mod split;
mod table;
mod tensor;
mod tensor_type;
mod validate;
mod value;
mod writer;

pub use array::{ArrayRef, StringArray, Strings, Values};
pub use encode::MetadataValue;
pub use error::{Error, Result, ValueKind};
pub use file::GgufFile;
pub use metadata::{Item, Metadata};
pub use part::Part;
pub use repack::{merge, split};
pub use source::{FileSource, Stamp};
pub use split::{parse_shard_name, shard_name};
pub use tensor::TensorInfo;
pub use tensor_type::TensorType;
pub use validate::{
    MAX_PROBLEMS, Problem, Report, Severity, check, check_bytes, check_contents, scan_values,
};
pub use value::{Value, ValueType};
pub use writer::{GgufWriter, TensorWriter};
