//! Counts what a launch does.

use super::super::interpret::{binary, convert};
use super::super::ir::{Block, Builtin, Elem, FragOp, Kernel, Mem, Op, Scalar, TILE, Ty, ValueId};

/// Bytes and operations of a whole launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Bytes that invocations ask of each buffer, loads and stores together.
    pub requested: Vec<u64>,
    /// Bytes of each buffer up to the last element that the launch touches; `None` where an index is not known beforehand.
    pub extent: Vec<Option<u64>>,
    /// Bytes that go to and from workgroup memory.
    pub shared_bytes: u64,
    /// Packed dot products: eight each.
    pub int8_ops: u64,
    /// f32 arithmetic: one each, a fused multiply-add two.
    pub flops: u64,
    /// Everything else that computes: integers, conversions, selections, comparisons, shuffles.
    pub integer_ops: u64,
    /// Fragment products of halves: a multiply-add two.
    pub matrix_f16_ops: u64,
    /// Fragment products of bytes.
    pub matrix_i8_ops: u64,
    /// Barriers of a workgroup.
    pub barriers: u64,
    /// Whether all loop bounds and conditions were known; where not, a loop counts one round and a condition holds.
    pub exact: bool,
}

impl Count {
    /// Bytes of device memory: a buffer's part that is touched, once; or what is asked for, where that is less or all that is known.
    pub fn dram_bytes(&self) -> u64 {
        let buffers = self.requested.iter().zip(&self.extent);
        buffers.map(|(&asked, extent)| extent.map_or(asked, |e| e.min(asked))).sum()
    }
}

/// Counts a launch of `kernel` over `grid` with the bits of its parameters, all workgroups taken to be like the first. `reads` gives what a load
/// from the named buffer stands for.
pub fn count(kernel: &Kernel, grid: [u32; 3], params: &[u32], reads: &[(&str, u32)]) -> Count {
    let reads = kernel.buffers.iter().map(|b| reads.iter().find(|(name, _)| *name == b.name).map(|r| r.1));
    let mut walker = Walker {
        kernel,
        types: kernel.value_types(),
        grid,
        params,
        reads: reads.collect(),
        group: [0; 3],
        invocation: 0,
        known: vec![None; kernel.n_values as usize],
        vars: vec![None; kernel.vars.len()],
        total: Count {
            requested: vec![0; kernel.buffers.len()],
            extent: vec![Some(0); kernel.buffers.len()],
            exact: true,
            ..Count::default()
        },
    };
    for invocation in 0..kernel.workgroup {
        walker.start([0; 3], invocation);
        walker.block(&kernel.body, 1);
    }
    // The far end of what is touched lies in the last workgroup along some axis.
    let last = grid.map(|n| n.saturating_sub(1));
    for group in [[last[0], 0, 0], [0, last[1], 0], [0, 0, last[2]], last] {
        for invocation in 0..kernel.workgroup {
            walker.start(group, invocation);
            walker.block(&kernel.body, 0);
        }
    }
    let workgroups = grid.iter().map(|&n| u64::from(n)).product::<u64>();
    let mut total = walker.total;
    total.requested.iter_mut().for_each(|bytes| *bytes *= workgroups);
    let Count { shared_bytes, int8_ops, flops, integer_ops, matrix_f16_ops, matrix_i8_ops, .. } = &mut total;
    for n in [shared_bytes, int8_ops, flops, integer_ops, matrix_f16_ops, matrix_i8_ops] {
        *n *= workgroups;
    }
    total.barriers /= u64::from(kernel.workgroup.max(1));
    total
}

struct Walker<'a> {
    kernel: &'a Kernel,
    types: Vec<Ty>,
    grid: [u32; 3],
    params: &'a [u32],
    reads: Vec<Option<u32>>,
    group: [u32; 3],
    invocation: u32,
    /// What is known of each value.
    known: Vec<Option<u32>>,
    vars: Vec<Option<u32>>,
    total: Count,
}

