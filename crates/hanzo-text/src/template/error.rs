//! What can go wrong with a chat template: where, of which kind, and in words a person can act on.

use std::fmt;

/// What kind of fault a [`TemplateError`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TemplateErrorKind {
    /// There is no template to render.
    Missing,
    /// The source is not a Jinja template.
    Syntax,
    /// The template uses a part of Jinja that chat templates cannot have here (`include`, `do`, a filter that does
    /// not exist, …).
    Unsupported,
    /// A value that the template needs is not there.
    Undefined,
    /// An operation on values that do not support it.
    Type,
    /// A value of the right type that an operation cannot take (division by zero, a range that is too big, …).
    Value,
    /// The template reached for something that the sandbox forbids (`__class__`, `list.append`, …).
    Security,
    /// The template itself refused the conversation with `raise_exception`.
    Raised,
    /// A limit on steps, memory, output, nesting or source length was reached.
    Limit,
    /// The request cannot be rendered at all (a reserved variable name, JSON nested too deep, …).
    Request,
}

/// A chat template that does not compile, or fails on a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    /// The kind of fault.
    pub kind: TemplateErrorKind,
    /// The line of the template, counted from 1; `None` if the fault is not at a place in the template.
    pub line: Option<u32>,
    /// What was wrong, in the terms of the template.
    pub message: String,
}

impl TemplateError {
    pub(crate) fn new(kind: TemplateErrorKind, message: impl Into<String>) -> Self {
        Self { kind, line: None, message: message.into() }
    }

    pub(crate) fn at(kind: TemplateErrorKind, line: u32, message: impl Into<String>) -> Self {
        Self { kind, line: Some(line), message: message.into() }
    }

    /// The same error with a line, unless it already has one.
    pub(crate) fn or_line(mut self, line: u32) -> Self {
        self.line = self.line.or(Some(line));
        self
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.line) {
            (TemplateErrorKind::Raised, Some(line)) => {
                write!(f, "the chat template refused the conversation (line {line}): {}", self.message)
            }
            (_, Some(line)) => write!(f, "chat template, line {line}: {}", self.message),
            (_, None) => write!(f, "chat template: {}", self.message),
        }
    }
}

impl std::error::Error for TemplateError {}

/// Result of compiling or rendering a template.
pub type TemplateResult<T> = Result<T, TemplateError>;
