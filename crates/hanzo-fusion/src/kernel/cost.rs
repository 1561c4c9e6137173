//! What a launch should cost: read from the IR, weighed against a device's data sheet.
//!
//! [`count`] walks a kernel once for each invocation of a workgroup with the launch's parameters, follows integers as far as they are known, and
//! counts bytes and operations; loops count their rounds. [`Estimate::new`] divides that by what a [`DeviceSheet`] promises and names what
//! binds. Figures are expectations to compare measurements with, never measurements.

mod registers;
mod sheet;
mod walk;

use super::Kernel;

pub use registers::registers;
pub use sheet::{DEVICES, DeviceSheet};
pub use walk::{Count, count};

/// What a launch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Regime {
    /// Bytes of device memory.
    Memory,
    /// Packed dot products.
    Int8,
    /// Matrix units.
    Matrix,
    /// f32 arithmetic.
    Float,
    /// Integer arithmetic: indices, and codes taken apart.
    Integer,
    /// Nothing but itself: fewer workgroups than the device has units, or less work than a launch takes to begin.
    Latency,
}

/// Where a launch stands on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// What binds.
    pub regime: Regime,
    /// Seconds that the binding resource takes at its promised rate.
    pub seconds: f64,
    /// Workgroups that a compute unit holds at once.
    pub resident: u32,
    /// Resident invocations of those that a unit could hold, 0 to 1.
    pub occupancy: f64,
}

/// Below this a launch is over before its size matters.
const LAUNCH_SECONDS: f64 = 3e-6;

impl Estimate {
    /// For a kernel that does `count` in all of a launch of `workgroups` workgroups.
    pub fn new(kernel: &Kernel, count: &Count, workgroups: u64, device: &DeviceSheet) -> Self {
        let rates = [
            (Regime::Memory, count.dram_bytes() as f64, device.gigabytes * 1e9),
            (Regime::Int8, count.int8_ops as f64, device.int8_tops * 1e12),
            (Regime::Float, count.flops as f64, device.f32_tflops * 1e12),
            (Regime::Integer, count.integer_ops as f64, device.integer_tops() * 1e12),
        ];
        let matrix = count.matrix_f16_ops as f64 / (device.matrix_f16_tflops * 1e12)
            + count.matrix_i8_ops as f64 / (device.matrix_i8_tops * 1e12);
        let times = rates.map(|(regime, work, rate)| (regime, work / rate));
        let (mut regime, seconds) = times
            .into_iter()
            .fold((Regime::Matrix, matrix), |best, next| if next.1 > best.1 { next } else { best });
        if workgroups < u64::from(device.units) || seconds < LAUNCH_SECONDS {
            regime = Regime::Latency;
        }
        let resident = device.resident(kernel.workgroup, registers(kernel), kernel.shared_bytes() as u32);
        let occupancy = f64::from(resident * kernel.workgroup) / f64::from(device.threads);
        Self { regime, seconds, resident, occupancy }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
