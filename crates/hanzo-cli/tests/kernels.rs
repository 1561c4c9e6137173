//! `hanzo kernels`: lists, texts, costs and plans.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{TINY, run};

#[test]
fn kernels_are_listed_with_their_costs() {
    let all = run(&["kernels"]).ok().text().to_owned();
    for part in ["kernel ", "on H100 SXM", "rms_norm ", "quantize_q8 ", "qmatvec_q4_k_x1 ", "occupied"] {
        assert!(all.contains(part), "no `{part}` in {all}");
    }
    let some = run(&["kernels", "--format", "q6_k", "--device", "mi300x"]).ok().text().to_owned();
    assert!(some.contains("on MI300X") && some.contains("qmatvec_q6_k_x4 "), "{some}");
    assert!(!some.contains("q4_k") && !some.contains("rms_norm"), "{some}");
}

#[test]
fn a_kernel_is_described_on_every_device_of_its_width() {
    let text = run(&["kernels", "qmatvec_q4_k_x1"]).ok().text().to_owned();
    // 4096 · 4096 weights of Q4_K as they are packed, and a row of activations and results; two dot products a word.
    for part in [
        "Order: the canonical one",
        "4096 × 4096",
        "bytes       9.7 M",
        "int8 ops    37.7 M",
        "RTX 4090",
        "Strix Halo",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    // A family is all of its kernels.
    let family = run(&["kernels", "qmatvec", "--format", "q8_0"]).ok().text().to_owned();
    assert!(family.contains("qmatvec_q8_0_x1\n") && family.contains("qmatvec_q8_0_x4\n"), "{family}");
}

#[test]
fn kernels_are_printed_for_every_target() {
    for (target, part) in [
        ("cuda", "__launch_bounds__"),
        ("hip", "amdgpu_flat_work_group_size"),
        ("metal", "[[buffer(0)]]"),
        ("spirv", "OpEntryPoint GLCompute"),
        ("ir", "kernel rms_norm [8 × 32]"),
    ] {
        let text = run(&["kernels", "rms_norm", "--target", target]).ok().text().to_owned();
        assert!(text.contains(part), "{target}: no `{part}` in {text}");
    }
}

#[test]
fn the_plan_of_a_model_is_printed() {
    let text = run(&["kernels", "--plan", TINY]).ok().text().to_owned();
    assert!(text.contains("attention") && text.lines().count() > 5, "{text}");
}

#[test]
fn what_is_not_there_is_named() {
    run(&["kernels", "softmax"]).fails(2, &["no kernel `softmax`", "qmatvec"]);
    run(&["kernels", "--format", "q9_z"]).fails(2, &["no kernel reads `q9_z`", "Q4_K"]);
    run(&["kernels", "rms_norm", "--format", "q4_k"]).fails(2, &["both this name and this format"]);
    run(&["kernels", "--device", "abacus"]).fails(2, &["no sheet of `abacus`", "RX 7900 XTX"]);
    run(&["kernels", "--target", "cuda"]).fails(2, &["NAME"]);
    run(&["kernels", "--plan", "/nonexistent.gguf"]).fails(1, &["nonexistent"]);
}
