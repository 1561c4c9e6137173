//! Matrix fragments: a small f16 and a small i8 GEMM on the interpreter in every unit's layout, as text in every dialect over shims that keep
//! the vendors' layouts, and through the vendors' compilers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, unsafe_code)]

#[path = "common/amdgpu.rs"]
mod amdgpu;
mod common;
#[path = "common/nvrtc.rs"]
mod nvrtc;
#[path = "common/tools.rs"]
mod tools;

use common::{Case, Rng, dialects_agree, these_dialects_agree};
use hanzo_fusion::kernel::emit::{c, spirv};
use hanzo_fusion::kernel::interpret::{BufferData, FmaRounding, MatrixUnits, run_with};
use hanzo_fusion::kernel::ir::TILE;
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernel::{Array, Builder, Dialect, Elem, F16, Frag, Kernel, Side};
use hanzo_quant::f16;

/// `c[m, n] = Σ_k a[m, k] · b[n, k]`, a subgroup a tile of 16 × 16, two tiles of n a workgroup. A is staged in workgroup memory by all, B is read
/// where it lies.
fn gemm(elem: Elem, subgroup: u32) -> Kernel {
    let name = if elem == Elem::F16 { "gemm_f16" } else { "gemm_i8" };
    let doc =
        "One subgroup a tile of 16 × 16, two a workgroup; A staged by both. Order: k upward, 16 at a time.";
    let k = Builder::new(name, doc, 2 * subgroup, subgroup);
    match elem {
        Elem::F16 => {
            let (a, b, c) = (k.input::<F16>("a"), k.input::<F16>("b"), k.output::<f32>("c"));
            body(&k, a, b, c, k.shared::<F16>("tile", 256), (elem, Elem::F32));
        }
        _ => {
            let (a, b) = (k.input_small("a", Elem::U8), k.input_small("b", Elem::U8));
            let c = k.output::<i32>("c");
            body(&k, a, b, c, k.shared_small("tile", Elem::U8, 256), (elem, Elem::I32));
        }
    }
    k.finish().unwrap()
}

fn body<'k, T, S>(
    k: &'k Builder,
    a: Array<'k, T>,
    b: Array<'k, T>,
    c: Array<'k, S>,
    tile: Array<'k, T>,
    (elem, sum): (Elem, Elem),
) where
    T: hanzo_fusion::kernel::build::Register,
    S: hanzo_fusion::kernel::build::Register,
{
    let (n, n_k) = (k.param::<u32>("n"), k.param::<u32>("k"));
    let side = TILE as u32;
    let row = k.workgroup_id(0) * side;
    let column = (k.workgroup_id(1) * 2 + k.subgroup_id()) * side;
    let (x, y, acc) = (k.tile(Frag::A, elem), k.tile(Frag::B, elem), k.tile(Frag::Acc, sum));
    acc.zero();
    k.for_step(0, n_k, side, |at| {
        k.each(256, |i| tile.set(i, a.at((row + (i >> 4)) * n_k + at + (i & 15))));
        k.barrier();
        x.load(tile, 0, side);
        y.load(b, column * n_k + at, n_k);
        acc.mul_add(x, y);
        k.barrier();
    });
    acc.store(c, row * n + column, n);
}

