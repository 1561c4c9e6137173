//! The CPU as a device, as the options and the environment say.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::builder::{OsStringValueParser, TypedValueParser};
use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;

use crate::failure::usage;

/// What `--pack-cache` without a folder means.
pub(crate) const USUAL: &str = "default";

/// Where packed weights are kept: `--pack-cache[=DIR]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PackCache {
    /// `packed` in the folder of the program's own files.
    Usual,
    /// This folder.
    Folder(PathBuf),
}

impl PackCache {
    fn folder(&self) -> Result<PathBuf> {
        match self {
            Self::Folder(folder) => Ok(folder.clone()),
            Self::Usual => hanzo_hub::home().map(|home| home.join("packed")).ok_or_else(|| {
                usage("--pack-cache: the environment names no home to keep packed weights in; give a folder")
            }),
        }
    }
}

/// Reads the value of `--pack-cache`.
///
/// # Errors
/// For an empty one.
fn parse_pack_cache(text: OsString) -> Result<PackCache, String> {
    if text.is_empty() {
        Err("the folder has no name".to_owned())
    } else if text == USUAL {
        Ok(PackCache::Usual)
    } else {
        Ok(PackCache::Folder(text.into()))
    }
}

/// The parser of `--pack-cache`'s value: any name that the system can have.
pub(crate) fn pack_cache_parser() -> impl TypedValueParser<Value = PackCache> {
    OsStringValueParser::new().try_map(parse_pack_cache)
}

/// The CPU with so many threads (one a core by default), which keeps packed weights where it is told to.
///
/// # Errors
/// What the environment asks for and the machine lacks; no place for the cache.
pub(crate) fn cpu(threads: Option<usize>, pack_cache: Option<&PackCache>) -> Result<CpuDevice> {
    let mut config = CpuConfig::from_env()?;
    config.threads = threads.or(config.threads);
    let device = CpuDevice::new(&config)?;
    let Some(cache) = pack_cache else { return Ok(device) };
    // Absolute, so that messages and a later change of folder leave no doubt.
    let folder = cache.folder()?;
    let folder =
        std::path::absolute(&folder).with_context(|| format!("--pack-cache={}", folder.display()))?;
    Ok(device.with_pack_cache(&folder))
}
