//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod imatrix;
pub(crate) mod inspect;
pub(crate) mod kernels;
pub(crate) mod list;
pub(crate) mod logits;
pub(crate) mod perplexity;
pub(crate) mod pull;
pub(crate) mod quantize;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod template;
pub(crate) mod tokenize;
