//! Finds weights in the file by name, checks their shapes against the hyper-parameters, and declares them to the graph.

use std::collections::HashSet;

use hanzo_fusion::{Builder, Graph, Value, Weight};
use hanzo_gguf::GgufFile;
use hanzo_quant::QuantType;

use crate::hyper::MAX_WIDTH;
use crate::{ModelError, Result};

/// Tensors that converters write for other engines and that no graph needs: their content follows from metadata.
const DERIVED: &[&str] =
    &["rope_freqs.weight", "attn_rot_embd.weight", "rope_factors_long.weight", "rope_factors_short.weight"];

/// The weights of one file and the graph under construction.
pub(crate) struct Weights<'a> {
    file: &'a GgufFile,
    used: HashSet<String>,
    /// The graph.
    pub(crate) g: Builder,
    /// Rows of the embedding.
    pub(crate) vocab_size: usize,
}

impl<'a> Weights<'a> {
    pub(crate) fn new(file: &'a GgufFile) -> Result<Self> {
        const NAME: &str = "token_embd.weight";
        let Some(info) = file.tensor(NAME) else {
            return Err(ModelError::MissingTensor {
                name: NAME.to_owned(),
                expected: "[embedding, vocabulary]".to_owned(),
            });
        };
        let vocab_size = match info.dims() {
            [_, rows] => usize::try_from(*rows).ok().filter(|&n| n > 0 && n <= u32::MAX as usize / 4),
            _ => None,
        };
        let Some(vocab_size) = vocab_size else {
            return Err(shape_fault(NAME, info.dims(), &"[embedding, vocabulary]"));
        };
        let tokens = file.metadata().get_strings("tokenizer.ggml.tokens")?.map_or(0, |t| t.len());
        if tokens > vocab_size {
            return Err(ModelError::Hyper {
                key: "tokenizer.ggml.tokens".to_owned(),
                found: format!("an array of {tokens}"),
                expected: format!("at most the {vocab_size} rows of `{NAME}`"),
            });
        }
        Ok(Self { file, used: HashSet::new(), g: Builder::new(vocab_size), vocab_size })
    }

    /// Whether the file has the tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// A matrix `[n_out, n_in]`.
    pub(crate) fn matrix(&mut self, name: &str, n_out: usize, n_in: usize) -> Result<Weight> {
        let ty = self.find(name, &[n_in, n_out])?;
        Ok(self.g.matrix(name, n_out, n_in, ty))
    }

    /// The matrices of all experts, `[n_experts, n_out, n_in]`.
    pub(crate) fn experts(
        &mut self,
        name: &str,
        n_experts: usize,
        n_out: usize,
        n_in: usize,
    ) -> Result<Weight> {
        let ty = self.find(name, &[n_in, n_out, n_experts])?;
        Ok(self.g.experts(name, n_experts, n_out, n_in, ty))
    }

    /// A vector `[n]`.
    pub(crate) fn vector(&mut self, name: &str, n: usize) -> Result<Weight> {
        let ty = self.find(name, &[n])?;
        Ok(self.g.vector(name, n, ty))
    }

    /// The first row of a matrix of rows of `n`, of whatever number.
    pub(crate) fn first_row(&mut self, name: &str, n: usize) -> Result<Weight> {
        let rows = self.file.tensor(name).and_then(|t| t.dims().get(1).copied()).unwrap_or(1);
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let ty = self.find(name, &[n, rows])?;
        Ok(self.g.vector(name, n, ty))
    }

    /// The output head: `output.weight`, or the embedding where the two are tied.
    pub(crate) fn output(&mut self, n_embd: usize) -> Result<Weight> {
        let name = if self.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        self.matrix(name, self.vocab_size, n_embd)
    }

    /// The values of a small f32 vector that shapes the graph.
    pub(crate) fn values(&mut self, name: &str, n: usize) -> Result<Option<Vec<f32>>> {
        if !self.has(name) {
            return Ok(None);
        }
        let ty = self.find(name, &[n])?;
        if ty != QuantType::F32 || n > MAX_WIDTH as usize {
            return Err(ModelError::TensorType { name: name.to_owned(), found: ty.name().to_owned() });
        }
        let Some(info) = self.file.tensor(name) else { return Ok(None) };
        let mut bytes = vec![0; n * 4];
        self.file.read_tensor_at(info, 0, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<4>();
        Ok(Some(words.iter().map(|&b| f32::from_le_bytes(b)).collect()))
    }

    fn find(&mut self, name: &str, dims: &[usize]) -> Result<QuantType> {
        let Some(info) = self.file.tensor(name) else {
            return Err(ModelError::MissingTensor { name: name.to_owned(), expected: format!("{dims:?}") });
        };
        // Trailing dimensions of 1 are free: [n] and [n, 1] are one tensor.
        let found = info.dims();
        let n = found.len().max(dims.len());
        let same = (0..n).all(|i| found.get(i).copied().unwrap_or(1) == dims.get(i).map_or(1, |&d| d as u64));
        if !same {
            return Err(shape_fault(name, found, &dims));
        }
        let Some(ty) = QuantType::from_id(info.ty().id()) else {
            return Err(ModelError::TensorType { name: name.to_owned(), found: info.ty().to_string() });
        };
        self.used.insert(name.to_owned());
        Ok(ty)
    }

    /// The finished graph; every tensor of the file must have found its use.
    pub(crate) fn finish(self, logits: Value) -> Result<Graph> {
        let mut unused = self
            .file
            .tensors()
            .iter()
            .map(|t| t.name())
            .filter(|name| !self.used.contains(*name) && !DERIVED.iter().any(|d| name.ends_with(d)));
        if let Some(first) = unused.next() {
            return Err(ModelError::UnusedTensors {
                architecture: self.file.metadata().required_str("general.architecture")?.to_owned(),
                count: 1 + unused.count(),
                first: first.to_owned(),
            });
        }
        Ok(self.g.finish(logits)?)
    }
}

fn shape_fault(name: &str, found: &[u64], expected: &dyn std::fmt::Debug) -> ModelError {
    ModelError::TensorShape {
        name: name.to_owned(),
        found: format!("{found:?}"),
        expected: format!("{expected:?}"),
    }
}
