//! The evaluator: expressions and calls.

use super::ast::{Args, Expr, ExprKind, Postfix, PostfixKind};
use super::call::Call;
use super::eval::Evaluator;
use super::ops::{self, iterate, type_error};
use super::value::{Key, Object, Undefined, Value};
use crate::template::error::TemplateResult;

impl<'p> Evaluator<'p> {
    pub(super) fn expr(&mut self, expr: &'p Expr) -> TemplateResult<Value> {
        self.budget.steps(1)?;
        match &expr.kind {
            ExprKind::Const(literal) => Ok(Value::literal(literal)),
            ExprKind::Var(name) => Ok(self.var(name)),
            _ => {
                self.budget.enter()?;
                let value = self.compound(expr).map_err(|e| e.or_line(expr.line))?;
                self.budget.leave();
                Ok(value)
            }
        }
    }

    fn exprs(&mut self, exprs: &'p [Expr]) -> TemplateResult<Vec<Value>> {
        self.budget.items(exprs.len())?;
        exprs.iter().map(|e| self.expr(e)).collect()
    }

    fn compound(&mut self, expr: &'p Expr) -> TemplateResult<Value> {
        Ok(match &expr.kind {
            ExprKind::Const(literal) => Value::literal(literal),
            ExprKind::Var(name) => self.var(name),
            ExprKind::Tuple(items) => Value::tuple(self.exprs(items)?)?,
            ExprKind::List(items) => Value::list(self.exprs(items)?)?,
            ExprKind::Dict(entries) => {
                self.budget.entries(entries.len())?;
                let mut map = indexmap::IndexMap::with_capacity(entries.len());
                for (key, value) in entries {
                    let key = self.expr(key)?.to_key()?;
                    map.insert(key, self.expr(value)?);
                }
                Value::dict(map)?
            }
            ExprKind::Cond { test, then, otherwise } => match (self.expr(test)?.truth(), otherwise) {
                (true, _) => self.expr(then)?,
                (false, Some(otherwise)) => self.expr(otherwise)?,
                (false, None) => Value::Undefined(Undefined::Other(
                    "the inline if-expression evaluated to false and no else section was defined",
                )),
            },
            ExprKind::Or(items) => self.first_with(items, true)?,
            ExprKind::And(items) => self.first_with(items, false)?,
            ExprKind::Not(inner) => Value::Bool(!self.expr(inner)?.truth()),
            ExprKind::Neg(inner) => ops::negate(&self.expr(inner)?)?,
            ExprKind::Pos(inner) => ops::plus(&self.expr(inner)?)?,
            ExprKind::Compare { first, rest } => {
                let mut left = self.expr(first)?;
                for (op, right) in rest {
                    let right = self.expr(right)?;
                    if !ops::compare(*op, &left, &right, &self.budget)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            ExprKind::Arith { first, rest } => {
                let mut value = self.expr(first)?;
                for (op, right) in rest {
                    let right = self.expr(right)?;
                    value = ops::arith(*op, &value, &right, &self.budget)?;
                }
                value
            }
            ExprKind::Concat(items) => {
                let parts = self.exprs(items)?;
                ops::concat(&parts, &self.budget)?
            }
            ExprKind::Postfix { base, ops } => {
                let value = self.expr(base)?;
                self.postfix_chain(value, ops)?
            }
        })
    }

    /// The first value whose truth is `wanted`, or the last.
    fn first_with(&mut self, items: &'p [Expr], wanted: bool) -> TemplateResult<Value> {
        let mut value = Value::Bool(!wanted);
        for item in items {
            value = self.expr(item)?;
            if value.truth() == wanted {
                break;
            }
        }
        Ok(value)
    }

    pub(super) fn postfix_chain(&mut self, base: Value, chain: &'p [Postfix]) -> TemplateResult<Value> {
        let mut value = base;
        for op in chain {
            self.budget.steps(1)?;
            value = self.postfix(value, op, None).map_err(|e| e.or_line(op.line))?;
        }
        Ok(value)
    }

    fn postfix(&mut self, value: Value, op: &'p Postfix, caller: Option<Value>) -> TemplateResult<Value> {
        match &op.kind {
            PostfixKind::Attr(name) => super::attr::attribute(&value, name),
            PostfixKind::Item(key) => {
                let key = self.expr(key)?;
                ops::item(&value, &key, &self.budget)
            }
            PostfixKind::Slice { start, stop, step } => {
                let mut bound = |e: &'p Option<Expr>| e.as_ref().map(|e| self.expr(e)).transpose();
                let bounds = [bound(start)?, bound(stop)?, bound(step)?];
                ops::slice(&value, bounds, &self.budget)
            }
            PostfixKind::Call(args) => {
                let mut call = self.args(args)?;
                if let Some(caller) = caller {
                    call.named.push(("caller".into(), caller));
                }
                self.call(&value, call)
            }
            PostfixKind::Filter { name, args } => {
                let call = self.args(args)?;
                super::filters::apply(name, &value, &call, &self.budget)
            }
            PostfixKind::Test { name, args, negated } => {
                let call = self.args(args)?;
                let holds = super::tests::holds(name, &value, &call, &self.budget)?;
                Ok(Value::Bool(holds != *negated))
            }
        }
    }

    /// A call statement's call: its last operation is the call that gets the block as `caller`.
    pub(super) fn call_with_caller(&mut self, expr: &'p Expr, caller: Value) -> TemplateResult<Value> {
        let ExprKind::Postfix { base, ops } = &expr.kind else {
            return Err(type_error("`call` needs a call"));
        };
        let Some((last, before)) = ops.split_last() else {
            return Err(type_error("`call` needs a call"));
        };
        let base = self.expr(base)?;
        let callee = self.postfix_chain(base, before)?;
        self.postfix(callee, last, Some(caller)).map_err(|e| e.or_line(last.line))
    }

    fn args(&mut self, args: &'p Args) -> TemplateResult<Call> {
        let mut call = Call { positional: self.exprs(&args.positional)?, named: Vec::new() };
        if let Some(splat) = &args.splat {
            let value = self.expr(splat)?;
            call.positional.extend(iterate(&value, &self.budget)?);
        }
        for (name, value) in &args.named {
            let value = self.expr(value)?;
            call.named.push((name.clone(), value));
        }
        if let Some(splat) = &args.named_splat {
            let Value::Dict(dict) = self.expr(splat)? else {
                return Err(type_error("the argument after ** must be a mapping"));
            };
            self.budget.entries(dict.map.len())?;
            for (key, value) in &dict.map {
                let Key::Str(name) = key else {
                    return Err(type_error("keywords must be strings"));
                };
                call.named.push((name.clone(), value.clone()));
            }
        }
        Ok(call)
    }

    fn call(&mut self, callee: &Value, call: Call) -> TemplateResult<Value> {
        let object = match callee {
            Value::Object(object) => object,
            Value::Undefined(undefined) => return Err(undefined.error()),
            other => return Err(type_error(format!("'{}' object is not callable", other.type_name()))),
        };
        match &**object {
            Object::Macro { id, scope, .. } => self.call_macro(*id, *scope, call),
            Object::Function(name) => super::functions::call(name, &call, &self.budget, &self.now),
            Object::Method { receiver, name } => super::methods::call(receiver, name, &call, &self.budget),
            Object::Loop(state) => self.recurse(state, &call),
            Object::Joiner { separator, used } => {
                call.none("joiner")?;
                if used.replace(true) { Ok(separator.clone()) } else { Ok(Value::str("")) }
            }
            Object::Namespace(_) | Object::Cycler { .. } => {
                Err(type_error(format!("'{}' object is not callable", callee.type_name())))
            }
        }
    }
}
