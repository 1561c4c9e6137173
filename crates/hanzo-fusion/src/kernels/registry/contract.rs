//! Contractions: few rows and many, over one matrix and over experts' stacks.

use hanzo_quant::QuantType;
use hanzo_quant::canonical::GROUP;

use super::super::layout::Layout;
use super::super::matmul::Rows;
use super::super::matmul::float::{Float, FloatMatmul};
use super::super::matmul::gemm::{Gemm, Rung, Tile};
use super::super::matmul::matvec::{MatVec, Pair};
use super::super::moe;
use super::super::variants::{QMATVEC, Variants};
use super::experts::prompt_tiles;
use super::{
    EXPERT_WIDTH, EXPERTS, EXPERTS_HIDDEN, FEED_FORWARD, HIDDEN, Instance, Launch, PER_TOKEN, PROMPT,
    REPRESENTATIVES, layouts, suffix,
};
use crate::graph::Activation;

/// A matrix (of a stack) and the rows or slots that it meets.
#[derive(Clone, Copy)]
struct Shape {
    n_out: u32,
    n_in: u32,
    n_rows: u32,
    experts: bool,
}

const DENSE: Shape = Shape { n_out: HIDDEN, n_in: HIDDEN, n_rows: 1, experts: false };
/// A decoded token's slots.
const SLOTS: Shape = Shape { n_out: EXPERT_WIDTH, n_in: EXPERTS_HIDDEN, n_rows: PER_TOKEN, experts: true };

