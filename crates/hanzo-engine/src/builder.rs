//! An engine in a few lines: a model's path, and what is to be other than usual.

use std::path::{Path, PathBuf};

use hanzo_fusion::{Device, KvType, Progress};
use hanzo_gguf::GgufFile;

use crate::engine::{Engine, EngineOptions};
use crate::error::EngineError;
use crate::speculate::Speculation;
use crate::text::ModelText;

/// Where a model is.
#[derive(Debug)]
pub enum ModelSource<'a> {
    /// A GGUF file (of a split one, the first part).
    Path(PathBuf),
    /// An open one.
    File(&'a GgufFile),
}

impl From<&str> for ModelSource<'_> {
    fn from(path: &str) -> Self {
        Self::Path(path.into())
    }
}

impl From<String> for ModelSource<'_> {
    fn from(path: String) -> Self {
        Self::Path(path.into())
    }
}

impl From<&Path> for ModelSource<'_> {
    fn from(path: &Path) -> Self {
        Self::Path(path.into())
    }
}

impl From<PathBuf> for ModelSource<'_> {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl<'a> From<&'a GgufFile> for ModelSource<'a> {
    fn from(file: &'a GgufFile) -> Self {
        Self::File(file)
    }
}

/// Loads a model; see [`Engine::builder`].
pub struct EngineBuilder<'a> {
    model: ModelSource<'a>,
    device: Option<&'a dyn Device>,
    progress: &'a dyn Progress,
    options: EngineOptions,
    #[cfg(feature = "cpu")]
    threads: Option<usize>,
    #[cfg(feature = "cpu")]
    pack_cache: Option<std::path::PathBuf>,
}

impl Engine {
    /// An engine for `model`, a path or an open [`GgufFile`]. What is not said is as in [`EngineOptions`]; tokens that end a
    /// reply are the model's own, and it runs on the CPU.
    ///
    /// ```no_run
    /// use hanzo_engine::{ChatMessage, Engine, SamplingParams};
    ///
    /// # fn main() -> Result<(), hanzo_engine::EngineError> {
    /// let engine = Engine::builder("model.gguf").context(4096).build()?;
    /// for text in engine.chat(&[ChatMessage::user("Why is the sky blue?")], SamplingParams::default())?.texts() {
    ///     print!("{}", text?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder<'a>(model: impl Into<ModelSource<'a>>) -> EngineBuilder<'a> {
        EngineBuilder {
            model: model.into(),
            device: None,
            progress: &(),
            options: EngineOptions::default(),
            #[cfg(feature = "cpu")]
            threads: None,
            #[cfg(feature = "cpu")]
            pack_cache: None,
        }
    }
}

impl<'a> EngineBuilder<'a> {
    /// Runs it on this device.
    #[must_use]
    pub fn device(mut self, device: &'a dyn Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Runs it on so many threads of the CPU, where no device is given.
    #[cfg(feature = "cpu")]
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Keeps packed weights in this folder, where no device is given: the next load of the same file reads them in place of
    /// packing.
    #[cfg(feature = "cpu")]
    #[must_use]
    pub fn pack_cache(mut self, folder: impl Into<std::path::PathBuf>) -> Self {
        self.pack_cache = Some(folder.into());
        self
    }

    /// Tells how far loading has come.
    #[must_use]
    pub fn progress(mut self, progress: &'a dyn Progress) -> Self {
        self.progress = progress;
        self
    }

    /// All options at once; what was said before is forgotten.
    #[must_use]
    pub fn options(mut self, options: EngineOptions) -> Self {
        self.options = options;
        self
    }

    /// Longest sequence, in tokens.
    #[must_use]
    pub fn context(mut self, tokens: usize) -> Self {
        self.options.max_context = Some(tokens);
        self
    }

    /// Bytes for the KV cache.
    #[must_use]
    pub fn kv_memory(mut self, bytes: u64) -> Self {
        self.options.kv_bytes = Some(bytes);
        self
    }

    /// Element type of the KV cache.
    #[must_use]
    pub fn kv_type(mut self, kv_type: KvType) -> Self {
        self.options.kv_type = kv_type;
        self
    }

    /// Sequences that run at once.
    #[must_use]
    pub fn sequences(mut self, n: usize) -> Self {
        self.options.max_sequences = n;
        self
    }

    /// Whether and how tokens are guessed ahead.
    #[must_use]
    pub fn speculation(mut self, speculation: Speculation) -> Self {
        self.options.speculation = speculation;
        self
    }

    /// Loads the model.
    ///
    /// # Errors
    /// [`EngineError`] naming what is wrong with the file or what the device lacks.
    pub fn build(self) -> Result<Engine, EngineError> {
        let opened;
        let file = match &self.model {
            ModelSource::Path(path) => {
                opened = GgufFile::open(path).map_err(hanzo_models::ModelError::from)?;
                &opened
            }
            ModelSource::File(file) => *file,
        };
        let text = ModelText::of(file);
        let mut options = self.options;
        if let (Ok(text), true) = (&text, options.eog.is_empty()) {
            options.eog = text.tokenizer.eog_ids().to_vec();
        }
        #[cfg(feature = "cpu")]
        let cpu;
        let device = match self.device {
            Some(device) => device,
            #[cfg(feature = "cpu")]
            None => {
                let mut config = hanzo_cpu::isa::CpuConfig::from_env().map_err(EngineError::cpu)?;
                config.threads = self.threads.or(config.threads);
                let bare = hanzo_cpu::exec::CpuDevice::new(&config).map_err(EngineError::cpu)?;
                cpu = match &self.pack_cache {
                    Some(folder) => bare.with_pack_cache(folder),
                    None => bare,
                };
                &cpu
            }
            #[cfg(not(feature = "cpu"))]
            None => return Err(EngineError::NoDevice("none was given".to_owned())),
        };
        Engine::load(file, device, options, self.progress).map(|engine| engine.with_text(text))
    }
}
