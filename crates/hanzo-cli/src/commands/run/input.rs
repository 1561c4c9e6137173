//! What the user types: a line editor with a history on a terminal, plain lines elsewhere; messages of several lines.

use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustyline::error::ReadlineError;
use rustyline::{Behavior, Config, DefaultEditor};

use crate::{cache, out};

/// Marks the beginning and the end of a message of several lines.
const FENCE: &str = "\"\"\"";
/// Longest message, in bytes.
const MAX_MESSAGE: usize = 64 << 20;
/// Lines that the history keeps.
const HISTORY: usize = 1000;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A message or a command.
    Message(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

/// Where lines come from.
pub(super) enum Input {
    /// A terminal, and the file that keeps its history.
    Editor(Box<DefaultEditor>, Option<PathBuf>),
    /// Anything else.
    Lines(Box<dyn BufRead>),
}

impl Input {
    /// Standard input.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub(super) fn new() -> Result<Self> {
        if !std::io::stdin().is_terminal() {
            return Ok(Self::Lines(Box::new(std::io::BufReader::new(std::io::stdin()))));
        }
        // The editor must not write to a file that the replies go to.
        let behavior = if out::to_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder()
            .max_history_size(HISTORY)?
            .history_ignore_space(false)
            .behavior(behavior)
            .build();
        let mut editor = DefaultEditor::with_config(config).context("cannot edit lines on this terminal")?;
        let history = cache::home().map(|dir| dir.join("history"));
        if let Some(path) = &history
            && path.exists()
            && let Err(error) = editor.load_history(path)
        {
            out::warning(format_args!("the history {} cannot be read: {error}", path.display()));
        }
        Ok(Self::Editor(Box::new(editor), history))
    }

    /// The next message. `"""` begins one of several lines and ends it; a backslash at the end of a line continues it.
    ///
    /// # Errors
    /// When the input cannot be read, is not UTF-8, or a message is too long.
    pub(super) fn message(&mut self) -> Result<Entry> {
        let first = match self.line(">>> ")? {
            Entry::Message(line) => line,
            other => return Ok(other),
        };
        let mut message = first;
        if let Some(rest) = message.trim_start().strip_prefix(FENCE) {
            let mut text = rest.to_owned();
            loop {
                if let Some(whole) = text.trim_end().strip_suffix(FENCE) {
                    message = whole.trim_matches('\n').to_owned();
                    break;
                }
                match self.line("... ")? {
                    Entry::Message(line) => append(&mut text, &line)?,
                    // What was begun ends with the input.
                    Entry::End => {
                        message = text.trim_matches('\n').to_owned();
                        break;
                    }
                    Entry::Interrupted => return Ok(Entry::Interrupted),
                }
            }
        } else {
            while let Some(begun) = message.strip_suffix('\\') {
                message = begun.to_owned();
                match self.line("... ")? {
                    Entry::Message(line) => append(&mut message, &line)?,
                    Entry::End => break,
                    Entry::Interrupted => return Ok(Entry::Interrupted),
                }
            }
        }
        self.remember(&message);
        Ok(Entry::Message(message))
    }

    fn line(&mut self, prompt: &str) -> Result<Entry> {
        match self {
            Self::Editor(editor, _) => match editor.readline(prompt) {
                Ok(line) => Ok(Entry::Message(line)),
                Err(ReadlineError::Interrupted) => Ok(Entry::Interrupted),
                Err(ReadlineError::Eof) => Ok(Entry::End),
                Err(error) => Err(error).context("cannot read the terminal"),
            },
            Self::Lines(reader) => {
                let mut bytes = Vec::new();
                reader
                    .take(MAX_MESSAGE as u64)
                    .read_until(b'\n', &mut bytes)
                    .context("cannot read standard input")?;
                if bytes.is_empty() {
                    return Ok(Entry::End);
                }
                let mut line = String::from_utf8(bytes).context("standard input is not UTF-8")?;
                line.truncate(line.trim_end_matches(['\n', '\r']).len());
                Ok(Entry::Message(line))
            }
        }
    }

    /// Puts a message into the history and the history into its file.
    fn remember(&mut self, message: &str) {
        let Self::Editor(editor, path) = self else { return };
        if message.trim().is_empty() || !matches!(editor.add_history_entry(message), Ok(true)) {
            return;
        }
        let Some(file) = path.as_ref() else { return };
        let saved = file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::from);
        if let Err(error) = saved.and_then(|()| editor.save_history(file)) {
            out::warning(format_args!("the history {} cannot be kept: {error}", file.display()));
            *path = None;
        }
    }
}

/// Adds a line to a message.
fn append(message: &mut String, line: &str) -> Result<()> {
    if message.len() + line.len() >= MAX_MESSAGE {
        anyhow::bail!("the message has more than {MAX_MESSAGE} bytes, which no context holds");
    }
    message.push('\n');
    message.push_str(line);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &'static str, expected: &[&str]) {
        let mut input = Input::Lines(Box::new(text.as_bytes()));
        let mut messages = Vec::new();
        while let Entry::Message(message) = input.message().unwrap() {
            messages.push(message);
        }
        assert_eq!(messages, expected);
    }

    #[test]
    fn messages_have_one_line_or_several() {
        reads("a\nb\r\n\nc", &["a", "b", "", "c"]);
        reads("\"\"\"one\ntwo\"\"\"\nthree\n", &["one\ntwo", "three"]);
        reads("\"\"\"\none\n\ntwo\n\"\"\"\n", &["one\n\ntwo"]);
        reads("\"\"\"one\"\"\"\n", &["one"]);
        reads("a\\\nb\\\nc\nd\n", &["a\nb\nc", "d"]);
        reads("\"\"\"never ended\nso", &["never ended\nso"]);
    }

    #[test]
    fn what_is_not_text_is_an_error() {
        let mut input = Input::Lines(Box::new(&b"\xff\xfe\n"[..]));
        assert!(input.message().is_err());
    }
}
