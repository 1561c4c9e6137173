//! The roofs of a Vulkan device, by the kernels of `hanzo_fusion::kernels::roofline`.
//!
//! Before a figure counts, what its kernel wrote is compared with what it must have written, and again after the last repetition: a device that computes
//! wrong, or a driver that leaves work out, has no roofs but an error. Timings are made long enough for either clock by reading the memory more often,
//! and by more rounds of arithmetic.

use std::time::Duration;

use hanzo_fusion::kernel::emit::spirv;
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernel::{Kernel, KernelError};
use hanzo_fusion::kernels::roofline::{self as kernels, CHAINS, UNROLL, WORKGROUP};
use hanzo_vulkan::{
    Buffer, DeviceInfo, DeviceKind, Instance, Launch, Options, Program, Timing, Vulkan, VulkanError,
};
use serde_json::{Value, json};

use super::{Point, Roofline};
use crate::device;
use crate::error::BenchError;
use crate::statistics::percentile;

/// Memory that is read: far more than a GPU's caches hold.
const READ_BYTES: u64 = 1 << 30;
/// Of a CPU under a driver.
const READ_BYTES_CPU: u64 = 256 << 20;
/// Less says little of memory.
const LEAST_READ_BYTES: u64 = 16 << 20;
/// Rounds of a workgroup that reads: 128 KiB, and 1 KiB written.
const READ_ROUNDS: u32 = 4;
/// Workgroups of the arithmetic: many times what a GPU holds at once, so that the last of them do not count.
const GROUPS: u32 = 16_384;
/// For a CPU under a driver.
const GROUPS_CPU: u32 = 256;
/// A timing is at least so long: what a submission costs beside it does not show.
const LEAST: Duration = Duration::from_millis(20);
/// Most rounds of the arithmetic in a launch: f32 sums are exact up to there.
const MAX_ROUNDS: u32 = 1 << 16;
/// Most launches of one submission.
const MAX_TIMES: u32 = 4096;

/// Whose clock was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Stamps of the device before and after its work.
    Stamps,
    /// The host's, from submission to the end of the wait.
    Host,
}

impl Clock {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stamps => "the device's time stamps",
            Self::Host => "the host's clock",
        }
    }

    fn seconds(self, timing: Timing) -> f64 {
        let time = match self {
            Self::Stamps => timing.device.unwrap_or(timing.host),
            Self::Host => timing.host,
        };
        time.as_secs_f64().max(1e-9)
    }
}

/// What was measured on a device, and how.
#[derive(Clone, Debug)]
pub struct DeviceRoofline {
    /// The device.
    pub info: DeviceInfo,
    /// All repetitions that count; its `threads` are 0.
    pub point: Point,
    /// Whose clock was read.
    pub clock: Clock,
    /// Bytes of the memory that was read.
    pub read_bytes: u64,
    /// What a reader must know, in sentences.
    pub notes: Vec<String>,
}

/// A kernel with its operands, long enough to be timed.
struct Probe {
    launch: Launch,
    sums: Buffer,
    /// Launches of a timing.
    times: u32,
    /// Bytes or operations of a timing.
    work: f64,
    /// What an invocation must leave, by its number in the launch.
    want: Vec<u32>,
    what: &'static str,
}

impl Probe {
    fn rate(&self, clock: Clock, timing: Timing) -> f64 {
        self.work / clock.seconds(timing) / 1e9
    }

    /// Whether all of the work was done.
    fn check(&self, vulkan: &Vulkan) -> Result<(), BenchError> {
        let n = (self.sums.bytes() / 4) as usize;
        let bytes = vulkan.download(&self.sums, 4 * n)?;
        let words = bytes.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w));
        let wrong = words.zip(self.want.iter().cycle()).filter(|(got, want)| got != *want).count();
        if wrong == 0 {
            return Ok(());
        }
        let device = vulkan.info().name.clone();
        Err(BenchError::Wrong { device, what: self.what, wrong, of: n })
    }
}

/// A kernel as a program; what has no subgroups runs in any.
fn launch(
    vulkan: &Vulkan,
    kernel: Result<Kernel, KernelError>,
    groups: u32,
    buffers: &[Buffer],
    params: &[u32],
) -> Result<Launch, BenchError> {
    let kernel = optimize(&kernel?);
    let words = spirv::module(&kernel)?;
    let shared_bytes = kernel.shared_bytes() as u64;
    let program = Program { name: &kernel.name, words: &words, subgroup: None, shared_bytes };
    Ok(vulkan.launch(&program, [groups, 1, 1], buffers, params)?)
}

/// The width that kernels are written down for: none of these cares.
const ANY_SUBGROUP: u32 = 32;

