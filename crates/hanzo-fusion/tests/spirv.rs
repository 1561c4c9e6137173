//! Every registered kernel's SPIR-V through `spirv-val`, for every environment that it may be loaded in, with no capability too many.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "common/tools.rs"]
mod tools;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use hanzo_fusion::kernel::emit::spirv;
use hanzo_fusion::kernel::{Builder, Combine, Dot, Elem, F16, Kernel};

const WIDTHS: [u32; 3] = [8, 32, 64];
/// Modules are SPIR-V 1.3, which Vulkan has had since 1.1.
const ENVIRONMENTS: [&str; 3] = ["vulkan1.1", "vulkan1.2", "vulkan1.3"];

fn has_validator() -> bool {
    let found = Command::new("spirv-val").arg("--version").output().is_ok_and(|out| out.status.success());
    if !found {
        tools::missing("there is no spirv-val");
    }
    found
}

/// What `spirv-val` has against a module.
fn validate(name: &str, words: &[u32], environment: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{name}.spv"));
    std::fs::write(&path, words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    let out = Command::new("spirv-val").args(["--target-env", environment]).arg(&path).output().unwrap();
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

/// The instructions of a module: offset, opcode, words.
fn instructions(words: &[u32]) -> Vec<(usize, u32, &[u32])> {
    let mut at = 5;
    let mut out = Vec::new();
    while at < words.len() {
        let n = (words[at] >> 16) as usize;
        out.push((at, words[at] & 0xffff, &words[at..at + n]));
        at += n;
    }
    out
}

const OP_EXTENSION: u32 = 10;
const OP_CAPABILITY: u32 = 17;

const OP_S_DOT: u32 = 4450;
const OP_SU_DOT: u32 = 4452;
const DOT_PRODUCT_PACKED: u32 = 6018;

/// Each module lacking one of its capabilities or extensions is invalid: none is declared in vain.
fn nothing_is_declared_in_vain(name: &str, words: &[u32]) {
    for (at, opcode, instruction) in instructions(words) {
        if opcode != OP_CAPABILITY && opcode != OP_EXTENSION {
            continue;
        }
        if instruction[1] == DOT_PRODUCT_PACKED {
            // Asked for by the packed operands (the instruction's sixth word), though not by every version of spirv-val.
            let dots =
                instructions(words).into_iter().filter(|(_, op, _)| (OP_S_DOT..=OP_SU_DOT).contains(op));
            assert!(dots.into_iter().any(|(_, _, dot)| dot.len() == 6), "{name} has no packed dot product");
            continue;
        }
        let mut without = words[..at].to_vec();
        without.extend(&words[at + instruction.len()..]);
        let valid = validate("without", &without, "vulkan1.3").is_ok();
        assert!(!valid, "{name} is valid without instruction {opcode} {:x?}", &instruction[1..]);
    }
}

/// What a module declares.
fn declared(words: &[u32]) -> Vec<&[u32]> {
    let head =
        instructions(words).into_iter().filter(|(_, op, _)| [OP_CAPABILITY, OP_EXTENSION].contains(op));
    head.map(|(_, _, instruction)| instruction).collect()
}

/// Kernels that use what no registered kernel may use yet: narrow buffers with votes and atomics, and narrow workgroup memory. (Apart, because
/// `spirv-val` takes the capability of the types for that of the buffers.)
fn probes(subgroup: u32) -> [Kernel; 2] {
    let k = Builder::new("narrow_buffers", "A probe.", 64, subgroup);
    let (bytes, out) = (k.input_small("bytes", Elem::U8), k.inout::<u32>("out"));
    let (halves, small) = (k.input::<F16>("halves"), k.output_small("small", Elem::U8));
    let id = k.local_id();
    let v = k.dot4(Dot::UnsignedSigned, bytes.at(63 - id), halves.at(63 - id).bits(), 1).u32();
    let v = v + v.lt(3).ballot() + v.subgroup(Combine::Max) + k.lane() + v.shuffle(0);
    small.set(id, v);
    out.atomic(Combine::Add, k.num_workgroups(1), v);
    let buffers = k.finish().unwrap();
    let k = Builder::new("narrow_shared", "A probe.", 64, subgroup);
    let (a, b) = (k.input::<u32>("a"), k.output::<u32>("b"));
    let (s8, s16) = (k.shared_small("s8", Elem::U8, 64), k.shared_small("s16", Elem::U16, 64));
    let id = k.local_id();
    s8.set(id, a.at(id));
    s16.set(id, a.at(id));
    k.barrier();
    b.set(id, s8.at(63 - id) + s16.at(63 - id) + k.subgroup_id());
    [buffers, k.finish().unwrap()]
}

#[test]
fn every_kernel_is_valid_wherever_it_may_be_loaded_and_declares_nothing_in_vain() {
    if !has_validator() {
        return;
    }
    let mut seen = HashMap::new();
    for width in WIDTHS {
        for kernel in tools::registered(width).into_iter().chain(probes(width)) {
            let words = spirv::module(&kernel).unwrap();
            for environment in ENVIRONMENTS {
                let valid = validate("kernel", &words, environment);
                valid.unwrap_or_else(|e| panic!("{} at {width}, {environment}: {e}", kernel.name));
            }
            // Kernels that declare the same need not all be tried.
            let key: Vec<Vec<u32>> = declared(&words).into_iter().map(<[u32]>::to_vec).collect();
            if seen.insert(key, ()).is_none() {
                nothing_is_declared_in_vain(&kernel.name, &words);
            }
        }
    }
    assert!(seen.len() > 3, "kernels differ in what they declare");
}

#[test]
fn what_is_not_used_is_not_declared() {
    let k = Builder::new("plain", "Words only.", 64, 32);
    let (a, b) = (k.input::<u32>("a"), k.output::<u32>("b"));
    let id = k.local_id();
    b.set(id, a.at(id) + 1);
    let words = spirv::module(&k.finish().unwrap()).unwrap();
    let shader = [2 << 16 | OP_CAPABILITY, 1];
    assert_eq!(declared(&words), [&shader[..]]);
    assert_eq!(words[..2], [0x0723_0203, 0x0001_0300]);
}
