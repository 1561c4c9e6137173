//! hanzo-engine
