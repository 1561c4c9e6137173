//! The web page at `/`: its files, compiled in, with the headers that make them safe and quick to load.
//!
//! The page is plain HTML, CSS and ES modules under `web/`; nothing is built, nothing comes from elsewhere. The document is
//! asked for anew each time; the files that it names stand under a path with their digest in it and never change there.
//! What the page does stands in its own files; which paths need no API key, in `auth`.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// Only our own files run, style and answer; no text of a model can become markup (`trusted-types`), be sent elsewhere
/// (`connect-src`, `form-action`), or stand in another's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Where the page's files are.
pub(crate) const FILES: &str = "/ui/";

/// How the document refers to its files, before the digest is put in.
const PLACE: &str = "\"ui/";

const DOCUMENT: &str = include_str!("../web/index.html");

macro_rules! assets {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../web/", $path)).as_slice())),*]
    };
}

/// The files under `/ui/DIGEST/`.
const ASSETS: &[(&str, &[u8])] = assets![
    "icon.svg",
    "css/base.css",
    "css/chat.css",
    "css/engine.css",
    "css/shell.css",
    "css/text.css",
    "js/api.js",
    "js/chart.js",
    "js/chat.js",
    "js/composer.js",
    "js/dom.js",
    "js/engine.js",
    "js/highlight.js",
    "js/icons.js",
    "js/keys.js",
    "js/main.js",
    "js/markdown/block.js",
    "js/markdown/dom.js",
    "js/markdown/inline.js",
    "js/markdown/stream.js",
    "js/message.js",
    "js/metrics.js",
    "js/panel.js",
    "js/params.js",
    "js/reply.js",
    "js/sidebar.js",
    "js/sse.js",
    "js/store.js",
    "js/theme.js",
    "js/tokens.js",
    "js/transcript.js",
    "js/tree.js",
];

/// The page as it is sent.
struct Page {
    digest: String,
    document: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let mut hash = Sha256::new_with_prefix(DOCUMENT);
    for (path, bytes) in ASSETS {
        hash.update(path.as_bytes());
        hash.update(bytes);
    }
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // The modules that the first one will ask for, so that the browser asks for all at once.
    let early: String = ASSETS
        .iter()
        .filter(|(path, _)| path.ends_with(".js") && !matches!(*path, "js/main.js" | "js/theme.js"))
        .map(|(path, _)| format!("<link rel=\"modulepreload\" href=\"ui/{path}\">\n"))
        .collect();
    let document = DOCUMENT.replacen("</head>", &format!("{early}</head>"), 1);
    Page { document: document.replace(PLACE, &format!("{PLACE}{digest}/")), digest }
});

/// `/` and `/ui/…`.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(document)).route("/ui/{digest}/{*path}", get(asset))
}

async fn document(headers: HeaderMap) -> Response {
    let etag = format!("\"{}\"", PAGE.digest);
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|tags| names(tags, &etag));
    let mut response = if known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        file("index.html", Bytes::from_static(PAGE.document.as_bytes()))
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

async fn asset(Path((digest, path)): Path<(String, String)>) -> Result<Response, ApiError> {
    let found = ASSETS.iter().find(|(known, _)| *known == path);
    match found {
        // Files of two versions of the page do not fit together: a page left open over an update must be loaded anew.
        Some((_, bytes)) if digest == PAGE.digest => {
            let mut response = file(&path, Bytes::from_static(bytes));
            let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
            response.headers_mut().insert(header::CACHE_CONTROL, forever);
            Ok(response)
        }
        Some(_) => Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "the page has changed since it was loaded: load it anew",
        )),
        None => Err(ApiError::new(StatusCode::NOT_FOUND, "the page has no such file")),
    }
}

fn file(path: &str, bytes: Bytes) -> Response {
    let kind = match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

/// Whether a list of entity tags, weak ones too, has this one.
fn names(tags: &HeaderValue, etag: &str) -> bool {
    let Ok(tags) = tags.to_str() else { return false };
    tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == etag || tag == "*")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path as FsPath;

    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    async fn ask(path: &str, etag: Option<&str>) -> Response {
        let mut request = Request::get(path);
        if let Some(etag) = etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        router::<()>().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    fn sources() -> Vec<(&'static str, &'static str)> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        ASSETS.iter().map(|(path, bytes)| (*path, text(bytes))).chain([("index.html", DOCUMENT)]).collect()
    }

    #[tokio::test]
    async fn the_document_is_asked_for_anew_and_not_sent_twice() {
        let first = ask("/", None).await;
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[header::CACHE_CONTROL], "no-cache");
        assert_eq!(first.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(first.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        let etag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
        for tags in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
            let again = ask("/", Some(&tags)).await;
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{tags}");
            assert_eq!(again.headers()[header::ETAG], etag.as_str());
        }
        assert_eq!(ask("/", Some("\"x\"")).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn files_are_kept_for_ever_under_their_digest() {
        for (path, _) in ASSETS {
            let response = ask(&format!("/ui/{}/{path}", PAGE.digest), None).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            assert!(response.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
            assert_ne!(response.headers()[header::CONTENT_TYPE], "application/octet-stream", "{path}");
        }
        for path in
            ["/ui/0/icon.svg".to_owned(), format!("/ui/{}/../Cargo.toml", PAGE.digest), "/ui/x/y".to_owned()]
        {
            assert_eq!(ask(&path, None).await.status(), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn every_file_of_the_page_is_compiled_in() {
        fn walk(dir: &FsPath, root: &FsPath, found: &mut BTreeSet<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, root, found);
                } else {
                    found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/"));
                }
            }
        }
        let root = FsPath::new(env!("CARGO_MANIFEST_DIR")).join("web");
        let mut found = BTreeSet::new();
        walk(&root, &root, &mut found);
        // For the tests only, and the document itself.
        for other in ["package.json", "index.html"] {
            assert!(found.remove(other), "{other}");
        }
        let known: BTreeSet<String> = ASSETS.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(known, found);
    }

    #[test]
    fn what_the_document_names_exists() {
        let named: Vec<&str> =
            DOCUMENT.split(PLACE).skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(named.len() > 6, "{named:?}");
        for path in named {
            assert!(ASSETS.iter().any(|(known, _)| *known == path), "{path}");
        }
    }

    /// The policy would stop these in the browser; here they are found before.
    #[test]
    fn no_file_writes_markup_runs_text_or_asks_elsewhere() {
        let forbidden = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "setHTML",
            "srcdoc",
            "style=",
            "onclick",
            "onload=",
            "onerror=",
            "@import",
            "url(",
            "<style",
        ];
        for (path, source) in sources() {
            for word in forbidden {
                assert!(!source.contains(word), "{path} has `{word}`");
            }
            for (at, _) in source.match_indices("http") {
                let rest = &source[at..];
                let address = rest.starts_with("http://") || rest.starts_with("https://");
                let allowed = rest.starts_with("http://www.w3.org/2000/svg");
                // The patterns that find addresses in text are written with escaped slashes.
                assert!(!address || allowed, "{path}: {}", rest.lines().next().unwrap_or_default());
            }
        }
        assert!(!DOCUMENT.contains("<script>"));
    }

    #[test]
    fn the_page_is_small() {
        let bytes: usize = sources().iter().map(|(_, source)| source.len()).sum();
        assert!(bytes < 192 << 10, "{bytes} bytes");
        for (path, source) in sources() {
            assert!(source.lines().count() <= 500, "{path} is long");
        }
    }
}
