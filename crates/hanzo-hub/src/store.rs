//! The models that are on this machine: those of the Hub's cache, and the user's own files.
//!
//! The user's own lie in one folder: `FILE.gguf`, or `ORG/REPO/FILE.gguf`. A model has the names `ORG/REPO:TYPE`,
//! `REPO:TYPE`, its file's name without its ending, and its aliases, without regard to case.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::{home, hub_cache_from_env};
use crate::error::{Error, Result};
use crate::layout::{RepoDir, is_commit};
use crate::name::{Name, Repo, quant_of};
use crate::remote::{RemoteFile, safe_path};
use crate::select::{self, PREFERRED, Variant};

/// Most files looked at in one folder: one with more is something else.
const MAX_FILES: usize = 10_000;
/// Folders of a snapshot that are gone into.
const MAX_DEPTH: usize = 4;

/// A model that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The name that leads to it and no other.
    pub name: String,
    /// Its file; of a split model, the first.
    pub path: PathBuf,
    /// All its files.
    pub files: Vec<PathBuf>,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its repository, where it is from one.
    pub repo: Option<Repo>,
    /// Whether it lies in the Hub's cache.
    pub in_hub_cache: bool,
    label: String,
    stem: String,
}

/// What was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The model.
    pub name: String,
    /// Bytes that are free now.
    pub bytes: u64,
}

/// Where models are on this machine.
#[derive(Clone, Debug, Default)]
pub struct Store {
    hub: Option<PathBuf>,
    own: Option<PathBuf>,
}

impl Store {
    /// The Hub's cache, and the folder of the user's own files; either may be missing.
    #[must_use]
    pub fn new(hub: Option<PathBuf>, own: Option<PathBuf>) -> Self {
        Self { hub, own }
    }

    /// The usual places: the Hub's cache, and `models` in [`home`].
    #[must_use]
    pub fn from_env() -> Self {
        Self::new(hub_cache_from_env(), home().map(|dir| dir.join("models")))
    }

    /// The Hub's cache.
    #[must_use]
    pub fn hub_cache(&self) -> Option<&Path> {
        self.hub.as_deref()
    }

    /// The folder of the user's own files.
    #[must_use]
    pub fn own(&self) -> Option<&Path> {
        self.own.as_deref()
    }

    /// All models, the Hub's first, by name. Models of which files are missing are left out.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub fn list(&self) -> Result<Vec<Stored>> {
        let mut found = Vec::new();
        if let Some(hub) = &self.hub {
            for (path, is_dir) in entries(hub)? {
                if let Some(repo) = RepoDir::repo_of(&file_name(&path)).filter(|_| is_dir) {
                    found.extend(of_hub(hub, &repo)?);
                }
            }
        }
        if let Some(own) = &self.own {
            found.extend(of_folder(own, None)?);
            for (org, _) in entries(own)?.into_iter().filter(|(_, is_dir)| *is_dir) {
                for (repo, _) in entries(&org)?.into_iter().filter(|(_, is_dir)| *is_dir) {
                    let name = Repo::parse(&format!("{}/{}", file_name(&org), file_name(&repo)));
                    if let Ok(name) = name {
                        found.extend(of_folder(&repo, Some(&name))?);
                    }
                }
            }
        }
        Ok(found)
    }

    /// The model that `name` means, if it means one.
    ///
    /// # Errors
    /// When several are meant, a type that is not here, or a folder cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<Stored>> {
        choose(&self.list()?, name).map(|found| found.cloned())
    }

    /// Bytes of interrupted pulls.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub fn unfinished(&self) -> Result<u64> {
        let Some(hub) = &self.hub else { return Ok(0) };
        let mut bytes = 0u64;
        for (path, is_dir) in entries(hub)? {
            let Some(repo) = RepoDir::repo_of(&file_name(&path)).filter(|_| is_dir) else { continue };
            for (file, _) in entries(&RepoDir::new(hub, &repo).blobs())? {
                if file_name(&file).ends_with(".incomplete") {
                    bytes = bytes.saturating_add(fs::metadata(&file).map_or(0, |meta| meta.len()));
                }
            }
        }
        Ok(bytes)
    }

    /// Removes the model that `name` means; `None` if it means none. Content that another model of the cache shares stays.
    ///
    /// # Errors
    /// As [`find`](Self::find), and files that cannot be removed.
    pub fn remove(&self, name: &str) -> Result<Option<Removed>> {
        let Some(stored) = self.find(name)? else { return self.remove_unfinished(name) };
        let bytes = match (&stored.repo, &self.hub) {
            (Some(repo), Some(hub)) if stored.in_hub_cache => remove_from_hub(hub, repo, &stored)?,
            _ => {
                let mut bytes = 0u64;
                for file in &stored.files {
                    bytes = bytes.saturating_add(fs::symlink_metadata(file).map_or(0, |meta| meta.len()));
                    fs::remove_file(file).map_err(Error::cache("remove", file))?;
                }
                bytes
            }
        };
        Ok(Some(Removed { name: stored.name, bytes }))
    }

    /// Removes what interrupted pulls of a repository left, if no model of it is here.
    fn remove_unfinished(&self, name: &str) -> Result<Option<Removed>> {
        let (Some(hub), Ok(name)) = (&self.hub, Name::parse(name)) else { return Ok(None) };
        let dir = RepoDir::new(hub, &name.repo);
        if !dir.root().is_dir() || !of_hub(hub, &name.repo)?.is_empty() {
            return Ok(None);
        }
        let mut bytes = 0u64;
        for (file, _) in entries(&dir.blobs())? {
            bytes = bytes.saturating_add(fs::symlink_metadata(&file).map_or(0, |meta| meta.len()));
        }
        fs::remove_dir_all(dir.root()).map_err(Error::cache("remove", dir.root()))?;
        let _ = fs::remove_dir_all(dir.locks());
        Ok(Some(Removed { name: name.repo.to_string(), bytes }))
    }
}

