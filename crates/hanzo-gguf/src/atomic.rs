//! A file that appears complete or not at all: written under another name in the same folder, flushed to the
//! disk, renamed, and the folder flushed too.

#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Dropped before [`AtomicFile::commit`], it leaves nothing behind.
pub(crate) struct AtomicFile {
    file: File,
    /// Where it is until it is committed.
    draft: PathBuf,
    target: PathBuf,
}

impl AtomicFile {
    /// Starts a file of `len` bytes, all zero, that is to become `target`.
    pub(crate) fn create(target: &Path, len: u64) -> Result<Self> {
        Self::create_bare(target, len).map_err(|error| error.in_file(target))
    }

    fn create_bare(target: &Path, len: u64) -> Result<Self> {
        let refuse = |problem: &str| Error::Unwritable { what: "the file".into(), problem: problem.into() };
        if target.file_name().is_none() {
            return Err(refuse("the path names no file"));
        }
        if std::fs::metadata(target).is_ok_and(|there| !there.is_file()) {
            return Err(refuse("something that is not a regular file is there"));
        }
        // Distinguishes the writers of this process; the process id those of others.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let draft = folder(target).join(format!(".hanzo-{}-{n}.tmp", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(&draft);
        let file = file.map_err(|error| Error::io("create a file beside it", error))?;
        let this = AtomicFile { file, draft, target: target.to_owned() };
        this.file.set_len(len).map_err(|error| Error::io(format!("reserve {len} bytes"), error))?;
        Ok(this)
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_all_at(&self.file, bytes, offset).map_err(|error| {
            Error::io(format!("write {} bytes at byte {offset}", bytes.len()), error).in_file(&self.target)
        })
    }

    /// Puts the file in its place. After this returns it survives a crash of the machine.
    pub(crate) fn commit(self) -> Result<()> {
        let blame = |action: &str, error| Error::io(action, error).in_file(&self.target);
        self.file.sync_all().map_err(|error| blame("flush it to the disk", error))?;
        std::fs::rename(&self.draft, &self.target).map_err(|error| blame("rename it into place", error))?;
        sync_folder(folder(&self.target)).map_err(|error| blame("flush its folder to the disk", error))
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // After a commit there is nothing of this name, and a failure to clean up has no one to tell.
        let _ = std::fs::remove_file(&self.draft);
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Only Unix lets a folder be opened and flushed.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        match file.seek_write(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = bytes.get(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(not(any(unix, windows)))]
fn write_all_at(_: &File, _: &[u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
