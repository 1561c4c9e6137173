//! Matrix fragments as cooperative matrices.

use rspirv::dr::Operand;
use rspirv::spirv::{
    Capability, CooperativeMatrixLayout, CooperativeMatrixOperands, CooperativeMatrixUse, LoopControl, Scope,
    StorageClass, Word,
};

use super::super::super::ir::{Block, Elem, Frag, FragOp, Fragment, Op, Side, TILE};
use super::{Emitted, Emitter, glsl};

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
            Op::FragSpread { frag, side, mem, index } => {
                // Rows (columns) that lie on each other.
                let (variable, ty) = self.fragments[frag as usize];
                let layout = match side {
                    Side::Rows => CooperativeMatrixLayout::ColumnMajorKHR,
                    Side::Columns => CooperativeMatrixLayout::RowMajorKHR,
                };
                let (layout, stride) = (self.u32(layout as u32), self.u32(0));
                let pointer = self.pointer(self.place(mem), self.v(index))?;
                let access = self.shared_access;
                let whole = self.b.cooperative_matrix_load_khr(
                    ty,
                    None,
                    pointer,
                    layout,
                    Some(stride),
                    access,
                    [],
                )?;
                self.b.store(variable, whole, None, [])?;
            }
            Op::FragMap { to, op } => self.fragment_map(to, op)?,
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

    /// Conversions and products are of whole matrices. A fused multiply-add is not, so it goes by components: matrices of one type have their
    /// elements in the same places.
    fn fragment_map(&mut self, to: u32, op: FragOp) -> Emitted {
        let (variable, ty) = self.fragments[to as usize];
        let whole = |this: &mut Self, frag: u32| -> Emitted<Word> {
            let (variable, ty) = this.fragments[frag as usize];
            Ok(this.b.load(ty, None, variable, None, [])?)
        };
        match op {
            FragOp::Float(a) => {
                let a = whole(self, a)?;
                let floats = self.b.convert_s_to_f(ty, None, a)?;
                self.b.store(variable, floats, None, [])?;
            }
            FragOp::Mul(a, b) => {
                let (a, b) = (whole(self, a)?, whole(self, b)?);
                let product = self.b.f_mul(ty, None, a, b)?;
                let product = self.exact(product);
                self.b.store(variable, product, None, [])?;
            }
            FragOp::Fma(a, b) => {
                let u32_ = self.b.type_int(32, 0);
                let length = self.b.cooperative_matrix_length_khr(u32_, None, ty)?;
                self.fma_components(length, [a, b, to])?;
            }
        }
        Ok(())
    }

    /// `c = fma(a, b, c)` of each component of `[a, b, c]`.
    fn fma_components(&mut self, length: Word, frags: [u32; 3]) -> Emitted {
        let (u32_, f32_, bool_) = (self.b.type_int(32, 0), self.b.type_float(32, None), self.b.type_bool());
        let pointer = self.b.type_pointer(None, StorageClass::Function, f32_);
        let (zero, one) = (self.u32(0), self.u32(1));
        let counter = self.component.unwrap_or_default();
        self.b.store(counter, zero, None, [])?;
        let [header, test, inside, next, merge] = std::array::from_fn(|_| self.b.id());
        self.b.branch(header)?;
        self.b.begin_block(Some(header))?;
        self.b.loop_merge(merge, next, LoopControl::UNROLL, [])?;
        self.b.branch(test)?;
        self.b.begin_block(Some(test))?;
        let i = self.b.load(u32_, None, counter, None, [])?;
        let more = self.b.u_less_than(bool_, None, i, length)?;
        self.b.branch_conditional(more, inside, merge, [])?;
        self.b.begin_block(Some(inside))?;
        let mut places = [0; 3];
        let mut words = [Operand::IdRef(0), Operand::IdRef(0), Operand::IdRef(0)];
        for ((place, word), frag) in places.iter_mut().zip(&mut words).zip(frags) {
            let (variable, _) = self.fragments[frag as usize];
            *place = self.b.access_chain(pointer, None, variable, [i])?;
            *word = Operand::IdRef(self.b.load(f32_, None, *place, None, [])?);
        }
        let sum = self.b.ext_inst(f32_, None, self.glsl, glsl::FMA, words)?;
        let sum = self.exact(sum);
        self.b.store(places[2], sum, None, [])?;
        self.b.branch(next)?;
        self.b.begin_block(Some(next))?;
        let i = self.b.i_add(u32_, None, i, one)?;
        self.b.store(counter, i, None, [])?;
        self.b.branch(header)?;
        self.b.begin_block(Some(merge))?;
        Ok(())
    }
}

/// Whether a fused multiply-add of fragments stands in `block`.
pub(super) fn fuses(block: &Block) -> bool {
    block
        .0
        .iter()
        .any(|inst| matches!(inst.op, Op::FragMap { op: FragOp::Fma(..), .. }) || inst.op.blocks().any(fuses))
}