impl DeviceRoofline {
    /// Probes the device of that number, or the best, `repetitions` times after a warm-up; `each` hears of every one.
    ///
    /// # Errors
    /// Where there is no such device, it lacks what the kernels need, or computes wrong.
    pub fn probe(
        index: Option<usize>,
        repetitions: usize,
        each: &mut dyn FnMut(),
    ) -> Result<Self, BenchError> {
        let vulkan = Instance::new(&Options::default())?.open(index)?;
        let info = vulkan.info().clone();
        let software = info.kind == DeviceKind::Cpu;
        let mut notes = Vec::new();
        if software {
            notes.push("This device is a CPU under a driver: its figures say nothing of any GPU.".to_owned());
        }
        if !info.has_dot_instruction {
            notes.push("Its driver says that it has no instruction for packed dots of int8: they are made of others.".to_owned());
        }
        let (memory, groups) = memory(&vulkan, software, &mut notes)?;
        let read_bytes = u64::from(groups) * read_bytes_a_group();
        let arithmetic = if software { GROUPS_CPU } else { GROUPS };
        let probes = [
            read(&vulkan, memory, groups)?,
            arithmetic_probe(&vulkan, arithmetic, Arithmetic::Int8)?,
            arithmetic_probe(&vulkan, arithmetic, Arithmetic::F32)?,
        ];
        // All that runs long enough has run before; this is the warm-up that is as long as what counts.
        for probe in &probes {
            probe.launch.run(probe.times)?;
            probe.check(&vulkan)?;
        }
        let mut timings = Vec::new();
        for _ in 0..repetitions {
            for probe in &probes {
                timings.push(probe.launch.run(probe.times)?);
            }
            each();
        }
        for probe in &probes {
            probe.check(&vulkan)?;
        }
        let clock = clock(&timings);
        if clock == Clock::Host && info.tick_ns.is_some() {
            notes.push("Its time stamps and the host's clock disagree; the host's counts.".to_owned());
        }
        let mut point = Point::default();
        for timings in timings.chunks_exact(probes.len()) {
            let rates = [&mut point.read_gb_s, &mut point.int8_gop_s, &mut point.f32_gflop_s];
            for ((probe, timing), rates) in probes.iter().zip(timings).zip(rates) {
                rates.push(probe.rate(clock, *timing));
            }
        }
        Ok(Self { info, point, clock, read_bytes, notes })
    }

    /// The device as `--device` names it.
    pub fn device(&self) -> String {
        format!("vulkan:{}", self.info.index)
    }

    /// As a sample file without cells: the CPU's, with more about the device.
    pub fn to_json(&self) -> Value {
        json!({
            "manifest": {
                "engine": "hanzo",
                "version": env!("CARGO_PKG_VERSION"),
                "device": format!("{} ({})", self.device(), self.info.name),
                "driver": self.info.driver,
                "vulkan": device::to_json(&self.info),
                "repetitions": self.point.read_gb_s.len(),
                "warm_up_repetitions": 1,
                "clock": self.clock.name(),
                "read_bytes": self.read_bytes,
                "notes": self.notes,
            },
            "cells": [],
            "roofline": Roofline(vec![self.point.clone()]),
        })
    }

