//! What can go wrong between a name and a file, each with what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that no model can have.
    #[error("`{name}` names no model: {why}")]
    BadName {
        /// What was given.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Several models are meant, or none of those that there are.
    #[error("{what}; {}", there_is(choices))]
    Choose {
        /// What is unclear.
        what: String,
        /// What could be named instead.
        choices: Vec<String>,
    },
    /// A variable of the environment that makes no sense.
    #[error("{name}: {why}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// What is wrong with its value.
        why: String,
    },
    /// The environment leaves no place for models.
    #[error("there is no place for models: HF_HUB_CACHE, HF_HOME or HOME would name one")]
    NoCache,
    /// The network may not be used.
    #[error("`{what}` is not on this machine, and HF_HUB_OFFLINE forbids to fetch it")]
    Offline {
        /// What is missing.
        what: String,
    },
    /// The Hub has no such repository, revision or file, or says so.
    #[error("{endpoint} has no {what}{}", said(message))]
    NotFound {
        /// The Hub's address.
        endpoint: String,
        /// What was asked for.
        what: String,
        /// The Hub's own words.
        message: String,
    },
    /// Private, gated, or a token that is not valid.
    #[error("{endpoint} does not give {what}{}; {}", said(message), token_hint(*with_token))]
    Denied {
        /// The Hub's address.
        endpoint: String,
        /// What was asked for.
        what: String,
        /// The Hub's own words.
        message: String,
        /// Whether a token was sent.
        with_token: bool,
    },
    /// Too many requests, for longer than was waited.
    #[error("{endpoint} asks to wait{}: too many requests{}", wait(*after), with_hint(*with_token))]
    TooManyRequests {
        /// The Hub's address.
        endpoint: String,
        /// How long to wait, where it says so.
        after: Option<Duration>,
        /// Whether a token was sent.
        with_token: bool,
    },
    /// Any other answer that is no success.
    #[error("{url} answers {status}{}", said(message))]
    Status {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
        /// The Hub's own words.
        message: String,
    },
    /// The connection failed.
    #[error("{url}: {why}")]
    Network {
        /// What was asked.
        url: String,
        /// What failed.
        why: String,
    },
    /// An answer that makes no sense, or that would do harm.
    #[error("{url}: {why}")]
    BadAnswer {
        /// What was asked.
        url: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// More or fewer bytes than announced.
    #[error("`{file}` has {got} bytes where {expected} were announced")]
    WrongSize {
        /// The file.
        file: String,
        /// Bytes announced.
        expected: u64,
        /// Bytes found.
        got: u64,
    },
    /// Other bytes than announced.
    #[error(
        "`{file}` is not what the Hub announced: its digest is {got}, expected {expected}; what came was discarded"
    )]
    WrongDigest {
        /// The file.
        file: String,
        /// The digest announced.
        expected: String,
        /// The digest found.
        got: String,
    },
    /// No room for the rest of a file.
    #[error("the disk is full: {} holds {kept} bytes of `{file}` and needs {missing} more; the same pull goes on from there", dir.display())]
    DiskFull {
        /// The file.
        file: String,
        /// Where it was to go.
        dir: PathBuf,
        /// Bytes that are kept.
        kept: u64,
        /// Bytes that had no room yet.
        missing: u64,
    },
    /// The cache cannot be read or written.
    #[error("cannot {action} {}: {source}{}", path.display(), place_hint(source))]
    Cache {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The watcher ended the pull; what came is kept.
    #[error("stopped; what came so far is kept, and the same pull goes on from there")]
    Stopped,
}

impl Error {
    pub(crate) fn cache(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Cache { action, path, source }
    }

    /// Whether trying again may help, and after which wait at least.
    pub(crate) fn transient(&self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { after, .. } => Some(after.unwrap_or_default()),
            Self::Network { .. } => Some(Duration::ZERO),
            Self::Status { status, .. } if *status >= 500 || *status == 408 => Some(Duration::ZERO),
            _ => None,
        }
    }
}

fn there_is(choices: &[String]) -> String {
    if choices.is_empty() { "there is none".to_owned() } else { format!("there is: {}", choices.join(", ")) }
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" (it says: {message})") }
}

fn token_hint(with_token: bool) -> &'static str {
    if with_token {
        "the token (HF_TOKEN, or the token file) gives no access: accept the model's terms on its page, or use another"
    } else {
        "it does not exist, or is private or gated: accept its terms on its page and put a token into HF_TOKEN"
    }
}

fn wait(after: Option<Duration>) -> String {
    after.map_or(String::new(), |after| format!(" {} s", after.as_secs()))
}

fn with_hint(with_token: bool) -> &'static str {
    if with_token { "" } else { "; with a token (HF_TOKEN) more are allowed" }
}

fn place_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (HF_HUB_CACHE can name another place)"
        }
        _ => "",
    }
}
