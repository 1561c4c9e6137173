//! Jinja2's filters on single values. Those on sequences are in [`seq_filters`](super::seq_filters).

use super::budget::Budget;
use super::call::{Call, bool_or, int_or, required, str_or};
use super::methods::{capitalize, is_space, replace, split_lines, strip};
use super::ops::{self, as_index, defined, type_error, value_error};
use super::print::{JsonStyle, Text, to_json, to_str};
use super::value::{Key, Undefined, Value};
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// Widest indent of JSON.
const MAX_JSON_INDENT: usize = 1000;

const FILTERS: &[&str] = &[
    "abs",
    "attr",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "e",
    "escape",
    "float",
    "forceescape",
    "format",
    "fromjson",
    "indent",
    "int",
    "items",
    "length",
    "lower",
    "replace",
    "round",
    "safe",
    "string",
    "striptags",
    "title",
    "tojson",
    "trim",
    "truncate",
    "upper",
    "urlencode",
    "wordcount",
];

/// Whether there is a filter of that name.
pub(super) fn exists(name: &str) -> bool {
    FILTERS.contains(&name) || super::seq_filters::NAMES.contains(&name)
}

/// `value | name(args)`.
pub(super) fn apply(name: &str, value: &Value, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    if super::seq_filters::NAMES.contains(&name) {
        return budget.nested(|| super::seq_filters::apply(name, value, call, budget));
    }
    if let Value::Undefined(undefined @ Undefined::Forbidden { .. }) = value {
        return Err(undefined.error());
    }
    match name {
        "default" | "d" => {
            let [default, boolean] = call.bind(name, ["default_value", "boolean"])?;
            let missing = value.is_undefined() || (bool_or(boolean, false) && !value.truth());
            Ok(if missing { default.cloned().unwrap_or_else(|| Value::str("")) } else { value.clone() })
        }
        "length" | "count" => {
            call.none(name)?;
            Ok(Value::Int(ops::length(value, budget)? as i128))
        }
        "attr" => {
            let [attr] = call.bind(name, ["name"])?;
            let attr = str_or(Some(required(attr, name, "name")?), "", "the name")?;
            let key = Key::Str(attr.into());
            match value {
                // `attr` looks at attributes only, never at the elements of a dict.
                Value::Dict(dict) if dict.map.contains_key(&key) => {
                    Ok(Value::Undefined(Undefined::Attr { owner: value.owner_name(), name: attr.into() }))
                }
                _ => super::attr::attribute(value, &attr.into()),
            }
        }
        "items" => match value {
            Value::Undefined(_) => Value::generator(Vec::new()),
            Value::Dict(_) => super::methods::call(value, &"items".into(), call, budget),
            _ => Err(type_error("Can only get item pairs from a mapping.")),
        },
        "tojson" => {
            let style = json_style(call)?;
            to_json(value, &style, budget).map(Value::str)
        }
        "fromjson" => {
            call.none(name)?;
            let text = str_or(Some(value), "", "the input of fromjson")?;
            budget.bytes(text.len().saturating_mul(8))?;
            let json: serde_json::Value =
                serde_json::from_str(text).map_err(|e| value_error(format!("fromjson: {e}")))?;
            Value::from_json(&json)
        }
        "abs" | "int" | "float" | "round" => numeric(name, value, call),
        _ => textual(name, value, call, budget),
    }
}

fn json_style(call: &Call) -> TemplateResult<JsonStyle> {
    let [ascii, indent, separators, sort_keys] =
        call.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let mut style = JsonStyle { ensure_ascii: bool_or(ascii, false), ..JsonStyle::default() };
    style.sort_keys = bool_or(sort_keys, false);
    match indent {
        None | Some(Value::None) => {}
        Some(Value::Str(text)) => style.indent = Some(text.to_string()),
        Some(other) => {
            let width = usize::try_from(int_or(Some(other), 0, "indent")?.max(0)).unwrap_or(usize::MAX);
            if width > MAX_JSON_INDENT {
                return Err(value_error(format!("tojson: an indent of more than {MAX_JSON_INDENT}")));
            }
            style.indent = Some(" ".repeat(width));
        }
    }
    if style.indent.is_some() {
        style.item_separator = ",".into();
    }
    match separators {
        None | Some(Value::None) => {}
        Some(Value::Seq(seq)) => match seq.items.as_slice() {
            [Value::Str(item), Value::Str(key)] => {
                style.item_separator = item.to_string();
                style.key_separator = key.to_string();
            }
            _ => return Err(value_error("separators must be two strings")),
        },
        Some(_) => return Err(type_error("separators must be a tuple of two strings")),
    }
    Ok(style)
}

