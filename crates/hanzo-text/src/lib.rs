//! From messages to token ids and back.
//!
//! * [`tokenizer`]: text to ids and ids to text, for every vocabulary kind that GGUF metadata describes.
//! * [`detokenize`]: ids to text as they arrive, never half a character.
//! * [`chat`]: messages as OpenAI's clients send them.
//! * [`template`]: chat templates (Jinja) that turn a conversation into the text a model was trained on.
//! * [`parse`]: what a reply says, reasoning, content and tool calls, told apart while it arrives.
//!
//! The crate knows nothing of models, devices or HTTP; a GGUF file is only one of the places a vocabulary can come
//! from (feature `gguf`).
#![forbid(unsafe_code)]

pub mod chat;
pub mod detokenize;
mod error;
pub mod parse;
pub mod template;
pub mod tokenizer;

pub use error::{Error, Result};
