//! Runs a kernel without a device: the reference that every target is compared with, and the detector of what only shows on real ones.
//!
//! A workgroup runs in lockstep, one instruction for all of its invocations at a time, so a run is deterministic. Lockstep would hide
//! races, so memory remembers who touched what since the last barrier ([`memory`]). Reported, each with invocation and source line: reads
//! and writes out of bounds, reads of what was never written, data races within a workgroup and between workgroups, division by zero,
//! shifts by 32 and more, f32 to integer casts out of range, shuffles from lanes that are not there.
//!
//! Barriers and subgroup operations in divergent control flow cannot be here: [`super::verify`] refuses such kernels.

mod fragment;
pub mod memory;

use std::panic::Location;

use hanzo_quant::{f16, f16_to_f32};
use thiserror::Error;

use super::ir::{
    BinOp, Block, Builtin, Cast, Combine, Dot, Inst, Kernel, Mem, Op, Scalar, Ty, UnOp, ValueId,
};
pub use fragment::MatrixUnits;
use memory::{Fault, Memory};

/// A fault of a kernel on its inputs.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("kernel `{kernel}`, {at}, workgroup {workgroup:?}, invocation {invocation}: {reason}")]
pub struct RunError {
    /// The kernel.
    pub kernel: String,
    /// Where in its source.
    pub at: &'static Location<'static>,
    /// Which workgroup.
    pub workgroup: [u32; 3],
    /// Which invocation of it.
    pub invocation: u32,
    /// What happened.
    pub reason: String,
}

/// A buffer's contents during a run: elements as registers would hold them, `None` where nothing was written yet.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferData {
    /// One an element.
    pub words: Vec<Option<u32>>,
}

impl BufferData {
    /// Defined contents.
    pub fn of(words: impl IntoIterator<Item = u32>) -> Self {
        Self { words: words.into_iter().map(Some).collect() }
    }
    /// Floats.
    pub fn of_f32(values: &[f32]) -> Self {
        Self::of(values.iter().map(|v| v.to_bits()))
    }
    /// `len` elements that hold nothing yet.
    pub fn empty(len: usize) -> Self {
        Self { words: vec![None; len] }
    }
    /// The contents as floats; `None` if some were never written.
    pub fn f32s(&self) -> Option<Vec<f32>> {
        self.words.iter().map(|w| w.map(f32::from_bits)).collect()
    }
    /// The contents; `None` if some were never written.
    pub fn u32s(&self) -> Option<Vec<u32>> {
        self.words.iter().copied().collect()
    }
}

/// What a device makes of `a · b + c`: Vulkan lets it choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FmaRounding {
    /// One rounding, as the kernel asks.
    Once,
    /// A product, then a sum.
    Twice,
}

/// Runs `kernel` over `grid` workgroups. `buffers` and `params` (their 32 bits) are in the kernel's order.
///
/// # Errors
/// The first fault.
pub fn run(
    kernel: &Kernel,
    grid: [u32; 3],
    buffers: &mut [BufferData],
    params: &[u32],
) -> Result<(), RunError> {
    run_as(FmaRounding::Once, kernel, grid, buffers, params)
}

/// [`run`] as a device with that `fma` would.
///
/// # Errors
/// The first fault.
pub fn run_as(
    fma: FmaRounding,
    kernel: &Kernel,
    grid: [u32; 3],
    buffers: &mut [BufferData],
    params: &[u32],
) -> Result<(), RunError> {
    let units = MatrixUnits::of_width(kernel.subgroup);
    run_with(fma, units, kernel, grid, buffers, params)
}