/// A case of 32 × 64 × 48 whose every partial sum is exact, whatever the order; with what must come out.
fn exact(elem: Elem, subgroup: u32) -> (Case, Vec<u32>) {
    let [m, n, n_k] = [32usize, 64, 48];
    let mut rng = Rng(7);
    let mut small = |count: usize| -> Vec<i32> {
        // Halves: multiples of 1/8 up to 16. Bytes: all of them.
        (0..count).map(|_| i32::from(rng.next() as u8 as i8)).collect()
    };
    let (a, b) = (small(m * n_k), small(n * n_k));
    let word = |v: &i32| match elem {
        Elem::F16 => u32::from(f16::from_f32(*v as f32 / 8.0).to_bits()),
        _ => u32::from(*v as u8),
    };
    let want = (0..m * n).map(|i| {
        let (i, j) = (i / n, i % n);
        let sum: i32 = (0..n_k).map(|k| a[i * n_k + k] * b[j * n_k + k]).sum();
        if elem == Elem::F16 { (sum as f32 / 64.0).to_bits() } else { sum.cast_unsigned() }
    });
    let want = want.collect();
    let buffers = vec![
        BufferData::of(a.iter().map(word)),
        BufferData::of(b.iter().map(word)),
        BufferData::empty(m * n),
    ];
    let grid = [(m / TILE) as u32, (n / TILE / 2) as u32, 1];
    (
        Case { kernel: optimize(&gemm(elem, subgroup)), grid, buffers, params: vec![n as u32, n_k as u32] },
        want,
    )
}

const ELEMS: [Elem; 2] = [Elem::F16, Elem::U8];

#[test]
fn every_layout_multiplies_exactly() {
    for units in [MatrixUnits::Rows, MatrixUnits::MmaSync, MatrixUnits::Wmma, MatrixUnits::Mfma] {
        for elem in ELEMS {
            let (case, want) = exact(elem, units.lanes());
            for kernel in [case.kernel.clone(), gemm(elem, units.lanes())] {
                let mut buffers = case.buffers.clone();
                let run = run_with(FmaRounding::Once, units, &kernel, case.grid, &mut buffers, &case.params);
                run.unwrap_or_else(|e| panic!("{e}"));
                let got = buffers[2].u32s().unwrap();
                let bad = got.iter().zip(&want).filter(|(a, b)| a != b).count();
                assert_eq!(bad, 0, "{units:?} {elem:?}");
            }
        }
    }
}

#[test]
fn every_dialect_multiplies_as_the_interpreter_does() {
    let cases = |subgroup| ELEMS.map(|elem| exact(elem, subgroup).0);
    // CUDA by mma.sync, HIP by wmma, Metal by simdgroup matrices.
    dialects_agree("fragments", &cases(32));
    // HIP by mfma, whose waves are of 64.
    these_dialects_agree("fragments-64", &[Dialect::Hip], &cases(64));
}

