//! Models that come and go: loaded when first asked for, by one load that all who ask wait for; unloaded when memory is needed,
//! the least recently used first, or after a while without requests.
//!
//! A model that is in use is never taken away: who asks gets a counted reference, and what has one counts against the
//! budget until it is given back. Knows nothing of what a model is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How often a load that waits for memory looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Makes a model, perhaps several times.
pub(crate) trait Loader<M>: Send + Sync {
    /// Bytes of memory that the model will take, as well as can be told before.
    ///
    /// # Errors
    /// What is wrong with its file.
    fn estimate(&self) -> Result<u64, String>;

    /// Loads it. Blocks.
    ///
    /// # Errors
    /// Why that failed.
    fn load(&self) -> Result<M, String>;

    /// Bytes of memory that a loaded one takes.
    fn bytes(&self, model: &M) -> u64;
}

/// Why a model is not to be had. All who waited for the load get the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No model has that name.
    #[error("there is no model `{0}`")]
    Unknown(String),
    /// The load failed; the next request tries again.
    #[error("model `{name}` cannot be loaded: {why}")]
    Load {
        /// The model.
        name: String,
        /// Why.
        why: String,
    },
    /// The model alone is larger than the budget.
    #[error(
        "model `{name}` needs {bytes} bytes of memory, and all models together may take {budget} (--models-memory)"
    )]
    TooLarge {
        /// The model.
        name: String,
        /// What it needs.
        bytes: u64,
        /// What there is.
        budget: u64,
    },
    /// It is being loaded just now.
    #[error("model `{0}` is being loaded")]
    Loading(String),
    /// It was there at the start and stays.
    #[error("model `{0}` was loaded at the start and stays")]
    Pinned(String),
}

type Outcome<M> = Result<Arc<M>, PoolError>;

enum State<M> {
    Unloaded,
    /// With the bytes that are set aside for it once there is room.
    Loading {
        outcome: watch::Receiver<Option<Outcome<M>>>,
        reserved: u64,
    },
    Loaded {
        model: Arc<M>,
        bytes: u64,
    },
}

struct Slot<M> {
    /// `None` for a model that was given as loaded.
    loader: Option<Arc<dyn Loader<M>>>,
    state: State<M>,
    last_used: Instant,
    /// Idle time after which it is unloaded.
    keep: Option<Duration>,
    /// What a request wants instead, until it is unloaded.
    wanted: Option<Keep>,
    /// Why the last load failed.
    failure: Option<String>,
}

impl<M> Slot<M> {
    /// Idle time after which it is unloaded now.
    fn keep(&self) -> Option<Duration> {
        match self.wanted {
            None => self.keep,
            Some(Keep::Forever) => None,
            Some(Keep::For(time)) => Some(time),
        }
    }
}

struct Inner<M> {
    slots: BTreeMap<String, Slot<M>>,
    /// Unloaded, but still in use.
    leaving: Vec<(Weak<M>, u64)>,
}

/// How long a model stays that nobody uses, if its memory is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// So long.
    For(Duration),
    /// As long as the server lives.
    Forever,
}

impl Keep {
    /// Whether that is no time at all.
    pub fn is_over(self) -> bool {
        self == Self::For(Duration::ZERO)
    }
}

/// What is known of a model of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not in memory.
    Unloaded,
    /// On its way.
    Loading,
    /// In memory, with the bytes it takes, how many hold it beside the pool, and the time until it is unloaded if nobody
    /// asks.
    Loaded {
        /// Bytes of memory.
        bytes: u64,
        /// Requests that use it.
        users: usize,
        /// Time left, where it is unloaded when idle.
        expires: Option<Duration>,
    },
}

/// The models.
pub(crate) struct Pool<M> {
    inner: Mutex<Inner<M>>,
    budget: Option<u64>,
}