/// [`run_as`] with matrix units of that kind: which lane holds which element of a fragment, and so who reads and writes it.
///
/// # Errors
/// The first fault; units of another width than the kernel's subgroup are one where it has fragments.
pub fn run_with(
    fma: FmaRounding,
    units: MatrixUnits,
    kernel: &Kernel,
    grid: [u32; 3],
    buffers: &mut [BufferData],
    params: &[u32],
) -> Result<(), RunError> {
    let mut machine = Machine {
        fma,
        units,
        kernel,
        types: kernel.value_types(),
        params,
        grid,
        group: [0; 3],
        values: vec![Vec::new(); kernel.n_values as usize],
        vars: vec![vec![0; kernel.workgroup as usize]; kernel.vars.len()],
        frags: vec![Vec::new(); kernel.fragments.len()],
        memory: Memory::new(kernel, buffers),
        at: Location::caller(),
    };
    if buffers.len() != kernel.buffers.len() || params.len() != kernel.params.len() {
        return machine
            .fault(0, format!("{} buffers and {} parameters are bound", buffers.len(), params.len()));
    }
    if !kernel.fragments.is_empty() && units.lanes() != kernel.subgroup {
        return machine.fault(0, format!("{units:?} fragments in subgroups of {}", kernel.subgroup));
    }
    let full: Mask = (0..kernel.workgroup).collect();
    for z in 0..grid[2] {
        for y in 0..grid[1] {
            for x in 0..grid[0] {
                machine.group = [x, y, z];
                machine.memory.next_workgroup();
                machine.block(&kernel.body, &full)?;
            }
        }
    }
    machine.memory.write_back(buffers);
    Ok(())
}

/// The invocations that take part, ascending.
type Mask = Vec<u32>;

struct Machine<'a> {
    fma: FmaRounding,
    kernel: &'a Kernel,
    types: Vec<Ty>,
    params: &'a [u32],
    grid: [u32; 3],
    group: [u32; 3],
    /// By value: a word an invocation and lane of the type (`[lane][invocation]`).
    values: Vec<Vec<u32>>,
    vars: Vec<Vec<u32>>,
    units: MatrixUnits,
    /// By fragment: what each invocation holds of it, as `units` lay it out (`[invocation][slot]`).
    frags: Vec<Vec<u32>>,
    memory: Memory,
    at: &'static Location<'static>,
}

