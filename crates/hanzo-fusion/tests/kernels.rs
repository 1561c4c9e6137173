//! The kernels against the CPU oracle, and every dialect's text against the interpreter.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, unsafe_code)]

mod common;

use common::vulkan::Vulkan;
use common::{Case, Rng, dialects_agree, same};
use hanzo_fusion::kernel::interpret::{BufferData, FmaRounding};
use hanzo_fusion::kernel::opt::optimize;
use hanzo_fusion::kernel::{Access, Kernel};
use hanzo_fusion::kernels::layout::Layout;
use hanzo_fusion::kernels::norm::Residual;
use hanzo_fusion::kernels::{matmul, norm, quantize};
use hanzo_quant::canonical::{GROUP, QuantizedRow};
use hanzo_quant::{Format, QuantType};

const WIDTHS: [u32; 3] = [8, 32, 64];

fn both(kernel: Kernel) -> [Kernel; 2] {
    [optimize(&kernel), kernel]
}

fn words(codes: &[i8]) -> impl Iterator<Item = u32> + '_ {
    codes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0] as u8, c[1] as u8, c[2] as u8, c[3] as u8]))
}

/// Row norms of awkward widths.
fn norm_cases(subgroup: u32, residual: Residual) -> Vec<Case> {
    let mut rng = Rng(1);
    [1usize, 31, 256, 300, 1024]
        .into_iter()
        .flat_map(|n| {
            let rows = 3;
            let (x, delta, w) = (rng.floats(rows * n), rng.floats(rows * n), rng.floats(n));
            both(norm::rms_norm(subgroup, residual).unwrap()).map(|kernel| {
                let mut buffers = vec![BufferData::of_f32(&x)];
                if residual == Residual::Add {
                    buffers.push(BufferData::of_f32(&delta));
                }
                buffers.extend([BufferData::of_f32(&w), BufferData::empty(rows * n)]);
                Case { kernel, grid: [rows as u32, 1, 1], buffers, params: vec![n as u32, 1e-5f32.to_bits()] }
            })
        })
        .collect()
}

#[test]
fn add_rmsnorm_numeric() {
    for subgroup in WIDTHS {
        for residual in [Residual::None, Residual::Add] {
            for case in norm_cases(subgroup, residual) {
                let out = case.interpret();
                let n = case.params[0] as usize;
                let x = case.buffers[0].f32s().unwrap();
                let (delta, at) = match residual {
                    Residual::None => (vec![0.0; x.len()], 1),
                    Residual::Add => (case.buffers[1].f32s().unwrap(), 2),
                };
                let weight = case.buffers[at].f32s().unwrap();
                let y = out[at + 1].f32s().unwrap();
                let sums: Vec<f32> = x.iter().zip(&delta).map(|(x, d)| x + d).collect();
                if residual == Residual::Add {
                    assert_eq!(out[0].f32s().unwrap(), sums);
                }
                for ((row, y), r) in sums.chunks(n).zip(y.chunks(n)).zip(0..) {
                    let mean = row.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / n as f64;
                    let factor = 1.0 / (mean + 1e-5).sqrt();
                    for ((v, w), got) in row.iter().zip(&weight).zip(y) {
                        let want = f64::from(*v) * factor * f64::from(*w);
                        let bound = 1e-6 * want.abs() + 1e-12;
                        assert!((f64::from(*got) - want).abs() <= bound, "row {r} of {n}: {got} for {want}");
                    }
                }
            }
        }
    }
}

#[test]
fn norms_say_the_same_in_every_dialect() {
    let mut cases = norm_cases(32, Residual::None);
    cases.extend(norm_cases(32, Residual::Add));
    dialects_agree("norms", &cases);
}

fn quantize_cases(subgroup: u32) -> Vec<(Case, Vec<f32>)> {
    let mut rng = Rng(2);
    [1usize, 3, 32, 67]
        .into_iter()
        .flat_map(|groups| {
            let mut x = rng.floats(groups * GROUP);
            // A group of nothing, one too small to count, and one with an infinity.
            for (g, value) in [(1, 0.0), (2, f32::from_bits(1 << 23)), (3, f32::INFINITY)] {
                if let Some(v) = x.get_mut(g * GROUP..(g + 1) * GROUP) {
                    v.fill(0.0);
                    v[5] = value;
                }
            }
            both(quantize::quantize_q8(subgroup).unwrap()).map(|kernel| {
                let grid = [(groups as u32 * 8).div_ceil(kernel.workgroup), 1, 1];
                let buffers =
                    vec![BufferData::of_f32(&x), BufferData::empty(groups * 8), BufferData::empty(groups)];
                (Case { kernel, grid, buffers, params: vec![groups as u32] }, x.clone())
            })
        })
        .collect()
}

