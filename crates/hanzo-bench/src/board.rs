//! The board: what runs say, as numbers. Rendering is elsewhere.

use serde::Serialize;

use crate::run::{Run, RunManifest};
use crate::samples::{Cell, Phase, Sample, Shape, Side};
use crate::statistics::{Ratio, Summary, line, percentile};

/// All runs.
#[derive(Clone, Debug, Serialize)]
pub struct Board {
    /// One a run, in the order given.
    pub runs: Vec<RunBoard>,
}

/// What one run says.
#[derive(Clone, Debug, Serialize)]
pub struct RunBoard {
    /// What was run.
    pub manifest: RunManifest,
    /// Something else ran meanwhile.
    pub was_busy: bool,
    /// Name of this engine and of the peer.
    pub engines: (String, Option<String>),
    /// Best read bandwidth that the probe saw with the run's threads, bytes a second.
    pub read_roof: Option<f64>,
    /// Best int8 rate, operations a second.
    pub int8_roof: Option<f64>,
    /// Speeds, one a shape.
    pub rows: Vec<Row>,
    /// Under load: times to the first token, and times between tokens.
    pub latencies: Vec<Latency>,
    /// What a request costs beside its prompt.
    pub overhead: Option<Overhead>,
    /// Prompt lookup, its own table.
    pub speculation: Vec<SpeculationRow>,
    /// Highest resident memory, bytes: this engine, the peer.
    pub peak_bytes: (Option<u64>, Option<u64>),
}

/// What a row's means are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Tokens a second; more is better.
    #[serde(rename = "tok/s")]
    Rate,
    /// Seconds; less is better.
    #[serde(rename = "s")]
    Seconds,
}

/// One side of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Samples that count.
    pub n: usize,
    /// Their mean, in the row's unit.
    pub mean: f64,
    /// Half the 95 % interval of the mean.
    pub half_width: Option<f64>,
    /// Coefficient of variation.
    pub cv: Option<f64>,
    /// CV above the limit.
    pub noisy: bool,
    /// Bytes a second that the steps read, by the plan's bytes.
    pub read_rate: Option<f64>,
    /// `read_rate` over the roof.
    pub read_share: Option<f64>,
    /// Integer operations a second over the roof, by the plan's operations.
    pub int8_share: Option<f64>,
    #[serde(skip)]
    summary: Summary,
}

/// A shape, both sides, and the ratio.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub shape: Shape,
    /// What the means are in.
    pub unit: Unit,
    /// This engine.
    pub hanzo: Option<Measured>,
    /// The peer.
    pub peer: Option<Measured>,
    /// How many times as fast as the peer this engine is.
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio.
    pub ratio_interval: Option<(f64, f64)>,
    /// WIN, LOSS or PARITY.
    pub verdict: Option<&'static str>,
}

/// Percentiles of a time under load, seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// [`Phase::Request`]: from submission to first token. [`Phase::InterToken`]: between two tokens of a stream.
    pub phase: Phase,
    /// Tokens of each prompt, or of each reply.
    pub tokens: u64,
    /// Streams that ran.
    pub streams: u64,
    /// Samples.
    pub n: usize,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

/// What requests take beyond the prompt itself, by the size sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Overhead {
    /// Prompt length, seconds of a whole request less seconds of the prompt alone (means).
    pub by_size: Vec<(u64, f64)>,
    /// Intercept of the line through them: what a request costs however long it is. `None` from one size.
    pub fixed_s: Option<f64>,
    /// Its slope: seconds a token.
    pub per_token_s: Option<f64>,
}

/// Prompt lookup on one workload with one γ.
#[derive(Clone, Debug, Serialize)]
pub struct SpeculationRow {
    /// Kind of text.
    pub workload: String,
    /// Most drafts a step.
    pub gamma: u64,
    /// Speed over that without speculation.
    pub multiple: f64,
    /// Its interval.
    pub multiple_interval: Option<(f64, f64)>,
    /// Speed over the peer's plain decode of the same model.
    pub over_peer: Option<f64>,
    /// Its interval.
    pub over_peer_interval: Option<(f64, f64)>,
    /// Replies with and without are the same bytes (SHA-256).
    pub same_reply: Option<bool>,
    /// Share of drafts that were right.
    pub accepted: Option<f64>,
}

