//! Sample files: what was measured, and nothing that was computed from it.
//!
//! Ours (`hanzo-bench --json`, the speculation example, `hanzo-bench time`, `scripts/llama_python.py`) are
//!
//! ```json
//! {"manifest": {"engine": "hanzo", …},
//!  "cells": [{"phase": "prefill", "n": 512, "batch": 1, "depth": 0, "samples": [[wall_s, tokens], …]}, …]}
//! ```
//!
//! where the first sample of a cell is its warm-up unless `warm_up` gives another number. Besides, the raw outputs of
//! `llama-bench -o json` and `llama-batched-bench --output-format jsonl` are read as they are: what the peer wrote is
//! what is committed.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::BenchError;
use crate::roofline::Roofline;

/// What a sample is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A prompt of `n` tokens, computed; nothing else.
    Prefill,
    /// A request with a prompt of `n` tokens, from its submission to its first token.
    Request,
    /// `n` tokens of each of `batch` sequences, one after the other.
    Decode,
    /// From starting the program to its end with one token computed.
    Load,
    /// Time between two tokens of a stream while `batch` streams run; one sample a gap.
    InterToken,
    /// Decoding with prompt lookup: `workload`, and at most `gamma` drafts a step (0: off).
    Speculation,
}

impl Phase {
    /// Its name in sample files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Request => "request",
            Self::Decode => "decode",
            Self::Load => "load",
            Self::InterToken => "inter_token",
            Self::Speculation => "speculation",
        }
    }
}

/// What two cells must share to be compared. Ordered as the board lists them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// What is measured.
    pub phase: Phase,
    /// Sequences at once.
    #[serde(default = "one")]
    pub batch: u64,
    /// Tokens in the context before.
    #[serde(default)]
    pub depth: u64,
    /// Tokens of the prompt, or tokens to generate.
    pub n: u64,
    /// Kind of text, for speculation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Most drafts a step, for speculation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gamma: Option<u64>,
}

fn one() -> u64 {
    1
}

fn one_warm_up() -> usize {
    1
}

impl Shape {
    /// A shape of one sequence from an empty context.
    pub fn new(phase: Phase, n: u64) -> Self {
        Self { phase, n, batch: 1, depth: 0, workload: None, gamma: None }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.phase.name(), self.n)?;
        if self.batch != 1 {
            write!(f, " × {}", self.batch)?;
        }
        if self.depth != 0 {
            write!(f, " at depth {}", self.depth)?;
        }
        if let Some(workload) = &self.workload {
            write!(f, ", {workload}")?;
        }
        if let Some(gamma) = self.gamma {
            write!(f, ", γ {gamma}")?;
        }
        Ok(())
    }
}

/// One repetition: seconds by the wall clock, and the tokens that they were for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample(pub f64, pub u64);

impl Sample {
    /// Tokens a second.
    pub fn rate(self) -> f64 {
        self.1 as f64 / self.0
    }
}

/// A shape and its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What was measured.
    #[serde(flatten)]
    pub shape: Shape,
    /// How many of the first samples warmed up.
    #[serde(default = "one_warm_up")]
    pub warm_up: usize,
    /// All repetitions, warm-up included.
    pub samples: Vec<Sample>,
    /// Bytes of weights and cache that a step reads, from the plan (a decode step, averaged over the cell).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_bytes: Option<f64>,
    /// Integer operations of one repetition, from the plan (multiply and add are two).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int8_ops: Option<f64>,
    /// SHA-256 of what was generated, where replies must agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Drafts that ran, and those that were right, in one repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drafts: Option<(u64, u64)>,
}

impl Cell {
    /// A cell that has no samples yet; its first will be a warm-up.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            warm_up: 1,
            samples: Vec::new(),
            step_bytes: None,
            int8_ops: None,
            sha256: None,
            drafts: None,
        }
    }

    /// The samples that count.
    pub fn counted(&self) -> &[Sample] {
        self.samples.get(self.warm_up..).unwrap_or_default()
    }

    fn check(&self) -> Result<(), String> {
        for (i, s) in self.samples.iter().enumerate() {
            if !(s.0.is_finite() && s.0 > 0.0 && s.1 > 0) {
                return Err(format!(
                    "{}: sample {i} is [{}, {}]: not a time and a count",
                    self.shape, s.0, s.1
                ));
            }
        }
        let positive = |x: Option<f64>| x.is_none_or(|x| x.is_finite() && x > 0.0);
        if !(positive(self.step_bytes) && positive(self.int8_ops)) {
            return Err(format!("{}: step_bytes and int8_ops must be positive", self.shape));
        }
        Ok(())
    }
}

