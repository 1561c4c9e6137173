//! `hanzo logits` against reference values.

mod common;

use common::{TINY, read_f32, run, shared};
use serde_json::Value;

#[allow(clippy::unwrap_used)]
fn ids(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn logits_of_a_model_are_those_of_the_reference() {
    let Some(dir) = shared("oracles/logits/qwen3") else { return };
    let oracle: Value = serde_json::from_slice(&std::fs::read(dir.join("oracle.json")).unwrap()).unwrap();
    let prompt = ids(&oracle["prompt"]);
    let greedy = ids(&oracle["greedy"]);
    let expected = read_f32(&dir.join("logits.f32"));
    let out = tempfile::tempdir().unwrap();
    for model in ["qwen3-f32.gguf", "qwen3-f16.gguf"] {
        let mut files = Vec::new();
        for chunk in ["512", "7"] {
            let file = out.path().join(format!("{model}.{chunk}.f32"));
            let (model, n) = (dir.join(model), greedy.len().to_string());
            let (model, file_name) = (model.to_str().unwrap(), file.to_str().unwrap());
            let args = [
                "logits",
                model,
                "--ids",
                &prompt.join(","),
                "--greedy",
                &n,
                "--out",
                file_name,
                "--chunk",
                chunk,
            ];
            assert_eq!(run(&args).ok().text().trim(), greedy.join(" "));
            files.push(read_f32(&file));
        }
        // The prompt's positions, and those of the greedy tokens but the last.
        let vocab = expected.len() / prompt.len();
        assert_eq!(files[0].len(), (prompt.len() + greedy.len() - 1) * vocab);
        assert_eq!(files[0], files[1], "logits depend on how the prompt is fed");
        let worst = files[0].iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max);
        assert!(worst < 2e-3, "{model}: {worst}");
    }
}

#[test]
fn impossible_requests_are_refused() {
    run(&["logits", TINY, "--ids", "99999999"]).fails(1, &["99999999"]);
    run(&["logits", TINY, "--ids", "1", "--greedy", "9999999"]).fails(1, &["context"]);
    run(&["logits", TINY, "--ids", "1", "--out", "/nonexistent/x.f32"]).fails(1, &["/nonexistent/x.f32"]);
}

#[test]
fn logits_go_to_a_file_to_standard_output_or_to_a_device() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.f32");
    let args = |out: &str| run(&["logits", TINY, "--ids", "1,2", "--greedy", "2", "--out", out]).ok();
    let to_file = args(file.to_str().unwrap());
    let to_stdout = args("-");
    assert_eq!(to_stdout.out, std::fs::read(&file).unwrap());
    assert_eq!(to_stdout.err.trim(), to_file.text().trim());
    #[cfg(unix)]
    assert_eq!(args("/dev/null").text(), to_file.text());
    // Nothing is left of a run that fails, and what was there stays.
    run(&["logits", TINY, "--ids", "1,99999999", "--out", file.to_str().unwrap()]).fails(1, &["99999999"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(to_stdout.out, std::fs::read(&file).unwrap());
}

/// What `quantize` writes, the other commands read, and it says about the same.
#[test]
fn a_quantized_model_is_near_the_original() {
    let Some(model) = shared("oracles/logits/qwen3/qwen3-f16.gguf") else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (quantized, out) = (path("q8.gguf"), path("out.f32"));
    let model = model.to_str().unwrap();
    let said = run(&["quantize", model, &quantized, "Q8_0", "--threads", "2"]).ok();
    assert!(said.text().contains("Q8_0"), "{}", said.text());
    assert_eq!(run(&["inspect", &quantized, "--json"]).ok().json()["type"], "Q8_0");
    let logits = |model: &str| {
        run(&["logits", model, "--ids", "5,17,200,31", "--out", &out]).ok();
        read_f32(out.as_ref())
    };
    let (before, after) = (logits(model), logits(&quantized));
    let sum = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v * v)).sum::<f64>();
    let error = sum(&mut before.iter().zip(&after).map(|(a, b)| a - b)) / sum(&mut before.iter().copied());
    assert!(error > 0.0 && error < 1e-3, "{error}");
}
