//! Which device takes which rung of the GEMM, and why.
//!
//! Every rung gives the same bits, so this is about speed alone. What a rung does for a long prompt is counted from its own kernel, and each kind of
//! work divided by what the device's sheet promises for it; the times are summed, as if nothing overlapped. The fastest rung that the
//! device's units can run is taken, but a higher one only for a tenth more: less is simpler. These are expectations until a device is measured,
//! and `bench_matmul_q4k` is there to do that.

use hanzo_quant::canonical::GROUP;

use super::super::layout::Layout;
use super::super::variants::Variants;
use super::Rows;
use super::gemm::{Factors, Gemm, Rung};
use crate::kernel::KernelError;
use crate::kernel::cost::{Count, DeviceSheet, count};
use crate::kernel::opt::optimize;

/// A rung and what it takes.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The rung.
    pub rung: Rung,
    /// As benches and tables call it.
    pub name: &'static str,
    /// What it asks of a device, in words.
    pub asks: &'static str,
}

/// The ladder, from below.
pub const LADDER: [Step; 5] = [
    Step {
        rung: Rung::Column,
        name: "column",
        asks: "nothing: one output an invocation, operands from memory each time",
    },
    Step { rung: Rung::F32, name: "f32", asks: "workgroup memory; products and sums are f32's" },
    Step { rung: Rung::Dot4, name: "dot4", asks: "workgroup memory and a packed dot product of bytes" },
    Step {
        rung: Rung::Units(Factors::Halves),
        name: "units_f16",
        asks: "matrix units of f16 into f32, subgroups of 16 lanes or more",
    },
    Step {
        rung: Rung::Units(Factors::Bytes),
        name: "units_i8",
        asks: "matrix units of i8 into i32, subgroups of 16 lanes or more",
    },
];

/// What a device's matrix units multiply, by the architecture that its kernels are compiled for.
pub fn units_of(architecture: &str) -> &'static [Factors] {
    const BOTH: &[Factors] = &[Factors::Halves, Factors::Bytes];
    match architecture {
        // Turing's are the first that take bytes.
        a if a.strip_prefix("sm_").and_then(|n| n.parse().ok()).is_some_and(|n: u32| n >= 75) => BOTH,
        // CDNA's mfma and RDNA 3's wmma.
        "gfx908" | "gfx90a" | "gfx940" | "gfx941" | "gfx942" => BOTH,
        a if a.len() == 7 && a.starts_with("gfx11") => BOTH,
        // Metal has simdgroup matrices of halves and floats only.
        a if a.strip_prefix("apple").and_then(|n| n.parse().ok()).is_some_and(|n: u32| n >= 7) => {
            &[Factors::Halves]
        }
        _ => &[],
    }
}

/// A rung on a device.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Which.
    pub step: Step,
    /// 10¹² operations a second, a multiply-add two; `None` where the device cannot run it.
    pub tops: Option<f64>,
}

/// Side of the square that rungs are weighed by.
const SIDE: u32 = 4096;
/// Rows of the prompt.
const ROWS: u32 = 512;

/// What each rung should reach on `device`, for `layout`'s weights of 4096 × 4096 and a prompt of 512; in the order of [`LADDER`].
///
/// # Errors
/// None that the kernels' own tests do not find.
pub fn expected(layout: Layout, device: &DeviceSheet) -> Result<Vec<Expected>, KernelError> {
    let one = |step: Step| {
        let runs = match step.rung {
            Rung::Units(factors) => units_of(device.architecture).contains(&factors) && device.subgroup >= 16,
            _ => true,
        };
        let tops = if runs {
            let seconds = seconds(&counted(layout, step.rung, device.subgroup)?, device);
            Some(2.0 * f64::from(SIDE) * f64::from(SIDE) * f64::from(ROWS) / seconds / 1e12)
        } else {
            None
        };
        Ok(Expected { step, tops })
    };
    LADDER.into_iter().map(one).collect()
}

/// The rung that `device` takes for `layout`, and the reason in words.
///
/// # Errors
/// As [`expected`].
pub fn choose(layout: Layout, device: &DeviceSheet) -> Result<(Step, String), KernelError> {
    let all = expected(layout, device)?;
    let reach = |e: &Expected| e.tops.unwrap_or(0.0);
    let best =
        all.iter().copied().reduce(|best, next| if reach(&next) > 1.1 * reach(&best) { next } else { best });
    let Some(best) = best else { return Ok((LADDER[0], LADDER[0].asks.to_owned())) };
    let others: Vec<_> = all
        .iter()
        .filter(|e| e.step.rung != best.step.rung)
        .map(|e| match e.tops {
            Some(tops) => format!("{} {tops:.0}", e.step.name),
            None => format!("{} not there", e.step.name),
        })
        .collect();
    let reason = format!("{:.0} of 10¹² a second expected; {}", reach(&best), others.join(", "));
    Ok((best.step, reason))
}

