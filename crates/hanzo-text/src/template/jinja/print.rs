//! Values to text: Python's `str()`, `repr()` and `json.dumps()`.

use super::budget::Budget;
use super::value::{Key, Object, Value};
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// Text under construction; every byte is paid for before it is written.
pub(crate) struct Text<'b> {
    pub(crate) out: String,
    budget: &'b Budget,
}

impl<'b> Text<'b> {
    pub(crate) fn new(budget: &'b Budget) -> Self {
        Self { out: String::new(), budget }
    }

    pub(crate) fn push(&mut self, text: &str) -> TemplateResult<()> {
        self.budget.bytes(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    pub(crate) fn repeat(&mut self, text: &str, times: usize) -> TemplateResult<()> {
        let len = text.len().saturating_mul(times);
        self.budget.bytes(len)?;
        self.out.reserve(len);
        (0..times).for_each(|_| self.out.push_str(text));
        Ok(())
    }
}

/// `str(value)`.
pub(crate) fn to_str(value: &Value, budget: &Budget) -> TemplateResult<String> {
    let mut text = Text::new(budget);
    write_str(value, &mut text)?;
    Ok(text.out)
}

/// `repr(value)`.
pub(crate) fn to_repr(value: &Value, budget: &Budget) -> TemplateResult<String> {
    let mut text = Text::new(budget);
    write_repr(value, &mut text)?;
    Ok(text.out)
}

/// Appends `str(value)`: what `{{ value }}` prints.
pub(crate) fn write_str(value: &Value, text: &mut Text<'_>) -> TemplateResult<()> {
    match value {
        Value::Str(s) => text.push(s),
        Value::Undefined(_) => Ok(()),
        other => write_repr(other, text),
    }
}

fn write_repr(value: &Value, text: &mut Text<'_>) -> TemplateResult<()> {
    text.budget.steps(1)?;
    match value {
        Value::Undefined(_) => text.push("Undefined"),
        Value::None => text.push("None"),
        Value::Bool(true) => text.push("True"),
        Value::Bool(false) => text.push("False"),
        Value::Int(i) => text.push(&i.to_string()),
        Value::Float(f) => text.push(&float_repr(*f)),
        Value::Str(s) => push_str_repr(s, text),
        Value::Seq(seq) => {
            let (open, close) = if seq.tuple { ("(", ")") } else { ("[", "]") };
            text.push(open)?;
            write_items(&seq.items, text)?;
            if seq.tuple && seq.items.len() == 1 {
                text.push(",")?;
            }
            text.push(close)
        }
        Value::Dict(dict) => {
            text.push("{")?;
            for (i, (key, value)) in dict.map.iter().enumerate() {
                if i > 0 {
                    text.push(", ")?;
                }
                write_repr(&Value::from_key(key)?, text)?;
                text.push(": ")?;
                write_repr(value, text)?;
            }
            text.push("}")
        }
        Value::Iter(iter) if iter.view => {
            text.push(iter.type_name)?;
            text.push("([")?;
            write_items(&iter.items, text)?;
            text.push("])")
        }
        // Python prints an address here, which no prompt can depend on.
        Value::Iter(iter) => text.push(&format!("<{} object>", iter.type_name)),
        Value::Object(object) => match &**object {
            Object::Namespace(_) => text.push("<Namespace>"),
            Object::Macro { name, .. } => text.push(&format!("<Macro {}>", str_repr(name))),
            Object::Function(name) => text.push(&format!("<function {name}>")),
            Object::Method { receiver, name } => {
                text.push(&format!("<built-in method {name} of {} object>", receiver.type_name()))
            }
            Object::Loop(state) => {
                text.push(&format!("<LoopContext {}/{}>", state.index.get() + 1, state.items.len()))
            }
            Object::Cycler { .. } => text.push("<Cycler>"),
            Object::Joiner { .. } => text.push("<Joiner>"),
        },
    }
}

fn write_items(items: &[Value], text: &mut Text<'_>) -> TemplateResult<()> {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            text.push(", ")?;
        }
        write_repr(item, text)?;
    }
    Ok(())
}

