//! Tokens to syntax tree: statements. Expressions are in [`expr`](super::expr).
//!
//! The grammar is Jinja2's, with the extensions that chat templates are rendered with (loop controls and
//! `{% generation %}`), without anything that loads another template.

use std::collections::HashMap;
use std::sync::Arc;

use super::ast::{Expr, ForLoop, MacroDef, Name, Postfix, PostfixKind, Stmt, StmtKind, Target, Uses};
use super::lexer::{Tok, Token};
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// Deepest nesting of blocks and brackets together. Real templates stay below 25.
pub(super) const MAX_NESTING: u32 = 100;

pub(super) struct Parser<'s> {
    tokens: Vec<Token<'s>>,
    at: usize,
    depth: u32,
    in_loop: bool,
    /// What the macro being parsed mentions.
    pub(super) uses: Uses,
    names: HashMap<String, Name>,
}

/// Parses a whole template.
pub(super) fn parse(tokens: Vec<Token<'_>>) -> TemplateResult<Vec<Stmt>> {
    let mut parser =
        Parser { tokens, at: 0, depth: 0, in_loop: false, uses: Uses::default(), names: HashMap::new() };
    let (body, _) = parser.block(&[])?;
    Ok(body)
}

impl<'s> Parser<'s> {
    pub(super) fn peek(&self) -> &Tok<'s> {
        self.tokens.get(self.at).map_or(&Tok::Eof, |t| &t.tok)
    }

    pub(super) fn peek_after(&self) -> &Tok<'s> {
        self.tokens.get(self.at + 1).map_or(&Tok::Eof, |t| &t.tok)
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |t| t.line)
    }

    pub(super) fn next(&mut self) -> Tok<'s> {
        let tok = self.tokens.get_mut(self.at).map_or(Tok::Eof, |t| std::mem::replace(&mut t.tok, Tok::Eof));
        self.at += 1;
        tok
    }

    pub(super) fn error(&self, message: impl Into<String>) -> TemplateError {
        TemplateError::at(Kind::Syntax, self.line(), message)
    }

    pub(super) fn unexpected(&self, expected: &str) -> TemplateError {
        self.error(format!("unexpected {}, expected {expected}", describe(self.peek())))
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Tok::Op(o) if *o == op)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Tok::Name(n) if *n == name)
    }

    pub(super) fn eat_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        self.at += usize::from(found);
        found
    }

    pub(super) fn eat_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect_op(&mut self, op: &str) -> TemplateResult<()> {
        if self.eat_op(op) { Ok(()) } else { Err(self.unexpected(&format!("`{op}`"))) }
    }

    pub(super) fn expect_name(&mut self) -> TemplateResult<Name> {
        match *self.peek() {
            Tok::Name(name) => {
                self.at += 1;
                Ok(self.intern(name))
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    pub(super) fn intern(&mut self, name: &str) -> Name {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let new: Name = Arc::from(name);
        self.names.insert(name.to_owned(), new.clone());
        new
    }

    /// Runs `parse` one level deeper, if that level may exist.
    pub(super) fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> TemplateResult<T>,
    ) -> TemplateResult<T> {
        if self.depth >= MAX_NESTING {
            let message = format!("blocks and brackets are nested more than {MAX_NESTING} deep");
            return Err(TemplateError::at(Kind::Limit, self.line(), message));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn block_end(&mut self) -> TemplateResult<()> {
        match self.peek() {
            Tok::BlockEnd => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.unexpected("the end of the tag (`%}`)")),
        }
    }

    /// Statements up to a tag whose name is one of `ends`, which is consumed (its end is not); up to the end of the
    /// template if `ends` is empty.
    fn block(&mut self, ends: &[&str]) -> TemplateResult<(Vec<Stmt>, Name)> {
        self.nested(|p| p.block_inner(ends))
    }

    fn block_inner(&mut self, ends: &[&str]) -> TemplateResult<(Vec<Stmt>, Name)> {
        let opened_at = self.line();
        let mut body = Vec::new();
        loop {
            let line = self.line();
            match self.next() {
                Tok::Text(text) => body.push(Stmt { line, kind: StmtKind::Text(Arc::from(text)) }),
                Tok::VarBegin => {
                    let expr = self.tuple_expr()?;
                    match self.peek() {
                        Tok::VarEnd => self.at += 1,
                        _ => return Err(self.unexpected("the end of the expression (`}}`)")),
                    }
                    body.push(Stmt { line, kind: StmtKind::Emit(expr) });
                }
                Tok::BlockBegin => {
                    let keyword = self.expect_name()?;
                    if ends.contains(&&*keyword) {
                        return Ok((body, keyword));
                    }
                    match self.statement(&keyword, line)? {
                        Some(kind) => body.push(Stmt { line, kind }),
                        None if ends.is_empty() => {
                            return Err(TemplateError::at(
                                Kind::Syntax,
                                line,
                                format!("unexpected tag `{keyword}`"),
                            ));
                        }
                        None => {
                            let message =
                                format!("unexpected tag `{keyword}`, expected {}", ends.join(" or "));
                            return Err(TemplateError::at(Kind::Syntax, line, message));
                        }
                    }
                }
                _ if ends.is_empty() => return Ok((body, self.intern(""))),
                _ => {
                    let message = format!("a block is never closed: `{}` is missing", ends.join("` or `"));
                    return Err(TemplateError::at(Kind::Syntax, opened_at, message));
                }
            }
        }
    }

    /// The statement that begins with `keyword`; `None` if the keyword only closes or continues a block.
    fn statement(&mut self, keyword: &str, line: u32) -> TemplateResult<Option<StmtKind>> {
        Ok(Some(match keyword {
            "if" => self.if_statement()?,
            "for" => self.for_statement()?,
            "set" => self.set_statement()?,
            "with" => self.with_statement()?,
            "macro" => {
                let name = self.expect_name()?;
                StmtKind::Macro(Box::new(self.macro_rest(name, "endmacro")?))
            }
            "call" => self.call_statement()?,
            "filter" => {
                let filters = self.filter_chain()?;
                self.block_end()?;
                let body = self.body_until("endfilter")?;
                StmtKind::FilterBlock { filters, body }
            }
            // Marks the assistant's tokens for training; when rendering it is only a scope.
            "generation" => {
                self.block_end()?;
                StmtKind::With { bindings: Vec::new(), body: self.body_until("endgeneration")? }
            }
            "break" | "continue" => {
                if !self.in_loop {
                    return Err(TemplateError::at(
                        Kind::Syntax,
                        line,
                        format!("`{keyword}` outside of a loop"),
                    ));
                }
                self.block_end()?;
                if keyword == "break" { StmtKind::Break } else { StmtKind::Continue }
            }
            "else" | "elif" => return Ok(None),
            word if word.starts_with("end") => return Ok(None),
            "include" | "import" | "from" | "extends" | "block" => {
                let message = format!("`{keyword}`: a chat template cannot load or extend other templates");
                return Err(TemplateError::at(Kind::Unsupported, line, message));
            }
            other => {
                return Err(TemplateError::at(Kind::Syntax, line, format!("unknown tag `{other}`")));
            }
        }))
    }

    fn body_until(&mut self, end: &str) -> TemplateResult<Vec<Stmt>> {
        let (body, _) = self.block(&[end])?;
        self.block_end()?;
        Ok(body)
    }

    fn if_statement(&mut self) -> TemplateResult<StmtKind> {
        let mut branches = Vec::new();
        loop {
            let test = self.tuple_expr()?;
            self.block_end()?;
            let (body, end) = self.block(&["elif", "else", "endif"])?;
            branches.push((test, body));
            match &*end {
                "elif" => {}
                "else" => {
                    self.block_end()?;
                    let otherwise = self.body_until("endif")?;
                    return Ok(StmtKind::If { branches, otherwise });
                }
                _ => {
                    self.block_end()?;
                    return Ok(StmtKind::If { branches, otherwise: Vec::new() });
                }
            }
        }
    }

    fn for_statement(&mut self) -> TemplateResult<StmtKind> {
        let target = self.target(false)?;
        if !self.eat_name("in") {
            return Err(self.unexpected("`in`"));
        }
        let iter = self.tuple_of(Self::expr_without_cond)?;
        let filter = if self.eat_name("if") { Some(self.expr()?) } else { None };
        let recursive = self.eat_name("recursive");
        self.block_end()?;
        let outer = std::mem::replace(&mut self.in_loop, true);
        let (body, end) = self.block(&["endfor", "else"])?;
        self.in_loop = outer;
        self.block_end()?;
        let otherwise = if &*end == "else" { self.body_until("endfor")? } else { Vec::new() };
        Ok(StmtKind::For(Box::new(ForLoop { target, iter, filter, recursive, body, otherwise })))
    }

    fn set_statement(&mut self) -> TemplateResult<StmtKind> {
        let target = self.target(true)?;
        if self.eat_op("=") {
            let value = self.tuple_expr()?;
            self.block_end()?;
            return Ok(StmtKind::Set { target, value });
        }
        let filters = if self.eat_op("|") { self.filter_chain()? } else { Vec::new() };
        self.block_end()?;
        let body = self.body_until("endset")?;
        Ok(StmtKind::SetBlock { target, filters, body })
    }

    fn with_statement(&mut self) -> TemplateResult<StmtKind> {
        let mut bindings = Vec::new();
        while !matches!(self.peek(), Tok::BlockEnd) {
            if !bindings.is_empty() {
                self.expect_op(",")?;
            }
            let target = self.single_target(false)?;
            self.expect_op("=")?;
            bindings.push((target, self.expr()?));
        }
        self.block_end()?;
        Ok(StmtKind::With { bindings, body: self.body_until("endwith")? })
    }

    fn call_statement(&mut self) -> TemplateResult<StmtKind> {
        let params = if self.is_op("(") { self.params()? } else { Vec::new() };
        let call = self.expr()?;
        let is_call = matches!(&call.kind, super::ast::ExprKind::Postfix { ops, .. }
            if matches!(ops.last(), Some(Postfix { kind: PostfixKind::Call(_), .. })));
        if !is_call {
            return Err(self.error("`call` needs a call, as in {% call name() %}"));
        }
        let name = self.intern("caller");
        let body = self.macro_body(name, params, "endcall")?;
        Ok(StmtKind::Call { call, body: Box::new(body) })
    }

    fn macro_rest(&mut self, name: Name, end: &str) -> TemplateResult<MacroDef> {
        let params = self.params()?;
        self.macro_body(name, params, end)
    }

    fn macro_body(
        &mut self,
        name: Name,
        params: Vec<(Name, Option<Expr>)>,
        end: &str,
    ) -> TemplateResult<MacroDef> {
        self.block_end()?;
        let outer_loop = std::mem::replace(&mut self.in_loop, false);
        let outer_uses = std::mem::take(&mut self.uses);
        let body = self.body_until(end)?;
        self.in_loop = outer_loop;
        let uses = std::mem::replace(&mut self.uses, outer_uses);
        Ok(MacroDef { name, params, body, uses })
    }

    fn params(&mut self) -> TemplateResult<Vec<(Name, Option<Expr>)>> {
        self.expect_op("(")?;
        let mut params: Vec<(Name, Option<Expr>)> = Vec::new();
        while !self.eat_op(")") {
            if !params.is_empty() {
                self.expect_op(",")?;
                if self.eat_op(")") {
                    break;
                }
            }
            let name = self.assignable()?;
            let default = if self.eat_op("=") { Some(self.expr()?) } else { None };
            if default.is_none() && params.last().is_some_and(|(_, d)| d.is_some()) {
                return Err(
                    self.error(format!("parameter `{name}` without a default after one with a default"))
                );
            }
            params.push((name, default));
        }
        Ok(params)
    }

    fn filter_chain(&mut self) -> TemplateResult<Vec<Postfix>> {
        let mut filters = Vec::new();
        loop {
            let line = self.line();
            let (name, args) = self.filter_call()?;
            filters.push(Postfix { line, kind: PostfixKind::Filter { name, args } });
            if !self.eat_op("|") {
                return Ok(filters);
            }
        }
    }

    /// One or more assignment targets; more than one, or a trailing comma, make a tuple.
    fn target(&mut self, with_attr: bool) -> TemplateResult<Target> {
        let first = self.single_target(with_attr)?;
        if !self.is_op(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat_op(",") {
            if self.is_op("=") || self.is_op(")") || self.is_name("in") {
                break;
            }
            items.push(self.single_target(with_attr)?);
        }
        Ok(Target::Tuple(items))
    }

    fn single_target(&mut self, with_attr: bool) -> TemplateResult<Target> {
        if self.eat_op("(") {
            let inner = self.nested(|p| p.target(with_attr))?;
            self.expect_op(")")?;
            return Ok(inner);
        }
        let name = self.assignable()?;
        if with_attr && self.eat_op(".") {
            return Ok(Target::Attr(name, self.expect_name()?));
        }
        Ok(Target::Name(name))
    }

    fn assignable(&mut self) -> TemplateResult<Name> {
        if let Tok::Name("true" | "false" | "none" | "True" | "False" | "None") = self.peek() {
            return Err(self.error("cannot assign to a constant"));
        }
        self.expect_name()
    }
}

fn describe(tok: &Tok<'_>) -> String {
    match tok {
        Tok::Text(_) => "text".into(),
        Tok::BlockBegin => "`{%`".into(),
        Tok::BlockEnd => "`%}`".into(),
        Tok::VarBegin => "`{{`".into(),
        Tok::VarEnd => "`}}`".into(),
        Tok::Name(name) => format!("`{name}`"),
        Tok::Str(_) => "a string".into(),
        Tok::Int(_) | Tok::Float(_) => "a number".into(),
        Tok::Op(op) => format!("`{op}`"),
        Tok::Eof => "the end of the template".into(),
    }
}
