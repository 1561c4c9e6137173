//! `hanzo kernels`: the GPU kernels, their text for each target, and what they should cost.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use hanzo_fusion::kernel::cost::{Count, DEVICES, DeviceSheet, Estimate, Regime, count, registers};
use hanzo_fusion::kernel::emit::{c, spirv};
use hanzo_fusion::kernel::{Dialect, Kernel, opt};
use hanzo_fusion::kernels::registry::{self, Family, Instance};
use hanzo_fusion::kernels::select;
use hanzo_fusion::kernels::variants::Variants;
use hanzo_fusion::plan::{Plan, PlanOptions};
use hanzo_fusion::step::KvType;

use crate::failure::usage;
use crate::{environment, model, out};

/// List the GPU kernels, print them for a target, and say what they should cost
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
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

fn after_help() -> String {
    let examples = "Examples:
  hanzo kernels                                       all kernels, with what a launch moves and what should bind it
  hanzo kernels --format q4_k --device \"RTX 4090\"     those that read Q4_K weights, on another device
  hanzo kernels rms_norm                              one kernel: its order, its costs on every device
  hanzo kernels qmatvec_q4_k_x1 --target cuda         its CUDA C++; also: hip, metal, spirv, ir
  hanzo kernels --plan model.gguf                     the fused plan of a model: launches, and the kernels of each

Costs are read from the kernel and from data sheets: what to expect, not what was measured. Launches have the shapes of an 8-billion-parameter
model. A ~ stands before figures that depend on what is in a buffer. Without --format, the list has of kernels that differ by the format
only some that stand for the others.

Variables choose plain variants of kernels, which stand where the usual ones would:
";
    format!("{examples}{}", environment::help(|name| name.ends_with("_FALLBACK")))
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
    let variants = environment::variants()?;
    if let Some(spec) = &args.plan {
        let loaded = hanzo_models::load(&model::require(spec)?.open()?)?;
        let plan = Plan::new(&loaded.graph, PlanOptions::default()).context("the graph has no plan")?;
        return out::print(&plan_text(&plan, variants));
    }
    let device = find_device(&args.device)?;
    let chosen = choose(args, device.subgroup, variants)?;
    match (args.target, &args.name) {
        (Some(target), _) => chosen.into_iter().try_for_each(|i| out::print(&text(i, target)?)),
        (None, Some(_)) => chosen.into_iter().try_for_each(|i| out::print(&describe(i)?)),
        (None, None) => out::print(&list(chosen, args.format.is_none(), device)?),
    }
}

/// The launches of a plan, and below each its kernels, for few rows and for many.
fn plan_text(plan: &Plan, variants: Variants) -> String {
    let mut text = String::new();
    let mut lines = plan.text().lines().map(str::to_owned).collect::<Vec<_>>().into_iter();
    for (launch, line) in plan.launches.iter().zip(lines.by_ref()) {
        let chosen = select::kernels(plan, launch, KvType::F16, variants);
        let (few, many) = (chosen.few.join(", "), chosen.many.join(", "));
        let _ = writeln!(text, "{line}");
        if few == many {
            let _ = writeln!(text, "       kernels {few}");
        } else {
            let _ = writeln!(text, "       kernels of few rows {few}\n       kernels of many  {many}");
        }
    }
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn find_device(name: &str) -> Result<&'static DeviceSheet> {
    DEVICES.iter().find(|d| d.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known: Vec<_> = DEVICES.iter().map(|d| d.name).collect();
        usage(format!("--device: there is no sheet of `{name}`; there are {}", known.join(", ")))
    })
}

/// The instances that were asked for, for subgroups of that width.
fn choose(args: &Args, subgroup: u32, variants: Variants) -> Result<Vec<Instance>> {
    let format = |i: &Instance| {
        args.format.as_deref().is_none_or(|f| i.format.is_some_and(|has| has.name.eq_ignore_ascii_case(f)))
    };
    let named = |family: &Family, i: &Instance| {
        args.name.as_deref().is_none_or(|n| n == family.name || i.is_called(n))
    };
    let all: Vec<_> = registry::instances_with(subgroup, variants).collect();
    if let Some(wanted) = &args.format
        && !all.iter().any(|(_, i)| format(i))
    {
        let mut known: Vec<_> = all.iter().filter_map(|(_, i)| i.format.map(|f| f.name)).collect();
        let mut seen = std::collections::HashSet::new();
        known.retain(|name| seen.insert(*name));
        return Err(usage(format!(
            "--format: no kernel reads `{wanted}`; kernels read {}",
            known.join(", ")
        )));
    }
    if let Some(name) = &args.name
        && !all.iter().any(|(family, i)| named(family, i))
    {
        return Err(no_kernel(name, variants));
    }
    let chosen: Vec<_> =
        all.into_iter().filter(|(family, i)| named(family, i) && format(i)).map(|(_, i)| i).collect();
    if chosen.is_empty() {
        return Err(usage("no kernel has both this name and this format"));
    }
    Ok(chosen)
}

/// There is no kernel of that name, or a variant does without it.
fn no_kernel(name: &str, variants: Variants) -> anyhow::Error {
    let families: Vec<_> = registry::FAMILIES.iter().map(|f| f.name).collect();
    let usual = families.contains(&name) || registry::instances(32).any(|(_, i)| i.is_called(name));
    if variants != Variants::default() && usual {
        return usage(format!("`{name}` does not run with the variants that the environment chooses"));
    }
    usage(format!(
        "there is no kernel `{name}`; `hanzo kernels` lists them all, of the families {}",
        families.join(", ")
    ))
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
    let occupied = match e.resident {
        0 => "more registers or workgroup memory than a unit has".to_owned(),
        _ => format!("{:.0} % occupied", 100.0 * e.occupancy),
    };
    format!("{regime}, {:.1} µs, {occupied}", e.seconds * 1e6)
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

/// The list; a short one has of those that differ by the format only those that stand for others.
fn list(instances: Vec<Instance>, short_list: bool, device: &DeviceSheet) -> Result<String> {
    let left_out = instances.iter().filter(|i| short_list && !i.representative).count();
    let mut lines = format!(
        "{:<36} {:>9} {:>7} {:>9} {:>9} {:>9}  on {}\n",
        "kernel", "workgroup", "shared", "registers", "bytes", "int8 ops", device.name
    );
    for instance in instances.into_iter().filter(|i| !short_list || i.representative) {
        let (kernel, instance) = build(instance)?;
        let count = counted(&kernel, &instance);
        let about = if count.exact { "" } else { "~" };
        let variant = instance.stand_in.as_ref().map_or_else(String::new, |s| format!(" ({})", s.variable));
        let _ = writeln!(
            lines,
            "{:<36} {:>9} {:>7} {:>9} {:>9} {:>9}  {about}{}{variant}",
            instance.name,
            kernel.workgroup,
            kernel.shared_bytes(),
            registers(&kernel),
            short(count.dram_bytes()),
            short(count.int8_ops),
            estimate(&kernel, &instance, &count, device)
        );
    }
    if left_out > 0 {
        let _ = writeln!(
            lines,
            "and {left_out} that differ from these by the weights' format only: --format lists a format's"
        );
    }
    Ok(lines)
}

fn describe(instance: Instance) -> Result<String> {
    let (kernel, instance) = build(instance)?;
    let count = counted(&kernel, &instance);
    let mut text = format!("{}\n  {}\n", instance.name, kernel.doc);
    if let Some(s) = &instance.stand_in {
        let _ = writeln!(text, "  variant     in the place of {}, by {}=1", s.usual, s.variable);
    }
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
