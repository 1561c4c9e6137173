//! The GEMM's matrix-unit kernels through the vendors' compilers: no spills, the units' instructions in the loops, valid SPIR-V; and the page on
//! the ladder.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, unsafe_code)]

#[path = "common/amdgpu.rs"]
mod amdgpu;
#[path = "common/doc.rs"]
mod doc;
#[path = "common/nvrtc.rs"]
mod nvrtc;
#[path = "common/tools.rs"]
mod tools;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hanzo_fusion::kernel::cost::DEVICES;
use hanzo_fusion::kernel::emit::spirv;
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernel::{Dialect, Kernel};
use hanzo_fusion::kernels::layout::Layout;
use hanzo_fusion::kernels::matmul::Rows;
use hanzo_fusion::kernels::matmul::gemm::{Factors, Gemm, Rung, Tile};
use hanzo_fusion::kernels::matmul::ladder::{choose, expected};
use hanzo_quant::QuantType;

fn layout(name: &str) -> Layout {
    Layout::of(QuantType::from_name(name).unwrap().format()).unwrap()
}

/// One sub-block a group or two, with mins and without, every way that codes are packed; the experts' twin.
fn kernels(subgroup: u32) -> Vec<Kernel> {
    let dense =
        ["Q4_K", "Q5_K", "Q6_K", "Q8_0", "Q2_K", "Q3_K", "IQ4_XS", "IQ3_S", "IQ2_XXS", "IQ1_S", "NVFP4"];
    let mut plans = Vec::new();
    for factors in [Factors::Bytes, Factors::Halves] {
        let rung = Rung::Units(factors);
        plans.extend(dense.map(|name| Gemm {
            layout: layout(name),
            rows: Rows::Dense,
            rung,
            tile: Tile::LARGE,
        }));
        let tile = Tile::for_fill_of_units(40, subgroup);
        plans.push(Gemm { layout: layout("Q4_K"), rows: Rows::Experts, rung, tile });
    }
    plans.iter().map(|plan| optimize(&plan.kernel(subgroup).unwrap())).collect()
}

fn is_bytes(kernel: &Kernel) -> bool {
    kernel.name.contains("_i8")
}

#[test]
fn cuda_compiles_them_without_spills() {
    let Some(nvrtc) = nvrtc::Nvrtc::open() else {
        return tools::missing("HANZO_TEST_CUDA names no folder with libnvrtc (scripts/test.sh sets it)");
    };
    const ARCHITECTURES: [&str; 7] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];
    let kernels = kernels(32);
    let source = tools::source(&kernels, Dialect::Cuda);
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/units.cu"), &source).unwrap();
    let mut table: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for arch in ARCHITECTURES {
        let out = nvrtc.compile(&source, arch).unwrap_or_else(|log| panic!("{arch}: {log}"));
        for part in ["row.col.f32.f16.f16.f32", "row.col.s32.s8.s8.s32"] {
            assert!(out.ptx.contains(part), "{arch}: no mma.sync {part}");
        }
        for kernel in &kernels {
            let name = kernel.name.as_str();
            let usage = out.kernels.iter().find(|u| u.name == name).unwrap();
            println!("{arch} {name}: {usage:?}");
            assert_eq!(usage.shared as usize, kernel.shared_bytes(), "{arch}: {name}");
            table.entry(name).or_default().push(usage.to_string());
            assert!(!usage.wants_registers(), "{arch}: {name} spills: {usage:?}");
        }
    }
    let mut text = format!("| kernel | {} |\n", ARCHITECTURES.join(" | "));
    text.push_str(&"|---".repeat(1 + ARCHITECTURES.len()));
    text.push_str("|\n");
    for (name, registers) in table {
        let _ = writeln!(text, "| `{name}` | {} |", registers.join(" | "));
    }
    doc::check_page("gemm.md", "cuda registers", &text);
}