impl Board {
    /// Of runs, in their order.
    pub fn of(runs: &[Run]) -> Self {
        Self { runs: runs.iter().map(RunBoard::of).collect() }
    }
}

/// A sample in the unit of the phase.
fn value(phase: Phase, sample: Sample) -> f64 {
    match unit(phase) {
        Unit::Rate => sample.rate(),
        Unit::Seconds => sample.0,
    }
}

fn unit(phase: Phase) -> Unit {
    match phase {
        Phase::Prefill | Phase::Decode | Phase::Speculation => Unit::Rate,
        Phase::Load | Phase::Request | Phase::InterToken => Unit::Seconds,
    }
}

fn summary(run: &Run, shape: &Shape, side: Side) -> Option<Summary> {
    let cell = run.cell(shape, side)?;
    Summary::of(&cell.samples.iter().map(|&s| value(shape.phase, s)).collect::<Vec<_>>())
}

impl RunBoard {
    fn of(run: &Run) -> Self {
        let roof = |x: Option<f64>| x.map(|x| x * 1e9);
        let at = run.roofline.of(&run.manifest.backend, run.manifest.threads);
        let (read_roof, int8_roof) = (roof(at.and_then(|p| p.read())), roof(at.and_then(|p| p.int8())));
        let mut board = Self {
            manifest: run.manifest.clone(),
            was_busy: run.was_busy,
            engines: (
                run.engines.get(&Side::Hanzo).cloned().unwrap_or_else(|| "hanzo".to_owned()),
                run.engines.get(&Side::Peer).cloned(),
            ),
            read_roof,
            int8_roof,
            rows: Vec::new(),
            latencies: Vec::new(),
            overhead: overhead(run),
            speculation: speculation(run),
            peak_bytes: (run.peak_bytes.get(&Side::Hanzo).copied(), run.peak_bytes.get(&Side::Peer).copied()),
        };
        for shape in run.shapes() {
            match shape.phase {
                Phase::Speculation => {}
                Phase::InterToken => board.latencies.extend(latency(run, shape)),
                // Those that were submitted first have their token first: a mean of them is nobody's time.
                Phase::Request if shape.batch > 1 => board.latencies.extend(latency(run, shape)),
                _ => board.rows.push(board.row(run, shape)),
            }
        }
        board
    }

    fn measured(&self, run: &Run, shape: &Shape, side: Side) -> Option<Measured> {
        let summary = summary(run, shape, side)?;
        // What a step reads and computes is a property of the file and the shape: both engines are held to the same.
        let cell = run.cell(shape, Side::Hanzo);
        let per_token = cell.and_then(|c| c.step_bytes).map(|bytes| bytes / shape.batch as f64);
        let ops = cell.and_then(|c| c.int8_ops).map(|ops| ops / shape.n as f64);
        let read_rate = per_token.map(|b| b * summary.mean);
        Some(Measured {
            n: summary.n,
            mean: summary.mean,
            half_width: summary.half_width(),
            cv: summary.cv(),
            noisy: summary.is_noisy(),
            read_rate,
            read_share: read_rate.zip(self.read_roof).map(|(x, roof)| x / roof),
            int8_share: ops.zip(self.int8_roof).map(|(ops, roof)| ops * summary.mean / roof),
            summary,
        })
    }

    fn row(&self, run: &Run, shape: &Shape) -> Row {
        let unit = unit(shape.phase);
        let (hanzo, peer) = (self.measured(run, shape, Side::Hanzo), self.measured(run, shape, Side::Peer));
        let ratio = hanzo.as_ref().zip(peer.as_ref()).and_then(|(h, p)| match unit {
            Unit::Rate => Ratio::of(&h.summary, &p.summary),
            Unit::Seconds => Ratio::of(&p.summary, &h.summary),
        });
        Row {
            shape: shape.clone(),
            unit,
            hanzo,
            peer,
            ratio: ratio.map(|r| r.value),
            ratio_interval: ratio.and_then(|r| r.interval),
            verdict: ratio.and_then(|r| r.verdict()).map(super::statistics::Verdict::name),
        }
    }

