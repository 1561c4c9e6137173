//! Which models there are, by name: those that were loaded at the start, and those that are loaded when a request asks for them
//! (in [`pool`]).

mod pool;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use axum::http::StatusCode;

pub use self::pool::{Keep, PoolError, Status};
use self::pool::{Loader, Pool};
use crate::error::ApiError;
use crate::metrics::{Account, ModelMetrics};
use crate::model::LoadedModel;
use crate::pull::Puller;

/// How often idle models are looked for.
const TICK: Duration = Duration::from_secs(1);

/// A model that can be loaded, perhaps several times.
pub trait ModelSource: Send + Sync {
    /// Bytes of memory that it will take, as well as can be told before.
    ///
    /// # Errors
    /// What is wrong with its file.
    fn estimate(&self) -> Result<u64, String>;

    /// Loads it. Blocks.
    ///
    /// # Errors
    /// Why that failed.
    fn load(&self) -> Result<LoadedModel, String>;
}

/// A model that is loaded when a request asks for it.
#[derive(Clone)]
pub struct Offer {
    /// What requests call it.
    pub name: String,
    /// What else they may call it.
    pub aliases: Vec<String>,
    /// Idle time after which it is unloaded; `None` keeps it until its memory is needed.
    pub keep_alive: Option<Duration>,
    /// Where it comes from.
    pub source: Arc<dyn ModelSource>,
}

/// Models that may be offered: asked when a request names one that is not known yet, so that what is put there while the server
/// runs is found.
pub trait Catalog: Send + Sync {
    /// The model that a name means. Blocks.
    ///
    /// # Errors
    /// A name that may mean several, or a folder that cannot be read.
    fn find(&self, name: &str) -> Result<Option<Offer>, String>;

    /// All models. Blocks.
    ///
    /// # Errors
    /// A folder that cannot be read.
    fn all(&self) -> Result<Vec<Offer>, String>;
}

/// A model of the server, loaded or not.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Whether it is in memory.
    pub status: Status,
    /// Why the last load failed.
    pub failure: Option<String>,
    /// The model, if it is in memory.
    pub model: Option<Arc<LoadedModel>>,
}

/// The models of a server.
pub struct Registry {
    pool: Arc<Pool<LoadedModel>>,
    names: RwLock<Names>,
    catalog: Option<Arc<dyn Catalog>>,
    puller: Option<Arc<dyn Puller>>,
    ledger: Arc<Ledger>,
}

#[derive(Default)]
struct Names {
    /// From what requests may say, in lower case, to the model's name.
    aliases: BTreeMap<String, String>,
    /// The one that is meant where a request names none.
    default: Option<String>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("models", &self.pool.all()).finish_non_exhaustive()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(None, None)
    }
}

/// A source of models as the pool wants it.
struct Source {
    name: String,
    source: Arc<dyn ModelSource>,
    ledger: Arc<Ledger>,
}

/// Counts of all models that were ever loaded, by name.
type Ledger = Mutex<BTreeMap<String, Arc<ModelMetrics>>>;

impl Loader<LoadedModel> for Source {
    fn estimate(&self) -> Result<u64, String> {
        self.source.estimate()
    }

    fn load(&self) -> Result<LoadedModel, String> {
        let mut model = self.source.load()?;
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        model.metrics = Arc::clone(ledger.entry(self.name.clone()).or_default());
        Ok(model)
    }

    fn bytes(&self, model: &LoadedModel) -> u64 {
        bytes(model)
    }
}

/// Bytes of memory that a model holds.
fn bytes(model: &LoadedModel) -> u64 {
    let memory = model.engine.info().memory;
    memory.weights.saturating_add(memory.kv).saturating_add(memory.arena)
}

impl Registry {
    /// A registry whose models may take `budget` bytes together (no bound if `None`), and that looks for names that it does not
    /// know in `catalog`.
    #[must_use]
    pub fn new(budget: Option<u64>, catalog: Option<Arc<dyn Catalog>>) -> Self {
        Self {
            pool: Arc::new(Pool::new(budget)),
            names: RwLock::default(),
            catalog,
            puller: None,
            ledger: Arc::default(),
        }
    }

    /// The same, whose clients may have models fetched to where the catalog finds them.
    #[must_use]
    pub fn with_puller(self, puller: Arc<dyn Puller>) -> Self {
        Self { puller: Some(puller), ..self }
    }

    /// What fetches models, if clients may ask for that.
    pub(crate) fn puller(&self) -> Option<Arc<dyn Puller>> {
        self.puller.clone()
    }

    /// A registry of one model.
    pub fn single(model: LoadedModel) -> Arc<Self> {
        let registry = Self::default();
        registry.add(model);
        Arc::new(registry)
    }

