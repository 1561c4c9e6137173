//! What the user types: a line editor with a history on a terminal, plain lines elsewhere; messages of several lines.

use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, Config, Editor, Helper};

use crate::out;

/// Marks the beginning and the end of a message of several lines.
const FENCE: &str = "\"\"\"";
/// Longest message, in bytes.
const MAX_MESSAGE: usize = 64 << 20;
/// Messages that the history keeps.
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

/// Where messages come from.
pub(super) enum Input {
    /// A terminal, and the file that keeps its history.
    Editor(Box<Editor<Grammar, FileHistory>>, Option<PathBuf>),
    /// Anything else.
    Lines(Box<dyn BufRead>),
}

impl Input {
    /// Standard input. `commands` are completed by Tab.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub(super) fn new(commands: &'static [&'static str]) -> Result<Self> {
        if !std::io::stdin().is_terminal() {
            return Ok(Self::Lines(Box::new(std::io::BufReader::new(std::io::stdin()))));
        }
        // The editor must not write to a file that the replies go to.
        let behavior = if out::to_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder().max_history_size(HISTORY)?.behavior(behavior).build();
        let mut editor = Editor::with_config(config).context("cannot edit lines on this terminal")?;
        editor.set_helper(Some(Grammar { commands }));
        let history = hanzo_hub::home().map(|dir| dir.join("history"));
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
        let text = match self {
            Self::Editor(editor, _) => match editor.readline(">>> ") {
                Ok(text) => text,
                Err(ReadlineError::Interrupted) => return Ok(Entry::Interrupted),
                Err(ReadlineError::Eof) => return Ok(Entry::End),
                Err(error) => return Err(error).context("cannot read the terminal"),
            },
            Self::Lines(reader) => match read_message(reader)? {
                Some(text) => text,
                None => return Ok(Entry::End),
            },
        };
        self.remember(&text);
        Ok(Entry::Message(message_of(&text)))
    }

    /// Puts a message into the history and the history into its file.
    fn remember(&mut self, text: &str) {
        let Self::Editor(editor, path) = self else { return };
        if text.trim().is_empty() || !matches!(editor.add_history_entry(text), Ok(true)) {
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

/// Lines up to the end of a message; what was begun ends with the input. `None` at the end.
fn read_message(reader: &mut dyn BufRead) -> Result<Option<String>> {
    let mut text = String::new();
    loop {
        let mut bytes = Vec::new();
        let room = MAX_MESSAGE.saturating_sub(text.len());
        reader.take(room as u64).read_until(b'\n', &mut bytes).context("cannot read standard input")?;
        if bytes.len() == room {
            anyhow::bail!("the message has more than {MAX_MESSAGE} bytes, which no context holds");
        }
        if bytes.is_empty() {
            // The line break that was put behind the last line is not part of it.
            return Ok(text.pop().map(|_| text));
        }
        let line = std::str::from_utf8(&bytes).context("standard input is not UTF-8")?;
        text.push_str(line.trim_end_matches(['\n', '\r']));
        if is_complete(&text) {
            return Ok(Some(text));
        }
        text.push('\n');
    }
}

/// Whether a message ends here.
fn is_complete(text: &str) -> bool {
    match text.trim_start().strip_prefix(FENCE) {
        Some(rest) => rest.trim_end().ends_with(FENCE),
        None => !text.ends_with('\\'),
    }
}

/// What is meant by what was typed.
fn message_of(text: &str) -> String {
    match text.trim_start().strip_prefix(FENCE) {
        Some(rest) => {
            let rest = rest.trim_end();
            rest.strip_suffix(FENCE).unwrap_or(rest).trim_matches('\n').to_owned()
        }
        None => text.strip_suffix('\\').unwrap_or(text).replace("\\\n", "\n"),
    }
}

/// Tells the line editor where a message ends and what Tab completes.
pub(super) struct Grammar {
    commands: &'static [&'static str],
}

impl Validator for Grammar {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let complete = is_complete(context.input());
        Ok(if complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Grammar {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..position).and_then(|text| text.strip_prefix('/'));
        let fits = |command: &&&str| typed.is_some_and(|typed| command.starts_with(typed));
        Ok((0, self.commands.iter().filter(fits).map(|command| format!("/{command} ")).collect()))
    }
}

impl Hinter for Grammar {
    type Hint = String;
}

impl Highlighter for Grammar {}

impl Helper for Grammar {}

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
        reads("one \"\"\"\n\\\n\nend\\", &["one \"\"\"", "\n", "end"]);
        reads("\"\"\"never ended\nso", &["never ended\nso"]);
    }

    #[test]
    fn what_is_not_text_is_an_error() {
        let mut input = Input::Lines(Box::new(&b"\xff\xfe\n"[..]));
        assert!(input.message().is_err());
    }
}
