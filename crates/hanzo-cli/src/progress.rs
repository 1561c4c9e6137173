//! A progress bar for whatever takes longer than a second.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use hanzo_fusion::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is done sooner needs no bar.
const PATIENCE: Duration = Duration::from_millis(700);

/// How far it has come, in bytes.
const BYTES: &str = "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {eta}";
/// How far it has come, in pieces.
const PIECES: &str = "{msg} [{bar:30}] {pos}/{len}, {eta} left";
/// How far, how fast, and how long it takes yet.
const TRANSFER: &str =
    "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta} left";

/// A bar on standard error; nothing where standard error is not a terminal.
pub(crate) struct Bar {
    what: String,
    template: &'static str,
    /// Where the count begins: what is done already took no time.
    from: u64,
    started: Instant,
    bar: OnceLock<ProgressBar>,
}

impl Bar {
    /// A bar that says what it does and counts bytes, once there is reason to.
    pub(crate) fn bytes(what: &str) -> Self {
        Self::new(what, BYTES, 0)
    }

    /// The same, but it counts what the caller counts.
    pub(crate) fn pieces(what: &str) -> Self {
        Self::new(what, PIECES, 0)
    }

    /// A bar for a transfer of which `from` bytes are here: with rate and time left.
    pub(crate) fn transfer(what: &str, from: u64) -> Self {
        Self::new(what, TRANSFER, from)
    }

    fn new(what: &str, template: &'static str, from: u64) -> Self {
        Self { what: what.to_owned(), template, from, started: Instant::now(), bar: OnceLock::new() }
    }

    /// Says something else from now on.
    pub(crate) fn say(&self, what: String) {
        if let Some(bar) = self.bar.get() {
            bar.set_message(what);
        }
    }

    fn draw(&self) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let style = ProgressStyle::with_template(self.template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_message(self.what.clone());
        bar.set_position(self.from);
        bar.reset_eta();
        bar
    }
}

impl Progress for Bar {
    fn update(&self, done: u64, total: u64) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| self.draw());
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
