//! Arguments that are not written as JSON: Python calls, Gemma's braces, and text between tags whose type the tool's
//! schema tells.

use serde_json::{Map, Value};

/// A call's name and arguments.
pub(super) type NamedArguments = (String, Map<String, Value>);

/// A reader over text, for small recursive formats. Depth is bounded.
struct Reader<'t> {
    rest: &'t str,
    /// What opens and closes a string besides quotes.
    quote: Option<&'static str>,
    depth: usize,
}

const MAX_DEPTH: usize = 100;

/// `name(k=v, …)` or `[name(k=v, …), …]`.
pub(super) fn python_calls(text: &str) -> Option<Vec<NamedArguments>> {
    let mut reader = Reader { rest: text.trim(), quote: None, depth: 0 };
    if !reader.eat("[") {
        let call = reader.python_call()?;
        return reader.rest.is_empty().then(|| vec![call]);
    }
    let mut calls = Vec::new();
    while !reader.eat("]") {
        if !calls.is_empty() {
            reader.expect(",")?;
        }
        calls.push(reader.python_call()?);
    }
    (reader.rest.is_empty() && !calls.is_empty()).then_some(calls)
}

/// `{key:value,…}` with unquoted keys and strings between two `quote`s.
pub(super) fn brace_arguments(text: &str, quote: &'static str) -> Option<Map<String, Value>> {
    let mut reader = Reader { rest: text.trim(), quote: Some(quote), depth: 0 };
    match reader.value()? {
        Value::Object(map) if reader.rest.trim().is_empty() => Some(map),
        _ => None,
    }
}

/// A value written as plain text: what the schema says it is, or what it looks like.
pub(super) fn typed(text: &str, schema: Option<&Value>) -> Value {
    let text = text.strip_prefix("<![CDATA[").and_then(|t| t.strip_suffix("]]>")).unwrap_or(text);
    let kind = schema.and_then(|s| s.get("type")).and_then(Value::as_str);
    if kind == Some("string") {
        return Value::from(text);
    }
    let parsed: Option<Value> = match text.trim() {
        "True" => Some(true.into()),
        "False" => Some(false.into()),
        "None" => Some(Value::Null),
        text => serde_json::from_str(text).ok(),
    };
    match parsed {
        // Without a schema a quoted string is taken as it is written.
        Some(Value::String(_)) if kind.is_none() => Value::from(text),
        Some(value) => value,
        None => Value::from(text),
    }
}

