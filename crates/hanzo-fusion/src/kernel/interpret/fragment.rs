//! Matrix fragments, lane by lane: each invocation loads, holds and writes just those elements that a real unit's layout gives it, and a
//! product gathers its operands from the lanes' registers. So a race, a stray access or an element that nobody holds is the device's own.
//!
//! Layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16"; AMD, "RDNA3 Instruction Set Architecture" §7.9 (WMMA) and "CDNA3 Instruction Set
//! Architecture" §7.1 (MFMA). The order of a product's sums is k upward, by fma: a unit may differ in the last bits of f32 sums, not of i32.

use super::super::ir::{Elem, FRAG_ALIGN, Frag, FragOp, Mem, Op, Side, TILE, ValueId};
use super::{FmaRounding, Machine, Mask, RunError, half_to_f32};

/// A kind of matrix unit, for its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixUnits {
    /// Lane l holds row l (B: column l), in subgroups of 16: no unit's own, for targets that hide theirs.
    Rows,
    /// NVIDIA `mma.sync.m16n8k16`, two of them side by side; 32 lanes.
    MmaSync,
    /// AMD `v_wmma_*_16x16x16`, gfx11; 32 lanes, A and B held twice.
    Wmma,
    /// AMD `v_mfma_*_16x16x16`, gfx9; 64 lanes.
    Mfma,
}

impl MatrixUnits {
    /// What stands for subgroups of that width.
    pub fn of_width(subgroup: u32) -> Self {
        match subgroup {
            64 => Self::Mfma,
            32 => Self::MmaSync,
            _ => Self::Rows,
        }
    }

    /// Lanes that hold a fragment together.
    pub fn lanes(self) -> u32 {
        match self {
            Self::Rows => 16,
            Self::MmaSync | Self::Wmma => 32,
            Self::Mfma => 64,
        }
    }

    /// Elements of a fragment that each lane holds.
    pub fn slots(self, role: Frag) -> usize {
        let copies = if self == Self::Wmma && role != Frag::Acc { 2 } else { 1 };
        TILE * TILE * copies / self.lanes() as usize
    }

    /// Row and column of what lane `lane` holds in `slot` (A: m and k; B: k and n; accumulator: m and n).
    pub fn place(self, role: Frag, elem: Elem, lane: usize, slot: usize) -> (usize, usize) {
        // B is A with rows and columns changed, but for the accumulator's sake: `along` counts k.
        let turn = |row: usize, along: usize| if role == Frag::B { (along, row) } else { (row, along) };
        match (self, role) {
            (Self::Rows, _) => turn(lane, slot),
            (Self::MmaSync, Frag::Acc) => {
                let (g, t) = (lane / 4, lane % 4);
                (g + slot / 2 % 2 * 8, slot / 4 * 8 + 2 * t + slot % 2)
            }
            (Self::MmaSync, _) => {
                let (g, t) = (lane / 4, lane % 4);
                let per_word = 4 / elem.bytes();
                let (word, e) = (slot / per_word, slot % per_word);
                // Words of A: rows g and g + 8, then the upper half of k. Of B: the lower and upper half of k, then column g + 8.
                let (eight, upper) = match (elem.bytes(), role) {
                    (2, Frag::A) => (word % 2, word / 2),
                    (2, _) => (word / 2, word % 2),
                    _ => (word, 0),
                };
                turn(g + 8 * eight, per_word * t + e + 8 * upper)
            }
            (Self::Wmma, Frag::Acc) => (2 * slot + lane / 16, lane % 16),
            (Self::Wmma, _) => turn(lane % 16, slot),
            (Self::Mfma, Frag::Acc) => (4 * (lane / 16) + slot, lane % 16),
            (Self::Mfma, _) => turn(lane % 16, 4 * (lane / 16) + slot),
        }
    }
}

