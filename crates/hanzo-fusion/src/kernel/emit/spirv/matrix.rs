//! Matrix fragments as cooperative matrices.

use rspirv::spirv::{
    Capability, CooperativeMatrixLayout, CooperativeMatrixOperands, CooperativeMatrixUse, Scope, Word,
};

use super::super::super::ir::{Elem, Frag, Fragment, Op, TILE};
use super::{Emitted, Emitter};

impl Emitter<'_> {
    /// A cooperative matrix of the subgroup.
    pub(super) fn fragment_type(&mut self, Fragment { role, elem }: Fragment) -> Word {
        let component = match elem {
            Elem::F16 => {
                self.capability(Capability::Float16);
                self.b.type_float(16, None)
            }
            Elem::U8 => {
                self.capability(Capability::Int8);
                self.b.type_int(8, 1)
            }
            other => self.elem(other),
        };
        let usage = match role {
            Frag::A => CooperativeMatrixUse::MatrixAKHR,
            Frag::B => CooperativeMatrixUse::MatrixBKHR,
            Frag::Acc => CooperativeMatrixUse::MatrixAccumulatorKHR,
        };
        let [scope, tile, usage] =
            [Scope::Subgroup as u32, TILE as u32, usage as u32].map(|word| self.u32(word));
        self.b.type_cooperative_matrix_khr(component, scope, tile, tile, usage)
    }

    /// Loads, products and stores: a fragment is a variable of the function.
    pub(super) fn fragment(&mut self, op: &Op) -> Emitted {
        match *op {
            Op::FragZero(frag) => {
                let (variable, ty) = self.fragments[frag as usize];
                let elem = self.elem(self.kernel.fragments[frag as usize].elem);
                let zero = self.b.constant_bit32(elem, 0);
                let zero = self.b.constant_composite(ty, [zero]);
                self.b.store(variable, zero, None, [])?;
            }
            Op::FragLoad { frag, mem, index, stride } => {
                let (variable, ty) = self.fragments[frag as usize];
                let layout = match self.kernel.fragments[frag as usize].role {
                    Frag::B => CooperativeMatrixLayout::ColumnMajorKHR,
                    _ => CooperativeMatrixLayout::RowMajorKHR,
                };
                let layout = self.u32(layout as u32);
                let pointer = self.pointer(self.place(mem), self.v(index))?;
                let (stride, access) = (Some(self.v(stride)), self.shared_access);
                let whole =
                    self.b.cooperative_matrix_load_khr(ty, None, pointer, layout, stride, access, [])?;
                self.b.store(variable, whole, None, [])?;
            }
            Op::FragMulAdd { acc, a, b } => {
                let signed = match self.kernel.fragments[a as usize].elem {
                    Elem::U8 => Some(
                        CooperativeMatrixOperands::MATRIX_A_SIGNED_COMPONENTS_KHR
                            | CooperativeMatrixOperands::MATRIX_B_SIGNED_COMPONENTS_KHR
                            | CooperativeMatrixOperands::MATRIX_C_SIGNED_COMPONENTS_KHR
                            | CooperativeMatrixOperands::MATRIX_RESULT_SIGNED_COMPONENTS_KHR,
                    ),
                    _ => None,
                };
                let mut words = [0; 3];
                for (word, frag) in words.iter_mut().zip([a, b, acc]) {
                    let (variable, ty) = self.fragments[frag as usize];
                    *word = self.b.load(ty, None, variable, None, [])?;
                }
                let (variable, ty) = self.fragments[acc as usize];
                let [a, b, c] = words;
                let sum = self.b.cooperative_matrix_mul_add_khr(ty, None, a, b, c, signed)?;
                self.b.store(variable, sum, None, [])?;
            }
            Op::FragStore { frag, mem, index, stride } => {
                let (variable, ty) = self.fragments[frag as usize];
                let whole = self.b.load(ty, None, variable, None, [])?;
                let layout = self.u32(CooperativeMatrixLayout::RowMajorKHR as u32);
                let pointer = self.pointer(self.place(mem), self.v(index))?;
                let (stride, access) = (Some(self.v(stride)), self.shared_access);
                self.b.cooperative_matrix_store_khr(pointer, whole, layout, stride, access, [])?;
            }
            _ => {}
        }
        Ok(())
    }
}
