//! Fetching models while the server runs: what a server asks of whoever can. How it is done is another's business.

/// What happens while a model is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulling<'a> {
    /// This one was found, and is fetched.
    Chosen {
        /// Its full name.
        name: &'a str,
    },
    /// So many of its bytes are here.
    Bytes {
        /// Bytes here.
        done: u64,
        /// Of how many.
        total: u64,
    },
    /// Something that a person should know.
    Note(&'a str),
    /// Time passes.
    Idle,
}

/// Why a model was not fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// The name means no model, or several.
    #[error("{0}")]
    Name(String),
    /// There is no such model, or it is not given to this server.
    #[error("{0}")]
    Missing(String),
    /// Anything else: the network, the disk.
    #[error("{0}")]
    Failed(String),
}

/// Fetches models to where the registry finds them.
pub trait Puller: Send + Sync {
    /// Fetches a model, or what is missing of it. Blocks. `tell` hears what happens, a few times a second at least, and ends the
    /// pull by `false`: what came is kept for the next.
    ///
    /// # Errors
    /// Why the model is not here.
    fn pull(&self, name: &str, tell: &mut dyn FnMut(Pulling<'_>) -> bool) -> Result<(), PullError>;
}
