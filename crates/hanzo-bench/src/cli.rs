//! The command line: `hanzo-bench …` and, the same, `hanzo bench …`. Results go to standard output, progress to standard error.

use std::io::{self, IsTerminal, Write};

use clap::{Args, Subcommand};
use hanzo_fusion::Progress;
use hanzo_gguf::GgufFile;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::device::{Asked, Devices, cpu_config};
use crate::error::BenchError;
use crate::roofline::Roofline;
use crate::roofline::vulkan::DeviceRoofline;
use crate::sample::{self, Listener};
use crate::samples::{Cell, Shape};
use crate::statistics::{Summary, percentile};
use crate::{explain, process, stats, synth};

/// Shown under `--help`.
pub const EXAMPLES: &str = "Examples:
  hanzo-bench --model model.gguf
  hanzo-bench --model model.gguf -p 512,500,2048 -n 128 -r 7 -b 1,4,8 --json > samples.json
  hanzo-bench --model model.gguf -p 0 -n 128 --depth 4096
  hanzo-bench --model model.gguf -p 512 --requests --streams 8
  hanzo-bench --roofline
  hanzo-bench --roofline --device vulkan
  hanzo-bench stats bench-runs/*
  hanzo-bench synth --shape qwen3-0.6b --type q4_k_m synthetic.gguf";

/// What to do: sample, unless a subcommand or --roofline says otherwise.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    command: Option<Command>,
    /// Measure what the machine can (read bandwidth, int8 dots, f32 multiply-adds), not a model: the cpu with 1 to all threads, or --device
    #[arg(long)]
    roofline: bool,
    #[command(flatten)]
    sample: sample::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    Stats(stats::Args),
    Time(process::Args),
    Synth(synth::Args),
}

/// Does it.
///
/// # Errors
/// What was wrong, for a person.
pub fn run(bench: &Bench) -> anyhow::Result<()> {
    match &bench.command {
        Some(Command::Stats(args)) => print(&stats::run(args)?),
        Some(Command::Time(args)) => print(&format!("{:#}\n", process::run(args)?)),
        Some(Command::Synth(args)) => synth::run(args),
        None if bench.sample.device == "list" => list(&bench.sample),
        None if bench.roofline => roofline(&bench.sample),
        None => {
            let mut terminal = Terminal::new(bench.sample.json);
            let report = sample::run(&bench.sample, &mut terminal)?;
            terminal.finish();
            if bench.sample.json { print(&format!("{:#}\n", report.to_json())) } else { Ok(()) }
        }
    }
}

/// Explains a model: `hanzo explain`.
///
/// # Errors
/// What was wrong, for a person.
pub fn explain(file: &GgufFile, name: &str, args: &explain::Args) -> anyhow::Result<()> {
    let mut terminal = Terminal::new(true);
    let explanation = explain::run(file, name, args, &mut terminal)?;
    terminal.finish();
    if args.json {
        return print(&format!("{:#}\n", serde_json::json!(explanation)));
    }
    print(&explanation.to_text())
}

/// Whether the error is that whoever read standard output has stopped reading.
pub fn is_reader_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether the error is that what was asked for cannot be.
pub fn is_usage(error: &anyhow::Error) -> bool {
    error.downcast_ref::<BenchError>().is_some_and(|e| match e {
        BenchError::Asked(_) => true,
        BenchError::Vulkan(e) => e.is_absence(),
        _ => false,
    })
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn roofline(args: &sample::Args) -> anyhow::Result<()> {
    if args.model.is_some() {
        return Err(BenchError::Asked("--roofline measures the machine: leave --model out".to_owned()).into());
    }
    if let Asked::Vulkan(index) = Asked::parse(&args.device)? {
        return device_roofline(args, index);
    }
    let config = cpu_config(&args.device, args.threads)?;
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = config.threads.unwrap_or(all);
    let bar = bar("{msg} [{bar:30}] {pos}/{len}");
    bar.set_length((threads * args.repeat.max(1)) as u64);
    let roofline = Roofline::probe(&config, threads, args.repeat.max(1), &mut |threads| {
        bar.set_message(format!("{threads} threads"));
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let isa = config.isa.unwrap_or_else(hanzo_cpu::isa::Isa::best).name();
    if args.json {
        return print(&format!("{:#}\n", roofline.to_json(&format!("cpu ({isa})"))));
    }
    print(&format!("cpu ({isa}), best of {}\n{}", args.repeat.max(1), roofline.to_text()))
}

fn device_roofline(args: &sample::Args, index: Option<usize>) -> anyhow::Result<()> {
    if args.threads.is_some() {
        let why = "--threads are the cpu's: a device takes as many as it has; leave --threads out";
        return Err(BenchError::Asked(why.to_owned()).into());
    }
    let repetitions = args.repeat.max(1);
    let bar = bar("{msg} [{bar:30}] {pos}/{len}");
    bar.set_length(repetitions as u64);
    bar.set_message(args.device.clone());
    let measured = DeviceRoofline::probe(index, repetitions, &mut || bar.inc(1));
    bar.finish_and_clear();
    let measured = measured?;
    if args.json { print(&format!("{:#}\n", measured.to_json())) } else { print(&measured.to_text()) }
}

fn list(args: &sample::Args) -> anyhow::Result<()> {
    let devices = Devices::find();
    if args.json { print(&format!("{:#}\n", devices.to_json())) } else { print(&devices.to_text()) }
}

/// A bar on standard error, hidden where that is no terminal.
fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

/// Shows progress, and a line for each finished cell: on standard output for people, on standard error beside JSON.
struct Terminal {
    json: bool,
    loading: Loading,
    bar: ProgressBar,
}

struct Loading(ProgressBar);

impl Progress for Loading {
    fn update(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Terminal {
    fn new(json: bool) -> Self {
        let loading = bar("loading [{bar:30}] {decimal_bytes}/{decimal_total_bytes}");
        Self { json, loading: Loading(loading), bar: bar("{msg} [{bar:30}] {pos}/{len} {eta}") }
    }

    fn finish(&self) {
        self.loading.0.finish_and_clear();
        self.bar.finish_and_clear();
    }
}

impl Listener for Terminal {
    fn loading(&self) -> &dyn Progress {
        &self.loading
    }

    fn begin(&mut self, shape: &Shape, of: usize) {
        self.loading.0.finish_and_clear();
        self.bar.reset();
        self.bar.set_length(of as u64);
        self.bar.set_message(shape.to_string());
    }

    fn repetition(&mut self) {
        self.bar.inc(1);
    }

    fn cell(&mut self, cell: &Cell) {
        // Beside JSON the lines are for eyes only.
        if self.json && !io::stderr().is_terminal() {
            return;
        }
        let line = line(cell);
        self.bar.suspend(|| {
            // Nobody reads: the samples still go on.
            let _ =
                if self.json { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") };
        });
    }
}

/// A cell in a line.
fn line(cell: &Cell) -> String {
    use crate::samples::Phase;
    let name = cell.shape.to_string();
    let seconds: Vec<f64> = cell.counted().iter().map(|s| s.0).collect();
    if matches!(cell.shape.phase, Phase::Request | Phase::InterToken) {
        let ms = |p| percentile(&seconds, p).map_or_else(|| "-".to_owned(), |s| format!("{:.1}", 1e3 * s));
        return format!("{name:32} p50 {:>9}  p95 {:>9}  p99 {:>9} ms", ms(0.5), ms(0.95), ms(0.99));
    }
    let rates: Vec<f64> = cell.counted().iter().map(|s| s.rate()).collect();
    let Some(summary) = Summary::of(&rates) else { return format!("{name:32} warm-up only") };
    let half = summary.half_width().map_or_else(String::new, |h| format!(" ± {h:.2}"));
    let noisy = if summary.is_noisy() { "  (varies by more than 5 %)" } else { "" };
    format!("{name:32} {:10.2}{half} tok/s{noisy}", summary.mean)
}
