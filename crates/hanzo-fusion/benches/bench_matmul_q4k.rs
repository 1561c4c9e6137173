//! The rungs of the GEMM beside each other on a Vulkan device: operands resident, launches one after the other, one wait at the end.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

#[path = "../harness/bench.rs"]
mod bench;
#[path = "../harness/vulkan.rs"]
mod vulkan;

use std::process::ExitCode;

use bench::{Bench, Figure, Operands, Options};
use hanzo_fusion::kernels::matmul::Rows;
use hanzo_fusion::kernels::matmul::gemm::{Factors, Gemm, Rung};
use hanzo_fusion::kernels::matmul::ladder::{LADDER, Step};
use hanzo_fusion::kernels::variants::Variants;
use vulkan::Vulkan;

const BENCH: Bench = Bench {
    name: "bench_matmul_q4k",
    about: "the rungs of the GEMM beside each other on a Vulkan device",
    options: "  --rungs A,B      of column, f32, dot4, units_f16, units_i8 [all]; ratios are to the first
  --formats A,B    weights [Q4_K]
  --m N            rows of activations [512; on a CPU under a driver 32]
  --n N            rows of weights [4096; 512]
  --k N            columns [4096; 1024]",
};

fn missing(step: &Step, vulkan: &Vulkan) -> Option<String> {
    let [bytes, halves] = vulkan.units;
    match step.rung {
        Rung::Units(Factors::Bytes) if !bytes => {
            Some("not there: the device multiplies no 16 x 16 x 16 matrices of i8 into i32".to_owned())
        }
        Rung::Units(Factors::Halves) if !halves => {
            Some("not there: the device multiplies no 16 x 16 x 16 matrices of f16 into f32".to_owned())
        }
        _ => None,
    }
}

fn run(options: &Options) -> Result<(), String> {
    let vulkan = bench::open(options)?;
    let shape = options.shape(if vulkan.software { [32, 512, 1024] } else { [512, 4096, 4096] });
    let formats = options.formats.clone().unwrap_or_else(|| vec!["Q4_K".to_owned()]);
    let steps: Vec<Step> = match &options.variants {
        None => LADDER.to_vec(),
        Some(names) => {
            let find = |name: &String| {
                LADDER.iter().find(|s| s.name == name).copied().ok_or(format!("{name} is no rung"))
            };
            names.iter().map(find).collect::<Result<_, _>>()?
        }
    };
    let mut figures = Vec::new();
    for format in formats {
        let layout = bench::layout(&format, shape[2])?;
        let operands = Operands::new(&layout, shape);
        let mut first: Option<Vec<u32>> = None;
        for step in &steps {
            let mut figure = Figure {
                format: layout.format.name.to_owned(),
                variant: step.name.to_owned(),
                seconds: Err(String::new()),
                bytes: operands.bytes,
                ops: operands.ops,
                times: 0,
                different: 0,
            };
            if let Some(why) = missing(step, &vulkan) {
                figures.push(Figure { seconds: Err(why), ..figure });
                continue;
            }
            let plan =
                Gemm { layout, rows: Rows::Dense, rung: step.rung, tile: Variants::prompt_tile(step.rung) };
            let kernel = plan.kernel(vulkan.subgroup).map_err(|e| e.to_string())?;
            let [width, height] = plan.outputs_per_workgroup();
            let grid = [(shape[1] as u32).div_ceil(width), (shape[0] as u32).div_ceil(height)];
            let (seconds, times, wrote) = operands.prepare(&vulkan, &kernel, grid).time(options.seconds);
            let reference = first.get_or_insert_with(|| wrote.clone());
            figure.different = Figure::compare(reference, &wrote);
            figures.push(Figure { seconds: Ok(seconds), times, ..figure });
        }
    }
    bench::report(&BENCH, &vulkan, shape, &figures, options.json)
}

fn main() -> ExitCode {
    bench::main(&BENCH, run)
}