impl Machine<'_> {
    fn fault<T>(&self, invocation: u32, reason: String) -> Result<T, RunError> {
        Err(RunError {
            kernel: self.kernel.name.clone(),
            at: self.at,
            workgroup: self.group,
            invocation,
            reason,
        })
    }

    fn memory_fault<T>(&self, invocation: u32, mem: Mem, fault: &Fault) -> Result<T, RunError> {
        let name = match mem {
            Mem::Buffer(b) => self.kernel.buffers.get(b as usize).map(|b| b.name.as_str()),
            Mem::Shared(s) => self.kernel.shared.get(s as usize).map(|s| s.name.as_str()),
            Mem::Table(t) => self.kernel.tables.get(t as usize).map(|t| t.name.as_str()),
        };
        self.fault(invocation, format!("`{}`: {fault}", name.unwrap_or("?")))
    }

    fn get(&self, v: ValueId, t: u32) -> u32 {
        self.values[v.0 as usize][t as usize]
    }

    fn block(&mut self, block: &Block, mask: &Mask) -> Result<(), RunError> {
        block.0.iter().try_for_each(|inst| self.step(inst, mask))
    }

    fn step(&mut self, inst: &Inst, mask: &Mask) -> Result<(), RunError> {
        self.at = inst.at;
        let n = self.kernel.workgroup as usize;
        // Every result is a fresh column; invocations outside of the mask leave theirs at 0, which nobody reads.
        let lanes = inst.def.map_or(1, |(_, ty)| usize::from(ty.lanes));
        let mut out = vec![0; n * lanes];
        match &inst.op {
            Op::Const(c) => out.fill(c.bits()),
            Op::Param(p) => out.fill(self.params[*p as usize]),
            Op::Builtin(b) => self.each(mask, &mut out, |m, t| Ok(m.builtin(*b, t)))?,
            Op::Unary(op, a) => {
                let float = self.is_float(inst);
                self.each(mask, &mut out, |m, t| Ok(unary(*op, m.get(*a, t), float, inst)))?;
            }
            Op::Binary(op, a, b) => {
                let scalar = self.scalar_of(*a);
                self.each(mask, &mut out, |m, t| {
                    binary(*op, scalar, m.get(*a, t), m.get(*b, t)).or_else(|e| m.fault(t, e))
                })?;
            }
            Op::Fma(a, b, c) => self.each(mask, &mut out, |m, t| {
                let [a, b, c] = [a, b, c].map(|v| f32::from_bits(m.get(*v, t)));
                Ok(match m.fma {
                    FmaRounding::Once => a.mul_add(b, c).to_bits(),
                    FmaRounding::Twice => (a * b + c).to_bits(),
                })
            })?,
            Op::Select(c, a, b) => self.each(mask, &mut out, |m, t| {
                Ok(if m.get(*c, t) != 0 { m.get(*a, t) } else { m.get(*b, t) })
            })?,
            Op::Cast(cast, to, a) => {
                let from = self.scalar_of(*a);
                self.each(mask, &mut out, |m, t| {
                    convert(*cast, from, *to, m.get(*a, t)).or_else(|e| m.fault(t, e))
                })?;
            }
            Op::Dot4(kind, a, b, acc) => {
                self.each(mask, &mut out, |m, t| Ok(dot4(*kind, m.get(*a, t), m.get(*b, t), m.get(*acc, t))))?
            }
            Op::Load { mem, index, lanes } => {
                for &t in mask {
                    let first = self.get(*index, t);
                    if !first.is_multiple_of(u32::from(*lanes)) {
                        return self.fault(t, format!("a load of {lanes} at {first}, not a multiple"));
                    }
                    for lane in 0..u32::from(*lanes) {
                        let at = first.wrapping_add(lane);
                        match self.memory.load(*mem, at, t) {
                            Ok(word) => out[lane as usize * n + t as usize] = word,
                            Err(fault) => return self.memory_fault(t, *mem, &fault),
                        }
                    }
                }
            }
            Op::Lane(v, lane) => {
                let from = usize::from(*lane) * n;
                self.each(mask, &mut out, |m, t| Ok(m.values[v.0 as usize][from + t as usize]))?;
            }
            Op::Store { mem, index, value } => {
                for &t in mask {
                    let (at, word) = (self.get(*index, t), self.get(*value, t));
                    if let Err(fault) = self.memory.store(*mem, at, t, word) {
                        return self.memory_fault(t, *mem, &fault);
                    }
                }
                return Ok(());
            }
            Op::Atomic { op, mem, index, value } => {
                let scalar = self.scalar_of(*value);
                for &t in mask {
                    let (at, word) = (self.get(*index, t), self.get(*value, t));
                    match self.memory.atomic(*mem, at, t, |old| combine(*op, scalar, old, word)) {
                        Ok(old) => out[t as usize] = old,
                        Err(fault) => return self.memory_fault(t, *mem, &fault),
                    }
                }
            }
            Op::Get(var) => out.copy_from_slice(&self.vars[var.0 as usize]),
            Op::Set(var, v) => {
                for &t in mask {
                    self.vars[var.0 as usize][t as usize] = self.get(*v, t);
                }
                return Ok(());
            }
            Op::Barrier => {
                self.memory.barrier();
                return Ok(());
            }
            Op::SubgroupReduce(op, a) => self.reduce(*op, *a, mask, &mut out)?,
            Op::ShuffleXor(a, bits) => {
                self.shuffle(*a, mask, &mut out, |m, t| (t % m.kernel.subgroup) ^ bits)?
            }
            Op::Shuffle(a, lane) => self.shuffle(*a, mask, &mut out, |m, t| m.get(*lane, t))?,
            Op::Ballot(a) => {
                let width = self.kernel.subgroup;
                for &t in mask {
                    let base = t / width * width;
                    let set = mask.iter().filter(|&&o| o / width == t / width && o - base < 32);
                    out[t as usize] = set.map(|&o| self.get(*a, o) << (o - base)).sum();
                }
            }
            Op::If(c, then, otherwise) => {
                let (yes, no): (Mask, Mask) = mask.iter().partition(|&&t| self.get(*c, t) != 0);
                for (side, taken) in [(then, yes), (otherwise, no)] {
                    if !taken.is_empty() {
                        self.block(side, &taken)?;
                    }
                }
                return Ok(());
            }
            Op::For { index, start, end, step, body, .. } => {
                return self.repeat(*index, [*start, *end, *step], body, mask);
            }
            Op::FragZero(f) => {
                self.fragment_zero(*f);
                return Ok(());
            }
            Op::FragLoad { .. }
            | Op::FragSpread { .. }
            | Op::FragMap { .. }
            | Op::FragStore { .. }
            | Op::FragMulAdd { .. } => {
                return self.fragment(&inst.op, mask);
            }
            Op::Raw { fallback, .. } => self.each(mask, &mut out, |m, t| Ok(m.get(*fallback, t)))?,
        }
        if let Some((id, _)) = inst.def {
            self.values[id.0 as usize] = out;
        }
        Ok(())
    }

    fn each(
        &self,
        mask: &Mask,
        out: &mut [u32],
        f: impl Fn(&Self, u32) -> Result<u32, RunError>,
    ) -> Result<(), RunError> {
        mask.iter().try_for_each(|&t| f(self, t).map(|word| out[t as usize] = word))
    }

    fn builtin(&self, b: Builtin, t: u32) -> u32 {
        match b {
            Builtin::LocalId => t,
            Builtin::WorkgroupId(axis) => self.group[usize::from(axis)],
            Builtin::NumWorkgroups(axis) => self.grid[usize::from(axis)],
            Builtin::Lane => t % self.kernel.subgroup,
            Builtin::SubgroupId => t / self.kernel.subgroup,
        }
    }

    fn repeat(
        &mut self,
        index: ValueId,
        [start, end, step]: [ValueId; 3],
        body: &Block,
        mask: &Mask,
    ) -> Result<(), RunError> {
        let at = self.at;
        // The bounds are values of the enclosing block: they stay as they are while the body runs.
        let mut now: Vec<u32> =
            (0..self.kernel.workgroup).map(|t| self.values[start.0 as usize][t as usize]).collect();
        let mut active: Mask = mask.clone();
        loop {
            active.retain(|&t| now[t as usize] < self.get(end, t));
            if active.is_empty() {
                return Ok(());
            }
            self.values[index.0 as usize].clone_from(&now);
            self.block(body, &active)?;
            self.at = at;
            for &t in &active {
                let by = self.get(step, t);
                if by == 0 {
                    return self.fault(t, "a loop with step 0".to_owned());
                }
                now[t as usize] = now[t as usize].saturating_add(by);
            }
        }
    }

    /// Lane `i` takes lane `i ^ offset`, offsets halving: the order that targets keep.
    fn reduce(&self, op: Combine, a: ValueId, mask: &Mask, out: &mut [u32]) -> Result<(), RunError> {
        let (width, scalar) = (self.kernel.subgroup, self.scalar_of(a));
        self.whole(mask)?;
        let mut now = self.values[a.0 as usize].clone();
        let mut offset = width / 2;
        while offset > 0 {
            let before = now.clone();
            for &t in mask {
                let other = t / width * width + ((t % width) ^ offset);
                now[t as usize] = combine(op, scalar, before[t as usize], before[other as usize]);
            }
            offset /= 2;
        }
        mask.iter().for_each(|&t| out[t as usize] = now[t as usize]);
        Ok(())
    }

    fn shuffle(
        &self,
        a: ValueId,
        mask: &Mask,
        out: &mut [u32],
        lane: impl Fn(&Self, u32) -> u32,
    ) -> Result<(), RunError> {
        let width = self.kernel.subgroup;
        self.whole(mask)?;
        for &t in mask {
            let from = lane(self, t);
            if from >= width {
                return self.fault(t, format!("a shuffle from lane {from} of {width}"));
            }
            out[t as usize] = self.get(a, t / width * width + from);
        }
        Ok(())
    }

    /// Whether each subgroup takes part as a whole.
    fn whole(&self, mask: &Mask) -> Result<(), RunError> {
        let width = self.kernel.subgroup;
        let part = mask.chunk_by(|a, b| a / width == b / width).find(|g| g.len() != width as usize);
        match part.and_then(|g| g.first()) {
            Some(&t) => self.fault(t, "part of a subgroup in a subgroup operation".to_owned()),
            None => Ok(()),
        }
    }

    fn scalar_of(&self, v: ValueId) -> Scalar {
        self.types[v.0 as usize].scalar
    }

    fn is_float(&self, inst: &Inst) -> bool {
        inst.def.is_some_and(|(_, ty)| ty.scalar == Scalar::F32)
    }
}

