//! Runs kernels on what a machine without a GPU has: the interpreter, and the text of each C dialect on fibres.

#![allow(dead_code)]

pub(crate) mod vulkan;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use hanzo_fusion::kernel::emit::c;
use hanzo_fusion::kernel::interpret::{self, BufferData, FmaRounding, MatrixUnits};
use hanzo_fusion::kernel::ir::Scalar;
use hanzo_fusion::kernel::{Access, Dialect, Elem, Kernel};

/// A launch with its inputs.
pub(crate) struct Case {
    pub(crate) kernel: Kernel,
    pub(crate) grid: [u32; 3],
    pub(crate) buffers: Vec<BufferData>,
    pub(crate) params: Vec<u32>,
}

impl Case {
    /// The buffers after a run on the interpreter.
    pub(crate) fn interpret(&self) -> Vec<BufferData> {
        self.interpret_as(FmaRounding::Once)
    }

    /// As on a device with that `fma`.
    pub(crate) fn interpret_as(&self, fma: FmaRounding) -> Vec<BufferData> {
        let mut buffers = self.buffers.clone();
        interpret::run_as(fma, &self.kernel, self.grid, &mut buffers, &self.params)
            .unwrap_or_else(|e| panic!("{e}"));
        buffers
    }

    /// As on a device with those matrix units.
    pub(crate) fn interpret_with(&self, units: MatrixUnits) -> Vec<BufferData> {
        let mut buffers = self.buffers.clone();
        let once = FmaRounding::Once;
        interpret::run_with(once, units, &self.kernel, self.grid, &mut buffers, &self.params)
            .unwrap_or_else(|e| panic!("{e}"));
        buffers
    }
}

/// A small generator (splitmix64), so that inputs are the same everywhere.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    /// In −1..1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
    pub(crate) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

pub(crate) const DIALECTS: [Dialect; 3] = [Dialect::Cuda, Dialect::Hip, Dialect::Metal];

/// The C++ compiler of this machine; `None` where there is none, which `HANZO_REQUIRE=all` does not forgive.
fn compiler() -> Option<String> {
    let found = ["c++", "g++", "clang++"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success()));
    if found.is_none() {
        let required = std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all");
        assert!(!required, "HANZO_REQUIRE=all, but no C++ compiler was found");
        println!("skipped: no C++ compiler was found");
    }
    found.map(str::to_owned)
}

