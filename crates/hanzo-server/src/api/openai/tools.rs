//! Tools of a request, and what `tool_choice` makes of them.

use std::collections::HashSet;

use hanzo_engine::constraint::{Grammar, bounded_space};
use hanzo_text::parse::{Family, Tools};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::generate::Held;

/// Longest name of a tool.
const MAX_NAME: usize = 128;

/// Which tools the model may or must call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Choice {
    /// None: the reply is text.
    None,
    /// As the model likes.
    Auto,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// The tools of a request, checked.
#[derive(Clone, Debug)]
pub(crate) struct ToolUse {
    /// As the client sent them, for the template.
    pub(crate) tools: Vec<Value>,
    pub(crate) choice: Choice,
    /// Whether a reply may make several calls.
    pub(crate) parallel: bool,
}

/// A reply that must be calls.
#[derive(Clone, Debug)]
pub(crate) struct Forced {
    pub(crate) grammar: Grammar,
    /// How such a reply is read.
    pub(crate) family: Family,
}

impl ToolUse {
    /// Checks what a request says of tools; `None` without any.
    ///
    /// # Errors
    /// The first fault, with its pointer.
    pub(crate) fn check(
        tools: Option<Vec<Value>>,
        choice: Option<&Value>,
        parallel: Option<bool>,
        most: usize,
    ) -> Result<Option<Self>, ApiError> {
        let tools = tools.unwrap_or_default();
        if tools.len() > most {
            let message = format!("{} tools were given; at most {most} are possible", tools.len());
            return Err(ApiError::at("/tools", message));
        }
        let mut names = HashSet::new();
        for (i, tool) in tools.iter().enumerate() {
            if !names.insert(check_tool(tool, &format!("/tools/{i}"))?) {
                return Err(ApiError::at(format!("/tools/{i}/function/name"), "two tools have this name"));
            }
        }
        let choice = check_choice(choice, &names)?;
        if tools.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { tools, choice, parallel: parallel.unwrap_or(true) }))
    }

    /// What the parser needs to tell calls from text; `None` where nothing is a call.
    pub(crate) fn for_parser(&self) -> Option<Tools> {
        (self.choice != Choice::None).then(|| Tools::from_json(&self.tools))
    }

    /// Whether the model may call as it likes, but some arguments must fit their schema.
    pub(crate) fn is_strict(&self) -> bool {
        self.choice == Choice::Auto && self.tools.iter().any(is_strict)
    }

    /// What holds the calls of an otherwise free reply to their schemas, where the family's calls can be said in a
    /// grammar.
    pub(crate) fn held(&self, family: Family) -> Option<Held> {
        if family != Family::Hermes {
            return None;
        }
        let loose = |tool: &Value| {
            let mut tool = tool.clone();
            if !is_strict(&tool)
                && let Some(function) = tool.get_mut("function").and_then(Value::as_object_mut)
            {
                function.remove("parameters");
            }
            tool
        };
        let tools: Vec<Value> = self.tools.iter().map(loose).collect();
        let schema = bounded_space(call_schema(&tools, None));
        let grammar = format!("start: \"\\n\" call \"\\n</tool_call>\"\ncall: %json {schema}\n");
        Some(Held::OnMark { mark: "<tool_call>", grammar: Grammar::Lark(grammar), once: !self.parallel })
    }

    /// What the reply must be, if it must be calls. The model's own format is used where it can be said in a grammar,
    /// else a JSON list.
    pub(crate) fn forced(&self, family: Family) -> Option<Forced> {
        let only = match &self.choice {
            Choice::None | Choice::Auto => return None,
            Choice::Required => None,
            Choice::Named(name) => Some(name.as_str()),
        };
        let mut schema = call_schema(&self.tools, only);
        let several = self.parallel && only.is_none();
        if family == Family::Hermes {
            schema = bounded_space(schema);
            let more = if several { " (\"\\n</tool_call>\\n<tool_call>\\n\" call)*" } else { "" };
            let grammar =
                format!("start: \"<tool_call>\\n\" call{more} \"\\n</tool_call>\"\ncall: %json {schema}\n");
            return Some(Forced { grammar: Grammar::Lark(grammar), family });
        }
        let schema = match several {
            true => {
                let mut call = schema;
                let defs = call.as_object_mut().and_then(|call| call.remove("$defs"));
                let mut list = json!({"type": "array", "minItems": 1, "items": call});
                if let (Some(defs), Some(list)) = (defs, list.as_object_mut()) {
                    list.insert("$defs".to_owned(), defs);
                }
                list
            }
            false => schema,
        };
        Some(Forced { grammar: Grammar::JsonSchema(schema.to_string()), family: Family::Generic })
    }
}

/// The name of a tool that is as it should be.
fn check_tool<'t>(tool: &'t Value, at: &str) -> Result<&'t str, ApiError> {
    let Some(fields) = tool.as_object() else {
        return Err(ApiError::at(at, "expected an object"));
    };
    match fields.get("type").and_then(Value::as_str) {
        Some("function") => {}
        _ => {
            return Err(ApiError::at(
                format!("{at}/type"),
                "a tool's type is `function`; there is no other here",
            ));
        }
    }
    let Some(function) = fields.get("function").and_then(Value::as_object) else {
        return Err(ApiError::at(format!("{at}/function"), "expected an object"));
    };
    match function.get("parameters") {
        None | Some(Value::Null | Value::Object(_)) => {}
        Some(_) => {
            return Err(ApiError::at(
                format!("{at}/function/parameters"),
                "expected a JSON schema, an object",
            ));
        }
    }
    let fit = |name: &&str| {
        !name.is_empty()
            && name.len() <= MAX_NAME
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/'))
    };
    function.get("name").and_then(Value::as_str).filter(fit).ok_or_else(|| {
        let message = format!("a tool needs a name of 1 to {MAX_NAME} letters, digits, and _ - . : /");
        ApiError::at(format!("{at}/function/name"), message)
    })
}

