//! What belongs to one request on its way through the server: its id, and what its client should know beside the answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::error::{ApiError, Dialect};
use crate::ids;
use crate::state::App;

/// Names the request in responses and logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Fields of the body that were not understood, separated by commas.
const IGNORED: HeaderName = HeaderName::from_static("x-hanzo-ignored");
/// What was done differently from what was asked.
const WARNING: HeaderName = HeaderName::from_static("x-hanzo-warning");
/// Most bytes of a header that a request's content makes.
const MAX_HEADER: usize = 1024;

/// Names a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId {
    pub(crate) text: Arc<str>,
    /// The trace that it belongs to, as its client said it.
    #[cfg(feature = "otel")]
    pub(crate) traceparent: Option<Arc<str>>,
}

/// What a client should know beside the answer: nothing that it sent is passed over in silence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    ignored: Vec<String>,
    warnings: Vec<String>,
}

impl Notes {
    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        // A list of strings cannot be left half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These fields have no meaning here.
    pub(crate) fn ignored(&self, fields: impl IntoIterator<Item = String>) {
        self.lines().ignored.extend(fields);
    }

    /// This was done differently from what was asked.
    pub(crate) fn warn(&self, warning: impl Into<String>) {
        self.lines().warnings.push(warning.into());
    }

    pub(crate) fn take_ignored(&self) -> Vec<String> {
        std::mem::take(&mut self.lines().ignored)
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.lines().warnings)
    }
}

/// The client's id for a request if it is fit for headers and logs, or a new one.
fn request_id(headers: &HeaderMap) -> Arc<str> {
    let fit = |id: &&str| !id.is_empty() && id.len() <= 128 && id.bytes().all(|b| b.is_ascii_graphic());
    match headers.get(&REQUEST_ID).and_then(|v| v.to_str().ok()).filter(fit) {
        Some(id) => Arc::from(id),
        None => Arc::from(ids::unique("req_")),
    }
}

/// Texts as one header; what headers cannot hold becomes `?`.
fn header_of(texts: &[String], separator: &str) -> Option<HeaderValue> {
    if texts.is_empty() {
        return None;
    }
    let mut line: String =
        texts.join(separator).chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect();
    line.truncate(MAX_HEADER);
    HeaderValue::from_str(&line).ok()
}

/// The outermost layer: gives the request its id and notes, writes errors in the dialect of the path, logs a line.
pub(crate) async fn accompany(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = request_id(request.headers());
    let notes = Notes::default();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let request_id = RequestId {
        text: Arc::clone(&id),
        #[cfg(feature = "otel")]
        traceparent: request.headers().get("traceparent").and_then(|v| v.to_str().ok()).map(Arc::from),
    };
    request.extensions_mut().insert(request_id);
    request.extensions_mut().insert(notes.clone());
    let mut response = next.run(request).await;
    let error = response.extensions_mut().remove::<ApiError>();
    let dialect = Dialect::of(&path);
    if let Some(error) = error.as_ref().filter(|_| dialect != Dialect::OpenAi) {
        response = error.response(dialect);
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    let (ignored, warnings) = (notes.take_ignored(), notes.take_warnings());
    headers.extend(header_of(&ignored, ",").map(|value| (IGNORED, value)));
    headers.extend(header_of(&warnings, "; ").map(|value| (WARNING, value)));

    let (id, path, status) = (&*id, printable(&path), response.status().as_u16());
    let ms = began.elapsed().as_secs_f64() * 1e3;
    let quiet = app.is_watched(&path) && status == 200;
    match error {
        // A message can quote the request, so it is for the log only where prompts are.
        Some(error) if status >= 500 => {
            tracing::error!(id, %method, path, status, ms, "{}", error.message);
        }
        Some(error) => {
            let place = error.pointer.as_deref().map(printable).unwrap_or_default();
            let code = error.code.unwrap_or("");
            tracing::info!(id, %method, path, status, ms, code, place, "refused");
        }
        None if quiet => tracing::debug!(id, %method, path, status, ms, "answered"),
        None => tracing::info!(id, %method, path, status, ms, "answered"),
    }
    if !ignored.is_empty() {
        let fields = printable(&ignored.join(","));
        tracing::debug!(id, fields, "fields without meaning here");
    }
    response
}

/// At most 200 characters, none of them a control character: fit for a line of a log.
fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_clients_are_kept_if_they_are_fit() {
        let id = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
            request_id(&headers).to_string()
        };
        assert_eq!(id(b"abc-1"), "abc-1");
        for unfit in [&b"a b"[..], b"", b"\xff", &[b'x'; 129]] {
            assert!(id(unfit).starts_with("req_"));
        }
    }

    #[test]
    fn headers_hold_only_what_they_can() {
        let value = header_of(&["a\nb".to_owned(), "é".to_owned()], ",").unwrap();
        assert_eq!(value, "a?b,?");
        assert_eq!(header_of(&["x".repeat(5000)], ",").unwrap().len(), MAX_HEADER);
        assert_eq!(header_of(&[], ","), None);
    }
}
