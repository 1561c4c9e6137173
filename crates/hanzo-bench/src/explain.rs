//! Why a model is as fast as it is: what its plan must read and compute, what the machine's roofs make of that, where the time of real
//! steps went, and what would come of making each part faster.
//!
//! A launch's *bound* is the longer of its bytes at the read roof and its operations at the arithmetic roofs, and one barrier. What the
//! measured time has to do with it names the regime:
//!
//! * **bandwidth-roofline**: bytes decide. Only fewer bytes help.
//! * **compute-bound**: operations decide. Better use of the multiply units helps.
//! * **host/launch-bound**: the meeting of threads, or work between launches, decides. Fewer launches help.
//! * **busy-bound**: more than twice the bound: small work that no roof explains. Only doing less of it helps.
//!
//! A part that takes the share f of a step and becomes κ times as fast makes the step about 1 + f(1 − 1/κ) times as fast. The table gives
//! that for the κ at which the part would reach its bound, which is all there is to win.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use hanzo_cpu::isa::CpuConfig;
use hanzo_cpu::pool::Pool;
use hanzo_cpu::probe::{self, Memory};
use hanzo_fusion::graph::Op;
use hanzo_fusion::{Launch, LaunchKind, Plan, StepTimes};
use hanzo_gguf::GgufFile;
use serde::Serialize;

use crate::device::cpu_config;
use crate::error::BenchError;
use crate::model::{BenchModel, Sizes};
use crate::sample::Listener;
use crate::samples::{Phase, Shape};
use crate::work::{StepShape, Work};

/// Memory of the bandwidth probe.
const MEMORY_BYTES: usize = 256 << 20;
/// A quiet machine's threads meet in less than a microsecond; at so many seconds another process has their cores.
const DISTURBED: f64 = 20e-6;
/// Beyond so many times its bound, a launch is no longer at a roof.
const NEAR: f64 = 2.0;

/// Shown under `--help`.
pub const EXAMPLES: &str = "Examples:
  hanzo explain model.gguf
  hanzo explain model.gguf -p 2048 -n 0          only a prompt
  hanzo explain model.gguf --depth 4096 --json

docs/benchmarking.md says how to read it.";

/// What is explained.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Tokens of the prompt, 0 for none
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512)]
    pub prompt: usize,
    /// Tokens to decode, 0 for none
    #[arg(short = 'n', long, value_name = "N", default_value_t = 32)]
    pub generate: usize,
    /// Tokens in the context before
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0)]
    pub depth: usize,
    /// Sequences that decode together
    #[arg(short = 'b', long, value_name = "N", default_value_t = 1)]
    pub batch: usize,
    /// Threads; all cores by default
    #[arg(short = 't', long, value_name = "N")]
    pub threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What the machine can, with the threads in question.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Roofs {
    /// Bytes a second.
    pub read: f64,
    /// Integer operations a second; `None` where there is no probe.
    pub int8: Option<f64>,
    /// f32 operations a second; `None` where there is no probe.
    pub f32: Option<f64>,
    /// Seconds of a barrier.
    pub barrier: f64,
}

impl Roofs {
    fn measure(config: &CpuConfig) -> Result<Self, BenchError> {
        let pool = Pool::configured(config)?;
        let memory = Memory::new(MEMORY_BYTES)?;
        let mut roofs = Self { read: 0.0, int8: None, f32: None, barrier: f64::INFINITY };
        for _ in 0..3 {
            roofs.read = roofs.read.max(probe::read_bandwidth(&pool, &memory)?);
            roofs.int8 = greater(roofs.int8, probe::int8_rate(&pool)?);
            roofs.f32 = greater(roofs.f32, probe::f32_rate(&pool)?);
            roofs.barrier = roofs.barrier.min(probe::barrier_seconds(&pool)?);
        }
        Ok(roofs)
    }

    /// Seconds that work takes at the roofs: reading, and computing where the roofs are known.
    fn bounds(&self, work: Work) -> (f64, f64) {
        let at = |ops: f64, roof: Option<f64>| roof.map_or(0.0, |roof| ops / roof);
        (work.bytes / self.read, at(work.int8_ops, self.int8) + at(work.f32_ops, self.f32))
    }

    /// Seconds that a launch takes at least.
    fn bound(&self, work: Work) -> f64 {
        let (read, compute) = self.bounds(work);
        read.max(compute) + work.barriers * self.barrier
    }
}

/// What decides how long something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Regime {
    /// Bytes.
    #[serde(rename = "bandwidth-roofline")]
    Bandwidth,
    /// Operations.
    #[serde(rename = "compute-bound")]
    Compute,
    /// Barriers, and what happens between launches.
    #[serde(rename = "host/launch-bound")]
    Launch,
    /// Small work that no roof explains.
    #[serde(rename = "busy-bound")]
    Busy,
}