impl Shape {
    /// The launch with `inner` columns' worth of `unit` a row: groups of a block format, or elements.
    fn launch(self, grid: [u32; 2], inner: (&'static str, u32)) -> Launch {
        let Shape { n_out, n_in, n_rows, experts } = self;
        let rows = if experts { "slots" } else { "rows" };
        let mut params = vec![inner, ("n_out", n_out), ("n_rows", n_rows)];
        if experts {
            params.extend([("per_token", PER_TOKEN), ("n_experts", EXPERTS)]);
        }
        // Which experts is not said: what slots ask for counts, not the one matrix that would be all of theirs.
        Launch {
            shape: format!("{n_out} × {n_in}, {rows}: {n_rows}"),
            grid: [grid[0], grid[1], 1],
            params,
            reads: vec![],
        }
    }

    fn groups(self) -> (&'static str, u32) {
        ("n_groups", self.n_in / GROUP as u32)
    }
}

/// Whether it stands for others: of the twins, which differ from the kernels over one matrix by where rows come from, two do.
fn is_representative(layout: &Layout, twin: bool) -> bool {
    let names = if twin { &["Q4_K", "MXFP4"][..] } else { &REPRESENTATIVES[..] };
    names.contains(&layout.format.name)
}

pub(super) fn matvec(subgroup: u32, variants: &Variants) -> Vec<Instance> {
    let one = |layout: Layout, batch: u32| {
        let shape = Shape { n_rows: batch, ..DENSE };
        let usual = format!("qmatvec_{}_x{batch}", suffix(&layout));
        if variants.plain_matvec {
            let tile = Tile { m: batch, ..Variants::PLAIN_TILE };
            let plan = Gemm { layout, rows: Rows::Dense, rung: Rung::Column, tile };
            let [width, height] = plan.outputs_per_workgroup();
            let grid = [shape.n_out.div_ceil(width), shape.n_rows.div_ceil(height)];
            let name = format!("qmatvec_column_{}_x{batch}", suffix(&layout));
            return Instance::new(&name, plan.kernel(subgroup), shape.launch(grid, shape.groups()))
                .reading(layout.format)
                .standing_in(usual, QMATVEC);
        }
        let plan = MatVec { layout, pair: None, rows: Rows::Dense, batch };
        few(&usual, plan, shape, subgroup)
    };
    layouts().flat_map(|layout| [1, 4].map(|batch| one(layout, batch))).collect()
}

fn few(name: &str, plan: MatVec, shape: Shape, subgroup: u32) -> Instance {
    let rows = if shape.experts { shape.n_rows } else { shape.n_rows.div_ceil(plan.batch) };
    let grid = [shape.n_out.div_ceil(plan.rows_per_workgroup(subgroup)), rows];
    Instance::new(name, plan.kernel(subgroup), shape.launch(grid, shape.groups())).reading(plan.layout.format)
}

pub(super) fn pair(subgroup: u32, variants: &Variants) -> Vec<Instance> {
    if variants.plain_matvec {
        return Vec::new();
    }
    let one = |layout: Layout| {
        let pair = Some(Pair { up: layout, f: Activation::Silu });
        let plan = MatVec { layout, pair, rows: Rows::Dense, batch: 1 };
        let name = format!("qmatvec_pair_{}", suffix(&layout));
        let shape = Shape { n_out: FEED_FORWARD, ..DENSE };
        Instance { representative: is_representative(&layout, true), ..few(&name, plan, shape, subgroup) }
    };
    layouts().map(one).collect()
}

pub(super) fn expert_matvec(subgroup: u32, variants: &Variants) -> Vec<Instance> {
    let one = |layout: Layout| {
        let usual = format!("qmatvec_experts_{}", suffix(&layout));
        if variants.plain_matvec {
            // Its slots are grouped as a prompt's are, a slot a tile.
            let tile = Tile { m: 1, ..Variants::PLAIN_TILE };
            let plan = Gemm { layout, rows: Rows::Experts, rung: Rung::Column, tile };
            let tiles = moe::max_tiles(SLOTS.n_rows as usize, EXPERTS as usize, 1) as u32;
            let i = many("qmatvec_experts", plan, SLOTS, Some(tiles), subgroup);
            return i.standing_in(usual, QMATVEC);
        }
        let plan = MatVec { layout, pair: None, rows: Rows::Experts, batch: 1 };
        Instance { representative: is_representative(&layout, true), ..few(&usual, plan, SLOTS, subgroup) }
    };
    layouts().map(one).collect()
}

pub(super) fn expert_pair(subgroup: u32, variants: &Variants) -> Vec<Instance> {
    if variants.plain_matvec {
        return Vec::new();
    }
    let one = |layout: Layout| {
        let pair = Some(Pair { up: layout, f: Activation::Silu });
        let plan = MatVec { layout, pair, rows: Rows::Experts, batch: 1 };
        let name = format!("qmatvec_pair_experts_{}", suffix(&layout));
        Instance { representative: is_representative(&layout, true), ..few(&name, plan, SLOTS, subgroup) }
    };
    layouts().map(one).collect()
}

/// A GEMM and, where it is not the usual rung, what it stands in for.
fn many(family: &str, plan: Gemm, shape: Shape, tiles: Option<u32>, subgroup: u32) -> Instance {
    let [width, height] = plan.outputs_per_workgroup();
    let grid = [shape.n_out.div_ceil(width), tiles.unwrap_or_else(|| shape.n_rows.div_ceil(height))];
    let mut launch = shape.launch(grid, shape.groups());
    if tiles.is_some() {
        launch.reads = vec![("order", 0), ("tile_first", 0), ("tile_end", height)];
    }
    let usual = format!("{family}_{}", suffix(&plan.layout));
    let name = match Variants::rung_name(plan.rung) {
        "" => usual.clone(),
        rung => format!("{family}_{rung}_{}", suffix(&plan.layout)),
    };
    let instance = Instance::new(&name, plan.kernel(subgroup), launch).reading(plan.layout.format);
    let instance = Instance { representative: is_representative(&plan.layout, shape.experts), ..instance };
    match Variants::rung_variable(plan.rung) {
        Some(variable) => instance.standing_in(usual, variable),
        None => instance,
    }
}

pub(super) fn gemm(subgroup: u32, variants: &Variants) -> Vec<Instance> {
    let rung = variants.gemm;
    let one = |layout: Layout| {
        let plan = Gemm { layout, rows: Rows::Dense, rung, tile: Variants::prompt_tile(rung) };
        many("qgemm", plan, Shape { n_rows: PROMPT, ..DENSE }, None, subgroup)
    };
    layouts().map(one).collect()
}

pub(super) fn expert_gemm(subgroup: u32, variants: &Variants) -> Vec<Instance> {
    let (tile, n_tiles) = prompt_tiles();
    // Tiles of one height, whatever walks them.
    let tile = match variants.gemm {
        Rung::Column => Tile { m: tile.height(), ..Variants::PLAIN_TILE },
        _ => tile,
    };
    let one = |layout: Layout| {
        let plan = Gemm { layout, rows: Rows::Experts, rung: variants.gemm, tile };
        many("qgemm_experts", plan, Shape { n_rows: PROMPT * PER_TOKEN, ..SLOTS }, Some(n_tiles), subgroup)
    };
    layouts().map(one).collect()
}

const FLOATS: [(&str, Float, QuantType); 3] = [
    ("f32", Float::F32, QuantType::F32),
    ("f16", Float::F16, QuantType::F16),
    ("bf16", Float::Bf16, QuantType::BF16),
];

/// For prompts: 64 × 64 outputs.
const FLOAT_TILE: Tile = Tile { tx: 16, ty: 16, n: 4, m: 4 };

fn float_instance(name: &str, plan: FloatMatmul, shape: Shape, ty: QuantType, subgroup: u32) -> Instance {
    let grid = [shape.n_out.div_ceil(plan.tile.width()), shape.n_rows.div_ceil(plan.tile.height())];
    Instance::new(name, plan.kernel(subgroup), shape.launch(grid, ("n_in", shape.n_in))).reading(ty.format())
}

pub(super) fn float(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let both = |(name, float, ty)| {
        [
            (format!("matmul_{name}_x1"), FloatMatmul::MATVEC, 1),
            (format!("matmul_{name}"), FLOAT_TILE, PROMPT),
        ]
        .map(|(name, tile, n_rows)| {
            let plan = FloatMatmul { float, rows: Rows::Dense, tile };
            float_instance(&name, plan, Shape { n_rows, ..DENSE }, ty, subgroup)
        })
    };
    FLOATS.into_iter().flat_map(both).collect()
}

pub(super) fn expert_float(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let one = |(name, float, ty)| {
        let plan = FloatMatmul { float, rows: Rows::Experts, tile: FloatMatmul::MATVEC };
        float_instance(&format!("matmul_experts_{name}"), plan, SLOTS, ty, subgroup)
    };
    FLOATS.map(one).into()
}