impl Walker<'_> {
    fn start(&mut self, group: [u32; 3], invocation: u32) {
        (self.group, self.invocation) = (group, invocation);
        self.known.fill(None);
        self.vars.fill(None);
    }

    fn get(&self, v: ValueId) -> Option<u32> {
        self.known[v.0 as usize]
    }

    fn scalar(&self, v: ValueId) -> Scalar {
        self.types[v.0 as usize].scalar
    }

    fn block(&mut self, block: &Block, times: u64) {
        for inst in &block.0 {
            let value = self.instruction(&inst.op, times);
            if let Some((id, _)) = inst.def {
                self.known[id.0 as usize] = value;
            }
        }
    }

    /// Counts an instruction that runs `times` times; gives its value where that is known.
    fn instruction(&mut self, op: &Op, times: u64) -> Option<u32> {
        let width = self.kernel.subgroup.max(1);
        match op {
            Op::Const(c) => return Some(c.bits()),
            Op::Param(p) => return self.params.get(*p as usize).copied(),
            Op::Builtin(b) => {
                return Some(match b {
                    Builtin::LocalId => self.invocation,
                    Builtin::WorkgroupId(axis) => self.group[usize::from(*axis) % 3],
                    Builtin::NumWorkgroups(axis) => self.grid[usize::from(*axis) % 3],
                    Builtin::Lane => self.invocation % width,
                    Builtin::SubgroupId => self.invocation / width,
                });
            }
            Op::Binary(op, a, b) => {
                self.arithmetic(self.scalar(*a), u64::from(!op.compares()), times);
                return binary(*op, self.scalar(*a), self.get(*a)?, self.get(*b)?).ok();
            }
            Op::Unary(_, a) => self.arithmetic(self.scalar(*a), 1, times),
            Op::Fma(..) => self.total.flops += 2 * times,
            Op::Dot4(..) => self.total.int8_ops += 8 * times,
            Op::Select(c, a, b) => {
                self.total.integer_ops += times;
                return self.get(if self.get(*c)? != 0 { *a } else { *b });
            }
            Op::Cast(cast, to, a) => {
                self.total.integer_ops += times;
                return convert(*cast, self.scalar(*a), *to, self.get(*a)?).ok();
            }
            Op::Load { mem, index, lanes } => {
                self.access(*mem, *index, u64::from(*lanes), times);
                return match mem {
                    Mem::Buffer(b) if *lanes == 1 => self.reads[*b as usize],
                    Mem::Table(t) => {
                        let table = &self.kernel.tables.get(*t as usize)?.words;
                        table.get(self.get(*index)? as usize).copied()
                    }
                    _ => None,
                };
            }
            Op::Store { mem, index, .. } => self.access(*mem, *index, 1, times),
            Op::Atomic { mem, index, .. } => self.access(*mem, *index, 2, times),
            Op::Get(var) => return self.vars[var.0 as usize],
            Op::Set(var, v) => self.vars[var.0 as usize] = self.get(*v),
            Op::Barrier => self.total.barriers += times,
            Op::SubgroupReduce(_, a) => {
                let steps = u64::from(width.ilog2());
                self.arithmetic(self.scalar(*a), steps, times);
                self.total.integer_ops += steps * times;
            }
            Op::ShuffleXor(..) | Op::Shuffle(..) | Op::Ballot(_) => self.total.integer_ops += times,
            Op::If(c, then, otherwise) => match self.get(*c) {
                Some(c) => self.block(if c != 0 { then } else { otherwise }, times),
                None => {
                    self.total.exact = false;
                    self.block(then, times);
                }
            },
            Op::For { index, start, end, step, body, .. } => {
                self.repeat(*index, [*start, *end, *step], body, times)
            }
            Op::FragLoad { frag, mem, .. } | Op::FragStore { frag, mem, .. } => {
                let f = self.kernel.fragments[*frag as usize];
                self.moved(*mem, (TILE * TILE * f.elem.bytes()) as u64 / u64::from(width), times);
                if let Mem::Buffer(b) = mem {
                    self.total.extent[*b as usize] = None;
                }
            }
            Op::FragSpread { mem, .. } => {
                self.moved(*mem, (TILE * TILE * 4) as u64 / u64::from(width), times);
                if let Mem::Buffer(b) = mem {
                    self.total.extent[*b as usize] = None;
                }
            }
            Op::FragMap { op, .. } => {
                let held = (TILE * TILE) as u64 / u64::from(width) * times;
                match op {
                    FragOp::Float(_) => self.total.integer_ops += held,
                    FragOp::Mul(..) => self.total.flops += held,
                    FragOp::Fma(..) => self.total.flops += 2 * held,
                }
            }
            Op::FragMulAdd { a, .. } => {
                let ops = (2 * TILE * TILE * TILE) as u64 / u64::from(width) * times;
                match self.kernel.fragments[*a as usize].elem {
                    Elem::F16 => self.total.matrix_f16_ops += ops,
                    _ => self.total.matrix_i8_ops += ops,
                }
            }
            Op::Raw { fallback, .. } => return self.get(*fallback),
            Op::Lane(..) | Op::FragZero(_) => {}
        }
        None
    }

    /// `n` operations on operands of that type; comparisons of floats count as integers' do.
    fn arithmetic(&mut self, scalar: Scalar, n: u64, times: u64) {
        if scalar == Scalar::F32 && n > 0 {
            self.total.flops += n * times;
        } else {
            self.total.integer_ops += n.max(1) * times;
        }
    }

    fn moved(&mut self, mem: Mem, bytes: u64, times: u64) {
        match mem {
            Mem::Buffer(b) => self.total.requested[b as usize] += bytes * times,
            Mem::Shared(_) => self.total.shared_bytes += bytes * times,
            Mem::Table(_) => {}
        }
    }

    fn access(&mut self, mem: Mem, index: ValueId, elements: u64, times: u64) {
        let bytes = match mem {
            Mem::Buffer(b) => self.kernel.buffers[b as usize].elem.bytes(),
            Mem::Shared(s) => self.kernel.shared[s as usize].elem.bytes(),
            Mem::Table(_) => return,
        };
        self.moved(mem, bytes as u64 * elements, times);
        if let Mem::Buffer(b) = mem {
            let end = self.get(index).map(|index| (u64::from(index) + elements) * bytes as u64);
            let extent = &mut self.total.extent[b as usize];
            *extent = extent.and_then(|so_far| Some(so_far.max(end?)));
        }
    }

    fn repeat(&mut self, index: ValueId, [start, end, step]: [ValueId; 3], body: &Block, times: u64) {
        // Registers that the body assigns are not known in it.
        self.forget(body);
        let (start, end, step) = (self.get(start), self.get(end), self.get(step).filter(|step| *step > 0));
        let (Some(start), Some(end), Some(step)) = (start, end, step) else {
            self.total.exact = false;
            self.known[index.0 as usize] = None;
            self.block(body, times);
            return self.forget(body);
        };
        let rounds = end.saturating_sub(start).div_ceil(step);
        if rounds > 0 {
            self.known[index.0 as usize] = Some(start);
            self.block(body, times * u64::from(rounds));
            if rounds > 1 {
                // The last round, for how far it reaches; it was counted.
                self.known[index.0 as usize] = Some(start + (rounds - 1) * step);
                self.forget(body);
                self.block(body, 0);
            }
        }
        self.forget(body);
    }

    fn forget(&mut self, block: &Block) {
        for inst in &block.0 {
            if let Op::Set(var, _) = inst.op {
                self.vars[var.0 as usize] = None;
            }
            inst.op.blocks().for_each(|b| self.forget(b));
        }
    }
}
