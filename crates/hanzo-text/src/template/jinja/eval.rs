//! The evaluator: statements. Expressions are in [`eval_expr`](super::eval_expr).
//!
//! Scopes live in one arena and refer to their parents by index, so that a macro can see the variables of the place
//! where it was defined, as they are when it is called, without reference cycles. A scope that no macro was defined in
//! is taken from the arena when it ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Expr, ForLoop, MacroDef, Name, Stmt, StmtKind, Target};
use super::budget::Budget;
use super::call::Call;
use super::ops::{defined, iterate, type_error};
use super::print::{Text, write_str};
use super::value::{LoopState, Object, Shape, Undefined, Value};
use crate::template::DateTime;
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// What follows a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

#[derive(Debug, Default)]
struct Scope {
    parent: Option<usize>,
    vars: Vec<(Name, Value)>,
    /// A macro refers to it: it lives to the end of the rendering.
    kept: bool,
}

/// Memory that a scope kept alive is charged with.
const KEPT_SCOPE_BYTES: usize = 256;

pub(crate) struct Evaluator<'p> {
    pub(super) budget: Budget,
    pub(super) now: DateTime,
    scopes: Vec<Scope>,
    pub(super) scope: usize,
    out: String,
    /// Recursive loops met so far, with the scope each stands in.
    recursive: Vec<(&'p ForLoop, usize)>,
    /// Macros defined so far; a macro value refers to one by index.
    macros: Vec<&'p MacroDef>,
}

impl<'p> Evaluator<'p> {
    pub(crate) fn new(budget: Budget, now: DateTime, vars: Vec<(Name, Value)>) -> Self {
        let root = Scope { parent: None, vars, kept: true };
        Self {
            budget,
            now,
            scopes: vec![root],
            scope: 0,
            out: String::new(),
            recursive: Vec::new(),
            macros: Vec::new(),
        }
    }

    /// Renders a template.
    pub(crate) fn render(mut self, body: &'p [Stmt]) -> TemplateResult<String> {
        self.block(body)?;
        Ok(self.out)
    }

    fn block(&mut self, body: &'p [Stmt]) -> TemplateResult<Flow> {
        self.budget.enter()?;
        let mut flow = Flow::Next;
        for stmt in body {
            flow = self.statement(stmt).map_err(|e| e.or_line(stmt.line))?;
            if flow != Flow::Next {
                break;
            }
        }
        self.budget.leave();
        Ok(flow)
    }

