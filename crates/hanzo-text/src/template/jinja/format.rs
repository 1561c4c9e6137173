//! String formatting: `'%s' % x` and `'{}'.format(x)`, as far as templates use them.

use std::iter::Peekable;
use std::str::Chars;

use super::ast::Name;
use super::budget::Budget;
use super::ops::{as_index, defined, type_error, value_error};
use super::print::{Text, to_repr, to_str};
use super::value::Value;
use crate::template::error::TemplateResult;

/// Widest field; a template has no use for more, and an attacker has.
const MAX_WIDTH: usize = 10_000;
/// Most digits after the point.
const MAX_PRECISION: usize = 340;

/// How one value is laid out.
#[derive(Debug, Default, Clone)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// `format % argument`.
pub(crate) fn percent(format: &str, argument: &Value, budget: &Budget) -> TemplateResult<String> {
    let (args, mapping): (&[Value], _) = match argument {
        Value::Seq(seq) if seq.tuple => (&seq.items, None),
        Value::Dict(dict) => (std::slice::from_ref(argument), Some(dict)),
        other => (std::slice::from_ref(other), None),
    };
    let mut text = Text::new(budget);
    let mut used = 0;
    let mut by_name = false;
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c.encode_utf8(&mut [0; 4]))?;
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            text.push("%")?;
            continue;
        }
        let mut named = None;
        if chars.next_if_eq(&'(').is_some() {
            let key: String = chars.by_ref().take_while(|c| *c != ')').collect();
            let dict = mapping.ok_or_else(|| type_error("format requires a mapping"))?;
            let found = dict.map.get(&super::value::Key::Str(key.as_str().into())).cloned();
            named = Some(found.ok_or_else(|| value_error(format!("'%({key})s': there is no such key")))?);
            by_name = true;
        }
        let (spec, kind) = percent_spec(&mut chars, args, &mut used)?;
        let value = match named {
            Some(value) => value,
            None => next_arg(args, &mut used)?,
        };
        let field = match kind {
            's' => pad_text(&cut(&to_str(&value, budget)?, spec.precision), &spec, '>'),
            'r' | 'a' => pad_text(&cut(&to_repr(&value, budget)?, spec.precision), &spec, '>'),
            'c' => match &value {
                Value::Str(s) if s.chars().count() == 1 => pad_text(s, &spec, '>'),
                other => match as_index(other).and_then(|i| u32::try_from(i).ok()).and_then(char::from_u32) {
                    Some(c) => pad_text(c.encode_utf8(&mut [0; 4]), &spec, '>'),
                    None => return Err(type_error("%c requires int or char")),
                },
            },
            'd' | 'i' | 'u' => {
                let value = match value {
                    Value::Float(f) => Value::Int(f.trunc() as i128),
                    other => other,
                };
                number(&value, &spec, 'd')?
            }
            'x' | 'X' | 'o' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' => number(&value, &spec, kind)?,
            other => return Err(value_error(format!("unsupported format character '{other}'"))),
        };
        text.push(&field)?;
    }
    if used < args.len() && !by_name && mapping.is_none() {
        return Err(type_error("not all arguments converted during string formatting"));
    }
    Ok(text.out)
}

fn next_arg(args: &[Value], used: &mut usize) -> TemplateResult<Value> {
    let value =
        args.get(*used).cloned().ok_or_else(|| type_error("not enough arguments for format string"))?;
    *used += 1;
    Ok(value)
}

fn percent_spec(
    chars: &mut Peekable<Chars<'_>>,
    args: &[Value],
    used: &mut usize,
) -> TemplateResult<(Spec, char)> {
    let mut spec = Spec::default();
    while let Some(flag) = chars.next_if(|c| matches!(c, '-' | '+' | ' ' | '0' | '#')) {
        match flag {
            '-' => spec.align = Some('<'),
            '0' => spec.zero = true,
            '#' => spec.alternate = true,
            '+' => spec.sign = Some('+'),
            _ => spec.sign = spec.sign.or(Some(' ')),
        }
    }
    let mut star = |chars: &mut Peekable<Chars<'_>>| -> TemplateResult<Option<usize>> {
        if chars.next_if_eq(&'*').is_none() {
            return digits(chars, MAX_WIDTH);
        }
        let value = next_arg(args, used)?;
        let value = as_index(&value).ok_or_else(|| type_error("* wants int"))?;
        Ok(Some(bounded(usize::try_from(value).unwrap_or(usize::MAX), MAX_WIDTH)?))
    };
    spec.width = star(chars)?.unwrap_or(0);
    if chars.next_if_eq(&'.').is_some() {
        spec.precision = Some(star(chars)?.unwrap_or(0));
    }
    while chars.next_if(|c| matches!(c, 'l' | 'h' | 'L')).is_some() {}
    let kind = chars.next().ok_or_else(|| value_error("incomplete format"))?;
    Ok((spec, kind))
}

