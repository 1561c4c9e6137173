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

/// Small files, good and bad, for the fuzzer to start from and for the mutation test: name and bytes.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let good = Raw::good();
    let header = good.header().len();
    let aligned = |align: u32| {
        let raw = Raw::new().key("general.alignment", 4, &align.to_le_bytes()).tensor("t", &[8, 2], 0, 0);
        Raw { align: align as usize, ..raw.data(64) }.build()
    };
    let mut all_types = Raw::new();
    let mut offset = 0;
    for ty in hanzo_gguf::TensorType::ALL {
        all_types = all_types.tensor(ty.name(), &[ty.block_elems()], ty.id(), offset);
        offset += ty.block_bytes().next_multiple_of(32);
    }
    let scalars = Raw::new()
        .key("u8", 0, &[1])
        .key("i8", 1, &[0xff])
        .key("u16", 2, &[1, 2])
        .key("i16", 3, &[1, 0xff])
        .key("u32", 4, &[1; 4])
        .key("i32", 5, &[0xff; 4])
        .key("f32", 6, &1f32.to_le_bytes())
        .key("bool", 7, &[1])
        .key("text", 8, &string("grüße"))
        .key("u64", 10, &[0xff; 8])
        .key("i64", 11, &[0xfe; 8])
        .key("f64", 12, &[0xff; 8]);
    let nested = Raw::new()
        .key("nested", 9, &array(9, 2, &[array(8, 1, &string("p")), array(4, 0, &[])].concat()))
        .key(
            "strings",
            9,
            &array(8, 10, &(0..10).map(|i| string("x".repeat(i))).collect::<Vec<_>>().concat()),
        )
        .key("floats", 9, &array(6, 2, &[0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0xff]))
        .key("flags", 9, &array(7, 3, &[0, 1, 1]));
    let shard = Raw::new().key("split.no", 2, &[0, 0]).key("split.count", 2, &[2, 0]);
    vec![
        ("empty", Vec::new()),
        ("magic", b"GGUF".to_vec()),
        ("preamble", Raw::new().build()),
        ("good", good.build()),
        ("version2", Raw { version: 2u32.to_le_bytes(), ..good.clone() }.build()),
        ("big-endian", Raw { version: 3u32.to_be_bytes(), ..good.clone() }.build()),
        ("cut", good.build()[..header - 9].to_vec()),
        ("align8", aligned(8)),
        ("align64", aligned(64)),
        ("all-types", all_types.data(offset as usize).build()),
        ("scalars", scalars.build()),
        ("nested", nested.build()),
        ("shard", shard.tensor("a", &[1], 0, 0).data(4).build()),
    ]
}
