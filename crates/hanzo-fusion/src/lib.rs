//! hanzo-fusion
