//! The tensor table: what each tensor is called, its shape and type, and which bytes of which file it is.

#![forbid(unsafe_code)]

use crate::limits::MAX_DIMS;
use crate::tensor_type::TensorType;

/// One tensor of a GGUF file. Its size was checked against the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub(crate) name: Box<str>,
    pub(crate) dims: [u64; MAX_DIMS as usize],
    pub(crate) n_dims: u8,
    pub(crate) ty: TensorType,
    pub(crate) shard: u16,
    pub(crate) offset: u64,
    pub(crate) n_bytes: u64,
    pub(crate) info_offset: u64,
}

impl TensorInfo {
    /// The name, such as `blk.0.attn_q.weight`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Elements along each axis in GGUF order: `dims()[0]` is the contiguous one (the row length). A weight
    /// matrix that maps `n_in` to `n_out` has dims `[n_in, n_out]`.
    #[must_use]
    pub fn dims(&self) -> &[u64] {
        self.dims.get(..usize::from(self.n_dims)).unwrap_or_default()
    }

    /// Type of the elements.
    #[must_use]
    pub fn ty(&self) -> TensorType {
        self.ty
    }

    /// Number of elements.
    #[must_use]
    pub fn n_elements(&self) -> u64 {
        // The product was checked when the header was read.
        self.dims().iter().product()
    }

    /// Elements of a row: `dims()[0]`, always a whole number of blocks.
    #[must_use]
    pub fn row_elems(&self) -> u64 {
        self.dims().first().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all dims but the first.
    #[must_use]
    pub fn n_rows(&self) -> u64 {
        self.dims().iter().skip(1).product()
    }

    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.row_elems() / self.ty.block_elems() * self.ty.block_bytes()
    }

    /// Bytes of the whole tensor.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Where its data starts, in bytes from the start of its file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Which shard of a split model holds it, from 0; 0 for a model in one file.
    #[must_use]
    pub fn shard(&self) -> usize {
        usize::from(self.shard)
    }

    /// Where its entry in the tensor table is, in bytes from the start of its file.
    #[must_use]
    pub fn info_offset(&self) -> u64 {
        self.info_offset
    }
}