#[test]
fn activations_are_quantized_to_the_canonical_bits() {
    for subgroup in WIDTHS {
        for (case, x) in quantize_cases(subgroup) {
            let out = case.interpret();
            let want = QuantizedRow::new(&x);
            assert_eq!(out[1].u32s().unwrap(), words(&want.codes).collect::<Vec<_>>());
            let d = out[2].u32s().unwrap();
            assert!(d.iter().zip(&want.d).all(|(a, b)| same(*a, b.to_bits())), "{d:?} {:?}", want.d);
        }
    }
    let cases: Vec<_> = quantize_cases(32).into_iter().map(|(case, _)| case).collect();
    dialects_agree("quantize", &cases);
}

/// Every block format, in the order of the table.
fn formats() -> impl Iterator<Item = (&'static Format, Layout)> {
    QuantType::ALL.iter().filter_map(|t| {
        let format = t.format();
        Some((format, Layout::of(format)?))
    })
}

/// Rows of random bytes: scales of every kind, NaN and infinite ones among them.
fn matvec_case(
    layout: Layout,
    subgroup: u32,
    shape: [usize; 3],
    optimized: bool,
    rng: &mut Rng,
) -> (Case, Vec<u8>, Vec<f32>) {
    let [n_out, blocks, m] = shape;
    let n_in = blocks * layout.format.elems;
    let raw = rng.bytes(n_out * blocks * layout.format.bytes);
    let x = rng.floats(m * n_in);
    let batch = m.min(3) as u32;
    let kernel = matmul::qmatvec(layout, subgroup, batch).unwrap();
    let kernel = if optimized { optimize(&kernel) } else { kernel };
    let planes = layout.pack(&raw);
    let mut buffers = vec![BufferData::of(planes.codes)];
    if layout.scale_bytes() > 0 {
        buffers.push(BufferData::of(planes.scales.into_iter().map(u32::from)));
    }
    buffers.push(BufferData::of(planes.supers));
    let row = QuantizedRow::new(&x);
    buffers.push(BufferData::of(words(&row.codes)));
    buffers.push(BufferData::of_f32(&row.d));
    buffers.push(BufferData::empty(m * n_out));
    let rows_at_once = kernel.workgroup / subgroup;
    let grid = [(n_out as u32).div_ceil(rows_at_once), (m as u32).div_ceil(batch), 1];
    let params = vec![(n_in / GROUP) as u32, n_out as u32, m as u32];
    (Case { kernel, grid, buffers, params }, raw, x)
}

/// The order of the kernel, in plain Rust: a lane's groups one after the other, then the butterfly.
fn matvec_reference(layout: Layout, subgroup: u32, raw: &[u8], x: &[f32], n_out: usize) -> Vec<u32> {
    let (format, view) = (layout.format, layout.view);
    let row_bytes = raw.len() / n_out;
    let n_in = row_bytes / format.bytes * format.elems;
    let mut out = Vec::new();
    for x in x.chunks_exact(n_in) {
        let x = QuantizedRow::new(x);
        for row in raw.chunks_exact(row_bytes) {
            let mut lanes = vec![0f32; subgroup as usize];
            let mut codes = vec![0i8; format.elems];
            for g in 0..n_in / GROUP {
                let per_block = format.elems / GROUP;
                let block = &row[g / per_block * format.bytes..][..format.bytes];
                (view.read_codes)(block, &mut codes);
                let first = g % per_block * GROUP;
                let (mut p, mut mins) = (None, Vec::new());
                for j in 0..GROUP / view.sub_block {
                    let range = j * view.sub_block..(j + 1) * view.sub_block;
                    let w = &codes[first..][range.clone()];
                    let a = &x.codes[g * GROUP..][range];
                    let idot: i32 = w.iter().zip(a).map(|(&w, &a)| i32::from(w) * i32::from(a)).sum();
                    let isum: i32 = a.iter().map(|&a| i32::from(a)).sum();
                    let sub = (view.sub_scale)(block, (first / view.sub_block) + j);
                    p = Some(match p {
                        None => sub.scale() * idot as f32,
                        Some(p) => sub.scale().mul_add(idot as f32, p),
                    });
                    mins.push((sub.min(), isum));
                }
                let mut p = p.unwrap();
                if view.asymmetric {
                    p = mins.iter().fold(p, |p, (min, isum)| (-min).mul_add(*isum as f32, p));
                }
                let lane = &mut lanes[g % subgroup as usize];
                *lane = x.d[g].mul_add(p, *lane);
            }
            let mut offset = subgroup as usize / 2;
            while offset > 0 {
                lanes = (0..lanes.len()).map(|i| lanes[i] + lanes[i ^ offset]).collect();
                offset /= 2;
            }
            out.push(lanes[0].to_bits());
        }
    }
    out
}