/// The models of a repository in the Hub's cache: of each, the files of the branch as it was fetched last, or else of any
/// snapshot.
fn of_hub(hub: &Path, repo: &Repo) -> Result<Vec<Stored>> {
    let dir = RepoDir::new(hub, repo);
    let current = dir.read_ref("main");
    let mut commits: Vec<String> = entries(&dir.snapshots())?
        .iter()
        .map(|(path, _)| file_name(path))
        .filter(|name| is_commit(name))
        .collect();
    commits.sort_by_key(|commit| current.as_ref() != Some(commit));
    let mut found: Vec<Stored> = Vec::new();
    for commit in commits {
        for variant in select::variants(&files_of(&dir, &commit)?) {
            if !variant.is_complete() || found.iter().any(|stored| stored.stem == variant.stem) {
                continue;
            }
            let files = variant.files.iter().map(|file| dir.snapshot_file(&commit, &file.path)).collect();
            found.extend(stored(variant, files, Some(repo), true));
        }
    }
    Ok(found)
}

/// The GGUF files of a snapshot that are here in full.
fn files_of(dir: &RepoDir, commit: &str) -> Result<Vec<RemoteFile>> {
    let root = dir.snapshots().join(commit);
    let mut found = Vec::new();
    let mut folders = vec![(root, String::new(), 0)];
    while let Some((folder, prefix, depth)) = folders.pop() {
        for (path, is_dir) in entries(&folder)? {
            let relative = format!("{prefix}{}", file_name(&path));
            if !safe_path(&relative) {
                continue;
            }
            if is_dir && depth < MAX_DEPTH {
                folders.push((path, format!("{relative}/"), depth + 1));
            } else if relative.ends_with(".gguf")
                && let Ok(meta) = fs::metadata(&path)
            {
                found.push(RemoteFile { path: relative, size: Some(meta.len()) });
            }
        }
    }
    Ok(found)
}

/// The models that lie in a folder of the user's.
fn of_folder(folder: &Path, repo: Option<&Repo>) -> Result<Vec<Stored>> {
    let mut files = Vec::new();
    for (path, is_dir) in entries(folder)? {
        if !is_dir {
            let size = fs::metadata(&path).ok().map(|meta| meta.len());
            files.push(RemoteFile { path: file_name(&path), size });
        }
    }
    let variants = select::variants(&files).into_iter();
    let all = variants.filter_map(|variant| {
        let files = variant.files.iter().map(|file| folder.join(&file.path)).collect();
        stored(variant, files, repo, false)
    });
    Ok(all.collect())
}

fn stored(variant: Variant, files: Vec<PathBuf>, repo: Option<&Repo>, in_hub_cache: bool) -> Option<Stored> {
    let name = match repo {
        Some(repo) => format!("{repo}:{}", variant.label),
        None => variant.stem.clone(),
    };
    let bytes = variant.bytes().unwrap_or(0);
    let path = files.first()?.clone();
    let repo = repo.cloned();
    Some(Stored { name, path, files, bytes, repo, in_hub_cache, label: variant.label, stem: variant.stem })
}

