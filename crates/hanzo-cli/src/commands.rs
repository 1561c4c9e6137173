//! The commands, one file each.

pub(crate) mod logits;
pub(crate) mod template;
pub(crate) mod tokenize;
