//! Global functions: Jinja2's, and the two that chat templates are given besides.

use indexmap::IndexMap;
use std::cell::Cell;

use super::budget::Budget;
use super::call::{Call, int_or, required, str_or};
use super::ops::{iterate, type_error, value_error};
use super::print::to_str;
use super::value::{Key, Object, Value};
use crate::template::DateTime;
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// Longest `range`, as in Jinja2's sandbox.
const MAX_RANGE: i128 = 100_000;

const GLOBALS: [&str; 7] =
    ["range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"];

/// The global function of that name.
pub(super) fn global(name: &str) -> Option<Value> {
    GLOBALS.iter().find(|g| **g == name).map(|g| Value::object(Object::Function(g)))
}

pub(super) fn call(name: &str, call: &Call, budget: &Budget, now: &DateTime) -> TemplateResult<Value> {
    match name {
        "range" => range(call, budget),
        "dict" => Ok(Value::dict(dict(call, budget)?)?),
        "namespace" => {
            let vars = dict(call, budget)?
                .into_iter()
                .map(|(key, value)| match key {
                    Key::Str(name) => Ok((name, value)),
                    _ => Err(type_error("the names in a namespace must be strings")),
                })
                .collect::<TemplateResult<_>>()?;
            Value::namespace(vars)
        }
        "cycler" => {
            if call.positional.is_empty() {
                return Err(type_error("cycler() needs at least one item"));
            }
            Value::list(call.positional.clone())?;
            Ok(Value::object(Object::Cycler { items: call.positional.clone(), at: Cell::new(0) }))
        }
        "joiner" => {
            let [separator] = call.bind("joiner", ["sep"])?;
            let separator = separator.cloned().unwrap_or_else(|| Value::str(", "));
            Ok(Value::object(Object::Joiner { separator, used: Cell::new(false) }))
        }
        "raise_exception" => {
            let [message] = call.bind("raise_exception", ["message"])?;
            let message = to_str(required(message, "raise_exception", "message")?, budget)?;
            Err(TemplateError::new(Kind::Raised, message))
        }
        "strftime_now" => {
            let [format] = call.bind("strftime_now", ["format"])?;
            let format = str_or(format, "", "the format of strftime_now()")?;
            budget.bytes(format.len().saturating_mul(8))?;
            Ok(Value::str(now.strftime(format)))
        }
        other => Err(TemplateError::new(Kind::Unsupported, format!("there is no function '{other}'"))),
    }
}

fn range(call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [a, b, c] = call.bind("range", ["start", "stop", "step"])?;
    let a = int_or(Some(required(a, "range", "stop")?), 0, "an argument of range()")?;
    let (start, stop) = match b {
        Some(_) => (a, int_or(b, 0, "an argument of range()")?),
        None => (0, a),
    };
    let step = int_or(c, 1, "an argument of range()")?;
    if step == 0 {
        return Err(value_error("range() arg 3 must not be zero"));
    }
    let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
    let count = span.max(0).saturating_add(step.saturating_abs() - 1) / step.saturating_abs();
    if count > MAX_RANGE {
        let message =
            format!("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE}).");
        return Err(TemplateError::new(Kind::Limit, message));
    }
    budget.items(usize::try_from(count).unwrap_or(usize::MAX))?;
    Value::list((0..count).map(|i| Value::Int(start + i * step)).collect())
}

/// `dict(mapping_or_pairs, **named)`.
fn dict(call: &Call, budget: &Budget) -> TemplateResult<IndexMap<Key, Value>> {
    if call.positional.len() > 1 {
        return Err(type_error("dict expected at most 1 argument"));
    }
    let mut map = match call.positional.first() {
        None => IndexMap::new(),
        Some(Value::Dict(dict)) => {
            budget.entries(dict.map.len())?;
            dict.map.clone()
        }
        Some(pairs) => {
            let mut map = IndexMap::new();
            for pair in iterate(pairs, budget)? {
                budget.entries(1)?;
                match iterate(&pair, budget)?.as_slice() {
                    [key, value] => map.insert(key.to_key()?, value.clone()),
                    _ => return Err(value_error("dict() needs pairs of a key and a value")),
                };
            }
            map
        }
    };
    budget.entries(call.named.len())?;
    map.extend(call.named.iter().map(|(name, value)| (Key::Str(name.clone()), value.clone())));
    Ok(map)
}
