//! `hanzo pull`: a model from the Hugging Face Hub into the cache.

use std::cell::{Cell, OnceCell};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::Result;
use hanzo_fusion::Progress as _;
use hanzo_hub::{Error, Event, Hub, HubConfig, Name, Pulled, Watch};
use serde_json::json;

use crate::failure::Interrupted;
use crate::interrupt::{self, During, Stop};
use crate::model::Source;
use crate::progress::Bar;
use crate::{describe, out};

/// Time between lines where no bar can be drawn.
const LINES: Duration = Duration::from_secs(10);

/// Fetch a model from the Hugging Face Hub
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo pull qwen3:0.6b                        an alias; `hanzo list --aliases` shows all
  hanzo pull Qwen/Qwen3-4B-GGUF                the Q4_K_M of a repository
  hanzo pull Qwen/Qwen3-4B-GGUF:Q8_0           another type, or a file's name

The model goes where huggingface_hub keeps its files, and is run by the same name: hanzo run qwen3:0.6b. Ctrl-C keeps what
came; the same command goes on from there. Every file is checked against the digest that the Hub names.

Environment: HF_TOKEN (or the file HF_TOKEN_PATH, or HF_HOME/token) for private and gated models, HF_ENDPOINT for a mirror,
HF_HUB_CACHE or HF_HOME for another place, HF_HUB_OFFLINE=1 to use no network, HF_HUB_DOWNLOAD_TIMEOUT (seconds of silence,
30 by default), HTTPS_PROXY.")]
pub(crate) struct Args {
    /// ORG/REPO, ORG/REPO:TYPE, or an alias
    model: String,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let name = Name::parse(&args.model)?;
    interrupt::init();
    let (_during, stop) = During::work();
    let watch = Teller::new(stop, args.quiet || args.json);
    let outcome = Hub::new(HubConfig::from_env()?).pull(&name, &watch);
    let interrupted = matches!(outcome, Err(Error::Stopped));
    if interrupted && !args.quiet {
        drop(watch);
        out::aside(format_args!("What came is kept: the same command goes on from there."));
        return Err(anyhow::Error::new(Interrupted));
    }
    let pulled = match outcome {
        Err(Error::Stopped) => return Err(anyhow::Error::new(Interrupted)),
        outcome => outcome?,
    };
    drop(watch);
    if args.json {
        return out::json(&json!({
            "name": pulled.name,
            "path": pulled.path.display().to_string(),
            "bytes": pulled.bytes,
            "fetched": pulled.fetched,
        }));
    }
    if args.quiet { Ok(()) } else { report(args, &pulled) }
}

/// Says what is here now, and whether it can be run.
fn report(args: &Args, pulled: &Pulled) -> Result<()> {
    let how = if pulled.fetched == 0 { "was here already" } else { "is here" };
    out::println(&format!("{} {how}: {}", pulled.name, out::bytes(pulled.bytes)))?;
    match Source::File(pulled.path.clone()).open() {
        Ok(file) => match hanzo_models::load(&file) {
            Ok(_) => out::aside(format_args!(
                "{}, {} weights. Chat with it: hanzo run {}",
                describe::file_type(&file),
                out::count(describe::parameters(&file)),
                args.model
            )),
            Err(error) => out::warning(format_args!("it cannot be run here: {error}")),
        },
        Err(error) => out::warning(format_args!("it cannot be used: {}", crate::failure::chain(&error))),
    }
    Ok(())
}

/// Shows what happens: a bar on a terminal, a line now and then elsewhere.
struct Teller {
    stop: Stop,
    quiet: bool,
    what: OnceCell<String>,
    bar: OnceCell<Bar>,
    started: Cell<Option<(Instant, u64)>>,
    last_line: Cell<Instant>,
}

impl Teller {
    fn new(stop: Stop, quiet: bool) -> Self {
        Self {
            stop,
            quiet,
            what: OnceCell::new(),
            bar: OnceCell::new(),
            started: Cell::new(None),
            last_line: Cell::new(Instant::now()),
        }
    }

    fn progress(&self, done: u64, total: u64) {
        if out::errors_to_terminal() {
            let what = self.what.get().map_or("", String::as_str);
            self.bar.get_or_init(|| Bar::transfer(what, done)).update(done, total);
            return;
        }
        let (since, from) = self.started.get().unwrap_or((Instant::now(), done));
        self.started.set(Some((since, from)));
        if self.last_line.get().elapsed() >= LINES {
            self.last_line.set(Instant::now());
            let rate = done.saturating_sub(from) as f64 / since.elapsed().as_secs_f64().max(1e-3);
            let (done, total) = (out::bytes(done), out::bytes(total));
            out::aside(format_args!("{done} of {total}, {}/s", out::bytes(rate as u64)));
        }
    }
}

impl Watch for Teller {
    fn on(&self, event: &Event<'_>) -> ControlFlow<()> {
        if self.stop.is_wanted() {
            return ControlFlow::Break(());
        }
        if self.quiet {
            return ControlFlow::Continue(());
        }
        match event {
            Event::Selected { name, files, bytes, present } => {
                let _ = self.what.set(format!("pulling {name}"));
                let split = if *files > 1 { format!(" in {files} files") } else { String::new() };
                let here = match present {
                    0 => String::new(),
                    _ if present == bytes => ", all of it here".to_owned(),
                    present => format!(", of which {} are here", out::bytes(*present)),
                };
                out::aside(format_args!("pulling {name}: {}{split}{here}", out::bytes(*bytes)));
            }
            Event::Waiting { file } => {
                out::aside(format_args!("another process is fetching {file}; waiting for it"));
            }
            Event::Progress { done, total } => self.progress(*done, *total),
            Event::Retrying { error, after } => {
                out::warning(format_args!("{error}; trying again in {:.0} s", after.as_secs_f64().ceil()));
            }
            Event::Restarting { file } => {
                out::warning(format_args!("what was here of {file} is damaged; fetching it anew"));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
