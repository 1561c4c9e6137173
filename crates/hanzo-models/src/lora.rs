//! LoRA adapter files: GGUF as llama.cpp's converter writes them, and the folders that PEFT saves.
//!
//! [`LoraFile::open`] reads a file's description and checks that it is of a kind that can be applied; [`LoraFile::bind`] reads its
//! matrices and fits them to a model. What an adapter computes is `hanzo_fusion::adapter`'s; which ones are loaded and who uses
//! them, the engine's.

mod error;
mod gguf;
pub(crate) mod names;
mod peft;

use std::path::{Path, PathBuf};

use hanzo_fusion::adapter::{LowRankShape, PAD, Place};
use hanzo_fusion::{Adapter, LowRank};
use hanzo_gguf::GgufFile;
use hanzo_quant::{QuantType, decode_row};

use crate::Model;
use crate::arch::hf_names;

pub use error::LoraError;

type Result<T, E = LoraError> = std::result::Result<T, E>;

/// The kinds of adapter files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoraFormat {
    /// One GGUF file.
    Gguf,
    /// A folder with `adapter_config.json` and `adapter_model.safetensors`.
    Peft,
}

impl LoraFormat {
    /// What to call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gguf => "GGUF",
            Self::Peft => "PEFT",
        }
    }
}

/// An adapter file whose description was read.
#[derive(Debug)]
pub struct LoraFile {
    path: PathBuf,
    format: LoraFormat,
    /// `general.architecture` of the models that it is for; PEFT's files do not tell.
    architecture: Option<String>,
    /// What the file says about the model that it was trained on.
    base_model: Option<String>,
    /// Keys of the description whose meaning is not known here.
    unknown_keys: Vec<String>,
    pairs: Vec<Pair>,
    data: Data,
}

/// Where the matrices are.
#[derive(Debug)]
enum Data {
    Gguf(Box<GgufFile>),
    Peft(Box<peft::Tensors>),
}

/// `A` and `B` of one weight, not yet read.
#[derive(Clone, Debug, PartialEq)]
struct Pair {
    target: Target,
    shape: LowRankShape,
    scale: f32,
    a: Stored,
    /// `A` lies with an input a row (GGUF's form of embeddings).
    a_by_input: bool,
    b: Stored,
}

/// What a pair updates.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// A tensor of a model file.
    Tensor(String),
    /// A module of Hugging Face's implementation, from the model's root.
    Module(String),
}

/// A matrix in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    name: String,
    rows: usize,
    cols: usize,
    ty: QuantType,
}

/// One update, as a report shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraUpdate {
    /// The tensor, or the module of Hugging Face's implementation.
    pub target: String,
    /// Its shape.
    pub shape: LowRankShape,
    /// What multiplies it.
    pub scale: f32,
    /// Element type of `A`.
    pub ty: QuantType,
}

impl LoraFile {
    /// Reads an adapter's description: of a GGUF file, a folder that PEFT saved, or one of that folder's two files.
    ///
    /// # Errors
    /// [`LoraError`] naming the key or tensor that is wrong, or whose meaning is not supported.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            return peft::open(path);
        }
        let is_part = path.file_name().is_some_and(|n| n == peft::CONFIG || n == peft::WEIGHTS);
        match path.parent() {
            Some(folder) if is_part => {
                peft::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
            }
            _ => gguf::open(path),
        }
    }

    /// Where it was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its kind.
    pub fn format(&self) -> LoraFormat {
        self.format
    }

    /// Architecture of the models that it is for, where the file tells.
    pub fn architecture(&self) -> Option<&str> {
        self.architecture.as_deref()
    }

    /// The model that it was trained on, where the file tells.
    pub fn base_model(&self) -> Option<&str> {
        self.base_model.as_deref()
    }

    /// Keys of its description that are set and not known here; what they ask for is not done.
    pub fn unknown_keys(&self) -> &[String] {
        &self.unknown_keys
    }

    /// Its greatest rank.
    pub fn max_rank(&self) -> usize {
        self.pairs.iter().map(|p| p.shape.rank).max().unwrap_or(0)
    }

    /// Bytes that it takes once bound.
    pub fn memory(&self) -> u64 {
        let bytes = |s: LowRankShape| {
            let (a, b) = (s.rank.checked_next_multiple_of(PAD), s.n_out.checked_next_multiple_of(PAD));
            let a = a.and_then(|a| a.checked_mul(s.n_in))?;
            b.and_then(|b| b.checked_mul(s.rank)).and_then(|b| b.checked_add(a)).map(|n| n as u64)
        };
        let sizes = self.pairs.iter().map(|p| bytes(p.shape).unwrap_or(u64::MAX));
        sizes.fold(0, u64::saturating_add).saturating_mul(4)
    }

    /// Its updates, in the order of their targets.
    pub fn updates(&self) -> impl ExactSizeIterator<Item = LoraUpdate> {
        self.pairs.iter().map(|p| LoraUpdate {
            target: p.target.name().to_owned(),
            shape: p.shape,
            scale: p.scale,
            ty: p.a.ty,
        })
    }

    /// Reads the matrices and fits them to `model`.
    ///
    /// # Errors
    /// [`LoraError`] where the adapter is for another architecture, updates what the model does not have or what cannot be updated,
    /// or has shapes or numbers that do not do.
    pub fn bind(&self, model: &Model) -> Result<Adapter> {
        if let Some(architecture) = self.architecture.as_deref().filter(|a| *a != model.architecture) {
            return Err(LoraError::Architecture {
                adapter: architecture.to_owned(),
                model: model.architecture.to_owned(),
            });
        }
        let mut adapter = Adapter::new();
        for pair in &self.pairs {
            let (name, place, permuted) = pair.target.resolve(model)?;
            let refuse = |reason: String| LoraError::Tensor { name: pair.a.name.clone(), reason };
            let Some(weight) = model.graph.weight(&name) else {
                let tied = name == names::OUTPUT && model.graph.weight(names::EMBEDDING).is_some();
                let hint = if tied { ": its output head is its embedding" } else { "" };
                return Err(refuse(format!("the model has no `{name}`{hint}")));
            };
            let mut a = self.read(&pair.a)?;
            if pair.a_by_input {
                a = transposed(&a, pair.a.cols);
            }
            let mut b = self.read(&pair.b)?;
            if permuted {
                let head_dim =
                    head_dim(model, &name).ok_or_else(|| refuse("no head has its rows".to_owned()))?;
                b = pairs_of_heads(&b, pair.b.cols, head_dim).ok_or_else(|| {
                    refuse(format!("{} rows of B are not whole heads of {head_dim}", pair.b.rows))
                })?;
            }
            let update = LowRank::new(pair.shape, pair.scale, &a, &b).map_err(refuse)?;
            adapter.insert(&model.graph, weight, place, update)?;
        }
        Ok(adapter)
    }

    /// A matrix, row-major.
    fn read(&self, stored: &Stored) -> Result<Vec<f32>> {
        let refuse = |reason: String| LoraError::Tensor { name: stored.name.clone(), reason };
        let n = stored.rows.checked_mul(stored.cols);
        let bytes = n.and_then(|n| stored.ty.row_bytes(n));
        let Some((n, n_bytes)) = n.zip(bytes) else {
            return Err(refuse("its size is out of reach".to_owned()));
        };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(n_bytes).map_err(|e| refuse(e.to_string()))?;
        bytes.resize(n_bytes, 0);
        match &self.data {
            Data::Peft(tensors) => tensors.read(&stored.name, &mut bytes)?,
            Data::Gguf(file) => {
                let info =
                    file.tensor(&stored.name).ok_or_else(|| refuse("is not in the file".to_owned()))?;
                file.read_tensor_at(info, 0, &mut bytes)?;
            }
        }
        let mut values = Vec::new();
        values.try_reserve_exact(n).map_err(|e| refuse(e.to_string()))?;
        values.resize(n, 0.0);
        decode_row(stored.ty, &bytes, &mut values).map_err(|e| refuse(e.to_string()))?;
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            return Err(refuse(format!("element {at} is not a finite number")));
        }
        Ok(values)
    }
}

