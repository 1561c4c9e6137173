//! What is wrong, or merely odd, with a file: for people who look at one (`hanzo inspect`), not for loaders.
//!
//! Opening a file ends at the first fault. [`check`] goes on as far as it can and lists them all, then adds what
//! the specification or other readers would complain about. What only a model's architecture can tell (missing
//! weights, wrong shapes) is left to `hanzo-models`.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use crate::error::Result;
use crate::file::GgufFile;
use crate::header;
use crate::known_keys::{expected, holds};
use crate::metadata::Metadata;
use crate::part::Part;
use crate::split;
use crate::tensor::TensorInfo;
use crate::tensor_type::TensorType;
use crate::value::{Value, ValueType};

/// How many problems are listed; a file with more is broken through and through.
pub const MAX_PROBLEMS: usize = 1000;

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It works here; the specification or another reader may object.
    Warning,
    /// The file cannot be used, or gives wrong results.
    Error,
}

/// One thing that is wrong with a file; the message names it and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}", self.message)
    }
}

/// What [`check`] found.
#[derive(Debug)]
pub struct Report {
    /// The problems, in the order found: first those of the container, then those of its contents.
    pub problems: Vec<Problem>,
    /// The file, so far as it could be read; tensors and values that are faulty may be absent. For looking at,
    /// not for loading: [`GgufFile::open`] is for that.
    pub file: Option<GgufFile>,
}

/// Collects problems, up to [`MAX_PROBLEMS`].
#[derive(Default)]
struct Problems {
    list: Vec<Problem>,
    more: usize,
}

impl Problems {
    fn add(&mut self, severity: Severity, message: impl Into<String>) {
        if self.list.len() < MAX_PROBLEMS {
            self.list.push(Problem { severity, message: message.into() });
        } else {
            self.more += 1;
        }
    }

    fn error(&mut self, message: impl Into<String>) {
        self.add(Severity::Error, message);
    }

    fn warn(&mut self, message: impl Into<String>) {
        self.add(Severity::Warning, message);
    }

    fn finish(mut self) -> Vec<Problem> {
        if self.more > 0 {
            let message = format!("and {} more problems", self.more);
            self.list.push(Problem { severity: Severity::Error, message });
        }
        self.list
    }
}

/// Looks through the file at `path` (and, of a split model, the other shards) for all that is wrong with it.
#[must_use]
pub fn check(path: impl AsRef<Path>) -> Report {
    collect(|report| GgufFile::join(split::open_all(path.as_ref(), report)?, report))
}

/// As [`check`], for a file in memory.
#[must_use]
pub fn check_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Report {
    collect(|report| GgufFile::from_bytes_reporting(bytes.into(), report))
}

fn collect(open: impl FnOnce(header::Report<'_>) -> Result<GgufFile>) -> Report {
    let mut problems = Problems::default();
    let opened = open(&mut |error| {
        problems.error(error.to_string());
        Ok(())
    });
    match &opened {
        // What was read in spite of faults lacks what they are about, and would be blamed for it a second time.
        Ok(file) if !problems.list.is_empty() => {
            keys(file.metadata(), &mut problems);
            if !file.tensors().is_empty() {
                required(file, &mut problems);
            }
            vocabulary(file.metadata(), &mut problems);
        }
        Ok(file) => contents(file, &mut problems),
        Err(error) => problems.error(error.to_string()),
    }
    Report { problems: problems.finish(), file: opened.ok() }
}

/// As [`check`], for a file that is open already: what is odd about its contents.
#[must_use]
pub fn check_contents(file: &GgufFile) -> Vec<Problem> {
    let mut problems = Problems::default();
    contents(file, &mut problems);
    problems.finish()
}

fn contents(file: &GgufFile, problems: &mut Problems) {
    keys(file.metadata(), problems);
    required(file, problems);
    vocabulary(file.metadata(), problems);
    for (shard, part) in file.parts().enumerate() {
        layout(part, file.tensors().iter().filter(|tensor| tensor.shard() == shard), problems);
    }
}

/// Form of the keys, and types of those that are known.
fn keys(metadata: &Metadata, problems: &mut Problems) {
    for item in metadata.iter() {
        let key = item.key;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-');
        if !key.bytes().all(plain) {
            problems.warn(format!(
                "metadata key `{key}` has other than lower-case letters, digits, `_`, `-`, `.`"
            ));
        }
        let no_token = key.ends_with("_token_id") && item.value.as_integer() == Some(-1);
        if let Some(expected) = expected(key, metadata.get("general.architecture").and_then(|v| v.as_str()))
            && !holds(expected, &item.value)
            && !no_token
        {
            let found = match item.value {
                Value::Array(array) => format!("array of {}", array.element()),
                value => value.ty().to_string(),
            };
            let at = item.offset;
            problems.error(format!("metadata key `{key}` at byte {at} is {found}; {expected} expected"));
        }
        match item.value {
            Value::String(text) if std::str::from_utf8(text).is_err() => {
                problems.warn(format!("metadata key `{key}` at byte {} is not UTF-8", item.offset));
            }
            Value::Array(array) if array.element() == ValueType::Array => {
                problems
                    .warn(format!("metadata key `{key}` is an array of arrays, which some readers refuse"));
            }
            Value::Array(array) => {
                let bad =
                    array.strings().map_or(0, |strings| strings.iter_str().filter(Result::is_err).count());
                if bad > 0 {
                    problems.warn(format!("metadata key `{key}`: {bad} of its strings are not UTF-8"));
                }
            }
            _ => {}
        }
    }
}

/// What must be there.
fn required(file: &GgufFile, problems: &mut Problems) {
    let metadata = file.metadata();
    let is_model = metadata.get("general.type").and_then(|v| v.as_str()).is_none_or(|ty| ty == "model");
    if is_model && !metadata.contains("general.architecture") {
        problems
            .error("metadata key `general.architecture` is missing: no program can tell what model this is");
    }
    let quantized = file.tensors().iter().any(|tensor| tensor.ty().block_elems() > 1);
    if quantized && !metadata.contains("general.quantization_version") {
        problems.warn("metadata key `general.quantization_version` is missing, though tensors are quantized");
    }
    if file.tensors().is_empty() && !metadata.contains("tokenizer.ggml.tokens") {
        problems.error("there are neither tensors nor a vocabulary");
    }
    if file.alignment() < 8 {
        let alignment = file.alignment();
        problems.warn(format!("`general.alignment` is {alignment}; the specification wants a multiple of 8"));
    }
}

/// Arrays that belong together, and ids into them.
fn vocabulary(metadata: &Metadata, problems: &mut Problems) {
    let Ok(Some(tokens)) = metadata.get_array("tokenizer.ggml.tokens") else { return };
    for key in ["tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
        if let Ok(Some(array)) = metadata.get_array(key)
            && array.len() != tokens.len()
        {
            let (found, expected) = (array.len(), tokens.len());
            problems
                .error(format!("metadata key `{key}` has {found} elements, but there are {expected} tokens"));
        }
    }
    for item in metadata.iter() {
        let special = item.key.strip_prefix("tokenizer.ggml.").is_some_and(|key| key.ends_with("_token_id"));
        // Some converters write -1, or its 32 bits, for "none".
        let none = |id: i128| id == -1 || id == i128::from(u32::MAX);
        if let (true, Some(id)) = (special, item.value.as_integer())
            && !(0..tokens.len() as i128).contains(&id)
            && !none(id)
        {
            let (key, n) = (item.key, tokens.len());
            problems.error(format!("metadata key `{key}` is {id}, but there are {n} tokens"));
        }
    }
}

/// What ggml's own reader insists on, and bytes that belong to nothing.
fn layout<'a>(part: &Part, tensors: impl Iterator<Item = &'a TensorInfo>, problems: &mut Problems) {
    let align = u64::from(part.alignment());
    let mut end = part.data_start();
    for tensor in tensors {
        let name = tensor.name();
        if name.len() > 63 {
            problems.warn(format!("tensor `{name}`: the name is longer than 63 bytes, which ggml refuses"));
        }
        let expected = end.next_multiple_of(align);
        if tensor.offset() != expected {
            let at = tensor.offset();
            problems.warn(format!(
                "tensor `{name}` starts at byte {at}, not right after the one before it (byte {expected}), which \
                 ggml refuses"
            ));
        }
        end = tensor.offset() + tensor.n_bytes();
    }
    let rest = part.file_len().saturating_sub(end.next_multiple_of(align));
    if rest > 0 {
        problems.warn(format!("the last {rest} bytes of the file belong to no tensor"));
    }
}

