//! Every registered kernel's Metal text through clang as C++14, Metal's own base: address spaces are types there, and attributes are checked
//! here. It is not Apple's compiler, which runs on Apple's machines only.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "common/tools.rs"]
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;

use hanzo_fusion::kernel::emit::c;
use hanzo_fusion::kernel::{Builder, Combine, Dialect, Elem, F16, Frag};

/// Compiles without making anything; `None` where the machine has no clang.
fn check(name: &str, source: &str) -> Option<Result<(), String>> {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("metal-{name}"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("kernels.cpp"), source).unwrap();
    std::fs::write(dir.join("metal_stdlib"), "#include \"metal.h\"\n").unwrap();
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim");
    let out = Command::new("clang++-19")
        .args(["-fsyntax-only", "-std=c++14", "-pedantic", "-Wall", "-Wextra", "-Werror"])
        // Metal's attributes, and what a kernel gets but does not use.
        .args(["-Wno-unknown-attributes", "-Wno-unused", "-Wno-unused-parameter"])
        .args(["-DHZS_ADDRESS_SPACES", "-isystem"])
        .arg(&shim)
        .arg("-isystem")
        .arg(&dir)
        .arg(dir.join("kernels.cpp"))
        .output();
    match out {
        Ok(out) if out.status.success() => Some(Ok(())),
        Ok(out) => Some(Err(String::from_utf8_lossy(&out.stderr).into_owned())),
        Err(_) => {
            tools::missing("there is no clang 19 to check Metal's address spaces");
            None
        }
    }
}

/// What Metal asks of the parameters of the kernel that begins at `[[kernel`: each buffer in a space of its own and bound once, counted
/// from 0, each built-in of the type that its attribute has.
fn check_signature(text: &str) -> Result<(), String> {
    let (_, text) = text.split_once("HZ_KERNEL(").ok_or("no kernel")?;
    let (_, text) = text.split_once(") ").ok_or("no size")?;
    let (_, text) = text.split_once('(').ok_or("no parameters")?;
    let (parameters, _) = text.split_once(") {").ok_or("no body")?;
    let mut next = 0;
    for parameter in parameters.split(", ") {
        let (declared, attribute) =
            parameter.split_once(" [[").ok_or(format!("`{parameter}` is bound to nothing"))?;
        let attribute = attribute.strip_suffix("]]").ok_or(format!("`{parameter}`"))?;
        let built_in = [
            ("thread_index_in_threadgroup", "uint "),
            ("threadgroup_position_in_grid", "uint3 "),
            ("threadgroups_per_grid", "uint3 "),
        ];
        if let Some((_, ty)) = built_in.iter().find(|(name, _)| *name == attribute) {
            if !declared.starts_with(ty) {
                return Err(format!("`{parameter}` must be {ty}"));
            }
            continue;
        }
        if attribute != format!("buffer({next})") || next > 30 {
            return Err(format!("`{parameter}` where buffer({next}) is due"));
        }
        next += 1;
        let pointer = declared.starts_with("device ") && declared.contains("* ");
        let reference = declared.starts_with("constant ") && declared.contains("& ");
        if !pointer && !reference {
            return Err(format!("`{parameter}` is in no address space"));
        }
    }
    Ok(())
}

