//! The errors of this crate.

use crate::QuantType;

/// What can be wrong with values in a block format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantError {
    /// A GGUF type id that no format of [`crate::for_each_quant!`] has.
    #[error("unknown GGUF tensor type id {id}")]
    UnknownId {
        /// The id found.
        id: u32,
    },
    /// A row whose length is not a whole number of blocks.
    #[error("{ty} stores blocks of {block} elements; a row of {elems} is not a multiple")]
    RaggedRow {
        /// The format.
        ty: QuantType,
        /// Elements asked for.
        elems: usize,
        /// Elements of a block.
        block: usize,
    },
    /// A byte slice whose length does not fit the number of elements.
    #[error("{elems} elements of {ty} take {expected} bytes, found {found}")]
    ByteLength {
        /// The format.
        ty: QuantType,
        /// Elements asked for.
        elems: usize,
        /// Bytes they take; `usize::MAX` where the product does not fit.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}
