//! What the bytes of a request's body mean, and where they are wrong.
//!
//! In this order: content type, size, time to arrive, UTF-8, nesting (before anything recurses), JSON, duplicate keys; then
//! the types of what is read, with a JSON pointer to the fault. Fields that nobody reads are accepted and reported.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::{self, DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use crate::context::Notes;
use crate::error::ApiError;
use crate::generate::blocking;
use crate::state::App;

/// Bytes of a body that are read elsewhere than on the threads that serve connections.
const LONG: usize = 256 << 10;

/// A JSON body. What it holds is read by one or several types, each of which takes the fields that it knows.
#[derive(Debug)]
pub(crate) struct JsonBody {
    value: Value,
    /// Fields that none of the types read so far knows; `None` before the first.
    ignored: Option<BTreeSet<String>>,
    notes: Notes,
}

impl JsonBody {
    /// Reads a part of the body.
    ///
    /// # Errors
    /// A field of the wrong type, with its JSON pointer.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        let (mut ignored, mut track) = (BTreeSet::new(), serde_path_to_error::Track::new());
        let tracked = serde_path_to_error::Deserializer::new(&self.value, &mut track);
        let mut ignore = |path: serde_ignored::Path<'_>| {
            // `?` stands for an option that is there.
            ignored.insert(path.to_string().replace(".?", ""));
        };
        match T::deserialize(serde_ignored::Deserializer::new(tracked, &mut ignore)) {
            Ok(value) => {
                self.ignored = Some(match self.ignored.take() {
                    Some(before) => in_both(&before, &ignored),
                    None => ignored,
                });
                Ok(value)
            }
            Err(error) => {
                let (mut at, message) = (pointer(&track.path()), error.to_string());
                // What is missing has a place too.
                if let Some(name) = message.strip_prefix("missing field `").and_then(|m| m.strip_suffix('`'))
                {
                    at.push('/');
                    at.push_str(name);
                }
                Err(ApiError::at(at, message))
            }
        }
    }
}

/// The fields that are in both sets, themselves or as a part of a field that is.
fn in_both(a: &BTreeSet<String>, b: &BTreeSet<String>) -> BTreeSet<String> {
    let has = |set: &BTreeSet<String>, field: &str| {
        let inside = |outer: &String| {
            field.strip_prefix(outer.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        set.iter().any(inside)
    };
    a.union(b).filter(|field| has(a, field) && has(b, field)).cloned().collect()
}

impl Drop for JsonBody {
    fn drop(&mut self) {
        self.notes.ignored(self.ignored.take().into_iter().flatten());
    }
}

/// The path as a JSON pointer.
pub(crate) fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut out = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => out.push_str(&format!("/{index}")),
            Segment::Map { key } => {
                out.push('/');
                out.push_str(&escape(key));
            }
            // Not places in the JSON.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    out
}

/// A key as a part of a JSON pointer.
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

impl FromRequest<Arc<App>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let body = Self::receive(request, app).await?;
        if !body.value.is_object() {
            return Err(ApiError::at("", "the body must be a JSON object"));
        }
        Ok(body)
    }
}

/// A body that is a JSON array.
#[derive(Debug)]
pub(crate) struct JsonList(pub(crate) JsonBody);

impl FromRequest<Arc<App>> for JsonList {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let body = JsonBody::receive(request, app).await?;
        if !body.value.is_array() {
            return Err(ApiError::at("", "the body must be a JSON array"));
        }
        Ok(Self(body))
    }
}

impl JsonBody {
    async fn receive(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let content_type = request.headers().get(header::CONTENT_TYPE).map(|v| v.to_str().unwrap_or(""));
        check_content_type(content_type)?;
        let limits = &app.config.limits;
        let notes = request.extensions().get::<Notes>().cloned().unwrap_or_default();
        let too_large = || {
            ApiError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body has more than {} bytes, which is this server's limit", limits.body_bytes),
            )
        };
        let length =
            request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|n| n > limits.body_bytes as u64) {
            return Err(too_large());
        }
        let body = Limited::new(request.into_body(), limits.body_bytes).collect();
        let body = tokio::time::timeout(limits.body_time, body).await.map_err(|_| {
            let seconds = limits.body_time.as_secs_f32();
            ApiError::new(StatusCode::REQUEST_TIMEOUT, format!("the body did not arrive within {seconds} s"))
        })?;
        let bytes = body.map_err(|e| match e.downcast_ref::<LengthLimitError>() {
            Some(_) => too_large(),
            None => ApiError::invalid(format!("the body ended early: {e}")),
        })?;
        let (bytes, depth) = (bytes.to_bytes(), limits.json_depth);
        // What takes its time must not keep the others' bytes from moving.
        let value = if bytes.len() > LONG {
            blocking(move || parse(&bytes, depth)).await??
        } else {
            parse(&bytes, depth)?
        };
        Ok(Self { value, ignored: None, notes })
    }
}

fn check_content_type(content_type: Option<&str>) -> Result<(), ApiError> {
    let essence = content_type.map(|t| t.split(';').next().unwrap_or("").trim().to_ascii_lowercase());
    match essence.as_deref() {
        Some("application/json") => Ok(()),
        // A page of another origin can send these without asking: its user's browser must not be a way in.
        found => Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the content type is {}; send application/json", found.unwrap_or("missing")),
        )),
    }
}