/// Looks for NaN and infinity in the F16, BF16, F32 and F64 tensors, reading all of them; `progress` is told the
/// bytes of each piece read.
///
/// # Errors
/// What [`GgufFile::read_tensor_at`] gives.
pub fn scan_values(file: &GgufFile, mut progress: impl FnMut(u64)) -> Result<Vec<Problem>> {
    let mut problems = Problems::default();
    let mut buffer = vec![0; 1 << 20];
    for tensor in file.tensors() {
        let (mut nan, mut infinite) = (0u64, 0u64);
        let mut done = 0;
        while done < tensor.n_bytes() && is_float(tensor.ty()) {
            let left = usize::try_from(tensor.n_bytes() - done).unwrap_or(usize::MAX);
            let take = left.min(buffer.len());
            let piece = buffer.get_mut(..take).unwrap_or_default();
            file.read_tensor_at(tensor, done, piece)?;
            let (more_nan, more_infinite) = not_finite(tensor.ty(), piece);
            nan += more_nan;
            infinite += more_infinite;
            done += piece.len() as u64;
            progress(piece.len() as u64);
        }
        if nan + infinite > 0 {
            let (name, n) = (tensor.name(), tensor.n_elements());
            problems.error(format!("tensor `{name}`: of {n} values {nan} are NaN and {infinite} infinite"));
        }
    }
    Ok(problems.finish())
}

fn is_float(ty: TensorType) -> bool {
    matches!(ty, TensorType::F16 | TensorType::BF16 | TensorType::F32 | TensorType::F64)
}

/// How many values are NaN and how many infinite: an exponent of all ones, with and without a mantissa.
fn not_finite(ty: TensorType, bytes: &[u8]) -> (u64, u64) {
    /// `infinity`: the exponent's bits, at the width of the type.
    fn count<const N: usize>(bytes: &[u8], infinity: u64) -> (u64, u64) {
        let magnitude_mask = u64::MAX >> (64 - (8 * N as u32 - 1));
        let (values, _) = bytes.as_chunks::<N>();
        values.iter().fold((0, 0), |(nan, infinite), value| {
            let mut wide = [0; 8];
            wide.iter_mut().zip(value).for_each(|(wide, byte)| *wide = *byte);
            let magnitude = u64::from_le_bytes(wide) & magnitude_mask;
            (nan + u64::from(magnitude > infinity), infinite + u64::from(magnitude == infinity))
        })
    }
    match ty {
        TensorType::F16 => count::<2>(bytes, 0x7c00),
        TensorType::BF16 => count::<2>(bytes, 0x7f80),
        TensorType::F32 => count::<4>(bytes, 0x7f80_0000),
        TensorType::F64 => count::<8>(bytes, 0x7ff0_0000_0000_0000),
        _ => (0, 0),
    }
}
