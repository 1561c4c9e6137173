//! Which names a server answers to.
//!
//! A web page may have its own name lead to 127.0.0.1 (DNS rebinding): to the browser, a server there is the page's own, whose
//! answers it may read and to which it may send JSON. What gives such a request away is the name that it was sent to. So a server
//! that only this machine reaches, and that asks for no key, answers only to names that nobody else can have; any other must be
//! told. Pages of other origins that do not play this trick are held off by [`cors`](crate::cors) and by the content type that
//! requests must have (`json`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use crate::serve::ServeError;

/// A name that a server was told to answer to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    All,
    /// This name, in lower case.
    Name(String),
    /// Names that end so, with the dot before it: of `*.example.org`, `.example.org`.
    Below(String),
    Address(IpAddr),
}

/// The names that a server was told to answer to, beside its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<Allowed>);

impl Names {
    /// Reads names: a host's, an address, `*.DOMAIN`, or `*`.
    ///
    /// # Errors
    /// For a text that is none of these, such as one with a scheme or a port.
    pub(crate) fn new(texts: &[String]) -> Result<Self, ServeError> {
        let name = |text: &String| Allowed::parse(text).ok_or_else(|| ServeError::Host(text.clone()));
        texts.iter().map(name).collect::<Result<_, _>>().map(Self)
    }
}

impl Allowed {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == "*" {
            return Some(Self::All);
        }
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Some(Self::Address(address));
        }
        if let Some(domain) = text.strip_prefix("*.") {
            return is_name(domain).then(|| Self::Below(format!(".{}", domain.to_ascii_lowercase())));
        }
        is_name(text).then(|| Self::Name(text.to_ascii_lowercase()))
    }

    fn has(&self, host: &Host<'_>) -> bool {
        match (self, host) {
            (Self::All, _) => true,
            (Self::Name(name), Host::Name(host)) => host.eq_ignore_ascii_case(name),
            (Self::Below(end), Host::Name(host)) => ends_with(host, end),
            (Self::Address(address), Host::Address(host)) => address.to_canonical() == host.to_canonical(),
            _ => false,
        }
    }
}

/// The host that a request names, without its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host<'t> {
    Name(&'t str),
    Address(IpAddr),
}

impl<'t> Host<'t> {
    /// Reads `HOST` or `HOST:PORT`. The port may be any: a tunnel or a container can give the server another.
    fn parse(text: &'t str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                (Self::Address(IpAddr::V6(address.parse::<Ipv6Addr>().ok()?)), port)
            }
            None => {
                let at = text.find(':').unwrap_or(text.len());
                let (name, port) = text.split_at(at);
                // A name may end with the root's dot.
                let name = name.strip_suffix('.').unwrap_or(name);
                let host = match name.parse::<Ipv4Addr>() {
                    Ok(address) => Self::Address(IpAddr::V4(address)),
                    Err(_) => Self::Name(Some(name).filter(|name| is_name(name))?),
                };
                (host, port)
            }
        };
        let fit = |digits: &str| digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit());
        (port.is_empty() || port.strip_prefix(':').is_some_and(fit)).then_some(host)
    }

    /// Whether it cannot be anywhere else: an address of this machine only, or a name that DNS does not lead elsewhere (RFC 6761).
    fn is_local(&self) -> bool {
        match self {
            Self::Address(address) => address.to_canonical().is_loopback(),
            Self::Name(name) => name.eq_ignore_ascii_case("localhost") || ends_with(name, ".localhost"),
        }
    }
}

fn ends_with(name: &str, end: &str) -> bool {
    let tail = name.len().checked_sub(end.len()).filter(|&at| at > 0).and_then(|at| name.get(at..));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}

fn is_name(text: &str) -> bool {
    let fit = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    text.len() <= 253 && text.split('.').all(fit)
}

