//! `--lora` and `hanzo inspect` of adapters, with the built-in model.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::path::{Path, PathBuf};

use common::{TINY, run};
use hanzo_gguf::{GgufFile, GgufWriter, TensorType};

/// An adapter of the built-in model whose numbers are all the same.
fn adapter(folder: &Path, architecture: &str) -> PathBuf {
    let model = GgufFile::open(TINY).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in
        [("general.type", "adapter"), ("general.architecture", architecture), ("adapter.type", "lora")]
    {
        writer.set(key, value).unwrap();
    }
    writer.set("adapter.lora.alpha", 4f32).unwrap();
    let mut data = Vec::new();
    for info in model.tensors().iter().filter(|t| t.name().ends_with("attn_v.weight")) {
        for (half, dims) in [("a", [info.dims()[0], 2]), ("b", [2, info.dims()[1]])] {
            writer.tensor(&format!("{}.lora_{half}", info.name()), TensorType::F32, &dims).unwrap();
            let values = (0..dims[0] * dims[1]).map(|i| (i % 7) as f32 * 0.1 - 0.3);
            data.push(values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>());
        }
    }
    let path = folder.join(format!("{architecture}=lora.gguf"));
    std::fs::write(&path, writer.to_bytes(&data).unwrap()).unwrap();
    path
}

#[test]
fn adapters_on_the_command_line() {
    let temp = tempfile::tempdir().unwrap();
    let path = adapter(temp.path(), "qwen3");
    let path = path.to_str().unwrap();
    let reply = |lora: &[String]| {
        let mut args = vec!["run", "Once upon a time", "--temp", "0", "-n", "24"];
        lora.iter().for_each(|l| args.extend(["--lora", l]));
        run(&args).ok()
    };
    let plain = reply(&[]);
    let adapted = reply(&[path.to_owned()]);
    assert_ne!(plain.text(), adapted.text());
    assert!(adapted.err.contains("rank 2"), "{}", adapted.err);
    assert_eq!(reply(&[format!("{path}=1")]).text(), adapted.text());
    assert_eq!(reply(&[format!("{path}=0")]).text(), plain.text(), "a scale of 0 changes nothing");

    let llama = adapter(temp.path(), "llama");
    let bad = |lora: &str| run(&["run", "Hello", "--lora", lora]);
    bad(llama.to_str().unwrap()).fails(1, &["for architecture `llama`, the model is `qwen3`"]);
    bad(TINY).fails(1, &["is no LoRA adapter"]);
    bad("nowhere.gguf").fails(1, &["nowhere.gguf"]);
    bad(&format!("{path}=x")).fails(2, &["is no scale"]);
    run(&["run", "Hello", "--lora", path, "--lora", path]).fails(1, &["is loaded already"]);

    let text = run(&["inspect", path, "--tensors"]).ok();
    for part in ["LoRA adapter in GGUF form for qwen3", "rank 2 at most", "blk.0.attn_v.weight", "scale 2"] {
        assert!(text.text().contains(part), "no `{part}` in {}", text.text());
    }
    let json = run(&["inspect", path, "--json"]).ok().json();
    assert_eq!(
        (&json["type"], &json["max_rank"], &json["architecture"]),
        (&"adapter".into(), &2.into(), &"qwen3".into())
    );
    run(&["inspect", path, "--scan"]).fails(2, &["--scan"]);
    run(&["inspect", temp.path().to_str().unwrap()]).fails(1, &["adapter_config.json"]);
}
