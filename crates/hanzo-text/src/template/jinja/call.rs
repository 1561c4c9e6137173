//! Arguments of calls, filters and tests, and how they meet parameters.

use super::ast::Name;
use super::ops::{as_index, defined, type_error};
use super::value::Value;
use crate::template::error::TemplateResult;

/// Evaluated arguments.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(Name, Value)>,
}

impl Call {
    /// The arguments for the parameters of a built-in called `what`, by position or by name.
    pub(crate) fn bind<const N: usize>(
        &self,
        what: &str,
        params: [&str; N],
    ) -> TemplateResult<[Option<&Value>; N]> {
        let mut bound: [Option<&Value>; N] = [None; N];
        if self.positional.len() > N {
            let given = self.positional.len();
            return Err(type_error(format!("{what}() takes at most {N} argument(s), {given} were given")));
        }
        for (slot, value) in bound.iter_mut().zip(&self.positional) {
            *slot = Some(value);
        }
        for (name, value) in &self.named {
            let at = params.iter().position(|p| **p == **name);
            match at.and_then(|i| bound.get_mut(i)) {
                Some(slot @ None) => *slot = Some(value),
                Some(_) => return Err(type_error(format!("{what}() got two values for '{name}'"))),
                None => return Err(type_error(format!("{what}() got an unexpected argument '{name}'"))),
            }
        }
        Ok(bound)
    }

    /// Like [`bind`](Self::bind) for built-ins without parameters.
    pub(crate) fn none(&self, what: &str) -> TemplateResult<()> {
        self.bind::<0>(what, []).map(|_| ())
    }

    /// The arguments from the `n`th position on.
    pub(crate) fn skip(&self, n: usize) -> Call {
        Call { positional: self.positional.iter().skip(n).cloned().collect(), named: self.named.clone() }
    }
}

/// A string argument, or a default.
pub(crate) fn str_or<'v>(value: Option<&'v Value>, default: &'v str, what: &str) -> TemplateResult<&'v str> {
    match value {
        None => Ok(default),
        Some(value) => match defined(value)? {
            Value::Str(s) => Ok(s),
            other => Err(type_error(format!("{what} must be str, not {}", other.type_name()))),
        },
    }
}

/// An integer argument, or a default.
pub(crate) fn int_or(value: Option<&Value>, default: i128, what: &str) -> TemplateResult<i128> {
    match value {
        None => Ok(default),
        Some(value) => as_index(defined(value)?)
            .ok_or_else(|| type_error(format!("{what} must be int, not {}", value.type_name()))),
    }
}

/// A boolean argument (any value's truth), or a default.
pub(crate) fn bool_or(value: Option<&Value>, default: bool) -> bool {
    value.map_or(default, Value::truth)
}

/// An argument that must be there.
pub(crate) fn required<'v>(value: Option<&'v Value>, what: &str, name: &str) -> TemplateResult<&'v Value> {
    value.ok_or_else(|| type_error(format!("{what}() is missing the argument '{name}'")))
}
