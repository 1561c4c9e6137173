//! The IR as text, for people: `hanzo kernels --ir`, and tests that show what a pass did.

use std::fmt::{self, Display, Formatter};

use super::ir::{Block, Const, Elem, Inst, Kernel, Mem, Op};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "kernel {} [{} × {}]", self.name, self.workgroup / self.subgroup.max(1), self.subgroup)?;
        for b in &self.buffers {
            writeln!(f, "  buffer {} : {:?} {:?} align {}", b.name, b.elem, b.access, b.align)?;
        }
        for p in &self.params {
            writeln!(f, "  param {} : {:?}", p.name, p.ty)?;
        }
        for s in &self.shared {
            writeln!(f, "  shared {} : {:?}[{}]", s.name, s.elem, s.len)?;
        }
        for t in &self.tables {
            writeln!(f, "  table {} : {:?}[{}]", t.name, Elem::U32, t.words.len())?;
        }
        block(f, self, &self.body, 1)
    }
}

fn mem(k: &Kernel, m: Mem) -> &str {
    match m {
        Mem::Buffer(b) => k.buffers.get(b as usize).map(|b| b.name.as_str()),
        Mem::Shared(s) => k.shared.get(s as usize).map(|s| s.name.as_str()),
        Mem::Table(t) => k.tables.get(t as usize).map(|t| t.name.as_str()),
    }
    .unwrap_or("?")
}

fn block(f: &mut Formatter<'_>, k: &Kernel, b: &Block, depth: usize) -> fmt::Result {
    b.0.iter().try_for_each(|inst| instruction(f, k, inst, depth))
}

fn instruction(f: &mut Formatter<'_>, k: &Kernel, inst: &Inst, depth: usize) -> fmt::Result {
    write!(f, "{:1$}", "", 2 * depth)?;
    if let Some((id, ty)) = inst.def {
        let lanes = if ty.lanes > 1 { format!("×{}", ty.lanes) } else { String::new() };
        write!(f, "%{} : {:?}{lanes} = ", id.0, ty.scalar)?;
    }
    match &inst.op {
        Op::Const(Const::F32(c)) => writeln!(f, "{c:?}"),
        Op::Const(c) => writeln!(f, "{}", c.bits()),
        Op::Param(p) => writeln!(f, "{}", k.params.get(*p as usize).map_or("?", |p| &p.name)),
        Op::Load { mem: m, index, lanes } => writeln!(f, "load{lanes} {}[%{}]", mem(k, *m), index.0),
        Op::Store { mem: m, index, value } => writeln!(f, "store {}[%{}] %{}", mem(k, *m), index.0, value.0),
        Op::Get(var) => writeln!(f, "r{}", var.0),
        Op::Set(var, v) => writeln!(f, "r{} = %{}", var.0, v.0),
        Op::If(c, then, otherwise) => {
            writeln!(f, "if %{}", c.0)?;
            block(f, k, then, depth + 1)?;
            if !otherwise.0.is_empty() {
                writeln!(f, "{:1$}else", "", 2 * depth)?;
                block(f, k, otherwise, depth + 1)?;
            }
            Ok(())
        }
        Op::For { index, start, end, step, unroll, body } => {
            let how = if *unroll { "unrolled " } else { "" };
            writeln!(f, "{how}for %{} in %{}..%{} by %{}", index.0, start.0, end.0, step.0)?;
            block(f, k, body, depth + 1)
        }
        op => {
            let name = format!("{op:?}");
            let name = name.split(['(', ' ', '{']).next().unwrap_or_default().to_lowercase();
            write!(f, "{name}")?;
            match op {
                Op::Builtin(b) => write!(f, " {b:?}")?,
                Op::Unary(o, _) => write!(f, " {o:?}")?,
                Op::Binary(o, ..) => write!(f, " {o:?}")?,
                Op::Cast(c, to, _) => write!(f, " {c:?} {to:?}")?,
                Op::Dot4(d, ..) => write!(f, " {d:?}")?,
                Op::Lane(_, lane) => write!(f, " {lane}")?,
                Op::SubgroupReduce(c, _) => write!(f, " {c:?}")?,
                Op::ShuffleXor(_, m) => write!(f, " {m}")?,
                Op::Atomic { op, mem: m, .. } => write!(f, " {op:?} {}", mem(k, *m))?,
                Op::FragZero(frag) => write!(f, " f{frag}")?,
                Op::FragLoad { frag, mem: m, .. } | Op::FragStore { frag, mem: m, .. } => {
                    write!(f, " f{frag} {}", mem(k, *m))?;
                }
                Op::FragSpread { frag, side, mem: m, .. } => {
                    write!(f, " {side:?} f{frag} {}", mem(k, *m))?;
                }
                Op::FragMap { to, op } => write!(f, " f{to} {op:?}")?,
                Op::FragMulAdd { acc, a, b } => write!(f, " f{acc} f{a} f{b}")?,
                _ => {}
            }
            op.operands().iter().try_for_each(|v| write!(f, " %{}", v.0))?;
            writeln!(f)
        }
    }
}
