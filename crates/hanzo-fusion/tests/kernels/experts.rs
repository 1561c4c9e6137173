//! Mixtures of experts: routing, grouping, and the contractions' twins.

use hanzo_fusion::graph::Activation;
use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_fusion::kernels::layout::Layout;
use hanzo_fusion::kernels::matmul::Rows;
use hanzo_fusion::kernels::matmul::float::{Float, FloatMatmul};
use hanzo_fusion::kernels::matmul::gemm::{Gemm, Rung, Tile};
use hanzo_fusion::kernels::matmul::matvec::{MatVec, Pair};
use hanzo_fusion::kernels::moe::{Route, group_slots, max_tiles};
use hanzo_quant::canonical::{GROUP, matmul};
use hanzo_quant::{QuantType, math};

use crate::harness::{
    Check, Rng, activations, bits, encode, everywhere, formats, interpreted, layout, planes,
};
use crate::matmul::{UP, W, float_weights};
use crate::rows::row_fold;

/// Softmax, top-k and shares, as the CPU's ops compute them one after the other.
fn route(logits: &[f32], top_k: usize, normalize: Option<f32>) -> (Vec<u32>, Vec<f32>) {
    let max = logits.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    let exps: Vec<f32> = logits.iter().map(|x| math::exp(x - max)).collect();
    let sum = row_fold(&exps, |acc, x| acc + x);
    let p: Vec<f32> = exps.iter().map(|x| x / sum).collect();
    let mut ids: Vec<usize> = (0..p.len()).collect();
    let key = |i: usize| if p[i].is_nan() { f32::NEG_INFINITY } else { p[i] };
    // Stable: the lower column first among equals.
    ids.sort_by(|&a, &b| key(b).partial_cmp(&key(a)).unwrap());
    ids.truncate(top_k);
    let top: Vec<f32> = ids.iter().map(|&i| p[i]).collect();
    let weights = match normalize {
        Some(floor) => {
            let sum = row_fold(&top, |acc, x| acc + x);
            top.iter().map(|x| x / if sum > floor { sum } else { floor }).collect()
        }
        None => top,
    };
    (ids.iter().map(|&i| i as u32).collect(), weights)
}

#[test]
fn moe_route_numeric() {
    // Two quotients of 2.5 ulp each.
    everywhere("route", 6, |subgroup| {
        let mut rng = Rng(20);
        let shapes =
            [(4, 1, Some(0.0)), (8, 2, Some(6e-5)), (60, 4, None), (128, 8, Some(0.0)), (257, 16, None)];
        let one = |(n_experts, top_k, normalize): (usize, usize, Option<f32>)| {
            let tokens = 3;
            let mut logits = rng.floats(tokens * n_experts);
            logits.iter_mut().for_each(|x| *x *= 8.0);
            // Equals, in the second row.
            logits[n_experts..n_experts + 3].fill(9.0);
            let (mut ids, mut weights) = (Vec::new(), Vec::new());
            for row in logits.chunks(n_experts) {
                let (i, w) = route(row, top_k, normalize);
                ids.extend(i);
                weights.extend(bits(&w));
            }
            let plan = Route { n_experts: n_experts as u32, top_k: top_k as u32, normalize };
            let buffers = vec![
                ("logits", BufferData::of_f32(&logits)),
                ("ids", BufferData::empty(ids.len())),
                ("weights", BufferData::empty(ids.len())),
            ];
            let want = vec![("ids", ids), ("weights", weights)];
            Check::new(&plan.kernel(subgroup).unwrap(), [tokens as u32, 1, 1], buffers, &[], want)
        };
        shapes.map(one).into()
    });
}

/// Slots of an expert in ascending order, and the tiles over them.
fn grouped(ids: &[u32], n_experts: u32, height: u32) -> [Vec<u32>; 4] {
    let (mut order, mut expert, mut first, mut end) = (vec![], vec![], vec![], vec![]);
    for e in 0..n_experts {
        let start = order.len() as u32;
        order.extend((0..).zip(ids).filter(|(_, id)| **id == e).map(|(s, _): (u32, _)| s));
        let stop = order.len() as u32;
        for at in (start..stop).step_by(height as usize) {
            expert.push(e);
            first.push(at);
            end.push(stop.min(at + height));
        }
    }
    let tiles = max_tiles(ids.len(), n_experts as usize, height as usize);
    assert!(expert.len() <= tiles);
    expert.resize(tiles, n_experts);
    first.resize(tiles, 0);
    end.resize(tiles, 0);
    [order, expert, first, end]
}

