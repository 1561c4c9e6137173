//! Low-rank adapters in a step: which rows use which, and where the two halves of their updates happen.
//!
//! `A·x` is computed before a launch's contractions, for the rows that use an adapter and for those of the launch's weights that it
//! updates. `B·u` is added by the epilogue to a segment that has just left the core. Rows without adapters take part in
//! neither, and a step without adapters has no [`Updates`] at all.

use hanzo_fusion::graph::{Elem, Graph, Value, Weight};
use hanzo_fusion::{Adapter, DeviceError, Domain, Launch, LaunchKind, LowRank, Step};

use super::contract::Output;
use super::run::Running;
use crate::isa::Isa;
use crate::low_rank::{self, ROWS};
use crate::pool::Ctx;

/// The adapters that a step uses.
#[derive(Debug, Default)]
pub(super) struct Adapters<'a> {
    used: Vec<&'a Adapter>,
    tokens: RowUses,
    outputs: RowUses,
}

/// Uses by the rows of a domain.
#[derive(Debug, Default)]
struct RowUses {
    /// Rows that use each adapter.
    rows: Vec<Vec<usize>>,
    /// All uses, row after row, each row's in the order of its request.
    uses: Vec<Use>,
    /// First use of each row, and their number.
    first: Vec<usize>,
}

/// A row's use of an adapter.
#[derive(Clone, Copy, Debug)]
struct Use {
    adapter: usize,
    /// The row's place among those that use the adapter.
    place: usize,
    scale: f32,
}

impl<'a> Adapters<'a> {
    /// Checks that the adapters fit the graph, and sorts their uses. `sequence_of` gives the sequence of each row.
    pub(super) fn new(step: &Step<'a>, graph: &Graph, sequence_of: &[usize]) -> Result<Self, DeviceError> {
        let mut used: Vec<&'a Adapter> = Vec::new();
        let mut of_sequence: Vec<Vec<(usize, f32)>> = Vec::new();
        for (i, sequence) in step.sequences.iter().enumerate() {
            let mut uses = Vec::new();
            for u in sequence.adapters {
                let known = used.iter().position(|a| std::ptr::eq(*a, u.adapter));
                if known.is_none() && !u.adapter.fits(graph) {
                    let why = format!("sequence {i}: its adapter was made for another model");
                    return Err(DeviceError::InvalidStep(why));
                }
                let adapter = known.unwrap_or_else(|| {
                    used.push(u.adapter);
                    used.len() - 1
                });
                uses.push((adapter, u.scale));
            }
            of_sequence.push(uses);
        }
        if used.is_empty() {
            return Ok(Self::default());
        }
        let of_row = |row: usize| sequence_of.get(row).and_then(|s| of_sequence.get(*s));
        let tokens = RowUses::new(used.len(), (0..sequence_of.len()).map(of_row));
        let outputs =
            RowUses::new(used.len(), step.outputs.iter().chain(step.hidden).map(|&row| of_row(row as usize)));
        Ok(Self { used, tokens, outputs })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    fn of(&self, domain: Domain) -> &RowUses {
        match domain {
            Domain::Tokens => &self.tokens,
            Domain::Outputs | Domain::Logits => &self.outputs,
        }
    }

    /// Adds the updates of a looked-up embedding to it; `row` is a row of tokens.
    pub(super) fn embed(&self, isa: Isa, row: usize, token: usize, y: &mut [f32]) {
        for u in self.tokens.of(row) {
            if let Some(update) = self.used.get(u.adapter).and_then(|a| a.embedding()) {
                let stride = update.rank_stride();
                let a = update.a().get(token * stride..).unwrap_or_default();
                low_rank::add(isa, update, a, u.scale * update.scale(), 0, y);
            }
        }
    }
}

impl RowUses {
    fn new<'u>(n_adapters: usize, rows: impl Iterator<Item = Option<&'u Vec<(usize, f32)>>>) -> Self {
        let mut all = Self { rows: vec![Vec::new(); n_adapters], ..Self::default() };
        for (row, uses) in rows.enumerate() {
            all.first.push(all.uses.len());
            for &(adapter, scale) in uses.into_iter().flatten() {
                let users = &mut all.rows[adapter];
                all.uses.push(Use { adapter, place: users.len(), scale });
                users.push(row);
            }
        }
        all.first.push(all.uses.len());
        all
    }

    fn of(&self, row: usize) -> &[Use] {
        match self.first.get(row..row + 2) {
            Some(&[from, to]) => &self.uses[from..to],
            _ => &[],
        }
    }
}

