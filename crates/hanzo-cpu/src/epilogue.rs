//! Where the results of a contraction go.
