//! Quantized activations: the left operand of every integer contraction.
