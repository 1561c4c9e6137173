//! The adapters that an engine has: loaded and unloaded by name while it runs, chosen by each request.
//!
//! An adapter is shared by reference: one that is unloaded is not to be had for new requests, and its memory goes when the last
//! request that uses it has ended. Ids are never used twice, so that cached prefixes of an adapter cannot be taken for those of
//! another that was loaded under the same name later.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hanzo_fusion::{Adapter, AdapterUse};
use hanzo_models::Model;
use hanzo_models::lora::{LoraError, LoraFile};
use thiserror::Error;

/// Longest name, in bytes.
const MAX_NAME: usize = 256;
/// Greatest magnitude of a request's scale.
const MAX_SCALE: f32 = 1e4;

/// Names an adapter that is or was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(u64);

impl AdapterId {
    /// The number behind it: adapters of an engine count from 0 in order of their loading.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What adapters may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterLimits {
    /// Adapters that are loaded at once.
    pub count: usize,
    /// Their greatest rank.
    pub rank: usize,
    /// Adapters that one request may use.
    pub per_request: usize,
    /// Bytes of all of them, those included that are unloaded and still in use.
    pub bytes: u64,
}

impl Default for AdapterLimits {
    fn default() -> Self {
        Self { count: 64, rank: 512, per_request: 8, bytes: 8 << 30 }
    }
}

/// Why an adapter cannot be loaded, unloaded or used.
#[derive(Debug, Error)]
pub enum AdapterError {
    /// The file is at fault, or not for this model.
    #[error("adapter `{name}`: {source}")]
    File {
        /// Its name.
        name: String,
        /// What is wrong.
        source: Box<LoraError>,
    },
    /// Not a name.
    #[error("{name:?} is no name of an adapter: 1 to {MAX_NAME} bytes without control characters are")]
    Name {
        /// What was given.
        name: String,
    },
    /// The name is taken.
    #[error("an adapter `{name}` is loaded already; unload it first, or choose another name")]
    Exists {
        /// The name.
        name: String,
    },
    /// No adapter has this name.
    #[error("no adapter `{name}` is loaded; there is: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Names that there are.
        known: String,
    },
    /// The adapter was unloaded, or belongs to another engine.
    #[error("the adapter that the request asks for is not loaded")]
    Unloaded,
    /// As many as the engine takes.
    #[error("{limit} adapters are loaded, which is the limit; unload one")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// A greater rank than the engine takes.
    #[error("adapter `{name}` has rank {rank}; the limit is {limit}")]
    Rank {
        /// Its name.
        name: String,
        /// Its greatest rank.
        rank: usize,
        /// The limit.
        limit: usize,
    },
    /// More memory than the engine gives to adapters.
    #[error("adapter `{name}` takes {bytes} bytes; {free} of {limit} are left for adapters")]
    Memory {
        /// Its name.
        name: String,
        /// What it takes.
        bytes: u64,
        /// What is left.
        free: u64,
        /// The limit.
        limit: u64,
    },
    /// A scale that is no number, or too great.
    #[error("{scale} is no scale of an adapter: a number between -{MAX_SCALE} and {MAX_SCALE} is")]
    Scale {
        /// What was given.
        scale: f32,
    },
    /// More adapters than a request may use.
    #[error("{n} adapters in one request; the limit is {limit}")]
    TooManyInRequest {
        /// What was given.
        n: usize,
        /// The limit.
        limit: usize,
    },
    /// The same adapter twice in a request.
    #[error("adapter `{name}` is there twice in the request; add its scales up")]
    Twice {
        /// Its name.
        name: String,
    },
}