impl Regime {
    /// All there are.
    pub const ALL: [Regime; 4] = [Self::Bandwidth, Self::Compute, Self::Launch, Self::Busy];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth-roofline",
            Self::Compute => "compute-bound",
            Self::Launch => "host/launch-bound",
            Self::Busy => "busy-bound",
        }
    }

    fn of(seconds: f64, work: Work, roofs: &Roofs) -> Self {
        let (read, compute) = roofs.bounds(work);
        if seconds > NEAR * roofs.bound(work) {
            Self::Busy
        } else if work.barriers * roofs.barrier > read.max(compute) {
            Self::Launch
        } else if read >= compute {
            Self::Bandwidth
        } else {
            Self::Compute
        }
    }
}

/// Launches of all layers that do the same.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// What they do.
    pub name: String,
    /// How many a step.
    pub launches: usize,
    /// Seconds of a step.
    pub seconds: f64,
    /// Share of the step, f.
    pub share: f64,
    /// Seconds at the roofs.
    pub bound_seconds: f64,
    /// What decides.
    pub regime: Regime,
    /// How many times as fast the step would be if this part ran at its bound: 1 + f(1 − 1/κ).
    pub surfaces: f64,
}

/// Steps of one kind, explained.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// "prefill" or "decode".
    pub phase: &'static str,
    /// Tokens of the prompt, or tokens decoded.
    pub n: usize,
    /// Sequences.
    pub batch: usize,
    /// Tokens in the context before.
    pub depth: usize,
    /// Steps that were timed.
    pub steps: usize,
    /// Tokens a second that the roofs allow.
    pub predicted_rate: f64,
    /// Tokens a second without the clock.
    pub rate: f64,
    /// Seconds of a step with the clock.
    pub step_seconds: f64,
    /// Seconds of a step at the roofs.
    pub bound_seconds: f64,
    /// Bytes of weights and cache that a step reads.
    pub bytes: f64,
    /// Integer operations of a step.
    pub int8_ops: f64,
    /// f32 operations of a step.
    pub f32_ops: f64,
    /// Where most of the time goes.
    pub regime: Regime,
    /// All of the step's time, largest part first.
    pub parts: Vec<Part>,
}

/// A model, explained.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// File name.
    pub model: String,
    /// Where it ran.
    pub device: String,
    /// Launches of its plan.
    pub launches: usize,
    /// What the machine can.
    pub roofs: Roofs,
    /// Prefill and decode, as asked.
    pub phases: Vec<Explained>,
}

/// Predicts, runs and attributes. `name` is what the report calls the model.
///
/// # Errors
/// Faults of model and device, and sizes that cannot be.
pub fn run(
    file: &GgufFile,
    name: &str,
    args: &Args,
    listener: &mut dyn Listener,
) -> Result<Explanation, BenchError> {
    let config = cpu_config("cpu", args.threads)?;
    if args.batch == 0 || args.batch > 256 {
        return Err(BenchError::Asked("batches of 1 to 256 are possible".to_owned()));
    }
    if args.prompt == 0 && args.generate == 0 {
        return Err(BenchError::Asked("-p 0 and -n 0 leave nothing to explain".to_owned()));
    }
    let context = args.prompt.max(args.depth.saturating_add(args.generate)).max(1);
    let sizes = Sizes { batch: args.batch, context, chunk: 512 };
    let mut model = BenchModel::load(file, &config, sizes, listener.loading())?;
    let roofs = Roofs::measure(&config)?;
    let mut phases = Vec::new();
    if args.prompt > 0 {
        let n = args.prompt;
        listener.begin(&Shape::new(Phase::Prefill, n as u64), 3);
        let mut tally = Tally::new(&model.plan, roofs);
        let mut rates = Vec::new();
        for _ in 0..3 {
            let start = Instant::now();
            model.prompt(n, 1)?;
            rates.push(n as f64 / start.elapsed().as_secs_f64());
            listener.repetition();
        }
        let start = Instant::now();
        model.prompt_timed(n, 1, true, &mut |shape, times| tally.steps.push((shape, times)))?;
        phases.push(tally.explain(&model.plan, start.elapsed(), best(&rates), ("prefill", n, 1, 0)));
    }
    if args.generate > 0 {
        let (n, batch, depth) = (args.generate, args.batch, args.depth);
        listener.begin(&Shape { depth: depth as u64, ..Shape::new(Phase::Decode, n as u64) }, 3);
        model.prompt(depth, batch)?;
        let mut tally = Tally::new(&model.plan, roofs);
        let mut rates = Vec::new();
        for _ in 0..3 {
            let start = Instant::now();
            model.decode(n, batch, depth)?;
            rates.push((n * batch) as f64 / start.elapsed().as_secs_f64());
            listener.repetition();
        }
        let start = Instant::now();
        model.decode_timed(n, batch, depth, true, &mut |shape, times| tally.steps.push((shape, times)))?;
        phases.push(tally.explain(&model.plan, start.elapsed(), best(&rates), ("decode", n, batch, depth)));
    }
    Ok(Explanation {
        model: name.to_owned(),
        device: model.device.clone(),
        launches: model.plan.launches.len(),
        roofs,
        phases,
    })
}

