//! What a builder writes plainly and no device should do: one forward walk folds constants, applies identities that hold for all operands,
//! turns products and quotients by powers of two into shifts, merges common subexpressions, takes the one branch that a constant chooses and
//! unrolls short loops that asked for it; a backward walk drops what nobody uses.
//!
//! No f32 operation is reassociated or left out: `x + 0` and `x · 0` of floats stay.

use std::collections::HashMap;

use super::interpret::{binary, convert, dot4};
use super::ir::{BinOp, Block, Const, Inst, Kernel, Op, Scalar, Ty, ValueId};

/// Loops of at most this many rounds are unrolled where asked.
const MAX_ROUNDS: u32 = 64;
/// And of at most this many instructions, all rounds together.
const MAX_UNROLLED: usize = 4096;

/// The same kernel with less to do.
pub fn optimize(kernel: &Kernel) -> Kernel {
    let mut out = kernel.clone();
    let mut pass = Pass {
        types: kernel.value_types(),
        alias: HashMap::new(),
        constants: HashMap::new(),
        known: vec![HashMap::new()],
    };
    let body = pass.block(&kernel.body);
    let mut used = vec![false; pass.types.len()];
    out.body = live(body, &mut used);
    out.n_values = pass.types.len() as u32;
    out
}

struct Pass {
    types: Vec<Ty>,
    /// What stands for a value now.
    alias: HashMap<ValueId, ValueId>,
    constants: HashMap<ValueId, Const>,
    /// Pure expressions in scope, by block.
    known: Vec<HashMap<Key, ValueId>>,
}

/// An operation that can be compared: constants by their bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Const(Scalar, u32),
    Op(String, Scalar),
}

impl Pass {
    fn resolve(&self, v: ValueId) -> ValueId {
        self.alias.get(&v).copied().unwrap_or(v)
    }

    fn fresh(&mut self, ty: Ty) -> ValueId {
        self.types.push(ty);
        ValueId(self.types.len() as u32 - 1)
    }

    fn block(&mut self, block: &Block) -> Block {
        self.known.push(HashMap::new());
        let mut out = Vec::new();
        self.instructions(block, &mut out);
        self.known.pop();
        Block(out)
    }

    fn instructions(&mut self, block: &Block, out: &mut Vec<Inst>) {
        for inst in &block.0 {
            let mut inst = inst.clone();
            inst.op.map_operands(|v| self.resolve(v));
            match &mut inst.op {
                Op::If(c, then, otherwise) => {
                    if let Some(Const::Bool(taken)) = self.constants.get(c) {
                        let side = if *taken { then.clone() } else { otherwise.clone() };
                        self.instructions(&side, out);
                        continue;
                    }
                    (*then, *otherwise) = (self.block(then), self.block(otherwise));
                }
                Op::For { index, start, end, step, unroll, body } => {
                    if *unroll && let Some(rounds) = self.rounds(*start, *end, *step, body) {
                        let (index, body) = (*index, body.clone());
                        for at in rounds {
                            self.round(&inst, index, at, &body, out);
                        }
                        continue;
                    }
                    *body = self.block(body);
                }
                _ => {}
            }
            match inst.def {
                Some((id, ty)) if inst.op.is_pure() => self.pure(inst, id, ty, out),
                _ => out.push(inst),
            }
        }
    }

    /// The values of the index, if the loop is to be unrolled.
    fn rounds(&self, start: ValueId, end: ValueId, step: ValueId, body: &Block) -> Option<Vec<u32>> {
        let [start, end, step] = [start, end, step].map(|v| match self.constants.get(&v) {
            Some(Const::U32(u)) => Some(*u),
            _ => None,
        });
        let (start, end, step) = (start?, end?, step?);
        let rounds: Vec<u32> =
            (start..end).step_by(step.max(1) as usize).take(MAX_ROUNDS as usize + 1).collect();
        let small = rounds.len() <= MAX_ROUNDS as usize && rounds.len() * size(body) <= MAX_UNROLLED;
        (small && step > 0).then_some(rounds)
    }

    /// One round of an unrolled loop: the body with its own values, the index a constant.
    fn round(&mut self, like: &Inst, index: ValueId, at: u32, body: &Block, out: &mut Vec<Inst>) {
        let id = self.fresh(Ty::U32);
        let constant = Inst { def: Some((id, Ty::U32)), op: Op::Const(Const::U32(at)), at: like.at };
        self.pure(constant, id, Ty::U32, out);
        let mut map = HashMap::from([(index, self.resolve(id))]);
        let copy = self.rename(body, &mut map);
        self.instructions(&copy, out);
    }

    /// A copy of `block` whose definitions are new.
    fn rename(&mut self, block: &Block, map: &mut HashMap<ValueId, ValueId>) -> Block {
        let instructions = block.0.iter().map(|inst| {
            let mut inst = inst.clone();
            inst.op.map_operands(|v| map.get(&v).copied().unwrap_or(v));
            if let Op::For { index, .. } = &mut inst.op {
                let id = self.fresh(Ty::U32);
                map.insert(*index, id);
                *index = id;
            }
            for b in inst.op.blocks_mut() {
                *b = self.rename(&b.clone(), map);
            }
            if let Some((id, ty)) = &mut inst.def {
                let new = self.fresh(*ty);
                map.insert(*id, new);
                *id = new;
            }
            inst
        });
        Block(instructions.collect())
    }

