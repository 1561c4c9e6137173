//! Chat templates.

/// Why a chat template cannot be compiled or rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {}
