//! Run folders: `manifest.json`, `quiet-gate.txt` and raw sample files, as `scripts/dossier.sh` leaves them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::roofline::Roofline;
use crate::samples::{self, Cell, Phase, SampleFile, Shape, Side};

/// The model of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ModelFile {
    /// File name without folders.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256 of the file.
    pub sha256: String,
}

/// What is read of a run's `manifest.json`; the file holds more.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunManifest {
    /// Short name of the model on the board.
    pub tag: String,
    /// cpu, cuda, metal, rocm or vulkan.
    pub backend: String,
    /// Day of the run.
    pub date: String,
    /// The model.
    pub model: ModelFile,
    /// Threads of both engines.
    pub threads: u64,
    /// Repetitions that were asked for.
    pub repetitions: u64,
    /// Commit of this engine.
    #[serde(default)]
    pub hanzo_commit: String,
    /// What the peer is and how it was built.
    #[serde(default)]
    pub peer: serde_json::Value,
    /// The processor.
    #[serde(default)]
    pub cpu: String,
    /// Whether the gate was told to let a busy machine pass.
    #[serde(default)]
    pub allow_busy: bool,
}

/// A run and all its samples, those of a shape and side together.
#[derive(Clone, Debug)]
pub struct Run {
    /// Where it lies.
    pub path: PathBuf,
    /// What it was.
    pub manifest: RunManifest,
    /// The gate found the machine busy at least once, and it was let pass.
    pub was_busy: bool,
    /// Cells by shape and side.
    pub cells: BTreeMap<(Shape, Side), Cell>,
    /// Our prompts that were taken beside whole requests, not in turn with the peer: for the difference of the two, not for the board.
    pub beside: BTreeMap<Shape, Cell>,
    /// Names of the engines.
    pub engines: BTreeMap<Side, String>,
    /// The machine's roofs, all probes of the run together.
    pub roofline: Roofline,
    /// Highest resident memory of each side's processes, where it was taken.
    pub peak_bytes: BTreeMap<Side, u64>,
}

/// Reads a run's folder.
///
/// # Errors
/// [`BenchError::Run`] where it is none, and faults of its files.
pub fn read(path: &Path) -> Result<Run, BenchError> {
    let no_run = |why: &str| BenchError::Run { path: path.to_owned(), why: why.to_owned() };
    let at = path.join("manifest.json");
    if !at.is_file() {
        return Err(no_run("it has no manifest.json (scripts/dossier.sh makes one)"));
    }
    let text = std::fs::read_to_string(&at).map_err(BenchError::read(&at))?;
    let manifest: RunManifest = serde_json::from_str(&text).map_err(|e| BenchError::form(&at, e))?;
    let gate = path.join("quiet-gate.txt");
    let gate = std::fs::read_to_string(&gate).map_err(BenchError::read(&gate))?;
    let raw = path.join("raw");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&raw)
        .map_err(BenchError::read(&raw))?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .map_err(BenchError::read(&raw))?;
    files.retain(|f| f.extension().is_some_and(|e| e == "json" || e == "jsonl"));
    // Their names begin with a running number: samples stay in the order in which they were taken.
    files.sort();
    if files.is_empty() {
        return Err(no_run("its raw folder has no samples"));
    }
    let mut run = Run {
        path: path.to_owned(),
        manifest,
        was_busy: gate.lines().any(|l| l.starts_with("BUSY")),
        cells: BTreeMap::new(),
        beside: BTreeMap::new(),
        engines: BTreeMap::new(),
        roofline: Roofline::default(),
        peak_bytes: BTreeMap::new(),
    };
    for file in &files {
        run.add(samples::read(file)?).map_err(|why| BenchError::form(file, why))?;
    }
    run.name_peer();
    Ok(run)
}

impl Run {
    /// A peer that did not know its own build has the one that the manifest knows, or none.
    fn name_peer(&mut self) {
        let Some(name) = self.engines.get_mut(&Side::Peer).filter(|name| *name == samples::PEER) else {
            return;
        };
        let version = self.manifest.peer.get("version").and_then(serde_json::Value::as_str);
        match version.filter(|version| !version.is_empty()) {
            Some(version) => *name = format!("{} {version}", samples::PEER),
            None => *name = format!("{} (its build is not on record)", samples::PEER),
        }
    }

    /// Adds a file's samples to those of the same shapes.
    fn add(&mut self, file: SampleFile) -> Result<(), String> {
        if let Some(roofline) = file.roofline {
            self.roofline.extend(roofline);
        }
        if let Some(peak) = file.manifest.get("peak_rss_bytes").and_then(serde_json::Value::as_u64) {
            let known = self.peak_bytes.entry(file.side).or_default();
            *known = peak.max(*known);
        }
        if !file.cells.is_empty() {
            let name = self.engines.entry(file.side).or_insert_with(|| file.engine.clone());
            if file.engine.len() > name.len() {
                *name = file.engine;
            }
        }
        let beside = file.manifest.get("through_engine").and_then(serde_json::Value::as_bool) == Some(true);
        for mut cell in file.cells {
            if beside && matches!(cell.shape.phase, Phase::Prefill | Phase::Decode) {
                cell.samples.drain(..cell.warm_up.min(cell.samples.len()));
                cell.warm_up = 0;
                self.beside.insert(cell.shape.clone(), cell);
                continue;
            }
            let counted = cell.counted().to_vec();
            let known = self.cells.entry((cell.shape.clone(), file.side)).or_insert_with(|| Cell {
                warm_up: 0,
                samples: Vec::new(),
                ..cell.clone()
            });
            if known.sha256 != cell.sha256 {
                return Err(format!("{}: this reply is another than before", cell.shape));
            }
            known.samples.extend(counted);
        }
        Ok(())
    }

    /// Samples of a shape and side that count.
    pub fn cell(&self, shape: &Shape, side: Side) -> Option<&Cell> {
        self.cells.get(&(shape.clone(), side)).filter(|c| !c.samples.is_empty())
    }

    /// All shapes, in order.
    pub fn shapes(&self) -> Vec<&Shape> {
        let mut shapes: Vec<&Shape> = self.cells.keys().map(|(shape, _)| shape).collect();
        shapes.dedup();
        shapes
    }
}
