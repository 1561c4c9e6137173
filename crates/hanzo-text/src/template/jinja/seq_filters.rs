//! Jinja2's filters on sequences.

use std::cmp::Ordering;

use super::budget::Budget;
use super::call::{Call, bool_or, int_or, required};
use super::ops::{self, defined, iterate, merge_sort, order, type_error, value_error};
use super::print::{Text, write_str};
use super::value::{Undefined, Value};
use crate::template::error::TemplateResult;

pub(super) const NAMES: &[&str] = &[
    "batch",
    "dictsort",
    "first",
    "groupby",
    "join",
    "last",
    "list",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "slice",
    "sort",
    "sum",
    "unique",
];

pub(super) fn apply(name: &str, value: &Value, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    match name {
        "list" => {
            call.none(name)?;
            Value::list(iterate(value, budget)?)
        }
        "first" | "last" => {
            call.none(name)?;
            if let (true, Value::Iter(iter)) = (name == "last", value)
                && !iter.view
            {
                return Err(type_error(format!("'{}' object is not reversible", iter.type_name)));
            }
            let items = iterate(value, budget)?;
            let found = if name == "first" { items.first() } else { items.last() };
            Ok(found.cloned().unwrap_or(Value::Undefined(Undefined::Other("the sequence is empty"))))
        }
        "join" => join(value, call, budget),
        "map" => map(value, call, budget),
        "select" | "reject" => filter(value, call, name == "select", None, budget),
        "selectattr" | "rejectattr" => {
            let attr = required(call.positional.first(), name, "attribute")?;
            filter(value, &call.skip(1), name == "selectattr", Some(attr), budget)
        }
        "reverse" => {
            call.none(name)?;
            if let Value::Str(s) = value {
                budget.bytes(s.len())?;
                return Ok(Value::str(s.chars().rev().collect::<String>()));
            }
            let mut items = iterate(value, budget)?;
            items.reverse();
            Value::lazy("list_reverseiterator", items)
        }
        "sort" => {
            let [reverse, case, attribute] = call.bind(name, ["reverse", "case_sensitive", "attribute"])?;
            let keyed = keyed(iterate(value, budget)?, attribute, bool_or(case, false), budget)?;
            sorted(keyed, bool_or(reverse, false), budget)
        }
        "dictsort" => dictsort(value, call, budget),
        "unique" => {
            let [case, attribute] = call.bind(name, ["case_sensitive", "attribute"])?;
            let mut seen = std::collections::HashSet::new();
            let mut kept = Vec::new();
            for (key, item) in keyed(iterate(value, budget)?, attribute, bool_or(case, false), budget)? {
                let key = match key.as_slice() {
                    [single] => single.to_key()?,
                    _ => Value::tuple(key)?.to_key()?,
                };
                if seen.insert(key) {
                    kept.push(item);
                }
            }
            Value::generator(kept)
        }
        "min" | "max" => {
            let [case, attribute] = call.bind(name, ["case_sensitive", "attribute"])?;
            let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
            let mut best: Option<(Vec<Value>, Value)> = None;
            for (key, item) in keyed(iterate(value, budget)?, attribute, bool_or(case, false), budget)? {
                let better = match &best {
                    Some((top, _)) => key_order(&key, top, budget)? == Some(wanted),
                    None => true,
                };
                if better {
                    best = Some((key, item));
                }
            }
            Ok(best
                .map_or(Value::Undefined(Undefined::Other("No aggregated item, sequence was empty.")), |b| {
                    b.1
                }))
        }
        "sum" => {
            let [attribute, start] = call.bind(name, ["attribute", "start"])?;
            let mut total = start.cloned().unwrap_or(Value::Int(0));
            for item in iterate(value, budget)? {
                let item = match attribute {
                    Some(path) => by_path(&item, path, None, budget)?,
                    None => item,
                };
                total = ops::arith(super::ast::BinOp::Add, &total, &item, budget)?;
            }
            Ok(total)
        }
        "groupby" => groupby(value, call, budget),
        "batch" => {
            let [size, fill] = call.bind(name, ["linecount", "fill_with"])?;
            let size = positive(required(size, name, "linecount")?, name)?;
            let mut rows = Vec::new();
            for chunk in iterate(value, budget)?.chunks(size) {
                let mut row = chunk.to_vec();
                if let Some(fill) = fill.filter(|v| !matches!(v, Value::None)) {
                    budget.items(size)?;
                    row.resize(size, fill.clone());
                }
                rows.push(Value::list(row)?);
            }
            Value::generator(rows)
        }
        "slice" => {
            let [count, fill] = call.bind(name, ["slices", "fill_with"])?;
            let count = positive(required(count, name, "slices")?, name)?;
            let items = iterate(value, budget)?;
            budget.items(count)?;
            let (size, extra) = (items.len() / count, items.len() % count);
            let mut rest = items.into_iter();
            let mut columns = Vec::new();
            for i in 0..count {
                let mut column: Vec<Value> = rest.by_ref().take(size + usize::from(i < extra)).collect();
                if let Some(fill) = fill.filter(|v| !matches!(v, Value::None) && i >= extra) {
                    column.push(fill.clone());
                }
                columns.push(Value::list(column)?);
            }
            Value::generator(columns)
        }
        other => Err(type_error(format!("No filter named '{other}' found."))),
    }
}