#[test]
fn faults_of_fragments_are_those_of_their_lanes() {
    let fault = |kernel: &Kernel, elements: usize, params: &[u32]| {
        let mut buffers = vec![BufferData::of((0..elements as u32).map(|_| 0)), BufferData::empty(256)];
        run_with(FmaRounding::Once, MatrixUnits::MmaSync, kernel, [1; 3], &mut buffers, params)
            .unwrap_err()
            .to_string()
    };
    type Body<'a> = dyn Fn(&Builder, Array<'_, F16>, Array<'_, f32>) + 'a;
    let probe = |body: &Body<'_>| {
        let k = Builder::new("probe", "A probe.", 64, 32);
        let (a, c) = (k.input::<F16>("a"), k.output::<f32>("c"));
        body(&k, a, c);
        k.finish().unwrap()
    };
    let loads = probe(&|k, a, _| {
        let (index, stride) = (k.param::<u32>("index"), k.param::<u32>("stride"));
        k.tile(Frag::A, Elem::F16).load(a, index, stride);
    });
    let e = fault(&loads, 256, &[4, 16]);
    assert!(e.contains("element 4 of a fragment is not on 16 bytes") && e.contains("fragments.rs"), "{e}");
    // Row 15 is held by group 7 in its second half.
    let e = fault(&loads, 15 * 16, &[0, 16]);
    assert!(e.contains("invocation 28: `a`: element 240 of 240"), "{e}");
    let stores = probe(&|k, _, c| {
        let acc = k.tile(Frag::Acc, Elem::F32);
        acc.zero();
        acc.store(c, 0, 16);
    });
    let e = fault(&stores, 1, &[]);
    assert!(e.contains("invocation 32: `c`: element 0 races with invocation 0"), "{e}");
    let empty = probe(&|k, _, c| k.tile(Frag::Acc, Elem::F32).store(c, 0, 16));
    assert!(fault(&empty, 1, &[]).contains("a fragment that holds nothing is stored"));
    let spread = |first: u32| {
        probe(&|k, _, _| {
            let v = k.shared::<f32>("v", 32);
            k.tile(Frag::Acc, Elem::F32).spread(Side::Columns, v, first);
        })
    };
    // Lane 0 holds columns 0, 1, 8 and 9.
    let e = fault(&spread(4), 1, &[]);
    assert!(e.contains("invocation 0: `v`: element 4 is read, but was never written"), "{e}");
    assert!(fault(&spread(2), 1, &[]).contains("element 2 of a fragment is not on 16 bytes"));
    let hollow = probe(&|k, _, _| {
        let [a, b, to] = [(); 3].map(|()| k.tile(Frag::Acc, Elem::F32));
        a.zero();
        b.zero();
        to.fma(a, b);
    });
    assert!(fault(&hollow, 1, &[]).contains("a fragment that holds nothing is computed with"));
    let k = Builder::new("halves", "A probe.", 64, 32);
    k.tile(Frag::Acc, Elem::F32).float(k.tile(Frag::Acc, Elem::F32));
    let e = k.finish().unwrap_err().to_string();
    assert!(e.contains("Float(1) of") && e.contains("fragments.rs"), "{e}");
    let k = Builder::new("packed", "A probe.", 64, 32);
    k.tile(Frag::Acc, Elem::I32).load(k.input::<u32>("words"), 0, 16);
    assert!(k.finish().unwrap_err().to_string().contains("a fragment of I32 is loaded from U32"));
    let wide = optimize(&gemm(Elem::F16, 64));
    let buffers = &mut exact(Elem::F16, 64).0.buffers;
    let e = run_with(FmaRounding::Once, MatrixUnits::Wmma, &wide, [1; 3], buffers, &[64, 48]).unwrap_err();
    assert!(e.to_string().contains("Wmma fragments in subgroups of 64"), "{e}");
}

#[test]
fn cuda_compiles_them_to_mma() {
    let Some(nvrtc) = nvrtc::Nvrtc::open() else {
        return tools::missing("HANZO_TEST_CUDA names no folder with libnvrtc");
    };
    let source = tools::source(&ELEMS.map(|elem| optimize(&gemm(elem, 32))), Dialect::Cuda);
    for (arch, half, byte) in [
        ("sm_75", "m16n8k8", "m8n8k16"),
        ("sm_80", "m16n8k16", "m16n8k16"),
        ("sm_86", "m16n8k16", "m16n8k16"),
        ("sm_89", "m16n8k16", "m16n8k16"),
        ("sm_90", "m16n8k16", "m16n8k16"),
        ("sm_100", "m16n8k16", "m16n8k16"),
        ("sm_120", "m16n8k16", "m16n8k16"),
    ] {
        let out = nvrtc.compile(&source, arch).unwrap_or_else(|e| panic!("{arch}: {e}"));
        assert!(out.ptx.contains(&format!("mma.sync.aligned.{half}.row.col.f32.f16.f16.f32")), "{arch}");
        assert!(out.ptx.contains(&format!("mma.sync.aligned.{byte}.row.col.s32.s8.s8.s32")), "{arch}");
        assert!(
            out.kernels.len() == 2 && out.kernels.iter().all(|k| k.spills == [0; 3]),
            "{:?}",
            out.kernels
        );
    }
}

