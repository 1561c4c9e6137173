//! A running server, and the tools of other languages that talk to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A server that ends with the test.
pub struct Server {
    child: Child,
    /// Its address, without a slash at the end.
    pub url: String,
}

impl Server {
    /// `hanzo serve` with the built-in model.
    pub fn start() -> Self {
        Self::start_with(&mut super::hanzo(), &[])
    }

    /// `hanzo serve` with these arguments, by a command that has its environment.
    pub fn start_with(command: &mut Command, args: &[&str]) -> Self {
        command.args(["serve", "--port", "0"]).args(args).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let is_url = |word: &&str| word.starts_with("http://") || word.starts_with("https://");
                let address = line.split_whitespace().find(is_url)?;
                Some(address.trim_end_matches(['/', '.', ',']).to_owned())
            })
            .unwrap_or_else(|| panic!("hanzo serve has not told its address"));
        // Whoever stops reading would stop the server's log, and the server with it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url }
    }
}

impl Server {
    /// Its address as `HOST:PORT`.
    pub fn address(&self) -> &str {
        self.url.split_once("://").map_or(self.url.as_str(), |(_, address)| address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program says of its version, or `None` where it is absent.
pub fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A tool that is missing skips a test, unless nothing may be skipped.
#[track_caller]
pub fn skip(what: &str) {
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{what} is missing");
    println!("skipped: {what} is missing");
}

/// Whether there is a node that the tests can use.
pub fn has_node() -> bool {
    let major =
        version("node").and_then(|v| v.trim_start_matches('v').split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major >= 20)
}
