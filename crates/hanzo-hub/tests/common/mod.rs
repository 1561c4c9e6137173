//! A server in this process that speaks the Hub's API, and misbehaves as told.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hanzo_hub::{Event, Hub, HubConfig, Retry, Watch};
use sha2::{Digest, Sha256};

/// The commit that the repository is at.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What goes wrong with one answer that has content.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The connection ends after so many bytes.
    CutAfter(usize),
    /// Nothing more comes after so many bytes, and the connection stays open.
    StallAfter(usize),
    /// One byte is another.
    Damage,
    /// So many bytes are announced.
    Announce(u64),
    /// The range that was asked for is ignored.
    NoRange,
    /// The part from another byte comes.
    OtherRange,
    /// A status instead, with a header line or none.
    Status(u16, &'static str),
}

/// What the server has and does.
#[derive(Default)]
pub struct State {
    pub files: Vec<(String, Vec<u8>)>,
    /// Applied to answers with content, in turn.
    pub faults: VecDeque<Fault>,
    /// Applied to the description of the repository, in turn.
    pub api_faults: VecDeque<Fault>,
    /// In place of the description of the repository.
    pub api: Option<String>,
    /// In place of the true `X-Linked-Etag`.
    pub etag: Option<String>,
    /// In place of the true `X-Linked-Size`.
    pub size: Option<u64>,
    /// Where content is redirected to; `/cdn/FILE` at the second address if `None`.
    pub location: Option<String>,
    /// Every request: its first line, and the headers that matter.
    pub log: Vec<String>,
}

/// The server.
pub struct FakeHub {
    pub state: Arc<Mutex<State>>,
    pub endpoint: String,
    cdn: String,
}

impl FakeHub {
    /// A repository `org/repo` with these files.
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        let files = files.iter().map(|(path, content)| ((*path).to_owned(), content.to_vec())).collect();
        let state = Arc::new(Mutex::new(State { files, ..State::default() }));
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (hub, cdn) = (listen(), listen());
        let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let this = Self { state, endpoint: url(&hub), cdn: url(&cdn) };
        for listener in [hub, cdn] {
            let (state, cdn) = (Arc::clone(&this.state), this.cdn.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let (state, cdn) = (Arc::clone(&state), cdn.clone());
                    std::thread::spawn(move || answer(&stream.unwrap(), &state, &cdn));
                }
            });
        }
        this
    }

    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    pub fn fault(&self, fault: Fault) -> &Self {
        self.change(|state| state.faults.push_back(fault));
        self
    }

    /// The requests since the last look whose first line has this in it.
    pub fn requests(&self, part: &str) -> Vec<String> {
        let mut state = self.state.lock().unwrap();
        std::mem::take(&mut state.log).into_iter().filter(|line| line.contains(part)).collect()
    }

    /// Settings that lead here.
    pub fn config(&self, cache: &Path) -> HubConfig {
        self.config_with(cache, &[])
    }

    pub fn config_with(&self, cache: &Path, vars: &[(&str, &str)]) -> HubConfig {
        let mut config = HubConfig::from_vars(&|name| match name {
            "HF_ENDPOINT" => Some(self.endpoint.clone().into()),
            "HF_HUB_CACHE" => Some(cache.into()),
            _ => vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into()),
        })
        .unwrap();
        config.timeout = Duration::from_secs(10);
        config.retry = Retry { attempts: 3, base: Duration::from_millis(5), longest: Duration::from_secs(2) };
        config
    }

    pub fn hub(&self, cache: &Path) -> Hub {
        Hub::new(self.config(cache))
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn answer(stream: &TcpStream, state: &Mutex<State>, cdn: &str) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut range, mut auth) = (String::new(), None, String::new());
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).unwrap_or(0) == 0 || header.trim().is_empty() {
            break;
        }
        let header = header.trim().to_owned();
        let lower = header.to_ascii_lowercase();
        if let Some(bytes) = lower.strip_prefix("range: bytes=") {
            range = bytes.trim_end_matches('-').parse::<usize>().ok();
        }
        if lower.starts_with("authorization:") {
            auth = format!(" {header}");
        }
    }
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let mut state = state.lock().unwrap();
    let asked = range.map_or(String::new(), |from| format!(" from {from}"));
    state.log.push(format!("{method} {path}{asked}{auth}"));
    if path.starts_with("/api/models/org/repo/revision/main") {
        if let Some(Fault::Status(status, header)) = state.api_faults.pop_front() {
            drop(state);
            return send(stream, status, header, b"{\"error\": \"says the hub\"}", None);
        }
        let body = state.api.clone().unwrap_or_else(|| describe(&state.files));
        drop(state);
        return send(stream, 200, "", body.as_bytes(), None);
    }
    let resolve = path.strip_prefix(&format!("/org/repo/resolve/{COMMIT}/"));
    let name = resolve.or_else(|| path.strip_prefix("/cdn/")).map(|name| name.replace("%20", " "));
    let content =
        state.files.iter().find(|(path, _)| Some(path) == name.as_ref()).map(|(_, bytes)| bytes.clone());
    let Some(content) = content else {
        drop(state);
        return send(stream, 404, "X-Error-Code: EntryNotFound", b"{}", None);
    };
    if resolve.is_some() {
        let etag = state.etag.clone().unwrap_or_else(|| sha256(&content));
        let size = state.size.unwrap_or(content.len() as u64);
        let location = state
            .location
            .clone()
            .unwrap_or_else(|| format!("{cdn}/cdn/{}", name.unwrap_or_default().replace(' ', "%20")));
        drop(state);
        let headers = format!(
            "X-Repo-Commit: {COMMIT}\r\nX-Linked-Etag: \"{etag}\"\r\nX-Linked-Size: {size}\r\nLocation: {location}"
        );
        return send(stream, 302, &headers, b"", None);
    }
    let fault = state.faults.pop_front();
    drop(state);
    content_answer(stream, content, range, fault);
}

