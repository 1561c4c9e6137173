//! Memory for packed weights: zeroed, page-aligned, on huge pages where the system gives them.
#![allow(unsafe_code)]

use memmap2::MmapMut;

use crate::CpuError;

/// Bytes after the end that cores may read (never use): whole vectors at the end of a tile.
const SLACK: usize = 128;

/// A large zeroed allocation.
pub(crate) struct Buffer {
    map: MmapMut,
    len: usize,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish()
    }
}

impl Buffer {
    /// `len` zero bytes. Pages are touched first by whoever writes them.
    pub(crate) fn zeroed(len: usize, what: &'static str) -> Result<Self, CpuError> {
        let memory = || CpuError::Memory { what, bytes: len };
        let total = len.checked_add(SLACK).filter(|&n| n <= isize::MAX as usize).ok_or_else(memory)?;
        let map = MmapMut::map_anon(total).map_err(|_| memory())?;
        // A stream through 4 KB pages pays for address translation; a refusal costs speed only.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Buffer { map, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.map.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.map[..self.len]
    }
}
