//! The thread pool.
