//! hanzo-quant