fn numeric(name: &str, value: &Value, call: &Call) -> TemplateResult<Value> {
    match name {
        "abs" => {
            call.none(name)?;
            match defined(value)? {
                Value::Float(f) => Ok(Value::Float(f.abs())),
                other => as_index(other).and_then(i128::checked_abs).map(Value::Int).ok_or_else(|| {
                    type_error(format!("bad operand type for abs(): '{}'", other.type_name()))
                }),
            }
        }
        "int" => {
            let [default, base] = call.bind(name, ["default", "base"])?;
            let base = u32::try_from(int_or(base, 10, "base")?).unwrap_or(10);
            let parsed = match defined(value)? {
                Value::Float(f) if f.is_finite() => Some(f.trunc() as i128),
                Value::Str(s) => parse_int(s, base),
                other => as_index(other),
            };
            Ok(parsed.map(Value::Int).unwrap_or_else(|| default.cloned().unwrap_or(Value::Int(0))))
        }
        "float" => {
            let [default] = call.bind(name, ["default"])?;
            let parsed = match defined(value)? {
                Value::Float(f) => Some(*f),
                Value::Str(s) => s.trim().parse().ok(),
                other => as_index(other).map(|i| i as f64),
            };
            Ok(parsed.map(Value::Float).unwrap_or_else(|| default.cloned().unwrap_or(Value::Float(0.0))))
        }
        _ => {
            let [precision, method] = call.bind(name, ["precision", "method"])?;
            let precision = int_or(precision, 0, "precision")?.clamp(-300, 300) as i32;
            let method = str_or(method, "common", "the rounding method")?;
            let number = match defined(value)? {
                Value::Float(f) => *f,
                other => match as_index(other) {
                    // A rounded integer stays one.
                    Some(i) if method == "common" => return Ok(Value::Int(round_int(i, precision))),
                    Some(i) => i as f64,
                    None => return Err(type_error(format!("cannot round a {}", other.type_name()))),
                },
            };
            let scale = 10f64.powi(precision);
            Ok(Value::Float(match method {
                // Python rounds the exact binary value, ties to even, which is what printing does.
                "common" if precision >= 0 => {
                    let digits = usize::try_from(precision).unwrap_or(0);
                    format!("{number:.digits$}").parse().unwrap_or(number)
                }
                "common" => (number * scale).round_ties_even() / scale,
                "ceil" => (number * scale).ceil() / scale,
                "floor" => (number * scale).floor() / scale,
                _ => return Err(value_error("method must be common, ceil or floor")),
            }))
        }
    }
}

/// Python's `round(i, precision)`: to a power of ten, ties to the even one.
fn round_int(i: i128, precision: i32) -> i128 {
    let Some(unit) = u32::try_from(-precision).ok().map(|n| 10i128.checked_pow(n)) else { return i };
    let Some(unit) = unit.filter(|unit| *unit > 1) else { return if unit.is_some() { i } else { 0 } };
    let (down, rest) = (i.div_euclid(unit), i.rem_euclid(unit));
    let up = match rest.cmp(&(unit - rest)) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Greater => 1,
        std::cmp::Ordering::Equal => down.rem_euclid(2),
    };
    (down + up).saturating_mul(unit)
}

fn parse_int(s: &str, base: u32) -> Option<i128> {
    let s = s.trim().replace('_', "");
    if base == 10 {
        return s
            .parse()
            .ok()
            .or_else(|| s.parse::<f64>().ok().filter(|f| f.is_finite()).map(|f| f.trunc() as i128));
    }
    let (negative, digits) = s.strip_prefix('-').map_or((false, s.as_str()), |d| (true, d));
    let prefix = match base {
        16 => "0x",
        8 => "0o",
        2 => "0b",
        _ => "",
    };
    let digits = digits.strip_prefix(prefix).unwrap_or(digits);
    let value = (2..=36).contains(&base).then(|| i128::from_str_radix(digits, base).ok())??;
    if negative { value.checked_neg() } else { Some(value) }
}

