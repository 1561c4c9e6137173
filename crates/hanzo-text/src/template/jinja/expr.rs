//! Tokens to syntax tree: expressions, with Jinja2's precedence (filters and tests bind tighter than `**`, `~` between
//! `+` and `*`).

use std::sync::Arc;

use super::ast::{Args, BinOp, CmpOp, Expr, ExprKind, Literal, Name, Postfix, PostfixKind};
use super::lexer::Tok;
use super::parser::Parser;
use crate::template::error::TemplateResult;

type Rule<'s> = fn(&mut Parser<'s>) -> TemplateResult<Expr>;

fn expr_at(line: u32, kind: ExprKind) -> Expr {
    Expr { line, kind }
}

impl<'s> Parser<'s> {
    pub(super) fn expr(&mut self) -> TemplateResult<Expr> {
        self.nested(Self::cond)
    }

    /// An expression in which `if` does not belong to the expression (the iterable of a `for`).
    pub(super) fn expr_without_cond(&mut self) -> TemplateResult<Expr> {
        self.nested(Self::or)
    }

    /// An expression, or several with commas between them: a tuple.
    pub(super) fn tuple_expr(&mut self) -> TemplateResult<Expr> {
        self.tuple_of(Self::expr)
    }

    pub(super) fn tuple_of(&mut self, rule: Rule<'s>) -> TemplateResult<Expr> {
        let line = self.line();
        let first = rule(self)?;
        if !self.is_op(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat_op(",") {
            if matches!(self.peek(), Tok::VarEnd | Tok::BlockEnd | Tok::Op(")" | "]" | "=")) {
                break;
            }
            items.push(rule(self)?);
        }
        Ok(expr_at(line, ExprKind::Tuple(items)))
    }

    fn cond(&mut self) -> TemplateResult<Expr> {
        let line = self.line();
        let mut then = self.or()?;
        while self.eat_name("if") {
            let test = self.or()?;
            let otherwise =
                if self.eat_name("else") { Some(Box::new(self.nested(Self::cond)?)) } else { None };
            let closed = otherwise.is_some();
            then = expr_at(line, ExprKind::Cond { test: Box::new(test), then: Box::new(then), otherwise });
            if !closed && self.is_name("if") {
                return Err(self.error("`a if b if c`: an `if` without `else` cannot be followed by another"));
            }
        }
        Ok(then)
    }

    /// Operands of `rule` with `word` between them; a single operand stays as it is.
    fn logical(
        &mut self,
        word: &str,
        rule: Rule<'s>,
        join: fn(Vec<Expr>) -> ExprKind,
    ) -> TemplateResult<Expr> {
        let line = self.line();
        let first = rule(self)?;
        if !self.is_name(word) {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat_name(word) {
            items.push(rule(self)?);
        }
        Ok(expr_at(line, join(items)))
    }

    fn or(&mut self) -> TemplateResult<Expr> {
        self.logical("or", Self::and, ExprKind::Or)
    }

    fn and(&mut self) -> TemplateResult<Expr> {
        self.logical("and", Self::not, ExprKind::And)
    }

    fn not(&mut self) -> TemplateResult<Expr> {
        let line = self.line();
        let mut count = 0usize;
        while self.is_name("not") {
            self.next();
            count += 1;
        }
        let mut value = self.compare()?;
        // `not not x` is the truth of x: two levels say all that any number can.
        let levels = if count == 0 { 0 } else { 2 - count % 2 };
        for _ in 0..levels {
            value = expr_at(line, ExprKind::Not(Box::new(value)));
        }
        Ok(value)
    }

    fn compare(&mut self) -> TemplateResult<Expr> {
        let line = self.line();
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let (op, width) = match self.peek() {
                Tok::Op("==") => (CmpOp::Eq, 1),
                Tok::Op("!=") => (CmpOp::Ne, 1),
                Tok::Op("<") => (CmpOp::Lt, 1),
                Tok::Op("<=") => (CmpOp::Le, 1),
                Tok::Op(">") => (CmpOp::Gt, 1),
                Tok::Op(">=") => (CmpOp::Ge, 1),
                Tok::Name("in") => (CmpOp::In, 1),
                Tok::Name("not") if matches!(self.peek_after(), Tok::Name("in")) => (CmpOp::NotIn, 2),
                _ => break,
            };
            for _ in 0..width {
                self.next();
            }
            rest.push((op, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(expr_at(line, ExprKind::Compare { first: Box::new(first), rest }))
    }

    fn arith(&mut self, ops: &[(&str, BinOp)], rule: Rule<'s>) -> TemplateResult<Expr> {
        let line = self.line();
        let first = rule(self)?;
        let mut rest = Vec::new();
        while let Some((_, op)) = ops.iter().find(|(text, _)| self.is_op(text)) {
            self.next();
            rest.push((*op, rule(self)?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(expr_at(line, ExprKind::Arith { first: Box::new(first), rest }))
    }

    fn sum(&mut self) -> TemplateResult<Expr> {
        self.arith(&[("+", BinOp::Add), ("-", BinOp::Sub)], Self::concat)
    }

    fn concat(&mut self) -> TemplateResult<Expr> {
        let line = self.line();
        let first = self.product()?;
        if !self.is_op("~") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.eat_op("~") {
            items.push(self.product()?);
        }
        Ok(expr_at(line, ExprKind::Concat(items)))
    }

    fn product(&mut self) -> TemplateResult<Expr> {
        let ops = [("*", BinOp::Mul), ("/", BinOp::Div), ("//", BinOp::FloorDiv), ("%", BinOp::Mod)];
        self.arith(&ops, Self::power)
    }

    fn power(&mut self) -> TemplateResult<Expr> {
        self.arith(&[("**", BinOp::Pow)], Self::unary)
    }

    fn unary(&mut self) -> TemplateResult<Expr> {
        let line = self.line();
        let mut signs = Vec::new();
        while self.is_op("-") || self.is_op("+") {
            signs.push(self.is_op("-"));
            self.next();
        }
        let base = self.primary()?;
        let mut value = self.postfix(base, signs.is_empty())?;
        if signs.is_empty() {
            return Ok(value);
        }
        // Of a row of signs only their parity and the first matter.
        let negative = signs.iter().filter(|minus| **minus).count() % 2 == 1;
        let wrap = if negative { ExprKind::Neg } else { ExprKind::Pos };
        value = expr_at(line, wrap(Box::new(value)));
        self.postfix(value, true)
    }

    fn primary(&mut self) -> TemplateResult<Expr> {
        let line = self.line();
        let constant = |value| Ok(expr_at(line, ExprKind::Const(value)));
        match self.peek() {
            Tok::Name("true" | "True") => {
                self.next();
                constant(Literal::Bool(true))
            }
            Tok::Name("false" | "False") => {
                self.next();
                constant(Literal::Bool(false))
            }
            Tok::Name("none" | "None") => {
                self.next();
                constant(Literal::None)
            }
            Tok::Name(_) => {
                let name = self.expect_name()?;
                match &*name {
                    "varargs" => self.uses.varargs = true,
                    "kwargs" => self.uses.kwargs = true,
                    "caller" => self.uses.caller = true,
                    _ => {}
                }
                Ok(expr_at(line, ExprKind::Var(name)))
            }
            Tok::Str(_) => {
                let mut text = String::new();
                // Adjacent strings are one string.
                while let Tok::Str(part) = self.peek() {
                    text.push_str(part);
                    self.next();
                }
                constant(Literal::Str(Arc::from(text)))
            }
            &Tok::Int(i) => {
                self.next();
                constant(Literal::Int(i))
            }
            &Tok::Float(f) => {
                self.next();
                constant(Literal::Float(f))
            }
            Tok::Op("(") => {
                self.next();
                self.nested(|p| p.parenthesis(line))
            }
            Tok::Op("[") => {
                self.next();
                self.nested(|p| {
                    let items = p.items("]", Self::expr)?;
                    Ok(expr_at(line, ExprKind::List(items)))
                })
            }
            Tok::Op("{") => {
                self.next();
                self.nested(|p| {
                    let entries = p.items("}", |p| {
                        let key = p.expr()?;
                        p.expect_op(":")?;
                        Ok((key, p.expr()?))
                    })?;
                    Ok(expr_at(line, ExprKind::Dict(entries)))
                })
            }
            _ => Err(self.unexpected("an expression")),
        }
    }

    fn parenthesis(&mut self, line: u32) -> TemplateResult<Expr> {
        if self.eat_op(")") {
            return Ok(expr_at(line, ExprKind::Tuple(Vec::new())));
        }
        let inner = self.tuple_expr()?;
        self.expect_op(")")?;
        Ok(inner)
    }

    /// Comma-separated items up to the closing bracket `end`; a trailing comma is allowed.
    fn items<T>(
        &mut self,
        end: &str,
        rule: impl Fn(&mut Self) -> TemplateResult<T>,
    ) -> TemplateResult<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat_op(end) {
            if !items.is_empty() {
                self.expect_op(",")?;
                if self.eat_op(end) {
                    break;
                }
            }
            items.push(rule(self)?);
        }
        Ok(items)
    }

    /// Attributes, subscripts and calls; with `filters` also filters and tests, in any order after them.
    fn postfix(&mut self, base: Expr, filters: bool) -> TemplateResult<Expr> {
        let start = base.line;
        let mut ops = Vec::new();
        let mut filtered = false;
        loop {
            let line = self.line();
            let kind = match self.peek() {
                Tok::Op(".") if !filtered => {
                    self.next();
                    match *self.peek() {
                        Tok::Int(index) => {
                            self.next();
                            PostfixKind::Item(expr_at(line, ExprKind::Const(Literal::Int(index))))
                        }
                        _ => PostfixKind::Attr(self.expect_name()?),
                    }
                }
                Tok::Op("[") if !filtered => {
                    self.next();
                    self.nested(Self::subscript)?
                }
                Tok::Op("(") => PostfixKind::Call(self.args()?),
                Tok::Op("|") if filters => {
                    self.next();
                    filtered = true;
                    let (name, args) = self.filter_call()?;
                    PostfixKind::Filter { name, args }
                }
                Tok::Name("is") if filters => {
                    self.next();
                    filtered = true;
                    self.test()?
                }
                _ => break,
            };
            ops.push(Postfix { line, kind });
        }
        if ops.is_empty() {
            return Ok(base);
        }
        Ok(expr_at(start, ExprKind::Postfix { base: Box::new(base), ops }))
    }

    fn subscript(&mut self) -> TemplateResult<PostfixKind> {
        let start = if self.is_op(":") { None } else { Some(self.tuple_expr()?) };
        if !self.eat_op(":") {
            self.expect_op("]")?;
            return match start {
                Some(index) => Ok(PostfixKind::Item(index)),
                None => Err(self.unexpected("a subscript")),
            };
        }
        let stop = if self.is_op(":") || self.is_op("]") { None } else { Some(self.expr()?) };
        let step = if self.eat_op(":") && !self.is_op("]") { Some(self.expr()?) } else { None };
        self.expect_op("]")?;
        Ok(PostfixKind::Slice { start, stop, step })
    }

    /// A filter's or test's name, which may be dotted.
    fn dotted_name(&mut self) -> TemplateResult<Name> {
        let mut name = self.expect_name()?;
        while self.eat_op(".") {
            let part = self.expect_name()?;
            name = self.intern(&format!("{name}.{part}"));
        }
        Ok(name)
    }

    pub(super) fn filter_call(&mut self) -> TemplateResult<(Name, Args)> {
        let name = self.dotted_name()?;
        let args = if self.is_op("(") { self.args()? } else { Args::default() };
        Ok((name, args))
    }

    fn test(&mut self) -> TemplateResult<PostfixKind> {
        let negated = self.eat_name("not");
        let name = self.dotted_name()?;
        let args = match self.peek() {
            Tok::Op("(") => self.args()?,
            Tok::Name("else" | "or" | "and") => Args::default(),
            Tok::Name("is") => return Err(self.error("tests cannot be chained with `is`")),
            Tok::Name("if" | "recursive" | "in" | "not") => Args::default(),
            Tok::Name(_) | Tok::Str(_) | Tok::Int(_) | Tok::Float(_) | Tok::Op("[" | "{") => {
                let base = self.primary()?;
                Args { positional: vec![self.postfix(base, false)?], ..Args::default() }
            }
            _ => Args::default(),
        };
        Ok(PostfixKind::Test { name, args, negated })
    }

    fn args(&mut self) -> TemplateResult<Args> {
        self.expect_op("(")?;
        self.nested(|p| {
            let mut args = Args::default();
            let mut any = false;
            while !p.eat_op(")") {
                if any {
                    p.expect_op(",")?;
                    if p.eat_op(")") {
                        break;
                    }
                }
                any = true;
                p.arg(&mut args)?;
            }
            Ok(args)
        })
    }

    fn arg(&mut self, args: &mut Args) -> TemplateResult<()> {
        if self.eat_op("**") {
            args.named_splat = Some(Box::new(self.expr()?));
            return Ok(());
        }
        if self.eat_op("*") {
            if args.splat.is_some() || !args.named.is_empty() || args.named_splat.is_some() {
                return Err(self.error("invalid call: `*` after a keyword argument"));
            }
            args.splat = Some(Box::new(self.expr()?));
            return Ok(());
        }
        if matches!((self.peek(), self.peek_after()), (Tok::Name(_), Tok::Op("="))) {
            let name = self.expect_name()?;
            self.next();
            let value = self.expr()?;
            args.named.push((name, value));
            return Ok(());
        }
        if !args.named.is_empty() || args.splat.is_some() || args.named_splat.is_some() {
            return Err(self.error("invalid call: a positional argument after a keyword argument"));
        }
        args.positional.push(self.expr()?);
        Ok(())
    }
}
