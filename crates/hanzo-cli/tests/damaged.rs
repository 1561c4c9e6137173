//! Weights that are NaN or infinite, in every place where they can be.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{TINY, run};
use hanzo_gguf::GgufFile;

/// The built-in model with two bytes of a tensor replaced, at a byte of it.
fn damaged(dir: &std::path::Path, tensor: &str, at: u64, with: [u8; 2]) -> String {
    let mut bytes = std::fs::read(TINY).unwrap();
    let file = GgufFile::open(TINY).unwrap();
    let start = usize::try_from(file.tensor(tensor).unwrap().offset() + at).unwrap();
    bytes[start..start + 2].copy_from_slice(&with);
    let path = dir.join("damaged.gguf");
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn weights_that_are_not_finite_are_refused_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = GgufFile::open(TINY).unwrap();
    let matrix = file.tensors().iter().find(|t| t.name() == "blk.0.ffn_down.weight").unwrap();
    let embedding = file.tensors().iter().find(|t| t.name() == "token_embd.weight").unwrap();
    let norm = file.tensors().iter().find(|t| t.name() == "blk.1.attn_norm.weight").unwrap();
    assert_eq!((matrix.ty().name(), embedding.ty().name(), norm.ty().name()), ("Q8_0", "Q8_0", "F32"));
    let last_block = embedding.n_bytes() - 34;
    for (tensor, at, with, place) in [
        (matrix, 0, [0x00, 0x7c], "row 0, column 0"),
        (matrix, matrix.row_bytes() + 34, [0xff, 0xff], "row 1, column 32"),
        (embedding, last_block, [0x01, 0xfc], "row "),
        (norm, 4 * 5 + 2, [0xc0, 0x7f], "row 0, column 5"),
    ] {
        let model = damaged(dir.path(), tensor.name(), at, with);
        for command in [&["run", &model, "Hello"][..], &["logits", &model, "--ids", "1"]] {
            let said = run(command).fails(1, &[tensor.name(), place, "NaN or infinite"]).err;
            assert_eq!(said.matches(tensor.name()).count(), 1, "said twice: {said}");
        }
        let scan = run(&["inspect", &model, "--scan"]);
        assert_eq!(scan.code, 1);
        assert!(scan.text().contains(&format!("tensor `{}`: of ", tensor.name())), "{}", scan.text());
        run(&["inspect", &model]).ok();
    }
}