#[test]
fn hip_compiles_them_without_scratch() {
    let Some(clang) = amdgpu::Clang::find() else {
        return tools::missing("there is no clang 19 with lld for AMD's targets");
    };
    let archs = [
        ("gfx90a", 64, "v_mfma_f32_16x16x16f16", "v_mfma_i32_16x16x16i8"),
        ("gfx942", 64, "v_mfma_f32_16x16x16_f16", "v_mfma_i32_16x16x32_i8"),
        ("gfx1100", 32, "v_wmma_f32_16x16x16_f16", "v_wmma_i32_16x16x16_iu8"),
        ("gfx1151", 32, "v_wmma_f32_16x16x16_f16", "v_wmma_i32_16x16x16_iu8"),
    ];
    let mut table: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (arch, width, half, byte) in archs {
        let kernels = kernels(width);
        let out = clang.compile(&format!("units_{arch}"), &tools::source(&kernels, Dialect::Hip), arch);
        let out = out.unwrap_or_else(|log| panic!("{arch}: {log}"));
        for kernel in &kernels {
            let (name, usage) = (kernel.name.as_str(), &out.kernels[&kernel.name]);
            println!("{arch} {name}: {usage:?}");
            let instruction = if is_bytes(kernel) { byte } else { half };
            assert!(out.in_a_loop(name, instruction), "{arch}: {name} has no {instruction} in its loop");
            assert_eq!((usage.scratch, usage.spills), (0, [0; 2]), "{arch}: {name} spills");
            assert_eq!(usage.shared as usize, kernel.shared_bytes(), "{arch}: {name}");
            table.entry(name.to_owned()).or_default().push(format!("{} v, {} s", usage.vector, usage.scalar));
        }
    }
    let heads = archs.map(|(arch, width, ..)| format!("{arch} (wave{width})"));
    let mut text = format!("| kernel | {} |\n{}|\n", heads.join(" | "), "|---".repeat(1 + heads.len()));
    for (name, cells) in table {
        let _ = writeln!(text, "| `{name}` | {} |", cells.join(" | "));
    }
    doc::check_page("gemm.md", "hip registers", &text);
}

#[test]
fn spirv_is_valid_with_cooperative_matrices() {
    // Debian 12's spirv-val knows no cooperative matrices; a newer one can be named.
    let validator = std::env::var_os("HANZO_TEST_SPIRV_VAL");
    if validator.is_none() {
        println!("not validated: HANZO_TEST_SPIRV_VAL names no spirv-val that knows cooperative matrices");
    }
    for subgroup in [16, 32, 64] {
        for kernel in kernels(subgroup) {
            let words = spirv::module(&kernel).unwrap_or_else(|e| panic!("{e}"));
            let Some(validator) = &validator else { continue };
            let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.spv", kernel.name));
            std::fs::write(&path, words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()).unwrap();
            let command =
                std::process::Command::new(validator).args(["--target-env", "vulkan1.3"]).arg(&path).output();
            let out = command.unwrap();
            let said = [out.stdout, out.stderr].concat();
            assert!(out.status.success(), "{}: {}", kernel.name, String::from_utf8_lossy(&said));
        }
    }
}

#[test]
fn the_page_says_which_device_takes_which_rung() {
    let layout = layout("Q4_K");
    let mut text = String::from("| device | takes |");
    let steps = expected(layout, &DEVICES[0]).unwrap();
    for e in &steps {
        let _ = write!(text, " {} |", e.step.name);
    }
    let _ = writeln!(text, "\n{}|", "|---".repeat(2 + steps.len()));
    for device in DEVICES {
        let _ = write!(
            text,
            "| {} ({}) | {} |",
            device.name,
            device.architecture,
            choose(layout, device).unwrap().0.name
        );
        for e in expected(layout, device).unwrap() {
            let cell = e.tops.map_or_else(|| "—".to_owned(), |tops| format!("{tops:.0}"));
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    doc::check_page("gemm.md", "rungs by device", &text);
}
