//! API keys: who may ask.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::error::ApiError;
use crate::state::App;
use crate::web;

/// What can be asked without a key: whether the server lives, and the page that lets one enter a key.
const OPEN: &[&str] = &["/", "/health", "/ready", "/version"];

/// The keys, as digests: comparing these takes a time that tells nothing of a key, its length included.
#[derive(Debug)]
pub(crate) struct Keys(Vec<[u8; 32]>);

impl Keys {
    pub(crate) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key.as_bytes())).collect())
    }

    /// Whether a key is among them; all are compared.
    fn has(&self, key: &[u8]) -> bool {
        let key = digest(key);
        self.0.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(&key)).into()
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The key that a request shows: OpenAI's and Ollama's clients send it as a bearer token, Anthropic's as `x-api-key`.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes().trim_ascii()))
}

/// Lets a request through that shows a key, or needs none.
pub(crate) async fn require_key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let open = app.keys.0.is_empty()
        || OPEN.contains(&path)
        || path.starts_with(web::FILES)
        // A browser asks what it may send before it sends a key.
        || request.method() == Method::OPTIONS;
    if open {
        return next.run(request).await;
    }
    let message = match shown(request.headers()) {
        Some(key) if app.keys.has(key) => return next.run(request).await,
        Some(_) => "the API key is not one of this server's",
        None => "an API key is needed: send it as `Authorization: Bearer KEY`",
    };
    ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_both_headers() {
        let keys = Keys::new(&["sesame".to_owned(), "other".to_owned()]);
        let with = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            shown(&headers).is_some_and(|key| keys.has(key))
        };
        assert!(with("authorization", "Bearer sesame"));
        assert!(with("authorization", "bearer  other "));
        assert!(with("x-api-key", "sesame"));
        for (name, value) in [
            ("authorization", "sesame"),
            ("authorization", "Bearer"),
            ("authorization", "Bearer "),
            ("authorization", "Basic sesame"),
            ("authorization", "Bearer sesam"),
            ("x-api-key", ""),
        ] {
            assert!(!with(name, value), "{name}: {value}");
        }
    }
}
