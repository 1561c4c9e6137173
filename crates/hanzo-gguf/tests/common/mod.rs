//! What the integration tests share: where the oracles are, and a plain builder of GGUF bytes, right or wrong.
#![allow(
    dead_code,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "each test uses a part of this; a skipped test says so"
)]

use std::path::{Path, PathBuf};

/// The folder of oracles, or `None` (with a line saying so) where it is absent and not required.
pub(crate) fn oracles() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracles");
    if folder.is_dir() {
        return Some(folder);
    }
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is absent", folder.display());
    eprintln!("skipped: {} is absent", folder.display());
    None
}

/// All files under `folder` that end in `.gguf`.
pub(crate) fn ggufs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "gguf" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// A GGUF file put together byte by byte, with nothing checked: the reader's own writer would refuse most of what
/// the tests need.
#[derive(Clone)]
pub(crate) struct Raw {
    pub(crate) magic: [u8; 4],
    pub(crate) version: [u8; 4],
    /// Instead of the real number.
    pub(crate) n_tensors: Option<u64>,
    pub(crate) n_keys: Option<u64>,
    pub(crate) align: usize,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) data: Vec<u8>,
}

pub(crate) fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

/// The head of an array, then whatever is to follow.
pub(crate) fn array(element: u32, len: u64, rest: &[u8]) -> Vec<u8> {
    [&element.to_le_bytes()[..], &len.to_le_bytes(), rest].concat()
}

impl Raw {
    pub(crate) fn new() -> Self {
        Raw {
            magic: *b"GGUF",
            version: 3u32.to_le_bytes(),
            n_tensors: None,
            n_keys: None,
            align: 32,
            keys: Vec::new(),
            tensors: Vec::new(),
            data: Vec::new(),
        }
    }

    /// A small good file: six keys of various kinds, two tensors.
    pub(crate) fn good() -> Self {
        Raw::new()
            .key("general.architecture", 8, &string("llama"))
            .key("llama.block_count", 4, &2u32.to_le_bytes())
            .key("llama.rope.freq_base", 6, &1e4f32.to_le_bytes())
            .key("tokenizer.ggml.add_bos_token", 7, &[1])
            .key("tokenizer.ggml.tokens", 9, &array(8, 2, &[string("a"), string("bc")].concat()))
            .key("tokenizer.ggml.token_type", 9, &array(5, 2, &[1, 0, 0, 0, 2, 0, 0, 0]))
            .tensor("token_embd.weight", &[32, 2], 8, 0)
            .tensor("output_norm.weight", &[4], 0, 96)
            .data(96 + 16)
    }

    pub(crate) fn key(self, key: impl AsRef<[u8]>, ty: u32, value: &[u8]) -> Self {
        self.raw_key(&[&string(key)[..], &ty.to_le_bytes(), value].concat())
    }

    pub(crate) fn raw_key(mut self, bytes: &[u8]) -> Self {
        self.keys.push(bytes.to_vec());
        self
    }

    pub(crate) fn tensor(self, name: impl AsRef<[u8]>, dims: &[u64], ty: u32, offset: u64) -> Self {
        self.tensor_n(name, dims.len() as u32, dims, ty, offset)
    }

    /// With a number of dimensions of one's own.
    pub(crate) fn tensor_n(
        mut self,
        name: impl AsRef<[u8]>,
        n: u32,
        dims: &[u64],
        ty: u32,
        offset: u64,
    ) -> Self {
        let mut bytes = string(name);
        bytes.extend(n.to_le_bytes());
        dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
        bytes.extend(ty.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        self.tensors.push(bytes);
        self
    }

    /// `n` bytes of data: 0, 1, 2, …
    pub(crate) fn data(mut self, n: usize) -> Self {
        self.data = (0..n).map(|i| i as u8).collect();
        self
    }

    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = [self.magic, self.version].concat();
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_keys.unwrap_or(self.keys.len() as u64).to_le_bytes());
        out.extend(self.keys.concat());
        out.extend(self.tensors.concat());
        out
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let mut out = self.header();
        out.resize(out.len().next_multiple_of(self.align), 0);
        out.extend(&self.data);
        out
    }
}
