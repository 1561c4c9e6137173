//! Fetching one file: resumed where an earlier pull ended, checked, put in place atomically.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use ureq::http::Method;

use crate::digest::Running;
use crate::error::{Error, Result};
use crate::http::{Answer, Http, Question};
use crate::layout::{RepoDir, create_parent};
use crate::pull::{Event, Watch, pause, tell, wait_or_fail};
use crate::remote::FileFacts;

/// Bytes read at a time.
const PIECE: usize = 256 << 10;
/// Bytes after which a failure counts as the first again.
const HEADWAY: u64 = 1 << 20;

/// Bytes of a file that are here, complete or not.
pub(crate) fn present(dir: &RepoDir, facts: &FileFacts) -> u64 {
    let len = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    len(&dir.blob(&facts.digest)).max(len(&dir.incomplete(&facts.digest))).min(facts.size)
}

/// A file to fetch.
pub(crate) struct Job<'a> {
    pub(crate) http: &'a Http,
    pub(crate) dir: &'a RepoDir,
    pub(crate) file: &'a str,
    pub(crate) facts: &'a FileFacts,
    /// Bytes of the model's files before this one.
    pub(crate) done: u64,
    /// Bytes of all the model's files.
    pub(crate) total: u64,
    pub(crate) watch: &'a dyn Watch,
}

/// What is here of a file, and its digest so far.
struct Partial {
    file: File,
    len: u64,
    digest: Running,
}

