//! Importance matrices: how much the squared error of each column of a tensor matters.
//!
//! The file is llama.cpp's GGUF form (`general.type` = `imatrix`), which `hanzo imatrix` writes: for a tensor `NAME`,
//! `NAME.in_sum2` has the sums of squares of the inputs that met each column (`[columns, matrices]`, one matrix for each
//! expert), `NAME.counts` how many inputs there were for each matrix. The importance of a column is their quotient, the mean
//! square. llama.cpp's older form (`legacy`) is read too.

mod legacy;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
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
    /// Of all matrices, one after the other.
    sums: Vec<f32>,
    /// One for each matrix, or one for all.
    counts: Vec<f32>,
}

impl Importance {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let in_file = || format!("cannot read importance matrix `{}`", path.display());
        if is_legacy(path).with_context(in_file)? {
            return legacy::read(path).with_context(in_file);
        }
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
            let (matrices, n_counts) = (sums.n_rows(), counts.n_elements());
            ensure!(
                n_counts == matrices,
                "`{name}` has sums for {matrices} matrices and counts for {n_counts}"
            );
            let entry = Entry { sums: values(file, sums)?, counts: values(file, counts)? };
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
        let (known, counted) = (entry.sums.len() as u64, entry.counts.len() as u64);
        if tensor.row_elems().checked_mul(matrices) != Some(known) || (counted != matrices && counted != 1) {
            bail!(
                "the importance matrix is of another model: tensor `{}` has {matrices} matrices of {} columns, its \
                 importance {known} values and {counted} counts",
                tensor.name(),
                tensor.row_elems(),
            );
        }
        let columns = usize::try_from(tensor.row_elems())?;
        let count = |matrix: usize| entry.counts.get(matrix).or(entry.counts.first()).copied().unwrap_or(0.0);
        let mean = |(matrix, sums): (usize, &[f32])| {
            let count = count(matrix);
            sums.iter().map(|&sum| if count > 0.0 { sum / count } else { 0.0 }).collect()
        };
        Ok(Some(entry.sums.chunks_exact(columns.max(1)).enumerate().map(mean).collect()))
    }
}

/// Whether the file is no GGUF file; whatever else it is, the reader of the older form will find out.
fn is_legacy(path: &Path) -> Result<bool> {
    ensure!(std::fs::metadata(path)?.is_file(), "it is not a regular file");
    let mut magic = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut magic)?;
    Ok(magic != b"GGUF")
}

fn check(name: &str, values: &[f32]) -> Result<()> {
    if let Some((i, v)) = values.iter().enumerate().find(|(_, v)| !(v.is_finite() && **v >= 0.0)) {
        bail!("`{name}`: element {i} is {v}; sums and counts are finite and not negative");
    }
    Ok(())
}

fn values(file: &GgufFile, tensor: &TensorInfo) -> Result<Vec<f32>> {
    ensure!(tensor.ty() == TensorType::F32, "`{}` is {}, not F32", tensor.name(), tensor.ty());
    let bytes = file.read_tensor(tensor)?;
    let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    check(tensor.name(), &values)?;
    Ok(values)
}
