//! Files that appear complete or not at all: written under another name in the same folder, flushed to the disk, renamed, and the
//! folder flushed too.
//!
//! One process writes to a folder at a time, by a lock that the system takes away when the process ends, however it ends. So whoever has the
//! lock may remove what others left unfinished.
//!
//! Files and folders that are made here are their owner's alone: a model may be nobody else's to read, and packed weights are the model.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Fault;
use super::open::open;
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
        let mut maker = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut maker, 0o700);
        maker.recursive(true).create(folder).map_err(Fault::io("make the folder"))?;
        let lock = open(&folder.join(".lock"), own().create(true).truncate(false));
        let lock = lock.map_err(Fault::io("write to the folder"))?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => Fault::Busy,
            TryLockError::Error(source) => Fault::Io { what: "lock the folder", source },
        })?;
        for file in unfinished(folder).map_err(Fault::io("read the folder"))? {
            // What cannot be removed is in nobody's way.
            let _ = std::fs::remove_file(file);
        }
        Ok(Self { folder: folder.to_owned(), _lock: lock })
    }

    /// Starts a file of `len` bytes that is to become `target`, in this folder.
    pub(super) fn draft(&self, target: &Path, len: u64) -> Result<Draft<'_>, Fault> {
        let most = longest_file();
        if len > most {
            return Err(Fault::Refused(format!(
                "it would have {len} bytes, and this process may write files of {most} (ulimit -f)"
            )));
        }
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{}{}-{n}{}", DRAFT.0, std::process::id(), DRAFT.1));
        let file = own().create_new(true).open(&path);
        let file = Positioned::new(file.map_err(Fault::io("write to the folder"))?);
        let draft = Draft { writing: self, file, path, target: target.to_owned() };
        draft.file.file().set_len(len).map_err(Fault::io("make room for the file"))?;
        Ok(draft)
    }
}

/// For writing, by its owner alone.
fn own() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true);
    options
}

/// Removes what was left unfinished, unless somebody is writing; a load that only reads would leave it for ever.
pub(super) fn clear(folder: &Path) {
    if unfinished(folder).is_ok_and(|files| !files.is_empty()) {
        let _ = Writing::begin(folder);
    }
}

fn unfinished(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder)?.flatten() {
        let name = file.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(DRAFT.0) && name.ends_with(DRAFT.1)) {
            found.push(file.path());
        }
    }
    Ok(found)
}

/// Bytes that a file of this process may have: beyond, the system does not refuse but ends the process.
fn longest_file() -> u64 {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
    }
    #[cfg(not(unix))]
    u64::MAX
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
