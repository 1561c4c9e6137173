//! `hanzo kernels`: lists, texts, costs and plans.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{TINY, finish, hanzo, run};

#[test]
fn kernels_are_listed_with_their_costs() {
    let all = run(&["kernels"]).ok().text().to_owned();
    for part in ["kernel ", "on H100 SXM", "rms_norm ", "quantize_q8 ", "qmatvec_q4_k_x1 ", "occupied"] {
        assert!(all.contains(part), "no `{part}` in {all}");
    }
    // One of every kind of kernel; those that differ by the format are counted, and listed by format.
    for part in [
        "rows_silu_mul_quantize ",
        "qmatvec_pair_q4_k ",
        "qmatvec_experts_mxfp4 ",
        "qgemm_q4_k ",
        "qgemm_experts_q4_k ",
        "matmul_f16 ",
        "moe_route ",
        "attention_decode_f16 ",
        "attention_combine ",
        "attention_prefill_int8 ",
        "top_k_40 ",
        "by the weights' format only",
    ] {
        assert!(all.contains(part), "no `{part}` in {all}");
    }
    let some = run(&["kernels", "--format", "q6_k", "--device", "mi300x"]).ok().text().to_owned();
    assert!(some.contains("on MI300X") && some.contains("qmatvec_q6_k_x4 "), "{some}");
    assert!(some.contains("qgemm_experts_q6_k ") && !some.contains("by the weights' format only"), "{some}");
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

/// The plain variants that variables choose: in the lists, in a kernel's description, in its text and in a model's plan.
#[test]
fn variables_choose_plain_variants() {
    let with = |variable: &str, value: &str, args: &[&str]| finish(hanzo().env(variable, value).args(args));
    let usual = run(&["kernels", "qgemm_q4_k", "--target", "cuda"]).ok().text().to_owned();
    assert!(usual.contains(" qgemm_q4_k(") && usual.contains("hz_dot4"), "{usual}");
    let plain = with("HANZO_QGEMM_FALLBACK", "1", &["kernels", "qgemm_q4_k", "--target", "cuda"]).ok();
    let plain = plain.text();
    assert!(plain.contains(" qgemm_f32_q4_k(") && plain.contains("operands as f32"), "{plain}");
    let about = with("HANZO_QGEMM_TILE_FALLBACK", "1", &["kernels", "qgemm", "--format", "q4_k"]).ok();
    let about = about.text();
    assert!(about.contains("in the place of qgemm_q4_k, by HANZO_QGEMM_TILE_FALLBACK=1"), "{about}");
    let list = with("HANZO_QMATVEC_FALLBACK", "1", &["kernels", "--format", "q4_0"]).ok();
    let list = list.text();
    assert!(list.contains("qmatvec_column_q4_0_x4 ") && list.contains("(HANZO_QMATVEC_FALLBACK)"), "{list}");
    assert!(!list.contains("qmatvec_pair"), "{list}");

    let plan = run(&["kernels", "--plan", TINY]).ok().text().to_owned();
    assert!(plan.contains("attention_decode_f16, attention_combine") && plan.contains("qgemm_q"), "{plan}");
    for (variable, part) in [
        ("HANZO_QGEMM_FALLBACK", "qgemm_f32_q"),
        ("HANZO_QGEMM_TILE_FALLBACK", "qgemm_column_q"),
        ("HANZO_QMATVEC_FALLBACK", "qmatvec_column_q"),
        ("HANZO_ATTENTION_FALLBACK", "attention_decode_whole_f16"),
    ] {
        assert!(!plan.contains(part), "{plan}");
        let chosen = with(variable, "1", &["kernels", "--plan", TINY]).ok();
        assert!(chosen.text().contains(part), "{variable}: {}", chosen.text());
        assert_eq!(with(variable, "0", &["kernels", "--plan", TINY]).ok().text(), plan);
    }
    let gone = with("HANZO_ATTENTION_FALLBACK", "1", &["kernels", "attention_combine"]);
    gone.fails(2, &["`attention_combine` does not run with the variants"]);
    with("HANZO_QGEMM_FALLBACK", "yes", &["kernels"]).fails(2, &["HANZO_QGEMM_FALLBACK=yes", "1 chooses"]);
    let help = run(&["kernels", "--help"]).ok().text().to_owned();
    assert!(help.contains("HANZO_QGEMM_FALLBACK ") && help.contains("HANZO_ATTENTION_FALLBACK "), "{help}");
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