fn choose<'a>(all: &'a [Stored], name: &str) -> Result<Option<&'a Stored>> {
    if name.is_empty() {
        return Ok(None);
    }
    // Aliases and addresses become names like any other; what is none may be the name of a file.
    let name = Name::parse(name).map_or_else(|_| name.to_owned(), |parsed| parsed.to_string());
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    if let Some(exact) = all.iter().find(|stored| same(&stored.name, &name)) {
        return Ok(Some(exact));
    }
    let (base, wanted) = match name.split_once(':') {
        Some((base, wanted)) => (base, Some(wanted)),
        None => (name.as_str(), None),
    };
    let meant = |stored: &&Stored| {
        let repo = stored.repo.as_ref().map_or("", Repo::as_str);
        let short = repo.rsplit('/').next().unwrap_or_default();
        let file = stored.stem.rsplit('/').next().unwrap_or_default();
        same(repo, base) || (!short.is_empty() && same(short, base)) || same(file, base)
    };
    let found: Vec<&Stored> = all.iter().filter(meant).collect();
    let names = |of: &[&Stored]| of.iter().map(|stored| stored.name.clone()).collect();
    let typed = |quant: &str| -> Vec<&Stored> {
        let is = |stored: &&&Stored| {
            same(&stored.label, quant) || quant_of(&stored.stem).is_some_and(|found| same(found, quant))
        };
        found.iter().filter(is).copied().collect()
    };
    let candidates = match wanted {
        Some(wanted) if !found.is_empty() && typed(wanted).is_empty() => {
            let what = format!("`{base}` is on this machine, but not as {wanted}");
            return Err(Error::Choose { what, choices: names(&found) });
        }
        Some(wanted) => typed(wanted),
        None => found.clone(),
    };
    match (candidates.as_slice(), typed(PREFERRED).as_slice()) {
        ([], _) => Ok(None),
        ([one], _) => Ok(Some(one)),
        (_, [one]) if wanted.is_none() => Ok(Some(one)),
        (several, _) => {
            let what = format!("`{name}` may be one of several models; say which");
            Err(Error::Choose { what, choices: names(several) })
        }
    }
}

/// Takes a model out of every snapshot, and the content that no other file shares.
fn remove_from_hub(hub: &Path, repo: &Repo, stored: &Stored) -> Result<u64> {
    let dir = RepoDir::new(hub, repo);
    let (mut mine, mut others) = (HashSet::new(), HashSet::new());
    let mut bytes = 0u64;
    for (snapshot, _) in entries(&dir.snapshots())? {
        let commit = file_name(&snapshot);
        if !is_commit(&commit) {
            continue;
        }
        let all = files_of(&dir, &commit)?;
        let variants = select::variants(&all);
        let of_model: HashSet<&str> = variants
            .iter()
            .filter(|variant| variant.stem == stored.stem)
            .flat_map(|variant| variant.files.iter().map(|file| file.path.as_str()))
            .collect();
        for file in &all {
            let path = dir.snapshot_file(&commit, &file.path);
            let content = path.canonicalize().ok();
            if !of_model.contains(file.path.as_str()) {
                others.extend(content);
                continue;
            }
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file()) {
                bytes = bytes.saturating_add(file.size.unwrap_or(0));
            }
            mine.extend(content);
            fs::remove_file(&path).map_err(Error::cache("remove", path))?;
        }
    }
    let blobs = dir.blobs().canonicalize().ok();
    for content in mine.difference(&others) {
        // Only what lies in this repository's own folder is ours to remove, wherever a link leads.
        if content.parent() == blobs.as_deref() && blobs.is_some() {
            bytes = bytes.saturating_add(fs::metadata(content).map_or(0, |meta| meta.len()));
            fs::remove_file(content).map_err(Error::cache("remove", content))?;
        }
    }
    remove_empty(&dir.snapshots());
    // With nothing left but what describes it, the repository goes.
    if entries(&dir.snapshots())?.is_empty() && entries(&dir.blobs())?.is_empty() {
        fs::remove_dir_all(dir.root()).map_err(Error::cache("remove", dir.root()))?;
        let _ = fs::remove_dir_all(dir.locks());
    }
    Ok(bytes)
}

