//! hanzo-models
