//! All that a server can be told, in one place.

use std::path::PathBuf;
use std::time::Duration;

/// How a server behaves. The defaults suit a machine of one's own.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Keys of which a request must show one; with none, everybody may ask.
    pub api_keys: Vec<String>,
    /// Web pages of these origins may ask from a browser; `*` means all. With none, only the server's own page may.
    pub cors_origins: Vec<String>,
    /// Hosts that requests may name beside this machine's own: names, addresses, `*.DOMAIN`; `*` means all. With none, a server that
    /// listens on a loopback address and has no keys answers to no others, and any other server to all.
    pub allowed_hosts: Vec<String>,
    /// Certificate chain and key; plain HTTP without.
    pub tls: Option<TlsFiles>,
    /// Whether prompts and replies go to the log.
    pub log_prompts: bool,
    /// Folder from which clients may have LoRA adapters loaded; without one they may not.
    pub lora_dir: Option<PathBuf>,
    /// Sizes and times.
    pub limits: Limits,
}

/// Files for TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM file of the certificate chain, the server's own first.
    pub cert: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
}

/// What a client can take, before it is told no.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once; one more is closed at once.
    pub connections: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Bytes of a request's line and headers.
    pub header_bytes: usize,
    /// Nesting of a request's JSON. At most 120, where the parser ends.
    pub json_depth: usize,
    /// Tools of a request.
    pub tools: usize,
    /// Prompts of a completion request.
    pub prompts: usize,
    /// Bytes of events that a client may leave unread before its request is cancelled.
    pub unread_bytes: usize,
    /// For a request's line and headers to arrive, and for an idle connection to send another request.
    pub header_time: Duration,
    /// For a request's body to arrive.
    pub body_time: Duration,
    /// For a client to take any bytes of a response.
    pub write_time: Duration,
    /// For a reply, from the request's arrival; `None` leaves it to `max_tokens`.
    pub reply_time: Option<Duration>,
    /// For running replies to end when the server is told to stop.
    pub drain_time: Duration,
    /// Between comments that keep a silent stream alive.
    pub keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            body_bytes: 32 << 20,
            header_bytes: 32 << 10,
            json_depth: 100,
            tools: 512,
            prompts: 256,
            unread_bytes: 1 << 20,
            header_time: Duration::from_secs(75),
            body_time: Duration::from_secs(60),
            write_time: Duration::from_secs(60),
            reply_time: None,
            drain_time: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
        }
    }
}