    /// As a table.
    pub fn to_text(&self) -> String {
        let p = &self.point;
        let mut out = format!("{}: {}\n", self.device(), device::describe(&self.info));
        out.push_str(&format!(
            "{} repetitions after a warm-up, by {}\n\n",
            p.read_gb_s.len(),
            self.clock.name()
        ));
        out.push_str(&format!("{:<14}{:>12}{:>12}\n", "", "best", "median"));
        let read = format!("  of {} MiB", self.read_bytes >> 20);
        let rows = [
            ("read, GB/s", p.read(), &p.read_gb_s, read.as_str()),
            ("int8, Gop/s", p.int8(), &p.int8_gop_s, "  packed dots"),
            ("f32, GFLOP/s", p.f32(), &p.f32_gflop_s, "  fused multiply-adds"),
        ];
        for (name, best, all, what) in rows {
            let show = |x: Option<f64>| x.map_or_else(|| "no probe".to_owned(), |x| format!("{x:.1}"));
            out.push_str(&format!("{name:<14}{:>12}{:>12}{what}\n", show(best), show(percentile(all, 0.5))));
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        self.notes.iter().for_each(|note| out.push_str(&format!("{note}\n")));
        out
    }
}

/// The stamps', where all of them lie within what the host saw, and make up most of it.
fn clock(timings: &[Timing]) -> Clock {
    let right = |t: &Timing| {
        t.device.is_some_and(|device| device <= t.host.mul_f64(1.01) && device >= t.host.mul_f64(0.5))
    };
    if timings.iter().all(right) { Clock::Stamps } else { Clock::Host }
}

fn read_bytes_a_group() -> u64 {
    4 * u64::from(kernels::read_words(READ_ROUNDS))
}

/// Memory to be read, and the workgroups that read it: as much as is wanted, or what the device can give.
fn memory(vulkan: &Vulkan, software: bool, notes: &mut Vec<String>) -> Result<(Buffer, u32), BenchError> {
    let info = vulkan.info();
    let wanted = if software { READ_BYTES_CPU } else { READ_BYTES };
    let mut bytes = wanted.min(info.max_buffer_bytes).min(info.memory_bytes / 4);
    let mut why = if info.max_buffer_bytes < wanted && info.max_buffer_bytes <= info.memory_bytes / 4 {
        "the device's limit for a buffer"
    } else {
        "a quarter of the device's memory"
    };
    let buffer = loop {
        bytes -= bytes % read_bytes_a_group();
        match vulkan.buffer(bytes.max(read_bytes_a_group())) {
            Err(VulkanError::Memory { .. }) if bytes / 2 >= LEAST_READ_BYTES => {
                bytes /= 2;
                why = "more is not free";
            }
            buffer => break buffer?,
        }
    };
    bytes = bytes.max(read_bytes_a_group());
    if bytes < wanted {
        let (some, all) = (bytes >> 20, wanted >> 20);
        notes.push(format!("{some} MiB are read in the place of {all}: {why}. A cache as large would show."));
    }
    let groups = u32::try_from(bytes / read_bytes_a_group()).unwrap_or(u32::MAX);
    Ok((buffer, groups))
}

fn read(vulkan: &Vulkan, memory: Buffer, groups: u32) -> Result<Probe, BenchError> {
    let words = u32::try_from(memory.bytes() / 4).unwrap_or(u32::MAX);
    let fill = kernels::fill(ANY_SUBGROUP);
    launch(vulkan, fill, GROUPS_CPU, std::slice::from_ref(&memory), &[words])?.run(1)?;
    let sums = vulkan.buffer(u64::from(groups * WORKGROUP) * 4)?;
    let buffers = [memory, sums.clone()];
    let kernel = kernels::read(ANY_SUBGROUP);
    let launch = launch(vulkan, kernel, groups, &buffers, &[READ_ROUNDS])?;
    let want = (0..groups * WORKGROUP).map(|i| kernels::read_sum(i, READ_ROUNDS)).collect();
    let mut times = 1;
    while times < MAX_TIMES {
        let time = launch.run(times)?.host;
        if time >= LEAST {
            break;
        }
        times = longer(times, time).min(MAX_TIMES);
    }
    let work = f64::from(times) * f64::from(groups) * read_bytes_a_group() as f64;
    Ok(Probe { launch, sums, times, work, want, what: "sums of what was read" })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Int8,
    F32,
}

fn arithmetic_probe(vulkan: &Vulkan, groups: u32, kind: Arithmetic) -> Result<Probe, BenchError> {
    let params = |rounds: u32| match kind {
        Arithmetic::Int8 => vec![rounds, kernels::FACTORS],
        Arithmetic::F32 => vec![rounds, 1f32.to_bits(), 1f32.to_bits()],
    };
    let (kernel, what) = match kind {
        Arithmetic::Int8 => (kernels::int8_dot(ANY_SUBGROUP), "sums of int8 dots"),
        Arithmetic::F32 => (kernels::f32_fma(ANY_SUBGROUP), "sums of f32 multiply-adds"),
    };
    let sums = vulkan.buffer(u64::from(groups * WORKGROUP) * 4)?;
    let mut rounds = 1;
    let mut launch = launch(vulkan, kernel, groups, std::slice::from_ref(&sums), &params(rounds))?;
    loop {
        let time = launch.run(1)?.host;
        if time >= LEAST || rounds >= MAX_ROUNDS {
            break;
        }
        rounds = longer(rounds, time).min(MAX_ROUNDS);
        launch.set_params(&params(rounds))?;
    }
    // A dot of four bytes is four multiplications and four additions.
    let (ops, want) = match kind {
        Arithmetic::Int8 => (8, kernels::dot_sums(rounds).to_vec()),
        Arithmetic::F32 => (2, (0..WORKGROUP).map(|id| kernels::f32_sum(id, rounds)).collect()),
    };
    let steps = f64::from(groups * WORKGROUP) * f64::from(CHAINS * UNROLL) * f64::from(rounds);
    Ok(Probe { launch, sums, times: 1, work: steps * f64::from(ops), want, what })
}

/// How often it takes to last as long as it should, and a little more: at most 8 times as often at once, for drivers stop what lasts too long.
fn longer(times: u32, time: Duration) -> u32 {
    let factor = 1.25 * LEAST.as_secs_f64() / time.as_secs_f64().max(1e-9);
    (f64::from(times) * factor.clamp(1.5, 8.0)).ceil() as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn stamps_count_where_the_host_saw_the_same() {
        let ms = Duration::from_millis;
        let t = |host, device: Option<u64>| Timing { host: ms(host), device: device.map(ms) };
        assert_eq!(clock(&[t(20, Some(19)), t(30, Some(30))]), Clock::Stamps);
        assert_eq!(clock(&[t(20, Some(19)), t(30, Some(14))]), Clock::Host);
        assert_eq!(clock(&[t(20, Some(21))]), Clock::Host);
        assert_eq!(clock(&[t(20, None)]), Clock::Host);
    }

    #[test]
    fn timings_get_longer_by_steps() {
        assert_eq!(longer(1, Duration::from_micros(1)), 8);
        assert_eq!(longer(100, Duration::from_millis(10)), 250);
        assert_eq!(longer(1, Duration::from_millis(19)), 2);
        assert_eq!(longer(1, Duration::ZERO), 8);
    }
}
