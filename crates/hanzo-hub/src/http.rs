//! Requests to the Hub: one at a time, redirects under our control, failures in words.
//!
//! The token goes to the Hub's own address and nowhere else; an encrypted connection never becomes a plain one.

use std::io::Read;
use std::time::Duration;

use ureq::http::{HeaderMap, Method, Request, Response, Uri};
use ureq::{Agent, Body};

use crate::config::HubConfig;
use crate::error::{Error, Result};

/// Redirects that are followed.
const MAX_REDIRECTS: usize = 10;
/// Longest answer that is read whole, in bytes: the list of a repository's files.
const MAX_TEXT: u64 = 32 << 20;
/// Longest message of the Hub that is repeated, in characters.
const MAX_MESSAGE: usize = 200;
/// Time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// Talks to one Hub.
#[derive(Debug)]
pub(crate) struct Http {
    agent: Agent,
    config: HubConfig,
}

/// An answer that is a success.
pub(crate) struct Answer {
    pub(crate) url: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

impl Answer {
    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A header as a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.trim().parse().ok()
    }

    /// The whole body, which must be text of reasonable length.
    pub(crate) fn text(mut self) -> Result<String> {
        let mut bytes = Vec::new();
        let read = self.body.as_reader().take(MAX_TEXT + 1).read_to_end(&mut bytes);
        read.map_err(|error| Error::Network { url: self.url.clone(), why: error.to_string() })?;
        let bad = |why: String| Error::BadAnswer { url: self.url.clone(), why };
        if bytes.len() as u64 > MAX_TEXT {
            return Err(bad(format!("the answer is longer than {MAX_TEXT} bytes")));
        }
        String::from_utf8(bytes).map_err(|_| bad("the answer is not UTF-8".to_owned()))
    }
}

/// What is asked for.
pub(crate) struct Question<'a> {
    pub(crate) method: Method,
    pub(crate) url: String,
    /// First byte wanted.
    pub(crate) from: u64,
    /// What to call it in errors.
    pub(crate) what: &'a str,
}

impl Http {
    pub(crate) fn new(config: HubConfig) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(config.timeout))
            .timeout_per_read(Some(config.timeout))
            .timeout_per_write(Some(config.timeout))
            .user_agent(concat!("hanzo/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Self { agent, config }
    }

    pub(crate) fn config(&self) -> &HubConfig {
        &self.config
    }

    /// Asks once, following redirects until `enough` says that an answer will do.
    ///
    /// # Errors
    /// No answer, or one that is no success.
    pub(crate) fn ask(&self, question: &Question<'_>, enough: fn(&HeaderMap) -> bool) -> Result<Answer> {
        let mut url = question.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(question, &url)?;
            let status = response.status().as_u16();
            if (300..400).contains(&status) && status != 304 && !enough(response.headers()) {
                url = next(&url, response.headers())?;
                continue;
            }
            let redirect_that_will_do = (300..400).contains(&status);
            if !(200..300).contains(&status) && !redirect_that_will_do {
                return Err(self.failure(question, url, response));
            }
            let (parts, body) = response.into_parts();
            return Ok(Answer { url, status, headers: parts.headers, body });
        }
        Err(Error::BadAnswer {
            url: question.url.clone(),
            why: format!("more than {MAX_REDIRECTS} redirects"),
        })
    }

    fn send(&self, question: &Question<'_>, url: &str) -> Result<Response<Body>> {
        let network = |why: String| Error::Network { url: url.to_owned(), why };
        let mut request = Request::builder().method(question.method.clone()).uri(url);
        // A compressed file would have another length and digest.
        request = request.header("Accept-Encoding", "identity");
        if question.from > 0 {
            request = request.header("Range", format!("bytes={}-", question.from));
        }
        if let Some(token) = &self.config.token
            && origin(url) == origin(&self.config.endpoint)
        {
            request = request.header("Authorization", token.header());
        }
        let request = request.body(()).map_err(|error| network(error.to_string()))?;
        self.agent.run(request).map_err(|error| network(in_words(error)))
    }

    /// The error that an answer is.
    fn failure(&self, question: &Question<'_>, url: String, mut response: Response<Body>) -> Error {
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let code = header("x-error-code").unwrap_or_default();
        let after = header("retry-after").and_then(|text| retry_after(&text));
        let message = header("x-error-message").unwrap_or_default();
        let message = match message.is_empty() {
            false => message,
            true => json_error(response.body_mut()).unwrap_or_default(),
        };
        let message = plain(&message);
        let (endpoint, what) = (self.config.endpoint.clone(), question.what.to_owned());
        let with_token = self.config.token.is_some();
        match status {
            // Without a token, a repository that does not exist is told from a private one by nobody.
            401 | 403 => Error::Denied { endpoint, what, message, with_token },
            _ if code == "GatedRepo" => Error::Denied { endpoint, what, message, with_token },
            404 => Error::NotFound { endpoint, what, message },
            429 => Error::TooManyRequests { endpoint, after, with_token },
            _ => Error::Status { url, status, message },
        }
    }
}