/// Removes folders that have nothing in them, at any depth; what cannot be removed is not empty.
fn remove_empty(folder: &Path) {
    for (path, is_dir) in entries(folder).unwrap_or_default() {
        if is_dir && !path.is_symlink() {
            remove_empty(&path);
            let _ = fs::remove_dir(&path);
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What is in a folder, sorted, and whether each is a folder itself. One that does not exist is empty.
fn entries(dir: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let reader = match fs::read_dir(dir) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        reader => reader.map_err(Error::cache("read", dir))?,
    };
    let mut found = Vec::new();
    for entry in reader {
        let path = entry.map_err(Error::cache("read", dir))?.path();
        if found.len() == MAX_FILES {
            let what = format!("{} has more than {MAX_FILES} entries; it holds no models", dir.display());
            return Err(Error::Choose { what, choices: Vec::new() });
        }
        let is_dir = path.is_dir();
        found.push((path, is_dir));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let (hub, own) = (dir.path().join("hub"), dir.path().join("own"));
        let add = |path: PathBuf, bytes: &[u8]| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let snapshot = hub.join("models--Qwen--Qwen3-0.6B-GGUF/snapshots").join("a".repeat(40));
        add(snapshot.join("Qwen3-0.6B-Q4_K_M.gguf"), b"four");
        add(snapshot.join("Qwen3-0.6B-Q8_0.gguf"), b"eight");
        add(snapshot.join("big-Q2_K-00001-of-00002.gguf"), b"one of two");
        add(snapshot.join("README.md"), b"");
        add(own.join("other/tales/tales-iq3_xxs.gguf"), b"tales");
        add(own.join("mine.gguf"), b"mine");
        (dir, Store::new(Some(hub), Some(own)))
    }

    #[test]
    fn names_lead_to_files() {
        let (_dir, store) = cache();
        for (name, file) in [
            ("Qwen/Qwen3-0.6B-GGUF:Q8_0", Some("Qwen3-0.6B-Q8_0.gguf")),
            ("qwen3-0.6b-gguf:q8_0", Some("Qwen3-0.6B-Q8_0.gguf")),
            ("qwen3:0.6b", Some("Qwen3-0.6B-Q8_0.gguf")),
            ("qwen3:0.6b:q4_k_m", Some("Qwen3-0.6B-Q4_K_M.gguf")),
            ("Qwen/Qwen3-0.6B-GGUF", Some("Qwen3-0.6B-Q4_K_M.gguf")),
            ("Qwen3-0.6B-Q8_0", Some("Qwen3-0.6B-Q8_0.gguf")),
            ("tales", Some("tales-iq3_xxs.gguf")),
            ("tales:IQ3_XXS", Some("tales-iq3_xxs.gguf")),
            ("mine", Some("mine.gguf")),
            ("Once upon a time", None),
            ("unknown:Q8_0", None),
            ("", None),
        ] {
            let found = store.find(name).unwrap().map(|stored| file_name(&stored.path));
            assert_eq!(found.as_deref(), file, "{name}");
        }
        let names: Vec<String> = store.list().unwrap().into_iter().map(|stored| stored.name).collect();
        let expected =
            ["Qwen/Qwen3-0.6B-GGUF:Q4_K_M", "Qwen/Qwen3-0.6B-GGUF:Q8_0", "mine", "other/tales:iq3_xxs"];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_missing_type_is_an_error_that_lists_what_there_is() {
        let (_dir, store) = cache();
        let error = store.find("Qwen/Qwen3-0.6B-GGUF:Q5_K_M").unwrap_err().to_string();
        assert!(error.contains("Q5_K_M") && error.contains("Qwen/Qwen3-0.6B-GGUF:Q8_0"), "{error}");
    }

    #[test]
    fn a_model_is_removed_and_its_neighbours_stay() {
        let (_dir, store) = cache();
        let removed = store.remove("qwen3-0.6b-gguf:q8_0").unwrap().unwrap();
        assert_eq!((removed.name.as_str(), removed.bytes), ("Qwen/Qwen3-0.6B-GGUF:Q8_0", 5));
        assert_eq!(store.remove("mine").unwrap().unwrap().bytes, 4);
        assert_eq!(store.remove("mine").unwrap(), None);
        let names: Vec<String> = store.list().unwrap().into_iter().map(|stored| stored.name).collect();
        assert_eq!(names, ["Qwen/Qwen3-0.6B-GGUF:Q4_K_M", "other/tales:iq3_xxs"]);
    }

    /// A link that leads out of the cache: what it leads to is not ours.
    #[cfg(unix)]
    #[test]
    fn what_lies_elsewhere_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        fs::write(&precious, b"precious").unwrap();
        let snapshot = dir.path().join("hub/models--a--b/snapshots").join("b".repeat(40));
        fs::create_dir_all(&snapshot).unwrap();
        std::os::unix::fs::symlink(&precious, snapshot.join("m-Q4_0.gguf")).unwrap();
        let store = Store::new(Some(dir.path().join("hub")), None);
        assert_eq!(store.remove("a/b").unwrap().unwrap().bytes, 0);
        assert!(precious.exists());
        assert_eq!(store.list().unwrap(), []);
    }
}
