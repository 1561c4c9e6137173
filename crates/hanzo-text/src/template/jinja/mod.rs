//! A Jinja2 engine for chat templates, with Python's values and bounded cost.
//!
//! Chat templates are written against Python's Jinja2 in a sandbox, with Python's strings, lists and dicts; a prompt
//! that differs by one byte is a different prompt. They also come out of model files, so they are hostile input: the
//! engine's recursion is bounded by construction, and each rendering has a [`budget`] of steps, bytes and depth.
//! (General template engines give neither: they have their own value semantics, and limits on instructions alone do
//! not bound the parser's stack, the size of one value or the depth of a nested one.)
//!
//! Source → [`lexer`] → [`parser`]/[`expr`] → [`ast`] → [`eval`]/[`eval_expr`], over [`value`]s with [`ops`],
//! [`attr`]ibutes, [`methods`], [`filters`], [`tests`] and [`functions`].

pub(super) mod ast;
mod attr;
pub(super) mod budget;
mod call;
pub(super) mod eval;
mod eval_expr;
mod expr;
mod filters;
mod format;
mod functions;
mod lexer;
mod methods;
mod ops;
mod parser;
pub(super) mod print;
mod seq_filters;
mod tests;
pub(super) mod value;

use super::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// Longest template source. The longest known one has 18 000 bytes.
pub(super) const MAX_SOURCE_BYTES: usize = 256 << 10;

/// Parses a template.
pub(super) fn compile(source: &str) -> TemplateResult<Vec<ast::Stmt>> {
    if source.len() > MAX_SOURCE_BYTES {
        let message =
            format!("the source has {} bytes, more than the {MAX_SOURCE_BYTES} allowed", source.len());
        return Err(TemplateError::new(Kind::Limit, message));
    }
    let source = lexer::normalize(source);
    parser::parse(lexer::tokenize(&source)?)
}
