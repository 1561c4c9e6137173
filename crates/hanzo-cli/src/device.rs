//! The CPU as a device, as the options and the environment say.

use std::path::PathBuf;

use anyhow::{Context, Result};
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
pub(crate) fn parse_pack_cache(text: &str) -> Result<PackCache, String> {
    match text {
        "" => Err("the folder has no name".to_owned()),
        USUAL => Ok(PackCache::Usual),
        folder => Ok(PackCache::Folder(folder.into())),
    }
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
