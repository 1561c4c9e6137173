//! `hanzo kernels`: the GPU kernels, their text for each target, and what they should cost.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use hanzo_fusion::kernel::cost::{Count, DEVICES, DeviceSheet, Estimate, Regime, count, registers};
use hanzo_fusion::kernel::emit::{c, spirv};
use hanzo_fusion::kernel::{Dialect, Kernel, opt};
use hanzo_fusion::kernels::registry::{self, Instance};
use hanzo_fusion::plan::{Plan, PlanOptions};

use crate::failure::usage;
use crate::{model, out};

/// List the GPU kernels, print them for a target, and say what they should cost
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo kernels                                       all kernels, with what a launch moves and what should bind it
  hanzo kernels --format q4_k --device \"RTX 4090\"     those that read Q4_K weights, on another device
  hanzo kernels rms_norm                              one kernel: its order, its costs on every device
  hanzo kernels qmatvec_q4_k_x1 --target cuda         its CUDA C++; also: hip, metal, spirv, ir
  hanzo kernels --plan model.gguf                     the fused plan of a model, one line a launch

Costs are read from the kernel and from data sheets: what to expect, not what was measured. Launches have the shapes of an 8-billion-parameter
model. A ~ stands before figures that depend on what is in a buffer.")]
pub(crate) struct Args {
    /// A kernel, or a family of kernels; all if left out
    name: Option<String>,
    /// Print the kernel in this language
    #[arg(long, value_enum, requires = "name")]
    target: Option<Target>,
    /// Only kernels that read weights of this format
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// The device that costs are for
    #[arg(long, value_name = "NAME", default_value = DEVICES[0].name)]
    device: String,
    /// Print the fused plan of a model instead: a GGUF file, or the name of one on this machine
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["name", "format", "target"])]
    plan: Option<String>,
}

/// A language that kernels are printed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// CUDA C++
    Cuda,
    /// HIP C++
    Hip,
    /// Metal Shading Language
    Metal,
    /// SPIR-V, disassembled
    Spirv,
    /// The kernel language's own form, optimized
    Ir,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(spec) = &args.plan {
        let loaded = hanzo_models::load(&model::require(spec)?.open()?)?;
        let plan = Plan::new(&loaded.graph, PlanOptions::default()).context("the graph has no plan")?;
        return out::print(&plan.text());
    }
    let device = find_device(&args.device)?;
    let chosen = choose(args, device.subgroup)?;
    match (args.target, &args.name) {
        (Some(target), _) => chosen.into_iter().try_for_each(|i| out::print(&text(i, target)?)),
        (None, Some(_)) => chosen.into_iter().try_for_each(|i| out::print(&describe(i)?)),
        (None, None) => out::print(&list(chosen, device)?),
    }
}

fn find_device(name: &str) -> Result<&'static DeviceSheet> {
    DEVICES.iter().find(|d| d.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known: Vec<_> = DEVICES.iter().map(|d| d.name).collect();
        usage(format!("--device: there is no sheet of `{name}`; there are {}", known.join(", ")))
    })
}

/// The instances that were asked for, for subgroups of that width.
fn choose(args: &Args, subgroup: u32) -> Result<Vec<Instance>> {
    let format = |i: &Instance| {
        args.format.as_deref().is_none_or(|f| i.format.is_some_and(|has| has.name.eq_ignore_ascii_case(f)))
    };
    let named = |family: &str, i: &Instance| args.name.as_deref().is_none_or(|n| n == family || n == i.name);
    let all = || registry::instances(subgroup);
    if let Some(wanted) = &args.format
        && !all().any(|(_, i)| format(&i))
    {
        let mut known: Vec<_> = all().filter_map(|(_, i)| i.format.map(|f| f.name)).collect();
        known.dedup();
        return Err(usage(format!(
            "--format: no kernel reads `{wanted}`; kernels read {}",
            known.join(", ")
        )));
    }
    if let Some(name) = &args.name
        && !all().any(|(family, i)| named(family.name, &i))
    {
        let families: Vec<_> = registry::FAMILIES.iter().map(|f| f.name).collect();
        return Err(usage(format!(
            "there is no kernel `{name}`; `hanzo kernels` lists them all, of the families {}",
            families.join(", ")
        )));
    }
    let chosen: Vec<_> =
        all().filter(|(family, i)| named(family.name, i) && format(i)).map(|(_, i)| i).collect();
    if chosen.is_empty() {
        return Err(usage("no kernel has both this name and this format"));
    }
    Ok(chosen)
}

