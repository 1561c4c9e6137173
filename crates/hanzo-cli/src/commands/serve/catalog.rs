//! Models that `hanzo serve` loads when a request asks for them: those of this machine, or of one folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hanzo_cpu::exec::CpuDevice;
use hanzo_engine::kv::block_bytes;
use hanzo_fusion::{BLOCK_TOKENS, Device};
use hanzo_gguf::GgufFile;
use hanzo_hub::{Store, Stored};
use hanzo_server::registry::{Catalog, ModelSource, Offer};
use hanzo_server::{LoadSettings, LoadedModel};

use super::settings::{ModelSettings, SettingsFile};
use crate::out;

/// Contexts that the cache of a model holds, where nobody says how many tokens: what half the free memory would be cannot be
/// known before the others are loaded.
const KV_CONTEXTS: usize = 4;

/// What all models have in common.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) device: Arc<CpuDevice>,
    pub(super) settings: LoadSettings,
    pub(super) keep_alive: Option<Duration>,
    pub(super) file: Arc<SettingsFile>,
}

/// The models of a store.
pub(super) struct Models {
    pub(super) store: Store,
    pub(super) shared: Shared,
}

impl Models {
    fn offer(&self, stored: Stored) -> Result<Offer, String> {
        let own = self.shared.file.of(&stored.name);
        let mut settings = self.shared.settings.clone();
        own.apply(&mut settings).map_err(|error| format!("{}: {error:#}", stored.name))?;
        let keep_alive = own.keep_alive.map_or(self.shared.keep_alive, ModelSettings::keep);
        let source = OnDisk {
            name: stored.name.clone(),
            path: stored.path,
            aliases: own.alias.clone(),
            settings,
            device: Arc::clone(&self.shared.device),
        };
        Ok(Offer { name: stored.name, aliases: own.alias.clone(), keep_alive, source: Arc::new(source) })
    }
}

impl Catalog for Models {
    fn find(&self, name: &str) -> Result<Option<Offer>, String> {
        let name = self.shared.file.named(name).unwrap_or(name);
        let found = self.store.find(name).map_err(|error| error.to_string())?;
        found.map(|stored| self.offer(stored)).transpose()
    }

    fn all(&self) -> Result<Vec<Offer>, String> {
        let stored = self.store.list().map_err(|error| error.to_string())?;
        stored.into_iter().map(|stored| self.offer(stored)).collect()
    }
}

/// A file, and how it is loaded.
struct OnDisk {
    name: String,
    path: PathBuf,
    aliases: Vec<String>,
    settings: LoadSettings,
    device: Arc<CpuDevice>,
}

impl OnDisk {
    fn open(&self) -> Result<GgufFile, String> {
        GgufFile::open(&self.path).map_err(|error| error.to_string())
    }

    /// Tokens of the cache.
    fn kv_tokens(&self, context: usize) -> usize {
        let contexts = KV_CONTEXTS.min(self.settings.max_sequences.max(1));
        self.settings.kv_tokens.unwrap_or(context.saturating_mul(contexts))
    }
}

impl ModelSource for OnDisk {
    fn estimate(&self) -> Result<u64, String> {
        let file = self.open()?;
        let model = hanzo_models::load(&file).map_err(|error| error.to_string())?;
        let tokens = self.kv_tokens(self.settings.context_of(model.context_length));
        let blocks = tokens.div_ceil(BLOCK_TOKENS) as u64;
        let kv = block_bytes(&model.graph.kv_layers, self.settings.kv_type).saturating_mul(blocks);
        Ok(file.tensor_bytes_total().saturating_add(kv))
    }

    fn load(&self) -> Result<LoadedModel, String> {
        let started = std::time::Instant::now();
        let file = self.open()?;
        let trained = hanzo_models::load(&file).map_err(|error| error.to_string())?.context_length;
        let settings = LoadSettings {
            kv_tokens: Some(self.kv_tokens(self.settings.context_of(trained))),
            // What is free now, not what was when the server started.
            memory: hanzo_engine::available_memory(),
            ..self.settings.clone()
        };
        let device: &dyn Device = &*self.device;
        let mut model =
            LoadedModel::load(&self.name, &file, device, &settings, &()).map_err(|e| e.to_string())?;
        model.aliases.clone_from(&self.aliases);
        tracing::info!(
            "loaded {} in {:.1} s",
            out::for_terminal(&self.name),
            started.elapsed().as_secs_f64()
        );
        Ok(model)
    }
}

/// The store of a folder of models, which must be there. What clients had fetched is in it as in the Hub's cache.
pub(super) fn folder(dir: &Path) -> Result<Store> {
    std::fs::read_dir(dir).with_context(|| format!("cannot read --models-dir {}", dir.display()))?;
    Ok(Store::new(Some(dir.to_owned()), Some(dir.to_owned())))
}
