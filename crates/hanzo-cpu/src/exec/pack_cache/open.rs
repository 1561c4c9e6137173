//! Opening files of the folder: what stands under a name there may be anything, a pipe that would be waited for among it.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Opens the regular file at `path` without waiting for anybody.
///
/// # Errors
/// Those of the system; [`ErrorKind::InvalidInput`] where it is no regular file.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK);
    // A pipe that nobody reads cannot be opened for writing without waiting, and says so in other words.
    let refused = || Error::new(ErrorKind::InvalidInput, "it is no regular file");
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(refused());
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}