impl Target {
    fn name(&self) -> &str {
        match self {
            Self::Tensor(name) | Self::Module(name) => name,
        }
    }

    /// The tensor's name, where it takes part, and whether the file has its rows permuted against Hugging Face's.
    fn resolve(&self, model: &Model) -> Result<(String, Place, bool)> {
        let (name, permuted) = match self {
            Self::Tensor(name) => (name.clone(), false),
            Self::Module(path) => {
                let Some(names) = hf_names(model.architecture) else {
                    return Err(LoraError::NoModuleNames { architecture: model.architecture.to_owned() });
                };
                names.tensor(path).map_err(|reason| LoraError::Module { module: path.clone(), reason })?
            }
        };
        let place = if name == names::EMBEDDING { Place::Embedding } else { Place::Product };
        Ok((name, place, permuted))
    }
}

/// Elements of a head of the layer that `name` ("blk.7.attn_q.weight") belongs to.
fn head_dim(model: &Model, name: &str) -> Option<usize> {
    let layer: usize = name.strip_prefix("blk.")?.split('.').next()?.parse().ok()?;
    model.graph.kv_layers.get(layer).map(|l| l.k_head_dim)
}

/// Rows of heads whose halves are rotated together, brought into the order in which neighbours are: row `i` of each half of a head
/// becomes its rows `2i` and `2i + 1`. llama.cpp's converter does the same to the weights.
fn pairs_of_heads(x: &[f32], cols: usize, head_dim: usize) -> Option<Vec<f32>> {
    let head = cols.checked_mul(head_dim).filter(|&n| n > 0 && x.len().is_multiple_of(n))?;
    if !head_dim.is_multiple_of(2) {
        return None;
    }
    let mut out = Vec::with_capacity(x.len());
    for head in x.chunks_exact(head) {
        let (first, second) = head.split_at(head.len() / 2);
        for (a, b) in first.chunks_exact(cols).zip(second.chunks_exact(cols)) {
            out.extend_from_slice(a);
            out.extend_from_slice(b);
        }
    }
    Some(out)
}

/// Columns as rows.
fn transposed(x: &[f32], cols: usize) -> Vec<f32> {
    let rows = x.len().checked_div(cols).unwrap_or(0);
    let mut out = Vec::with_capacity(x.len());
    for c in 0..cols {
        out.extend((0..rows).filter_map(|r| x.get(r * cols + c)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_heads_become_pairs() {
        // Two heads of four rows, one column.
        let x = [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0];
        let want = [0.0, 2.0, 1.0, 3.0, 10.0, 12.0, 11.0, 13.0];
        assert_eq!(pairs_of_heads(&x, 1, 4).as_deref(), Some(&want[..]));
        for (cols, head_dim) in [(1, 3), (3, 4), (0, 4), (1, 0), (usize::MAX, 4)] {
            assert_eq!(pairs_of_heads(&x, cols, head_dim), None);
        }
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
