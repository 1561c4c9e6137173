//! What all handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::api::openai::responses::store::Store;
use crate::auth::Keys;
use crate::config::Config;
use crate::registry::Registry;
use crate::web;

/// Models that are fetched at once.
const PULLS: usize = 4;

/// The server's state.
#[derive(Debug)]
pub struct App {
    /// How the server behaves.
    pub config: Config,
    /// The models.
    pub registry: Arc<Registry>,
    pub(crate) keys: Keys,
    /// Responses that are kept.
    pub(crate) responses: Store,
    /// Places for those who fetch models.
    pub(crate) pulls: Arc<Semaphore>,
    pub(crate) started: Instant,
    draining: AtomicBool,
}

impl App {
    /// The state of a server that is about to start.
    pub fn new(config: Config, registry: Arc<Registry>) -> Arc<Self> {
        let keys = Keys::new(&config.api_keys);
        Arc::new(Self {
            config,
            registry,
            keys,
            responses: Store::default(),
            pulls: Arc::new(Semaphore::new(PULLS)),
            started: Instant::now(),
            draining: AtomicBool::new(false),
        })
    }

    /// Whether the server was told to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The server is told to stop: it is not ready any more.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether a path is asked for by machines every few seconds, or in dozens by the page, which nobody wants to read about.
    pub(crate) fn is_watched(&self, path: &str) -> bool {
        matches!(path, "/health" | "/ready" | "/metrics" | "/server_info") || path.starts_with(web::FILES)
    }
}
