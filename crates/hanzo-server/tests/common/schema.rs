//! A validator for the part of JSON Schema that `openapi.json` is written in. What it does not know is a fault of the schema.

#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The API's description.
pub struct Description(pub Value);

/// Keywords that say nothing about what is valid.
const NOTES: [&str; 3] = ["description", "default", "example"];

impl Description {
    /// The schema behind a reference.
    fn resolve<'s>(&'s self, schema: &'s Value) -> &'s Value {
        match schema["$ref"].as_str() {
            None => schema,
            Some(name) => {
                let found = name.strip_prefix('#').and_then(|pointer| self.0.pointer(pointer));
                self.resolve(found.unwrap_or_else(|| panic!("{name} is not there")))
            }
        }
    }

    /// All properties that a schema describes.
    pub fn properties<'s>(&'s self, schema: &'s Value) -> Map<String, Value> {
        let schema = self.resolve(schema);
        let parts = schema["allOf"].as_array().into_iter().flatten();
        let mut all: Map<String, Value> = parts.flat_map(|part| self.properties(part)).collect();
        all.extend(schema["properties"].as_object().cloned().unwrap_or_default());
        all
    }

    /// What is wrong with a value, with its place; nothing if it fits. An object may have no other properties than those that
    /// are described, unless its schema says what others are.
    pub fn faults(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut out = Vec::new();
        self.check(schema, value, "", &mut out);
        out
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
        self.check_open(schema, value, at, out);
        let schema = self.resolve(schema);
        let described = self.properties(schema);
        let open = schema.get("additionalProperties").is_some();
        if let (Some(fields), false, false) = (value.as_object(), open, described.is_empty()) {
            let others = fields.keys().filter(|key| !described.contains_key(*key));
            out.extend(others.map(|key| format!("{at}/{key}: it is not described")));
        }
    }

    /// As [`check`](Self::check), but of a part of a schema, beside which others describe more.
    fn check_open(&self, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
        let schema = self.resolve(schema);
        let keywords = schema.as_object().unwrap_or_else(|| panic!("{at}: {schema} is no schema"));
        for (keyword, says) in keywords {
            match keyword.as_str() {
                note if NOTES.contains(&note) => {}
                "type" => self.check_type(says, value, at, out),
                "const" if value != says => out.push(format!("{at}: {value} is not {says}")),
                "enum" if !says.as_array().unwrap().contains(value) => {
                    out.push(format!("{at}: {value} is none of {says}"));
                }
                "const" | "enum" => {}
                "minimum" if value.as_f64() < says.as_f64() && value.is_number() => {
                    out.push(format!("{at}: {value} is below {says}"));
                }
                "maximum" if value.as_f64() > says.as_f64() => {
                    out.push(format!("{at}: {value} is above {says}"));
                }
                "minimum" | "maximum" => {}
                "minItems" => {
                    let few =
                        value.as_array().is_some_and(|items| (items.len() as u64) < says.as_u64().unwrap());
                    out.extend(few.then(|| format!("{at}: fewer than {says}")));
                }
                "items" => {
                    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(says, item, &format!("{at}/{i}"), out);
                    }
                }
                "properties" => {
                    for (name, of) in says.as_object().unwrap() {
                        if let Some(value) = value.get(name) {
                            self.check(of, value, &format!("{at}/{name}"), out);
                        }
                    }
                }
                "required" => {
                    let names: BTreeSet<&str> =
                        says.as_array().unwrap().iter().filter_map(Value::as_str).collect();
                    let missing =
                        names.into_iter().filter(|name| value.is_object() && value.get(name).is_none());
                    out.extend(missing.map(|name| format!("{at}/{name}: it is missing")));
                }
                // A boolean here only says that what is not described is let be, or not.
                "additionalProperties" | "unevaluatedProperties" if says.is_boolean() => {}
                "additionalProperties" => {
                    for (name, value) in value.as_object().into_iter().flatten() {
                        self.check(says, value, &format!("{at}/{name}"), out);
                    }
                }
                "allOf" => {
                    says.as_array().unwrap().iter().for_each(|part| self.check_open(part, value, at, out))
                }
                "anyOf" => {
                    let fits = |one: &Value| self.faults(one, value).is_empty();
                    if !says.as_array().unwrap().iter().any(fits) {
                        out.push(format!("{at}: {value} fits none"));
                    }
                }
                other => panic!("{at}: the schema says `{other}`, which the test does not know"),
            }
        }
    }

    fn check_type(&self, wanted: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
        let is = |kind: &Value| match kind.as_str().unwrap() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("{at}: there is no type `{other}`"),
        };
        let fits = match wanted {
            Value::Array(kinds) => kinds.iter().any(is),
            one => is(one),
        };
        out.extend((!fits).then(|| format!("{at}: {value:.60} is not of type {wanted}")));
    }
}