/// The peer's name, where it does not know its own build.
pub const PEER: &str = "llama.cpp";

/// Whose samples they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// This engine.
    Hanzo,
    /// The one that it is compared to.
    Peer,
}

/// A read sample file.
#[derive(Clone, Debug)]
pub struct SampleFile {
    /// Whose.
    pub side: Side,
    /// Name and build of the engine, as it gave them.
    pub engine: String,
    /// Settings and sizes, as the engine gave them.
    pub manifest: Value,
    /// What was measured.
    pub cells: Vec<Cell>,
    /// What the machine can, if it was probed.
    pub roofline: Option<Roofline>,
}

#[derive(Deserialize)]
struct Ours {
    manifest: Value,
    cells: Vec<Cell>,
    #[serde(default)]
    roofline: Option<Roofline>,
}

/// An entry of `llama-bench -o json`.
#[derive(Deserialize)]
struct LlamaBench {
    build_commit: String,
    build_number: u64,
    n_prompt: u64,
    n_gen: u64,
    #[serde(default)]
    n_depth: u64,
    samples_ns: Vec<f64>,
}

/// A line of `llama-batched-bench --output-format jsonl`.
#[derive(Deserialize)]
struct BatchedBench {
    pp: u64,
    tg: u64,
    pl: u64,
    t_tg: f64,
}

/// Reads a sample file of any of the three forms.
///
/// # Errors
/// [`BenchError::File`] and [`BenchError::Form`].
pub fn read(path: &Path) -> Result<SampleFile, BenchError> {
    let text = std::fs::read_to_string(path).map_err(BenchError::read(path))?;
    parse(&text).map_err(|why| BenchError::form(path, why))
}

/// Reads the text of a sample file.
///
/// # Errors
/// What does not fit, in words.
pub fn parse(text: &str) -> Result<SampleFile, String> {
    let text = text.trim();
    let file = if text.is_empty() {
        return Err("empty: the engine wrote nothing (see the .log beside it)".to_owned());
    } else if text.starts_with('[') {
        llama_bench(text)?
    } else if let Ok(ours) = serde_json::from_str::<Ours>(text) {
        let engine = ours.manifest.get("engine").and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let side = if engine == "hanzo" { Side::Hanzo } else { Side::Peer };
        SampleFile { side, engine, manifest: ours.manifest, cells: ours.cells, roofline: ours.roofline }
    } else if text.lines().next().is_some_and(|l| l.contains("\"t_tg\"")) {
        batched_bench(text)?
    } else {
        // Say what our own form lacks.
        return Err(serde_json::from_str::<Ours>(text).err().map(|e| e.to_string()).unwrap_or_default());
    };
    for cell in &file.cells {
        cell.check()?;
    }
    Ok(file)
}

fn llama_bench(text: &str) -> Result<SampleFile, String> {
    let raw: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let entries: Vec<LlamaBench> =
        serde_json::from_value(raw.clone()).map_err(|e| format!("as output of llama-bench: {e}"))?;
    let first = entries.first().ok_or("llama-bench measured nothing")?;
    // Built of a source archive it does not know itself, and says 0: the run's manifest may know more.
    let engine = match first.build_number {
        0 => PEER.to_owned(),
        build => format!("{PEER} b{build} ({})", first.build_commit),
    };
    let mut cells = Vec::new();
    for e in &entries {
        let (phase, n) = match (e.n_prompt, e.n_gen) {
            (n, 0) => (Phase::Prefill, n),
            (0, n) => (Phase::Decode, n),
            (p, g) => {
                return Err(format!("llama-bench measured prompt {p} and reply {g} in one: use -p or -n"));
            }
        };
        let mut cell = Cell::new(Shape { depth: e.n_depth, ..Shape::new(phase, n) });
        // It warms up by itself and leaves that out.
        cell.warm_up = 0;
        cell.samples = e.samples_ns.iter().map(|ns| Sample(ns / 1e9, n)).collect();
        cells.push(cell);
    }
    Ok(SampleFile { side: Side::Peer, engine, manifest: raw, cells, roofline: None })
}

