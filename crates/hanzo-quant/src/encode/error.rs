//! What can be wrong with values that are to be encoded.

use crate::QuantType;

/// Why rows were not encoded. Nothing is written to the output before all input has been checked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A format that exists only for activations or that nobody encodes.
    #[error("{ty} cannot be encoded")]
    NotEncodable {
        /// The format.
        ty: QuantType,
    },
    /// Rows that are not a whole number of blocks.
    #[error("{ty} stores blocks of {block} elements; a row of {n_per_row} is not a multiple")]
    RaggedRow {
        /// The format.
        ty: QuantType,
        /// Elements of a row.
        n_per_row: usize,
        /// Elements of a block.
        block: usize,
    },
    /// Values that are not a whole number of rows.
    #[error("{len} values are not a whole number of rows of {n_per_row}")]
    PartialRow {
        /// Values given.
        len: usize,
        /// Elements of a row.
        n_per_row: usize,
    },
    /// An output of the wrong length.
    #[error("these rows take {expected} bytes of {ty}, the output has {found}")]
    OutputLength {
        /// The format.
        ty: QuantType,
        /// Bytes needed; `usize::MAX` where the product does not fit.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// A NaN or an infinity among the values.
    #[error("value {index} is {value}; only finite numbers can be encoded")]
    NotFinite {
        /// Position in `values`.
        index: usize,
        /// What is there.
        value: f32,
    },
    /// A value beyond what the format's scales can reach.
    #[error("value {index} is {value}; {ty} holds magnitudes up to {limit}")]
    OutOfRange {
        /// The format.
        ty: QuantType,
        /// Position in `values`.
        index: usize,
        /// What is there.
        value: f32,
        /// The largest magnitude accepted.
        limit: f32,
    },
    /// An importance vector of another length than a row.
    #[error("{found} importance weights for rows of {expected} elements")]
    ImportanceLength {
        /// Elements of a row.
        expected: usize,
        /// Weights given.
        found: usize,
    },
    /// An importance weight that is negative or not finite.
    #[error("importance weight {index} is {value}; weights are finite and not negative")]
    ImportanceValue {
        /// Position in the row.
        index: usize,
        /// What is there.
        value: f32,
    },
}