fn greater(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

/// Timed steps.
struct Tally {
    roofs: Roofs,
    names: Vec<String>,
    steps: Vec<(StepShape, StepTimes)>,
}

impl Tally {
    fn new(plan: &Plan, roofs: Roofs) -> Self {
        Self { roofs, names: plan.launches.iter().map(|l| name(plan, l)).collect(), steps: Vec::new() }
    }

    fn explain(
        self,
        plan: &Plan,
        wall: Duration,
        rate: f64,
        (phase, n, batch, depth): (&'static str, usize, usize, usize),
    ) -> Explained {
        let steps = self.steps.len().max(1) as f64;
        let step_seconds = wall.as_secs_f64() / steps;
        let mut parts: Vec<Part> = Vec::new();
        let mut works: Vec<Work> = Vec::new();
        let mut accounted = Duration::ZERO;
        for (shape, times) in &self.steps {
            accounted += times.total();
            for (at, took) in times.launches.iter().enumerate() {
                let work = Work::of_launch(plan, at, *shape);
                let name = self.names.get(at).map_or("", String::as_str);
                let known = parts.iter().position(|p| p.name == name).unwrap_or_else(|| {
                    parts.push(Part::new(name));
                    works.push(Work::default());
                    parts.len() - 1
                });
                if let (Some(part), Some(sum)) = (parts.get_mut(known), works.get_mut(known)) {
                    part.launches += 1;
                    part.seconds += took.as_secs_f64();
                    part.bound_seconds += self.roofs.bound(work);
                    *sum = sum.plus(work);
                }
            }
        }
        for (part, work) in parts.iter_mut().zip(&works) {
            // The regime of the average launch.
            let n = part.launches.max(1) as f64;
            let each = work.times(1.0 / n);
            part.regime = Regime::of(part.seconds / n, each, &self.roofs);
        }
        let of = |f: fn(&StepTimes) -> Duration| self.steps.iter().map(|(_, t)| f(t).as_secs_f64()).sum();
        let host: [(&str, f64); 3] = [
            ("before the launches (checks, tables, waking threads)", of(|t| t.prepare)),
            ("after the launches", of(|t| t.finish)),
            (
                "between steps (greedy choice, next step's tables)",
                (wall.saturating_sub(accounted)).as_secs_f64(),
            ),
        ];
        for (name, seconds) in host {
            parts.push(Part { seconds, ..Part::new(name) });
        }
        for part in &mut parts {
            part.launches = (part.launches as f64 / steps).round() as usize;
            part.seconds /= steps;
            part.bound_seconds /= steps;
            part.share = part.seconds / step_seconds;
            // κ = seconds / bound; a part below its bound (it reads from a cache) has nothing to win.
            part.surfaces = 1.0 + part.share * (1.0 - part.bound_seconds / part.seconds.max(1e-12)).max(0.0);
        }
        parts.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let regime_seconds =
            |r: Regime| parts.iter().filter(|p| p.regime == r).map(|p| p.seconds).sum::<f64>();
        let regime = Regime::ALL
            .into_iter()
            .max_by(|a, b| regime_seconds(*a).total_cmp(&regime_seconds(*b)))
            .unwrap_or(Regime::Busy);
        let total = works.iter().fold(Work::default(), |a, b| a.plus(*b));
        let bound_seconds: f64 = parts.iter().map(|p| p.bound_seconds).sum();
        let tokens = (n * batch) as f64 / steps;
        Explained {
            phase,
            n,
            batch,
            depth,
            steps: self.steps.len(),
            predicted_rate: tokens / bound_seconds.max(1e-12),
            rate,
            step_seconds,
            bound_seconds,
            bytes: total.bytes / steps,
            int8_ops: total.int8_ops / steps,
            f32_ops: total.f32_ops / steps,
            regime,
            parts,
        }
    }
}

impl Part {
    /// Without launches it is host time.
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            launches: 0,
            seconds: 0.0,
            share: 0.0,
            bound_seconds: 0.0,
            regime: Regime::Launch,
            surfaces: 1.0,
        }
    }
}

