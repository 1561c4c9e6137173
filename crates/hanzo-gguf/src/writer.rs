//! Writing: metadata in the order given, tensors announced first and their bytes streamed afterwards.
//!
//! ```
//! use hanzo_gguf::{GgufFile, GgufWriter, TensorType};
//!
//! # fn main() -> Result<(), hanzo_gguf::Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("model.gguf");
//! let mut writer = GgufWriter::new();
//! writer.set("general.architecture", "llama")?;
//! let norm = writer.tensor("output_norm.weight", TensorType::F32, &[2])?;
//! let mut out = writer.create(&path)?;
//! out.append(norm, &1f32.to_le_bytes())?;
//! out.append(norm, &2f32.to_le_bytes())?;
//! out.finish()?; // only now is anything at `path`
//! assert_eq!(GgufFile::open(&path)?.tensors().len(), 1);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::atomic::AtomicFile;
use crate::encode::{MetadataValue, put_string};
use crate::error::{Error, Result};
use crate::header::{ALIGNMENT_KEY, name_problem};
use crate::limits::{
    DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_DIMS, MAX_HEADER_BYTES, MAX_KEY_BYTES, MAX_KEYS,
    MAX_TENSOR_NAME_BYTES, MAX_TENSORS,
};
use crate::metadata::Metadata;
use crate::tensor_type::TensorType;
use crate::value::Value;

/// What a GGUF file is to contain, but for the bytes of its tensors.
#[derive(Clone, Debug)]
pub struct GgufWriter {
    version: u32,
    metadata: Vec<(String, MetadataValue)>,
    /// Where in `metadata` each key is.
    places: HashMap<String, usize>,
    tensors: Vec<Announced>,
    names: HashSet<String>,
}

#[derive(Clone, Debug)]
struct Announced {
    name: String,
    ty: TensorType,
    dims: Vec<u64>,
    n_bytes: u64,
}

/// Where a header ends and each tensor's data start.
struct Layout {
    header: Vec<u8>,
    tensors: Vec<Slot>,
    file_len: u64,
}

/// Where a tensor's bytes go, and how many are there.
struct Slot {
    name: String,
    start: u64,
    n_bytes: u64,
    written: u64,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    /// An empty file of version 3.
    #[must_use]
    pub fn new() -> Self {
        GgufWriter {
            version: 3,
            metadata: Vec::new(),
            places: HashMap::new(),
            tensors: Vec::new(),
            names: HashSet::new(),
        }
    }

    /// Writes version 2 or 3 (3 is the default; on little-endian machines they differ in nothing else).
    ///
    /// # Errors
    /// [`Error::UnsupportedVersion`].
    pub fn set_version(&mut self, version: u32) -> Result<&mut Self> {
        match version {
            2 | 3 => self.version = version,
            _ => return Err(Error::UnsupportedVersion { version }),
        }
        Ok(self)
    }

    /// Sets the alignment of tensor data in bytes, by way of `general.alignment`.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if it is no power of two or too large.
    pub fn set_alignment(&mut self, alignment: u32) -> Result<&mut Self> {
        self.set(ALIGNMENT_KEY, alignment)
    }

    /// Sets a key: in its place if it is there, else at the end.
    ///
    /// # Errors
    /// [`Error::Unwritable`] for a key that a reader would refuse.
    pub fn set(&mut self, key: &str, value: impl Into<MetadataValue>) -> Result<&mut Self> {
        let value = value.into();
        let refuse = |problem: String| Error::Unwritable { what: format!("metadata key {key:?}"), problem };
        if let Some(problem) = name_problem(key.as_bytes()) {
            return Err(refuse(problem.to_owned()));
        }
        if key.len() as u64 > MAX_KEY_BYTES {
            return Err(refuse(format!("longer than {MAX_KEY_BYTES} bytes")));
        }
        if key == ALIGNMENT_KEY && usable_alignment(&value).is_none() {
            return Err(refuse(format!("a u32 that is a power of two, at most {MAX_ALIGNMENT}, expected")));
        }
        if let Some((_, there)) = self.places.get(key).and_then(|place| self.metadata.get_mut(*place)) {
            *there = value;
            return Ok(self);
        }
        if self.metadata.len() as u64 == MAX_KEYS {
            return Err(refuse(format!("there are {MAX_KEYS} keys already")));
        }
        self.places.insert(key.to_owned(), self.metadata.len());
        self.metadata.push((key.to_owned(), value));
        Ok(self)
    }

