//! hanzo-text