impl<M: Send + Sync + 'static> Pool<M> {
    /// A pool whose models may take so many bytes together.
    pub(crate) fn new(budget: Option<u64>) -> Self {
        Self { inner: Mutex::new(Inner { slots: BTreeMap::new(), leaving: Vec::new() }), budget }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        // No change of the state can be left half done by a panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a model that is loaded and stays.
    pub(crate) fn add_loaded(&self, name: &str, model: Arc<M>, bytes: u64) {
        let slot = Slot {
            loader: None,
            state: State::Loaded { model, bytes },
            last_used: Instant::now(),
            keep: None,
            wanted: None,
            failure: None,
        };
        self.lock().slots.insert(name.to_owned(), slot);
    }

    /// Adds a model that is loaded when it is asked for; one that is there already stays as it is.
    pub(crate) fn offer(&self, name: &str, loader: Arc<dyn Loader<M>>, keep: Option<Duration>) {
        self.lock().slots.entry(name.to_owned()).or_insert_with(|| Slot {
            loader: Some(loader),
            state: State::Unloaded,
            last_used: Instant::now(),
            keep,
            wanted: None,
            failure: None,
        });
    }

    /// All models by name, what is known of them, and why the last load failed.
    pub(crate) fn all(&self) -> Vec<(String, Status, Option<String>)> {
        let inner = self.lock();
        let one = |(name, slot): (&String, &Slot<M>)| {
            let status = match &slot.state {
                State::Unloaded => Status::Unloaded,
                State::Loading { .. } => Status::Loading,
                State::Loaded { model, bytes } => Status::Loaded {
                    bytes: *bytes,
                    users: Arc::strong_count(model) - 1,
                    expires: slot.keep().map(|keep| keep.saturating_sub(slot.last_used.elapsed())),
                },
            };
            (name.clone(), status, slot.failure.clone())
        };
        inner.slots.iter().map(one).collect()
    }

    /// The models that are in memory.
    pub(crate) fn loaded(&self) -> Vec<Arc<M>> {
        let loaded = |slot: &Slot<M>| match &slot.state {
            State::Loaded { model, .. } => Some(Arc::clone(model)),
            _ => None,
        };
        self.lock().slots.values().filter_map(loaded).collect()
    }

    /// The models that are in memory, and then those that were unloaded but are still in use.
    pub(crate) fn held(&self) -> Vec<Arc<M>> {
        let mut held = self.loaded();
        held.extend(self.lock().leaving.iter().filter_map(|(model, _)| model.upgrade()));
        held
    }

    /// The model of that name, if it is in memory.
    pub(crate) fn loaded_as(&self, name: &str) -> Option<Arc<M>> {
        match &self.lock().slots.get(name)?.state {
            State::Loaded { model, .. } => Some(Arc::clone(model)),
            _ => None,
        }
    }

    /// The model; loads it if need be. The load goes on if the one who asked goes away: others may wait for it.
    ///
    /// # Errors
    /// No such model, or a load that failed.
    pub(crate) async fn get(self: &Arc<Self>, name: &str) -> Outcome<M> {
        let mut outcome = {
            let mut inner = self.lock();
            let slot = inner.slots.get_mut(name).ok_or_else(|| PoolError::Unknown(name.to_owned()))?;
            slot.last_used = Instant::now();
            match (&slot.state, &slot.loader) {
                (State::Loaded { model, .. }, _) => return Ok(Arc::clone(model)),
                (State::Loading { outcome, .. }, _) => outcome.clone(),
                (State::Unloaded, None) => return Err(PoolError::Unknown(name.to_owned())),
                (State::Unloaded, Some(loader)) => {
                    let loader = Arc::clone(loader);
                    let (sender, outcome) = watch::channel(None);
                    slot.state = State::Loading { outcome: outcome.clone(), reserved: 0 };
                    let (pool, name) = (Arc::clone(self), name.to_owned());
                    tokio::spawn(async move { pool.load(&name, loader, sender).await });
                    outcome
                }
            }
        };
        let gone = || PoolError::Load { name: name.to_owned(), why: "the load was given up".to_owned() };
        match outcome.wait_for(Option::is_some).await {
            Ok(found) => found.clone().unwrap_or_else(|| Err(gone())),
            Err(_) => Err(gone()),
        }
    }

    /// Loads a model whose slot says so, and tells all who wait.
    async fn load(
        self: Arc<Self>,
        name: &str,
        loader: Arc<dyn Loader<M>>,
        tell: watch::Sender<Option<Outcome<M>>>,
    ) {
        let failed = |why: String| PoolError::Load { name: name.to_owned(), why };
        let outcome = match self.make_room(name, &loader).await {
            Err(error) => Err(error),
            Ok(()) => {
                let work = Arc::clone(&loader);
                let loaded = tokio::task::spawn_blocking(move || work.load()).await;
                match loaded {
                    Ok(Ok(model)) => Ok(Arc::new(model)),
                    Ok(Err(why)) => Err(failed(why)),
                    Err(_) => Err(failed("the loader panicked".to_owned())),
                }
            }
        };
        if let Some(slot) = self.lock().slots.get_mut(name) {
            slot.last_used = Instant::now();
            slot.failure = outcome.as_ref().err().map(ToString::to_string);
            slot.state = match &outcome {
                Ok(model) => State::Loaded { bytes: loader.bytes(model), model: Arc::clone(model) },
                Err(_) => State::Unloaded,
            };
        }
        tell.send_replace(Some(outcome));
    }

    /// Sets memory aside for a model, unloading others that nobody uses, the least recently used first; waits while all
    /// are in use.
    async fn make_room(&self, name: &str, loader: &Arc<dyn Loader<M>>) -> Result<(), PoolError> {
        let Some(budget) = self.budget else { return Ok(()) };
        let work = Arc::clone(loader);
        let estimate = tokio::task::spawn_blocking(move || work.estimate()).await;
        let bytes = match estimate {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(why)) => return Err(PoolError::Load { name: name.to_owned(), why }),
            Err(_) => {
                return Err(PoolError::Load {
                    name: name.to_owned(),
                    why: "its size cannot be told".to_owned(),
                });
            }
        };
        loop {
            let freed = {
                let mut inner = self.lock();
                let pinned = inner.pinned();
                if bytes.saturating_add(pinned) > budget {
                    let budget = budget.saturating_sub(pinned);
                    return Err(PoolError::TooLarge { name: name.to_owned(), bytes, budget });
                }
                if inner.taken().saturating_add(bytes) <= budget {
                    if let Some(Slot { state: State::Loading { reserved, .. }, .. }) =
                        inner.slots.get_mut(name)
                    {
                        *reserved = bytes;
                    }
                    return Ok(());
                }
                inner.take_idlest()
            };
            match freed {
                // An engine ends its thread when it is dropped, which takes a moment.
                Some(model) => drop(tokio::task::spawn_blocking(move || drop(model)).await),
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Has a model stay for so long from its last request on, until it is unloaded; `false` for one that stays anyway.
    pub(crate) fn keep(&self, name: &str, keep: Keep) -> bool {
        match self.lock().slots.get_mut(name) {
            Some(slot) if slot.loader.is_some() => {
                slot.wanted = Some(keep);
                true
            }
            _ => false,
        }
    }

    /// Unloads a model. Requests that use it go on; its memory is free when they have ended. Whether it was loaded.
    ///
    /// # Errors
    /// No such model, one that is being loaded, or one that stays.
    pub(crate) fn unload(&self, name: &str) -> Result<bool, PoolError> {
        let model = {
            let mut inner = self.lock();
            let slot = inner.slots.get_mut(name).ok_or_else(|| PoolError::Unknown(name.to_owned()))?;
            match (&slot.state, &slot.loader) {
                (State::Unloaded, _) => return Ok(false),
                (State::Loading { .. }, _) => return Err(PoolError::Loading(name.to_owned())),
                (State::Loaded { .. }, None) => return Err(PoolError::Pinned(name.to_owned())),
                (State::Loaded { .. }, Some(_)) => inner.take(name),
            }
        };
        drop_elsewhere(model);
        Ok(true)
    }

    /// Unloads what has been idle for too long. To be called now and then.
    pub(crate) fn unload_idle(&self) {
        let now = Instant::now();
        let mut expired = Vec::new();
        let mut inner = self.lock();
        for (name, slot) in &mut inner.slots {
            let State::Loaded { model, .. } = &slot.state else { continue };
            if Arc::strong_count(model) > 1 {
                // Idle time begins when the last request ends.
                slot.last_used = now;
            } else if slot.loader.is_some()
                && slot.keep().is_some_and(|keep| now.saturating_duration_since(slot.last_used) >= keep)
            {
                expired.push(name.clone());
            }
        }
        let models: Vec<_> = expired.iter().map(|name| inner.take(name)).collect();
        drop(inner);
        models.into_iter().for_each(drop_elsewhere);
    }
}

/// Drops a model where that may block.
fn drop_elsewhere<M: Send + Sync + 'static>(model: Option<Arc<M>>) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(move || drop(model))),
        Err(_) => drop(model),
    }
}