    /// Sets all keys of another file, in its order, byte for byte.
    ///
    /// # Errors
    /// As [`GgufWriter::set`].
    pub fn copy_metadata(&mut self, metadata: &Metadata) -> Result<&mut Self> {
        for item in metadata.iter() {
            self.set(item.key, item.value)?;
        }
        Ok(self)
    }

    /// Removes a key; whether it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        let Some(place) = self.places.remove(key) else { return false };
        self.metadata.remove(place);
        self.places.values_mut().filter(|later| **later > place).for_each(|later| *later -= 1);
        true
    }

    /// The keys set so far, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.metadata.iter().map(|(key, _)| key.as_str())
    }

    /// Announces a tensor of `dims` (GGUF order, `dims[0]` contiguous) and gives its index, which counts from 0.
    ///
    /// # Errors
    /// [`Error::Unwritable`] for a name or shape that a reader would refuse.
    pub fn tensor(&mut self, name: &str, ty: TensorType, dims: &[u64]) -> Result<usize> {
        let refuse = |problem: String| Error::Unwritable { what: format!("tensor {name:?}"), problem };
        if let Some(problem) = name_problem(name.as_bytes()) {
            return Err(refuse(problem.to_owned()));
        }
        if name.len() as u64 > MAX_TENSOR_NAME_BYTES {
            return Err(refuse(format!("the name is longer than {MAX_TENSOR_NAME_BYTES} bytes")));
        }
        if dims.is_empty() || dims.len() > MAX_DIMS as usize {
            return Err(refuse(format!("{} dimensions; 1 to {MAX_DIMS} expected", dims.len())));
        }
        if self.tensors.len() as u64 == MAX_TENSORS {
            return Err(refuse(format!("there are {MAX_TENSORS} tensors already")));
        }
        let n_bytes = ty.tensor_bytes(dims).map_err(refuse)?;
        if !self.names.insert(name.to_owned()) {
            return Err(refuse("there is one of this name already".to_owned()));
        }
        self.tensors.push(Announced { name: name.to_owned(), ty, dims: dims.to_vec(), n_bytes });
        Ok(self.tensors.len() - 1)
    }

    /// Starts the file. Nothing appears at `path` before [`TensorWriter::finish`].
    ///
    /// # Errors
    /// [`Error::Unwritable`], [`Error::Io`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<TensorWriter> {
        let path = path.as_ref();
        let layout = self.layout().map_err(|error| error.in_file(path))?;
        let file = AtomicFile::create(path, layout.file_len)?;
        file.write_at(0, &layout.header)?;
        Ok(TensorWriter { file, tensors: layout.tensors })
    }

    /// The whole file in memory; `data` has the bytes of each tensor, in order.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if `data` do not fit the tensors announced.
    pub fn to_bytes<D: AsRef<[u8]>>(&self, data: &[D]) -> Result<Vec<u8>> {
        let Layout { header, tensors, file_len } = self.layout()?;
        if data.len() != tensors.len() {
            let problem = format!("bytes for {} tensors; {} were announced", data.len(), tensors.len());
            return Err(Error::Unwritable { what: "the tensors".to_owned(), problem });
        }
        let mut out = header;
        for (slot, data) in tensors.iter().zip(data) {
            let data = data.as_ref();
            if data.len() as u64 != slot.n_bytes {
                return Err(slot.unfinished(data.len() as u64));
            }
            // Slots ascend, and what was just compared keeps each inside file_len.
            out.resize(slot.start as usize, 0);
            out.extend_from_slice(data);
        }
        out.resize(file_len as usize, 0);
        Ok(out)
    }

    fn layout(&self) -> Result<Layout> {
        let mut header = b"GGUF".to_vec();
        header.extend_from_slice(&self.version.to_le_bytes());
        header.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        header.extend_from_slice(&(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut header, key.as_bytes());
            header.extend_from_slice(&value.ty().id().to_le_bytes());
            header.extend_from_slice(value.raw());
        }
        let align = u64::from(self.alignment());
        let too_large = || Error::Unwritable {
            what: "the tensors".to_owned(),
            problem: "together they are larger than a file can be".to_owned(),
        };
        let mut slots = Vec::with_capacity(self.tensors.len());
        let mut offset = 0u64;
        for Announced { name, ty, dims, n_bytes } in &self.tensors {
            put_string(&mut header, name.as_bytes());
            header.extend_from_slice(&(dims.len() as u32).to_le_bytes());
            header.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
            header.extend_from_slice(&ty.id().to_le_bytes());
            header.extend_from_slice(&offset.to_le_bytes());
            slots.push(Slot { name: name.clone(), start: offset, n_bytes: *n_bytes, written: 0 });
            let end = offset.checked_add(*n_bytes).and_then(|end| end.checked_next_multiple_of(align));
            offset = end.ok_or_else(too_large)?;
        }
        let len = header.len() as u64;
        if len > MAX_HEADER_BYTES {
            let problem = format!("{len} bytes; readers accept {MAX_HEADER_BYTES}");
            return Err(Error::Unwritable { what: "the header".to_owned(), problem });
        }
        let data_start = len.next_multiple_of(align);
        header.resize(data_start as usize, 0);
        let file_len = data_start.checked_add(offset).filter(|len| i64::try_from(*len).is_ok());
        let file_len = file_len.ok_or_else(too_large)?;
        slots.iter_mut().for_each(|slot| slot.start += data_start);
        Ok(Layout { header, tensors: slots, file_len })
    }

    fn alignment(&self) -> u32 {
        let set = self.places.get(ALIGNMENT_KEY).and_then(|place| self.metadata.get(*place));
        set.and_then(|(_, value)| usable_alignment(value)).unwrap_or(DEFAULT_ALIGNMENT)
    }
}