fn digits(chars: &mut Peekable<Chars<'_>>, most: usize) -> TemplateResult<Option<usize>> {
    let mut value = None;
    while let Some(d) = chars.peek().and_then(|c| c.to_digit(10)) {
        chars.next();
        value = Some(bounded(value.unwrap_or(0usize).saturating_mul(10).saturating_add(d as usize), most)?);
    }
    Ok(value)
}

fn bounded(value: usize, most: usize) -> TemplateResult<usize> {
    if value > most {
        return Err(value_error(format!("a width or precision of more than {most} in a format string")));
    }
    Ok(value)
}

/// `format.format(*args, **kwargs)`. Attribute access inside fields is not given: it is a way out of sandboxes.
pub(crate) fn braces(
    format: &str,
    args: &[Value],
    named: &[(Name, Value)],
    budget: &Budget,
) -> TemplateResult<String> {
    let mut text = Text::new(budget);
    let mut chars = format.chars().peekable();
    let mut auto = 0usize;
    while let Some(c) = chars.next() {
        match c {
            '{' if chars.next_if_eq(&'{').is_some() => text.push("{")?,
            '}' if chars.next_if_eq(&'}').is_some() => text.push("}")?,
            '}' => return Err(value_error("Single '}' encountered in format string")),
            '{' => {
                let mut field = String::new();
                let mut depth = 1;
                for c in chars.by_ref() {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    if depth == 0 {
                        break;
                    }
                    field.push(c);
                }
                if depth != 0 {
                    return Err(value_error("expected '}' before end of string"));
                }
                text.push(&replacement(&field, args, named, &mut auto, budget)?)?;
            }
            other => text.push(other.encode_utf8(&mut [0; 4]))?,
        }
    }
    Ok(text.out)
}

fn field_value(
    name: &str,
    args: &[Value],
    named: &[(Name, Value)],
    auto: &mut usize,
) -> TemplateResult<Value> {
    if name.contains(['.', '[']) {
        return Err(value_error(format!("format field '{name}': attributes and elements are not supported")));
    }
    let index = if name.is_empty() {
        *auto += 1;
        Some(*auto - 1)
    } else {
        name.parse::<usize>().ok()
    };
    let found = match index {
        Some(index) => args.get(index),
        None => named.iter().find(|(key, _)| &**key == name).map(|(_, value)| value),
    };
    found.cloned().ok_or_else(|| value_error(format!("format field '{name}' has no argument")))
}

fn replacement(
    field: &str,
    args: &[Value],
    named: &[(Name, Value)],
    auto: &mut usize,
    budget: &Budget,
) -> TemplateResult<String> {
    let (head, spec_text) = field.split_once(':').unwrap_or((field, ""));
    let (name, conversion) = head.split_once('!').unwrap_or((head, ""));
    let mut value = field_value(name, args, named, auto)?;
    match conversion {
        "" => {}
        "s" => value = Value::str(to_str(&value, budget)?),
        "r" | "a" => value = Value::str(to_repr(&value, budget)?),
        other => return Err(value_error(format!("unknown conversion '!{other}' in a format string"))),
    }
    // One level of fields inside the specification: `{:>{width}}`.
    let mut spec = spec_text.to_owned();
    while let Some((before, rest)) = spec.split_once('{').map(|(a, b)| (a.to_owned(), b.to_owned())) {
        let (inner, after) =
            rest.split_once('}').ok_or_else(|| value_error("unbalanced braces in a format"))?;
        if inner.contains('{') {
            return Err(value_error("format fields are nested too deep"));
        }
        let inner = to_str(&field_value(inner, args, named, auto)?, budget)?;
        if inner.contains('{') {
            return Err(value_error("invalid format specification"));
        }
        spec = format!("{before}{inner}{after}");
    }
    let spec = parse_spec(&spec)?;
    match (&value, spec.kind) {
        (_, Some('d' | 'x' | 'X' | 'o' | 'b' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' | 'n')) => {
            number(&value, &spec, spec.kind.unwrap_or('d'))
        }
        (Value::Int(_), None) => number(&value, &spec, 'd'),
        (Value::Float(_), None) if spec.precision.is_some() => number(&value, &spec, 'g'),
        (Value::Float(f), None) => Ok(pad_number(&super::print::float_repr(*f), &spec)),
        (_, None | Some('s')) => Ok(pad_text(&cut(&to_str(&value, budget)?, spec.precision), &spec, '<')),
        (_, Some(other)) => Err(value_error(format!("unknown format code '{other}'"))),
    }
}

fn parse_spec(text: &str) -> TemplateResult<Spec> {
    let mut spec = Spec::default();
    let mut chars = text.chars().peekable();
    let is_align = |c: &char| matches!(c, '<' | '>' | '^' | '=');
    let mut ahead = text.chars();
    if let (Some(fill), Some(align)) = (ahead.next(), ahead.next().filter(is_align)) {
        spec.fill = Some(fill);
        spec.align = Some(align);
        chars.next();
        chars.next();
    } else {
        spec.align = chars.next_if(is_align);
    }
    spec.sign = chars.next_if(|c| matches!(c, '+' | '-' | ' ')).filter(|c| *c != '-');
    spec.alternate = chars.next_if_eq(&'#').is_some();
    spec.zero = chars.next_if_eq(&'0').is_some();
    spec.width = digits(&mut chars, MAX_WIDTH)?.unwrap_or(0);
    spec.grouping = chars.next_if(|c| matches!(c, ',' | '_'));
    if chars.next_if_eq(&'.').is_some() {
        spec.precision = Some(
            digits(&mut chars, MAX_WIDTH)?
                .ok_or_else(|| value_error("Format specifier missing precision"))?,
        );
    }
    spec.kind = chars.next();
    if chars.next().is_some() {
        return Err(value_error(format!("Invalid format specifier '{text}'")));
    }
    Ok(spec)
}

fn cut(text: &str, precision: Option<usize>) -> String {
    precision.map_or_else(|| text.to_owned(), |n| text.chars().take(n).collect())
}

fn fill(count: usize, with: char) -> String {
    std::iter::repeat_n(with, count).collect()
}

fn pad_text(text: &str, spec: &Spec, default: char) -> String {
    let missing = spec.width.saturating_sub(text.chars().count());
    let with = spec.fill.unwrap_or(' ');
    match spec.align.unwrap_or(default) {
        '<' => format!("{text}{}", fill(missing, with)),
        '^' => format!("{}{text}{}", fill(missing / 2, with), fill(missing - missing / 2, with)),
        _ => format!("{}{text}", fill(missing, with)),
    }
}

/// Pads a number, whose sign comes first: zeros go between the sign and the digits.
fn pad_number(text: &str, spec: &Spec) -> String {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => (
            match spec.sign {
                Some('+') => "+",
                Some(' ') => " ",
                _ => "",
            },
            text,
        ),
    };
    let zero = spec.zero && spec.align.is_none();
    if zero || spec.align == Some('=') {
        let missing = spec.width.saturating_sub(sign.len() + rest.chars().count());
        let with = if zero { '0' } else { spec.fill.unwrap_or(' ') };
        return format!("{sign}{}{rest}", fill(missing, with));
    }
    pad_text(&format!("{sign}{rest}"), spec, '>')
}

