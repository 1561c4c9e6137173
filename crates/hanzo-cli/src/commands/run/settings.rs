//! How tokens are drawn and when a reply ends: as flags, and as `/set` in a chat.

use anyhow::Result;
use hanzo_engine::{SamplingParams, StopStrings};

use crate::failure::usage;
use crate::session::Settings;

/// The flags.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reply")]
pub(super) struct ReplyFlags {
    /// Temperature; 0 always takes the most likely token
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = 0.8)]
    temp: f32,
    /// Keep the N most likely tokens; 0 keeps all
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 40)]
    top_k: u32,
    /// Keep the most likely tokens that together have this probability; 1 keeps all
    #[arg(long, value_name = "P", allow_negative_numbers = true, default_value_t = 0.95)]
    top_p: f32,
    /// Keep tokens at least P times as likely as the most likely; 0 keeps all
    #[arg(long, value_name = "P", allow_negative_numbers = true, default_value_t = 0.05)]
    min_p: f32,
    /// Penalty on tokens seen lately; 1 is none
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Seed of the draws: the same seed gives the same reply; random by default
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Most tokens of a reply; until the model ends it by default (512 without a chat format)
    #[arg(long, short = 'n', value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// End the reply before this text; may be given several times; \n and \t are understood
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
}

impl ReplyFlags {
    /// The settings that the flags make.
    ///
    /// # Errors
    /// For one that is out of its bounds.
    pub(super) fn settings(&self) -> Result<Settings> {
        let settings = Settings {
            sampling: SamplingParams {
                temperature: self.temp,
                top_k: self.top_k as usize,
                top_p: self.top_p,
                min_p: self.min_p,
                repeat_penalty: self.repeat_penalty,
                ..SamplingParams::default()
            },
            seed: self.seed,
            max_tokens: self.max_tokens.map(|n| n as usize),
            stop: self.stop.iter().map(|s| unescape(s)).collect(),
        };
        check(&settings).map_err(usage)?;
        Ok(settings)
    }
}

/// Names that `/set` knows, with what they take.
pub(super) const NAMES: &[(&str, &str)] = &[
    ("temp", "0 for the most likely token always"),
    ("top-k", "tokens; 0 for all"),
    ("top-p", "0 to 1"),
    ("min-p", "0 to 1"),
    ("repeat-penalty", "1 for none"),
    ("seed", "a number, or random"),
    ("max-tokens", "a number, or none"),
    ("stop", "a text that ends replies, or none"),
];

/// Sets one by its name. On failure nothing has changed.
///
/// # Errors
/// In words.
pub(super) fn set(settings: &mut Settings, name: &str, value: &str) -> Result<(), String> {
    fn parse<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
        value.parse().map_err(|_| format!("{name}: a number is expected, not `{value}`"))
    }
    let mut new = settings.clone();
    match name.strip_prefix("--").unwrap_or(name) {
        "temp" | "temperature" => new.sampling.temperature = parse(name, value)?,
        "top-k" | "top_k" => new.sampling.top_k = parse(name, value)?,
        "top-p" | "top_p" => new.sampling.top_p = parse(name, value)?,
        "min-p" | "min_p" => new.sampling.min_p = parse(name, value)?,
        "repeat-penalty" | "repeat_penalty" => new.sampling.repeat_penalty = parse(name, value)?,
        "seed" => new.seed = if value == "random" { None } else { Some(parse(name, value)?) },
        "max-tokens" | "max_tokens" => {
            new.max_tokens = if value == "none" { None } else { Some(parse(name, value)?) };
            if new.max_tokens == Some(0) {
                return Err("max-tokens: at least 1, or none".to_owned());
            }
        }
        "stop" if value == "none" => new.stop.clear(),
        "stop" => new.stop.push(unescape(value)),
        _ => {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            return Err(format!("there is no setting `{name}`; there are: {}", names.join(", ")));
        }
    }
    check(&new)?;
    *settings = new;
    Ok(())
}

/// All settings, a line each.
pub(super) fn show(settings: &Settings) -> String {
    let s = &settings.sampling;
    let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.to_owned());
    let values = [
        s.temperature.to_string(),
        s.top_k.to_string(),
        s.top_p.to_string(),
        s.min_p.to_string(),
        s.repeat_penalty.to_string(),
        or(settings.seed.map(|n| n.to_string()), "random"),
        or(settings.max_tokens.map(|n| n.to_string()), "none"),
        if settings.stop.is_empty() { "none".to_owned() } else { format!("{:?}", settings.stop) },
    ];
    let lines =
        NAMES.iter().zip(values).map(|((name, hint), value)| format!("  {name:<15} {value:<10} ({hint})"));
    lines.collect::<Vec<_>>().join("\n")
}

fn check(settings: &Settings) -> Result<(), String> {
    settings.sampling.check(usize::MAX).map_err(|e| e.to_string())?;
    StopStrings::new(&settings.stop).map_err(|e| e.to_string())?;
    Ok(())
}

/// `\n`, `\t` and `\\` as the characters that they stand for; other backslashes stay.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = match (c, chars.peek()) {
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some('\\')) => Some('\\'),
            _ => None,
        };
        if escaped.is_some() {
            chars.next();
        }
        out.push(escaped.unwrap_or(c));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings { sampling: SamplingParams::default(), seed: None, max_tokens: None, stop: Vec::new() }
    }

    #[test]
    fn settings_are_set_or_left_alone() {
        let mut s = settings();
        set(&mut s, "temp", "0.5").unwrap();
        set(&mut s, "seed", "7").unwrap();
        set(&mut s, "stop", "\\nUser:").unwrap();
        set(&mut s, "max-tokens", "20").unwrap();
        assert_eq!((s.sampling.temperature, s.seed, s.max_tokens), (0.5, Some(7), Some(20)));
        assert_eq!(s.stop, ["\nUser:"]);
        for (name, value) in
            [("temp", "NaN"), ("temp", "-1"), ("top-p", "2"), ("max-tokens", "0"), ("x", "1"), ("seed", "a")]
        {
            assert!(set(&mut s, name, value).is_err(), "{name} {value}");
        }
        assert_eq!(s.sampling.temperature, 0.5);
        set(&mut s, "seed", "random").unwrap();
        set(&mut s, "stop", "none").unwrap();
        assert_eq!((s.seed, s.stop.len()), (None, 0));
    }

    #[test]
    fn every_setting_is_shown() {
        let text = show(&settings());
        assert_eq!(text.lines().count(), NAMES.len());
        assert!(text.contains("random"), "{text}");
    }

    #[test]
    fn backslashes_that_mean_nothing_stay() {
        assert_eq!(unescape(r"a\nb\\n\d\"), "a\nb\\n\\d\\");
    }
}
