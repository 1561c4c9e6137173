//! Whether a kernel means something on every target: operand types, scopes, accesses, and that nobody waits at a barrier that others pass by.
//!
//! The last is decided by a value's *spread*: the same in the whole workgroup, the same in each subgroup, or free to differ. A barrier
//! may stand only where the conditions around it are the same in the workgroup, a subgroup operation where they are the same in the subgroup.

use std::collections::HashSet;
use std::panic::Location;

use super::ir::{
    Access, BinOp, Block, Builtin, Cast, Elem, Frag, FragOp, Fragment, Inst, Kernel, Mem, Op, Scalar, TILE,
    Ty, UnOp, ValueId, Var,
};
use super::{KernelError, names};

/// How far a value is known to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spread {
    /// In all of the workgroup.
    Workgroup,
    /// In each subgroup.
    Subgroup,
    /// Each invocation has its own.
    Invocation,
}

/// Most workgroup memory that a kernel may ask for: what every target has.
pub const MAX_SHARED_BYTES: usize = 32 << 10;

/// Checks `kernel`.
///
/// # Errors
/// The first fault, with its place in the kernel's source.
pub fn verify(kernel: &Kernel) -> Result<(), KernelError> {
    let mut v = Verifier {
        kernel,
        types: vec![None; kernel.n_values as usize],
        spread: vec![Spread::Workgroup; kernel.n_values as usize],
        vars: vec![Spread::Workgroup; kernel.vars.len()],
        at: Location::caller(),
    };
    v.declarations()?;
    v.block(&kernel.body)?;
    // Registers only ever lose sameness, so this ends after at most two rounds a register.
    loop {
        let before = v.vars.clone();
        v.spread_block(&kernel.body, Spread::Workgroup, false)?;
        if v.vars == before {
            break;
        }
    }
    v.spread_block(&kernel.body, Spread::Workgroup, true)
}

struct Verifier<'a> {
    kernel: &'a Kernel,
    /// Types of the values in scope.
    types: Vec<Option<Ty>>,
    spread: Vec<Spread>,
    vars: Vec<Spread>,
    at: &'static Location<'static>,
}

type Checked<T = ()> = Result<T, KernelError>;