impl Reader<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Option<()> {
        self.eat(token).then_some(())
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (head, tail) = self.rest.split_at(end);
        self.rest = tail;
        head.to_owned()
    }

    fn python_call(&mut self) -> Option<NamedArguments> {
        self.skip_space();
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
        self.expect("(")?;
        let mut arguments = Map::new();
        let mut first = true;
        while !self.eat(")") {
            if !first {
                self.expect(",")?;
                if self.eat(")") {
                    break;
                }
            }
            first = false;
            self.skip_space();
            let key = self.take_while(|c| c.is_alphanumeric() || c == '_');
            self.expect("=").filter(|()| !key.is_empty())?;
            arguments.insert(key, self.value()?);
        }
        (!name.is_empty()).then_some((name, arguments))
    }

    fn value(&mut self) -> Option<Value> {
        self.skip_space();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let value = self.value_inner();
        self.depth -= 1;
        value
    }

    fn value_inner(&mut self) -> Option<Value> {
        if let Some(quote) = self.quote
            && self.eat(quote)
        {
            let (text, rest) = self.rest.split_once(quote)?;
            self.rest = rest;
            return Some(Value::from(text));
        }
        match self.rest.chars().next()? {
            quote @ ('"' | '\'') => self.string(quote).map(Value::from),
            open @ ('[' | '(') => {
                self.rest = self.rest.get(1..)?;
                let close = if open == '[' { "]" } else { ")" };
                let mut items = Vec::new();
                while !self.eat(close) {
                    if !items.is_empty() {
                        self.expect(",")?;
                        if self.eat(close) {
                            break;
                        }
                    }
                    items.push(self.value()?);
                }
                Some(Value::Array(items))
            }
            '{' => {
                self.rest = self.rest.get(1..)?;
                let mut map = Map::new();
                while !self.eat("}") {
                    if !map.is_empty() {
                        self.expect(",")?;
                        if self.eat("}") {
                            break;
                        }
                    }
                    let key = self.key()?;
                    self.expect(":")?;
                    map.insert(key, self.value()?);
                }
                Some(Value::Object(map))
            }
            _ => {
                match self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+')).as_str()
                {
                    "True" | "true" => Some(true.into()),
                    "False" | "false" => Some(false.into()),
                    "None" | "null" => Some(Value::Null),
                    word => serde_json::from_str::<serde_json::Number>(word).ok().map(Value::Number),
                }
            }
        }
    }

    fn key(&mut self) -> Option<String> {
        self.skip_space();
        if let Some(quote) = self.quote
            && self.eat(quote)
        {
            let (text, rest) = self.rest.split_once(quote)?;
            self.rest = rest;
            return Some(text.to_owned());
        }
        match self.rest.chars().next()? {
            quote @ ('"' | '\'') => self.string(quote),
            _ if self.quote.is_some() => {
                let key = self.take_while(|c| !matches!(c, ':' | '{' | '}' | ','));
                Some(key.trim().to_owned()).filter(|k| !k.is_empty())
            }
            _ => None,
        }
    }

    fn string(&mut self, quote: char) -> Option<String> {
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.rest = self.rest.get(at + 1..)?;
                    return Some(out);
                }
                '\\' => match chars.next()?.1 {
                    'n' => out.push('\n'),
                    't' => out.push('\t'),
                    'r' => out.push('\r'),
                    'u' => {
                        let mut code = 0;
                        for _ in 0..4 {
                            code = code * 16 + chars.next()?.1.to_digit(16)?;
                        }
                        out.push(char::from_u32(code)?);
                    }
                    other => out.push(other),
                },
                c => out.push(c),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn python() {
        let calls = python_calls(r#"[f(a="x, y)", b=[1, -2.5], c={'k': None}), g.call(d=True,)]"#).unwrap();
        assert_eq!(calls[0].0, "f");
        assert_eq!(json!(calls[0].1), json!({"a": "x, y)", "b": [1, -2.5], "c": {"k": null}}));
        assert_eq!((calls[1].0.as_str(), json!(calls[1].1)), ("g.call", json!({"d": true})));
        assert_eq!(python_calls("f()").unwrap().len(), 1);
        for bad in
            ["", "[]", "f", "f(", "f(1)", "f(a=)", "f(a=1) g()", "[f(a=1)", "[f(a=x)]", "f(a='x)", "(f())"]
        {
            assert!(python_calls(bad).is_none(), "{bad}");
        }
        assert!(python_calls(&format!("f(a={}", "[".repeat(100_000))).is_none());
    }

    #[test]
    fn braces() {
        let found =
            brace_arguments(r#"{city:<|"|>Zü, {rich}<|"|>,n:2,deep:{list:[<|"|>a<|"|>,true]}}"#, "<|\"|>")
                .unwrap();
        assert_eq!(json!(found), json!({"city": "Zü, {rich}", "n": 2, "deep": {"list": ["a", true]}}));
        assert!(brace_arguments("{a:}", "<|\"|>").is_none());
    }

    #[test]
    fn types_come_from_the_schema() {
        let string = json!({"type": "string"});
        assert_eq!(typed("42", Some(&string)), json!("42"));
        assert_eq!(typed("42", Some(&json!({"type": "integer"}))), json!(42));
        assert_eq!(typed("True", Some(&json!({"type": "boolean"}))), json!(true));
        assert_eq!(typed("[1, 2]", None), json!([1, 2]));
        assert_eq!(typed("plain words", None), json!("plain words"));
        assert_eq!(typed("\"quoted\"", None), json!("\"quoted\""));
    }
}