/// What the rung's kernel does for the whole of it.
fn counted(layout: Layout, rung: Rung, subgroup: u32) -> Result<Count, KernelError> {
    let plan = Gemm { layout, rows: Rows::Dense, rung, tile: Variants::prompt_tile(rung) };
    let [width, height] = plan.outputs_per_workgroup();
    let kernel = optimize(&plan.kernel(subgroup)?);
    let named = [("n_groups", SIDE / GROUP as u32), ("n_out", SIDE), ("n_rows", ROWS)];
    let bits = |name: &str| named.iter().find(|(n, _)| *n == name).map_or(0, |(_, bits)| *bits);
    let params: Vec<_> = kernel.params.iter().map(|p| bits(&p.name)).collect();
    Ok(count(&kernel, [SIDE.div_ceil(width), ROWS.div_ceil(height), 1], &params, &[]))
}

/// The sum of the times of all kinds of work.
fn seconds(count: &Count, device: &DeviceSheet) -> f64 {
    // A rung without tiles asks for the same bytes again and again; caches serve what memory does not, at a rate that no sheet has. It is taken to
    // be workgroup memory's.
    let asked: u64 = count.requested.iter().sum();
    [
        (count.dram_bytes() as f64, device.gigabytes * 1e9),
        (
            (asked.saturating_sub(count.dram_bytes()) + count.shared_bytes) as f64,
            device.shared_bytes_a_second(),
        ),
        (count.int8_ops as f64, device.int8_tops * 1e12),
        (count.flops as f64, device.f32_tflops * 1e12),
        (count.integer_ops as f64, device.integer_tops() * 1e12),
        (count.matrix_f16_ops as f64, device.matrix_f16_tflops * 1e12),
        (count.matrix_i8_ops as f64, device.matrix_i8_tops * 1e12),
    ]
    .into_iter()
    .map(|(work, rate)| work / rate)
    .sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use hanzo_quant::QuantType;

    use super::*;
    use crate::kernel::cost::DEVICES;

    fn layout(name: &str) -> Layout {
        Layout::of(QuantType::from_name(name).unwrap().format()).unwrap()
    }

    #[test]
    fn each_device_takes_its_rung() {
        let chosen = |name: &str| -> Vec<_> {
            let one = |d: &DeviceSheet| {
                let (step, reason) = choose(layout(name), d).unwrap();
                assert!(reason.contains("expected"), "{reason}");
                (d.name, step.name)
            };
            DEVICES.iter().map(one).collect()
        };
        let want = [
            ("H100 SXM", "units_i8"),
            ("H200", "units_i8"),
            ("RTX 4090", "units_i8"),
            ("MI300X", "units_i8"),
            ("RX 7900 XTX", "units_i8"),
            ("Strix Halo", "units_i8"),
            ("M3 Max", "units_f16"),
        ];
        assert_eq!(chosen("Q4_K"), want);
        assert_eq!(chosen("Q6_K"), want);
    }

    #[test]
    fn a_device_without_units_takes_packed_dots_and_one_without_those_f32() {
        let with = |architecture, int8_tops| {
            let device = DeviceSheet { architecture, int8_tops, ..DEVICES[4] };
            let all = expected(layout("Q4_K"), &device).unwrap();
            let missing = all.iter().filter(|e| e.tops.is_none()).map(|e| e.step.name);
            (choose(layout("Q4_K"), &device).unwrap().0.name, missing.collect::<Vec<_>>())
        };
        let none = vec!["units_f16", "units_i8"];
        assert_eq!(with("gfx1030", 123.0), ("dot4", none.clone()));
        assert_eq!(with("gfx1030", 10.0), ("f32", none));
        assert_eq!(with("gfx1100", 123.0).1, [""; 0]);
    }

    #[test]
    fn architectures_have_the_units_that_the_preludes_know() {
        for none in ["sm_61", "sm_70", "gfx906", "gfx1030", "gfx1100x", "apple6", ""] {
            assert!(units_of(none).is_empty(), "{none}");
        }
        for both in ["sm_75", "sm_80", "sm_120", "gfx90a", "gfx942", "gfx1100", "gfx1151"] {
            assert_eq!(units_of(both), [Factors::Halves, Factors::Bytes], "{both}");
        }
        assert_eq!(units_of("apple9"), [Factors::Halves]);
    }
}
