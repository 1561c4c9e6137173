//! hanzo-gguf
