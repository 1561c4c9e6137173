//! Registers of an invocation, estimated: the most values that are alive at one point, in the order that the kernel was written in.

use super::super::ir::{Block, Frag, Kernel, Op, TILE};

/// What addresses, the launch's own values and the assembler's temporaries take beside a kernel's values.
const OVERHEAD: u32 = 12;

/// 32-bit registers of a lane. Compilers reorder loads (up) and rematerialize (down): take it as good to a factor of two.
pub fn registers(kernel: &Kernel) -> u32 {
    let mut lives = Lives { at: 0, spans: vec![None; kernel.n_values as usize] };
    lives.block(&kernel.body);
    let types = kernel.value_types();
    let mut change = vec![0i64; lives.at + 2];
    for (span, ty) in lives.spans.iter().zip(&types) {
        if let Some((from, to)) = span
            && to > from
        {
            change[*from] += i64::from(ty.lanes);
            change[*to] -= i64::from(ty.lanes);
        }
    }
    let (_, most) = change.iter().fold((0, 0), |(now, most), c| (now + c, most.max(now + c)));
    let fragments: u32 = kernel
        .fragments
        .iter()
        .map(|f| {
            let bytes = if f.role == Frag::Acc { 4 } else { f.elem.bytes() };
            (TILE * TILE * bytes / 4) as u32 / kernel.subgroup.max(1)
        })
        .sum();
    u32::try_from(most).unwrap_or(u32::MAX) + kernel.vars.len() as u32 + fragments + OVERHEAD
}

struct Lives {
    at: usize,
    /// By value: where it is defined, and the last place that needs it.
    spans: Vec<Option<(usize, usize)>>,
}

impl Lives {
    fn block(&mut self, block: &Block) {
        for inst in &block.0 {
            self.at += 1;
            for v in inst.op.operands() {
                if let Some(Some(span)) = self.spans.get_mut(v.0 as usize) {
                    span.1 = self.at;
                }
            }
            let start = self.at;
            if let Op::For { index, .. } = inst.op {
                self.spans[index.0 as usize] = Some((start, start));
            }
            inst.op.blocks().for_each(|b| self.block(b));
            if matches!(inst.op, Op::For { .. }) {
                // What a round reads from outside is needed until the last round.
                self.at += 1;
                let end = self.at;
                for span in self.spans.iter_mut().flatten() {
                    if span.0 <= start && span.1 > start {
                        span.1 = end;
                    }
                }
            }
            // Constants, parameters and indices of the invocation cost nothing to make again.
            let free = matches!(inst.op, Op::Const(_) | Op::Param(_) | Op::Builtin(_));
            if let Some((id, _)) = inst.def
                && !free
            {
                self.spans[id.0 as usize] = Some((self.at, self.at));
            }
        }
    }
}