fn check_choice(choice: Option<&Value>, names: &HashSet<&str>) -> Result<Choice, ApiError> {
    let choice = match choice {
        None | Some(Value::Null) => Choice::Auto,
        Some(Value::String(word)) => match word.as_str() {
            "none" => Choice::None,
            "auto" => Choice::Auto,
            "required" | "any" => Choice::Required,
            _ => {
                return Err(ApiError::at(
                    "/tool_choice",
                    "expected none, auto, required, or a function by name",
                ));
            }
        },
        Some(object) => {
            let name = object.get("function").and_then(|f| f.get("name")).and_then(Value::as_str);
            let message = "expected {\"type\": \"function\", \"function\": {\"name\": …}}";
            let name = name.ok_or_else(|| ApiError::at("/tool_choice", message))?;
            if !names.contains(name) {
                return Err(ApiError::at(
                    "/tool_choice/function/name",
                    "no tool of the request has this name",
                ));
            }
            Choice::Named(name.to_owned())
        }
    };
    if choice == Choice::Required && names.is_empty() {
        return Err(ApiError::at("/tool_choice", "a call is required, but there are no tools"));
    }
    Ok(choice)
}

/// The schema of a call of any of the tools, or of one by name.
fn call_schema(tools: &[Value], only: Option<&str>) -> Value {
    let mut defs = Map::new();
    let mut calls = Vec::new();
    for (i, tool) in tools.iter().enumerate() {
        let function = tool.get("function").unwrap_or(tool);
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let parameters = function.get("parameters").filter(|p| p.as_object().is_some_and(|p| !p.is_empty()));
        let mut arguments = parameters.cloned().unwrap_or_else(|| json!({"type": "object"}));
        if has_refs(&arguments) {
            // References are relative to the schema's root, which it is not any more.
            let key = format!("tool{i}");
            rebase(&mut arguments, &format!("#/$defs/{key}"));
            defs.insert(key.clone(), arguments);
            arguments = json!({"$ref": format!("#/$defs/{key}")});
        }
        calls.push(json!({
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        }));
    }
    let mut schema = match calls.len() {
        1 => calls.pop().unwrap_or_default(),
        _ => json!({"anyOf": calls}),
    };
    if let (false, Some(schema)) = (defs.is_empty(), schema.as_object_mut()) {
        schema.insert("$defs".to_owned(), Value::Object(defs));
    }
    schema
}

fn is_strict(tool: &Value) -> bool {
    tool.get("function").and_then(|f| f.get("strict")).and_then(Value::as_bool).unwrap_or(false)
}

fn has_refs(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.contains_key("$ref") || fields.values().any(has_refs),
        Value::Array(items) => items.iter().any(has_refs),
        _ => false,
    }
}

fn rebase(schema: &mut Value, root: &str) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get_mut("$ref")
                && let Some(rest) = target.strip_prefix('#')
            {
                *target = format!("{root}{rest}");
            }
            fields.values_mut().for_each(|v| rebase(v, root));
        }
        Value::Array(items) => items.iter_mut().for_each(|v| rebase(v, root)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters":
            {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}})
    }

    fn check(tools: Value, choice: Value) -> Result<Option<ToolUse>, ApiError> {
        ToolUse::check(tools.as_array().cloned(), Some(&choice), None, 3)
    }

    #[test]
    fn choices_are_understood() {
        let choice = |choice| check(json!([tool("f")]), choice).unwrap().unwrap().choice;
        assert_eq!(choice(json!(null)), Choice::Auto);
        assert_eq!(choice(json!("none")), Choice::None);
        assert_eq!(choice(json!("required")), Choice::Required);
        assert_eq!(choice(json!({"type": "function", "function": {"name": "f"}})), Choice::Named("f".into()));
        assert!(check(json!([]), json!("auto")).unwrap().is_none());
    }

    #[test]
    fn faults_have_pointers() {
        for (tools, choice, pointer) in [
            (json!([tool("a"), tool("b"), tool("c"), tool("d")]), json!("auto"), "/tools"),
            (json!([tool("a"), tool("a")]), json!("auto"), "/tools/1/function/name"),
            (json!([1]), json!("auto"), "/tools/0"),
            (json!([{"type": "web_search"}]), json!("auto"), "/tools/0/type"),
            (json!([{"type": "function"}]), json!("auto"), "/tools/0/function"),
            (json!([tool("a b")]), json!("auto"), "/tools/0/function/name"),
            (
                json!([{"type": "function", "function": {"name": "a", "parameters": []}}]),
                json!("auto"),
                "/tools/0/function/parameters",
            ),
            (json!([tool("a")]), json!("maybe"), "/tool_choice"),
            (json!([tool("a")]), json!({"function": {"name": "b"}}), "/tool_choice/function/name"),
            (json!([]), json!("required"), "/tool_choice"),
        ] {
            assert_eq!(check(tools, choice).unwrap_err().pointer.as_deref(), Some(pointer));
        }
    }

    #[test]
    fn references_follow_their_schema() {
        let mut with_refs = tool("f");
        with_refs["function"]["parameters"] = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"type": "string"}}});
        let schema = call_schema(&[tool("g"), with_refs], None);
        assert_eq!(schema["$defs"]["tool1"]["properties"]["p"]["$ref"], "#/$defs/tool1/$defs/P");
        assert_eq!(schema["anyOf"][1]["properties"]["arguments"]["$ref"], "#/$defs/tool1");
    }
}