/// What a launch does, the same for all layers: its weights' names without the layer, or its ops.
fn name(plan: &Plan, launch: &Launch) -> String {
    let mut words: Vec<String> = Vec::new();
    for node in launch.nodes.iter().filter_map(|v| plan.graph.node(*v)) {
        let word = match (&node.op, launch.kind) {
            (Op::MatMul { weight, .. } | Op::MoeMatMul { weight, .. }, _) => {
                let Some(w) = plan.graph.weights.get(weight.index()) else { continue };
                let name = w.name.trim_end_matches(".weight");
                name.split_once('.')
                    .and_then(|(_, r)| r.split_once('.'))
                    .map_or(name, |(_, short)| short)
                    .to_owned()
            }
            (_, LaunchKind::Contract { .. }) => continue,
            (op, _) => op.name().to_owned(),
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join("+")
}

impl Explanation {
    /// As tables.
    pub fn to_text(&self) -> String {
        let r = &self.roofs;
        let giga = |x: Option<f64>, unit: &str| {
            x.map_or_else(|| format!("no probe for {unit}"), |x| format!("{:.0} {unit}", x / 1e9))
        };
        let mut out = format!(
            "{} on {}, {} launches a step\nroofs: read {:.1} GB/s, {}, {}, a barrier {:.2} µs\n",
            self.model,
            self.device,
            self.launches,
            r.read / 1e9,
            giga(r.int8, "Gop/s int8"),
            giga(r.f32, "GFLOP/s f32"),
            1e6 * r.barrier
        );
        if r.barrier > DISTURBED {
            out.push_str("something else has the cores: these roofs and times are not the machine's\n");
        }
        for phase in &self.phases {
            phase.to_text(&mut out);
        }
        out
    }
}

impl Explained {
    fn to_text(&self, out: &mut String) {
        let batch = if self.batch > 1 { format!(", batch {}", self.batch) } else { String::new() };
        let depth = if self.depth > 0 { format!(", depth {}", self.depth) } else { String::new() };
        let _ = writeln!(
            out,
            "\n{} of {}{batch}{depth}: {:.1} tok/s measured, {:.1} predicted from the roofs ({:.0} %); {}\n\
             a step: {:.3} ms, at the roofs {:.3} ms; {:.1} MB read, {:.2} Gop int8, {:.2} GFLOP f32",
            self.phase,
            self.n,
            self.rate,
            self.predicted_rate,
            100.0 * self.rate / self.predicted_rate,
            self.regime.name(),
            1e3 * self.step_seconds,
            1e3 * self.bound_seconds,
            self.bytes / 1e6,
            self.int8_ops / 1e9,
            self.f32_ops / 1e9,
        );
        let _ = writeln!(
            out,
            "{:>8}  {:>6}  {:>8}  {:<18}  {:>12}  {:>8}  what",
            "ms", "share", "bound", "regime", "if at bound", "launches"
        );
        for p in &self.parts {
            let _ = writeln!(
                out,
                "{:8.3}  {:5.1}%  {:8.3}  {:<18}  {:>10.2} ×  {:>8}  {}",
                1e3 * p.seconds,
                100.0 * p.share,
                1e3 * p.bound_seconds,
                p.regime.name(),
                p.surfaces,
                p.launches,
                short(&p.name)
            );
        }
        let sum: f64 = self.parts.iter().map(|p| p.seconds).sum();
        let _ = writeln!(
            out,
            "{:8.3}  {:5.1}%  {:8.3}  all",
            1e3 * sum,
            100.0 * sum / self.step_seconds,
            1e3 * self.bound_seconds
        );
    }
}

/// Names fit a line.
fn short(name: &str) -> String {
    const MOST: usize = 60;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regimes_follow_the_binding_resource() {
        let roofs = Roofs { read: 1e9, int8: Some(1e12), f32: Some(1e11), barrier: 1e-6 };
        let bytes = Work { bytes: 1e6, barriers: 1.0, ..Work::default() };
        let ops = Work { int8_ops: 1e9, barriers: 1.0, ..Work::default() };
        assert_eq!(Regime::of(1.1e-3, bytes, &roofs), Regime::Bandwidth);
        assert_eq!(Regime::of(1.1e-3, ops, &roofs), Regime::Compute);
        assert_eq!(Regime::of(1.5e-6, Work { barriers: 1.0, ..Work::default() }, &roofs), Regime::Launch);
        assert_eq!(Regime::of(5e-3, bytes, &roofs), Regime::Busy);
        // Without a barrier there is no meeting to wait for.
        assert_eq!(Regime::of(1.5e-6, Work::default(), &roofs), Regime::Busy);
        // int8 and f32 take the same units: their times add.
        let both = Work { int8_ops: 1e9, f32_ops: 1e8, barriers: 1.0, ..Work::default() };
        assert!((roofs.bound(both) - 2.001e-3).abs() < 1e-9);
    }
}
