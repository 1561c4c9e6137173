//! Hyper-parameters: metadata keys under the architecture's name, each read with its bounds.
//!
//! The bounds are generous (no model comes near them) and exist so that products of them cannot overflow and no loop
//! over them can run away.

use std::fmt::Display;
use std::ops::RangeInclusive;

use hanzo_gguf::{Metadata, Value};

use crate::{ModelError, Result};

/// Most transformer layers.
pub(crate) const MAX_LAYERS: u32 = 512;
/// Widest embedding, feed-forward or head row.
pub(crate) const MAX_WIDTH: u32 = 1 << 20;
/// Most heads.
pub(crate) const MAX_HEADS: u32 = 4096;
/// Widest head.
pub(crate) const MAX_HEAD_DIM: u32 = 1024;
/// Most experts.
pub(crate) const MAX_EXPERTS: u32 = 4096;
/// Longest context, in tokens.
pub(crate) const MAX_CONTEXT: u32 = 1 << 28;

/// Reads the keys of one architecture.
pub(crate) struct Hyper<'a> {
    meta: &'a Metadata,
    /// The architecture's name, prefix of its keys.
    pub(crate) architecture: &'static str,
}

impl<'a> Hyper<'a> {
    pub(crate) fn new(meta: &'a Metadata, architecture: &'static str) -> Self {
        Self { meta, architecture }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// A required integer within `range`.
    pub(crate) fn count(&self, name: &str, range: RangeInclusive<u32>) -> Result<usize> {
        let key = self.key(name);
        let value = self.meta.required_u32(&key)?;
        bounded(&key, value, range)
    }

    /// An optional integer within `range`.
    pub(crate) fn opt_count(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<usize>> {
        let key = self.key(name);
        self.meta.get_u32(&key)?.map(|value| bounded(&key, value, range)).transpose()
    }

    /// An integer a layer: one for all, or an array with an element a layer.
    pub(crate) fn per_layer(
        &self,
        name: &str,
        n_layers: usize,
        range: RangeInclusive<u32>,
    ) -> Result<Vec<usize>> {
        let key = self.key(name);
        let Some(Value::Array(array)) = self.meta.get(&key) else {
            return Ok(vec![self.count(name, range)?; n_layers]);
        };
        let values = array.to_u32_vec()?;
        if values.len() < n_layers {
            return Err(hyper(
                &key,
                format!("an array of {}", values.len()),
                format!("an element for each of {n_layers} layers"),
            ));
        }
        values.into_iter().take(n_layers).map(|value| bounded(&key, value, range.clone())).collect()
    }

    /// A required finite float within `range`.
    pub(crate) fn float(&self, name: &str, range: RangeInclusive<f32>) -> Result<f32> {
        let key = self.key(name);
        let value = self.meta.required_f32(&key)?;
        bounded_float(&key, value, range)
    }

    /// An optional finite float within `range`.
    pub(crate) fn opt_float(&self, name: &str, range: RangeInclusive<f32>) -> Result<Option<f32>> {
        let key = self.key(name);
        self.meta.get_f32(&key)?.map(|value| bounded_float(&key, value, range)).transpose()
    }

    /// An optional flag a layer.
    pub(crate) fn opt_flags(&self, name: &str, n_layers: usize) -> Result<Option<Vec<bool>>> {
        let key = self.key(name);
        let Some(value) = self.meta.get(&key) else { return Ok(None) };
        let Value::Array(array) = value else {
            return Err(hyper(&key, "no array".to_owned(), "a flag a layer".to_owned()));
        };
        let flags = array.to_bool_vec()?;
        if flags.len() < n_layers {
            let expected = format!("a flag for each of {n_layers} layers");
            return Err(hyper(&key, format!("an array of {}", flags.len()), expected));
        }
        Ok(Some(flags.into_iter().take(n_layers).collect()))
    }

    /// Whether the key is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.meta.contains(&self.key(name))
    }

    /// An optional string.
    pub(crate) fn opt_str(&self, name: &str) -> Result<Option<&'a str>> {
        Ok(self.meta.get_str(&self.key(name))?)
    }

    /// The fault that `name` has the value `found`.
    pub(crate) fn fault(&self, name: &str, found: impl Display, expected: impl Into<String>) -> ModelError {
        hyper(&self.key(name), found.to_string(), expected.into())
    }
}

fn hyper(key: &str, found: String, expected: String) -> ModelError {
    ModelError::Hyper { key: key.to_owned(), found, expected }
}

fn bounded(key: &str, value: u32, range: RangeInclusive<u32>) -> Result<usize> {
    if range.contains(&value) {
        return Ok(value as usize);
    }
    Err(hyper(key, value.to_string(), format!("{} to {}", range.start(), range.end())))
}

fn bounded_float(key: &str, value: f32, range: RangeInclusive<f32>) -> Result<f32> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(hyper(key, value.to_string(), format!("{} to {}", range.start(), range.end())))
}
