//! Settings of single models: a TOML file with a table a model, by the name that `hanzo list` shows or an alias.
//!
//! ```toml
//! ["Qwen/Qwen3-0.6B-GGUF:Q8_0"]
//! alias = ["small"]
//! ctx = 4096
//! kv_type = "int8"
//! keep_alive = "10m"
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use hanzo_server::LoadSettings;
use hanzo_text::parse::Family;
use serde::Deserialize;

use crate::commands::run::Kv;

/// What a table may say; what it does not say is as on the command line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelSettings {
    /// What else requests may call the model.
    #[serde(default)]
    pub(super) alias: Vec<String>,
    ctx: Option<u32>,
    kv_tokens: Option<u32>,
    kv_type: Option<String>,
    chat_template: Option<PathBuf>,
    output_format: Option<String>,
    parallel: Option<u32>,
    queue: Option<u32>,
    /// Idle time after which the model is unloaded; 0 keeps it.
    pub(super) keep_alive: Option<Seconds>,
}

/// A time: `90`, `90s`, `10m`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "TimeText")]
pub(super) struct Seconds(pub(super) u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum TimeText {
    Number(u64),
    Text(String),
}

impl TryFrom<TimeText> for Seconds {
    type Error = anyhow::Error;

    fn try_from(text: TimeText) -> Result<Self> {
        match text {
            TimeText::Number(seconds) => Ok(Self(seconds)),
            TimeText::Text(text) => text.parse(),
        }
    }
}

impl std::str::FromStr for Seconds {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match text.get(digits.len()..).unwrap_or_default() {
            "" | "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => bail!("`{text}` is no time, such as 90s, 10m, 2h"),
        };
        let n: u64 = digits.parse().with_context(|| format!("`{text}` is no time, such as 90s, 10m, 2h"))?;
        n.checked_mul(unit).map(Self).with_context(|| format!("`{text}` is too long"))
    }
}

impl ModelSettings {
    /// The time as the server takes it: 0 is for ever.
    pub(super) fn keep(time: Seconds) -> Option<Duration> {
        (time.0 > 0).then(|| Duration::from_secs(time.0))
    }

    /// Puts what is said here into `settings`.
    ///
    /// # Errors
    /// A value that makes no sense, or a template that cannot be read.
    pub(super) fn apply(&self, settings: &mut LoadSettings) -> Result<()> {
        if let Some(ctx) = self.ctx {
            ensure!((2..=1 << 24).contains(&ctx), "ctx is {ctx}; 2 to 16777216 is possible");
            settings.context = Some(ctx as usize);
        }
        if let Some(tokens) = self.kv_tokens {
            ensure!(tokens >= 16, "kv_tokens is {tokens}; 16 at least");
            settings.kv_tokens = Some(tokens as usize);
        }
        if let Some(name) = &self.kv_type {
            let kv = Kv::from_str(name, true)
                .map_err(|_| anyhow::anyhow!("kv_type is `{name}`; f16, int8, f32"))?;
            settings.kv_type = kv.into();
        }
        if let Some(path) = &self.chat_template {
            settings.template = Some(crate::commands::template::read(path)?);
        }
        if let Some(name) = &self.output_format {
            let family: Family =
                name.parse().map_err(|error| anyhow::anyhow!("output_format is `{name}`: {error}"))?;
            settings.family = Some(family);
        }
        if let Some(n) = self.parallel {
            ensure!((1..=4096).contains(&n), "parallel is {n}; 1 to 4096 is possible");
            settings.max_sequences = n as usize;
        }
        if let Some(n) = self.queue {
            ensure!((1..=1 << 20).contains(&n), "queue is {n}; 1 to 1048576 is possible");
            settings.max_waiting = n as usize;
        }
        Ok(())
    }
}

/// All tables of a file.
#[derive(Debug, Default)]
pub(super) struct SettingsFile {
    models: BTreeMap<String, ModelSettings>,
    none: ModelSettings,
}

impl SettingsFile {
    /// Reads a file.
    ///
    /// # Errors
    /// What is no TOML, a key that is not known, a value that makes no sense.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = crate::commands::template::read(path)?;
        Self::parse(&text).with_context(|| format!("{} cannot be used", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let models: BTreeMap<String, ModelSettings> = toml::from_str(text)?;
        for (name, settings) in &models {
            settings.apply(&mut LoadSettings::default()).with_context(|| format!("[\"{name}\"]"))?;
        }
        Ok(Self { models, none: ModelSettings::default() })
    }

    /// What is said of a model.
    pub(super) fn of(&self, name: &str) -> &ModelSettings {
        let same = |(known, _): &(&String, &ModelSettings)| known.eq_ignore_ascii_case(name);
        self.models.iter().find(same).map_or(&self.none, |(_, settings)| settings)
    }

    /// The model that has this alias.
    pub(super) fn named(&self, alias: &str) -> Option<&str> {
        let has =
            |settings: &ModelSettings| settings.alias.iter().any(|known| known.eq_ignore_ascii_case(alias));
        self.models.iter().find(|(_, settings)| has(settings)).map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_a_model() {
        let text = "[\"a/b:Q8_0\"]\nalias = [\"small\"]\nctx = 4096\nkv_type = \"int8\"\nkeep_alive = \"10m\"\n[c]\nkeep_alive = 0\n";
        let file = SettingsFile::parse(text).unwrap();
        assert_eq!(file.named("SMALL"), Some("a/b:Q8_0"));
        let mut settings = LoadSettings::default();
        file.of("A/B:q8_0").apply(&mut settings).unwrap();
        assert_eq!((settings.context, settings.kv_type), (Some(4096), hanzo_fusion::KvType::Int8));
        assert_eq!(
            file.of("a/b:Q8_0").keep_alive.and_then(ModelSettings::keep),
            Some(Duration::from_secs(600))
        );
        assert_eq!(file.of("c").keep_alive.map(ModelSettings::keep), Some(None));
        assert_eq!(file.of("d").keep_alive, None);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, part) in [
            ("[a]\nctx = 0\n", "ctx is 0"),
            ("[a]\nctxx = 1\n", "ctxx"),
            ("[a]\nkv_type = \"q4\"\n", "int8"),
            ("[a]\nkeep_alive = \"soon\"\n", "soon"),
            ("[a]\noutput_format = \"nothing\"\n", "nothing"),
            ("[a]\n[a]\n", "duplicate"),
            ("a = 1\n", "a"),
        ] {
            let error = format!("{:#}", SettingsFile::parse(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn times_are_read() {
        assert_eq!("2h".parse::<Seconds>().unwrap(), Seconds(7200));
        assert!("".parse::<Seconds>().is_err() && "1d".parse::<Seconds>().is_err());
    }
}
