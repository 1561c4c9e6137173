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