#[test]
fn every_kernel_compiles_with_address_spaces_and_attributes_checked() {
    let kernels = tools::registered(32);
    for kernel in &kernels {
        let text = c::definition(kernel, Dialect::Metal);
        check_signature(&text).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
        assert!(text.contains(&format!("HZ_KERNEL({}) {}(", kernel.workgroup, kernel.name)));
    }
    let source = tools::source(&kernels, Dialect::Metal);
    if let Some(result) = check("kernels", &source) {
        result.unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn atomics_and_tables_compile_in_their_spaces() {
    let k = Builder::new("probe", "A probe.", 64, 32);
    let (x, out) = (k.input_small("x", Elem::U8), k.inout::<u32>("out"));
    let (shared, table) = (k.shared::<u32>("counts", 64), k.table("table", vec![1, 2, 3, 4]));
    let id = k.local_id();
    shared.set(id, x.at(id));
    k.barrier();
    shared.atomic(Combine::Add, id & 3, table.at(id & 3));
    k.barrier();
    out.atomic(Combine::Max, id & 1, shared.at(id));
    let kernel = k.finish().unwrap();
    let text = c::source(&kernel, Dialect::Metal);
    assert!(
        text.contains("HZ_SHARED uint counts[64];") && text.contains("HZ_TABLE uint probe_table[4]"),
        "{text}"
    );
    if let Some(result) = check("atomics", &text) {
        result.unwrap_or_else(|e| panic!("{e}\n{text}"));
    }
}

#[test]
fn matrix_fragments_compile_from_every_space() {
    for elem in [Elem::F16, Elem::U8] {
        let k = Builder::new("probe", "A probe.", 32, 32);
        let sum = if elem == Elem::F16 { Elem::F32 } else { Elem::I32 };
        let (x, y, acc) = (k.tile(Frag::A, elem), k.tile(Frag::B, elem), k.tile(Frag::Acc, sum));
        acc.zero();
        if elem == Elem::F16 {
            let (a, tile) = (k.input::<F16>("a"), k.shared::<F16>("tile", 256));
            k.each(256, |i| tile.set(i, a.at(i)));
            k.barrier();
            x.load(a, 0, 16);
            y.load(tile, 0, 16);
        } else {
            let (a, tile) = (k.input_small("a", Elem::U8), k.shared_small("tile", Elem::U8, 256));
            k.each(256, |i| tile.set(i, a.at(i)));
            k.barrier();
            x.load(tile, 0, 16);
            y.load(a, 0, 16);
        }
        acc.mul_add(x, y);
        if elem == Elem::F16 {
            acc.store(k.output::<f32>("c"), 0, 16);
        } else {
            acc.store(k.output::<i32>("c"), 0, 16);
        }
        let text = c::source(&k.finish().unwrap(), Dialect::Metal);
        if let Some(result) = check(&format!("fragments-{elem:?}"), &text) {
            result.unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

#[test]
fn a_misused_address_space_is_an_error() {
    let head = format!("#define HZ_SUBGROUP 32\n{}", c::prelude(Dialect::Metal));
    let kernel = |body: &str| {
        format!(
            "{head}HZ_TABLE uint table[2] = {{1u, 2u}};\nHZ_FN uint first(const device uint* p) {{ return p[0]; }}\n\
             HZ_KERNEL(64) probe(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]]) {{\n\
             HZ_SHARED uint s[64];\n{body}\n}}\n"
        )
    };
    // Each right body, what turns it wrong, and what clang says of that.
    let cases = [
        ("s[0] = first(x); y[0] = s[0];", "s[0] = first(s); y[0] = s[0];", "no matching function"),
        ("device uint* p = y; p[0] = x[0];", "uint* p = y; p[0] = x[0];", "cannot initialize"),
        ("threadgroup uint* p = s; p[0] = x[0];", "device uint* p = s; p[0] = x[0];", "cannot initialize"),
        ("y[0] = first(x);", "y[0] = first(table);", "no matching function"),
        ("s[0] = table[1];", "table[1] = s[0];", "const-qualified"),
        ("y[0] = x[0];", "x[0] = y[0];", "read-only"),
        ("y[0] = HZ_WIDE(uint4, x, 0).y;", "y[0] = HZ_WIDE(uint4, s, 0).y;", "reinterpret_cast"),
        ("y[0] = hz_atomic_add(&s[0], x[0]);", "y[0] = hz_atomic_add(&x[0], 1u);", "no matching function"),
    ];
    for (i, (right, wrong, complaint)) in cases.into_iter().enumerate() {
        let Some(result) = check(&format!("right-{i}"), &kernel(right)) else { return };
        result.unwrap_or_else(|e| panic!("{right}: {e}"));
        let error = check(&format!("wrong-{i}"), &kernel(wrong)).unwrap().expect_err(wrong);
        assert!(error.contains(complaint), "{wrong}: {error}");
    }
}

#[test]
fn signatures_that_metal_refuses_are_seen() {
    let head = "HZ_KERNEL(64) probe(";
    let ok = "device const uint* x [[buffer(0)]], constant probe_params& hz_params [[buffer(1)]], uint hz_local_id [[thread_index_in_threadgroup]]";
    check_signature(&format!("{head}{ok}) {{")).unwrap();
    for (from, to) in [
        ("buffer(1)", "buffer(0)"),
        ("device const", "const"),
        ("constant ", ""),
        ("uint hz_local_id", "uint3 hz_local_id"),
        (" [[buffer(0)]]", ""),
        ("thread_index_in_threadgroup", "thread_index"),
    ] {
        assert!(check_signature(&format!("{head}{}) {{", ok.replace(from, to))).is_err(), "{from} → {to}");
    }
}
