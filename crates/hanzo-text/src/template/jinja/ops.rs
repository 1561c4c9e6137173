//! Operators on values, with Python's meaning.

use std::cmp::Ordering;
use std::sync::Arc;

use super::ast::{BinOp, CmpOp};
use super::budget::Budget;
use super::print::{Text, to_repr, write_str};
use super::value::{Key, Object, Undefined, Value};
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

pub(crate) fn type_error(message: impl Into<String>) -> TemplateError {
    TemplateError::new(Kind::Type, message)
}

pub(crate) fn value_error(message: impl Into<String>) -> TemplateError {
    TemplateError::new(Kind::Value, message)
}

/// Fails if the value is not there.
pub(crate) fn defined(value: &Value) -> TemplateResult<&Value> {
    match value {
        Value::Undefined(undefined) => Err(undefined.error()),
        other => Ok(other),
    }
}

#[derive(Clone, Copy)]
enum Num {
    Int(i128),
    Float(f64),
}

impl Num {
    fn float(self) -> f64 {
        match self {
            Num::Int(i) => i as f64,
            Num::Float(f) => f,
        }
    }
}

fn number(value: &Value) -> Option<Num> {
    match value {
        Value::Bool(b) => Some(Num::Int((*b).into())),
        Value::Int(i) => Some(Num::Int(*i)),
        Value::Float(f) => Some(Num::Float(*f)),
        _ => None,
    }
}

/// The value as an integer, as Python's `__index__` gives it (integers and booleans).
pub(crate) fn as_index(value: &Value) -> Option<i128> {
    match number(value) {
        Some(Num::Int(i)) => Some(i),
        _ => None,
    }
}

fn symbol(op: BinOp) -> &'static str {
    match op {
        BinOp::Add => "+",
        BinOp::Sub => "-",
        BinOp::Mul => "*",
        BinOp::Div => "/",
        BinOp::FloorDiv => "//",
        BinOp::Mod => "%",
        BinOp::Pow => "**",
    }
}

pub(crate) fn arith(op: BinOp, a: &Value, b: &Value, budget: &Budget) -> TemplateResult<Value> {
    defined(a)?;
    if let (BinOp::Mod, Value::Str(format)) = (op, a) {
        return super::format::percent(format, b, budget).map(Value::str);
    }
    defined(b)?;
    if let (Some(x), Some(y)) = (number(a), number(b)) {
        return match (x, y) {
            (Num::Int(x), Num::Int(y)) => int_arith(op, x, y),
            _ => float_arith(op, x.float(), y.float()),
        };
    }
    match (op, a, b) {
        (BinOp::Add, Value::Str(x), Value::Str(y)) => {
            budget.bytes(x.len() + y.len())?;
            Ok(Value::str([&**x, &**y].concat()))
        }
        (BinOp::Add, Value::Str(_), other) => {
            Err(type_error(format!("can only concatenate str (not \"{}\") to str", other.type_name())))
        }
        (BinOp::Add, Value::Seq(x), Value::Seq(y)) if x.tuple == y.tuple => {
            budget.items(x.items.len() + y.items.len())?;
            let items = x.items.iter().chain(&y.items).cloned().collect();
            if x.tuple { Value::tuple(items) } else { Value::list(items) }
        }
        (BinOp::Mul, Value::Str(_) | Value::Seq(_), count) if as_index(count).is_some() => {
            repeat(a, count, budget)
        }
        (BinOp::Mul, count, Value::Str(_) | Value::Seq(_)) if as_index(count).is_some() => {
            repeat(b, count, budget)
        }
        _ => Err(type_error(format!(
            "unsupported operand type(s) for {}: '{}' and '{}'",
            symbol(op),
            a.type_name(),
            b.type_name()
        ))),
    }
}

