//! What clients of `hanzo serve --allow-pull` may have fetched: models of the Hub, to where the server looks for them.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Result;
use hanzo_hub::{Error, Event, Hub, HubConfig, Name, Watch};
use hanzo_server::pull::{PullError, Puller, Pulling};

/// The Hub, and a cache.
pub(super) struct FromHub(HubConfig);

impl FromHub {
    /// Fetches into `folder`, which gets the layout of the Hub's cache, or into the Hub's cache itself.
    ///
    /// # Errors
    /// Variables of the environment that make no sense.
    pub(super) fn into(folder: Option<PathBuf>) -> Result<Self> {
        let mut config = HubConfig::from_env()?;
        config.cache = folder.or(config.cache);
        Ok(Self(config))
    }
}

impl Puller for FromHub {
    fn pull(&self, name: &str, tell: &mut dyn FnMut(Pulling<'_>) -> bool) -> Result<(), PullError> {
        let parsed = Name::parse(name).map_err(|error| PullError::Name(error.to_string()))?;
        let pulled = Hub::new(self.0.clone()).pull(&parsed, &Teller(RefCell::new(tell)));
        let pulled = pulled.map_err(|error| match &error {
            Error::BadName { .. } | Error::Choose { .. } => PullError::Name(error.to_string()),
            Error::NotFound { .. } | Error::Denied { .. } => PullError::Missing(error.to_string()),
            _ => PullError::Failed(error.to_string()),
        })?;
        tracing::info!(
            "pulled {} ({} bytes fetched)",
            crate::out::for_terminal(&pulled.name),
            pulled.fetched
        );
        Ok(())
    }
}

/// Tells the server what the Hub tells. Called from one thread, never from within itself.
struct Teller<'t>(RefCell<&'t mut dyn FnMut(Pulling<'_>) -> bool>);

impl Watch for Teller<'_> {
    fn on(&self, event: &Event<'_>) -> ControlFlow<()> {
        let Ok(mut tell) = self.0.try_borrow_mut() else { return ControlFlow::Continue(()) };
        let goes_on = match event {
            Event::Selected { name, .. } => tell(Pulling::Chosen { name: &name.to_string() }),
            Event::Progress { done, total } => tell(Pulling::Bytes { done: *done, total: *total }),
            Event::Waiting { file } => {
                tell(Pulling::Note(&format!("another process is fetching {file}; waiting for it")))
            }
            Event::Retrying { error, after } => {
                let seconds = after.as_secs_f64().ceil();
                tell(Pulling::Note(&format!("{error}; trying again in {seconds:.0} s")))
            }
            Event::Restarting { file } => {
                tell(Pulling::Note(&format!("what was here of {file} is damaged; fetching it anew")))
            }
            _ => tell(Pulling::Idle),
        };
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
