//! Every registered kernel's HIP text through clang: code objects for each architecture, with registers, scratch and dot products in the loops.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "common/amdgpu.rs"]
mod amdgpu;
#[path = "common/doc.rs"]
mod doc;
#[path = "common/tools.rs"]
mod tools;

use std::collections::HashMap;
use std::fmt::Write as _;

use amdgpu::{Clang, Usage};
use hanzo_fusion::kernel::Dialect;
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernels::top_k::top_k;

/// Architectures, the lanes of their waves as kernels use them, and the dot product that must stand in the loops.
const ARCHITECTURES: [(&str, u32, &str); 4] = [
    ("gfx90a", 64, "v_dot4"),
    ("gfx942", 64, "v_dot4"),
    ("gfx1100", 32, "v_dot4_i32_iu8"),
    ("gfx1151", 32, "v_dot4_i32_iu8"),
];

fn clang() -> Option<Clang> {
    let found = Clang::find();
    if found.is_none() {
        tools::missing("there is no clang 19 with lld for AMD's targets");
    }
    found
}

#[test]
fn every_kernel_compiles_for_every_architecture_without_scratch() {
    let Some(clang) = clang() else { return };
    let mut table: HashMap<String, Vec<Option<Usage>>> = HashMap::new();
    let mut order = Vec::new();
    let mut faults = Vec::new();
    let compiled = tools::in_parallel(&ARCHITECTURES, |&(arch, width, _)| {
        let kernels = tools::registered(width);
        let out = clang.compile(&format!("kernels_{arch}"), &tools::source(&kernels, Dialect::Hip), arch);
        (kernels, out.unwrap_or_else(|log| panic!("{arch}: {log}")))
    });
    for (column, ((arch, width, dot), (kernels, out))) in ARCHITECTURES.into_iter().zip(&compiled).enumerate()
    {
        for kernel in kernels {
            let name = kernel.name.as_str();
            let usage = out.kernels.get(name).unwrap_or_else(|| panic!("{arch}: no metadata of {name}"));
            let mut holds = |what: bool, fault: &str| {
                if !what {
                    faults.push(format!("{arch}: {name} {fault}: {usage:?}"));
                }
            };
            holds(usage.scratch == 0, "needs scratch");
            holds(usage.spills == [0; 2], "spills scalar or vector registers");
            holds(usage.shared as usize == kernel.shared_bytes(), "declares other workgroup memory");
            holds(usage.wave == width, "runs in other waves");
            let dots = tools::dots_in_a_loop(kernel);
            holds(!dots || out.in_a_loop(name, dot), &format!("has no {dot} in its loop"));
            let row = table.entry(name.to_owned()).or_insert_with(|| {
                order.push(name.to_owned());
                vec![None; ARCHITECTURES.len()]
            });
            row[column] = Some(usage.clone());
        }
    }
    let heads: Vec<_> =
        ARCHITECTURES.iter().map(|(arch, width, _)| format!("{arch} (wave{width})")).collect();
    let mut text = format!("| kernel | {} |\n{}|\n", heads.join(" | "), "|---".repeat(1 + heads.len()));
    for name in order {
        let cells = table[&name].iter().map(|usage| match usage {
            Some(u) => format!("{} v, {} s", u.vector, u.scalar),
            None => String::new(),
        });
        let _ = writeln!(text, "| `{name}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    doc::check("hip registers", &text);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// How many are taken is a constant of the kernel: compilers unroll what is as long, and must not run out of registers for it.
#[test]
fn top_k_spills_for_no_number_of_logits() {
    let Some(clang) = clang() else { return };
    tools::in_parallel(&ARCHITECTURES, |&(arch, width, _)| {
        let kernels = [8, 40, 64, 256].map(|n| {
            let mut kernel = optimize(&top_k(n, width).unwrap());
            kernel.name = format!("top_k_{n}");
            kernel
        });
        let out = clang.compile(&format!("top_k_{arch}"), &tools::source(&kernels, Dialect::Hip), arch);
        let out = out.unwrap_or_else(|log| panic!("{arch}: {log}"));
        for kernel in &kernels {
            let usage = &out.kernels[&kernel.name];
            assert_eq!((usage.scratch, usage.spills), (0, [0; 2]), "{arch}: {}: {usage:?}", kernel.name);
        }
    });
}

#[test]
fn what_the_checks_look_for_is_found_only_where_it_is() {
    let Some(clang) = clang() else { return };
    let head = "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(64, 64))) void";
    let source = format!(
        "{head} loops(const int* x, int* y, int n) {{\n\
         int s = 0;\nfor (int i = 0; i < n; ++i) s = __builtin_amdgcn_sdot4(x[i], x[3 * i], s, false);\ny[0] = s;\n}}\n\
         {head} straight(const int* x, int* y, int n) {{\n\
         int s = __builtin_amdgcn_sdot4(x[0], x[1], 0, false);\nfor (int i = 0; i < n; ++i) s ^= x[s & 7];\ny[0] = s;\n}}\n\
         {head} crowded(const float* x, float* y, int n) {{\n\
         float v[64];\nfor (int i = 0; i < 64; ++i) v[i] = x[i];\n\
         for (int i = 0; i < n; ++i) v[int(x[i]) & 63] = x[i];\nfor (int i = 0; i < 64; ++i) y[i] = v[(i * n) & 63];\n}}\n"
    );
    let out = clang.compile("probe", &source, "gfx942").unwrap();
    assert!(out.in_a_loop("loops", "v_dot4") && !out.in_a_loop("straight", "v_dot4"));
    assert!(out.kernels["crowded"].scratch >= 256, "{:?}", out.kernels["crowded"]);
    let error = clang.compile("broken", &format!("{head} broken() {{ nothing; }}"), "gfx942").err().unwrap();
    assert!(error.contains("nothing"), "{error}");
}