fn repeat(value: &Value, count: &Value, budget: &Budget) -> TemplateResult<Value> {
    let times = usize::try_from(as_index(count).unwrap_or(0).max(0)).unwrap_or(usize::MAX);
    match value {
        Value::Str(s) => {
            let mut text = Text::new(budget);
            text.repeat(s, if s.is_empty() { 0 } else { times })?;
            Ok(Value::str(text.out))
        }
        Value::Seq(seq) => {
            let times = if seq.items.is_empty() { 0 } else { times };
            budget.items(seq.items.len().saturating_mul(times))?;
            let items = (0..times).flat_map(|_| seq.items.iter().cloned()).collect();
            if seq.tuple { Value::tuple(items) } else { Value::list(items) }
        }
        other => Err(type_error(format!("cannot repeat {}", other.type_name()))),
    }
}

fn int_arith(op: BinOp, a: i128, b: i128) -> TemplateResult<Value> {
    let division = matches!(op, BinOp::Div | BinOp::FloorDiv | BinOp::Mod);
    if division && b == 0 {
        return Err(value_error("division by zero"));
    }
    let result = match op {
        BinOp::Add => a.checked_add(b),
        BinOp::Sub => a.checked_sub(b),
        BinOp::Mul => a.checked_mul(b),
        BinOp::Div => return Ok(Value::Float(a as f64 / b as f64)),
        // Python rounds towards minus infinity, and the remainder has the divisor's sign.
        BinOp::FloorDiv => {
            a.checked_div_euclid(b).map(|q| if b < 0 && a.rem_euclid(b) != 0 { q - 1 } else { q })
        }
        BinOp::Mod => a.checked_rem_euclid(b).map(|r| if b < 0 && r != 0 { r + b } else { r }),
        BinOp::Pow if b < 0 => return float_arith(op, a as f64, b as f64),
        BinOp::Pow => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    result
        .map(Value::Int)
        .ok_or_else(|| value_error(format!("{a} {} {b} is too large an integer", symbol(op))))
}

fn float_arith(op: BinOp, a: f64, b: f64) -> TemplateResult<Value> {
    if b == 0.0 && matches!(op, BinOp::Div | BinOp::FloorDiv | BinOp::Mod) {
        return Err(value_error("float division by zero"));
    }
    Ok(Value::Float(match op {
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => a * b,
        BinOp::Div => a / b,
        BinOp::FloorDiv => (a / b).floor(),
        BinOp::Mod => a - b * (a / b).floor(),
        BinOp::Pow => a.powf(b),
    }))
}

pub(crate) fn negate(value: &Value) -> TemplateResult<Value> {
    match number(defined(value)?) {
        Some(Num::Int(i)) => i.checked_neg().map(Value::Int).ok_or_else(|| value_error("integer overflow")),
        Some(Num::Float(f)) => Ok(Value::Float(-f)),
        None => Err(type_error(format!("bad operand type for unary -: '{}'", value.type_name()))),
    }
}

pub(crate) fn plus(value: &Value) -> TemplateResult<Value> {
    match number(defined(value)?) {
        Some(Num::Int(i)) => Ok(Value::Int(i)),
        Some(Num::Float(f)) => Ok(Value::Float(f)),
        None => Err(type_error(format!("bad operand type for unary +: '{}'", value.type_name()))),
    }
}

pub(crate) fn concat(parts: &[Value], budget: &Budget) -> TemplateResult<Value> {
    let mut text = Text::new(budget);
    for part in parts {
        write_str(part, &mut text)?;
    }
    Ok(Value::str(text.out))
}

pub(crate) fn compare(op: CmpOp, a: &Value, b: &Value, budget: &Budget) -> TemplateResult<bool> {
    Ok(match op {
        CmpOp::Eq => equal(a, b, budget)?,
        CmpOp::Ne => !equal(a, b, budget)?,
        CmpOp::In => contains(b, a, budget)?,
        CmpOp::NotIn => !contains(b, a, budget)?,
        CmpOp::Lt => order(a, b, "<", budget)? == Some(Ordering::Less),
        CmpOp::Gt => order(a, b, ">", budget)? == Some(Ordering::Greater),
        CmpOp::Le => matches!(order(a, b, "<=", budget)?, Some(Ordering::Less | Ordering::Equal)),
        CmpOp::Ge => matches!(order(a, b, ">=", budget)?, Some(Ordering::Greater | Ordering::Equal)),
    })
}

pub(crate) fn equal(a: &Value, b: &Value, budget: &Budget) -> TemplateResult<bool> {
    budget.steps(1)?;
    if let (Some(x), Some(y)) = (number(a), number(b)) {
        return Ok(match (x, y) {
            (Num::Int(x), Num::Int(y)) => x == y,
            _ => x.float() == y.float(),
        });
    }
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(x), Value::Str(y)) => {
            budget.read(if x.len() == y.len() { x.len() } else { 0 })?;
            x == y
        }
        (Value::Seq(x), Value::Seq(y)) => {
            if x.tuple != y.tuple || x.items.len() != y.items.len() {
                return Ok(false);
            }
            for (x, y) in x.items.iter().zip(&y.items) {
                if !equal(x, y, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(x), Value::Dict(y)) => {
            if x.map.len() != y.map.len() {
                return Ok(false);
            }
            for (key, x) in &x.map {
                match y.map.get(key) {
                    Some(y) if equal(x, y, budget)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Iter(x), Value::Iter(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Object(x), Value::Object(y)) => std::rc::Rc::ptr_eq(x, y),
        _ => false,
    })
}

/// Order of two values; `None` for what is neither less nor greater nor equal (NaN).
pub(crate) fn order(a: &Value, b: &Value, op: &str, budget: &Budget) -> TemplateResult<Option<Ordering>> {
    budget.steps(1)?;
    defined(a)?;
    defined(b)?;
    if let (Some(x), Some(y)) = (number(a), number(b)) {
        return Ok(match (x, y) {
            (Num::Int(x), Num::Int(y)) => Some(x.cmp(&y)),
            _ => x.float().partial_cmp(&y.float()),
        });
    }
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => {
            budget.read(x.len().min(y.len()))?;
            Ok(Some(x.cmp(y)))
        }
        (Value::Seq(x), Value::Seq(y)) if x.tuple == y.tuple => {
            for (x, y) in x.items.iter().zip(&y.items) {
                if !equal(x, y, budget)? {
                    return order(x, y, op, budget);
                }
            }
            Ok(Some(x.items.len().cmp(&y.items.len())))
        }
        _ => Err(type_error(format!(
            "'{op}' not supported between instances of '{}' and '{}'",
            a.type_name(),
            b.type_name()
        ))),
    }
}

pub(crate) fn contains(container: &Value, item: &Value, budget: &Budget) -> TemplateResult<bool> {
    match container {
        Value::Str(text) => {
            defined(item)?;
            let Value::Str(part) = item else {
                let message =
                    format!("'in <string>' requires string as left operand, not {}", item.type_name());
                return Err(type_error(message));
            };
            budget.read(text.len())?;
            Ok(text.contains(&**part))
        }
        Value::Dict(dict) => Ok(dict.map.contains_key(&item.to_key()?)),
        Value::Undefined(_) => Ok(false),
        Value::Seq(seq) => any_equal(&seq.items, item, budget),
        Value::Iter(_) => any_equal(&iterate(container, budget)?, item, budget),
        other => Err(type_error(format!("argument of type '{}' is not iterable", other.type_name()))),
    }
}

fn any_equal(items: &[Value], item: &Value, budget: &Budget) -> TemplateResult<bool> {
    for candidate in items {
        if equal(candidate, item, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The elements that a `for` sees.
pub(crate) fn iterate(value: &Value, budget: &Budget) -> TemplateResult<Vec<Value>> {
    match value {
        Value::Seq(seq) => {
            budget.items(seq.items.len())?;
            Ok(seq.items.clone())
        }
        Value::Dict(dict) => {
            budget.items(dict.map.len())?;
            dict.map.keys().map(Value::from_key).collect()
        }
        Value::Str(s) => {
            // A string of one character has its own allocation besides its value.
            let count = s.chars().count();
            budget.items(count.saturating_mul(2))?;
            Ok(s.chars().map(|c| Value::str(c.encode_utf8(&mut [0; 4]) as &str)).collect())
        }
        Value::Iter(iter) => {
            if iter.consumed.get() {
                return Ok(Vec::new());
            }
            budget.items(iter.items.len())?;
            iter.consumed.set(!iter.view);
            Ok(iter.items.clone())
        }
        Value::Undefined(undefined @ Undefined::Forbidden { .. }) => Err(undefined.error()),
        Value::Undefined(_) => Ok(Vec::new()),
        other => Err(type_error(format!("'{}' object is not iterable", other.type_name()))),
    }
}

/// Python's `len()`.
pub(crate) fn length(value: &Value, budget: &Budget) -> TemplateResult<usize> {
    match value {
        Value::Str(s) => {
            budget.read(s.len())?;
            Ok(s.chars().count())
        }
        Value::Seq(seq) => Ok(seq.items.len()),
        Value::Dict(dict) => Ok(dict.map.len()),
        Value::Iter(iter) if iter.view => Ok(iter.items.len()),
        Value::Undefined(undefined @ Undefined::Forbidden { .. }) => Err(undefined.error()),
        Value::Undefined(_) => Ok(0),
        Value::Object(object) => match &**object {
            Object::Loop(state) => Ok(state.items.len()),
            _ => Err(type_error(format!("object of type '{}' has no len()", value.type_name()))),
        },
        other => Err(type_error(format!("object of type '{}' has no len()", other.type_name()))),
    }
}

/// `value[key]`: the element, then (for a name) the attribute, then undefined.
pub(crate) fn item(value: &Value, key: &Value, budget: &Budget) -> TemplateResult<Value> {
    defined(value)?;
    let found = match (value, as_index(key)) {
        (Value::Dict(dict), _) => match key.to_key() {
            Ok(key) => dict.map.get(&key).cloned(),
            Err(_) => None,
        },
        (Value::Seq(seq), Some(i)) => position(i, seq.items.len()).and_then(|i| seq.items.get(i).cloned()),
        (Value::Str(s), Some(i)) => {
            budget.read(s.len())?;
            let index = if i >= 0 { usize::try_from(i).ok() } else { position(i, s.chars().count()) };
            index.and_then(|i| s.chars().nth(i)).map(|c| Value::str(c.encode_utf8(&mut [0; 4]) as &str))
        }
        _ => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    if let Value::Str(name) = key {
        return super::attr::attribute(value, name);
    }
    let key: Arc<str> = to_repr(key, budget)?.into();
    Ok(Value::Undefined(Undefined::Item { owner: value.owner_name(), key }))
}

fn position(index: i128, len: usize) -> Option<usize> {
    let len = len as i128;
    let at = if index < 0 { index + len } else { index };
    usize::try_from(at).ok().filter(|&at| (at as i128) < len)
}

/// `value[start:stop:step]`.
pub(crate) fn slice(value: &Value, bounds: [Option<Value>; 3], budget: &Budget) -> TemplateResult<Value> {
    defined(value)?;
    let bound = |v: &Option<Value>| match v {
        None | Some(Value::None) => Ok(None),
        Some(Value::Undefined(undefined)) => Err(undefined.error()),
        Some(v) => match as_index(v) {
            Some(i) => Ok(Some(i)),
            None => Err(type_error("slice indices must be integers or None")),
        },
    };
    let [start, stop, step] = &bounds;
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(value_error("slice step cannot be zero"));
    }
    match value {
        Value::Str(s) => {
            budget.read(s.len())?;
            if let Some(part) = str_prefix_slice(s, start, stop, step) {
                budget.bytes(part.len())?;
                return Ok(Value::str(part));
            }
            budget.bytes(s.len() * 4)?;
            let chars: Vec<char> = s.chars().collect();
            let picked: String =
                slice_indices(chars.len(), start, stop, step).filter_map(|i| chars.get(i)).collect();
            Ok(Value::str(picked))
        }
        Value::Seq(seq) => {
            budget.items(seq.items.len())?;
            let picked: Vec<Value> = slice_indices(seq.items.len(), start, stop, step)
                .filter_map(|i| seq.items.get(i).cloned())
                .collect();
            if seq.tuple { Value::tuple(picked) } else { Value::list(picked) }
        }
        other => Err(type_error(format!("'{}' object is not subscriptable", other.type_name()))),
    }
}

/// The common case `s[a:b]` with non-negative bounds, without a copy of all characters.
fn str_prefix_slice(s: &str, start: Option<i128>, stop: Option<i128>, step: i128) -> Option<&str> {
    let start = usize::try_from(start.unwrap_or(0)).ok()?;
    let stop = stop.map(usize::try_from).transpose().ok()?;
    if step != 1 {
        return None;
    }
    let offset = |n: usize| s.char_indices().nth(n).map_or(s.len(), |(i, _)| i);
    let from = offset(start);
    let to = stop.map_or(s.len(), offset);
    Some(s.get(from..to).unwrap_or(""))
}

fn slice_indices(
    len: usize,
    start: Option<i128>,
    stop: Option<i128>,
    step: i128,
) -> impl Iterator<Item = usize> {
    let len = len as i128;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |bound: i128| if bound < 0 { (bound.saturating_add(len)).max(low) } else { bound.min(high) };
    let first = start.map_or(if step > 0 { low } else { high }, clamp);
    let end = stop.map_or(if step > 0 { high } else { low }, clamp);
    let mut at = first;
    std::iter::from_fn(move || {
        let inside = if step > 0 { at < end } else { at > end };
        let here = at;
        at = at.saturating_add(step);
        inside.then(|| usize::try_from(here).ok()).flatten()
    })
}

/// A stable merge sort with a comparison that may fail; the standard one may not be given an inconsistent order.
pub(crate) fn merge_sort<T>(
    items: Vec<T>,
    less: &mut impl FnMut(&T, &T) -> TemplateResult<bool>,
) -> TemplateResult<Vec<T>> {
    let mut runs: Vec<Vec<T>> = items.into_iter().map(|item| vec![item]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut rest = runs.into_iter();
        while let Some(left) = rest.next() {
            match rest.next() {
                Some(right) => merged.push(merge(left, right, less)?),
                None => merged.push(left),
            }
        }
        runs = merged;
    }
    Ok(runs.pop().unwrap_or_default())
}

fn merge<T>(
    left: Vec<T>,
    right: Vec<T>,
    less: &mut impl FnMut(&T, &T) -> TemplateResult<bool>,
) -> TemplateResult<Vec<T>> {
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
        let from_right = less(r, l)?;
        out.extend(if from_right { right.next() } else { left.next() });
    }
    out.extend(left);
    out.extend(right);
    Ok(out)
}

/// Sorts the entries of a dict by key, as `json.dumps(sort_keys=True)` does.
pub(crate) fn sort_keys(entries: &mut Vec<(&Key, &Value)>, budget: &Budget) -> TemplateResult<()> {
    let sorted = merge_sort(std::mem::take(entries), &mut |a, b| {
        let (a, b) = (Value::from_key(a.0)?, Value::from_key(b.0)?);
        Ok(order(&a, &b, "<", budget)? == Some(Ordering::Less))
    })?;
    *entries = sorted;
    Ok(())
}
