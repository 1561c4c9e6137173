//! Every bound the reader puts on a file, with its reason.
//!
//! A GGUF header is read from strangers. Counts and lengths are first compared with the bytes that the file
//! really has; the limits here hold for what a large (or sparse) file could still ask for. Together they keep
//! the memory of opening any file, good or bad, under 64 MiB.

#![forbid(unsafe_code)]

/// Bytes of a header (all shards of a split model together): counts, metadata and tensor table.
///
/// The largest vocabularies in use (262k tokens, half a million merges) need about 16 MiB. The header is held
/// in memory as one copy, so this is also the bulk of what opening a file may cost.
pub const MAX_HEADER_BYTES: u64 = 32 << 20;

/// Metadata keys of one file. Real files have 20 to 60; per-layer keys could bring a few thousand.
pub const MAX_KEYS: u64 = 1 << 16;

/// Tensors of one model. The largest mixture-of-experts models with one tensor an expert have about 50 000.
pub const MAX_TENSORS: u64 = 1 << 16;

/// Bytes of a metadata key: the specification's own bound, 2^16 − 1.
pub const MAX_KEY_BYTES: u64 = (1 << 16) - 1;

/// Bytes of a tensor name. The specification says 64; builds of ggml exist with 128.
pub const MAX_TENSOR_NAME_BYTES: u64 = 128;

/// Bytes of one string value or array element. The longest in use are chat templates, about 100 KB.
pub const MAX_STRING_BYTES: u64 = 16 << 20;

/// Arrays inside arrays. Nothing in use nests more than once.
pub const MAX_ARRAY_DEPTH: usize = 4;

/// Dimensions of a tensor: ggml's own bound.
pub const MAX_DIMS: u32 = 4;

/// Alignment of tensor data: a huge page. Larger values only serve to make padding overflow.
pub const MAX_ALIGNMENT: u32 = 2 << 20;

/// Alignment where `general.alignment` is absent: the specification's default.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// Shards of a split model. Each holds a file handle open, and common systems allow a process 1024.
pub const MAX_SHARDS: u32 = 512;