fn content_answer(stream: &TcpStream, mut content: Vec<u8>, mut range: Option<usize>, fault: Option<Fault>) {
    let total = content.len();
    if matches!(fault, Some(Fault::Damage)) {
        let last = content.len() - 1;
        content[last] ^= 1;
    }
    if matches!(fault, Some(Fault::NoRange)) {
        range = None;
    }
    let from = range.unwrap_or(0);
    let body = content.get(from..).unwrap_or_default();
    let stated = if matches!(fault, Some(Fault::OtherRange)) { from + 1 } else { from };
    let (status, headers) = match range {
        Some(_) => (206, format!("Content-Range: bytes {stated}-{}/{total}", total - 1)),
        None => (200, String::new()),
    };
    match fault {
        Some(Fault::Status(status, header)) => send(stream, status, header, b"busy", None),
        Some(Fault::Announce(length)) => send(stream, status, &headers, body, Some(length)),
        Some(Fault::CutAfter(n)) => send(stream, status, &headers, &body[..n], Some(body.len() as u64)),
        Some(Fault::StallAfter(n)) => {
            send(stream, status, &headers, &body[..n], Some(body.len() as u64));
            std::thread::sleep(Duration::from_secs(5));
        }
        _ => send(stream, status, &headers, body, None),
    }
}

fn send(mut stream: &TcpStream, status: u16, headers: &str, body: &[u8], length: Option<u64>) {
    let length = length.unwrap_or(body.len() as u64);
    let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n");
    if !headers.is_empty() {
        let _ = write!(head, "{headers}\r\n");
    }
    // The other side may have gone away.
    let _ = stream.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| stream.write_all(body));
}

fn describe(files: &[(String, Vec<u8>)]) -> String {
    let siblings: Vec<String> = files
        .iter()
        .map(|(path, bytes)| format!("{{\"rfilename\": {path:?}, \"size\": {}}}", bytes.len()))
        .collect();
    format!("{{\"id\": \"org/repo\", \"sha\": {COMMIT:?}, \"siblings\": [{}]}}", siblings.join(", "))
}

/// Remembers what happened, and ends the pull after so many bytes.
#[derive(Default)]
pub struct Witness {
    pub events: Mutex<Vec<String>>,
    pub stop_at: Option<u64>,
}

impl Watch for Witness {
    fn on(&self, event: &Event<'_>) -> ControlFlow<()> {
        let line = match event {
            Event::Selected { name, files, bytes, present } => {
                format!("selected {name} {files} {bytes} {present}")
            }
            Event::Waiting { file } => format!("waiting {file}"),
            Event::Retrying { error, after } => format!("retrying {error} {after:?}"),
            Event::Restarting { file } => format!("restarting {file}"),
            Event::Progress { done, .. } if self.stop_at.is_some_and(|stop| *done >= stop) => {
                return ControlFlow::Break(());
            }
            _ => return ControlFlow::Continue(()),
        };
        self.events.lock().unwrap().push(line);
        ControlFlow::Continue(())
    }
}

impl Witness {
    #[track_caller]
    pub fn saw(&self, part: &str) {
        let events = self.events.lock().unwrap();
        assert!(events.iter().any(|event| event.contains(part)), "no `{part}` in {events:?}");
    }
}

/// The files under a folder, with `/`, sorted.
pub fn tree(root: &Path) -> Vec<String> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                walk(root, &path, found);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort();
    found
}

/// Bytes that look like nothing in particular.
pub fn noise(n: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_u32;
    (0..n)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (x >> 24) as u8
        })
        .collect()
}
