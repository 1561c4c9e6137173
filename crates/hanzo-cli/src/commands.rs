//! The commands, one file each.

pub(crate) mod logits;