impl Job<'_> {
    /// Fetches what is missing; tells how many bytes came.
    pub(crate) fn run(&self) -> Result<u64> {
        let blob = self.dir.blob(&self.facts.digest);
        // Nothing is written for what is here: the cache may be read-only.
        if self.is_complete(&blob)? {
            return Ok(0);
        }
        let _lock = self.lock()?;
        // Another process may have been faster.
        if self.is_complete(&blob)? {
            return Ok(0);
        }
        create_parent(&blob)?;
        let incomplete = self.dir.incomplete(&self.facts.digest);
        let mut fetched = 0;
        loop {
            let mut partial = self.open(&incomplete)?;
            let resumed = partial.len > 0;
            let outcome = self.fetch(&mut partial, &mut fetched);
            if matches!(outcome, Err(Error::WrongSize { .. })) {
                let _ = fs::remove_file(&incomplete);
            }
            outcome?;
            let got = partial.digest.hex();
            if got == self.facts.digest.hex() {
                partial.file.sync_all().map_err(Error::cache("flush", &incomplete))?;
                drop(partial.file);
                fs::rename(&incomplete, &blob).map_err(Error::cache("rename", &incomplete))?;
                return Ok(fetched);
            }
            fs::remove_file(&incomplete).map_err(Error::cache("remove the damaged", &incomplete))?;
            if !resumed {
                let expected = self.facts.digest.hex().to_owned();
                return Err(Error::WrongDigest { file: self.file.to_owned(), expected, got });
            }
            // What was here before may have been the damaged part.
            tell(self.watch, &Event::Restarting { file: self.file })?;
        }
    }

    /// Whether the file is here.
    fn is_complete(&self, blob: &Path) -> Result<bool> {
        match fs::metadata(blob) {
            Ok(meta) if meta.len() == self.facts.size => {
                self.progress(self.facts.size)?;
                Ok(true)
            }
            // Not what belongs there: fetched anew and replaced.
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::cache("read", blob)(error)),
        }
    }

    /// Becomes the only process that fetches the file.
    fn lock(&self) -> Result<File> {
        let path = self.dir.lock(&self.facts.digest);
        create_parent(&path)?;
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(Error::cache("open the lock", &path))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if told => {}
                Err(TryLockError::WouldBlock) => {
                    told = true;
                    tell(self.watch, &Event::Waiting { file: self.file })?;
                }
                Err(TryLockError::Error(error)) => return Err(Error::cache("lock", &path)(error)),
            }
            self.progress(present(self.dir, self.facts))?;
            pause(self.watch, Duration::from_millis(200))?;
        }
    }

    /// What an earlier pull left, and its digest.
    fn open(&self, incomplete: &Path) -> Result<Partial> {
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(incomplete);
        let mut file = open.map_err(Error::cache("open", incomplete))?;
        let mut digest = self.facts.digest.start(self.facts.size);
        let mut len = file.metadata().map_err(Error::cache("read", incomplete))?.len();
        if len > self.facts.size {
            file.set_len(0).map_err(Error::cache("empty", incomplete))?;
            len = 0;
        }
        let mut left = len;
        let mut buffer = vec![0; PIECE];
        while left > 0 {
            let n = file.read(&mut buffer).map_err(Error::cache("read", incomplete))?;
            let bytes = buffer.get(..n).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            digest.update(bytes);
            left = left.saturating_sub(n as u64);
            tell(self.watch, &Event::Idle)?;
        }
        Ok(Partial { file, len, digest })
    }

    /// Fetches until all is here, over as many connections as it takes.
    fn fetch(&self, partial: &mut Partial, fetched: &mut u64) -> Result<()> {
        let (mut tries, mut mark) = (0, partial.len);
        while partial.len < self.facts.size {
            self.progress(partial.len)?;
            let before = partial.len;
            let outcome = self.ask(partial).and_then(|answer| self.receive(answer, partial));
            *fetched += partial.len.saturating_sub(before);
            if partial.len >= mark + HEADWAY {
                (tries, mark) = (0, partial.len);
            }
            if let Err(error) = outcome {
                wait_or_fail(self.http, error, &mut tries, self.watch)?;
            }
        }
        self.progress(partial.len)
    }

    /// Asks for what is missing, and makes sure that this is what comes.
    fn ask(&self, partial: &mut Partial) -> Result<Answer> {
        let what = format!("file `{}`", self.file);
        let question =
            Question { method: Method::GET, url: self.facts.url.clone(), from: partial.len, what: &what };
        let answer = self.http.ask(&question, |_| false)?;
        let wrong = |got| Error::WrongSize { file: self.file.to_owned(), expected: self.facts.size, got };
        if partial.len > 0 && answer.status != 206 {
            // The server does not resume: from the beginning.
            self.restart(partial)?;
        }
        if partial.len > 0 {
            let range = answer.header("content-range").and_then(content_range);
            match range {
                Some((start, total)) if start == partial.len && total == self.facts.size => {}
                Some((start, total)) if start == partial.len => return Err(wrong(total)),
                _ => {
                    let why = format!("the rest from byte {} was asked for, another part came", partial.len);
                    return Err(Error::BadAnswer { url: answer.url, why });
                }
            }
        }
        if let Some(n) = answer.number("content-length")
            && n != self.facts.size - partial.len
        {
            return Err(wrong(partial.len.saturating_add(n)));
        }
        Ok(answer)
    }

    fn restart(&self, partial: &mut Partial) -> Result<()> {
        partial.file.set_len(0).map_err(Error::cache("empty", self.dir.incomplete(&self.facts.digest)))?;
        partial.len = 0;
        partial.digest = self.facts.digest.start(self.facts.size);
        Ok(())
    }

    /// Takes the bytes of one answer.
    fn receive(&self, mut answer: Answer, partial: &mut Partial) -> Result<()> {
        let seek = partial.file.seek(SeekFrom::Start(partial.len));
        seek.map_err(Error::cache("write", self.dir.incomplete(&self.facts.digest)))?;
        let mut body = answer.body.as_reader();
        let mut buffer = vec![0; PIECE];
        loop {
            let network = |why: String| Error::Network { url: answer.url.clone(), why };
            let n = body.read(&mut buffer).map_err(|error| network(error.to_string()))?;
            let bytes = buffer.get(..n).unwrap_or_default();
            let left = self.facts.size - partial.len;
            if bytes.is_empty() {
                return if left == 0 {
                    Ok(())
                } else {
                    Err(network("the connection ended too early".to_owned()))
                };
            }
            if n as u64 > left {
                let (file, expected) = (self.file.to_owned(), self.facts.size);
                return Err(Error::WrongSize { file, expected, got: partial.len + n as u64 });
            }
            self.write(partial, bytes)?;
            self.progress(partial.len)?;
        }
    }

    fn write(&self, partial: &mut Partial, bytes: &[u8]) -> Result<()> {
        partial.file.write_all(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull {
                file: self.file.to_owned(),
                dir: self.dir.blobs(),
                kept: partial.len,
                missing: self.facts.size - partial.len,
            },
            _ => Error::cache("write", self.dir.incomplete(&self.facts.digest))(error),
        })?;
        partial.digest.update(bytes);
        partial.len += bytes.len() as u64;
        Ok(())
    }

    fn progress(&self, here: u64) -> Result<()> {
        tell(self.watch, &Event::Progress { done: self.done.saturating_add(here), total: self.total })
    }
}

/// First byte and length of the whole, of `bytes FIRST-LAST/LENGTH`.
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.trim().parse().ok()?, total.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, 10)));
        for bad in ["", "bytes */10", "bytes 5-9/*", "5-9/10", "bytes -1-5/10"] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
