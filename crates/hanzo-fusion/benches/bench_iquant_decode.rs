//! The mat-vec of every i-quant on a Vulkan device: operands resident, launches one after the other, one wait at the end.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

#[path = "../harness/bench.rs"]
mod bench;
#[path = "../harness/vulkan.rs"]
mod vulkan;

use std::process::ExitCode;

use bench::{Bench, Figure, Operands, Options};
use hanzo_fusion::kernels::layout::Layout;
use hanzo_fusion::kernels::matmul::Rows;
use hanzo_fusion::kernels::matmul::gemm::{Gemm, Rung, Tile};
use hanzo_fusion::kernels::matmul::matvec::MatVec;
use hanzo_quant::QuantType;

const BENCH: Bench = Bench {
    name: "bench_iquant_decode",
    about: "the mat-vec of every i-quant on a Vulkan device",
    options:
        "  --rungs A,B      of column (one output an invocation) and matvec [both]; ratios are to the first
  --formats A,B    weights [every format whose name begins with IQ]
  --m N            rows of activations, up to 8 [1]
  --n N            rows of weights [4096; on a CPU under a driver 1024]
  --k N            columns [4096; 1024]",
};

/// Kernel and grid.
fn variant(
    name: &str,
    layout: Layout,
    [m, n]: [u32; 2],
    subgroup: u32,
) -> Result<(hanzo_fusion::kernel::Kernel, [u32; 2]), String> {
    match name {
        "matvec" => {
            let plan = MatVec { layout, pair: None, rows: Rows::Dense, batch: m.next_power_of_two() };
            let kernel = plan.kernel(subgroup).map_err(|e| e.to_string())?;
            Ok((kernel, [n.div_ceil(plan.rows_per_workgroup(subgroup)), m.div_ceil(plan.batch)]))
        }
        "column" => {
            let tile = Tile { tx: 64, ty: 1, n: 1, m: 1 };
            let plan = Gemm { layout, rows: Rows::Dense, rung: Rung::Column, tile };
            let kernel = plan.kernel(subgroup).map_err(|e| e.to_string())?;
            let [width, height] = plan.outputs_per_workgroup();
            Ok((kernel, [n.div_ceil(width), m.div_ceil(height)]))
        }
        _ => Err(format!("{name} is neither column nor matvec")),
    }
}

fn run(options: &Options) -> Result<(), String> {
    let vulkan = bench::open(options)?;
    let side = if vulkan.software { 1024 } else { 4096 };
    let shape = options.shape([1, side, side]);
    if shape[0] > 8 {
        return Err(format!("--m {}: a mat-vec takes up to 8 rows", shape[0]));
    }
    let all = || {
        let names = QuantType::ALL.iter().map(|t| t.format().name);
        names.filter(|name| name.starts_with("IQ")).map(str::to_owned).collect()
    };
    let formats: Vec<String> = options.formats.clone().unwrap_or_else(all);
    let names = options.variants.clone().unwrap_or_else(|| vec!["column".to_owned(), "matvec".to_owned()]);
    let mut figures = Vec::new();
    for format in formats {
        let layout = bench::layout(&format, shape[2])?;
        let operands = Operands::new(&layout, shape);
        let mut first: Option<Vec<u32>> = None;
        for name in &names {
            let (kernel, grid) = variant(name, layout, [shape[0] as u32, shape[1] as u32], vulkan.subgroup)?;
            let (seconds, times, wrote) = operands.prepare(&vulkan, &kernel, grid).time(options.seconds);
            let reference = first.get_or_insert_with(|| wrote.clone());
            figures.push(Figure {
                format: layout.format.name.to_owned(),
                variant: name.clone(),
                seconds: Ok(seconds),
                bytes: operands.bytes,
                ops: operands.ops,
                times,
                different: Figure::compare(reference, &wrote),
            });
        }
    }
    bench::report(&BENCH, &vulkan, shape, &figures, options.json)
}

fn main() -> ExitCode {
    bench::main(&BENCH, run)
}
