//! Errors that decide the exit code.
//!
//! 0: done; 1: failed; 2: wrong usage; 130: interrupted. A reader that has gone away (`hanzo inspect … | head`) is no
//! failure: what it wanted, it has.

use std::fmt;
use std::process::ExitCode;

use crate::out;

/// The command line asks for something that cannot be: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The user interrupted: exit code 130, without a message.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The command ran and has said all there is to say, but its answer is "no": exit code 1, without a message.
#[derive(Debug)]
pub(crate) struct Negative;

impl fmt::Display for Negative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("problems were found")
    }
}

impl std::error::Error for Negative {}

/// A usage error as an [`anyhow::Error`].
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// Prints what there is to print, and tells the exit code.
pub(crate) fn exit_code(outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    if out::is_reader_gone(&error) {
        return ExitCode::SUCCESS;
    }
    if error.is::<Interrupted>() {
        return ExitCode::from(130);
    }
    if error.is::<Negative>() {
        return ExitCode::FAILURE;
    }
    out::error(format_args!("{}", chain(&error)));
    if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// The error with its causes, each once: some errors tell their cause themselves.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.ends_with(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow::anyhow!("no disk").context("a.gguf: no disk").context("cannot open");
        assert_eq!(chain(&error), "cannot open: a.gguf: no disk");
    }
}