fn half_to_f32(word: u32) -> f32 {
    f16_to_f32(f16::from_bits(word as u16))
}

fn unary(op: UnOp, a: u32, float: bool, inst: &Inst) -> u32 {
    let x = f32::from_bits(a);
    match op {
        UnOp::Neg if float => (-x).to_bits(),
        UnOp::Neg => a.wrapping_neg(),
        UnOp::Not if inst.def.is_some_and(|(_, ty)| ty.scalar == Scalar::Bool) => u32::from(a == 0),
        UnOp::Not => !a,
        UnOp::Abs => x.abs().to_bits(),
        UnOp::Sqrt => x.sqrt().to_bits(),
        UnOp::RoundEven => x.round_ties_even().to_bits(),
        UnOp::Floor => x.floor().to_bits(),
        UnOp::PopCount => a.count_ones(),
    }
}

/// `a op b` as registers hold them.
///
/// # Errors
/// What targets leave undefined: division by zero, shifts by 32 and more.
pub(super) fn binary(op: BinOp, scalar: Scalar, a: u32, b: u32) -> Result<u32, String> {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let (i, j) = (a.cast_signed(), b.cast_signed());
    let float = scalar == Scalar::F32;
    let signed = scalar == Scalar::I32;
    Ok(match op {
        BinOp::Add if float => (x + y).to_bits(),
        BinOp::Sub if float => (x - y).to_bits(),
        BinOp::Mul if float => (x * y).to_bits(),
        BinOp::Div if float => (x / y).to_bits(),
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::Div | BinOp::Rem if b == 0 => return Err("division by zero".to_owned()),
        BinOp::Div if signed => i.wrapping_div(j).cast_unsigned(),
        BinOp::Div => a / b,
        BinOp::Rem => a % b,
        BinOp::Min | BinOp::Max => {
            let first = match (op == BinOp::Min, scalar) {
                (true, Scalar::F32) => x < y,
                (false, Scalar::F32) => x > y,
                (true, Scalar::I32) => i < j,
                (false, Scalar::I32) => i > j,
                (true, _) => a < b,
                (false, _) => a > b,
            };
            if first { a } else { b }
        }
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl | BinOp::Shr if b >= 32 => return Err(format!("shift by {b}")),
        BinOp::Shl => a << b,
        BinOp::Shr if signed => (i >> b).cast_unsigned(),
        BinOp::Shr => a >> b,
        BinOp::Eq if float => u32::from(x == y),
        BinOp::Ne if float => u32::from(x != y),
        BinOp::Eq => u32::from(a == b),
        BinOp::Ne => u32::from(a != b),
        BinOp::Lt | BinOp::Le => u32::from(match (op == BinOp::Lt, scalar) {
            (true, Scalar::F32) => x < y,
            (false, Scalar::F32) => x <= y,
            (true, Scalar::I32) => i < j,
            (false, Scalar::I32) => i <= j,
            (true, _) => a < b,
            (false, _) => a <= b,
        }),
    })
}

