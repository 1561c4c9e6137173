//! The memory map of a file: the one module of this crate with `unsafe`.
//!
//! A map is only as long as its file: should the file be truncated later, touching a page beyond the new end
//! raises SIGBUS, which ends the process. So the map is made only when a view is asked for
//! ([`crate::GgufFile::tensor_bytes`]), the file's length is checked again before each view is handed out, and
//! whoever must survive a file that shrinks *while* it is read uses [`crate::GgufFile::read_tensor_at`], which
//! does not touch the map.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

/// A read-only map of a whole file.
pub(crate) struct Map(memmap2::Mmap);

impl Map {
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: memmap2 asks that the file not be modified while mapped. Other processes may do so; the bytes
        // are plain data of which any value is valid, nothing derived from them is trusted without a check at
        // its use, and truncation is guarded against as the module's documentation says.
        unsafe { memmap2::Mmap::map(file) }.map(Self)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
