//! Which models there are, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::ApiError;
use crate::model::LoadedModel;

/// The models of a server.
#[derive(Debug, Default)]
pub struct Registry {
    models: RwLock<BTreeMap<String, Arc<LoadedModel>>>,
    /// The one that is meant where a request names none.
    default: RwLock<Option<String>>,
}

impl Registry {
    /// A registry of one model.
    pub fn single(model: LoadedModel) -> Arc<Self> {
        let registry = Self::default();
        registry.add(model);
        Arc::new(registry)
    }

    /// Adds a loaded model, in place of one of the same name. The first is the default.
    pub fn add(&self, model: LoadedModel) {
        let name = model.name.clone();
        self.default.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| name.clone());
        self.models.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::new(model));
    }

    /// The model of that name or alias, or the default one without a name.
    ///
    /// # Errors
    /// 404 for a name that no model has.
    #[allow(clippy::unused_async, reason = "loading on demand waits")]
    pub async fn get(&self, name: Option<&str>) -> Result<Arc<LoadedModel>, ApiError> {
        let default = self.default.read().unwrap_or_else(PoisonError::into_inner).clone();
        let wanted = name.filter(|n| !n.is_empty()).or(default.as_deref()).unwrap_or_default();
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        let found =
            models.get(wanted).or_else(|| models.values().find(|m| m.aliases.iter().any(|a| a == wanted)));
        found
            .cloned()
            .ok_or_else(|| ApiError::unknown_model(wanted, &models.keys().cloned().collect::<Vec<_>>()))
    }

    /// The loaded models.
    pub fn list(&self) -> Vec<Arc<LoadedModel>> {
        self.models.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