/// Parses JSON strictly: no duplicate keys, no deeper than `max_depth`.
///
/// # Errors
/// What is wrong and at which byte, line or pointer.
fn parse(bytes: &[u8], max_depth: usize) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        ApiError::invalid(format!("the body is not UTF-8: byte {} is wrong", e.valid_up_to()))
    })?;
    if let Some(at) = too_deep(bytes, max_depth) {
        return Err(ApiError::invalid(format!(
            "the JSON is nested deeper than {max_depth} levels at byte {at}"
        )));
    }
    let mut parser = serde_json::Deserializer::from_str(text);
    let mut path = Vec::new();
    let value = Strict { path: &mut path }.deserialize(&mut parser).and_then(|v| parser.end().map(|()| v));
    value.map_err(|e| {
        let error = ApiError::invalid(format!("the body is not the JSON it should be: {e}"));
        if path.is_empty() { error } else { error.with_pointer(path.concat()) }
    })
}

/// The byte at which brackets nest too deep.
fn too_deep(bytes: &[u8], max_depth: usize) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in bytes.iter().enumerate() {
        if in_string {
            (in_string, escaped) = (escaped || *byte != b'"', !escaped && *byte == b'\\');
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > max_depth {
            return Some(at);
        }
    }
    None
}

/// Builds a value; after an error, `path` leads to where it was.
struct Strict<'p> {
    path: &'p mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_string<E: de::Error>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        loop {
            self.path.push(format!("/{}", out.len()));
            match items.next_element_seed(Strict { path: self.path })? {
                Some(item) => out.push(item),
                None => break,
            }
            self.path.pop();
        }
        self.path.pop();
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.path.push(format!("/{}", escape(&key)));
            if out.contains_key(&key) {
                return Err(de::Error::custom("the key is there twice"));
            }
            let value = entries.next_value_seed(Strict { path: self.path })?;
            self.path.pop();
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// A whole number within bounds.
///
/// # Errors
/// The bounds, at the field.
pub(crate) fn within(
    name: &str,
    value: Option<i64>,
    least: i64,
    most: i64,
) -> Result<Option<usize>, ApiError> {
    let Some(n) = value else { return Ok(None) };
    match usize::try_from(n) {
        Ok(size) if (least..=most).contains(&n) => Ok(Some(size)),
        _ => Err(ApiError::at(format!("/{name}"), format!("`{name}` is {n}; it must be {least} to {most}"))),
    }
}

/// One or several of something.
#[derive(Clone, Debug)]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(item) => vec![item],
            Self::Many(items) => items,
        }
    }
}

/// Untagged without serde's buffering, which would lose the place of a fault.
impl<'de> Deserialize<'de> for OneOrMany<String> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany<String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of strings")
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Self::Value, E> {
                Ok(OneOrMany::One(v.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut out = Vec::new();
                while let Some(item) = items.next_element()? {
                    out.push(item);
                }
                Ok(OneOrMany::Many(out))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fault(text: &[u8]) -> (Option<String>, String) {
        let error = parse(text, 8).unwrap_err();
        (error.pointer, error.message)
    }

    #[test]
    fn good_json_is_taken_as_it_is() {
        let text = br#"{"b":[1,-2,2.5,null,true,"x\"]}"],"a":{"":18446744073709551615}}"#;
        let value = parse(text, 8).unwrap();
        assert_eq!(serde_json::to_vec(&value).unwrap(), text);
    }

    #[test]
    fn faults_have_places() {
        let (pointer, message) = fault(br#"{"a":{"x":1,"b":[{"c":1,"c":2}]}}"#);
        assert_eq!(pointer.as_deref(), Some("/a/b/0/c"), "{message}");
        assert!(message.contains("twice"));
        assert_eq!(fault(br#"{"a":[1,NaN]}"#).0.as_deref(), Some("/a/1"));
        assert_eq!(fault(br#"{"a":1e999}"#).0.as_deref(), Some("/a"));
        assert!(fault(b"\xff\xfe").1.contains("byte 0"));
        assert!(fault(b"{} {}").1.contains("trailing"));
        assert!(fault(b"").1.contains("EOF"));
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        assert!(fault(&deep).1.contains("deeper than 8 levels at byte 8"));
        assert!(parse(br#"["[[[[[[[[[[\\", "\""]"#, 8).is_ok(), "brackets in strings do not nest");
    }

    #[test]
    fn types_are_checked_with_pointers_and_the_unknown_is_reported() {
        #[derive(Debug, Deserialize)]
        struct Inner {
            #[allow(dead_code)]
            n: u32,
        }
        #[derive(Debug, Deserialize)]
        struct Outer {
            #[allow(dead_code)]
            list: Vec<Inner>,
        }
        #[derive(Debug, Deserialize)]
        struct Other {
            #[allow(dead_code)]
            other: Option<String>,
        }
        let notes = Notes::default();
        let body = |value| JsonBody { value, ignored: None, notes: notes.clone() };
        let error = body(json!({"list": [{"n": 1}, {"n": -1}]})).read::<Outer>().unwrap_err();
        assert_eq!(error.pointer.as_deref(), Some("/list/1/n"), "{}", error.message);
        assert_eq!(notes.take_ignored(), Vec::<String>::new());
        let mut good = body(json!({"list": [{"n": 1, "m": 2}], "other": "x", "more": 1}));
        good.read::<Outer>().unwrap();
        good.read::<Other>().unwrap();
        drop(good);
        assert_eq!(notes.take_ignored(), ["list.0.m", "more"]);
    }

    #[test]
    fn only_json_is_taken() {
        assert!(check_content_type(Some("application/json; charset=utf-8")).is_ok());
        assert!(check_content_type(Some("Application/JSON")).is_ok());
        for wrong in [None, Some("text/plain"), Some(""), Some("application/x-www-form-urlencoded")] {
            assert_eq!(check_content_type(wrong).unwrap_err().status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
    }
}
