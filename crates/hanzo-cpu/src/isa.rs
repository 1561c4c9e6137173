//! Instruction sets: what the machine has, and which one is used.