    fn statement(&mut self, stmt: &'p Stmt) -> TemplateResult<Flow> {
        self.budget.steps(1)?;
        match &stmt.kind {
            StmtKind::Text(text) => {
                self.budget.bytes(text.len())?;
                self.out.push_str(text);
            }
            StmtKind::Emit(expr) => {
                let value = self.expr(expr)?;
                self.emit(&value)?;
            }
            StmtKind::If { branches, otherwise } => {
                for (test, body) in branches {
                    if self.expr(test)?.truth() {
                        return self.block(body);
                    }
                }
                return self.block(otherwise);
            }
            StmtKind::For(for_loop) => self.for_loop(for_loop)?,
            StmtKind::Set { target, value } => {
                let value = self.expr(value)?;
                self.assign(target, value)?;
            }
            StmtKind::SetBlock { target, filters, body } => {
                let text = self.capture_scoped(body)?;
                let value = self.postfix_chain(Value::str(text), filters)?;
                self.assign(target, value)?;
            }
            StmtKind::With { bindings, body } => {
                let values = bindings
                    .iter()
                    .map(|(target, expr)| Ok((target, self.expr(expr)?)))
                    .collect::<TemplateResult<Vec<_>>>()?;
                let outer = self.push_scope(self.scope);
                for (target, value) in values {
                    self.assign(target, value)?;
                }
                let flow = self.block(body)?;
                self.pop_scope(outer);
                return Ok(flow);
            }
            StmtKind::FilterBlock { filters, body } => {
                let text = self.capture_scoped(body)?;
                let value = self.postfix_chain(Value::str(text), filters)?;
                self.emit(&value)?;
            }
            StmtKind::Macro(def) => {
                let value = self.make_macro(def)?;
                self.set_var(def.name.clone(), value);
            }
            StmtKind::Call { call, body } => {
                let caller = self.make_macro(body)?;
                let value = self.call_with_caller(call, caller)?;
                self.emit(&value)?;
            }
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn emit(&mut self, value: &Value) -> TemplateResult<()> {
        if let Value::Str(s) = value {
            self.budget.bytes(s.len())?;
            self.out.push_str(s);
            return Ok(());
        }
        let mut text = Text::new(&self.budget);
        write_str(value, &mut text)?;
        self.out.push_str(&text.out);
        Ok(())
    }

    /// What `run` prints.
    fn capture(&mut self, run: impl FnOnce(&mut Self) -> TemplateResult<()>) -> TemplateResult<String> {
        let outer = std::mem::take(&mut self.out);
        run(self)?;
        Ok(std::mem::replace(&mut self.out, outer))
    }

    fn capture_scoped(&mut self, body: &'p [Stmt]) -> TemplateResult<String> {
        self.capture(|this| {
            let outer = this.push_scope(this.scope);
            this.block(body)?;
            this.pop_scope(outer);
            Ok(())
        })
    }

    // ---- scopes

    /// Enters a new scope and says which one to come back to.
    fn push_scope(&mut self, parent: usize) -> usize {
        self.scopes.push(Scope { parent: Some(parent), ..Scope::default() });
        std::mem::replace(&mut self.scope, self.scopes.len() - 1)
    }

    fn pop_scope(&mut self, outer: usize) {
        let ended = std::mem::replace(&mut self.scope, outer);
        if ended + 1 == self.scopes.len() && self.scopes.last().is_some_and(|s| !s.kept) {
            self.scopes.pop();
        }
    }

    pub(super) fn set_var(&mut self, name: Name, value: Value) {
        let Some(scope) = self.scopes.get_mut(self.scope) else { return };
        match scope.vars.iter_mut().find(|(known, _)| same_name(known, &name)) {
            Some((_, slot)) => *slot = value,
            None => scope.vars.push((name, value)),
        }
    }

    /// The variable, or a built-in of that name, or undefined.
    pub(super) fn var(&self, name: &Name) -> Value {
        let mut at = Some(self.scope);
        while let Some(scope) = at.and_then(|i| self.scopes.get(i)) {
            if let Some((_, value)) = scope.vars.iter().rev().find(|(known, _)| same_name(known, name)) {
                return value.clone();
            }
            at = scope.parent;
        }
        super::functions::global(name).unwrap_or_else(|| Value::Undefined(Undefined::Name(name.clone())))
    }

    fn assign(&mut self, target: &Target, value: Value) -> TemplateResult<()> {
        match target {
            Target::Name(name) => self.set_var(name.clone(), value),
            Target::Attr(name, attr) => {
                let owner = self.var(name);
                match defined(&owner)? {
                    Value::Object(object) if matches!(**object, Object::Namespace(_)) => {
                        if let Object::Namespace(ns) = &**object {
                            ns.set(attr.clone(), value)?;
                        }
                    }
                    _ => return Err(type_error("cannot assign attribute on non-namespace object")),
                }
            }
            Target::Tuple(targets) => {
                let items = iterate(defined(&value)?, &self.budget)?;
                if items.len() != targets.len() {
                    let message = format!("expected {} values to unpack, got {}", targets.len(), items.len());
                    return Err(TemplateError::new(Kind::Value, message));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item)?;
                }
            }
        }
        Ok(())
    }

    // ---- loops

    fn for_loop(&mut self, source: &'p ForLoop) -> TemplateResult<()> {
        let iterable = self.expr(&source.iter)?;
        let recursive = source.recursive.then(|| {
            self.recursive.push((source, self.scope));
            self.recursive.len() - 1
        });
        let result = self.run_loop(source, &iterable, recursive, 0);
        if recursive.is_some() {
            self.recursive.pop();
        }
        result.map_err(|e| e.or_line(source.iter.line))
    }

    fn run_loop(
        &mut self,
        source: &'p ForLoop,
        iterable: &Value,
        recursive: Option<usize>,
        depth0: usize,
    ) -> TemplateResult<()> {
        let mut items = iterate(iterable, &self.budget)?;
        if let Some(filter) = &source.filter {
            let mut kept = Vec::new();
            for item in items {
                let outer = self.push_scope(self.scope);
                self.assign(&source.target, item.clone())?;
                if self.expr(filter)?.truth() {
                    kept.push(item);
                }
                self.pop_scope(outer);
            }
            items = kept;
        }
        if items.is_empty() {
            let outer = self.push_scope(self.scope);
            self.block(&source.otherwise)?;
            self.pop_scope(outer);
            return Ok(());
        }
        let shape = Shape::around(&items)?;
        let items = Rc::new(items);
        let state = Rc::new(Object::Loop(LoopState {
            items: items.clone(),
            index: Cell::new(0),
            depth0,
            recursive,
            changed: RefCell::new(None),
            shape,
        }));
        let loop_name: Name = Arc::from("loop");
        for (index, item) in items.iter().enumerate() {
            self.budget.steps(1)?;
            if let Object::Loop(state) = &*state {
                state.index.set(index);
            }
            let outer = self.push_scope(self.scope);
            self.set_var(loop_name.clone(), Value::Object(state.clone()));
            self.assign(&source.target, item.clone())?;
            let flow = self.block(&source.body)?;
            self.pop_scope(outer);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    /// `loop(iterable)` in a recursive loop: the text of the loop over other items.
    pub(super) fn recurse(&mut self, state: &LoopState, call: &Call) -> TemplateResult<Value> {
        let [iterable] = call.bind("loop", ["iterable"])?;
        let iterable = super::call::required(iterable, "loop", "iterable")?.clone();
        let Some(&(source, scope)) = state.recursive.and_then(|i| self.recursive.get(i)) else {
            return Err(type_error("loop() can only be called in a loop marked as recursive"));
        };
        self.budget.enter()?;
        let here = std::mem::replace(&mut self.scope, scope);
        let text =
            self.capture(|this| this.run_loop(source, &iterable, state.recursive, state.depth0 + 1))?;
        self.scope = here;
        self.budget.leave();
        Ok(Value::str(text))
    }

    // ---- macros

    fn make_macro(&mut self, def: &'p MacroDef) -> TemplateResult<Value> {
        let mut at = Some(self.scope);
        while let Some(scope) = at.and_then(|i| self.scopes.get_mut(i)).filter(|s| !s.kept) {
            self.budget.bytes(KEPT_SCOPE_BYTES)?;
            scope.kept = true;
            at = scope.parent;
        }
        self.budget.bytes(KEPT_SCOPE_BYTES)?;
        let known = self.macros.iter().position(|m| std::ptr::eq(*m, def));
        let id = known.unwrap_or_else(|| {
            self.macros.push(def);
            self.macros.len() - 1
        });
        Ok(Value::object(Object::Macro { name: def.name.clone(), id, scope: self.scope }))
    }

    pub(super) fn call_macro(&mut self, id: usize, scope: usize, call: Call) -> TemplateResult<Value> {
        let Some(&def) = self.macros.get(id) else {
            return Err(type_error("the macro does not belong to this rendering"));
        };
        let name = &def.name;
        let mut surplus = call.positional.len().saturating_sub(def.params.len());
        let mut named = call.named;
        let outer = self.push_scope(scope);
        self.budget.enter()?;
        let mut positional = call.positional.into_iter();
        let mut missing: Vec<(&'p Name, Option<&'p Expr>)> = Vec::new();
        for (param, default) in &def.params {
            let by_name = named.iter().position(|(n, _)| same_name(n, param)).map(|i| named.remove(i).1);
            match (positional.next(), by_name) {
                (Some(_), Some(_)) => {
                    return Err(type_error(format!("macro '{name}' got two values for '{param}'")));
                }
                (Some(value), None) | (None, Some(value)) => self.set_var(param.clone(), value),
                (None, None) => missing.push((param, default.as_ref())),
            }
        }
        for (param, default) in missing {
            let value = match default {
                Some(expr) => self.expr(expr)?,
                None => Value::Undefined(Undefined::Name(param.clone())),
            };
            self.set_var(param.clone(), value);
        }
        if def.uses.caller {
            let caller = named.iter().position(|(n, _)| &**n == "caller").map(|i| named.remove(i).1);
            let caller = caller.unwrap_or(Value::Undefined(Undefined::Other("No caller defined")));
            self.set_var(Arc::from("caller"), caller);
        }
        if def.uses.varargs {
            let rest = Value::tuple(positional.collect())?;
            self.set_var(Arc::from("varargs"), rest);
            surplus = 0;
        }
        if def.uses.kwargs {
            let rest = std::mem::take(&mut named)
                .into_iter()
                .map(|(name, value)| (super::value::Key::Str(name), value))
                .collect();
            self.set_var(Arc::from("kwargs"), Value::dict(rest)?);
        }
        if surplus > 0 {
            let most = def.params.len();
            return Err(type_error(format!("macro '{name}' takes not more than {most} argument(s)")));
        }
        if let Some((unknown, _)) = named.first() {
            return Err(type_error(format!("macro '{name}' takes no keyword argument '{unknown}'")));
        }
        let text = self.capture(|this| this.block(&def.body).map(|_| ()))?;
        self.budget.leave();
        self.pop_scope(outer);
        Ok(Value::str(text))
    }
}

pub(super) fn same_name(a: &Name, b: &Name) -> bool {
    Arc::ptr_eq(a, b) || a == b
}
