//! An open file whose identity was recorded, read by position.
//!
//! Every read is followed by a look at the file's length and time of modification: if either differs from what
//! they were at opening, the bytes just read are not used and the caller gets [`Error::Changed`]. A file that
//! was *replaced* (a new one renamed over its path) is no danger: the handle keeps the old one, complete, until
//! it is dropped.

#![forbid(unsafe_code)]

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::map::Map;

/// A regular file of any kind, open for reading by position. Every read is followed by a look at whether the file changed.
pub struct FileSource {
    file: File,
    path: PathBuf,
    identity: Identity,
    map: OnceLock<Map>,
}

/// What is compared to tell that a file is still the one that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    len: u64,
    modified: Option<SystemTime>,
    /// Device and inode, where the system has them.
    node: Option<(u64, u64)>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let node = {
            use std::os::unix::fs::MetadataExt;
            Some((metadata.dev(), metadata.ino()))
        };
        #[cfg(not(unix))]
        let node = None;
        Identity { len: metadata.len(), modified: metadata.modified().ok(), node }
    }

    fn same_as(&self, now: &Self) -> Result<()> {
        let what = if now.len < self.len {
            format!("it shrank from {} to {} bytes", self.len, now.len)
        } else if now.len != self.len {
            format!("it grew from {} to {} bytes", self.len, now.len)
        } else if now.node != self.node {
            "another file has taken its place".to_owned()
        } else if now.modified != self.modified {
            "it was written to".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Changed { what })
    }
}

/// A file as it is at one moment, for whoever keeps what was made of its bytes and wants to know later whether they are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The path, absolute and without links where they could be followed.
    pub path: PathBuf,
    /// Length in bytes.
    pub len: u64,
    /// Numbers of which one is another once the file was written to or replaced: device, inode, seconds and nanoseconds of the
    /// last modification and of the last change (which no program can set back). Fewer where the system has fewer.
    pub numbers: Vec<u64>,
    /// The time of the last change; `None` where the system does not say.
    pub changed: Option<SystemTime>,
}

impl FileSource {
    /// Opens a regular file. Never blocks: a pipe or device is refused before it is opened, and one that takes
    /// the file's place in between is opened without waiting for its other end.
    ///
    /// # Errors
    /// [`Error::InFile`] with the system's reason, or with [`Error::NotAFile`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_bare(path).map_err(|error| error.in_file(path))
    }

    fn open_bare(path: &Path) -> Result<Self> {
        refuse_special(&std::fs::metadata(path).map_err(|error| Error::io("open", error))?)?;
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
        let file = options.open(path).map_err(|error| Error::io("open", error))?;
        let metadata = file.metadata().map_err(|error| Error::io("open", error))?;
        refuse_special(&metadata)?;
        let identity = Identity::of(&metadata);
        Ok(FileSource { file, path: path.to_owned(), identity, map: OnceLock::new() })
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length at opening, in bytes.
    pub fn len(&self) -> u64 {
        self.identity.len
    }

    /// Whether it had no bytes at opening.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset` on, then checks that the file has not changed.
    ///
    /// # Errors
    /// [`Error::Changed`], or [`Error::Io`] where the file ends before.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let read = read_exact_at(&self.file, buf, offset);
        // The change explains the failed read better than "unexpected end of file" would.
        self.check_handle()?;
        read.map_err(|error| Error::io(format!("read {} bytes at byte {offset}", buf.len()), error))
    }

    /// The open file as it is now.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be looked at.
    pub fn stamp(&self) -> Result<Stamp> {
        let now = self.file.metadata().map_err(|error| Error::io("look at the file", error))?;
        let path = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        #[cfg(unix)]
        let (numbers, changed) = {
            use std::os::unix::fs::MetadataExt;
            let times = [now.mtime(), now.mtime_nsec(), now.ctime(), now.ctime_nsec()];
            let since = u64::try_from(now.ctime()).ok().zip(u32::try_from(now.ctime_nsec()).ok());
            let changed = since.and_then(|(secs, nanos)| {
                SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::new(secs, nanos.min(999_999_999)))
            });
            let numbers = [now.dev(), now.ino()].into_iter().chain(times.map(i64::cast_unsigned)).collect();
            (numbers, changed)
        };
        #[cfg(not(unix))]
        let (numbers, changed) = {
            let changed = now.modified().ok();
            let since = changed.and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok());
            (since.map(|d| vec![d.as_secs(), u64::from(d.subsec_nanos())]).unwrap_or_default(), changed)
        };
        Ok(Stamp { path, len: now.len(), numbers, changed })
    }

    /// A view of bytes `start..end` through the map. The length is checked before the view is made; see
    /// [`crate::map`] for what remains.
    pub(crate) fn view(&self, start: u64, end: u64) -> Result<&[u8]> {
        self.check_handle()?;
        let map = match self.map.get() {
            Some(map) => map,
            None => {
                let map = Map::new(&self.file).map_err(|error| Error::io("map", error))?;
                self.map.get_or_init(|| map)
            }
        };
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let bytes = range.and_then(|(start, end)| map.bytes().get(start..end));
        bytes.ok_or_else(|| Error::Changed { what: "its map is shorter than it was".to_owned() })
    }

    /// That the open file has its length and time of modification still.
    pub(crate) fn check_handle(&self) -> Result<()> {
        let now = self.file.metadata().map_err(|error| Error::io("look at the file", error))?;
        self.identity.same_as(&Identity::of(&now))
    }

    /// That the path leads to this very file still, unchanged.
    pub(crate) fn check_path(&self) -> Result<()> {
        let now = std::fs::metadata(&self.path).map_err(|error| Error::io("look at the file", error))?;
        self.identity.same_as(&Identity::of(&now))
    }
}

impl std::fmt::Debug for FileSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSource")
            .field("path", &self.path)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

fn refuse_special(metadata: &Metadata) -> Result<()> {
    let ty = metadata.file_type();
    if ty.is_file() {
        return Ok(());
    }
    #[cfg(unix)]
    let special = {
        use std::os::unix::fs::FileTypeExt;
        match () {
            () if ty.is_fifo() => "a named pipe",
            () if ty.is_socket() => "a socket",
            () if ty.is_char_device() || ty.is_block_device() => "a device",
            () => "something special",
        }
    };
    #[cfg(not(unix))]
    let special = "something special";
    Err(Error::NotAFile { kind: if ty.is_dir() { "a directory" } else { special } })
}

#[cfg(unix)]
fn read_exact_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buf, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !buf.is_empty() {
        match file.seek_read(buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                buf = buf.get_mut(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(not(any(unix, windows)))]
fn read_exact_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