/// What a running server looks at in a request's host.
#[derive(Clone, Debug)]
pub(crate) enum Guard {
    /// Nothing.
    Open,
    /// That it is one of these, or cannot be another machine's.
    Only { names: Arc<Names>, bound: SocketAddr },
}

impl Guard {
    /// For a server at an address. Names that were given count wherever it listens; without any, a server that others reach, or that
    /// asks for keys, answers to all.
    pub(crate) fn new(names: Names, bound: SocketAddr, with_keys: bool) -> Self {
        let alone = bound.ip().to_canonical().is_loopback() && !with_keys;
        if (names.0.is_empty() && !alone) || names.0.contains(&Allowed::All) {
            return Self::Open;
        }
        Self::Only { names: Arc::new(names), bound }
    }

    /// Whether a request may go on.
    ///
    /// # Errors
    /// 400 where it names no host or several, 403 where it names one that is not this server's.
    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let Self::Only { names, bound } = self else { return Ok(()) };
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (host, more) = (hosts.next(), hosts.next());
        if more.is_some() {
            return Err(ApiError::invalid("the request has several Host headers"));
        }
        // A target with a host (`GET http://HOST/…`) counts too, and does not make up for a wrong header.
        let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let said: Vec<&[u8]> = host.map(|host| host.as_bytes()).into_iter().chain(target).collect();
        if said.is_empty() && request.version() > Version::HTTP_10 {
            return Err(ApiError::invalid("the request has no Host header, which HTTP/1.1 demands"));
        }
        for said in said {
            let text = std::str::from_utf8(said).unwrap_or("");
            let known = Host::parse(text).is_some_and(|host| {
                host.is_local()
                    || names.0.iter().any(|name| name.has(&host))
                    || host == Host::Address(bound.ip())
            });
            if !known {
                return Err(refusal(said, *bound));
            }
        }
        Ok(())
    }
}

fn refusal(said: &[u8], bound: SocketAddr) -> ApiError {
    let said = String::from_utf8_lossy(said);
    let said: String = said.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect();
    let message = format!(
        "this server does not answer to the host `{said}`, so that no web page can reach it under a name of its own: ask \
         {bound} or localhost; or start it with `--allowed-hosts NAME` (HANZO_ALLOWED_HOSTS) for names that lead to it, or with \
         an API key"
    );
    ApiError::new(StatusCode::FORBIDDEN, message).with_code("host_not_allowed")
}

