//! The machine's roofs: read bandwidth, int8 dots, f32 multiply-adds, of the CPU by number of threads, and of Vulkan devices ([`vulkan`]).
//!
//! The CPU's probes are `hanzo_cpu::probe`'s; here they are repeated, interleaved over thread counts, and kept raw. A roof is
//! the best that was seen: a share of it is then never flattered by a slow moment of the probe.

pub mod vulkan;

use hanzo_cpu::isa::CpuConfig;
use hanzo_cpu::pool::Pool;
use hanzo_cpu::probe::{self, Memory};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::BenchError;

/// Memory that is read: far more than caches hold.
const MEMORY_BYTES: usize = 512 << 20;

/// What was measured with some number of threads, repetition by repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Threads of the CPU; 0 for a device, which has none.
    pub threads: u64,
    /// GB/s (10⁹) of reading.
    pub read_gb_s: Vec<f64>,
    /// Gop/s of int8 dots, multiply and add counted as two; empty where there is no probe.
    pub int8_gop_s: Vec<f64>,
    /// GFLOP/s of f32 multiply-adds; empty where there is no probe.
    pub f32_gflop_s: Vec<f64>,
}

fn best(values: &[f64]) -> Option<f64> {
    values.iter().copied().filter(|x| x.is_finite() && *x > 0.0).reduce(f64::max)
}

impl Point {
    /// Best read bandwidth, GB/s.
    pub fn read(&self) -> Option<f64> {
        best(&self.read_gb_s)
    }

    /// Best int8 rate, Gop/s.
    pub fn int8(&self) -> Option<f64> {
        best(&self.int8_gop_s)
    }

    /// Best f32 rate, GFLOP/s.
    pub fn f32(&self) -> Option<f64> {
        best(&self.f32_gflop_s)
    }
}

/// Probes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Roofline(pub Vec<Point>);

impl Roofline {
    /// Probes 1 to `max_threads` threads, `repetitions` times each; `each` hears of every probe.
    ///
    /// # Errors
    /// Where memory or threads are refused.
    pub fn probe(
        config: &CpuConfig,
        max_threads: usize,
        repetitions: usize,
        each: &mut dyn FnMut(usize),
    ) -> Result<Self, BenchError> {
        let memory = Memory::new(MEMORY_BYTES)?;
        let mut points: Vec<Point> =
            (1..=max_threads as u64).map(|threads| Point { threads, ..Point::default() }).collect();
        for _ in 0..repetitions {
            for point in &mut points {
                let threads = point.threads as usize;
                // The workers of a pool sleep when idle, but only one pool at a time is certain not to disturb.
                let pool = Pool::configured(&CpuConfig { threads: Some(threads), ..*config })?;
                point.read_gb_s.push(probe::read_bandwidth(&pool, &memory)? / 1e9);
                point.int8_gop_s.extend(probe::int8_rate(&pool)?.map(|r| r / 1e9));
                point.f32_gflop_s.extend(probe::f32_rate(&pool)?.map(|r| r / 1e9));
                each(threads);
            }
        }
        Ok(Self(points))
    }

    /// Adds the probes of another moment.
    pub fn extend(&mut self, other: Roofline) {
        for point in other.0 {
            match self.0.iter_mut().find(|p| p.threads == point.threads) {
                Some(known) => {
                    known.read_gb_s.extend(point.read_gb_s);
                    known.int8_gop_s.extend(point.int8_gop_s);
                    known.f32_gflop_s.extend(point.f32_gflop_s);
                }
                None => self.0.push(point),
            }
        }
    }

    /// What was measured with that many threads.
    pub fn at(&self, threads: u64) -> Option<&Point> {
        self.0.iter().find(|p| p.threads == threads)
    }

    /// What was measured of a run's backend: of the CPU with that many threads, of a device whatever the threads beside it are.
    pub fn of(&self, backend: &str, threads: u64) -> Option<&Point> {
        self.at(if backend == "cpu" { threads } else { 0 })
    }

    /// As a sample file without cells.
    pub fn to_json(&self, device: &str) -> Value {
        json!({
            "manifest": { "engine": "hanzo", "version": env!("CARGO_PKG_VERSION"), "device": device },
            "cells": [],
            "roofline": self,
        })
    }

    /// As a table.
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "{:>7}  {:>12}  {:>14}  {:>13}\n",
            "threads", "read, GB/s", "int8, Gop/s", "f32, GFLOP/s"
        );
        for p in &self.0 {
            let show = |x: Option<f64>| x.map_or_else(|| "no probe".to_owned(), |x| format!("{x:.1}"));
            out.push_str(&format!(
                "{:7}  {:>12}  {:>14}  {:>13}\n",
                p.threads,
                show(p.read()),
                show(p.int8()),
                show(p.f32())
            ));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roofs_are_the_best_of_all_probes() {
        let point = |threads, read: &[f64]| Point { threads, read_gb_s: read.to_vec(), ..Point::default() };
        let mut roofline = Roofline(vec![point(1, &[10.0, 12.0])]);
        roofline.extend(Roofline(vec![point(1, &[13.0, f64::NAN]), point(2, &[20.0])]));
        assert_eq!(roofline.at(1).unwrap().read(), Some(13.0));
        assert_eq!(roofline.at(2).unwrap().read(), Some(20.0));
        assert_eq!(roofline.at(2).unwrap().int8(), None);
        assert!(roofline.at(3).is_none());
        assert!(roofline.to_text().contains("no probe"));
    }

    #[test]
    fn a_device_has_its_own_point() {
        let point = |threads, read: &[f64]| Point { threads, read_gb_s: read.to_vec(), ..Point::default() };
        let roofline = Roofline(vec![point(2, &[10.0]), point(0, &[900.0])]);
        assert_eq!(roofline.of("cpu", 2).unwrap().read(), Some(10.0));
        assert_eq!(roofline.of("vulkan", 2).unwrap().read(), Some(900.0));
        assert!(Roofline(vec![point(2, &[10.0])]).of("vulkan", 2).is_none());
    }
}