fn batched_bench(text: &str) -> Result<SampleFile, String> {
    let mut cells: Vec<Cell> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let e: BatchedBench =
            serde_json::from_str(line).map_err(|e| format!("line {} of llama-batched-bench: {e}", i + 1))?;
        let shape = Shape { batch: e.pl, depth: e.pp, ..Shape::new(Phase::Decode, e.tg) };
        let sample = Sample(e.t_tg, e.tg.saturating_mul(e.pl));
        match cells.iter_mut().find(|c| c.shape == shape) {
            Some(cell) => cell.samples.push(sample),
            None => cells.push(Cell { samples: vec![sample], ..Cell::new(shape) }),
        }
    }
    Ok(SampleFile { side: Side::Peer, engine: PEER.to_owned(), manifest: Value::Null, cells, roofline: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_form_goes_there_and_back() {
        let text = r#"{"manifest": {"engine": "hanzo"}, "cells": [{"phase": "decode", "n": 128, "batch": 4,
            "depth": 16, "samples": [[2.0, 512], [1.0, 512]]}]}"#;
        let file = parse(text).unwrap();
        assert_eq!(file.side, Side::Hanzo);
        let cell = &file.cells[0];
        assert_eq!((cell.shape.batch, cell.shape.depth, cell.warm_up), (4, 16, 1));
        assert_eq!(cell.counted(), [Sample(1.0, 512)]);
        let again: Cell = serde_json::from_value(serde_json::to_value(cell).unwrap()).unwrap();
        assert_eq!(again, *cell);
    }

    #[test]
    fn llama_bench_is_read_as_it_is() {
        let text = r#"[{"build_commit": "abc", "build_number": 11434, "n_prompt": 512, "n_gen": 0, "n_depth": 0,
            "samples_ns": [2000000000, 4000000000], "samples_ts": [1.0, 2.0], "avg_ts": 3.0}]"#;
        let file = parse(text).unwrap();
        assert_eq!(file.side, Side::Peer);
        assert_eq!(file.engine, "llama.cpp b11434 (abc)");
        let nameless = text.replace("11434", "0").replace("abc", "unknown");
        assert_eq!(parse(&nameless).unwrap().engine, "llama.cpp");
        // Its own rates are not looked at.
        assert_eq!(file.cells[0].counted().iter().map(|s| s.rate()).collect::<Vec<_>>(), [256.0, 128.0]);
    }

    #[test]
    fn lines_of_llama_batched_bench_are_repetitions() {
        let line = |pl: u64, t: f64| {
            format!(
                r#"{{"n_kv_max": 1, "pp": 16, "tg": 32, "pl": {pl}, "t_pp": 1.0, "t_tg": {t}, "speed_tg": 1.0}}"#
            )
        };
        let file = parse(&[line(4, 9.0), line(4, 2.0), line(8, 9.0), line(8, 4.0)].join("\n")).unwrap();
        assert_eq!(file.cells.len(), 2);
        assert_eq!(file.cells[0].shape, Shape { batch: 4, depth: 16, ..Shape::new(Phase::Decode, 32) });
        assert_eq!(file.cells[1].counted(), [Sample(4.0, 256)]);
    }

    #[test]
    fn what_is_no_sample_is_refused_in_words() {
        let cell = |samples: &str| {
            format!(r#"{{"manifest": {{}}, "cells": [{{"phase": "decode", "n": 1, "samples": {samples}}}]}}"#)
        };
        for (text, word) in [
            (String::new(), "empty"),
            ("[]".to_owned(), "nothing"),
            ("{}".to_owned(), "manifest"),
            ("no json".to_owned(), "expected"),
            (cell("[[0, 1]]"), "sample 0"),
            (cell("[[-1, 1]]"), "sample 0"),
            (cell("[[1, 0]]"), "sample 0"),
            (cell("[[1]]"), "length"),
            (cell("[[1e999, 1]]"), "range"),
            (
                r#"[{"build_commit":"a","build_number":1,"n_prompt":1,"n_gen":1,"samples_ns":[1]}]"#
                    .to_owned(),
                "in one",
            ),
        ] {
            let why = parse(&text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
