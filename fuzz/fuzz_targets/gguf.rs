//! The parser of GGUF headers on any bytes; what it accepts is read through, written, and read again.
#![no_main]

#[path = "../../crates/hanzo-gguf/tests/common/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise::exercise(bytes);
});
