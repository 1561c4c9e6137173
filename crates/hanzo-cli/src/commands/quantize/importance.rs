//! Importance matrices: how much the squared error of each column of a tensor matters.
//!
//! The file is llama.cpp's GGUF form (`general.type` = `imatrix`): for a tensor `NAME`, `NAME.in_sum2` has the sums of
//! squares of the inputs that met each column (`[columns, matrices]`, one matrix for each expert), `NAME.counts` how
//! many inputs there were for each matrix. The importance of a column is their quotient, the mean square.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use hanzo_gguf::{GgufFile, TensorInfo, TensorType};

/// The contents of an importance file.
#[derive(Debug)]
pub(crate) struct Importance {
    tensors: HashMap<String, Entry>,
    /// What it was made from, as far as the file says.
    pub(crate) datasets: Vec<String>,
    /// Chunks of text that were run.
    pub(crate) chunks: Option<u32>,
}

#[derive(Debug)]
struct Entry {
    columns: u64,
    sums: Vec<f32>,
    counts: Vec<f32>,
}

impl Importance {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let in_file = || format!("cannot read importance matrix `{}`", path.display());
        let file = GgufFile::open(path).with_context(in_file)?;
        Self::read(&file).with_context(in_file)
    }

    fn read(file: &GgufFile) -> Result<Self> {
        let kind = file.metadata().get_str("general.type")?.unwrap_or("model");
        ensure!(kind == "imatrix", "this is a GGUF file of type `{kind}`, not `imatrix`");
        let mut tensors = HashMap::new();
        for sums in file.tensors() {
            let Some(name) = sums.name().strip_suffix(".in_sum2") else { continue };
            let counts = file.required_tensor(&format!("{name}.counts"))?;
            let (columns, matrices) = (sums.row_elems(), sums.n_rows());
            let n_counts = counts.n_elements();
            ensure!(
                n_counts == matrices,
                "`{name}` has sums for {matrices} matrices and counts for {n_counts}"
            );
            let entry = Entry { columns, sums: values(file, sums)?, counts: values(file, counts)? };
            tensors.insert(name.to_owned(), entry);
        }
        ensure!(!tensors.is_empty(), "it has no `*.in_sum2` tensors");
        let datasets = match file.metadata().get_strings("imatrix.datasets")? {
            Some(names) => names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
            None => Vec::new(),
        };
        Ok(Importance { tensors, datasets, chunks: file.metadata().get_u32("imatrix.chunk_count")? })
    }

    /// Tensors that it knows.
    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether it knows this tensor.
    pub(crate) fn has(&self, tensor: &TensorInfo) -> bool {
        self.tensors.contains_key(tensor.name())
    }

    /// The weights of each matrix of a tensor (`dims[2..]` count matrices): one a column. A matrix that no input met has no
    /// preference: all zeros, which encoders take for none. `None` where the file does not know the tensor.
    ///
    /// # Errors
    /// If the file is of a model with other shapes.
    pub(crate) fn weights(&self, tensor: &TensorInfo) -> Result<Option<Vec<Vec<f32>>>> {
        let Some(entry) = self.tensors.get(tensor.name()) else { return Ok(None) };
        let matrices: u64 = tensor.dims().iter().skip(2).product();
        let known = entry.counts.len() as u64;
        if entry.columns != tensor.row_elems() || known != matrices {
            bail!(
                "the importance matrix is of another model: tensor `{}` has {matrices} matrices of {} columns, its \
                 importance {known} of {}",
                tensor.name(),
                tensor.row_elems(),
                entry.columns,
            );
        }
        let columns = entry.columns as usize;
        let mean = |(sums, &count): (&[f32], &f32)| {
            sums.iter().map(|&sum| if count > 0.0 { sum / count } else { 0.0 }).collect()
        };
        Ok(Some(entry.sums.chunks_exact(columns.max(1)).zip(&entry.counts).map(mean).collect()))
    }
}

fn values(file: &GgufFile, tensor: &TensorInfo) -> Result<Vec<f32>> {
    ensure!(tensor.ty() == TensorType::F32, "`{}` is {}, not F32", tensor.name(), tensor.ty());
    let bytes = file.read_tensor(tensor)?;
    let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    if let Some((i, v)) = values.iter().enumerate().find(|(_, v)| !(v.is_finite() && **v >= 0.0)) {
        bail!("`{}`: element {i} is {v}; sums and counts are finite and not negative", tensor.name());
    }
    Ok(values)
}
