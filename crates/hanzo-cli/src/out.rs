//! What goes to the terminal: results to standard output, everything else to standard error.
//!
//! Results fail loudly (a full disk is an error) but for a reader that has gone away. Messages on standard error are best
//! effort: where nobody can read them, there is nobody to tell. Text from models and files is shown to terminals without
//! its control characters, which could otherwise rewrite what the user sees.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};

const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

/// Standard output could not be written.
#[derive(Debug)]
struct StdoutError(io::Error);

impl fmt::Display for StdoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl std::error::Error for StdoutError {}

/// Writes to standard output and flushes.
///
/// # Errors
/// When it cannot be written. See [`is_reader_gone`].
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    bytes_to_stdout(text.as_bytes())
}

/// As [`print`], for what is no text.
///
/// # Errors
/// As [`print`].
pub(crate) fn bytes_to_stdout(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| anyhow::Error::new(StdoutError(e)))
}

/// As [`print`], with a newline at the end.
///
/// # Errors
/// As [`print`].
pub(crate) fn println(text: &str) -> anyhow::Result<()> {
    let mut line = String::with_capacity(text.len() + 1);
    line.push_str(text);
    line.push('\n');
    print(&line)
}

/// Prints JSON, indented where a person reads it.
///
/// # Errors
/// As [`print`].
pub(crate) fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    println(&if to_terminal() { format!("{value:#}") } else { value.to_string() })
}

/// Whether the error is that whoever read standard output has stopped reading.
pub(crate) fn is_reader_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<StdoutError>().is_some_and(|e| e.0.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether the error is that standard output cannot be written, for whatever reason.
pub(crate) fn is_output_error(error: &anyhow::Error) -> bool {
    error.is::<StdoutError>()
}

/// Whether standard output is a terminal.
pub(crate) fn to_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard error is a terminal.
pub(crate) fn errors_to_terminal() -> bool {
    io::stderr().is_terminal()
}

fn colours() -> bool {
    // The convention of no-color.org.
    std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn styled(style: &'static str, on: bool, text: fmt::Arguments<'_>) -> String {
    if on && colours() { format!("{style}{text}{RESET}") } else { text.to_string() }
}

fn stderr_line(line: &str) {
    // Nobody is left to tell.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A message without the control characters that names, templates and other programs' words may have in them.
fn harmless(text: fmt::Arguments<'_>) -> String {
    for_terminal(&text.to_string()).into_owned()
}

/// A line on standard error.
pub(crate) fn note(text: fmt::Arguments<'_>) {
    stderr_line(&harmless(text));
}

/// A line of lesser weight on standard error, dimmed on a terminal.
pub(crate) fn aside(text: fmt::Arguments<'_>) {
    stderr_line(&styled(DIM, errors_to_terminal(), format_args!("{}", harmless(text))));
}

/// A warning on standard error.
pub(crate) fn warning(text: fmt::Arguments<'_>) {
    let word = styled(YELLOW, errors_to_terminal(), format_args!("warning:"));
    stderr_line(&format!("{word} {}", harmless(text)));
}

/// An error on standard error.
pub(crate) fn error(text: fmt::Arguments<'_>) {
    let word = styled(RED, errors_to_terminal(), format_args!("error:"));
    stderr_line(&format!("{word} {}", harmless(text)));
}

/// Dimmed, for standard output if that is a terminal.
pub(crate) fn dim(text: &str) -> String {
    styled(DIM, to_terminal(), format_args!("{text}"))
}

/// Bold, for standard output if that is a terminal.
pub(crate) fn bold(text: &str) -> String {
    styled(BOLD, to_terminal(), format_args!("{text}"))
}

/// The text as a terminal may show it: control characters other than newline and tab become U+FFFD.
pub(crate) fn for_terminal(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if harmless(c) { c } else { char::REPLACEMENT_CHARACTER }).collect())
}

/// A count of bytes as people write it: decimal units, three digits.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n as f64, 1000.0, &[" B", " kB", " MB", " GB", " TB"])
}

/// A count as people write it.
pub(crate) fn count(n: u64) -> String {
    scaled(n as f64, 1000.0, &["", " k", " M", " B", " T"])
}

fn scaled(mut x: f64, step: f64, units: &[&str]) -> String {
    let mut unit = units.first().copied().unwrap_or_default();
    for next in units.iter().skip(1) {
        // 999.95 would be printed as 1000.
        if x < step - 0.05 {
            break;
        }
        x /= step;
        unit = next;
    }
    if unit == units.first().copied().unwrap_or_default() {
        format!("{x}{unit}")
    } else {
        format!("{x:.1}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_where_digits_do() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "1.0 kB");
        assert_eq!(bytes(999_999), "1.0 MB");
        assert_eq!(bytes(98_362_432), "98.4 MB");
        assert_eq!(count(134_515_008), "134.5 M");
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        assert_eq!(for_terminal("a\tb\n"), "a\tb\n");
        assert_eq!(for_terminal("a\x1b[2J\u{9b}b\r"), "a\u{FFFD}[2J\u{FFFD}b\u{FFFD}");
    }
}
