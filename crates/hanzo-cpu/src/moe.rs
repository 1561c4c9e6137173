//! Contractions over routed experts: rows are grouped by expert, and each group goes through one of the two cores.
#![allow(unsafe_code)]

use crate::contract::{Finish, Rows};
use crate::packed::PackedMatrix;
use crate::pool::Ctx;
use crate::{gemm, matvec};

/// Which expert each (token, slot) pair goes to, grouped by expert.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// First entry of each expert in `order`; one more at the end.
    offsets: Vec<u32>,
    /// Pairs `token · top_k + slot`, by expert, ascending within one.
    order: Vec<u32>,
}

impl Routes {
    /// Groups the pairs; `ids[token · top_k + slot]` is an expert below `experts`. Ids beyond are dropped (their result rows are
    /// not written). Reuses memory.
    pub fn build(&mut self, ids: &[u32], experts: usize) {
        self.offsets.clear();
        self.offsets.resize(experts + 1, 0);
        for &id in ids {
            if let Some(n) = self.offsets.get_mut(id as usize + 1) {
                *n += 1;
            }
        }
        let mut sum = 0;
        for n in &mut self.offsets {
            sum += *n;
            *n = sum;
        }
        self.order.clear();
        self.order.resize(sum as usize, 0);
        let mut next = self.offsets.clone();
        for (pair, &id) in ids.iter().enumerate() {
            if (id as usize) < experts {
                let slot = &mut next[id as usize];
                self.order[*slot as usize] = pair as u32;
                *slot += 1;
            }
        }
    }

    /// Number of experts.
    pub fn experts(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Pairs that go to expert `expert`.
    pub fn of(&self, expert: usize) -> &[u32] {
        &self.order[self.offsets[expert] as usize..self.offsets[expert + 1] as usize]
    }

    /// Input rows that the largest pair needs.
    pub(crate) fn rows(&self, x_div: usize) -> usize {
        self.order.iter().max().map_or(0, |&p| p as usize / x_div + 1)
    }
}

pub(crate) fn run<const P: usize>(
    ctx: &Ctx<'_>,
    w: [&PackedMatrix; P],
    x: Rows<'_>,
    x_div: usize,
    routes: &Routes,
    out: &dyn Finish<P>,
) {
    let Some(first) = w.first() else { return };
    let (strips, k) = (first.strips(), first.n_in());
    let busy: Vec<usize> = (0..routes.experts()).filter(|&e| !routes.of(e).is_empty()).collect();
    let chunk = gemm::chunk::<P>(strips * busy.len(), ctx.threads()).min(strips);
    let chunks = strips.div_ceil(chunk);
    let mut few: Option<(usize, matvec::Strips<'_, P>)> = None;
    let mut many: Option<(usize, gemm::Core<'_, P>)> = None;
    gemm::with_workspace(|space| {
        ctx.claim(busy.len() * chunks, |item| {
            let (expert, first) = (busy[item / chunks], item % chunks * chunk);
            let taken = first..strips.min(first + chunk);
            let pairs = routes.of(expert);
            if gemm::pays(ctx.isa(), &w, pairs.len()) {
                if many.as_ref().is_none_or(|(e, _)| *e != expert) {
                    let block = gemm::gather(x, k, pairs, |pair| pair as usize / x_div, space);
                    many = Some((expert, gemm::Core::new(ctx.isa(), w, block, space)));
                }
                if let Some((_, core)) = &many {
                    core.strips(space, expert, taken, out);
                }
            } else {
                if few.as_ref().is_none_or(|(e, _)| *e != expert) {
                    let row = |i: usize| (pairs[i] as usize / x_div, pairs[i] as usize);
                    few = Some((expert, matvec::Strips::new(ctx.isa(), w, x, pairs.len(), row)));
                }
                if let Some((_, strips_of)) = &mut few {
                    taken.for_each(|strip| strips_of.compute(expert, strip, out));
                }
            }
        });
    });
}