impl Machine<'_> {
    pub(super) fn fragment_zero(&mut self, frag: u32) {
        let n = self.units.slots(Frag::Acc) * self.kernel.workgroup as usize;
        self.frags[frag as usize] = vec![0; n];
    }

    pub(super) fn fragment(&mut self, op: &Op, mask: &Mask) -> Result<(), RunError> {
        self.whole(mask)?;
        match *op {
            Op::FragLoad { frag, mem, index, stride } => self.fragment_load(frag, mem, [index, stride], mask),
            Op::FragStore { frag, mem, index, stride } => {
                self.fragment_store(frag, mem, [index, stride], mask)
            }
            Op::FragSpread { frag, side, mem, index } => self.fragment_spread(frag, side, mem, index, mask),
            Op::FragMap { to, op } => self.fragment_map(to, op, mask),
            Op::FragMulAdd { acc, a, b } => {
                let width = self.kernel.subgroup;
                for &first in mask.iter().filter(|&&t| t % width == 0) {
                    self.fragment_product(first, acc, a, b)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Index and stride, the same in the subgroup and aligned.
    fn fragment_place(
        &self,
        t: u32,
        elem: Elem,
        [index, stride]: [ValueId; 2],
    ) -> Result<[u32; 2], RunError> {
        let first = t / self.kernel.subgroup * self.kernel.subgroup;
        let place = [self.get(index, t), self.get(stride, t)];
        if place != [self.get(index, first), self.get(stride, first)] {
            return self.fault(t, "lanes of a subgroup disagree on where a fragment lies".to_owned());
        }
        if let Some(off) =
            place.into_iter().find(|p| !(*p as usize * elem.bytes()).is_multiple_of(FRAG_ALIGN))
        {
            return self.fault(t, format!("element {off} of a fragment is not on {FRAG_ALIGN} bytes"));
        }
        Ok(place)
    }

    fn fragment_load(&mut self, frag: u32, mem: Mem, at: [ValueId; 2], mask: &Mask) -> Result<(), RunError> {
        let fragment = self.kernel.fragments[frag as usize];
        let slots = self.units.slots(fragment.role);
        let mut held = std::mem::take(&mut self.frags[frag as usize]);
        held.resize(slots * self.kernel.workgroup as usize, 0);
        // Elements of the fragment in one of memory's.
        let elem = self.kernel.elem(mem);
        let per = elem.bytes() / fragment.elem.bytes();
        for &t in mask {
            let [first, stride] = self.fragment_place(t, elem, at)?;
            for slot in 0..slots {
                let lane = (t % self.kernel.subgroup) as usize;
                let (row, column) = self.units.place(fragment.role, fragment.elem, lane, slot);
                let (outer, inner) = if fragment.role == Frag::B { (column, row) } else { (row, column) };
                let along = (inner / per) as u32;
                let index = first.wrapping_add((outer as u32).wrapping_mul(stride)).wrapping_add(along);
                let part = |word: u32| match (per, fragment.elem) {
                    (1, _) => word,
                    (_, Elem::U8) => word >> (8 * (inner % per)) & 0xff,
                    _ => word >> (16 * (inner % per)) & 0xffff,
                };
                match self.memory.load(mem, index, t) {
                    Ok(word) => held[t as usize * slots + slot] = part(word),
                    Err(fault) => return self.memory_fault(t, mem, &fault),
                }
            }
        }
        self.frags[frag as usize] = held;
        Ok(())
    }

    fn fragment_spread(
        &mut self,
        frag: u32,
        side: Side,
        mem: Mem,
        index: ValueId,
        mask: &Mask,
    ) -> Result<(), RunError> {
        let fragment = self.kernel.fragments[frag as usize];
        let slots = self.units.slots(fragment.role);
        let mut held = std::mem::take(&mut self.frags[frag as usize]);
        held.resize(slots * self.kernel.workgroup as usize, 0);
        for &t in mask {
            let [first, _] = self.fragment_place(t, fragment.elem, [index, index])?;
            for slot in 0..slots {
                let lane = (t % self.kernel.subgroup) as usize;
                let (row, column) = self.units.place(fragment.role, fragment.elem, lane, slot);
                let at = if side == Side::Rows { row } else { column };
                match self.memory.load(mem, first.wrapping_add(at as u32), t) {
                    Ok(word) => held[t as usize * slots + slot] = word,
                    Err(fault) => return self.memory_fault(t, mem, &fault),
                }
            }
        }
        self.frags[frag as usize] = held;
        Ok(())
    }

    fn fragment_map(&mut self, to: u32, op: FragOp, mask: &Mask) -> Result<(), RunError> {
        let slots = self.units.slots(Frag::Acc);
        let mut held = std::mem::take(&mut self.frags[to as usize]);
        let filled = !held.is_empty();
        held.resize(slots * self.kernel.workgroup as usize, 0);
        for &t in mask {
            for at in t as usize * slots..(t as usize + 1) * slots {
                // An operand may be what is assigned.
                let get =
                    |frag: u32| if frag == to { held.get(at) } else { self.frags[frag as usize].get(at) };
                let words = match op {
                    FragOp::Float(a) => get(a).map(|&a| [a, 0]),
                    FragOp::Mul(a, b) | FragOp::Fma(a, b) => get(a).zip(get(b)).map(|(&a, &b)| [a, b]),
                };
                let empty =
                    !filled && (matches!(op, FragOp::Fma(..)) || op.operands().any(|frag| frag == to));
                let Some(words) = words.filter(|_| !empty) else {
                    return self.fault(t, "a fragment that holds nothing is computed with".to_owned());
                };
                let [a, b] = words.map(f32::from_bits);
                let sum = f32::from_bits(held[at]);
                let value = match (op, self.fma) {
                    (FragOp::Float(_), _) => words[0].cast_signed() as f32,
                    (FragOp::Mul(..), _) => a * b,
                    (FragOp::Fma(..), FmaRounding::Once) => a.mul_add(b, sum),
                    (FragOp::Fma(..), FmaRounding::Twice) => a * b + sum,
                };
                held[at] = value.to_bits();
            }
        }
        self.frags[to as usize] = held;
        Ok(())
    }

    fn fragment_store(&mut self, frag: u32, mem: Mem, at: [ValueId; 2], mask: &Mask) -> Result<(), RunError> {
        let fragment = self.kernel.fragments[frag as usize];
        let slots = self.units.slots(fragment.role);
        for &t in mask {
            let [first, stride] = self.fragment_place(t, fragment.elem, at)?;
            for slot in 0..slots {
                let lane = (t % self.kernel.subgroup) as usize;
                let (row, column) = self.units.place(fragment.role, fragment.elem, lane, slot);
                let index = first.wrapping_add((row as u32).wrapping_mul(stride)).wrapping_add(column as u32);
                let Some(&word) = self.frags[frag as usize].get(t as usize * slots + slot) else {
                    return self.fault(t, "a fragment that holds nothing is stored".to_owned());
                };
                if let Err(fault) = self.memory.store(mem, index, t, word) {
                    return self.memory_fault(t, mem, &fault);
                }
            }
        }
        Ok(())
    }

    /// The whole matrix, from the registers of the subgroup that begins at `first`.
    fn gather(&self, first: u32, frag: u32) -> Result<[[u32; TILE]; TILE], RunError> {
        let fragment = self.kernel.fragments[frag as usize];
        let slots = self.units.slots(fragment.role);
        let mut whole = [[0; TILE]; TILE];
        for lane in 0..self.kernel.subgroup as usize {
            for slot in 0..slots {
                let Some(&word) = self.frags[frag as usize].get((first as usize + lane) * slots + slot)
                else {
                    return self.fault(first, "a fragment that holds nothing is multiplied".to_owned());
                };
                let (row, column) = self.units.place(fragment.role, fragment.elem, lane, slot);
                whole[row][column] = word;
            }
        }
        Ok(whole)
    }

    fn fragment_product(&mut self, first: u32, acc: u32, a: u32, b: u32) -> Result<(), RunError> {
        let (x, y, mut sums) = (self.gather(first, a)?, self.gather(first, b)?, self.gather(first, acc)?);
        let half = self.kernel.fragments[a as usize].elem == Elem::F16;
        for (row, sums) in x.iter().zip(&mut sums) {
            for (column, sum) in sums.iter_mut().enumerate() {
                for (&p, q) in row.iter().zip(&y) {
                    let q = q[column];
                    *sum = if half {
                        half_to_f32(p).mul_add(half_to_f32(q), f32::from_bits(*sum)).to_bits()
                    } else {
                        let product = i32::from(p as u8 as i8) * i32::from(q as u8 as i8);
                        sum.cast_signed().wrapping_add(product).cast_unsigned()
                    };
                }
            }
        }
        let fragment = self.kernel.fragments[acc as usize];
        let slots = self.units.slots(fragment.role);
        for lane in 0..self.kernel.subgroup as usize {
            for slot in 0..slots {
                let (row, column) = self.units.place(fragment.role, fragment.elem, lane, slot);
                self.frags[acc as usize][(first as usize + lane) * slots + slot] = sums[row][column];
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_holds_every_element_as_often_as_it_says() {
        for units in [MatrixUnits::Rows, MatrixUnits::MmaSync, MatrixUnits::Wmma, MatrixUnits::Mfma] {
            for (role, elem) in [
                (Frag::A, Elem::F16),
                (Frag::B, Elem::F16),
                (Frag::A, Elem::U8),
                (Frag::B, Elem::U8),
                (Frag::Acc, Elem::F32),
            ] {
                let mut held = [[0; TILE]; TILE];
                for lane in 0..units.lanes() as usize {
                    for slot in 0..units.slots(role) {
                        let (row, column) = units.place(role, elem, lane, slot);
                        held[row][column] += 1;
                    }
                }
                let times = if units == MatrixUnits::Wmma && role != Frag::Acc { 2 } else { 1 };
                assert_eq!(held, [[times; TILE]; TILE], "{units:?} {role:?} {elem:?}");
            }
        }
    }

    /// Single places, as the vendors' tables give them.
    #[test]
    fn places_are_those_of_the_manuals() {
        use MatrixUnits::{Mfma, MmaSync, Wmma};
        // mma.m16n8k16, .f16: a6 of lane 5 (group 1, thread 1) is row 9, column 2·1 + 8; b3 is row 2·1 + 1 + 8, column 1.
        assert_eq!(MmaSync.place(Frag::A, Elem::F16, 5, 6), (9, 10));
        assert_eq!(MmaSync.place(Frag::B, Elem::F16, 5, 3), (11, 1));
        // c3 of lane 5 is row 9, column 3; of the second product beside it, column 11.
        assert_eq!(MmaSync.place(Frag::Acc, Elem::F32, 5, 3), (9, 3));
        assert_eq!(MmaSync.place(Frag::Acc, Elem::F32, 5, 7), (9, 11));
        // .s8: a5 of lane 6 (group 1, thread 2) is row 9, column 4·2 + 1; b2 is row 10, column 1.
        assert_eq!(MmaSync.place(Frag::A, Elem::U8, 6, 5), (9, 9));
        assert_eq!(MmaSync.place(Frag::B, Elem::U8, 6, 2), (10, 1));
        // WMMA: lane 20 holds row 4 of A as lane 4 does; its third sum is row 5, column 4.
        assert_eq!(Wmma.place(Frag::A, Elem::F16, 20, 7), (4, 7));
        assert_eq!(Wmma.place(Frag::Acc, Elem::F32, 20, 2), (5, 4));
        // MFMA 16×16×16: lane 37 holds row 5, k 8 to 11 of A; its second sum is row 9, column 5.
        assert_eq!(Mfma.place(Frag::A, Elem::F16, 37, 3), (5, 11));
        assert_eq!(Mfma.place(Frag::Acc, Elem::F32, 37, 1), (9, 5));
    }
}