/// The optimized kernel under its instance's name.
fn build(instance: Instance) -> Result<(Kernel, Instance)> {
    let mut kernel = opt::optimize(instance.kernel.as_ref().map_err(Clone::clone)?);
    kernel.name.clone_from(&instance.name);
    Ok((kernel, instance))
}

fn text(instance: Instance, target: Target) -> Result<String> {
    let (kernel, _) = build(instance)?;
    Ok(match target {
        Target::Cuda => c::source(&kernel, Dialect::Cuda),
        Target::Hip => c::source(&kernel, Dialect::Hip),
        Target::Metal => c::source(&kernel, Dialect::Metal),
        Target::Spirv => spirv::text(&kernel)?,
        Target::Ir => kernel.to_string(),
    })
}

fn counted(kernel: &Kernel, instance: &Instance) -> Count {
    let launch = &instance.launch;
    count(kernel, launch.grid, &launch.bits(kernel), &launch.reads)
}

fn estimate(kernel: &Kernel, instance: &Instance, count: &Count, device: &DeviceSheet) -> String {
    let workgroups = instance.launch.grid.iter().map(|&n| u64::from(n)).product();
    let e = Estimate::new(kernel, count, workgroups, device);
    let regime = match e.regime {
        Regime::Memory => "memory",
        Regime::Int8 => "int8 dots",
        Regime::Matrix => "matrix units",
        Regime::Float => "f32",
        Regime::Integer => "integers",
        Regime::Latency => "latency",
    };
    let occupied = 100.0 * e.occupancy;
    format!("{regime}, {:.1} µs, {occupied:.0} % occupied", e.seconds * 1e6)
}

/// A count as people read it: three digits and a power of a thousand.
fn short(n: u64) -> String {
    let units = ["", " k", " M", " G", " T"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { n.to_string() } else { format!("{value:.1}{}", units[unit]) }
}

fn list(instances: Vec<Instance>, device: &DeviceSheet) -> Result<String> {
    let mut lines = format!(
        "{:<24} {:>9} {:>7} {:>9} {:>9} {:>9}  on {}\n",
        "kernel", "workgroup", "shared", "registers", "bytes", "int8 ops", device.name
    );
    for instance in instances {
        let (kernel, instance) = build(instance)?;
        let count = counted(&kernel, &instance);
        let about = if count.exact { "" } else { "~" };
        let _ = writeln!(
            lines,
            "{:<24} {:>9} {:>7} {:>9} {:>9} {:>9}  {about}{}",
            instance.name,
            kernel.workgroup,
            kernel.shared_bytes(),
            registers(&kernel),
            short(count.dram_bytes()),
            short(count.int8_ops),
            estimate(&kernel, &instance, &count, device)
        );
    }
    Ok(lines)
}

fn describe(instance: Instance) -> Result<String> {
    let (kernel, instance) = build(instance)?;
    let count = counted(&kernel, &instance);
    let mut text = format!("{}\n  {}\n", instance.name, kernel.doc);
    let [x, y, z] = instance.launch.grid;
    let _ = writeln!(
        text,
        "  launch      {}: {x} × {y} × {z} workgroups of {}",
        instance.launch.shape, kernel.workgroup
    );
    let about = if count.exact { "" } else { "~" };
    for (label, n) in [
        ("bytes", count.dram_bytes()),
        ("asked for", count.requested.iter().sum()),
        ("workgroup", count.shared_bytes),
        ("int8 ops", count.int8_ops),
        ("f32 ops", count.flops),
        ("integer ops", count.integer_ops),
        ("matrix ops", count.matrix_f16_ops + count.matrix_i8_ops),
    ] {
        if n > 0 {
            let _ = writeln!(text, "  {label:<11} {about}{}", short(n));
        }
    }
    let _ = writeln!(
        text,
        "  registers   {}, estimated; {} bytes of workgroup memory",
        registers(&kernel),
        kernel.shared_bytes()
    );
    for device in DEVICES.iter().filter(|d| d.subgroup == kernel.subgroup) {
        let _ = writeln!(text, "  {:<11} {}", device.name, estimate(&kernel, &instance, &count, device));
    }
    Ok(text)
}