/// `repr` of a float: the shortest digits that read back, in exponent form below 1e-4 and from 1e16.
pub(crate) fn float_repr(f: f64) -> String {
    if f.is_nan() {
        return "nan".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{f:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if f != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{f}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

/// `repr` of a string.
pub(crate) fn str_repr(s: &str) -> String {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(s.len() + 2);
    out.push(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push(quote);
    out
}

fn push_str_repr(s: &str, text: &mut Text<'_>) -> TemplateResult<()> {
    // An escape is at most ten characters for one.
    text.budget.bytes(s.len())?;
    text.push(&str_repr(s))
}

/// Python's `str.isprintable` for one character. Rust's debug form escapes the same classes (Cc, Cf, Cs, Co, Cn, Zl,
/// Zp, Zs but for the space), if the character does not come first, where it escapes combining marks too.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let mut pair = String::from("a");
    pair.push(c);
    pair.escape_debug().eq(pair.chars())
}

/// Options of `json.dumps` that templates pass to `tojson`.
#[derive(Debug, Clone)]
pub(crate) struct JsonStyle {
    pub(crate) ensure_ascii: bool,
    /// What one level is indented by; `None` prints on one line.
    pub(crate) indent: Option<String>,
    pub(crate) item_separator: String,
    pub(crate) key_separator: String,
    pub(crate) sort_keys: bool,
}

impl Default for JsonStyle {
    fn default() -> Self {
        Self {
            ensure_ascii: false,
            indent: None,
            item_separator: ", ".into(),
            key_separator: ": ".into(),
            sort_keys: false,
        }
    }
}

/// `json.dumps(value)` in a style. Fails on what JSON has no form for.
pub(crate) fn to_json(value: &Value, style: &JsonStyle, budget: &Budget) -> TemplateResult<String> {
    let mut text = Text::new(budget);
    write_json(value, style, 0, &mut text)?;
    Ok(text.out)
}

fn write_json(value: &Value, style: &JsonStyle, level: usize, text: &mut Text<'_>) -> TemplateResult<()> {
    text.budget.steps(1)?;
    match value {
        Value::None => text.push("null"),
        Value::Bool(true) => text.push("true"),
        Value::Bool(false) => text.push("false"),
        Value::Int(i) => text.push(&i.to_string()),
        Value::Float(f) => text.push(&float_json(*f)),
        Value::Str(s) => push_json_str(s, style.ensure_ascii, text),
        Value::Seq(seq) => {
            if seq.items.is_empty() {
                return text.push("[]");
            }
            text.push("[")?;
            for (i, item) in seq.items.iter().enumerate() {
                begin_item(i, style, level + 1, text)?;
                write_json(item, style, level + 1, text)?;
            }
            end_items(style, level, text)?;
            text.push("]")
        }
        Value::Dict(dict) => {
            if dict.map.is_empty() {
                return text.push("{}");
            }
            let mut entries: Vec<(&Key, &Value)> = dict.map.iter().collect();
            if style.sort_keys {
                super::ops::sort_keys(&mut entries, text.budget)?;
            }
            text.push("{")?;
            for (i, (key, value)) in entries.into_iter().enumerate() {
                begin_item(i, style, level + 1, text)?;
                push_json_str(&json_key(key)?, style.ensure_ascii, text)?;
                text.push(&style.key_separator)?;
                write_json(value, style, level + 1, text)?;
            }
            end_items(style, level, text)?;
            text.push("}")
        }
        Value::Undefined(undefined) => {
            let mut error = undefined.error();
            error.message.push_str(" (and so cannot be written as JSON)");
            Err(error)
        }
        other => {
            let message = format!("Object of type {} is not JSON serializable", other.type_name());
            Err(TemplateError::new(Kind::Type, message))
        }
    }
}

fn begin_item(i: usize, style: &JsonStyle, level: usize, text: &mut Text<'_>) -> TemplateResult<()> {
    if i > 0 {
        text.push(&style.item_separator)?;
    }
    new_line(style, level, text)
}

fn end_items(style: &JsonStyle, level: usize, text: &mut Text<'_>) -> TemplateResult<()> {
    new_line(style, level, text)
}

fn new_line(style: &JsonStyle, level: usize, text: &mut Text<'_>) -> TemplateResult<()> {
    match &style.indent {
        Some(indent) => {
            text.push("\n")?;
            text.repeat(indent, level)
        }
        None => Ok(()),
    }
}

fn json_key(key: &Key) -> TemplateResult<String> {
    Ok(match key {
        Key::Str(s) => s.to_string(),
        Key::Int(i) => i.to_string(),
        Key::Bool(true) => "true".into(),
        Key::Bool(false) => "false".into(),
        Key::None => "null".into(),
        Key::Float(bits) => float_json(f64::from_bits(*bits)),
        Key::Tuple(_) => {
            let message = "keys must be str, int, float, bool or None, not tuple";
            return Err(TemplateError::new(Kind::Type, message));
        }
    })
}

fn float_json(f: f64) -> String {
    match f {
        f if f.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        f => float_repr(f),
    }
}

fn push_json_str(s: &str, ensure_ascii: bool, text: &mut Text<'_>) -> TemplateResult<()> {
    text.budget.bytes(s.len())?;
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || (ensure_ascii && !matches!(c, ' '..='~')) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
    text.push(&out)
}
