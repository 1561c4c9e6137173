//! Which web pages may ask: none but the server's own, unless named.

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::serve::ServeError;

/// Headers that a page may read beside the common ones.
const EXPOSED: [HeaderName; 3] = [
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-hanzo-ignored"),
    HeaderName::from_static("x-hanzo-warning"),
];

/// The layer that answers browsers. Without origins it allows nothing.
///
/// # Errors
/// For a text that is no origin.
pub(crate) fn layer(origins: &[String]) -> Result<CorsLayer, ServeError> {
    if origins.is_empty() {
        return Ok(CorsLayer::new());
    }
    let allowed = if origins.iter().any(|o| o == "*") {
        AllowOrigin::any()
    } else {
        let origin = |text: &String| {
            let fit = text.split_once("://").is_some_and(|(scheme, host)| {
                matches!(scheme, "http" | "https") && !host.is_empty() && !host.contains(['/', '*', ' '])
            });
            HeaderValue::from_str(text).ok().filter(|_| fit).ok_or_else(|| ServeError::Origin(text.clone()))
        };
        AllowOrigin::list(origins.iter().map(origin).collect::<Result<Vec<_>, _>>()?)
    };
    let headers = [header::AUTHORIZATION, header::CONTENT_TYPE];
    let own = ["x-api-key", "x-request-id", "anthropic-version", "anthropic-beta"];
    Ok(CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(headers.into_iter().chain(own.map(HeaderName::from_static)).collect::<Vec<_>>())
        .expose_headers(EXPOSED))
}
