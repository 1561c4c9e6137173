//! Methods of strings, dicts, lists and the loop, with Python's meaning.

use super::ast::Name;
use super::budget::Budget;
use super::call::{Call, bool_or, int_or, required, str_or};
use super::ops::{self, defined, iterate, type_error, value_error};
use super::print::Text;
use super::value::{Object, Value};
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// `receiver.name(args)` for a method that [`attr`](super::attr) gave out.
pub(super) fn call(receiver: &Value, name: &Name, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    match receiver {
        Value::Str(s) => str_method(s, name, call, budget),
        Value::Dict(_) => dict_method(receiver, name, call, budget),
        Value::Seq(seq) => match &**name {
            "count" => {
                let [item] = call.bind("count", ["value"])?;
                let item = required(item, "count", "value")?;
                let mut count = 0;
                for candidate in &seq.items {
                    count += i128::from(ops::equal(candidate, item, budget)?);
                }
                Ok(Value::Int(count))
            }
            "index" => {
                let [item] = call.bind("index", ["value"])?;
                let item = required(item, "index", "value")?;
                for (i, candidate) in seq.items.iter().enumerate() {
                    if ops::equal(candidate, item, budget)? {
                        return Ok(Value::Int(i as i128));
                    }
                }
                Err(value_error("the value is not in the list"))
            }
            "copy" => Ok(receiver.clone()),
            other => Err(unknown(receiver, other)),
        },
        Value::Object(object) => object_method(receiver, object, name, call, budget),
        other => Err(unknown(other, name)),
    }
}

fn unknown(receiver: &Value, name: &str) -> TemplateError {
    let message = format!("the method '{name}' of {} is not supported", receiver.type_name());
    TemplateError::new(Kind::Unsupported, message)
}

fn object_method(
    receiver: &Value,
    object: &Object,
    name: &str,
    call: &Call,
    budget: &Budget,
) -> TemplateResult<Value> {
    match (object, name) {
        (Object::Loop(state), "cycle") => {
            let len = call.positional.len();
            let index = state.index.get().checked_rem(len);
            let item = index.and_then(|i| call.positional.get(i));
            item.cloned().ok_or_else(|| type_error("no items for cycling given"))
        }
        (Object::Loop(state), "changed") => {
            let shape = super::value::Shape::around(&call.positional)?;
            if shape.mutable {
                let message = "loop.changed() of a namespace or loop";
                return Err(TemplateError::new(Kind::Unsupported, message));
            }
            budget.items(call.positional.len())?;
            let new = Value::tuple(call.positional.clone())?;
            let old = state.changed.replace(Some(call.positional.clone()));
            let same = match old {
                Some(old) => ops::equal(&Value::tuple(old)?, &new, budget)?,
                None => false,
            };
            Ok(Value::Bool(!same))
        }
        (Object::Cycler { items, at }, "next") => {
            let item = items.get(at.get()).cloned().unwrap_or(Value::None);
            at.set((at.get() + 1).checked_rem(items.len()).unwrap_or(0));
            Ok(item)
        }
        (Object::Cycler { at, .. }, "reset") => {
            at.set(0);
            Ok(Value::None)
        }
        _ => Err(unknown(receiver, name)),
    }
}

fn dict_method(receiver: &Value, name: &str, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let Value::Dict(dict) = receiver else { return Err(unknown(receiver, name)) };
    match name {
        "get" => {
            let [key, default] = call.bind("get", ["key", "default"])?;
            let key = required(key, "get", "key")?;
            let key = match key {
                // A missing value is never a key, but asking for it is no error.
                Value::Undefined(_) => return Ok(default.cloned().unwrap_or(Value::None)),
                key => key.to_key()?,
            };
            Ok(dict.map.get(&key).or(default).cloned().unwrap_or(Value::None))
        }
        "items" => {
            call.none("items")?;
            budget.entries(dict.map.len())?;
            let pairs: TemplateResult<Vec<_>> = dict
                .map
                .iter()
                .map(|(key, value)| Value::tuple(vec![Value::from_key(key)?, value.clone()]))
                .collect();
            Value::lazy("dict_items", pairs?)
        }
        "keys" => {
            call.none("keys")?;
            Value::lazy("dict_keys", iterate(receiver, budget)?)
        }
        "values" => {
            call.none("values")?;
            budget.items(dict.map.len())?;
            Value::lazy("dict_values", dict.map.values().cloned().collect())
        }
        "copy" => Ok(receiver.clone()),
        other => Err(unknown(receiver, other)),
    }
}