#[test]
fn qmatvec_unified_numeric() {
    let mut rng = Rng(3);
    for (format, layout) in formats() {
        let mut bad = 0;
        for subgroup in WIDTHS {
            for (shape, optimized) in [([1, 1, 1], false), ([5, 3, 4], true), ([67, 2, 1], true)] {
                let (case, raw, x) = matvec_case(layout, subgroup, shape, optimized, &mut rng);
                let got = case.interpret().pop().unwrap().u32s().unwrap();
                let want = matvec_reference(layout, subgroup, &raw, &x, shape[0]);
                bad += got.iter().zip(&want).filter(|(a, b)| !same(**a, **b)).count();
            }
        }
        assert_eq!(bad, 0, "{}", format.name);
    }
}

#[test]
fn matvec_says_the_same_in_every_dialect() {
    let mut rng = Rng(4);
    let cases: Vec<_> =
        formats().map(|(_, layout)| matvec_case(layout, 32, [3, 2, 2], true, &mut rng).0).collect();
    dialects_agree("matvec", &cases);
}

/// The first place where the two differ by more than `ulps`, with what stands there.
fn difference(case: &Case, want: &[BufferData], got: &[BufferData], ulps: u32) -> Option<String> {
    let written =
        case.kernel.buffers.iter().zip(want).zip(got).filter(|((decl, _), _)| decl.access != Access::Read);
    written.into_iter().find_map(|((decl, want), got)| {
        want.words.iter().zip(&got.words).enumerate().find_map(|(i, (want, got))| {
            let (want, got) = ((*want)?, (*got)?);
            // Neighbouring floats of one sign have neighbouring bits.
            let near = want.abs_diff(got) <= ulps || same(want, got) || (want | got) << 1 == 0;
            let [w, g] = [want, got].map(f32::from_bits);
            let name = &case.kernel.name;
            let text = format!(
                "{name} `{}`[{i}]: {g:e} ({got:#x}), the interpreter has {w:e} ({want:#x})",
                decl.name
            );
            (!near).then_some(text)
        })
    })
}

/// Runs cases made for the device's width on it: what it wrote is what the interpreter wrote, within `ulps`, with one kind of fma in
/// all of a case.
fn vulkan_agrees(ulps: u32, cases: impl Fn(u32) -> Vec<Case>) {
    let Some(vulkan) = Vulkan::new() else { return };
    for case in cases(vulkan.subgroup) {
        let got = vulkan.run(&case);
        let differences = [FmaRounding::Once, FmaRounding::Twice]
            .map(|fma| difference(&case, &case.interpret_as(fma), &got, ulps));
        if let [Some(once), Some(twice)] = differences {
            panic!("with fused fma: {once}\nwith separate: {twice}");
        }
    }
}

#[test]
fn vulkan_runs_the_kernels() {
    // One quotient and one square root, 2.5 ulp each at most.
    vulkan_agrees(6, |subgroup| {
        let mut cases = norm_cases(subgroup, Residual::None);
        cases.extend(norm_cases(subgroup, Residual::Add));
        cases
    });
    vulkan_agrees(0, |subgroup| quantize_cases(subgroup).into_iter().map(|(case, _)| case).collect());
    vulkan_agrees(0, |subgroup| {
        let mut rng = Rng(5);
        formats().map(|(_, layout)| matvec_case(layout, subgroup, [5, 2, 2], true, &mut rng).0).collect()
    });
}