/// Lets a request through that names a host of this server's.
pub(crate) async fn require_host(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn guard(names: &[&str], bound: &str, with_keys: bool) -> Guard {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        Guard::new(Names::new(&names).unwrap(), bound.parse().unwrap(), with_keys)
    }

    fn status(guard: &Guard, uri: &str, version: Version, hosts: &[&[u8]]) -> u16 {
        let mut request = Request::get(uri).version(version);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        guard.check(&request.body(Body::empty()).unwrap()).map_or_else(|e| e.status.as_u16(), |()| 200)
    }

    fn ask(guard: &Guard, host: &str) -> u16 {
        status(guard, "/v1/models", Version::HTTP_11, &[host.as_bytes()])
    }

    #[test]
    fn only_names_of_this_machine_reach_a_server_without_keys() {
        for bound in ["127.0.0.1:8080", "[::1]:8080", "127.9.9.9:1", "[::ffff:127.0.0.1]:80"] {
            let guard = guard(&[], bound, false);
            for good in [
                "localhost",
                "localhost:8080",
                "LocalHost:1",
                "localhost.",
                "a.localhost",
                "a.b.localhost:80",
                "127.0.0.1",
                "127.0.0.1:8080",
                "127.255.0.3",
                "[::1]",
                "[::1]:8080",
                "[::ffff:127.0.0.1]:80",
                "localhost:",
            ] {
                assert_eq!(ask(&guard, good), 200, "{bound}: {good}");
            }
            for bad in [
                "evil.example",
                "evil.example:8080",
                "localhost.evil.example",
                "evillocalhost",
                ".localhost",
                "127.0.0.1.evil.example",
                "128.0.0.1",
                "10.0.0.1:8080",
                "0.0.0.0",
                "[::]",
                "[::2]",
                "::1",
                "[::1",
                "[::1]x",
                "localhost:80x",
                "localhost:999999",
                "localhost@evil.example",
                "evil@localhost",
                "localhost/",
                "localhost,evil.example",
                "localhost evil",
                "",
                ":80",
                "127.1",
                "0177.0.0.1",
                "2130706433",
                "*",
                "localhost..",
                "-",
                "[127.0.0.1]",
                "[::1%lo]",
            ] {
                assert_eq!(ask(&guard, bad), 403, "{bound}: {bad}");
            }
            assert_eq!(status(&guard, "/", Version::HTTP_11, &[b"\xff"]), 403);
        }
    }

    #[test]
    fn several_hosts_none_and_targets_with_one() {
        let guard = guard(&[], "127.0.0.1:8080", false);
        let ask = |uri, version, hosts: &[&[u8]]| status(&guard, uri, version, hosts);
        let (old, new) = (Version::HTTP_10, Version::HTTP_11);
        assert_eq!(ask("/", new, &[]), 400);
        // No browser leaves it out.
        assert_eq!(ask("/", old, &[]), 200);
        assert_eq!(ask("/", old, &[b"evil.example"]), 403);
        assert_eq!(ask("/", new, &[b"localhost", b"localhost"]), 400);
        assert_eq!(ask("/", new, &[b"localhost", b"evil.example"]), 400);
        for (uri, host, wanted) in [
            ("http://localhost:8080/", &b"localhost"[..], 200),
            ("http://evil.example/", b"localhost", 403),
            ("http://localhost/", b"evil.example", 403),
            ("http://localhost@evil.example/", b"localhost", 403),
            ("http://evil@localhost/", b"localhost", 403),
        ] {
            assert_eq!(ask(uri, new, &[host]), wanted, "{uri}");
        }
        assert_eq!(ask("http://localhost/", old, &[]), 200);
        assert_eq!(ask("http://evil.example/", old, &[]), 403);
    }

    #[test]
    fn servers_that_others_reach_or_with_keys_answer_to_all_unless_told() {
        for open in [
            guard(&[], "0.0.0.0:8080", false),
            guard(&[], "192.168.0.2:8080", false),
            guard(&[], "127.0.0.1:8080", true),
            guard(&["*"], "127.0.0.1:8080", false),
        ] {
            assert!(matches!(open, Guard::Open));
            assert_eq!(ask(&open, "evil.example"), 200);
        }
        for bound in ["127.0.0.1:8080", "192.168.0.2:8080", "0.0.0.0:80"] {
            let guard = guard(&["Box.lan", "*.example.org", "[2001:db8::1]", "10.0.0.1"], bound, false);
            for good in [
                "box.lan:8080",
                "BOX.LAN",
                "a.example.org",
                "a.b.example.org",
                "[2001:db8:0::1]:8080",
                "10.0.0.1",
                "localhost",
            ] {
                assert_eq!(ask(&guard, good), 200, "{good}");
            }
            for bad in
                ["example.org", "xexample.org", "x.box.lan", "10.0.0.2", "[2001:db8::2]", ".example.org"]
            {
                assert_eq!(ask(&guard, bad), 403, "{bad}");
            }
        }
        // The address that it listens on is its own.
        assert_eq!(ask(&guard(&["box.lan"], "192.168.0.2:8080", false), "192.168.0.2:8080"), 200);
    }

    #[test]
    fn what_is_no_name_is_refused_at_the_start() {
        for bad in ["", "http://a", "a:80", "a/b", "a b", "*.", "*a", "a.*", "[a]", "a@b", "a..b", "é"] {
            assert!(matches!(Names::new(&[bad.to_owned()]), Err(ServeError::Host(_))), "{bad}");
        }
    }
}
