//! Fetching a model: which files, from where, what is here already.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::blob::{self, Job};
use crate::config::HubConfig;
use crate::error::{Error, Result};
use crate::http::Http;
use crate::layout::RepoDir;
use crate::name::Name;
use crate::remote::{self, FileFacts, Revision};
use crate::select;
use crate::store::Store;

/// The branch that is fetched.
const BRANCH: &str = "main";

/// What happens during a pull.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// What will be fetched: `bytes` in all, of which `present` are here.
    Selected {
        /// The model.
        name: &'a Name,
        /// Its files.
        files: usize,
        /// Their size.
        bytes: u64,
        /// Bytes of complete files and of an earlier, interrupted pull.
        present: u64,
    },
    /// Another process is fetching this file.
    Waiting {
        /// The file.
        file: &'a str,
    },
    /// So many bytes of all files are here.
    Progress {
        /// Bytes here.
        done: u64,
        /// Of how many.
        total: u64,
    },
    /// Something failed that may pass.
    Retrying {
        /// What failed.
        error: &'a Error,
        /// When it is tried again.
        after: Duration,
    },
    /// What an earlier pull left of this file was damaged; it is fetched anew.
    Restarting {
        /// The file.
        file: &'a str,
    },
    /// Time passes; asked a few times a second while nothing else happens.
    Idle,
}

/// Hears what happens, and may end it.
pub trait Watch {
    /// Called on the pulling thread. `Break` ends the pull; what came is kept.
    fn on(&self, event: &Event<'_>) -> ControlFlow<()>;
}

/// Tells a watcher, and makes its wish to stop an error.
pub(crate) fn tell(watch: &dyn Watch, event: &Event<'_>) -> Result<()> {
    match watch.on(event) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Stopped),
    }
}

/// Waits, unless the watcher ends it.
pub(crate) fn pause(watch: &dyn Watch, wait: Duration) -> Result<()> {
    let until = Instant::now() + wait;
    loop {
        tell(watch, &Event::Idle)?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// A model that is here now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// `ORG/REPO:TYPE`.
    pub name: String,
    /// Its file; of a split model, the first.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Bytes that came over the network.
    pub fetched: u64,
}

/// The Hub.
#[derive(Debug)]
pub struct Hub {
    http: Http,
}

impl Hub {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(config: HubConfig) -> Self {
        Self { http: Http::new(config) }
    }

    /// What a repository holds now.
    ///
    /// # Errors
    /// No network, no such repository, no right to see it.
    pub fn revision(&self, name: &Name, watch: &dyn Watch) -> Result<Revision> {
        if self.http.config().offline {
            return Err(Error::Offline { what: name.to_string() });
        }
        self.patiently(watch, || remote::revision(&self.http, &name.repo, BRANCH))
    }

    /// Fetches a model into the cache, or what is missing of it. Several processes may do so at once: one fetches, the others
    /// wait.
    ///
    /// # Errors
    /// Any [`Error`]. What came of a file is kept, and the next pull goes on from there.
    pub fn pull(&self, name: &Name, watch: &dyn Watch) -> Result<Pulled> {
        let config = self.http.config();
        let cache = config.cache.as_deref().ok_or(Error::NoCache)?;
        if config.offline {
            let store = Store::new(Some(cache.to_owned()), None);
            return match store.find(&name.to_string())? {
                Some(stored) => {
                    Ok(Pulled { name: stored.name, path: stored.path, bytes: stored.bytes, fetched: 0 })
                }
                None => Err(Error::Offline { what: name.to_string() }),
            };
        }
        let revision = self.revision(name, watch)?;
        let variants = select::variants(&revision.files);
        let repo = name.repo.to_string();
        let variant = select::choose(&variants, name.variant.as_deref(), &repo)?;
        if !variant.is_complete() {
            let (has, n) = (variant.files.len(), variant.n_shards);
            let why = format!("of the {n} files of `{}` only {has} are there", variant.stem);
            return Err(Error::BadAnswer { url: format!("{}/{repo}", config.endpoint), why });
        }
        let name = Name { repo: name.repo.clone(), variant: Some(variant.label.clone()) };
        let dir = RepoDir::new(cache, &name.repo);

        let mut facts: Vec<(&str, FileFacts)> = Vec::new();
        for file in &variant.files {
            let ask = || remote::file_facts(&self.http, &name.repo, &revision.commit, &file.path);
            let found = self.patiently(watch, ask)?;
            if let Some(expected) = file.size.filter(|size| *size != found.size) {
                return Err(Error::WrongSize { file: file.path.clone(), expected, got: found.size });
            }
            facts.push((&file.path, found));
        }
        let total = facts.iter().map(|(_, f)| f.size).fold(0, u64::saturating_add);
        let present = facts.iter().map(|(_, f)| blob::present(&dir, f)).fold(0, u64::saturating_add);
        tell(watch, &Event::Selected { name: &name, files: facts.len(), bytes: total, present })?;

        let (mut done, mut fetched) = (0, 0);
        let mut first = None;
        for (path, facts) in &facts {
            let job = Job { http: &self.http, dir: &dir, file: path, facts, done, total, watch };
            fetched += job.run()?;
            done += facts.size;
            let linked = dir.link(&facts.digest, &revision.commit, path)?;
            first.get_or_insert(linked);
        }
        dir.write_ref(BRANCH, &revision.commit)?;
        let path = first.ok_or(Error::NoCache)?;
        Ok(Pulled { name: name.to_string(), path, bytes: total, fetched })
    }

    /// Tries until it works, fails for good, or has failed too often.
    fn patiently<T>(&self, watch: &dyn Watch, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(error) => wait_or_fail(&self.http, error, &mut tries, watch)?,
            }
        }
    }
}

/// Waits after a failure that may pass.
///
/// # Errors
/// The failure, if it will not pass, was the last of too many, or asks for too long a wait; [`Error::Stopped`].
pub(crate) fn wait_or_fail(http: &Http, error: Error, tries: &mut u32, watch: &dyn Watch) -> Result<()> {
    let retry = http.config().retry;
    *tries += 1;
    let least = match error.transient() {
        Some(least) if *tries < retry.attempts && least <= retry.longest => least,
        _ => return Err(error),
    };
    let doubled = retry.base.saturating_mul(1 << (*tries - 1).min(16));
    let after = doubled.min(retry.longest).max(least);
    tell(watch, &Event::Retrying { error: &error, after })?;
    pause(watch, after)
}
