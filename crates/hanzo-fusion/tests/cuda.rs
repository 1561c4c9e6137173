//! Every registered kernel's CUDA text through NVIDIA's compiler: PTX and machine code for each architecture, with registers and spills.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, unsafe_code)]

#[path = "common/doc.rs"]
mod doc;
#[path = "common/nvrtc.rs"]
mod nvrtc;
#[path = "common/tools.rs"]
mod tools;

use std::collections::HashMap;
use std::fmt::Write as _;

use hanzo_fusion::kernel::Dialect;
use nvrtc::{Nvrtc, Usage};

const ARCHITECTURES: [&str; 7] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

fn nvrtc() -> Option<Nvrtc> {
    let found = Nvrtc::open();
    if found.is_none() {
        tools::missing("HANZO_TEST_CUDA names no folder with libnvrtc (scripts/test.sh sets it)");
    }
    found
}

/// The instructions of each kernel of a PTX module, labels included.
fn bodies(ptx: &str) -> HashMap<&str, Vec<&str>> {
    let entries = ptx.split(".visible .entry ").skip(1);
    entries
        .map(|entry| {
            let name = entry.split('(').next().unwrap().trim();
            let body = entry.lines().map(str::trim).take_while(|line| *line != "}");
            (name, body.collect())
        })
        .collect()
}

/// Whether `what` stands between a label and a later branch back to it.
fn in_a_loop(body: &[&str], what: &str) -> bool {
    let labels = body.iter().enumerate().filter_map(|(at, line)| Some((at, line.strip_suffix(':')?)));
    labels.into_iter().any(|(start, label)| {
        let back = |line: &&str| line.contains("bra") && line.trim_end_matches(';').ends_with(label);
        let end = body.iter().rposition(back).unwrap_or(0);
        start < end && body[start..end].iter().any(|line| line.contains(what))
    })
}

#[test]
fn every_kernel_compiles_for_every_architecture_without_spills() {
    let Some(nvrtc) = nvrtc() else { return };
    let kernels = tools::registered(32);
    let source = tools::source(&kernels, Dialect::Cuda);
    // Kept, for who wants to read what was compiled.
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels.cu"), &source).unwrap();
    let mut table: HashMap<&str, Vec<Usage>> = HashMap::new();
    let mut faults = Vec::new();
    let compiled = tools::in_parallel(&ARCHITECTURES, |arch| {
        nvrtc.compile(&source, arch).unwrap_or_else(|log| panic!("{arch}: {log}"))
    });
    for (arch, out) in ARCHITECTURES.into_iter().zip(&compiled) {
        let bodies = bodies(&out.ptx);
        for kernel in &kernels {
            let name = kernel.name.as_str();
            let usage = out.kernels.iter().find(|u| u.name == name);
            let usage = usage.unwrap_or_else(|| panic!("{arch}: ptxas says nothing of {name}"));
            let mut holds = |what: bool, fault: &str| {
                if !what {
                    faults.push(format!("{arch}: {name} {fault}: {usage:?}"));
                }
            };
            holds(!usage.wants_registers(), "spills");
            holds(usage.shared as usize == kernel.shared_bytes(), "declares other workgroup memory");
            holds(usage.registers <= 65536 / kernel.workgroup, "does not fit a multiprocessor");
            let dots = tools::dots_in_a_loop(kernel);
            holds(!dots || in_a_loop(&bodies[name], "dp4a."), "has no dp4a in its loop");
            table.entry(name).or_default().push(usage.clone());
        }
    }
    let mut text = format!("| kernel | workgroup | shared bytes | {} |\n", ARCHITECTURES.join(" | "));
    text.push_str(&"|---".repeat(3 + ARCHITECTURES.len()));
    text.push_str("|\n");
    for kernel in &kernels {
        let usages = &table[kernel.name.as_str()];
        let registers: Vec<_> = usages.iter().map(Usage::to_string).collect();
        let (name, shared) = (&kernel.name, usages[0].shared);
        let _ = writeln!(text, "| `{name}` | {} | {shared} | {} |", kernel.workgroup, registers.join(" | "));
    }
    doc::check("cuda registers", &text);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn what_the_checks_look_for_is_found_only_where_it_is() {
    let ptx = ".visible .entry a(\n)\n{\n$L__BB0_1:\ndp4a.s32.s32 %r1, %r2, %r3, %r4;\n@%p1 bra $L__BB0_1;\nret;\n}\n\
               .visible .entry b(\n)\n{\ndp4a.s32.s32 %r1, %r2, %r3, %r4;\n$L__BB1_1:\n@%p1 bra $L__BB1_1;\n}\n";
    let bodies = bodies(ptx);
    assert!(in_a_loop(&bodies["a"], "dp4a.") && !in_a_loop(&bodies["b"], "dp4a."));
    // A kernel that must spill is seen to: 300 values that live across a loop, in 32 registers.
    let Some(nvrtc) = nvrtc() else { return };
    let source = "extern \"C\" __global__ void __launch_bounds__(1024) crowded(const float* x, float* y, int n) {\n\
                  float v[300];\n#pragma unroll\nfor (int i = 0; i < 300; ++i) v[i] = x[i];\n\
                  for (int r = 0; r < n; ++r) {\n#pragma unroll\nfor (int i = 0; i < 300; ++i) v[i] = v[i] * v[(i + 1) % 300] + x[r]; }\n\
                  #pragma unroll\nfor (int i = 0; i < 300; ++i) y[i] = v[i];\n}\n";
    let usage = &nvrtc.compile(source, "sm_90").map_err(|e| panic!("{e}")).unwrap().kernels[0];
    assert_eq!(usage.name, "crowded");
    assert!(usage.spills.iter().all(|&bytes| bytes > 0), "{usage:?}");
    let error = nvrtc.compile("extern \"C\" __global__ void broken() { nothing; }", "sm_90").err().unwrap();
    assert!(error.contains("kernels.cu(1)") && error.contains("nothing"), "{error}");
}
