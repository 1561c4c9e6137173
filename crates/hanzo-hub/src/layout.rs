//! The Hub's cache on disk, in the layout of `huggingface_hub`:
//!
//! ```text
//! models--ORG--REPO/refs/main              the commit that the branch was when it was fetched
//! models--ORG--REPO/snapshots/COMMIT/FILE  a link to …
//! models--ORG--REPO/blobs/DIGEST           the content; DIGEST.incomplete while it is fetched
//! .locks/models--ORG--REPO/DIGEST.lock     held by the process that fetches it
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::digest::Expected;
use crate::error::{Error, Result};
use crate::name::Repo;

/// One repository in the cache.
#[derive(Clone, Debug)]
pub(crate) struct RepoDir {
    root: PathBuf,
    locks: PathBuf,
}

impl RepoDir {
    pub(crate) fn new(cache: &Path, repo: &Repo) -> Self {
        let folder = format!("models--{}", repo.as_str().replace('/', "--"));
        Self { root: cache.join(&folder), locks: cache.join(".locks").join(folder) }
    }

    /// The repository of a folder's name.
    pub(crate) fn repo_of(folder: &str) -> Option<Repo> {
        // Neither part has `--` in it.
        let (org, repo) = folder.strip_prefix("models--")?.split_once("--")?;
        Repo::parse(&format!("{org}/{repo}")).ok()
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn locks(&self) -> &Path {
        &self.locks
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub(crate) fn blob(&self, digest: &Expected) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    pub(crate) fn incomplete(&self, digest: &Expected) -> PathBuf {
        self.blobs().join(format!("{}.incomplete", digest.hex()))
    }

    pub(crate) fn lock(&self, digest: &Expected) -> PathBuf {
        self.locks.join(format!("{}.lock", digest.hex()))
    }

    /// The file of a snapshot. `path` has been checked by [`crate::remote::safe_path`].
    pub(crate) fn snapshot_file(&self, commit: &str, path: &str) -> PathBuf {
        let mut file = self.snapshots().join(commit);
        file.extend(path.split('/'));
        file
    }

    /// The commit that a branch was when it was fetched last.
    pub(crate) fn read_ref(&self, revision: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join("refs").join(revision)).ok()?;
        let commit = text.trim();
        is_commit(commit).then(|| commit.to_owned())
    }

    /// Remembers the commit that a branch is.
    pub(crate) fn write_ref(&self, revision: &str, commit: &str) -> Result<()> {
        if self.read_ref(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.root.join("refs").join(revision);
        create_parent(&path)?;
        let draft = path.with_extension(format!("{}.tmp", std::process::id()));
        fs::write(&draft, commit)
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(Error::cache("write", path))
    }

    /// Puts a blob into a snapshot: a relative link, or, where there are no links, the file itself.
    pub(crate) fn link(&self, digest: &Expected, commit: &str, path: &str) -> Result<PathBuf> {
        let file = self.snapshot_file(commit, path);
        let up = "../".repeat(path.split('/').count() + 1);
        let target = PathBuf::from(format!("{up}blobs/{}", digest.hex()));
        if fs::read_link(&file).is_ok_and(|there| there == target) {
            return Ok(file);
        }
        create_parent(&file)?;
        // Made beside it and renamed: another process may be doing the same, or have the old file open.
        let draft = file.with_extension(format!("{}.tmp", std::process::id()));
        let _ = fs::remove_file(&draft);
        symlink_or_move(&target, &self.blob(digest), &draft)
            .and_then(|()| fs::rename(&draft, &file))
            .map_err(Error::cache("link", file.clone()))?;
        Ok(file)
    }
}

#[cfg(unix)]
fn symlink_or_move(target: &Path, _: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Links need a privilege on Windows; `huggingface_hub` moves the file there too.
#[cfg(not(unix))]
fn symlink_or_move(_: &Path, blob: &Path, link: &Path) -> io::Result<()> {
    fs::rename(blob, link)
}

/// Makes the folder that a file is to be in.
pub(crate) fn create_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    fs::create_dir_all(parent).map_err(Error::cache("create the folder", parent))
}

/// Whether this is a commit: 40 hexadecimal digits. Nothing else becomes part of a path.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_name_repositories() {
        let repo = Repo::parse("Qwen/Qwen3-0.6B-GGUF").unwrap();
        let dir = RepoDir::new(Path::new("/c"), &repo);
        assert_eq!(dir.root(), Path::new("/c/models--Qwen--Qwen3-0.6B-GGUF"));
        assert_eq!(RepoDir::repo_of("models--Qwen--Qwen3-0.6B-GGUF"), Some(repo));
        for other in ["datasets--a--b", "models--a", ".locks", "models--a--b--c", "models--..--x"] {
            assert_eq!(RepoDir::repo_of(other), None, "{other}");
        }
    }
}