/// The buffers of every case after a run of its text in `dialect`; `None` where the machine has no compiler.
pub(crate) fn run_text(dialect: Dialect, name: &str, cases: &[Case]) -> Option<Vec<Vec<BufferData>>> {
    let compiler = compiler()?;
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{dialect:?}"));
    std::fs::create_dir_all(&dir).unwrap();
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim");
    std::fs::write(dir.join("kernels.cpp"), program(dialect, cases)).unwrap();
    std::fs::write(dir.join("metal_stdlib"), "#include \"metal.h\"\n").unwrap();
    let mut input = Vec::new();
    for case in cases {
        for (buffer, decl) in case.buffers.iter().zip(&case.kernel.buffers) {
            for word in &buffer.words {
                // What nobody wrote yet is told by a value that no test expects.
                let word = word.unwrap_or(0xdead_beef);
                input.extend_from_slice(&word.to_le_bytes()[..decl.elem.bytes()]);
            }
        }
    }
    std::fs::write(dir.join("input"), input).unwrap();
    let built = Command::new(&compiler)
        .args(["-std=c++17", "-O0", "-ffp-contract=off", "-w", "-fno-strict-aliasing"])
        .arg("-I")
        .arg(&shim)
        .arg("-I")
        .arg(&dir)
        .arg("-o")
        .arg(dir.join("run"))
        .arg(dir.join("kernels.cpp"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{dialect:?}: {}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(dir.join("run")).current_dir(&dir).output().unwrap();
    assert!(ran.status.success(), "{dialect:?}: {:?} {}", ran.status, String::from_utf8_lossy(&ran.stderr));
    let bytes = std::fs::read(dir.join("output")).unwrap();
    let mut bytes = bytes.as_slice();
    let mut results = Vec::new();
    for case in cases {
        let buffers = case.buffers.iter().zip(&case.kernel.buffers).map(|(buffer, decl)| {
            let n = decl.elem.bytes();
            let words = (0..buffer.words.len()).map(|_| {
                let (head, tail) = bytes.split_at(n);
                bytes = tail;
                let mut word = [0; 4];
                word[..n].copy_from_slice(head);
                Some(u32::from_le_bytes(word))
            });
            BufferData { words: words.collect() }
        });
        results.push(buffers.collect());
    }
    Some(results)
}

/// A C++ program that reads all buffers, launches all cases and writes all buffers.
fn program(dialect: Dialect, cases: &[Case]) -> String {
    let subgroup = cases[0].kernel.subgroup;
    assert!(cases.iter().all(|c| c.kernel.subgroup == subgroup), "one prelude, one subgroup width");
    let mut text = format!("#define HZ_SUBGROUP {subgroup}\n");
    match dialect {
        Dialect::Cuda => text.push_str("#include \"cuda.h\"\n"),
        // Waves of 64 are gfx9's.
        Dialect::Hip if subgroup == 64 => text.push_str("#define __GFX9__\n#include \"hip.h\"\n"),
        Dialect::Hip => text.push_str("#include \"hip.h\"\n"),
        Dialect::Metal => {}
    }
    if dialect == Dialect::Metal {
        // The prelude's attributes are no C++ for every compiler; the launch is an ordinary function.
        let prelude = c::prelude(dialect);
        let kernel = prelude.lines().find(|l| l.starts_with("#define HZ_KERNEL")).unwrap();
        text.push_str(&prelude.replace(kernel, "#define HZ_KERNEL(n) extern \"C\" void"));
    } else {
        text.push_str(c::prelude(dialect));
    }
    if cases.iter().any(|case| !case.kernel.fragments.is_empty()) {
        text.push_str(c::matrix_prelude(dialect));
    }
    for (i, case) in cases.iter().enumerate() {
        let mut kernel = case.kernel.clone();
        kernel.name = format!("case{i}_{}", kernel.name);
        text.push_str(&c::definition(&kernel, dialect));
        let names: Vec<String> = (0..kernel.buffers.len()).map(|b| format!("c{i}_b{b}")).collect();
        for (b, decl) in kernel.buffers.iter().enumerate() {
            let ty = c_elem(decl.elem);
            let _ = writeln!(text, "static {ty}* c{i}_b{b};");
        }
        let literal = |ty: Scalar, word: u32| match ty {
            Scalar::F32 => format!("hz_float(0x{word:x}u)"),
            Scalar::I32 => format!("int(0x{word:x}u)"),
            _ => format!("0x{word:x}u"),
        };
        let params: Vec<String> =
            kernel.params.iter().zip(&case.params).map(|(p, &w)| literal(p.ty, w)).collect();
        let mut args = names;
        if dialect == Dialect::Metal {
            if !params.is_empty() {
                args.push(format!("{}_params{{{}}}", kernel.name, params.join(", ")));
            }
            args.push("hzs::self".to_owned());
            args.push("uint3{hzs::group.x, hzs::group.y, hzs::group.z}".to_owned());
            args.push("uint3{hzs::grid.x, hzs::grid.y, hzs::grid.z}".to_owned());
        } else {
            args.extend(params);
        }
        let _ = writeln!(text, "static void launch{i}() {{ {}({}); }}", kernel.name, args.join(", "));
    }
    text.push_str("template <class T> T* take(FILE* f, size_t n) { T* p = (T*)aligned_alloc(64, (n * sizeof(T) + 127) / 64 * 64); if (fread(p, sizeof(T), n, f) != n) exit(2); return p; }\n");
    text.push_str("int main() {\n  FILE* in = fopen(\"input\", \"rb\");\n");
    for (i, case) in cases.iter().enumerate() {
        for (b, (decl, data)) in case.kernel.buffers.iter().zip(&case.buffers).enumerate() {
            let ty = c_elem(decl.elem);
            let _ = writeln!(text, "  c{i}_b{b} = take<{ty}>(in, {});", data.words.len());
        }
    }
    for (i, case) in cases.iter().enumerate() {
        let [x, y, z] = case.grid;
        let _ = writeln!(text, "  hzs::launch({{{x}, {y}, {z}}}, {}, launch{i});", case.kernel.workgroup);
    }
    text.push_str("  FILE* out = fopen(\"output\", \"wb\");\n");
    for (i, case) in cases.iter().enumerate() {
        for (b, data) in case.buffers.iter().enumerate() {
            let _ = writeln!(text, "  fwrite(c{i}_b{b}, sizeof *c{i}_b{b}, {}, out);", data.words.len());
        }
    }
    text.push_str("  return fclose(out);\n}\n");
    text
}

fn c_elem(elem: Elem) -> &'static str {
    match elem {
        Elem::F32 => "float",
        Elem::I32 => "int",
        Elem::U32 => "unsigned",
        Elem::F16 | Elem::U16 => "unsigned short",
        Elem::U8 => "unsigned char",
    }
}

/// Equal bits, or both NaN.
pub(crate) fn same(a: u32, b: u32) -> bool {
    a == b || (f32::from_bits(a).is_nan() && f32::from_bits(b).is_nan())
}

/// Checks that what a kernel wrote on the interpreter is what its text wrote in every dialect.
pub(crate) fn dialects_agree(name: &str, cases: &[Case]) {
    these_dialects_agree(name, &DIALECTS, cases);
}

/// [`dialects_agree`] of some.
pub(crate) fn these_dialects_agree(name: &str, dialects: &[Dialect], cases: &[Case]) {
    let expected: Vec<_> = cases.iter().map(Case::interpret).collect();
    for &dialect in dialects {
        let Some(got) = run_text(dialect, name, cases) else { return };
        for ((case, want), got) in cases.iter().zip(&expected).zip(got) {
            for ((decl, want), got) in case.kernel.buffers.iter().zip(want).zip(got) {
                if decl.access == Access::Read {
                    continue;
                }
                for (i, (want, got)) in want.words.iter().zip(&got.words).enumerate() {
                    let (Some(want), Some(got)) = (want, got) else { continue };
                    assert!(
                        same(*want, *got),
                        "{dialect:?}, {} `{}`[{i}]: {:e} ({want:#x}), the interpreter has {:e} ({got:#x})",
                        case.kernel.name,
                        decl.name,
                        f32::from_bits(*got),
                        f32::from_bits(*want),
                    );
                }
            }
        }
    }
}