/// What is known of a loaded adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterInfo {
    /// Its id, for [`crate::Request::adapters`].
    pub id: AdapterId,
    /// Its name.
    pub name: String,
    /// Where it came from.
    pub path: PathBuf,
    /// Its greatest rank.
    pub rank: usize,
    /// Weights that it updates.
    pub n_updates: usize,
    /// Bytes held.
    pub bytes: u64,
    /// Settings of its file that are not known here: what they ask for is not done.
    pub unknown_keys: Vec<String>,
    /// Requests for it that wait.
    pub waiting: usize,
    /// Sequences with it that run.
    pub running: usize,
}

/// An adapter in memory.
#[derive(Debug)]
pub(crate) struct Loaded {
    info: AdapterInfo,
    adapter: Adapter,
}

impl Loaded {
    fn id(&self) -> AdapterId {
        self.info.id
    }
}

/// A request's use of an adapter, which keeps it in memory.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    loaded: Arc<Loaded>,
    scale: f32,
}

/// The uses as a step wants them.
pub(crate) fn uses(leases: &[Lease]) -> Vec<AdapterUse<'_>> {
    leases.iter().map(|l| AdapterUse { adapter: &l.loaded.adapter, scale: l.scale }).collect()
}

/// What prefixes that were computed with adapters are told apart by.
pub(crate) type PrefixKey = Vec<(u64, u32)>;

/// The key of some uses, in their order: it is part of the order of the sums.
pub(crate) fn prefix_key(leases: &[Lease]) -> PrefixKey {
    leases.iter().map(|l| (l.loaded.id().0, l.scale.to_bits())).collect()
}

/// All adapters of an engine.
#[derive(Debug)]
pub(crate) struct Registry {
    model: Model,
    limits: AdapterLimits,
    /// Held while one is being loaded, so that limits hold.
    loading: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    loaded: Vec<Arc<Loaded>>,
    /// Unloaded and perhaps in use.
    retired: Vec<Weak<Loaded>>,
    next_id: u64,
}

impl State {
    fn bytes(&self) -> u64 {
        let loaded = self.loaded.iter().map(|l| l.info.bytes);
        let retired = self.retired.iter().filter_map(|w| w.upgrade().map(|l| l.info.bytes));
        loaded.chain(retired).fold(0, u64::saturating_add)
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.loaded.iter().position(|l| l.info.name == name)
    }
}

impl Registry {
    pub(crate) fn new(model: Model, limits: AdapterLimits) -> Self {
        Self { model, limits, loading: Mutex::new(()), state: Mutex::default() }
    }

