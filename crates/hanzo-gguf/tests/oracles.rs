//! Files that other programs wrote: ggml's own quantized models, transformers' conversions, vocabularies.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use hanzo_gguf::{GgufFile, TensorType, Value};

#[test]
fn every_oracle_file_opens_and_every_tensor_reads_alike_both_ways() {
    let Some(oracles) = common::oracles() else { return };
    let files = common::ggufs(&oracles);
    assert!(files.len() >= 60, "only {} files", files.len());
    for path in files {
        let file = GgufFile::open(&path).unwrap();
        assert!(file.metadata().required_str("general.architecture").is_ok(), "{}", path.display());
        for tensor in file.tensors() {
            let copy = file.read_tensor(tensor).unwrap();
            assert_eq!(copy.len() as u64, tensor.n_bytes());
            assert_eq!(copy, file.tensor_bytes(tensor).unwrap(), "{} {}", path.display(), tensor.name());
            assert_eq!(tensor.row_bytes() * tensor.n_rows(), tensor.n_bytes());
        }
        // The same bytes, from memory.
        let whole = GgufFile::from_bytes(std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(whole.tensors(), file.tensors());
        assert_eq!(format!("{:?}", whole.metadata()), format!("{:?}", file.metadata()));
        for tensor in whole.tensors() {
            assert_eq!(whole.tensor_bytes(tensor).unwrap(), file.tensor_bytes(tensor).unwrap());
        }
    }
}

#[test]
fn sizes_agree_with_the_manifest_of_ggml() {
    let Some(oracles) = common::oracles() else { return };
    let manifest = std::fs::read_to_string(oracles.join("dequant/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let types = manifest["types"].as_object().unwrap();
    assert!(types.len() >= 28);
    for (name, facts) in types {
        let ty = TensorType::from_id(facts["ggml_type"].as_u64().unwrap() as u32).unwrap();
        assert_eq!(ty.name(), name);
        assert_eq!(ty.block_elems(), facts["block_elems"].as_u64().unwrap(), "{name}");
        assert_eq!(ty.block_bytes(), facts["block_bytes"].as_u64().unwrap(), "{name}");
    }
}

#[test]
fn vocabularies_can_be_walked_and_looked_up() {
    let Some(oracles) = common::oracles() else { return };
    for path in common::ggufs(&oracles.join("tokenizers")) {
        let file = GgufFile::open(&path).unwrap();
        let tokens = file.metadata().required_strings("tokenizer.ggml.tokens").unwrap();
        assert!(tokens.len() > 1000);
        assert_eq!(tokens.iter().count(), tokens.len());
        for (i, token) in tokens.iter().enumerate() {
            assert_eq!(tokens.get(i), Some(token), "{} token {i}", path.display());
        }
        assert_eq!(tokens.get(tokens.len()), None);
        let types = file.metadata().required_array("tokenizer.ggml.token_type").unwrap();
        assert_eq!(types.to_i32_vec().unwrap().len(), tokens.len());
        assert!(types.to_f32_vec().is_err());
        assert!(matches!(file.metadata().get("tokenizer.ggml.tokens"), Some(Value::Array(_))));
    }
}