    /// The row of a shape, if both sides were measured.
    pub fn find(&self, phase: Phase, n: u64) -> Option<&Row> {
        self.rows.iter().find(|r| r.shape == Shape::new(phase, n))
    }

    /// Best multiple of a workload over the γ that were tried.
    pub fn best_speculation(&self, workload: &str) -> Option<&SpeculationRow> {
        let of = self.speculation.iter().filter(|s| s.workload == workload);
        of.max_by(|a, b| a.multiple.total_cmp(&b.multiple))
    }
}

fn latency(run: &Run, shape: &Shape) -> Option<Latency> {
    let cell = run.cell(shape, Side::Hanzo)?;
    let times: Vec<f64> = cell.samples.iter().map(|s| s.0).collect();
    Some(Latency {
        phase: shape.phase,
        tokens: shape.n,
        streams: shape.batch,
        n: times.len(),
        p50: percentile(&times, 0.5)?,
        p95: percentile(&times, 0.95)?,
        p99: percentile(&times, 0.99)?,
        max: percentile(&times, 1.0)?,
    })
}

fn overhead(run: &Run) -> Option<Overhead> {
    let mut by_size = Vec::new();
    for shape in run.shapes().into_iter().filter(|s| s.phase == Phase::Request) {
        let seconds = |cell: &Cell| Summary::of(&cell.samples.iter().map(|s| s.0).collect::<Vec<_>>());
        let whole = run.cell(shape, Side::Hanzo).and_then(seconds);
        let pure = run.beside.get(&Shape { phase: Phase::Prefill, ..shape.clone() }).and_then(seconds);
        if let (Some(whole), Some(pure)) = (whole, pure) {
            by_size.push((shape.n, whole.mean - pure.mean));
        }
    }
    let points: Vec<(f64, f64)> = by_size.iter().map(|&(n, s)| (n as f64, s)).collect();
    let fit = if points.len() > 1 { line(&points) } else { None };
    (!by_size.is_empty()).then_some(Overhead {
        by_size,
        fixed_s: fit.map(|f| f.0),
        per_token_s: fit.map(|f| f.1),
    })
}

fn speculation(run: &Run) -> Vec<SpeculationRow> {
    let plain = Shape::new(Phase::Decode, 128);
    let peer = summary(run, &plain, Side::Peer);
    let mut rows = Vec::new();
    for shape in run.shapes() {
        let (Phase::Speculation, Some(workload), Some(gamma)) = (shape.phase, &shape.workload, shape.gamma)
        else {
            continue;
        };
        let off = Shape { gamma: Some(0), ..shape.clone() };
        let (Some(on), Some(base)) = (summary(run, shape, Side::Hanzo), summary(run, &off, Side::Hanzo))
        else {
            continue;
        };
        let Some(multiple) = Ratio::of(&on, &base).filter(|_| gamma > 0) else { continue };
        let over = peer.as_ref().and_then(|p| Ratio::of(&on, p));
        let cell = run.cell(shape, Side::Hanzo);
        let sha = |shape: &Shape| run.cell(shape, Side::Hanzo).and_then(|c| c.sha256.clone());
        rows.push(SpeculationRow {
            workload: workload.clone(),
            gamma,
            multiple: multiple.value,
            multiple_interval: multiple.interval,
            over_peer: over.map(|r| r.value),
            over_peer_interval: over.and_then(|r| r.interval),
            same_reply: sha(shape).zip(sha(&off)).map(|(a, b)| a == b),
            accepted: cell
                .and_then(|c| c.drafts)
                .filter(|d| d.0 > 0)
                .map(|(drafted, accepted)| accepted as f64 / drafted as f64),
        });
    }
    rows
}