impl Verifier<'_> {
    fn fault<T>(&self, reason: impl Into<String>) -> Checked<T> {
        Err(KernelError { kernel: self.kernel.name.clone(), at: self.at, reason: reason.into() })
    }

    fn declarations(&self) -> Checked {
        let k = self.kernel;
        if ![8, 16, 32, 64].contains(&k.subgroup) {
            return self.fault(format!("subgroups of {} (8, 16, 32 and 64 exist)", k.subgroup));
        }
        if k.workgroup == 0 || k.workgroup > 1024 || !k.workgroup.is_multiple_of(k.subgroup) {
            return self.fault(format!(
                "a workgroup of {} is not a multiple of its subgroup of {} up to 1024",
                k.workgroup, k.subgroup
            ));
        }
        if k.shared_bytes() > MAX_SHARED_BYTES {
            return self.fault(format!(
                "{} bytes of workgroup memory, more than the {MAX_SHARED_BYTES} that every target has",
                k.shared_bytes()
            ));
        }
        let names = k.buffers.iter().map(|b| &b.name).chain(k.params.iter().map(|p| &p.name));
        let names = names.chain(k.shared.iter().map(|s| &s.name)).chain(k.tables.iter().map(|t| &t.name));
        let mut seen = HashSet::new();
        for name in names.chain([&k.name]) {
            if let Some(fault) = names::fault(name) {
                return self.fault(format!("`{name}` {fault}"));
            }
            if !seen.insert(name.clone()) {
                return self.fault(format!("`{name}` is declared twice"));
            }
        }
        if let Some(name) = names::derived(k).find(|name| seen.contains(name)) {
            return self.fault(format!(
                "`{name}` is declared twice: what belongs to the kernel is called so in its text"
            ));
        }
        if k.params.iter().any(|p| matches!(p.ty, Scalar::Bool | Scalar::F16)) {
            return self.fault("parameters are i32, u32 or f32");
        }
        for f in &k.fragments {
            let fits = match f.role {
                Frag::A | Frag::B => matches!(f.elem, Elem::F16 | Elem::U8),
                Frag::Acc => matches!(f.elem, Elem::F32 | Elem::I32),
            };
            if !fits {
                return self.fault(format!("no {:?} fragment of {:?}", f.role, f.elem));
            }
        }
        Ok(())
    }

    fn ty(&self, v: ValueId) -> Checked<Ty> {
        match self.types.get(v.0 as usize) {
            Some(Some(ty)) => Ok(*ty),
            _ => self.fault(format!("value %{} is used outside of the block that defines it", v.0)),
        }
    }

    fn expect(&self, v: ValueId, ty: Ty, role: &str) -> Checked {
        match self.ty(v)? {
            found if found == ty => Ok(()),
            found => self.fault(format!("{role} is {found:?}, must be {ty:?}")),
        }
    }

    fn var(&self, var: Var) -> Checked<Ty> {
        match self.kernel.vars.get(var.0 as usize) {
            Some(&scalar) => Ok(Ty::scalar(scalar)),
            None => self.fault("an undeclared register"),
        }
    }

    /// The element of `mem`, if it may be read (written).
    fn elem(&self, mem: Mem, write: bool) -> Checked<Elem> {
        let k = self.kernel;
        let found = match mem {
            Mem::Buffer(b) => k.buffers.get(b as usize).map(|b| {
                let may = if write { b.access != Access::Read } else { b.access != Access::Write };
                (b.elem, may)
            }),
            Mem::Shared(s) => k.shared.get(s as usize).map(|s| (s.elem, true)),
            Mem::Table(t) => k.tables.get(t as usize).map(|_| (Elem::U32, !write)),
        };
        match found {
            Some((elem, true)) => Ok(elem),
            Some((_, false)) if write => self.fault(format!("{mem:?} is written, but declared as input")),
            Some((_, false)) => self.fault(format!("{mem:?} is read, but declared as output")),
            None => self.fault(format!("{mem:?} is not declared")),
        }
    }

    fn fragment(&self, index: u32) -> Checked<Fragment> {
        self.kernel
            .fragments
            .get(index as usize)
            .copied()
            .map_or_else(|| self.fault("an undeclared fragment"), Ok)
    }

    fn block(&mut self, block: &Block) -> Checked {
        let mut defined = Vec::new();
        for inst in &block.0 {
            self.at = inst.at;
            let ty = self.result(inst)?;
            match (inst.def, ty) {
                (Some((id, declared)), Some(ty)) if declared == ty => {
                    self.types[id.0 as usize] = Some(ty);
                    defined.push(id);
                }
                (None, None) => {}
                (declared, ty) => {
                    return self.fault(format!("declared as {declared:?}, but gives {ty:?}"));
                }
            }
        }
        defined.iter().for_each(|id| self.types[id.0 as usize] = None);
        Ok(())
    }

    /// The type of what `inst` gives, its operands checked.
    fn result(&mut self, inst: &Inst) -> Checked<Option<Ty>> {
        let ty = match &inst.op {
            Op::Const(c) => c.ty(),
            Op::Param(p) => match self.kernel.params.get(*p as usize) {
                Some(p) => Ty::scalar(p.ty),
                None => return self.fault("an undeclared parameter"),
            },
            Op::Builtin(Builtin::WorkgroupId(axis) | Builtin::NumWorkgroups(axis)) if *axis > 2 => {
                return self.fault(format!("axis {axis}"));
            }
            Op::Builtin(_) => Ty::U32,
            Op::Unary(op, a) => self.unary(*op, self.ty(*a)?)?,
            Op::Binary(op, a, b) => self.binary(*op, self.ty(*a)?, self.ty(*b)?)?,
            Op::Fma(a, b, c) => {
                [a, b, c].into_iter().try_for_each(|v| self.expect(*v, Ty::F32, "an operand of fma"))?;
                Ty::F32
            }
            Op::Select(c, a, b) => {
                self.expect(*c, Ty::BOOL, "the condition")?;
                let ty = self.ty(*a)?;
                self.expect(*b, ty, "the other choice")?;
                ty
            }
            Op::Cast(cast, to, a) => self.cast(*cast, *to, self.ty(*a)?)?,
            Op::Dot4(_, a, b, acc) => {
                self.expect(*a, Ty::U32, "packed bytes")?;
                self.expect(*b, Ty::U32, "packed bytes")?;
                self.expect(*acc, Ty::I32, "the sum so far")?;
                Ty::I32
            }
            Op::Load { mem, index, lanes } => {
                let elem = self.elem(*mem, false)?;
                self.expect(*index, Ty::U32, "an index")?;
                if ![1, 2, 4].contains(lanes) || (*lanes > 1 && !matches!(mem, Mem::Buffer(_))) {
                    return self.fault(format!("a load of {lanes} elements from {mem:?}"));
                }
                if *lanes > 1 && elem.bytes() < 4 {
                    return self.fault("wide loads are of four-byte elements");
                }
                Ty { scalar: elem.scalar(), lanes: *lanes }
            }
            Op::Lane(v, lane) => {
                let ty = self.ty(*v)?;
                if *lane >= ty.lanes || ty.lanes == 1 {
                    return self.fault(format!("lane {lane} of {ty:?}"));
                }
                Ty::scalar(ty.scalar)
            }
            Op::Store { mem, index, value } => {
                let elem = self.elem(*mem, true)?;
                self.expect(*index, Ty::U32, "an index")?;
                self.expect(*value, Ty::scalar(elem.scalar()), "what is stored")?;
                return Ok(None);
            }
            Op::Atomic { mem, index, value, .. } => {
                let elem = self.elem(*mem, true)?;
                self.elem(*mem, false)?;
                if !matches!(elem, Elem::I32 | Elem::U32) {
                    return self.fault("atomics are of i32 and u32");
                }
                self.expect(*index, Ty::U32, "an index")?;
                self.expect(*value, Ty::scalar(elem.scalar()), "what is combined")?;
                Ty::scalar(elem.scalar())
            }
            Op::Get(var) => self.var(*var)?,
            Op::Set(var, v) => {
                let ty = self.var(*var)?;
                self.expect(*v, ty, "what is assigned")?;
                return Ok(None);
            }
            Op::Barrier => return Ok(None),
            Op::SubgroupReduce(_, a) => {
                let ty = self.ty(*a)?;
                if ty.lanes != 1 || !matches!(ty.scalar, Scalar::I32 | Scalar::U32 | Scalar::F32) {
                    return self.fault(format!("a reduction of {ty:?}"));
                }
                ty
            }
            Op::ShuffleXor(a, mask) => {
                if *mask == 0 || *mask >= self.kernel.subgroup {
                    return self.fault(format!("shuffle by {mask} in subgroups of {}", self.kernel.subgroup));
                }
                self.word(*a)?
            }
            Op::Shuffle(a, lane) => {
                self.expect(*lane, Ty::U32, "a lane")?;
                self.word(*a)?
            }
            Op::Ballot(a) => {
                self.expect(*a, Ty::BOOL, "a predicate")?;
                Ty::U32
            }
            Op::If(c, then, otherwise) => {
                self.expect(*c, Ty::BOOL, "a condition")?;
                self.block(then)?;
                self.block(otherwise)?;
                return Ok(None);
            }
            Op::For { index, start, end, step, body, .. } => {
                for (v, role) in [(start, "the start"), (end, "the end"), (step, "the step")] {
                    self.expect(*v, Ty::U32, role)?;
                }
                self.types[index.0 as usize] = Some(Ty::U32);
                self.block(body)?;
                self.types[index.0 as usize] = None;
                return Ok(None);
            }
            Op::FragZero(f) => {
                if self.fragment(*f)?.role != Frag::Acc {
                    return self.fault("only accumulators are zeroed");
                }
                return Ok(None);
            }
            Op::FragLoad { frag, mem, index, stride } => {
                let (frag, elem) = (self.fragment(*frag)?, self.elem(*mem, false)?);
                self.expect(*index, Ty::U32, "an index")?;
                self.expect(*stride, Ty::U32, "a stride")?;
                let packed = frag.role != Frag::Acc && elem == Elem::U32;
                if elem != frag.elem && !packed {
                    return self.fault(format!("a fragment of {:?} is loaded from {elem:?}", frag.elem));
                }
                return Ok(None);
            }
            Op::FragSpread { frag, mem, index, .. } => {
                let (frag, elem) = (self.fragment(*frag)?, self.elem(*mem, false)?);
                self.expect(*index, Ty::U32, "an index")?;
                if elem != frag.elem || frag.role != Frag::Acc {
                    return self.fault("accumulators are filled, from their own element type");
                }
                return Ok(None);
            }
            Op::FragMap { to, op } => {
                let to = self.fragment(*to)?;
                let from = if matches!(op, FragOp::Float(_)) { Elem::I32 } else { Elem::F32 };
                for operand in op.operands() {
                    let operand = self.fragment(operand)?;
                    if (to.role, to.elem) != (Frag::Acc, Elem::F32)
                        || (operand.role, operand.elem) != (Frag::Acc, from)
                    {
                        return self.fault(format!("{op:?} of {operand:?} to {to:?}"));
                    }
                }
                return Ok(None);
            }
            Op::FragStore { frag, mem, index, stride } => {
                let (frag, elem) = (self.fragment(*frag)?, self.elem(*mem, true)?);
                self.expect(*index, Ty::U32, "an index")?;
                self.expect(*stride, Ty::U32, "a stride")?;
                if elem != frag.elem || frag.role != Frag::Acc {
                    return self.fault("accumulators are stored, to their own element type");
                }
                return Ok(None);
            }
            Op::FragMulAdd { acc, a, b } => {
                let (acc, a, b) = (self.fragment(*acc)?, self.fragment(*a)?, self.fragment(*b)?);
                let sum = if a.elem == Elem::F16 { Elem::F32 } else { Elem::I32 };
                if (a.role, b.role, acc.role) != (Frag::A, Frag::B, Frag::Acc)
                    || a.elem != b.elem
                    || acc.elem != sum
                {
                    return self.fault(format!("no product {a:?} · {b:?} + {acc:?}"));
                }
                if self.kernel.subgroup < TILE as u32 {
                    return self.fault("matrix fragments need subgroups of 16 or more");
                }
                return Ok(None);
            }
            Op::Raw { args, fallback, .. } => {
                args.iter().try_for_each(|a| self.expect(*a, Ty::U32, "an argument"))?;
                self.ty(*fallback)?
            }
        };
        Ok(Some(ty))
    }

    fn word(&self, v: ValueId) -> Checked<Ty> {
        match self.ty(v)? {
            ty @ (Ty::I32 | Ty::U32 | Ty::F32) => Ok(ty),
            ty => self.fault(format!("{ty:?} cannot be shuffled")),
        }
    }

    fn unary(&self, op: UnOp, a: Ty) -> Checked<Ty> {
        let fits = match op {
            UnOp::Neg => matches!(a, Ty::F32 | Ty::I32 | Ty::U32),
            UnOp::Not => matches!(a, Ty::BOOL | Ty::I32 | Ty::U32),
            UnOp::Abs | UnOp::Sqrt | UnOp::RoundEven | UnOp::Floor => a == Ty::F32,
            UnOp::PopCount => a == Ty::U32,
        };
        if fits { Ok(a) } else { self.fault(format!("{op:?} of {a:?}")) }
    }

    fn binary(&self, op: BinOp, a: Ty, b: Ty) -> Checked<Ty> {
        let number = matches!(a, Ty::F32 | Ty::I32 | Ty::U32);
        let fits = match op {
            BinOp::Shl | BinOp::Shr => matches!(a, Ty::I32 | Ty::U32) && b == Ty::U32,
            BinOp::Rem => a == Ty::U32 && b == a,
            BinOp::And | BinOp::Or | BinOp::Xor => matches!(a, Ty::BOOL | Ty::I32 | Ty::U32) && b == a,
            _ => number && b == a,
        };
        match fits {
            true if op.compares() => Ok(Ty::BOOL),
            true => Ok(a),
            false => self.fault(format!("{op:?} of {a:?} and {b:?}")),
        }
    }

    fn cast(&self, cast: Cast, to: Scalar, from: Ty) -> Checked<Ty> {
        use Scalar::{F16, F32, I32, U32};
        let fits = from.lanes == 1
            && match cast {
                Cast::Value => {
                    matches!((from.scalar, to), (I32 | U32 | F16, F32) | (F32, I32 | F16))
                }
                Cast::Bits => matches!(
                    (from.scalar, to),
                    (U32, I32 | F32 | F16) | (I32 | F32 | F16, U32) | (I32, F32) | (F32, I32)
                ),
            };
        if fits { Ok(Ty::scalar(to)) } else { self.fault(format!("{cast:?} cast of {from:?} to {to:?}")) }
    }

    /// Follows sameness through `block`, which runs under conditions that are the same as far as `control`; `check` reports faults.
    fn spread_block(&mut self, block: &Block, control: Spread, check: bool) -> Checked {
        for inst in &block.0 {
            self.at = inst.at;
            let operands = inst.op.operands();
            let widest =
                |v: &Self| operands.iter().map(|o| v.spread[o.0 as usize]).max().unwrap_or(Spread::Workgroup);
            let result = match &inst.op {
                Op::Builtin(Builtin::LocalId | Builtin::Lane) => Spread::Invocation,
                Op::Builtin(Builtin::SubgroupId) => Spread::Subgroup,
                Op::Load { mem: Mem::Buffer(b), .. }
                    if self.kernel.buffers.get(*b as usize).is_some_and(|b| b.access != Access::Read) =>
                {
                    Spread::Invocation
                }
                Op::Atomic { .. } => Spread::Invocation,
                Op::Get(var) => self.vars[var.0 as usize],
                Op::Set(var, _) => {
                    let to = widest(self).max(control);
                    self.vars[var.0 as usize] = self.vars[var.0 as usize].max(to);
                    continue;
                }
                Op::SubgroupReduce(..) | Op::Ballot(_) => widest(self).min(Spread::Subgroup),
                Op::If(_, then, otherwise) => {
                    let control = control.max(widest(self));
                    self.spread_block(then, control, check)?;
                    self.spread_block(otherwise, control, check)?;
                    continue;
                }
                Op::For { index, start, step, body, .. } => {
                    self.spread[index.0 as usize] =
                        self.spread[start.0 as usize].max(self.spread[step.0 as usize]);
                    let control = control.max(widest(self));
                    self.spread_block(body, control, check)?;
                    continue;
                }
                _ => widest(self),
            };
            if check {
                self.at = inst.at;
                match &inst.op {
                    Op::Barrier if control != Spread::Workgroup => {
                        return self.fault("a barrier that not all of the workgroup may reach");
                    }
                    Op::SubgroupReduce(..)
                    | Op::ShuffleXor(..)
                    | Op::Shuffle(..)
                    | Op::Ballot(_)
                    | Op::FragZero(_)
                    | Op::FragLoad { .. }
                    | Op::FragSpread { .. }
                    | Op::FragMap { .. }
                    | Op::FragMulAdd { .. }
                    | Op::FragStore { .. }
                        if control == Spread::Invocation =>
                    {
                        return self.fault("a subgroup operation that not all of the subgroup may reach");
                    }
                    _ => {}
                }
            }
            if let Some((id, _)) = inst.def {
                self.spread[id.0 as usize] = result;
            }
        }
        Ok(())
    }
}
