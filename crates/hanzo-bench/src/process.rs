//! Whole processes under the clock: start to end, and the memory that they held at most.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};

use crate::error::BenchError;
use crate::samples::{Cell, Phase, Sample, Shape};

/// Time a program from start to end: the load time of any engine, under one clock
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  hanzo-bench time -r 5 -- hanzo-bench -m model.gguf -p 1 -n 0 -r 0
  hanzo-bench time --engine llama.cpp -r 5 --cold model.gguf -- llama-bench -m model.gguf -p 1 -n 0 -r 1 --no-warmup

The output of the program is thrown away. Samples are written as JSON, the highest resident memory beside them.")]
pub struct Args {
    /// Whose program it is, as sample files name engines
    #[arg(long, value_name = "NAME", default_value = "hanzo")]
    engine: String,
    /// Repetitions that count; with the file in the cache one more comes first and warms up
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5)]
    repeat: usize,
    /// Drop this file from the system's cache before each repetition
    #[arg(long, value_name = "FILE")]
    cold: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Bytes of the highest resident memory that was used.
fn peak_bytes(who: UsageWho) -> Option<u64> {
    // Kilobytes, but for Apple's systems, which count bytes.
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    getrusage(who).ok().and_then(|usage| u64::try_from(usage.max_rss()).ok()).map(|n| n * unit)
}

/// Highest resident memory of this process so far, bytes.
pub fn own_peak_bytes() -> Option<u64> {
    peak_bytes(UsageWho::RUSAGE_SELF)
}

/// Drops a file's clean pages from the system's cache.
///
/// # Errors
/// Where the file cannot be opened, or the system has no such thing.
fn drop_cached(path: &Path) -> Result<(), BenchError> {
    #[cfg(target_os = "linux")]
    {
        use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
        let file = std::fs::File::open(path).map_err(BenchError::read(path))?;
        file.sync_all().map_err(BenchError::read(path))?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
            .map_err(|e| BenchError::Asked(format!("cannot drop {} from the cache: {e}", path.display())))
    }
    #[cfg(not(target_os = "linux"))]
    Err(BenchError::Asked(format!(
        "--cold {}: only Linux lets a file be dropped from its cache",
        path.display()
    )))
}

/// Runs the program again and again.
///
/// # Errors
/// Where it cannot be started or fails.
pub fn run(args: &Args) -> Result<Value, BenchError> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(BenchError::Asked("a program is needed after --".to_owned()));
    };
    let kind = if args.cold.is_some() { "cold" } else { "cached" };
    let mut cell = Cell::new(Shape { workload: Some(kind.to_owned()), ..Shape::new(Phase::Load, 1) });
    // A cold start has nothing to warm.
    cell.warm_up = usize::from(args.cold.is_none());
    for _ in 0..args.repeat + cell.warm_up {
        if let Some(path) = &args.cold {
            drop_cached(path)?;
        }
        let start = Instant::now();
        let status = Command::new(program)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|e| BenchError::Asked(format!("cannot start {program}: {e}")))?;
        if !status.success() {
            return Err(BenchError::Asked(format!("{program} failed ({status}); run it by hand to see why")));
        }
        cell.samples.push(Sample(start.elapsed().as_secs_f64(), 1));
    }
    let manifest = json!({
        "engine": args.engine,
        "command": args.command.iter().map(|a| base_name(a)).collect::<Vec<_>>(),
        "peak_rss_bytes": peak_bytes(UsageWho::RUSAGE_CHILDREN),
    });
    Ok(json!({ "manifest": manifest, "cells": [cell] }))
}

/// An argument without the folders before it: where things lie on a machine is nobody's business.
fn base_name(argument: &str) -> &str {
    argument.rsplit('/').next().unwrap_or(argument)
}