#[test]
fn hip_compiles_them_to_wmma_and_mfma() {
    let Some(clang) = amdgpu::Clang::find() else {
        return tools::missing("there is no clang 19 with lld for AMD's targets");
    };
    for (arch, width, half, byte) in [
        ("gfx90a", 64, "v_mfma_f32_16x16x16f16", "v_mfma_i32_16x16x16i8"),
        ("gfx942", 64, "v_mfma_f32_16x16x16_f16", "v_mfma_i32_16x16x32_i8"),
        ("gfx1100", 32, "v_wmma_f32_16x16x16_f16", "v_wmma_i32_16x16x16_iu8"),
        ("gfx1151", 32, "v_wmma_f32_16x16x16_f16", "v_wmma_i32_16x16x16_iu8"),
    ] {
        let kernels = ELEMS.map(|elem| optimize(&gemm(elem, width)));
        let out = clang.compile(&format!("fragments_{arch}"), &tools::source(&kernels, Dialect::Hip), arch);
        let out = out.unwrap_or_else(|e| panic!("{arch}: {e}"));
        for (kernel, instruction) in [("gemm_f16", half), ("gemm_i8", byte)] {
            assert!(out.in_a_loop(kernel, instruction), "{arch}: {kernel} has no {instruction} in its loop");
            assert_eq!(out.kernels[kernel].scratch, 0, "{arch}: {kernel}");
        }
    }
    // An architecture without units says so.
    let text = tools::source(&[optimize(&gemm(Elem::F16, 32))], Dialect::Hip);
    let error = clang.compile("fragments_none", &text, "gfx1030").unwrap_err();
    assert!(error.contains("no matrix units known for this architecture"), "{error}");
}

/// Opcodes of a module.
fn opcodes(words: &[u32]) -> Vec<u32> {
    let mut at = 5;
    let mut out = Vec::new();
    while at < words.len() {
        out.push(words[at] & 0xffff);
        at += (words[at] >> 16) as usize;
    }
    out
}

#[test]
fn spirv_has_them_as_cooperative_matrices() {
    const TYPE: u32 = 4456;
    const LOAD: u32 = 4457;
    const STORE: u32 = 4458;
    const MUL_ADD: u32 = 4459;
    for elem in ELEMS {
        let words = spirv::module(&optimize(&gemm(elem, 32))).unwrap();
        let ops = opcodes(&words);
        let count = |op| ops.iter().filter(|o| **o == op).count();
        assert_eq!([TYPE, LOAD, MUL_ADD, STORE].map(count), [3, 2, 1, 1], "{elem:?}");
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gemm-{elem:?}.spv"));
        // Debian 12's spirv-val knows no cooperative matrices; scripts/test.sh fetches a newer one and names it.
        let Some(validator) = std::env::var_os("HANZO_TEST_SPIRV_VAL") else {
            tools::missing("HANZO_TEST_SPIRV_VAL names no spirv-val that knows cooperative matrices");
            continue;
        };
        let validate = |words: &[u32]| {
            std::fs::write(&path, words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()).unwrap();
            let mut command = std::process::Command::new(&validator);
            command.args(["--target-env", "vulkan1.3"]).arg(&path).output().unwrap()
        };
        let out = validate(&words);
        assert!(out.status.success(), "{elem:?}: {}", String::from_utf8_lossy(&out.stderr));
        // That it looks at them: without the capability the module is invalid.
        const CAPABILITY: [u32; 2] = [2 << 16 | 17, 6022];
        let at = words.windows(2).position(|pair| pair == CAPABILITY).unwrap();
        let out = validate(&[&words[..at], &words[at + 2..]].concat());
        assert!(!out.status.success(), "{elem:?} is valid without CooperativeMatrixKHR");
    }
}

#[test]
fn texts_name_what_they_hold() {
    for dialect in common::DIALECTS {
        let text = c::source(&gemm(Elem::U8, 32), dialect);
        for part in [
            "hz_frag_a_i8 f0;",
            "hz_frag_acc_i32 f2;",
            "alignas(16) HZ_SHARED uchar tile[256];",
            "hz_frag_mul_add(f2, f0, f1);",
        ] {
            assert!(text.contains(part), "{dialect:?}: {part} in\n{text}");
        }
        let plain = Builder::new("plain", "No fragments.", 64, 32).finish().unwrap();
        assert!(!c::source(&plain, dialect).contains("hz_frag"), "{dialect:?}");
    }
}
