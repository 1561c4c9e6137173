//! A model's file or files as one: metadata, the merged tensor table, and the two ways to a tensor's bytes.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::path::Path;

use crate::error::{Error, Result};
use crate::header::Report;
use crate::limits::{MAX_HEADER_BYTES, MAX_TENSORS};
use crate::metadata::Metadata;
use crate::part::{Part, strict};
use crate::split::{self, Opened};
use crate::tensor::TensorInfo;

/// An open GGUF model: one file, all shards of a split one, or bytes in memory.
///
/// It may be shared between threads; reads do not disturb each other.
#[derive(Debug)]
pub struct GgufFile {
    first: Part,
    others: Vec<Part>,
    tensors: Vec<TensorInfo>,
    /// Tensors in order of their names, for look-up.
    by_name: Vec<u32>,
}

impl GgufFile {
    /// Opens the file at `path`; if it is a shard (`…-00002-of-00003.gguf`), the whole model.
    ///
    /// The header is read through bounded, checked copies; tensor data are not touched.
    ///
    /// # Errors
    /// Whatever is wrong with the file, with its path: see [`Error`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::join(split::open_all(path.as_ref(), &mut strict)?, &mut strict)
    }

    /// Opens the one file at `path`, be it a shard or not.
    ///
    /// # Errors
    /// As [`GgufFile::open`].
    pub fn open_single(path: impl AsRef<Path>) -> Result<Self> {
        Self::join(vec![Part::open(path.as_ref(), MAX_HEADER_BYTES, &mut strict)?], &mut strict)
    }

    /// Opens the shards with these file names in `folder`: all of one model, in order. The names may come from
    /// elsewhere (a repository's listing): one that is not a plain file name is refused.
    ///
    /// # Errors
    /// [`Error::SplitPath`], and as [`GgufFile::open`].
    pub fn open_shards(folder: impl AsRef<Path>, names: &[&str]) -> Result<Self> {
        Self::join(split::open_named(folder.as_ref(), names, &mut strict)?, &mut strict)
    }

    /// A model in memory, such as one compiled into the program.
    ///
    /// # Errors
    /// As [`GgufFile::open`]; [`Error::SplitInMemory`] for a shard.
    pub fn from_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self> {
        Self::from_bytes_reporting(bytes.into(), &mut strict)
    }

    pub(crate) fn from_bytes_reporting(bytes: Cow<'static, [u8]>, report: Report<'_>) -> Result<Self> {
        let opened = Part::from_bytes(bytes, report)?;
        if let Some(split::Place { no, count }) = split::place(opened.0.metadata())? {
            let number = no.saturating_add(1).min(u64::from(u32::MAX)) as u32;
            report(Error::SplitInMemory { number, count })?;
        }
        Self::join(vec![opened], report)
    }

    /// Merges the tensor tables of `parts`, which are in order.
    pub(crate) fn join(parts: Vec<Opened>, report: Report<'_>) -> Result<Self> {
        let mut parts = parts.into_iter();
        let Some((first, mut tensors)) = parts.next() else {
            return Err(Error::SplitMissing { number: 1, count: 0, name: String::new() });
        };
        let mut others = Vec::with_capacity(parts.len());
        for (part, mut more) in parts {
            others.push(part);
            // MAX_SHARDS fits in 16 bits.
            more.iter_mut().for_each(|tensor| tensor.shard = others.len() as u16);
            tensors.append(&mut more);
        }
        if tensors.len() as u64 > MAX_TENSORS {
            let (value, limit) = (tensors.len() as u64, MAX_TENSORS);
            return Err(first.blame(Error::Limit { what: "the tensor count", value, limit, offset: 8 }));
        }
        let name = |i: u32| tensors.get(i as usize).map_or("", |tensor: &TensorInfo| tensor.name());
        let mut by_name: Vec<u32> = (0..tensors.len() as u32).collect();
        by_name.sort_unstable_by(|a, b| name(*a).cmp(name(*b)).then(a.cmp(b)));
        let twice = by_name.windows(2).filter_map(|pair| match pair {
            &[a, b] if name(a) == name(b) => tensors.get(a as usize).zip(tensors.get(b as usize)),
            _ => None,
        });
        for (a, b) in twice {
            let error = Error::DuplicateTensor {
                tensor: b.name().to_owned(),
                offset: b.info_offset,
                first: a.info_offset,
            };
            let part = b.shard().checked_sub(1).and_then(|i| others.get(i)).unwrap_or(&first);
            report(part.blame(error))?;
        }
        Ok(GgufFile { first, others, tensors, by_name })
    }

    /// The metadata (of a split model: of its first shard), in file order.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        self.first.metadata()
    }

    /// All tensors, in the order of the file (of a split model: shard after shard).
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name, if there is one.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let at = |i: &u32| self.tensors.get(*i as usize);
        let found = self.by_name.binary_search_by(|i| at(i).map_or("", TensorInfo::name).cmp(name));
        found.ok().and_then(|place| self.by_name.get(place)).and_then(at)
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::NoTensor`].
    pub fn required_tensor(&self, name: &str) -> Result<&TensorInfo> {
        let missing = || self.first.blame(Error::NoTensor { tensor: name.to_owned() });
        self.tensor(name).ok_or_else(missing)
    }

    /// The file or files, in order.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Where the (first) file was opened; `None` for a model in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.first.path()
    }

    /// GGUF version of the (first) file: 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.first.version()
    }

    /// Alignment of tensor data in the (first) file, in bytes.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.first.alignment()
    }

    /// Bytes of all tensors together.
    #[must_use]
    pub fn tensor_bytes_total(&self) -> u64 {
        // Each tensor lies in a file and none overlap, so the sum is at most that of the files' lengths.
        self.tensors.iter().map(TensorInfo::n_bytes).fold(0, u64::saturating_add)
    }

    /// A tensor's bytes without a copy: in memory, or through the map of its file, made on first use.
    ///
    /// In a file the view starts at a multiple of the file's alignment (at most of the page size); in memory
    /// wherever the bytes are. The file is checked to be unchanged before the view is handed out. Should another
    /// process truncate it *while* the view is read, the system ends this one (SIGBUS): a loader that must
    /// survive that uses [`GgufFile::read_tensor_at`].
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Io`]; [`Error::ReadRange`] for a tensor of another file.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<&[u8]> {
        let part = self.part_of(tensor, 0, tensor.n_bytes)?;
        part.view(tensor.offset, tensor.offset + tensor.n_bytes)
    }

    /// Copies bytes `byte_offset .. byte_offset + buf.len()` of a tensor into `buf`.
    ///
    /// Reads by position and does not touch the map, so that a file truncated or rewritten meanwhile gives an
    /// error instead of a signal; after each read the file's length and time of modification are compared with
    /// those at opening. On an error the contents of `buf` mean nothing.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Io`]; [`Error::ReadRange`] beyond the tensor's end.
    pub fn read_tensor_at(&self, tensor: &TensorInfo, byte_offset: u64, buf: &mut [u8]) -> Result<()> {
        let part = self.part_of(tensor, byte_offset, buf.len() as u64)?;
        part.read_at(tensor.offset + byte_offset, buf)
    }

    /// A checked copy of a whole tensor. As [`GgufFile::read_tensor_at`].
    ///
    /// # Errors
    /// As there; [`Error::NoMemory`].
    pub fn read_tensor(&self, tensor: &TensorInfo) -> Result<Vec<u8>> {
        let no_memory = || Error::NoMemory { tensor: tensor.name().to_owned(), bytes: tensor.n_bytes };
        let len = usize::try_from(tensor.n_bytes).map_err(|_| no_memory())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| no_memory())?;
        bytes.resize(len, 0);
        self.read_tensor_at(tensor, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// That every file is the one that was opened, at its path still, not written to since.
    ///
    /// # Errors
    /// [`Error::Changed`] or [`Error::Io`].
    pub fn check_unchanged(&self) -> Result<()> {
        self.parts().try_for_each(Part::check_unchanged)
    }

    /// The part that holds the tensor, if bytes `start .. start + len` of it are there.
    fn part_of(&self, tensor: &TensorInfo, start: u64, len: u64) -> Result<&Part> {
        let part = match tensor.shard().checked_sub(1) {
            None => Some(&self.first),
            Some(i) => self.others.get(i),
        };
        let end = start.checked_add(len).filter(|end| *end <= tensor.n_bytes);
        let inside = |part: &&Part| {
            let last = end.and_then(|_| tensor.offset.checked_add(tensor.n_bytes));
            // Always so for this model's own tensors.
            last.is_some_and(|last| last <= part.file_len())
        };
        part.filter(inside).ok_or_else(|| Error::ReadRange {
            tensor: tensor.name().to_owned(),
            start,
            end: start.saturating_add(len),
            n_bytes: tensor.n_bytes,
        })
    }
}
