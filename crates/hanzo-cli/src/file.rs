//! Files that the program writes for the user: complete or not at all.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file that takes its place when it is complete. Dropped before, it leaves nothing behind.
pub(crate) struct Draft {
    file: BufWriter<NamedTempFile>,
    target: PathBuf,
}

impl Draft {
    /// Begins a file that is to become `path`, or to take the place of the regular file that is there.
    ///
    /// # Errors
    /// Something else than a file is there (a device, a pipe, a folder), or the folder cannot be written.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        // The file that a link leads to is replaced, not the link.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if std::fs::metadata(&target).is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::other("something that is not a regular file is there"));
        }
        let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = Builder::new();
        builder.prefix(".hanzo-").suffix(".tmp");
        // As any other file that a user makes; the umask takes away what it takes.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        Ok(Self { file: BufWriter::new(builder.tempfile_in(folder)?), target })
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// What writing the rest or renaming gives.
    pub(crate) fn commit(self) -> io::Result<()> {
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.persist(&self.target).map(drop).map_err(|error| error.error)
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_complete_or_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut draft = Draft::create(&path).unwrap();
        draft.write_all(b"half").unwrap();
        drop(draft);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut draft = Draft::create(&path).unwrap();
        draft.write_all(b"whole").unwrap();
        draft.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(Draft::create(dir.path()).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_and_devices_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut draft = Draft::create(&link).unwrap();
        draft.write_all(b"new").unwrap();
        draft.commit().unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        // Not the 0600 of temporary files, whatever the umask (which leaves the owner's own rights).
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o600, 0o600);
        assert!(Draft::create(Path::new("/dev/null")).is_err());
    }
}