#[test]
fn slots_are_grouped_by_expert() {
    everywhere("group", 0, |subgroup| {
        let mut rng = Rng(21);
        [(1usize, 4u32, 16u32), (70, 8, 16), (64, 300, 32)]
            .map(|(slots, n_experts, height)| {
                let ids: Vec<u32> = (0..slots).map(|_| (rng.next() % u64::from(n_experts)) as u32).collect();
                let [order, expert, first, end] = grouped(&ids, n_experts, height);
                let buffers = vec![
                    ("ids", BufferData::of(ids)),
                    ("order", BufferData::empty(slots)),
                    ("tile_expert", BufferData::empty(expert.len())),
                    ("tile_first", BufferData::empty(expert.len())),
                    ("tile_end", BufferData::empty(expert.len())),
                ];
                let params = [("n_slots", slots as u32), ("n_tiles", expert.len() as u32)];
                let kernel = group_slots(n_experts, height, subgroup).unwrap();
                let want =
                    vec![("order", order), ("tile_expert", expert), ("tile_first", first), ("tile_end", end)];
                Check::new(&kernel, [1, 1, 1], buffers, &params, want)
            })
            .into()
    });
}

/// A stack of experts, tokens, and who goes where.
pub(crate) struct Stack {
    layout: Layout,
    raw: Vec<u8>,
    x: Vec<f32>,
    ids: Vec<u32>,
    n_experts: usize,
    n_out: usize,
    n_in: usize,
    per_token: usize,
}

impl Stack {
    pub(crate) fn new(layout: Layout, tokens: usize, per_token: usize, rng: &mut Rng) -> Self {
        let (n_experts, n_out, blocks) = (5, 19, 256usize.div_ceil(layout.format.elems));
        let n_in = blocks * layout.format.elems;
        let raw = rng.bytes(n_experts * n_out * blocks * layout.format.bytes);
        let ids = (0..tokens * per_token).map(|_| (rng.next() % n_experts as u64) as u32).collect();
        Self { layout, raw, x: rng.floats(tokens * n_in), ids, n_experts, n_out, n_in, per_token }
    }

    /// `[S, n_out]`: every slot alone.
    fn want(&self, raw: &[u8]) -> Vec<f32> {
        let per_expert = raw.len() / self.n_experts;
        let slots = self.ids.iter().enumerate();
        let one = |(s, &id): (usize, &u32)| {
            let x = &self.x[s / self.per_token * self.n_in..][..self.n_in];
            matmul(
                self.layout.format,
                &raw[id as usize * per_expert..][..per_expert],
                self.n_out,
                self.n_in,
                x,
            )
        };
        slots.flat_map(one).collect()
    }