impl<M> Inner<M> {
    /// Bytes of all that is loaded, on its way, or not yet given back.
    fn taken(&mut self) -> u64 {
        self.leaving.retain(|(model, _)| model.strong_count() > 0);
        let slots = self.slots.values().map(|slot| match &slot.state {
            State::Unloaded => 0,
            State::Loading { reserved, .. } => *reserved,
            State::Loaded { bytes, .. } => *bytes,
        });
        let leaving = self.leaving.iter().map(|(_, bytes)| *bytes);
        slots.chain(leaving).fold(0, u64::saturating_add)
    }

    /// Bytes of what stays.
    fn pinned(&self) -> u64 {
        let pinned = self.slots.values().filter(|slot| slot.loader.is_none()).map(|slot| match &slot.state {
            State::Loaded { bytes, .. } => *bytes,
            _ => 0,
        });
        pinned.fold(0, u64::saturating_add)
    }

    /// Takes the model that was used least recently, among those that nobody uses.
    fn take_idlest(&mut self) -> Option<Arc<M>> {
        let idle = |slot: &Slot<M>| {
            slot.loader.is_some()
                && matches!(&slot.state, State::Loaded { model, .. } if Arc::strong_count(model) == 1)
        };
        let idlest = self.slots.iter().filter(|(_, slot)| idle(slot)).min_by_key(|(_, slot)| slot.last_used);
        let name = idlest?.0.clone();
        self.take(&name)
    }

    /// Takes a loaded model out of its slot; while somebody uses it, its bytes go on to count.
    fn take(&mut self, name: &str) -> Option<Arc<M>> {
        let slot = self.slots.get_mut(name)?;
        let State::Loaded { model, bytes } = std::mem::replace(&mut slot.state, State::Unloaded) else {
            return None;
        };
        slot.wanted = None;
        self.leaving.retain(|(model, _)| model.strong_count() > 0);
        self.leaving.push((Arc::downgrade(&model), bytes));
        Some(model)
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
