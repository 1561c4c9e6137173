//! Files that appear complete or not at all: written under another name in the same folder, flushed to the disk, renamed, and the
//! folder flushed too.
//!
//! One process writes to a folder at a time, by a lock that the system takes away when the process ends, however it ends. So whoever has the
//! lock may remove what others left unfinished.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Fault;
use super::positioned::Positioned;

/// What unfinished files begin and end with.
const DRAFT: (&str, &str) = (".hanzo-pack-", ".tmp");

/// The right to write to a folder.
pub(super) struct Writing {
    folder: PathBuf,
    /// Unlocked when it is closed.
    _lock: File,
}

impl Writing {
    /// Makes the folder where there is none, and removes what was left unfinished.
    ///
    /// # Errors
    /// [`Fault::Busy`] while another has the right, [`Fault::Io`].
    pub(super) fn begin(folder: &Path) -> Result<Self, Fault> {
        std::fs::create_dir_all(folder).map_err(Fault::io("make the folder"))?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join(".lock"));
        let lock = lock.map_err(Fault::io("write to the folder"))?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => Fault::Busy,
            TryLockError::Error(source) => Fault::Io { what: "lock the folder", source },
        })?;
        for file in std::fs::read_dir(folder).map_err(Fault::io("read the folder"))?.flatten() {
            let name = file.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(DRAFT.0) && name.ends_with(DRAFT.1)) {
                // What cannot be removed is in nobody's way.
                let _ = std::fs::remove_file(file.path());
            }
        }
        Ok(Self { folder: folder.to_owned(), _lock: lock })
    }

    /// Starts a file of `len` bytes that is to become `target`, in this folder.
    pub(super) fn draft(&self, target: &Path, len: u64) -> Result<Draft<'_>, Fault> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{}{}-{n}{}", DRAFT.0, std::process::id(), DRAFT.1));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = Positioned::new(file.map_err(Fault::io("write to the folder"))?);
        let draft = Draft { writing: self, file, path, target: target.to_owned() };
        draft.file.file().set_len(len).map_err(Fault::io("make room for the file"))?;
        Ok(draft)
    }
}

/// A file that is not in its place yet. Dropped before [`Draft::commit`], it leaves nothing behind.
pub(super) struct Draft<'a> {
    writing: &'a Writing,
    file: Positioned,
    path: PathBuf,
    target: PathBuf,
}

impl Draft<'_> {
    pub(super) fn file(&self) -> &Positioned {
        &self.file
    }

    /// Puts it in its place. After this returns it survives a crash of the machine.
    pub(super) fn commit(self) -> Result<(), Fault> {
        self.file.file().sync_all().map_err(Fault::io("flush the file"))?;
        std::fs::rename(&self.path, &self.target).map_err(Fault::io("rename the file"))?;
        // A folder can be flushed on Unix only.
        #[cfg(unix)]
        File::open(&self.writing.folder).and_then(|f| f.sync_all()).map_err(Fault::io("flush the folder"))?;
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // Where it was renamed there is none of this name any more.
        let _ = std::fs::remove_file(&self.path);
    }
}