    fn pure(&mut self, mut inst: Inst, id: ValueId, ty: Ty, out: &mut Vec<Inst>) {
        if let Some(same) = self.identity(&inst.op) {
            self.alias.insert(id, same);
            return;
        }
        if let Some(c) = self.fold(&inst.op, ty) {
            inst.op = Op::Const(c);
        }
        self.reduce_strength(&mut inst, out);
        let key = match &inst.op {
            Op::Const(c) => Key::Const(ty.scalar, c.bits()),
            op => Key::Op(format!("{op:?}"), ty.scalar),
        };
        if let Some(&same) = self.known.iter().rev().find_map(|k| k.get(&key)) {
            self.alias.insert(id, same);
            return;
        }
        if let Op::Const(c) = inst.op {
            self.constants.insert(id, c);
        }
        if let Some(known) = self.known.last_mut() {
            known.insert(key, id);
        }
        out.push(inst);
    }

    fn constant(&self, v: ValueId) -> Option<u32> {
        self.constants.get(&v).map(|c| c.bits())
    }

    /// The operand that the operation gives, for all values of the other.
    fn identity(&self, op: &Op) -> Option<ValueId> {
        match *op {
            Op::Binary(op, a, b) if self.types[a.0 as usize].scalar != Scalar::F32 => {
                let (x, y) = (self.constant(a), self.constant(b));
                match op {
                    BinOp::Add | BinOp::Or | BinOp::Xor if x == Some(0) => Some(b),
                    BinOp::Add | BinOp::Sub | BinOp::Or | BinOp::Xor | BinOp::Shl | BinOp::Shr
                        if y == Some(0) =>
                    {
                        Some(a)
                    }
                    BinOp::Mul if x == Some(1) => Some(b),
                    BinOp::Mul | BinOp::Div if y == Some(1) => Some(a),
                    BinOp::Mul if x == Some(0) => Some(a),
                    BinOp::Mul if y == Some(0) => Some(b),
                    _ => None,
                }
            }
            Op::Binary(BinOp::Mul, a, b) => {
                // 1·x is x for every float, NaN included.
                let one = Some(1f32.to_bits());
                match () {
                    () if self.constant(a) == one => Some(b),
                    () if self.constant(b) == one => Some(a),
                    () => None,
                }
            }
            Op::Select(c, a, b) => match self.constants.get(&c) {
                Some(Const::Bool(true)) => Some(a),
                Some(Const::Bool(false)) => Some(b),
                _ => (a == b).then_some(a),
            },
            _ => None,
        }
    }

    fn fold(&self, op: &Op, ty: Ty) -> Option<Const> {
        let scalar = |v: ValueId| self.types[v.0 as usize].scalar;
        let bits = match *op {
            Op::Binary(op, a, b) => binary(op, scalar(a), self.constant(a)?, self.constant(b)?).ok()?,
            Op::Cast(cast, to, a) => convert(cast, scalar(a), to, self.constant(a)?).ok()?,
            Op::Fma(a, b, c) => {
                let [a, b, c] = [self.constant(a)?, self.constant(b)?, self.constant(c)?].map(f32::from_bits);
                a.mul_add(b, c).to_bits()
            }
            Op::Dot4(kind, a, b, acc) => {
                dot4(kind, self.constant(a)?, self.constant(b)?, self.constant(acc)?)
            }
            _ => return None,
        };
        Const::from_bits(ty.scalar, bits)
    }

    /// u32 products and quotients by powers of two.
    fn reduce_strength(&mut self, inst: &mut Inst, out: &mut Vec<Inst>) {
        let Op::Binary(op, a, b) = inst.op else { return };
        if self.types[a.0 as usize] != Ty::U32 {
            return;
        }
        let power = |v: Option<u32>| v.filter(|v| v.is_power_of_two());
        let (op, x, count) = match (op, power(self.constant(a)), power(self.constant(b))) {
            (BinOp::Mul, _, Some(p)) => (BinOp::Shl, a, p.trailing_zeros()),
            (BinOp::Mul, Some(p), _) => (BinOp::Shl, b, p.trailing_zeros()),
            (BinOp::Div, _, Some(p)) => (BinOp::Shr, a, p.trailing_zeros()),
            (BinOp::Rem, _, Some(p)) => (BinOp::And, a, p - 1),
            _ => return,
        };
        let id = self.fresh(Ty::U32);
        let constant = Inst { def: Some((id, Ty::U32)), op: Op::Const(Const::U32(count)), at: inst.at };
        self.pure(constant, id, Ty::U32, out);
        inst.op = Op::Binary(op, x, self.resolve(id));
    }
}

fn size(block: &Block) -> usize {
    block.0.iter().map(|i| 1 + i.op.blocks().map(size).sum::<usize>()).sum()
}

/// `block` without instructions whose results nobody uses and that do nothing else.
fn live(block: Block, used: &mut [bool]) -> Block {
    let mut kept: Vec<Inst> = Vec::new();
    for mut inst in block.0.into_iter().rev() {
        let needed = inst.def.is_none_or(|(id, _)| used[id.0 as usize]);
        let silent = inst.op.is_pure() || matches!(inst.op, Op::Get(_) | Op::Load { .. });
        if !needed && silent {
            continue;
        }
        for b in inst.op.blocks_mut() {
            *b = live(std::mem::take(b), used);
        }
        if let Op::If(_, a, b) = &inst.op
            && a.0.is_empty()
            && b.0.is_empty()
        {
            continue;
        }
        inst.op.operands().iter().for_each(|v| used[v.0 as usize] = true);
        kept.push(inst);
    }
    kept.reverse();
    Block(kept)
}
