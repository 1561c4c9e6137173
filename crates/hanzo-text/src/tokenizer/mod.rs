//! Tokenizers.

/// Why a vocabulary is unusable or a text cannot be encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {}