    fn params(&self) -> [(&'static str, u32); 5] {
        let n_groups = self.n_in / GROUP;
        [
            ("n_groups", n_groups as u32),
            ("n_out", self.n_out as u32),
            ("n_rows", self.ids.len() as u32),
            ("per_token", self.per_token as u32),
            ("n_experts", self.n_experts as u32),
        ]
    }

    fn buffers(&self) -> Vec<(&'static str, BufferData)> {
        let mut buffers = planes(W, &self.layout, &self.raw);
        buffers.extend(activations(&self.x));
        buffers.push(("y", BufferData::empty(self.ids.len() * self.n_out)));
        buffers
    }

    pub(crate) fn matvec(&self, subgroup: u32) -> Check {
        let plan = MatVec { layout: self.layout, pair: None, rows: Rows::Experts, batch: 1 };
        let mut buffers = self.buffers();
        buffers.push(("ids", BufferData::of(self.ids.clone())));
        let grid =
            [(self.n_out as u32).div_ceil(plan.rows_per_workgroup(subgroup)), self.ids.len() as u32, 1];
        let want = vec![("y", bits(&self.want(&self.raw)))];
        Check::new(&plan.kernel(subgroup).unwrap(), grid, buffers, &self.params(), want)
    }

    pub(crate) fn gemm(&self, subgroup: u32, tile: Tile) -> Check {
        self.gemm_by(Rung::Dot4, subgroup, tile)
    }

    pub(crate) fn gemm_by(&self, rung: Rung, subgroup: u32, tile: Tile) -> Check {
        let plan = Gemm { layout: self.layout, rows: Rows::Experts, rung, tile };
        let [order, expert, first, end] = grouped(&self.ids, self.n_experts as u32, tile.height());
        let grid = [(self.n_out as u32).div_ceil(tile.width()), expert.len() as u32, 1];
        let mut buffers = self.buffers();
        let tables = [("order", order), ("tile_expert", expert), ("tile_first", first), ("tile_end", end)];
        buffers.extend(tables.map(|(name, words)| (name, BufferData::of(words))));
        let want = vec![("y", bits(&self.want(&self.raw)))];
        Check::new(&plan.kernel(subgroup).unwrap(), grid, buffers, &self.params(), want)
    }
}

const SMALL: Tile = Tile { tx: 16, ty: 8, n: 1, m: 1 };

#[test]
fn indexed_matvec_and_grouped_gemm_numeric() {
    interpreted(&|subgroup| {
        let mut rng = Rng(22);
        let stacks = formats().map(|(_, layout)| Stack::new(layout, 3, 2, &mut rng));
        stacks.flat_map(|stack| [stack.matvec(subgroup), stack.gemm(subgroup, SMALL)]).collect()
    });
}

#[test]
fn experts_on_every_target() {
    everywhere("experts", 0, |subgroup| {
        let mut rng = Rng(23);
        let mut checks = Vec::new();
        for name in ["Q4_K", "Q5_0", "Q2_K", "IQ2_XXS", "IQ1_S", "MXFP4", "NVFP4"] {
            // Slots with rows of their own, and slots that share their token's.
            for (tokens, per_token) in [(9, 1), (7, 4)] {
                let stack = Stack::new(layout(name), tokens, per_token, &mut rng);
                checks.push(stack.matvec(subgroup));
                checks.push(stack.gemm(subgroup, SMALL));
            }
        }
        checks.push(Stack::new(layout("Q4_K"), 17, 4, &mut rng).gemm(subgroup, Tile::for_fill(14)));
        checks
    });
}

#[test]
fn the_experts_gated_pair_numeric() {
    // Random scales may be anything; the gate's quotient is 2.5 ulp off at most, its argument's error grows with it.
    everywhere("experts_pair", 64, |subgroup| {
        let mut rng = Rng(24);
        let mut stack = Stack::new(layout("Q8_0"), 4, 3, &mut rng);
        let weights = rng.floats(2 * stack.n_experts * stack.n_out * stack.n_in);
        let raw = encode(QuantType::Q8_0, stack.n_in, &weights);
        let (gate, up) = raw.split_at(raw.len() / 2);
        stack.raw = gate.to_vec();
        let pair = Pair { up: stack.layout, f: Activation::Silu };
        let plan = MatVec { layout: stack.layout, pair: Some(pair), rows: Rows::Experts, batch: 1 };
        let mut buffers = stack.buffers();
        buffers.extend(planes(UP, &stack.layout, up));
        buffers.push(("ids", BufferData::of(stack.ids.clone())));
        let grid =
            [(stack.n_out as u32).div_ceil(plan.rows_per_workgroup(subgroup)), stack.ids.len() as u32, 1];
        let (g, u) = (stack.want(gate), stack.want(up));
        let want: Vec<_> = g.iter().zip(&u).map(|(&g, u)| math::silu(g) * u).collect();
        let want = vec![("y", bits(&want))];
        vec![Check::new(&plan.kernel(subgroup).unwrap(), grid, buffers, &stack.params(), want)]
    });
}

#[test]
fn float_experts_numeric() {
    everywhere("float_experts", 0, |subgroup| {
        let mut rng = Rng(25);
        let (n_experts, n_out, n_in, tokens, per_token) = (3usize, 7usize, 50usize, 3usize, 2usize);
        [Float::F32, Float::F16, Float::Bf16]
            .map(|float| {
                let (data, raw, ty) = float_weights(float, &rng.floats(n_experts * n_out * n_in));
                let x = rng.floats(tokens * n_in);
                let ids: Vec<u32> = (0..tokens * per_token).map(|_| (rng.next() % 3) as u32).collect();
                let per_expert = raw.len() / n_experts;
                let one = |(s, &id): (usize, &u32)| {
                    let x = &x[s / per_token * n_in..][..n_in];
                    matmul(ty.format(), &raw[id as usize * per_expert..][..per_expert], n_out, n_in, x)
                };
                let want: Vec<f32> = ids.iter().enumerate().flat_map(one).collect();
                let plan = FloatMatmul { float, rows: Rows::Experts, tile: FloatMatmul::MATVEC };
                let params = [
                    ("n_in", n_in as u32),
                    ("n_out", n_out as u32),
                    ("n_rows", ids.len() as u32),
                    ("per_token", per_token as u32),
                    ("n_experts", n_experts as u32),
                ];
                let grid = [(n_out as u32).div_ceil(plan.tile.width()), ids.len() as u32, 1];
                let buffers = vec![
                    ("w", data),
                    ("x", BufferData::of_f32(&x)),
                    ("y", BufferData::empty(want.len())),
                    ("ids", BufferData::of(ids)),
                ];
                Check::new(&plan.kernel(subgroup).unwrap(), grid, buffers, &params, vec![("y", bits(&want))])
            })
            .into()
    });
}
