//! Models by name: what the Hugging Face Hub has, what of it is on this machine, and short names for it.
//!
//! * [`Name`] is what a user types: `ORG/REPO`, `ORG/REPO:QUANT`, an alias.
//! * [`Store`] is what is here: the Hub's cache, in the layout of `huggingface_hub` (which finds what we pull, as we find
//!   what it has), and a folder for files of the user's own.
//! * [`Hub`] fetches: resumed, checked against the file's digest, put in place atomically.
//!
//! What a file contains is left to `hanzo-gguf`; what to do with it, to the callers. Nothing is printed here: a
//! [`Watch`] hears of progress and can end a pull.

#![forbid(unsafe_code)]

mod alias;
mod blob;
mod config;
mod digest;
mod error;
mod http;
mod layout;
mod name;
mod pull;
mod remote;
mod select;
mod store;

pub use alias::{Alias, aliases};
pub use config::{HubConfig, Retry, home};
pub use error::{Error, Result};
pub use name::{Name, Repo, quant_of};
pub use pull::{Event, Hub, Pulled, Watch};
pub use remote::{RemoteFile, Revision};
pub use select::Variant;
pub use store::{Removed, Store, Stored};