fn textual(name: &str, value: &Value, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let text = to_str(value, budget)?;
    let made = |text: String| -> TemplateResult<Value> {
        budget.bytes(text.len())?;
        Ok(Value::str(text))
    };
    match name {
        "trim" => {
            let [chars] = call.bind(name, ["chars"])?;
            let chars = match chars {
                None | Some(Value::None) => None,
                some => Some(str_or(some, "", "chars")?),
            };
            return made(strip(&text, chars, true, true).to_owned());
        }
        "replace" => {
            let [old, new, count] = call.bind(name, ["old", "new", "count"])?;
            let old = to_str(required(old, name, "old")?, budget)?;
            let new = to_str(required(new, name, "new")?, budget)?;
            let count = count.filter(|v| !matches!(v, Value::None));
            return replace(&text, &old, &new, int_or(count, -1, "count")?, budget).map(Value::str);
        }
        "indent" => return indent(value, call, budget),
        "truncate" => return truncate(&text, call, budget),
        "center" => {
            let [width] = call.bind(name, ["width"])?;
            let width = width.cloned().unwrap_or(Value::Int(80));
            let call = Call { positional: vec![width], named: Vec::new() };
            return super::methods::call(&Value::str(text), &"center".into(), &call, budget);
        }
        "format" => {
            if !call.named.is_empty() {
                let named = call.named.iter().map(|(k, v)| (Key::Str(k.clone()), v.clone())).collect();
                return super::format::percent(&text, &Value::dict(named)?, budget).map(Value::str);
            }
            let args = Value::tuple(call.positional.clone())?;
            return super::format::percent(&text, &args, budget).map(Value::str);
        }
        _ => {}
    }
    if !FILTERS.contains(&name) {
        return Err(TemplateError::new(Kind::Unsupported, format!("No filter named '{name}' found.")));
    }
    call.none(name)?;
    match name {
        "upper" => made(text.to_uppercase()),
        "lower" => made(text.to_lowercase()),
        "capitalize" => made(capitalize(&text)),
        "title" => made(title(&text)),
        "string" | "safe" => Ok(Value::str(text)),
        "escape" | "e" | "forceescape" => {
            budget.bytes(text.len())?;
            let mut out = Text::new(budget);
            for c in text.chars() {
                match c {
                    '&' => out.push("&amp;")?,
                    '<' => out.push("&lt;")?,
                    '>' => out.push("&gt;")?,
                    '"' => out.push("&#34;")?,
                    '\'' => out.push("&#39;")?,
                    c => out.push(c.encode_utf8(&mut [0; 4]))?,
                }
            }
            Ok(Value::str(out.out))
        }
        "striptags" => {
            let mut out = String::new();
            let mut rest = text.as_str();
            while let Some((before, tag)) = rest.split_once('<') {
                out.push_str(before);
                match tag.split_once('>') {
                    Some((_, after)) => rest = after,
                    None => {
                        out.push('<');
                        rest = tag;
                        break;
                    }
                }
            }
            out.push_str(rest);
            made(out.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        "wordcount" => {
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty());
            Ok(Value::Int(words.count() as i128))
        }
        _ => {
            let mut out = Text::new(budget);
            for byte in text.bytes() {
                let plain = byte.is_ascii_alphanumeric() || b"_.-~/".contains(&byte);
                match char::from_u32(byte.into()).filter(|_| plain) {
                    Some(c) => out.push(c.encode_utf8(&mut [0; 4]))?,
                    None => out.push(&format!("%{byte:02X}"))?,
                }
            }
            Ok(Value::str(out.out))
        }
    }
}

/// Jinja's `title`: words begin after white space, `-` and opening brackets, not after apostrophes.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut start = true;
    for c in text.chars() {
        if start {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        start = is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    }
    out
}

fn indent(value: &Value, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [width, first, blank] = call.bind("indent", ["width", "first", "blank"])?;
    let (first, blank) = (bool_or(first, false), bool_or(blank, false));
    let Value::Str(s) = defined(value)? else {
        return Err(type_error(format!("indent needs a str, not {}", value.type_name())));
    };
    let mut text = Text::new(budget);
    let mut margin = Text::new(budget);
    match width {
        Some(Value::Str(s)) => margin.push(s)?,
        other => {
            let width = int_or(other, 4, "width")?.max(0);
            margin.repeat(" ", usize::try_from(width).unwrap_or(usize::MAX))?;
        }
    }
    let with_end = format!("{s}\n");
    for (i, line) in split_lines(&with_end, false).into_iter().enumerate() {
        if i > 0 {
            text.push("\n")?;
        }
        let indented = if i == 0 { first } else { blank || !line.is_empty() };
        if indented {
            text.push(&margin.out)?;
        }
        text.push(line)?;
    }
    Ok(Value::str(text.out))
}

fn truncate(text: &str, call: &Call, budget: &Budget) -> TemplateResult<Value> {
    let [length, kill_words, end, leeway] =
        call.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let length = usize::try_from(int_or(length, 255, "length")?).unwrap_or(0);
    let end = str_or(end, "...", "end")?;
    let leeway = usize::try_from(int_or(leeway, 5, "leeway")?).unwrap_or(0);
    budget.bytes(text.len())?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::str(text));
    }
    let kept = length.checked_sub(end.chars().count());
    let kept = kept.ok_or_else(|| value_error("truncate: length must be at least the length of its end"))?;
    let cut: String = text.chars().take(kept).collect();
    let cut = match cut.rsplit_once(' ') {
        Some((words, _)) if !bool_or(kill_words, false) => words.to_owned(),
        _ => cut,
    };
    Ok(Value::str(cut + end))
}
