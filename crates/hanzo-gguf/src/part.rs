//! One physical file (or byte string) with its header: a whole model, or one shard of a split one.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::header::{self, Header, Report};
use crate::metadata::{HeaderBytes, Metadata};
use crate::source::FileSource;
use crate::tensor::TensorInfo;

/// One file of a model.
pub struct Part {
    source: Source,
    metadata: Metadata,
    version: u32,
    alignment: u32,
    header_end: u64,
    data_start: u64,
}

enum Source {
    Bytes(HeaderBytes),
    File(FileSource),
}

/// Passed where the first fault is to end the reading.
pub(crate) fn strict(error: Error) -> Result<()> {
    Err(error)
}

impl Part {
    /// Opens a file; `budget` bytes of header are allowed. Gives its tensor table beside the part.
    pub(crate) fn open(path: &Path, budget: u64, report: Report<'_>) -> Result<(Self, Vec<TensorInfo>)> {
        let file = FileSource::open(path)?;
        let mut cursor = Cursor::over_file(&file, budget);
        let mut named = |error: Error| report(error.in_file(path));
        let header = header::read(&mut cursor, &mut named).map_err(|error| error.in_file(path))?;
        let copy = HeaderBytes::Shared(Arc::new(cursor.into_copy()));
        Ok(Self::new(Source::File(file), copy, header))
    }

    pub(crate) fn from_bytes(
        bytes: Cow<'static, [u8]>,
        report: Report<'_>,
    ) -> Result<(Self, Vec<TensorInfo>)> {
        let bytes = match bytes {
            Cow::Borrowed(bytes) => HeaderBytes::Static(bytes),
            Cow::Owned(bytes) => HeaderBytes::Shared(Arc::new(bytes)),
        };
        let header = header::read(&mut Cursor::over_slice(bytes.get()), report)?;
        Ok(Self::new(Source::Bytes(bytes.clone()), bytes, header))
    }

    fn new(source: Source, bytes: HeaderBytes, header: Header) -> (Self, Vec<TensorInfo>) {
        let Header { version, alignment, entries, by_key, tensors, end, data_start } = header;
        let metadata = Metadata { bytes, entries, by_key };
        (Part { source, metadata, version, alignment, header_end: end, data_start }, tensors)
    }

    /// Where it was opened; `None` for a model in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Bytes(_) => None,
            Source::File(file) => Some(file.path()),
        }
    }

    /// The open file; `None` for a model in memory.
    #[must_use]
    pub fn file(&self) -> Option<&FileSource> {
        match &self.source {
            Source::Bytes(_) => None,
            Source::File(file) => Some(file),
        }
    }

    /// Its metadata. Of a split model only the first shard has more than the `split.*` keys.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// GGUF version: 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in bytes.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// Bytes of the header: up to the end of the tensor table.
    #[must_use]
    pub fn header_len(&self) -> u64 {
        self.header_end
    }

    /// Where tensor data starts, in bytes from the start of the file.
    #[must_use]
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// Length of the whole file in bytes.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        match &self.source {
            Source::Bytes(bytes) => bytes.get().len() as u64,
            Source::File(file) => file.len(),
        }
    }

    pub(crate) fn view(&self, start: u64, end: u64) -> Result<&[u8]> {
        match &self.source {
            Source::Bytes(bytes) => Ok(slice(bytes.get(), start, end)),
            Source::File(file) => file.view(start, end).map_err(|error| error.in_file(file.path())),
        }
    }

    pub(crate) fn read_at(&self, start: u64, buf: &mut [u8]) -> Result<()> {
        match &self.source {
            Source::Bytes(bytes) => {
                let from = slice(bytes.get(), start, start + buf.len() as u64);
                // Equal: the caller has checked the range against the tensor, and `place` the tensor.
                if from.len() == buf.len() {
                    buf.copy_from_slice(from);
                }
                Ok(())
            }
            Source::File(file) => file.read_at(start, buf).map_err(|error| error.in_file(file.path())),
        }
    }

    pub(crate) fn check_unchanged(&self) -> Result<()> {
        match &self.source {
            Source::Bytes(_) => Ok(()),
            Source::File(file) => {
                file.check_handle().and_then(|()| file.check_path()).map_err(|e| e.in_file(file.path()))
            }
        }
    }

    /// `error`, with this part's file name where it has one.
    pub(crate) fn blame(&self, error: Error) -> Error {
        match self.path() {
            Some(path) => error.in_file(path),
            None => error,
        }
    }
}

fn slice(bytes: &[u8], start: u64, end: u64) -> &[u8] {
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    range.and_then(|(start, end)| bytes.get(start..end)).unwrap_or_default()
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("path", &self.path())
            .field("version", &self.version)
            .field("alignment", &self.alignment)
            .field("data_start", &self.data_start)
            .finish_non_exhaustive()
    }
}