fn group(text: &str, separator: char) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (whole, tail) = rest.split_at(end);
    let mut out = String::from(sign);
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(separator);
        }
        out.push(c);
    }
    out + tail
}

fn number(value: &Value, spec: &Spec, kind: char) -> TemplateResult<String> {
    let (int, float) = match defined(value)? {
        Value::Int(i) => (Some(*i), *i as f64),
        Value::Bool(b) => (Some((*b).into()), f64::from(*b)),
        Value::Float(f) => (None, *f),
        other => return Err(type_error(format!("a number is required, not {}", other.type_name()))),
    };
    let precision = bounded(spec.precision.unwrap_or(6), MAX_PRECISION)?;
    let text = match kind {
        'd' | 'n' | 'x' | 'X' | 'o' | 'b' => {
            let Some(i) = int else {
                return Err(value_error(format!("Unknown format code '{kind}' for object of type 'float'")));
            };
            let (prefix, digits) = match kind {
                'x' => ("0x", format!("{:x}", i.unsigned_abs())),
                'X' => ("0X", format!("{:X}", i.unsigned_abs())),
                'o' => ("0o", format!("{:o}", i.unsigned_abs())),
                'b' => ("0b", format!("{:b}", i.unsigned_abs())),
                _ => ("", i.unsigned_abs().to_string()),
            };
            format!("{}{}{digits}", if i < 0 { "-" } else { "" }, if spec.alternate { prefix } else { "" })
        }
        'f' | 'F' => format!("{float:.precision$}"),
        '%' => format!("{:.precision$}%", float * 100.0),
        'e' | 'E' => exponent(float, precision, kind),
        _ => general(float, precision.max(1), spec.alternate, kind),
    };
    let text = match spec.grouping {
        Some(separator) => group(&text, separator),
        None => text,
    };
    Ok(pad_number(&text, spec))
}

fn exponent(f: f64, precision: usize, kind: char) -> String {
    let text = format!("{f:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let text = format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs());
    if kind.is_ascii_uppercase() { text.to_uppercase() } else { text }
}

fn general(f: f64, precision: usize, keep_zeros: bool, kind: char) -> String {
    let digits = precision - 1;
    let scientific = format!("{f:.digits$e}");
    let power: i32 = scientific.split_once('e').and_then(|(_, p)| p.parse().ok()).unwrap_or(0);
    let trim = |text: &str| {
        if keep_zeros || !text.contains('.') {
            return text.to_owned();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let out = if power < -4 || power >= precision as i32 {
        let text = exponent(f, digits, 'e');
        let (mantissa, tail) = text.split_once('e').unwrap_or((&text, "+00"));
        format!("{}e{tail}", trim(mantissa))
    } else {
        let after = usize::try_from(digits as i32 - power).unwrap_or(0);
        trim(&format!("{f:.after$}"))
    };
    if kind.is_ascii_uppercase() { out.to_uppercase() } else { out }
}