/// `scheme://host:port` of an address.
fn origin(url: &str) -> Option<(String, String)> {
    let uri: Uri = url.parse().ok()?;
    Some((uri.scheme_str()?.to_ascii_lowercase(), uri.authority()?.as_str().to_ascii_lowercase()))
}

/// Where a redirect leads.
fn next(url: &str, headers: &HeaderMap) -> Result<String> {
    let bad = |why: &str| Error::BadAnswer { url: url.to_owned(), why: why.to_owned() };
    let location = headers.get("location").and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| bad("a redirect that leads nowhere"))?;
    let (scheme, host) = origin(url).ok_or_else(|| bad("an address without a host"))?;
    let target = if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{host}{location}")
    } else {
        location.to_owned()
    };
    match origin(&target) {
        Some((to, _)) if to == "https" || (to == "http" && scheme == "http") => Ok(target),
        Some((to, _)) if to == "http" => {
            Err(bad("a redirect from https to http, which would be unprotected"))
        }
        _ => Err(bad("a redirect to something that is no web address")),
    }
}

/// Seconds. A date, which HTTP allows too, is not read: the usual wait applies.
fn retry_after(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

/// The message of `{"error": "…"}`.
fn json_error(body: &mut Body) -> Option<String> {
    let mut bytes = Vec::new();
    body.as_reader().take(1 << 16).read_to_end(&mut bytes).ok()?;
    let json: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    Some(json.get("error")?.as_str()?.to_owned())
}

/// A stranger's words, without control characters and not too many.
fn plain(text: &str) -> String {
    let text = text.trim();
    let mut short: String = text.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE).collect();
    if text.chars().count() > MAX_MESSAGE {
        short.push('…');
    }
    short
}

fn in_words(error: ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "the host is not known; is there a network?".to_owned(),
        ureq::Error::Timeout(_) => "no answer in time".to_owned(),
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(from: &str, to: &str) -> Result<String> {
        let mut headers = HeaderMap::new();
        headers.insert("location", to.parse().unwrap());
        next(from, &headers)
    }

    #[test]
    fn redirects_lead_where_they_may() {
        for (from, to, expected) in [
            ("https://hub/a", "/b?c=d", Some("https://hub/b?c=d")),
            ("https://hub/a", "//cdn/b", Some("https://cdn/b")),
            ("https://hub/a", "https://cdn/b", Some("https://cdn/b")),
            ("http://hub:8080/a", "/b", Some("http://hub:8080/b")),
            ("http://hub/a", "https://cdn/b", Some("https://cdn/b")),
            ("https://hub/a", "http://cdn/b", None),
            ("https://hub/a", "file:///etc/passwd", None),
            ("https://hub/a", "b", None),
            ("https://hub/a", "", None),
        ] {
            assert_eq!(redirect(from, to).ok().as_deref(), expected, "{from} {to}");
        }
        assert!(next("https://hub/a", &HeaderMap::new()).is_err());
    }

    #[test]
    fn words_of_strangers_are_harmless() {
        assert_eq!(plain(" a\x1b[2Jb\n"), "a[2Jb");
        assert_eq!(plain(&"x".repeat(300)).chars().count(), MAX_MESSAGE + 1);
    }
}
