//! Attributes: which names a value has in Python, and which of them a template may see.

use super::ast::Name;
use super::value::{Object, Undefined, Value};
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

const STR_METHODS: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
const DICT_METHODS: &[&str] = &["copy", "fromkeys", "get", "items", "keys", "values"];
const DICT_MUTATORS: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];
const SEQ_METHODS: &[&str] = &["copy", "count", "index"];
const LIST_MUTATORS: &[&str] = &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
const LOOP_METHODS: &[&str] = &["changed", "cycle"];

/// `value.name`: the attribute, then the element of that name, then undefined.
pub(crate) fn attribute(value: &Value, name: &Name) -> TemplateResult<Value> {
    let owner = value.owner_name();
    if let Value::Undefined(undefined) = value {
        return Err(undefined.error());
    }
    if name.starts_with("__") {
        let message = format!("access to attribute '{name}' of '{owner}' is not allowed in a chat template");
        return Err(TemplateError::new(Kind::Security, message));
    }
    let (methods, mutators): (&[&str], &[&str]) = match value {
        Value::Str(_) => (STR_METHODS, &[]),
        Value::Dict(_) => (DICT_METHODS, DICT_MUTATORS),
        Value::Seq(seq) if seq.tuple => (SEQ_METHODS, &[]),
        Value::Seq(_) => (SEQ_METHODS, LIST_MUTATORS),
        Value::Object(object) if matches!(**object, Object::Loop(_)) => (LOOP_METHODS, &[]),
        _ => (&[], &[]),
    };
    if methods.contains(&&**name) {
        return Ok(Value::object(Object::Method { receiver: value.clone(), name: name.clone() }));
    }
    if mutators.contains(&&**name) {
        return Ok(Value::Undefined(Undefined::Forbidden { owner, name: name.clone() }));
    }
    let found = match value {
        Value::Dict(dict) => dict.map.get(&super::value::Key::Str(name.clone())).cloned(),
        Value::Object(object) => match &**object {
            Object::Namespace(ns) => ns.vars.borrow().get(name).cloned(),
            Object::Loop(state) => loop_attribute(state, name),
            Object::Macro { name: own, .. } if &**name == "name" => Some(Value::Str(own.clone())),
            Object::Cycler { items, at } if &**name == "current" => items.get(at.get()).cloned(),
            Object::Cycler { .. } if matches!(&**name, "next" | "reset") => {
                Some(Value::object(Object::Method { receiver: value.clone(), name: name.clone() }))
            }
            _ => None,
        },
        _ => None,
    };
    Ok(found.unwrap_or_else(|| Value::Undefined(Undefined::Attr { owner, name: name.clone() })))
}

fn loop_attribute(state: &super::value::LoopState, name: &str) -> Option<Value> {
    let (index, len) = (state.index.get(), state.items.len());
    let int = |n: usize| Some(Value::Int(n as i128));
    match name {
        "index" => int(index + 1),
        "index0" => int(index),
        "revindex" => int(len.saturating_sub(index)),
        "revindex0" => int(len.saturating_sub(index + 1)),
        "first" => Some(Value::Bool(index == 0)),
        "last" => Some(Value::Bool(index + 1 >= len)),
        "length" => int(len),
        "depth" => int(state.depth0 + 1),
        "depth0" => int(state.depth0),
        "previtem" => Some(
            index
                .checked_sub(1)
                .and_then(|i| state.items.get(i).cloned())
                .unwrap_or(Value::Undefined(Undefined::Other("there is no previous item"))),
        ),
        "nextitem" => Some(
            state
                .items
                .get(index + 1)
                .cloned()
                .unwrap_or(Value::Undefined(Undefined::Other("there is no next item"))),
        ),
        _ => None,
    }
}
