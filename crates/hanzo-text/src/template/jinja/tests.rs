//! Jinja2's tests: what may follow `is`.

use super::ast::CmpOp;
use super::budget::Budget;
use super::call::{Call, required};
use super::ops::{self, as_index};
use super::value::{Object, Value};
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// Whether `value is name(args)`.
pub(super) fn holds(name: &str, value: &Value, call: &Call, budget: &Budget) -> TemplateResult<bool> {
    let comparison = match name {
        "eq" | "equalto" | "==" => Some(CmpOp::Eq),
        "ne" | "!=" => Some(CmpOp::Ne),
        "lt" | "lessthan" | "<" => Some(CmpOp::Lt),
        "le" | "<=" => Some(CmpOp::Le),
        "gt" | "greaterthan" | ">" => Some(CmpOp::Gt),
        "ge" | ">=" => Some(CmpOp::Ge),
        "in" => Some(CmpOp::In),
        _ => None,
    };
    if let Some(op) = comparison {
        let [other] = call.bind(name, ["other"])?;
        return ops::compare(op, value, required(other, name, "other")?, budget);
    }
    if matches!(name, "divisibleby" | "sameas") {
        let [other] = call.bind(name, ["other"])?;
        let other = required(other, name, "other")?;
        return if name == "sameas" { same(value, other, budget) } else { divisible(value, other) };
    }
    let result = match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        // A bool is a number in Python.
        "number" => matches!(value, Value::Bool(_) | Value::Int(_) | Value::Float(_)),
        "string" => matches!(value, Value::Str(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        "sequence" => {
            matches!(value, Value::Str(_) | Value::Seq(_) | Value::Dict(_) | Value::Undefined(_))
        }
        "iterable" => {
            let is_loop = matches!(value, Value::Object(o) if matches!(**o, Object::Loop(_)));
            is_loop
                || !matches!(
                    value,
                    Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Object(_)
                )
        }
        "callable" => matches!(value, Value::Object(o)
            if !matches!(**o, Object::Namespace(_) | Object::Cycler { .. })),
        "escaped" => false,
        "odd" | "even" => {
            let odd = ops::arith(super::ast::BinOp::Mod, value, &Value::Int(2), budget)?;
            as_index(&odd).unwrap_or(0) == i128::from(name == "odd")
        }
        "lower" | "upper" => {
            let text = super::print::to_str(value, budget)?;
            super::methods::is_cased(&text, name == "upper")
        }
        "filter" => value.as_str().is_some_and(super::filters::exists),
        "test" => value.as_str().is_some_and(exists),
        _ => {
            let message = format!("No test named '{name}' found.");
            return Err(TemplateError::new(Kind::Unsupported, message));
        }
    };
    call.none(name)?;
    Ok(result)
}

fn exists(name: &str) -> bool {
    let probe = Call { positional: vec![Value::Int(1)], named: Vec::new() };
    let budget = Budget::for_request(0, 0);
    !matches!(holds(name, &Value::Int(1), &probe, &budget), Err(e) if e.kind == Kind::Unsupported)
}

fn divisible(value: &Value, by: &Value) -> TemplateResult<bool> {
    match (as_index(value), as_index(by)) {
        (Some(_), Some(0)) => Err(ops::value_error("integer modulo by zero")),
        (Some(a), Some(b)) => Ok(a.checked_rem(b) == Some(0)),
        _ => Err(ops::type_error("divisibleby needs integers")),
    }
}

/// Identity. Small values have none in Rust; Python shares the constants, which is what templates ask about.
fn same(a: &Value, b: &Value, budget: &Budget) -> TemplateResult<bool> {
    Ok(match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Str(_), Value::Str(_)) => ops::equal(a, b, budget)?,
        (Value::Seq(a), Value::Seq(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Object(a), Value::Object(b)) => std::rc::Rc::ptr_eq(a, b),
        _ => false,
    })
}