/// A cast, as registers hold values.
///
/// # Errors
/// f32 to i32 out of range.
pub(super) fn convert(cast: Cast, from: Scalar, to: Scalar, a: u32) -> Result<u32, String> {
    let x = f32::from_bits(a);
    Ok(match (cast, from, to) {
        (Cast::Value, Scalar::I32, Scalar::F32) => (a.cast_signed() as f32).to_bits(),
        (Cast::Value, Scalar::U32, Scalar::F32) => (a as f32).to_bits(),
        (Cast::Value, Scalar::F16, Scalar::F32) => half_to_f32(a).to_bits(),
        (Cast::Value, Scalar::F32, Scalar::F16) => u32::from(f16::from_f32(x).to_bits()),
        (Cast::Value, Scalar::F32, Scalar::I32) => {
            if !(-2_147_483_648.0..2_147_483_648.0).contains(&x) {
                return Err(format!("{x} does not fit i32"));
            }
            (x as i32).cast_unsigned()
        }
        (Cast::Bits, Scalar::U32, Scalar::F16) => a & 0xffff,
        _ => a,
    })
}

pub(super) fn dot4(kind: Dot, a: u32, b: u32, acc: u32) -> u32 {
    let sum = a.to_le_bytes().into_iter().zip(b.to_le_bytes()).fold(0i32, |sum, (a, b)| {
        let a = if kind == Dot::UnsignedSigned { i32::from(a) } else { i32::from(a as i8) };
        sum + a * i32::from(b as i8)
    });
    acc.cast_signed().wrapping_add(sum).cast_unsigned()
}

fn combine(op: Combine, scalar: Scalar, a: u32, b: u32) -> u32 {
    let op = match op {
        Combine::Add => BinOp::Add,
        Combine::Min => BinOp::Min,
        Combine::Max => BinOp::Max,
    };
    // None of the three can fail.
    binary(op, scalar, a, b).unwrap_or_default()
}
