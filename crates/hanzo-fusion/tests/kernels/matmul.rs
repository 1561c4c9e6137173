//! Contractions: every format, every rung, against `canonical::matmul` by the bit.

use hanzo_fusion::graph::Activation;
use hanzo_fusion::kernel::Kernel;
use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_fusion::kernels::layout::Layout;
use hanzo_fusion::kernels::matmul::float::{Float, FloatMatmul};
use hanzo_fusion::kernels::matmul::gemm::{Gemm, Rung, Tile};
use hanzo_fusion::kernels::matmul::matvec::{MatVec, Pair};
use hanzo_fusion::kernels::matmul::{Rows, qmatvec};
use hanzo_quant::canonical::{GROUP, matmul};
use hanzo_quant::{QuantType, math};

use crate::harness::{
    Check, Rng, activations, bits, encode, everywhere, formats, interpreted, layout, planes, vulkan_agrees,
};

pub(crate) const W: [&str; 3] = ["w_codes", "w_scales", "w_supers"];
pub(crate) const UP: [&str; 3] = ["up_codes", "up_scales", "up_supers"];

/// `n_out` rows of `blocks` blocks by `m` rows of activations.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) n_out: usize,
    pub(crate) blocks: usize,
    pub(crate) m: usize,
}

/// A matrix of random bytes (scales of every kind, NaN and infinite ones among them), activations, and the kernel on them.
fn check(layout: Layout, kernel: &Kernel, per_workgroup: [u32; 2], shape: Shape, rng: &mut Rng) -> Check {
    let Shape { n_out, blocks, m } = shape;
    let n_in = blocks * layout.format.elems;
    let raw = rng.bytes(n_out * blocks * layout.format.bytes);
    let x = rng.floats(m * n_in);
    let mut buffers = planes(W, &layout, &raw);
    buffers.extend(activations(&x));
    buffers.push(("y", BufferData::empty(m * n_out)));
    let grid = [(n_out as u32).div_ceil(per_workgroup[0]), (m as u32).div_ceil(per_workgroup[1]), 1];
    let params = [("n_groups", (n_in / GROUP) as u32), ("n_out", n_out as u32), ("n_rows", m as u32)];
    let want = matmul(layout.format, &raw, n_out, n_in, &x);
    Check::new(kernel, grid, buffers, &params, vec![("y", bits(&want))])
}

pub(crate) fn matvec(layout: Layout, subgroup: u32, shape: Shape, batch: u32, rng: &mut Rng) -> Check {
    let kernel = qmatvec(layout, subgroup, batch).unwrap();
    let plan = MatVec { layout, pair: None, rows: Rows::Dense, batch };
    check(layout, &kernel, [plan.rows_per_workgroup(subgroup), batch], shape, rng)
}

pub(crate) fn gemm(
    layout: Layout,
    subgroup: u32,
    rung: Rung,
    tile: Tile,
    shape: Shape,
    rng: &mut Rng,
) -> Check {
    let plan = Gemm { layout, rows: Rows::Dense, rung, tile };
    check(layout, &plan.kernel(subgroup).unwrap(), plan.outputs_per_workgroup(), shape, rng)
}

#[test]
fn qmatvec_unified_numeric() {
    interpreted(&|subgroup| {
        let mut rng = Rng(3);
        let shapes = [(1, 1, 1, 1), (37, 3, 3, 2), (5, 2, 8, 8)];
        let all = formats().flat_map(|(_, layout)| shapes.map(|shape| (layout, shape)));
        all.map(|(layout, (n_out, blocks, m, batch))| {
            matvec(layout, subgroup, Shape { n_out, blocks, m }, batch, &mut rng)
        })
        .collect()
    });
}

#[test]
fn qmatvec_on_every_target() {
    everywhere("matvec", 0, |subgroup| {
        let mut rng = Rng(4);
        let shape = Shape { n_out: 9, blocks: 2, m: 2 };
        formats().map(|(_, layout)| matvec(layout, subgroup, shape, 2, &mut rng)).collect()
    });
}

/// 16 × 8 invocations of 1 × 2 outputs.
pub(crate) const SMALL: Tile = Tile { tx: 16, ty: 8, n: 1, m: 2 };

#[test]
fn qgemm_core_numeric() {
    interpreted(&|subgroup| {
        let mut rng = Rng(5);
        let shapes = [(1, 1, 1), (19, 3, 17)];
        let all = formats().flat_map(|(_, layout)| shapes.map(|shape| (layout, shape)));
        all.map(|(layout, (n_out, blocks, m))| {
            gemm(layout, subgroup, Rung::Dot4, SMALL, Shape { n_out, blocks, m }, &mut rng)
        })
        .collect()
    });
}

#[test]
fn qgemm_core_on_every_target() {
    let shape = Shape { n_out: 17, blocks: 1, m: 18 };
    // What a format's planes can be made of, in every dialect; all formats on Vulkan, which compiles faster.
    everywhere("gemm", 0, |subgroup| {
        let mut rng = Rng(6);
        let names = ["Q8_0", "Q4_1", "Q5_K", "Q2_K", "Q3_K", "IQ4_XS", "IQ3_S", "IQ1_M", "NVFP4"];
        let one = |name| gemm(layout(name), subgroup, Rung::Dot4, SMALL, shape, &mut rng);
        names.map(one).into()
    });
    vulkan_agrees(0, |subgroup| {
        let mut rng = Rng(6);
        formats().map(|(_, layout)| gemm(layout, subgroup, Rung::Dot4, SMALL, shape, &mut rng)).collect()
    });
}

