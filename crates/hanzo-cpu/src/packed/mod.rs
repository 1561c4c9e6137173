//! Weight matrices in the row-interleaved layout of the cores.
