//! What goes wrong with a request: one type, written as each dialect's clients expect it.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hanzo_engine::{ConstraintError, EngineError};
use serde_json::{Value, json};

/// Whose clients read the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `{"error": {"message", "type", "param", "code"}}`; also for all paths that belong to no other.
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`.
    Anthropic,
    /// `{"error": "message"}`.
    Ollama,
}

impl Dialect {
    /// The dialect that a path belongs to.
    pub(crate) fn of(path: &str) -> Self {
        if path == "/v1/messages" || path.starts_with("/v1/messages/") {
            Self::Anthropic
        } else if path.starts_with("/api/") {
            Self::Ollama
        } else {
            Self::OpenAi
        }
    }
}

/// Why a request was not answered as it wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The status of the response.
    pub status: StatusCode,
    /// A word for programs (`model_not_found`, `context_length_exceeded`, …).
    pub code: Option<&'static str>,
    /// A sentence for people: the thing, the place, the way out.
    pub message: String,
    /// JSON pointer (RFC 6901) of the fault in the request's body.
    pub pointer: Option<String>,
    /// When it is worth trying again.
    pub retry_after: Option<Duration>,
}

impl ApiError {
    /// An error with a status and a sentence.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: None, message: message.into(), pointer: None, retry_after: None }
    }

    /// A request that cannot be right.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A value of the body that cannot be right.
    pub fn at(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(message).with_pointer(pointer)
    }

    /// A fault of the server's own.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// A model that is not here.
    pub fn unknown_model(name: &str, known: &[String]) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let name: String = name.chars().take(200).collect();
        Self::new(
            StatusCode::NOT_FOUND,
            format!("the model `{name}` does not exist; this server has: {known} (see GET /v1/models)"),
        )
        .with_code("model_not_found")
        .with_pointer("/model")
    }

    /// The same with a word for programs.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The same with a place.
    #[must_use]
    pub fn with_pointer(mut self, pointer: impl Into<String>) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    /// The same, unless it has a place already.
    #[must_use]
    pub fn or_pointer(mut self, pointer: &str) -> Self {
        self.pointer.get_or_insert_with(|| pointer.to_owned());
        self
    }

    /// OpenAI's word for the kind of fault.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 if self.code.is_none() => "not_found_error",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            500..=599 => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The body in a dialect.
    pub(crate) fn body(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::OpenAi => json!({"error": {
                "message": self.message,
                "type": self.kind(),
                "param": self.pointer.as_deref().map(param),
                "code": self.code,
                "pointer": self.pointer,
            }}),
            Dialect::Anthropic => {
                let kind = match (self.status.as_u16(), self.kind()) {
                    (404, _) => "not_found_error",
                    (413, _) => "request_too_large",
                    (503 | 529, _) => "overloaded_error",
                    (500..=599, _) => "api_error",
                    (_, kind) => kind,
                };
                let message = match &self.pointer {
                    Some(pointer) => format!("{}: {}", param(pointer), self.message),
                    None => self.message.clone(),
                };
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
            Dialect::Ollama => json!({"error": match &self.pointer {
                Some(pointer) => format!("{}: {}", param(pointer), self.message),
                None => self.message.clone(),
            }}),
        }
    }

    /// The response in a dialect.
    pub(crate) fn response(&self, dialect: Dialect) -> Response {
        let mut response = Response::new(Body::from(self.body(dialect).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // So that the outermost layer can write it in the path's dialect.
        response.extensions_mut().insert(self.clone());
        response
    }
}

/// `/messages/0/role` as OpenAI writes it: `messages[0].role`.
fn param(pointer: &str) -> String {
    let mut out = String::with_capacity(pointer.len() + 4);
    for part in pointer.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
            out.push('[');
            out.push_str(&name);
            out.push(']');
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        }
    }
    out
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.response(Dialect::OpenAi)
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::EmptyPrompt | EngineError::TokenId { .. } => Self::invalid(message),
            EngineError::PromptTooLong { .. } | EngineError::TextTooLong { .. } => {
                Self::invalid(message).with_code("context_length_exceeded")
            }
            EngineError::Param(e) => Self::at(format!("/{}", e.name), message),
            EngineError::Continuations { .. } => Self::at("/n", message),
            EngineError::NoLogits { .. } | EngineError::NoHidden { .. } => Self::at("/model", message),
            EngineError::Dimensions { .. } => Self::at("/dimensions", message),
            EngineError::Constraint(ConstraintError::Compile { .. } | ConstraintError::TooLarge { .. }) => {
                Self::invalid(message).with_code("invalid_grammar")
            }
            EngineError::Busy { .. } => Self {
                retry_after: Some(Duration::from_secs(1)),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("queue_full")
            },
            EngineError::Adapter(error) => crate::lora::error(&error),
            EngineError::Stopped => Self::new(StatusCode::SERVICE_UNAVAILABLE, message),
            _ => Self::internal(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_written_as_parameters() {
        assert_eq!(param("/messages/0/role"), "messages[0].role");
        assert_eq!(param("/a~1b/~0"), "a/b.~");
        assert_eq!(param(""), "");
    }

    #[test]
    fn a_model_that_cannot_do_it_is_the_requests_fault() {
        for (error, pointer) in [
            (EngineError::NoLogits { architecture: "bert" }, "/model"),
            (EngineError::NoHidden { architecture: "x" }, "/model"),
            (EngineError::Dimensions { asked: 9, size: 8 }, "/dimensions"),
        ] {
            let error = ApiError::from(error);
            assert_eq!((error.status, error.pointer.as_deref()), (StatusCode::BAD_REQUEST, Some(pointer)));
        }
    }

    #[test]
    fn each_dialect_has_its_shape() {
        let error = ApiError::unknown_model("x", &["a".to_owned()]);
        let openai = error.body(Dialect::OpenAi);
        assert_eq!(openai["error"]["type"], "invalid_request_error");
        assert_eq!(
            (&openai["error"]["param"], &openai["error"]["code"]),
            (&json!("model"), &json!("model_not_found"))
        );
        assert_eq!(error.body(Dialect::Anthropic)["error"]["type"], "not_found_error");
        assert!(
            error.body(Dialect::Ollama)["error"]
                .as_str()
                .is_some_and(|m| m.starts_with("model: the model `x`"))
        );
        assert_eq!(Dialect::of("/v1/messages/count_tokens"), Dialect::Anthropic);
        assert_eq!(Dialect::of("/v1/messagesx"), Dialect::OpenAi);
        assert_eq!(Dialect::of("/api/chat"), Dialect::Ollama);
    }
}