/// Large tiles, and the plain rungs: the same bits.
#[test]
fn the_rungs_of_the_gemm_give_the_same_bits() {
    everywhere("rungs", 0, |subgroup| {
        let mut rng = Rng(7);
        let mut checks = Vec::new();
        for name in ["Q4_K", "Q6_K", "Q8_0", "Q2_K", "MXFP4"] {
            let layout = layout(name);
            let shape = Shape { n_out: 33, blocks: 2, m: 35 };
            for rung in [Rung::F32, Rung::Column] {
                checks.push(gemm(layout, subgroup, rung, SMALL, shape, &mut rng));
            }
        }
        let shape = Shape { n_out: 67, blocks: 3, m: 67 };
        checks.push(gemm(
            layout("Q4_0"),
            subgroup,
            Rung::Dot4,
            Tile { n: 4, m: 4, ty: 16, ..SMALL },
            shape,
            &mut rng,
        ));
        checks
    });
}

#[test]
fn the_large_tile_fits_workgroup_memory() {
    for (format, layout) in formats() {
        let plan = Gemm { layout, rows: Rows::Dense, rung: Rung::Dot4, tile: Tile::LARGE };
        let kernel = plan.kernel(32).unwrap_or_else(|e| panic!("{}: {e}", format.name));
        assert!(kernel.shared_bytes() <= 32 << 10);
    }
}

/// The gated pair on one quantized activation, two formats.
#[test]
fn the_gated_pair_numeric() {
    everywhere("pair", 16, |subgroup| {
        let mut rng = Rng(8);
        let formats = [("Q4_K", "Q6_K", Activation::Silu), ("Q8_0", "Q8_0", Activation::GeluTanh)];
        formats
            .map(|(gate, up, f)| {
                let (gate, up) = (layout(gate), layout(up));
                let (n_out, n_in, m) = (11, 512, 3);
                // Plain weights: a gate of NaN says nothing.
                let weights = |rng: &mut Rng, l: &Layout| {
                    let w = rng.floats(n_out * n_in);
                    let ty = QuantType::from_name(l.format.name).unwrap();
                    encode(ty, n_in, &w)
                };
                let (raw, raw_up, x) =
                    (weights(&mut rng, &gate), weights(&mut rng, &up), rng.floats(m * n_in));
                let plan = MatVec { layout: gate, pair: Some(Pair { up, f }), rows: Rows::Dense, batch: 2 };
                let mut buffers = planes(W, &gate, &raw);
                buffers.extend(planes(UP, &up, &raw_up));
                buffers.extend(activations(&x));
                buffers.push(("y", BufferData::empty(m * n_out)));
                let products =
                    [(gate, &raw), (up, &raw_up)].map(|(l, raw)| matmul(l.format, raw, n_out, n_in, &x));
                let f = if f == Activation::Silu { math::silu } else { math::gelu_tanh };
                let want: Vec<_> = products[0].iter().zip(&products[1]).map(|(&g, u)| f(g) * u).collect();
                let grid = [(n_out as u32).div_ceil(plan.rows_per_workgroup(subgroup)), 2, 1];
                let params =
                    [("n_groups", (n_in / GROUP) as u32), ("n_out", n_out as u32), ("n_rows", m as u32)];
                Check::new(&plan.kernel(subgroup).unwrap(), grid, buffers, &params, vec![("y", bits(&want))])
            })
            .into()
    });
}

/// Float weights as elements of a buffer.
pub(crate) fn float_weights(float: Float, w: &[f32]) -> (BufferData, Vec<u8>, QuantType) {
    let ty = match float {
        Float::F32 => QuantType::F32,
        Float::F16 => QuantType::F16,
        Float::Bf16 => QuantType::BF16,
    };
    let raw = encode(ty, w.len(), w);
    let data = match float {
        Float::F32 => BufferData::of_f32(w),
        _ => BufferData::of(raw.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]])))),
    };
    (data, raw, ty)
}

#[test]
fn float_weights_numeric() {
    everywhere("floats", 0, |subgroup| {
        let mut rng = Rng(9);
        let mut checks = Vec::new();
        for float in [Float::F32, Float::F16, Float::Bf16] {
            let wide = Tile { tx: 16, ty: 16, n: 2, m: 1 };
            for (n_out, n_in, m, tile) in
                [(5, 1, 1, FloatMatmul::MATVEC), (70, 77, 3, FloatMatmul::MATVEC), (37, 100, 18, wide)]
            {
                let w = rng.floats(n_out * n_in);
                let (data, raw, ty) = float_weights(float, &w);
                let x = rng.floats(m * n_in);
                let want = matmul(ty.format(), &raw, n_out, n_in, &x);
                let plan = FloatMatmul { float, rows: Rows::Dense, tile };
                let buffers =
                    vec![("w", data), ("x", BufferData::of_f32(&x)), ("y", BufferData::empty(m * n_out))];
                let grid = [(n_out as u32).div_ceil(tile.width()), (m as u32).div_ceil(tile.height()), 1];
                let params = [("n_in", n_in as u32), ("n_out", n_out as u32), ("n_rows", m as u32)];
                checks.push(Check::new(
                    &plan.kernel(subgroup).unwrap(),
                    grid,
                    buffers,
                    &params,
                    vec![("y", bits(&want))],
                ));
            }
        }
        checks
    });
}

#[test]
fn the_large_tile_runs_on_vulkan() {
    vulkan_agrees(0, |subgroup| {
        let shape = Shape { n_out: 130, blocks: 1, m: 67 };
        vec![gemm(layout("Q4_K"), subgroup, Rung::Dot4, Tile::LARGE, shape, &mut Rng(10))]
    });
}