fn positive(value: &Value, name: &str) -> TemplateResult<usize> {
    let size = int_or(Some(value), 0, "the size")?;
    usize::try_from(size)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| value_error(format!("{name}: the size must be positive")))
}

fn join(value: &Value, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [separator, attribute] = call.bind("join", ["d", "attribute"])?;
    let mut text = Text::new(budget);
    for (i, item) in iterate(value, budget)?.iter().enumerate() {
        if let (true, Some(separator)) = (i > 0, separator) {
            write_str(separator, &mut text)?;
        }
        match attribute {
            Some(path) if !matches!(path, Value::None) => {
                write_str(&by_path(item, path, None, budget)?, &mut text)?;
            }
            _ => write_str(item, &mut text)?,
        }
    }
    Ok(Value::str(text.out))
}

fn map(value: &Value, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let items = iterate(value, budget)?;
    let named = |key: &str| call.named.iter().find(|(name, _)| &**name == key).map(|(_, value)| value);
    let mut mapped = Vec::with_capacity(items.len());
    if call.positional.is_empty() {
        let path = required(named("attribute"), "map", "attribute")?;
        for item in items {
            mapped.push(by_path(&item, path, named("default"), budget)?);
        }
        return Value::generator(mapped);
    }
    let name = call.positional.first().and_then(Value::as_str);
    let name = name.ok_or_else(|| type_error("map needs the name of a filter"))?;
    let rest = call.skip(1);
    for item in items {
        budget.steps(1)?;
        mapped.push(super::filters::apply(name, &item, &rest, budget)?);
    }
    Value::generator(mapped)
}

/// Keeps the items whose test (or truth) is `wanted`; the test is on an attribute if one is named.
fn filter(
    value: &Value,
    call: &Call,
    wanted: bool,
    attribute: Option<&Value>,
    budget: &Budget,
) -> TemplateResult<Value> {
    let test = match call.positional.first() {
        Some(Value::Str(name)) => Some(name),
        Some(other) => {
            return Err(type_error(format!("the name of a test is needed, not {}", other.type_name())));
        }
        None => None,
    };
    let rest = call.skip(1);
    let mut kept = Vec::new();
    for item in iterate(value, budget)? {
        budget.steps(1)?;
        let subject = match attribute {
            Some(path) => by_path(&item, path, None, budget)?,
            None => item.clone(),
        };
        let holds = match test {
            Some(name) => super::tests::holds(name, &subject, &rest, budget)?,
            None => subject.truth(),
        };
        if holds == wanted {
            kept.push(item);
        }
    }
    Value::generator(kept)
}

/// `a.b.0` of an item, as the `attribute` arguments mean it.
fn by_path(item: &Value, path: &Value, default: Option<&Value>, budget: &Budget) -> TemplateResult<Value> {
    let mut found = item.clone();
    let parts: Vec<Value> = match path {
        Value::Str(path) => {
            path.split('.').map(|part| part.parse().map_or_else(|_| Value::str(part), Value::Int)).collect()
        }
        other => vec![other.clone()],
    };
    for part in parts {
        budget.steps(1)?;
        found = ops::item(&found, &part, budget)?;
        if let (true, Some(default)) = (found.is_undefined(), default) {
            found = default.clone();
        }
    }
    Ok(found)
}