/// Python's `str.isspace` for one character.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// `s.strip(chars)` from the left, the right or both.
pub(super) fn strip<'s>(s: &'s str, chars: Option<&str>, left: bool, right: bool) -> &'s str {
    let matches = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let s = if left { s.trim_start_matches(matches) } else { s };
    if right { s.trim_end_matches(matches) } else { s }
}

fn strip_chars<'v>(call: &'v Call, name: &str) -> TemplateResult<Option<&'v str>> {
    let [chars] = call.bind(name, ["chars"])?;
    match chars {
        None | Some(Value::None) => Ok(None),
        some => str_or(some, "", "the argument of strip()").map(Some),
    }
}

/// Whether the text has a cased letter and all its letters are of that case.
pub(super) fn is_cased(s: &str, upper: bool) -> bool {
    let wrong = |c: char| if upper { c.is_lowercase() } else { c.is_uppercase() };
    let right = |c: char| if upper { c.is_uppercase() } else { c.is_lowercase() };
    !s.chars().any(wrong) && s.chars().any(right)
}

pub(super) fn capitalize(s: &str) -> String {
    let mut chars = s.chars();
    let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    first + &chars.as_str().to_lowercase()
}

/// `str.title()`: every run of letters starts with a capital.
fn title(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut inside = false;
    for c in s.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    out
}

