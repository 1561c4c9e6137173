//! The error of the crate: what failed in which half, each half's cases in its own module.

use crate::template::TemplateError;
use crate::tokenizer::TokenizerError;

/// Anything that can go wrong between messages and token ids.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The vocabulary is unusable or a text cannot be encoded with it.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A chat template does not compile or fails on a conversation.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// Result of the crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;