type Keyed = Vec<(Vec<Value>, Value)>;

/// Each item with what it is compared by: itself, or attributes (several with commas between them).
fn keyed(
    items: Vec<Value>,
    attribute: Option<&Value>,
    case_sensitive: bool,
    budget: &Budget,
) -> TemplateResult<Keyed> {
    let paths: Vec<Value> = match attribute {
        None | Some(Value::None) => Vec::new(),
        Some(Value::Str(paths)) => paths.split(',').map(|p| Value::str(p.trim())).collect(),
        Some(other) => vec![other.clone()],
    };
    let fold = |value: Value| match &value {
        Value::Str(s) if !case_sensitive => Value::str(s.to_lowercase()),
        _ => value,
    };
    items
        .into_iter()
        .map(|item| {
            budget.items(1)?;
            let key = if paths.is_empty() {
                vec![fold(item.clone())]
            } else {
                let parts = paths.iter().map(|path| Ok(fold(by_path(&item, path, None, budget)?)));
                parts.collect::<TemplateResult<_>>()?
            };
            Ok((key, item))
        })
        .collect()
}

fn key_order(a: &[Value], b: &[Value], budget: &Budget) -> TemplateResult<Option<Ordering>> {
    for (a, b) in a.iter().zip(b) {
        match order(a, b, "<", budget)? {
            Some(Ordering::Equal) => {}
            other => return Ok(other),
        }
    }
    Ok(Some(Ordering::Equal))
}

fn sorted(items: Keyed, reverse: bool, budget: &Budget) -> TemplateResult<Value> {
    let sorted = merge_sort(items, &mut |a, b| {
        let order = key_order(&a.0, &b.0, budget)?;
        Ok(order == Some(if reverse { Ordering::Greater } else { Ordering::Less }))
    })?;
    Value::list(sorted.into_iter().map(|(_, item)| item).collect())
}

fn dictsort(value: &Value, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [case, by, reverse] = call.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let Value::Dict(dict) = defined(value)? else {
        return Err(type_error(format!("dictsort needs a mapping, not {}", value.type_name())));
    };
    let by_value = match by.and_then(Value::as_str) {
        None | Some("key") => false,
        Some("value") => true,
        Some(_) => return Err(value_error("You can only sort by either \"key\" or \"value\"")),
    };
    budget.entries(dict.map.len())?;
    let mut pairs = Vec::with_capacity(dict.map.len());
    for (key, value) in &dict.map {
        let key = Value::from_key(key)?;
        let subject = if by_value { value.clone() } else { key.clone() };
        let subject = match &subject {
            Value::Str(s) if !bool_or(case, false) => Value::str(s.to_lowercase()),
            _ => subject,
        };
        pairs.push((vec![subject], Value::tuple(vec![key, value.clone()])?));
    }
    sorted(pairs, bool_or(reverse, false), budget)
}

fn groupby(value: &Value, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [attribute, default, case] = call.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let path = required(attribute, "groupby", "attribute")?;
    let case_sensitive = bool_or(case, false);
    let mut items: Keyed = Vec::new();
    for item in iterate(value, budget)? {
        budget.items(1)?;
        let key = by_path(&item, path, default, budget)?;
        items.push((vec![key], item));
    }
    let fold = |value: &Value| match value {
        Value::Str(s) if !case_sensitive => Value::str(s.to_lowercase()),
        other => other.clone(),
    };
    let folded = |key: &[Value]| key.iter().map(fold).collect::<Vec<_>>();
    let items = merge_sort(items, &mut |a, b| {
        Ok(key_order(&folded(&a.0), &folded(&b.0), budget)? == Some(Ordering::Less))
    })?;
    let mut groups: Vec<(Vec<Value>, Vec<Value>)> = Vec::new();
    for (key, item) in items {
        match groups.last_mut() {
            Some((last, members))
                if key_order(&folded(last), &folded(&key), budget)? == Some(Ordering::Equal) =>
            {
                members.push(item);
            }
            _ => groups.push((key, vec![item])),
        }
    }
    let groups = groups.into_iter().map(|(mut key, members)| {
        let key = key.pop().unwrap_or(Value::None);
        Value::tuple(vec![key, Value::list(members)?])
    });
    Value::list(groups.collect::<TemplateResult<_>>()?)
}
