//! A file that several threads read and write by position.

use std::fs::File;
use std::io::Result;
#[cfg(not(unix))]
use std::sync::{Mutex, PoisonError};

pub(super) struct Positioned {
    file: File,
    /// Held between setting the position and using it, where the system has no call for both.
    #[cfg(not(unix))]
    turn: Mutex<()>,
}

impl Positioned {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            #[cfg(not(unix))]
            turn: Mutex::new(()),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Fills `out` from byte `at`.
    pub(super) fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::read_exact_at(&self.file, out, at);
        #[cfg(not(unix))]
        {
            use std::io::{Read, Seek, SeekFrom};
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            (&self.file).seek(SeekFrom::Start(at))?;
            (&self.file).read_exact(out)
        }
    }

    /// Writes `bytes` from byte `at` on.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::write_all_at(&self.file, bytes, at);
        #[cfg(not(unix))]
        {
            use std::io::{Seek, SeekFrom, Write};
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            (&self.file).seek(SeekFrom::Start(at))?;
            (&self.file).write_all(bytes)
        }
    }
}