fn usable_alignment(value: &MetadataValue) -> Option<u32> {
    match value.scalar() {
        Some(Value::U32(alignment)) if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => {
            Some(alignment)
        }
        _ => None,
    }
}

impl Slot {
    fn unfinished(&self, got: u64) -> Error {
        let problem = format!("{got} bytes given; it has {}", self.n_bytes);
        Error::Unwritable { what: format!("tensor `{}`", self.name), problem }
    }
}

/// A file under way: its header is written, its tensors are being filled. Dropped unfinished, it leaves nothing
/// behind.
pub struct TensorWriter {
    file: AtomicFile,
    tensors: Vec<Slot>,
}

impl TensorWriter {
    /// Writes the next bytes of a tensor. Tensors may be filled in any order and by turns, each from its
    /// beginning on; every call is a write to the file, so give a good many bytes at a time.
    ///
    /// # Errors
    /// [`Error::Unwritable`] beyond the tensor's end, [`Error::Io`] (a full disk, say).
    pub fn append(&mut self, tensor: usize, bytes: &[u8]) -> Result<()> {
        let blame = |error: Error| error.in_file(self.file.target());
        let slot = self.tensors.get_mut(tensor).ok_or_else(|| {
            let problem = "it was not announced".to_owned();
            blame(Error::Unwritable { what: format!("tensor {tensor}"), problem })
        })?;
        let written = slot.written.saturating_add(bytes.len() as u64);
        if written > slot.n_bytes {
            return Err(blame(slot.unfinished(written)));
        }
        self.file.write_at(slot.start + slot.written, bytes)?;
        slot.written = written;
        Ok(())
    }

    /// Flushes the file to the disk and puts it in its place.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if a tensor is not complete, [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        if let Some(slot) = self.tensors.iter().find(|slot| slot.written != slot.n_bytes) {
            return Err(slot.unfinished(slot.written).in_file(self.file.target()));
        }
        self.file.commit()
    }
}

impl std::fmt::Debug for TensorWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorWriter")
            .field("path", &self.file.target())
            .field("tensors", &self.tensors.len())
            .finish()
    }
}