    pub(crate) fn limits(&self) -> AdapterLimits {
        self.limits
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn load(&self, name: &str, path: &Path) -> Result<AdapterId, AdapterError> {
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(AdapterError::Name { name: name.chars().take(MAX_NAME).collect() });
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let free = {
            let state = self.state();
            if state.find(name).is_some() {
                return Err(AdapterError::Exists { name: name.to_owned() });
            }
            if state.loaded.len() >= self.limits.count {
                return Err(AdapterError::TooMany { limit: self.limits.count });
            }
            self.limits.bytes.saturating_sub(state.bytes())
        };
        let fault = |source| AdapterError::File { name: name.to_owned(), source: Box::new(source) };
        let file = LoraFile::open(path).map_err(fault)?;
        let (rank, limit) = (file.max_rank(), self.limits.rank);
        if rank > limit {
            return Err(AdapterError::Rank { name: name.to_owned(), rank, limit });
        }
        let bytes = file.memory();
        if bytes > free {
            return Err(AdapterError::Memory {
                name: name.to_owned(),
                bytes,
                free,
                limit: self.limits.bytes,
            });
        }
        let adapter = file.bind(&self.model).map_err(fault)?;
        let mut state = self.state();
        let id = AdapterId(state.next_id);
        state.next_id += 1;
        let info = AdapterInfo {
            id,
            name: name.to_owned(),
            path: path.to_owned(),
            rank,
            n_updates: adapter.n_updates(),
            bytes: adapter.bytes(),
            unknown_keys: file.unknown_keys().to_vec(),
            waiting: 0,
            running: 0,
        };
        tracing::info!(name, rank, bytes = info.bytes, "adapter loaded");
        state.loaded.push(Arc::new(Loaded { info, adapter }));
        Ok(id)
    }

    pub(crate) fn unload(&self, name: &str) -> Result<(), AdapterError> {
        let mut state = self.state();
        let Some(at) = state.find(name) else { return Err(Self::unknown(&state, name)) };
        let loaded = state.loaded.remove(at);
        state.retired.retain(|w| w.strong_count() > 0);
        state.retired.push(Arc::downgrade(&loaded));
        tracing::info!(name, "adapter unloaded");
        Ok(())
    }

    pub(crate) fn find(&self, name: &str) -> Result<AdapterId, AdapterError> {
        let state = self.state();
        let found = state.find(name).and_then(|at| state.loaded.get(at));
        found.map(|l| l.id()).ok_or_else(|| Self::unknown(&state, name))
    }

    fn unknown(state: &State, name: &str) -> AdapterError {
        let names: Vec<&str> = state.loaded.iter().map(|l| l.info.name.as_str()).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        AdapterError::Unknown { name: name.chars().take(MAX_NAME).collect(), known }
    }

    /// What a request asks for. A scale of 0 is no use at all.
    pub(crate) fn lease(&self, wanted: &[(AdapterId, f32)]) -> Result<Vec<Lease>, AdapterError> {
        let (n, limit) = (wanted.len(), self.limits.per_request);
        if n > limit {
            return Err(AdapterError::TooManyInRequest { n, limit });
        }
        if n == 0 {
            return Ok(Vec::new());
        }
        let state = self.state();
        let mut leases: Vec<Lease> = Vec::new();
        for &(id, scale) in wanted {
            if !scale.is_finite() || scale.abs() > MAX_SCALE {
                return Err(AdapterError::Scale { scale });
            }
            let Some(loaded) = state.loaded.iter().find(|l| l.id() == id) else {
                return Err(AdapterError::Unloaded);
            };
            if wanted.iter().filter(|(other, _)| *other == id).count() > 1 {
                return Err(AdapterError::Twice { name: loaded.info.name.clone() });
            }
            if scale != 0.0 {
                leases.push(Lease { loaded: Arc::clone(loaded), scale });
            }
        }
        Ok(leases)
    }

    /// All that are loaded, in order of their loading; `counts` are their requests.
    pub(crate) fn infos(&self, counts: &[AdapterCount]) -> Vec<AdapterInfo> {
        let state = self.state();
        let info = |l: &Arc<Loaded>| {
            let count = counts.iter().find(|c| c.id == l.id());
            let (waiting, running) = count.map_or((0, 0), |c| (c.waiting, c.running));
            AdapterInfo { waiting, running, ..l.info.clone() }
        };
        state.loaded.iter().map(info).collect()
    }

    /// Bytes of all adapters, those that were unloaded and are in use included.
    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes()
    }
}

/// How many sequences use an adapter now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdapterCount {
    id: AdapterId,
    waiting: usize,
    running: usize,
}

/// Counts the uses of each adapter.
pub(crate) fn count<'a>(
    waiting: impl Iterator<Item = &'a [Lease]>,
    running: impl Iterator<Item = &'a [Lease]>,
) -> Vec<AdapterCount> {
    let mut counts: Vec<AdapterCount> = Vec::new();
    let uses = waiting.flatten().map(|l| (l, false)).chain(running.flatten().map(|l| (l, true)));
    for (lease, runs) in uses {
        let id = lease.loaded.id();
        let at = counts.iter().position(|c| c.id == id).unwrap_or_else(|| {
            counts.push(AdapterCount { id, waiting: 0, running: 0 });
            counts.len() - 1
        });
        if let Some(count) = counts.get_mut(at) {
            if runs { count.running += 1 } else { count.waiting += 1 }
        }
    }
    counts
}