    fn names(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn names_mut(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ModelMetrics>>> {
        // An entry is whole before the lock goes.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of every model that was ever loaded.
    pub(crate) fn accounts(&self) -> Vec<Account> {
        let mut held = self.pool.held();
        let account = |(name, metrics): (&String, &Arc<ModelMetrics>)| {
            let (own, others) = std::mem::take(&mut held).into_iter().partition(|m| m.name == *name);
            held = others;
            Account::new(name.clone(), Arc::clone(metrics), own)
        };
        self.ledger().iter().map(account).collect()
    }

    fn name(&self, name: &str, aliases: &[String]) {
        let mut names = self.names_mut();
        names.default.get_or_insert_with(|| name.to_owned());
        for said in aliases.iter().map(String::as_str).chain([name]) {
            // Who came first keeps a name: what is put into a folder later takes none away.
            names.aliases.entry(said.to_lowercase()).or_insert_with(|| name.to_owned());
        }
    }

    /// Adds a loaded model, which stays. The first model is the default.
    pub fn add(&self, model: LoadedModel) {
        self.name(&model.name, &model.aliases);
        let (name, bytes) = (model.name.clone(), bytes(&model));
        self.ledger().insert(name.clone(), Arc::clone(&model.metrics));
        self.pool.add_loaded(&name, Arc::new(model), bytes);
    }

    /// Adds a model that is loaded when a request asks for it. The first model is the default.
    pub fn offer(&self, offer: &Offer) {
        self.name(&offer.name, &offer.aliases);
        let (name, source) = (offer.name.clone(), Arc::clone(&offer.source));
        let source = Source { name, source, ledger: Arc::clone(&self.ledger) };
        self.pool.offer(&offer.name, Arc::new(source), offer.keep_alive);
    }

    /// The name of the model that is meant; a model of the catalog is offered from then on.
    async fn resolve(&self, wanted: Option<&str>) -> Result<String, ApiError> {
        let wanted = match wanted.filter(|name| !name.is_empty()) {
            Some(name) => name.to_owned(),
            None => self.names().default.clone().unwrap_or_default(),
        };
        if let Some(name) = self.names().aliases.get(&wanted.to_lowercase()) {
            return Ok(name.clone());
        }
        if let Some(catalog) = self.catalog.clone() {
            let asked = wanted.clone();
            let found = tokio::task::spawn_blocking(move || catalog.find(&asked)).await;
            match found {
                Ok(Ok(Some(mut offer))) => {
                    offer.aliases.push(wanted);
                    self.offer(&offer);
                    return Ok(offer.name);
                }
                Ok(Ok(None)) => {}
                Ok(Err(why)) => return Err(ApiError::at("/model", why).with_code("model_not_found")),
                Err(_) => return Err(ApiError::internal("the models could not be searched")),
            }
        }
        let known: Vec<String> = self.pool.all().into_iter().map(|(name, ..)| name).collect();
        Err(ApiError::unknown_model(&wanted, &known))
    }

    /// The model of that name or alias, or the default one without a name. One that is not in memory is loaded; all who ask for
    /// it meanwhile wait for the same load.
    ///
    /// # Errors
    /// 404 for a name that no model has; 500 for a model that cannot be loaded, 503 for one that is larger than the budget.
    pub async fn get(&self, name: Option<&str>) -> Result<Arc<LoadedModel>, ApiError> {
        let name = self.resolve(name).await?;
        self.pool.get(&name).await.map_err(|error| self.api_error(error))
    }

    /// What is known of a model, which is not loaded for that.
    ///
    /// # Errors
    /// 404 for a name that no model has.
    pub async fn look(&self, name: &str) -> Result<Listed, ApiError> {
        let name = self.resolve(Some(name)).await?;
        self.listed()
            .into_iter()
            .find(|listed| listed.name == name)
            .ok_or_else(|| ApiError::unknown_model(&name, &[]))
    }

    /// Has a loaded model stay for so long from its last request on, whatever its offer says, until it is unloaded; `false` for
    /// one that was there at the start, which stays.
    pub fn keep(&self, name: &str, keep: Keep) -> bool {
        self.pool.keep(name, keep)
    }

    /// Unloads a model; requests that use it go on. Whether it was loaded.
    ///
    /// # Errors
    /// 404 for a name that no model has; 409 for one that is being loaded, or that was there at the start.
    pub async fn unload(&self, name: &str) -> Result<bool, ApiError> {
        let name = self.resolve(Some(name)).await?;
        self.pool.unload(&name).map_err(|error| self.api_error(error))
    }

    fn api_error(&self, error: PoolError) -> ApiError {
        let message = error.to_string();
        match error {
            PoolError::Unknown(name) => {
                let known: Vec<String> = self.pool.all().into_iter().map(|(name, ..)| name).collect();
                ApiError::unknown_model(&name, &known)
            }
            PoolError::Load { .. } => ApiError::internal(message).with_code("model_load_failed"),
            PoolError::TooLarge { .. } => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("model_too_large")
            }
            PoolError::Loading(_) | PoolError::Pinned(_) => ApiError::new(StatusCode::CONFLICT, message),
        }
    }

    /// The loaded models.
    pub fn list(&self) -> Vec<Arc<LoadedModel>> {
        self.pool.loaded()
    }

    /// All models, loaded or not, those of the catalog too.
    ///
    /// # Errors
    /// 500 where the catalog cannot be read.
    pub async fn all(&self) -> Result<Vec<Listed>, ApiError> {
        if let Some(catalog) = self.catalog.clone() {
            let offers = tokio::task::spawn_blocking(move || catalog.all()).await;
            let offers = offers.map_err(|_| ApiError::internal("the models could not be listed"))?;
            for offer in offers.map_err(ApiError::internal)? {
                self.offer(&offer);
            }
        }
        Ok(self.listed())
    }

    /// All models that are known.
    pub(crate) fn listed(&self) -> Vec<Listed> {
        let listed = |(name, status, failure): (String, Status, Option<String>)| {
            let model = self.pool.loaded_as(&name);
            Listed { name, status, failure, model }
        };
        self.pool.all().into_iter().map(listed).collect()
    }

    /// Unloads what is idle for too long, for as long as the server lives.
    pub async fn tend(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            self.pool.unload_idle();
        }
    }
}