/// `s.splitlines()`, with the ends kept if asked.
pub(super) fn split_lines(s: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = s;
    while let Some(at) = rest.find(is_end) {
        let tail = rest.get(at..).unwrap_or("");
        let width = if tail.starts_with("\r\n") { 2 } else { tail.chars().next().map_or(1, char::len_utf8) };
        lines.push(rest.get(..if keep_ends { at + width } else { at }).unwrap_or(""));
        rest = rest.get(at + width..).unwrap_or("");
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn split(s: &str, call: &Call, from_right: bool, budget: &Budget) -> TemplateResult<Value> {
    let [sep, max] = call.bind("split", ["sep", "maxsplit"])?;
    let max = usize::try_from(int_or(max, -1, "maxsplit")?).unwrap_or(usize::MAX);
    let parts: Vec<&str> = match sep {
        None | Some(Value::None) => split_spaces(s, max, from_right),
        some => {
            let sep = str_or(some, "", "the separator of split()")?;
            if sep.is_empty() {
                return Err(value_error("empty separator"));
            }
            let limit = max.saturating_add(1);
            if from_right {
                let mut parts: Vec<&str> = s.rsplitn(limit, sep).collect();
                parts.reverse();
                parts
            } else {
                s.splitn(limit, sep).collect()
            }
        }
    };
    strings(&parts, budget)
}

/// Python's `split()` without a separator. What is left after `max` cuts keeps the white space at its far end.
fn split_spaces(s: &str, max: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(s, None, !from_right, from_right);
    while !rest.is_empty() {
        let cut = if parts.len() == max {
            None
        } else if from_right {
            rest.rfind(is_space)
        } else {
            rest.find(is_space)
        };
        let Some(at) = cut else {
            parts.push(rest);
            break;
        };
        let width = rest.get(at..).and_then(|r| r.chars().next()).map_or(1, char::len_utf8);
        let (before, after) = (rest.get(..at).unwrap_or(""), rest.get(at + width..).unwrap_or(""));
        parts.push(if from_right { after } else { before });
        rest = if from_right { strip(before, None, false, true) } else { strip(after, None, true, false) };
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// A list of strings.
pub(super) fn strings(parts: &[&str], budget: &Budget) -> TemplateResult<Value> {
    budget.items(parts.len().saturating_mul(2))?;
    budget.bytes(parts.iter().map(|p| p.len()).sum())?;
    Value::list(parts.iter().map(|p| Value::str(*p)).collect())
}

/// The part of the string that `start` and `end` arguments leave, and the characters before it.
fn window<'s>(
    s: &'s str,
    start: Option<&Value>,
    end: Option<&Value>,
    budget: &Budget,
) -> TemplateResult<(usize, &'s str)> {
    if start.is_none() && end.is_none() {
        return Ok((0, s));
    }
    budget.read(s.len())?;
    let len = s.chars().count() as i128;
    let clamp = |v: i128| (if v < 0 { v.saturating_add(len) } else { v }).clamp(0, len) as usize;
    let start = clamp(int_or(start.filter(|v| !matches!(v, Value::None)), 0, "start")?);
    let end = clamp(int_or(end.filter(|v| !matches!(v, Value::None)), len, "end")?);
    let offset = |n: usize| s.char_indices().nth(n).map_or(s.len(), |(i, _)| i);
    Ok((start, s.get(offset(start)..offset(end)).unwrap_or("")))
}

fn affixed(s: &str, name: &str, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [affix, start, end] = call.bind(name, ["prefix", "start", "end"])?;
    let (_, s) = window(s, start, end, budget)?;
    let test = |affix: &Value| match affix {
        Value::Str(a) if name == "startswith" => Ok(s.starts_with(&**a)),
        Value::Str(a) => Ok(s.ends_with(&**a)),
        other => Err(type_error(format!(
            "{name} first arg must be str or a tuple of str, not {}",
            other.type_name()
        ))),
    };
    match defined(required(affix, name, "prefix")?)? {
        Value::Seq(seq) if seq.tuple => {
            for affix in &seq.items {
                if test(affix)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        affix => Ok(Value::Bool(test(affix)?)),
    }
}

fn find(s: &str, name: &str, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [part, start, end] = call.bind(name, ["sub", "start", "end"])?;
    let part = str_or(Some(required(part, name, "sub")?), "", "the argument")?;
    let (before, inner) = window(s, start, end, budget)?;
    budget.read(s.len())?;
    let at = if name.starts_with('r') { inner.rfind(part) } else { inner.find(part) };
    match at.and_then(|at| inner.get(..at)) {
        Some(head) => Ok(Value::Int((before + head.chars().count()) as i128)),
        None if name.ends_with("index") => Err(value_error("substring not found")),
        None => Ok(Value::Int(-1)),
    }
}

/// `s.replace(old, new, count)`.
pub(super) fn replace(s: &str, old: &str, new: &str, count: i128, budget: &Budget) -> TemplateResult<String> {
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    budget.read(s.len())?;
    let hits = if old.is_empty() { s.chars().count() + 1 } else { s.matches(old).count() };
    budget.bytes(s.len().saturating_add(hits.min(most).saturating_mul(new.len())))?;
    Ok(s.replacen(old, new, most))
}

/// `s.join(values)` where every value must be a string.
fn join(s: &str, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [values] = call.bind("join", ["iterable"])?;
    let mut text = Text::new(budget);
    for (i, value) in iterate(required(values, "join", "iterable")?, budget)?.iter().enumerate() {
        let Value::Str(part) = value else {
            let message = format!("sequence item {i}: expected str instance, {} found", value.type_name());
            return Err(type_error(message));
        };
        if i > 0 {
            text.push(s)?;
        }
        text.push(part)?;
    }
    Ok(Value::str(text.out))
}

fn justify(s: &str, name: &str, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [width, with] = call.bind(name, ["width", "fillchar"])?;
    let width = int_or(Some(required(width, name, "width")?), 0, "the width")?;
    let with = str_or(with, " ", "the fill character")?;
    if with.chars().count() != 1 {
        return Err(type_error("The fill character must be exactly one character long"));
    }
    budget.read(s.len())?;
    let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
    let len = s.chars().count();
    let missing = width.saturating_sub(len);
    let left = match name {
        "ljust" => 0,
        "rjust" | "zfill" => missing,
        // Python puts the odd space of `center` on the left if the width is odd.
        _ => missing / 2 + (missing & width & 1),
    };
    let mut text = Text::new(budget);
    text.repeat(with, left)?;
    text.push(s)?;
    text.repeat(with, missing - left)?;
    Ok(Value::str(text.out))
}

fn partition(s: &str, name: &str, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [sep] = call.bind(name, ["sep"])?;
    let sep = str_or(Some(required(sep, name, "sep")?), "", "the separator")?;
    if sep.is_empty() {
        return Err(value_error("empty separator"));
    }
    budget.bytes(s.len())?;
    let right = name == "rpartition";
    let parts = match if right { s.rsplit_once(sep) } else { s.split_once(sep) } {
        Some((a, b)) => [a, sep, b],
        None if right => ["", "", s],
        None => [s, "", ""],
    };
    Value::tuple(parts.map(Value::str).to_vec())
}

fn str_method(s: &str, name: &str, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    budget.read(s.len())?;
    // Changing the case of a character takes at most three times its bytes.
    let made = |text: String| -> TemplateResult<Value> {
        budget.bytes(text.len())?;
        Ok(Value::str(text))
    };
    let all = |test: fn(char) -> bool| Ok(Value::Bool(!s.is_empty() && s.chars().all(test)));
    match name {
        "startswith" | "endswith" => return affixed(s, name, call, budget),
        "find" | "rfind" | "index" | "rindex" => return find(s, name, call, budget),
        "split" | "rsplit" => return split(s, call, name == "rsplit", budget),
        "join" => return join(s, call, budget),
        "partition" | "rpartition" => return partition(s, name, call, budget),
        "ljust" | "rjust" | "center" => return justify(s, name, call, budget),
        "format" => return super::format::braces(s, &call.positional, &call.named, budget).map(Value::str),
        "strip" => return made(strip(s, strip_chars(call, name)?, true, true).to_owned()),
        "lstrip" => return made(strip(s, strip_chars(call, name)?, true, false).to_owned()),
        "rstrip" => return made(strip(s, strip_chars(call, name)?, false, true).to_owned()),
        "splitlines" => {
            let [keep] = call.bind(name, ["keepends"])?;
            return strings(&split_lines(s, bool_or(keep, false)), budget);
        }
        "replace" => {
            let [old, new, count] = call.bind(name, ["old", "new", "count"])?;
            let old = str_or(Some(required(old, name, "old")?), "", "replace() argument 1")?;
            let new = str_or(Some(required(new, name, "new")?), "", "replace() argument 2")?;
            return replace(s, old, new, int_or(count, -1, "count")?, budget).map(Value::str);
        }
        "count" => {
            let [part, start, end] = call.bind(name, ["sub", "start", "end"])?;
            let part = str_or(Some(required(part, name, "sub")?), "", "the argument of count()")?;
            let (_, s) = window(s, start, end, budget)?;
            // Where every byte is a hit, a byte costs several times what reading it does.
            budget.steps(s.len() as u64 / 8)?;
            let count = if part.is_empty() { s.chars().count() + 1 } else { s.matches(part).count() };
            return Ok(Value::Int(count as i128));
        }
        "removeprefix" | "removesuffix" => {
            let [affix] = call.bind(name, ["affix"])?;
            let affix = str_or(Some(required(affix, name, "affix")?), "", "the argument")?;
            let rest = if name == "removeprefix" { s.strip_prefix(affix) } else { s.strip_suffix(affix) };
            return made(rest.unwrap_or(s).to_owned());
        }
        "zfill" => {
            let (sign, rest) = match s.chars().next() {
                Some('+' | '-') => s.split_at(1),
                _ => ("", s),
            };
            let [width] = call.bind(name, ["width"])?;
            let width = int_or(Some(required(width, name, "width")?), 0, "width")?;
            let width = width.saturating_sub(sign.len() as i128);
            let padded = Call { positional: vec![Value::Int(width), Value::str("0")], named: Vec::new() };
            let rest = justify(rest, name, &padded, budget)?;
            return ops::concat(&[Value::str(sign), rest], budget);
        }
        _ => {}
    }
    call.none(name)?;
    match name {
        "upper" => made(s.to_uppercase()),
        "lower" | "casefold" => made(s.to_lowercase()),
        "title" => made(title(s)),
        "capitalize" => made(capitalize(s)),
        "swapcase" => {
            let mut out = String::with_capacity(s.len());
            for c in s.chars() {
                if c.is_lowercase() { out.extend(c.to_uppercase()) } else { out.extend(c.to_lowercase()) }
            }
            made(out)
        }
        "isspace" => all(is_space),
        "isdigit" | "isdecimal" => all(|c| c.is_ascii_digit() || (!c.is_ascii() && c.is_numeric())),
        "isnumeric" => all(char::is_numeric),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isascii" => Ok(Value::Bool(s.is_ascii())),
        "isupper" => Ok(Value::Bool(is_cased(s, true))),
        "islower" => Ok(Value::Bool(is_cased(s, false))),
        "istitle" => Ok(Value::Bool(s.chars().any(char::is_alphabetic) && title(s) == s)),
        other => Err(unknown(&Value::str(s), other)),
    }
}