/// The updates of a launch's products.
#[derive(Debug)]
pub(super) struct Updates<'a> {
    domain: Domain,
    weights: Vec<Weight>,
    /// One a weight and adapter, the adapters of a weight side by side.
    blocks: Vec<Option<Block<'a>>>,
    n_adapters: usize,
    /// Floats that the projections take.
    pub(super) len: usize,
    /// Pieces of work of the projection: block and first of the [`ROWS`] users.
    items: Vec<(usize, usize)>,
}

/// An update that rows of the step use.
#[derive(Clone, Copy, Debug)]
struct Block<'a> {
    update: &'a LowRank,
    adapter: usize,
    /// Where the projections of its rows start.
    base: usize,
}

impl<'a> Updates<'a> {
    /// Those of a launch with these outputs; empty for one that no adapter concerns.
    pub(super) fn new(graph: &Graph, launch: &Launch, outputs: &[Output], adapters: &Adapters<'a>) -> Self {
        let mut all = Self {
            domain: Domain::Tokens,
            weights: outputs.iter().flat_map(Output::weights).copied().collect(),
            blocks: Vec::new(),
            n_adapters: adapters.used.len(),
            len: 0,
            items: Vec::new(),
        };
        let LaunchKind::Contract { x, ids: None, .. } = launch.kind else { return all };
        all.domain = Domain::of(graph.nodes[x.index()].shape.rows);
        let users = adapters.of(all.domain);
        for &weight in &all.weights {
            for (adapter, used) in adapters.used.iter().enumerate() {
                let n = users.rows[adapter].len();
                let block = used.product(weight).filter(|_| n > 0).map(|update| {
                    let base = all.len;
                    all.len += n * update.rank_stride();
                    all.items.extend((0..n).step_by(ROWS).map(|first| (all.blocks.len(), first)));
                    Block { update, adapter, base }
                });
                all.blocks.push(block);
            }
        }
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn block(&self, weight: Weight, adapter: usize) -> Option<Block<'a>> {
        let at = self.weights.iter().position(|w| *w == weight)?;
        *self.blocks.get(at * self.n_adapters + adapter)?
    }

    /// Adds the updates of `weight` to columns `n0..` of row `m` of its product.
    ///
    /// # Safety
    /// [`project`] is through, and nobody writes its results any more.
    pub(super) unsafe fn add(
        &self,
        r: &Running<'_>,
        isa: Isa,
        weight: Weight,
        m: usize,
        n0: usize,
        y: &mut [f32],
    ) {
        for u in r.inputs.adapters.of(self.domain).of(m) {
            if let Some(block) = self.block(weight, u.adapter) {
                let stride = block.update.rank_stride();
                // SAFETY: inside what the launch's projections take; the caller's promise.
                let x = unsafe {
                    std::slice::from_raw_parts(r.projected.add(block.base + u.place * stride), stride)
                };
                low_rank::add(isa, block.update, x, u.scale * block.update.scale(), n0, y);
            }
        }
    }
}

/// Computes the projections of a launch with input `x` on all threads, and waits for them. `rows` is scratch memory of the thread.
///
/// # Safety
/// All threads of the run call it together; `x` was made by an earlier launch.
pub(super) unsafe fn project(
    ctx: &Ctx<'_>,
    r: &Running<'_>,
    x: Value,
    updates: &Updates<'_>,
    rows: &mut Vec<f32>,
) {
    let shape = r.view.graph.nodes[x.index()].shape;
    rows.resize(ROWS * shape.cols, 0.0);
    ctx.claim(updates.items.len(), |i| {
        let (at, first) = updates.items[i];
        let Some(block) = updates.blocks[at] else { return };
        let users = &r.inputs.adapters.of(updates.domain).rows[block.adapter][first..];
        let mut n = 0;
        for (&row, out) in users.iter().zip(rows.chunks_exact_mut(shape.cols)) {
            match shape.elem {
                Elem::Quantized => r.view.quantized(x).dequantize_row(ctx.isa(), row, out),
                _ => {
                    let (p, len) = r.view.words(x, row, 1);
                    // SAFETY: in bounds; made by an earlier launch.
                    out.copy_from_slice(unsafe { std::slice::from_raw_parts(p, len) });
                }
            }
            n += 1;
        }
        let stride = block.update.rank_stride();
        // SAFETY: inside what the launch's projections take; every piece is claimed once.
        let out = unsafe {
            std::slice::from_raw_parts_mut(r.projected.add(block.base + first * stride), n * stride)
        };
        low_rank::project(ctx.isa(), block.update, rows, out);
    });
    ctx.barrier();
}
