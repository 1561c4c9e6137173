//! SPIR-V 1.3 for Vulkan's compute shaders.
//!
//! Bindings of set 0: the buffers in order, then the constant tables in order (a table is bound as a buffer of u32: as constants of
//! the module, each invocation would get a copy). Parameters are push constants, four bytes each. Capabilities are declared only where a kernel uses
//! what they stand for. Halves are kept as their bits, and converted by the packing instructions of GLSL.std.450, so that no
//! device needs half arithmetic.
//!
//! Matrix fragments are cooperative matrices (`VK_KHR_cooperative_matrix`), which bring Vulkan's memory model with them.
//!
//! Vulkan promises less than other targets for f32: quotients within 2.5 ulp, and square roots by way of such a quotient. Sums, products and fused
//! multiply-adds are decorated against contraction.

use rspirv::binary::{Assemble, Disassemble};
use rspirv::dr::{self, Operand};
use rspirv::spirv::{
    AddressingModel, BuiltIn, Capability, Decoration, ExecutionMode, ExecutionModel, FunctionControl,
    LoopControl, MemoryAccess, MemoryModel, MemorySemantics, PackedVectorFormat, Scope, SelectionControl,
    StorageClass, Word,
};
use thiserror::Error;

use super::super::ir::{
    Access, BinOp, Block, Builtin, Cast, Combine, Const, Dot, Elem, Inst, Kernel, Mem, Op, Scalar, Ty, UnOp,
    ValueId,
};

mod matrix;

/// Instruction numbers of GLSL.std.450.
mod glsl {
    pub(super) const ROUND_EVEN: u32 = 2;
    pub(super) const ABS: u32 = 4;
    pub(super) const FLOOR: u32 = 8;
    pub(super) const SQRT: u32 = 31;
    pub(super) const FMA: u32 = 50;
    pub(super) const PACK_HALF: u32 = 58;
    pub(super) const UNPACK_HALF: u32 = 62;
}

/// Why a kernel has no SPIR-V.
#[derive(Debug, Error)]
pub enum SpirvError {
    /// Something of the IR that this emitter does not lower.
    #[error("kernel `{kernel}`: {what} has no SPIR-V form here")]
    Unsupported {
        /// The kernel.
        kernel: String,
        /// What it uses.
        what: &'static str,
    },
    /// The module builder refused an instruction: a fault of this emitter.
    #[error("kernel `{kernel}`: {source}")]
    Builder {
        /// The kernel.
        kernel: String,
        /// What the builder says.
        source: dr::Error,
    },
}

/// The words of the module of `kernel`; its entry point is `main`.
///
/// # Errors
/// [`SpirvError`].
pub fn module(kernel: &Kernel) -> Result<Vec<u32>, SpirvError> {
    let mut emitter = Emitter::new(kernel);
    emitter.kernel().map_err(|stop| stop.of(kernel))?;
    Ok(emitter.b.module().assemble())
}

/// The same module, disassembled, for people.
///
/// # Errors
/// [`SpirvError`].
pub fn text(kernel: &Kernel) -> Result<String, SpirvError> {
    let mut emitter = Emitter::new(kernel);
    emitter.kernel().map_err(|stop| stop.of(kernel))?;
    let mut text = emitter.b.module().disassemble();
    text.push('\n');
    Ok(text)
}

enum Stop {
    Unsupported(&'static str),
    Builder(dr::Error),
}
impl Stop {
    fn of(self, kernel: &Kernel) -> SpirvError {
        let kernel = kernel.name.clone();
        match self {
            Self::Unsupported(what) => SpirvError::Unsupported { kernel, what },
            Self::Builder(source) => SpirvError::Builder { kernel, source },
        }
    }
}
impl From<dr::Error> for Stop {
    fn from(e: dr::Error) -> Self {
        Self::Builder(e)
    }
}
type Emitted<T = ()> = Result<T, Stop>;

/// An array that access chains go into.
#[derive(Clone, Copy)]
struct Place {
    variable: Word,
    /// Pointer to an element.
    pointer: Word,
    elem: Elem,
    /// Whether the array is the first member of a block.
    block: bool,
}

struct Emitter<'a> {
    kernel: &'a Kernel,
    b: dr::Builder,
    glsl: Word,
    /// Words of the IR's values.
    values: Vec<Word>,
    types: Vec<Ty>,
    vars: Vec<Word>,
    /// Loop counters, in the order of their loops.
    counters: Vec<Word>,
    next_counter: usize,
    buffers: Vec<Place>,
    /// The same buffers as arrays of vectors of four and of two, where wide loads want them.
    wide: Vec<[Option<Place>; 2]>,
    shared: Vec<Place>,
    tables: Vec<Place>,
    params: Option<Word>,
    /// Variables of the entry point's interface.
    interface: Vec<Word>,
    inputs: [Option<Word>; 5],
    /// Variable and type of each matrix fragment.
    fragments: Vec<(Word, Word)>,
    /// Counts an invocation's components of a fragment.
    component: Option<Word>,
    /// How buffers and workgroup memory are loaded and stored.
    shared_access: Option<MemoryAccess>,
}

const LOCAL_INDEX: usize = 0;
const WORKGROUP_ID: usize = 1;
const NUM_WORKGROUPS: usize = 2;
const LANE: usize = 3;
const SUBGROUP_ID: usize = 4;

impl<'a> Emitter<'a> {
    fn new(kernel: &'a Kernel) -> Self {
        let mut b = dr::Builder::new();
        b.set_version(1, 3);
        b.capability(Capability::Shader);
        let glsl = b.ext_inst_import("GLSL.std.450");
        let matrix = !kernel.fragments.is_empty();
        if matrix {
            b.capability(Capability::CooperativeMatrixKHR);
            b.capability(Capability::VulkanMemoryModel);
            b.extension("SPV_KHR_cooperative_matrix");
            b.extension("SPV_KHR_vulkan_memory_model");
            b.memory_model(AddressingModel::Logical, MemoryModel::Vulkan);
        } else {
            b.memory_model(AddressingModel::Logical, MemoryModel::GLSL450);
        }
        Self {
            kernel,
            b,
            glsl,
            values: vec![0; kernel.n_values as usize],
            types: kernel.value_types(),
            vars: Vec::new(),
            counters: Vec::new(),
            next_counter: 0,
            buffers: Vec::new(),
            wide: Vec::new(),
            shared: Vec::new(),
            tables: Vec::new(),
            params: None,
            interface: Vec::new(),
            inputs: [None; 5],
            fragments: Vec::new(),
            component: None,
            // In Vulkan's model, what barriers order must be said to be shared.
            shared_access: matrix.then_some(MemoryAccess::NON_PRIVATE_POINTER),
        }
    }

    fn scalar(&mut self, s: Scalar) -> Word {
        match s {
            Scalar::Bool => self.b.type_bool(),
            Scalar::I32 => self.b.type_int(32, 1),
            // Halves are their bits.
            Scalar::U32 | Scalar::F16 => self.b.type_int(32, 0),
            Scalar::F32 => self.b.type_float(32, None),
        }
    }

    fn ty(&mut self, ty: Ty) -> Word {
        let scalar = self.scalar(ty.scalar);
        if ty.lanes == 1 { scalar } else { self.b.type_vector(scalar, ty.lanes.into()) }
    }

    fn elem(&mut self, e: Elem) -> Word {
        match e {
            Elem::F32 => self.b.type_float(32, None),
            Elem::I32 => self.b.type_int(32, 1),
            Elem::U32 => self.b.type_int(32, 0),
            Elem::F16 | Elem::U16 => self.b.type_int(16, 0),
            Elem::U8 => self.b.type_int(8, 0),
        }
    }

    fn declares(&self, c: Capability) -> bool {
        let declared = self.b.module_ref().capabilities.iter();
        declared.flat_map(|i| &i.operands).any(|o| *o == Operand::Capability(c))
    }

    fn capability(&mut self, c: Capability) {
        if !self.declares(c) {
            self.b.capability(c);
        }
    }

    fn extension(&mut self, name: &str) {
        let declared = self.b.module_ref().extensions.iter();
        let known = declared.flat_map(|i| &i.operands).any(|o| *o == Operand::LiteralString(name.to_owned()));
        if !known {
            self.b.extension(name);
        }
    }

    fn u32(&mut self, value: u32) -> Word {
        let ty = self.b.type_int(32, 0);
        self.b.constant_bit32(ty, value)
    }

    /// A buffer block at `binding` whose elements are vectors of `lanes`.
    fn storage(&mut self, elem: Elem, lanes: u8, binding: usize, read_only: bool) -> Place {
        if elem.bytes() == 1 {
            self.capability(Capability::StorageBuffer8BitAccess);
            self.extension("SPV_KHR_8bit_storage");
        } else if elem.bytes() == 2 {
            // Part of SPIR-V 1.3: no extension.
            self.capability(Capability::StorageBuffer16BitAccess);
        }
        let scalar = self.elem(elem);
        let element = if lanes == 1 { scalar } else { self.b.type_vector(scalar, lanes.into()) };
        // Types of blocks are made anew for each: a decorated type may not be shared.
        let array = self.b.id();
        let array = self.b.type_runtime_array_id(Some(array), element);
        let stride = (elem.bytes() * usize::from(lanes)) as u32;
        self.b.decorate(array, Decoration::ArrayStride, [Operand::LiteralBit32(stride)]);
        let block = self.b.id();
        let block = self.b.type_struct_id(Some(block), [array]);
        self.b.decorate(block, Decoration::Block, []);
        self.b.member_decorate(block, 0, Decoration::Offset, [Operand::LiteralBit32(0)]);
        if read_only {
            self.b.member_decorate(block, 0, Decoration::NonWritable, []);
        }
        let pointer = self.b.type_pointer(None, StorageClass::StorageBuffer, block);
        let variable = self.b.variable(pointer, None, StorageClass::StorageBuffer, None);
        self.b.decorate(variable, Decoration::DescriptorSet, [Operand::LiteralBit32(0)]);
        self.b.decorate(variable, Decoration::Binding, [Operand::LiteralBit32(binding as u32)]);
        let pointer = self.b.type_pointer(None, StorageClass::StorageBuffer, element);
        Place { variable, pointer, elem, block: true }
    }

    fn declarations(&mut self) {
        let kernel = self.kernel;
        let widths = wide_loads(kernel);
        for (i, (buffer, widths)) in kernel.buffers.iter().zip(widths).enumerate() {
            let read_only = buffer.access == Access::Read;
            let place = self.storage(buffer.elem, 1, i, read_only);
            self.buffers.push(place);
            let wide = [(4, widths[0]), (2, widths[1])];
            let wide =
                wide.map(|(n, used)| (used && read_only).then(|| self.storage(buffer.elem, n, i, true)));
            for alias in wide.iter().flatten() {
                for variable in [place.variable, alias.variable] {
                    self.b.decorate(variable, Decoration::Aliased, []);
                }
            }
            self.wide.push(wide);
        }
        for i in 0..kernel.tables.len() {
            let place = self.storage(Elem::U32, 1, kernel.buffers.len() + i, true);
            self.tables.push(place);
        }
        for s in &kernel.shared {
            // Narrow elements of buffers come with their storage capabilities; those of workgroup memory need the types themselves.
            match s.elem.bytes() {
                1 => self.capability(Capability::Int8),
                2 => self.capability(Capability::Int16),
                _ => {}
            }
            let element = self.elem(s.elem);
            let len = self.u32(s.len);
            let array = self.b.type_array(element, len);
            let pointer = self.b.type_pointer(None, StorageClass::Workgroup, array);
            let variable = self.b.variable(pointer, None, StorageClass::Workgroup, None);
            let pointer = self.b.type_pointer(None, StorageClass::Workgroup, element);
            self.shared.push(Place { variable, pointer, elem: s.elem, block: false });
        }
        if !kernel.params.is_empty() {
            let members: Vec<_> = kernel.params.iter().map(|p| self.scalar(p.ty)).collect();
            let id = self.b.id();
            let block = self.b.type_struct_id(Some(id), members);
            self.b.decorate(block, Decoration::Block, []);
            for i in 0..kernel.params.len() as u32 {
                self.b.member_decorate(block, i, Decoration::Offset, [Operand::LiteralBit32(4 * i)]);
            }
            let pointer = self.b.type_pointer(None, StorageClass::PushConstant, block);
            self.params = Some(self.b.variable(pointer, None, StorageClass::PushConstant, None));
        }
        self.inputs(&kernel.body);
    }

    /// Declares the built-in inputs that are used.
    fn inputs(&mut self, block: &Block) {
        for inst in &block.0 {
            inst.op.blocks().for_each(|b| self.inputs(b));
            let Op::Builtin(b) = inst.op else { continue };
            let (slot, builtin, lanes) = match b {
                Builtin::LocalId => (LOCAL_INDEX, BuiltIn::LocalInvocationIndex, 1),
                Builtin::WorkgroupId(_) => (WORKGROUP_ID, BuiltIn::WorkgroupId, 3),
                Builtin::NumWorkgroups(_) => (NUM_WORKGROUPS, BuiltIn::NumWorkgroups, 3),
                Builtin::Lane => (LANE, BuiltIn::SubgroupLocalInvocationId, 1),
                Builtin::SubgroupId => (SUBGROUP_ID, BuiltIn::SubgroupId, 1),
            };
            if self.inputs[slot].is_some() {
                continue;
            }
            let scalar = self.b.type_int(32, 0);
            let ty = if lanes == 1 { scalar } else { self.b.type_vector(scalar, lanes) };
            let pointer = self.b.type_pointer(None, StorageClass::Input, ty);
            let variable = self.b.variable(pointer, None, StorageClass::Input, None);
            self.b.decorate(variable, Decoration::BuiltIn, [Operand::BuiltIn(builtin)]);
            self.interface.push(variable);
            self.inputs[slot] = Some(variable);
        }
    }

    fn kernel(&mut self) -> Emitted {
        self.declarations();
        let void = self.b.type_void();
        let function = self.b.type_function(void, []);
        let main = self.b.begin_function(void, None, FunctionControl::NONE, function)?;
        self.b.begin_block(None)?;
        for &var in &self.kernel.vars {
            let ty = self.scalar(var);
            let pointer = self.b.type_pointer(None, StorageClass::Function, ty);
            let variable = self.b.variable(pointer, None, StorageClass::Function, None);
            self.vars.push(variable);
        }
        for &fragment in &self.kernel.fragments {
            // One type for equal fragments: matrices of two types that read alike are not compatible.
            let same = self.kernel.fragments.iter().zip(&self.fragments).find(|(f, _)| **f == fragment);
            let same = same.map(|(_, &(_, ty))| ty);
            let ty = same.unwrap_or_else(|| self.fragment_type(fragment));
            let pointer = self.b.type_pointer(None, StorageClass::Function, ty);
            let variable = self.b.variable(pointer, None, StorageClass::Function, None);
            self.fragments.push((variable, ty));
        }
        for _ in 0..loops(&self.kernel.body) {
            let ty = self.b.type_int(32, 0);
            let pointer = self.b.type_pointer(None, StorageClass::Function, ty);
            let variable = self.b.variable(pointer, None, StorageClass::Function, None);
            self.counters.push(variable);
        }
        if matrix::fuses(&self.kernel.body) {
            let ty = self.b.type_int(32, 0);
            let pointer = self.b.type_pointer(None, StorageClass::Function, ty);
            self.component = Some(self.b.variable(pointer, None, StorageClass::Function, None));
        }
        self.block(&self.kernel.body)?;
        self.b.ret()?;
        self.b.end_function()?;
        // Whoever shuffles or votes may ask for its lane: those capabilities hold this one.
        let asks = self.inputs[LANE].or(self.inputs[SUBGROUP_ID]).is_some();
        let implied = [Capability::GroupNonUniformShuffle, Capability::GroupNonUniformBallot];
        if asks && !implied.into_iter().any(|c| self.declares(c)) {
            self.capability(Capability::GroupNonUniform);
        }
        let interface = self.interface.clone();
        self.b.entry_point(ExecutionModel::GLCompute, main, "main", interface);
        self.b.execution_mode(main, ExecutionMode::LocalSize, [self.kernel.workgroup, 1, 1]);
        self.b.name(main, self.kernel.name.clone());
        Ok(())
    }

    fn block(&mut self, block: &Block) -> Emitted {
        block.0.iter().try_for_each(|inst| self.inst(inst))
    }

    fn v(&self, v: ValueId) -> Word {
        self.values[v.0 as usize]
    }

    /// A pointer to element `index`.
    fn pointer(&mut self, place: Place, index: Word) -> Emitted<Word> {
        let zero = self.u32(0);
        let path = if place.block { vec![zero, index] } else { vec![index] };
        Ok(self.b.access_chain(place.pointer, None, place.variable, path)?)
    }

    fn place(&self, mem: Mem) -> Place {
        match mem {
            Mem::Buffer(b) => self.buffers[b as usize],
            Mem::Shared(s) => self.shared[s as usize],
            Mem::Table(t) => self.tables[t as usize],
        }
    }

    fn inst(&mut self, inst: &Inst) -> Emitted {
        match &inst.op {
            Op::Store { mem, index, value } => {
                let place = self.place(*mem);
                let pointer = self.pointer(place, self.v(*index))?;
                let mut value = self.v(*value);
                if place.elem.bytes() < 4 {
                    let narrow = self.elem(place.elem);
                    value = self.b.u_convert(narrow, None, value)?;
                }
                self.b.store(pointer, value, self.shared_access, [])?;
            }
            Op::Set(var, value) => self.b.store(self.vars[var.0 as usize], self.v(*value), None, [])?,
            Op::Barrier => {
                // Acquire and release, of buffers and of workgroup memory.
                let mut semantics = MemorySemantics::ACQUIRE_RELEASE
                    | MemorySemantics::UNIFORM_MEMORY
                    | MemorySemantics::WORKGROUP_MEMORY;
                if self.shared_access.is_some() {
                    semantics |= MemorySemantics::MAKE_AVAILABLE | MemorySemantics::MAKE_VISIBLE;
                }
                let (scope, semantics) = (self.u32(Scope::Workgroup as u32), self.u32(semantics.bits()));
                self.b.control_barrier(scope, scope, semantics)?;
            }
            Op::If(c, then, otherwise) => {
                let (yes, no, merge) = (self.b.id(), self.b.id(), self.b.id());
                self.b.selection_merge(merge, SelectionControl::NONE)?;
                self.b.branch_conditional(self.v(*c), yes, no, [])?;
                for (label, side) in [(yes, then), (no, otherwise)] {
                    self.b.begin_block(Some(label))?;
                    self.block(side)?;
                    self.b.branch(merge)?;
                }
                self.b.begin_block(Some(merge))?;
            }
            Op::For { index, start, end, step, unroll, body } => {
                self.repeat(*index, [*start, *end, *step], *unroll, body)?;
            }
            Op::FragZero(_)
            | Op::FragLoad { .. }
            | Op::FragSpread { .. }
            | Op::FragMap { .. }
            | Op::FragMulAdd { .. }
            | Op::FragStore { .. } => self.fragment(&inst.op)?,
            op => {
                let Some((id, ty)) = inst.def else { return Ok(()) };
                self.values[id.0 as usize] = self.value(op, ty)?;
            }
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        index: ValueId,
        [start, end, step]: [ValueId; 3],
        unroll: bool,
        body: &Block,
    ) -> Emitted {
        let counter = self.counters[self.next_counter];
        self.next_counter += 1;
        let (u32_, bool_) = (self.b.type_int(32, 0), self.b.type_bool());
        self.b.store(counter, self.v(start), None, [])?;
        let [header, test, inside, next, merge] = std::array::from_fn(|_| self.b.id());
        self.b.branch(header)?;
        self.b.begin_block(Some(header))?;
        let control = if unroll { LoopControl::UNROLL } else { LoopControl::NONE };
        self.b.loop_merge(merge, next, control, [])?;
        self.b.branch(test)?;
        self.b.begin_block(Some(test))?;
        let i = self.b.load(u32_, None, counter, None, [])?;
        self.values[index.0 as usize] = i;
        let more = self.b.u_less_than(bool_, None, i, self.v(end))?;
        self.b.branch_conditional(more, inside, merge, [])?;
        self.b.begin_block(Some(inside))?;
        self.block(body)?;
        self.b.branch(next)?;
        self.b.begin_block(Some(next))?;
        let i = self.b.i_add(u32_, None, i, self.v(step))?;
        self.b.store(counter, i, None, [])?;
        self.b.branch(header)?;
        self.b.begin_block(Some(merge))?;
        Ok(())
    }

    fn value(&mut self, op: &Op, ty: Ty) -> Emitted<Word> {
        let result = self.ty(ty);
        Ok(match op {
            Op::Const(Const::Bool(true)) => self.b.constant_true(result),
            Op::Const(Const::Bool(false)) => self.b.constant_false(result),
            Op::Const(c) => self.b.constant_bit32(result, c.bits()),
            Op::Param(p) => {
                let pointer = self.b.type_pointer(None, StorageClass::PushConstant, result);
                let (params, at) = (self.params.unwrap_or_default(), self.u32(*p));
                let pointer = self.b.access_chain(pointer, None, params, [at])?;
                self.b.load(result, None, pointer, None, [])?
            }
            Op::Builtin(b) => self.builtin(*b)?,
            Op::Unary(op, a) => self.unary(*op, *a, result)?,
            Op::Binary(op, a, b) => self.binary(*op, *a, *b, result)?,
            Op::Fma(a, b, c) => {
                let args = [a, b, c].map(|v| Operand::IdRef(self.v(*v)));
                let word = self.b.ext_inst(result, None, self.glsl, glsl::FMA, args)?;
                self.exact(word)
            }
            Op::Select(c, a, b) => {
                let (c, a, b) = (self.v(*c), self.v(*a), self.v(*b));
                self.b.select(result, None, c, a, b)?
            }
            Op::Cast(cast, to, a) => self.cast(*cast, *to, *a, result)?,
            Op::Dot4(kind, a, b, acc) => {
                self.capability(Capability::DotProduct);
                self.capability(Capability::DotProductInput4x8BitPacked);
                self.extension("SPV_KHR_integer_dot_product");
                let (a, b, acc) = (self.v(*a), self.v(*b), self.v(*acc));
                let format = Some(PackedVectorFormat::PackedVectorFormat4x8Bit);
                let sum = match kind {
                    Dot::SignedSigned => self.b.s_dot(result, None, a, b, format)?,
                    Dot::UnsignedSigned => self.b.su_dot(result, None, b, a, format)?,
                };
                self.b.i_add(result, None, sum, acc)?
            }
            Op::Load { mem, index, lanes } => self.load(*mem, *index, *lanes, ty)?,
            Op::Lane(a, lane) => self.b.composite_extract(result, None, self.v(*a), [u32::from(*lane)])?,
            Op::Get(var) => self.b.load(result, None, self.vars[var.0 as usize], None, [])?,
            Op::SubgroupReduce(op, a) => {
                let mut sum = self.v(*a);
                let mut offset = self.kernel.subgroup / 2;
                while offset > 0 {
                    let other = self.shuffle_xor(sum, offset, result)?;
                    sum = self.combine(*op, ty.scalar, sum, other, result)?;
                    offset /= 2;
                }
                sum
            }
            Op::ShuffleXor(a, mask) => self.shuffle_xor(self.v(*a), *mask, result)?,
            Op::Shuffle(a, lane) => {
                self.capability(Capability::GroupNonUniformShuffle);
                let scope = self.u32(Scope::Subgroup as u32);
                self.b.group_non_uniform_shuffle(result, None, scope, self.v(*a), self.v(*lane))?
            }
            Op::Ballot(a) => {
                self.capability(Capability::GroupNonUniformBallot);
                let scope = self.u32(Scope::Subgroup as u32);
                let vector = self.b.type_vector(result, 4);
                let all = self.b.group_non_uniform_ballot(vector, None, scope, self.v(*a))?;
                self.b.composite_extract(result, None, all, [0])?
            }
            Op::Atomic { op, mem, index, value } => {
                let pointer = self.pointer(self.place(*mem), self.v(*index))?;
                let scope = match mem {
                    Mem::Shared(_) => Scope::Workgroup,
                    // The device's scope has a capability of its own in Vulkan's model; the queue's is as wide as a launch.
                    _ if self.shared_access.is_some() => Scope::QueueFamily,
                    _ => Scope::Device,
                };
                let (scope, relaxed, value) = (self.u32(scope as u32), self.u32(0), self.v(*value));
                match (op, ty.scalar) {
                    (Combine::Add, _) => self.b.atomic_i_add(result, None, pointer, scope, relaxed, value)?,
                    (Combine::Min, Scalar::I32) => {
                        self.b.atomic_s_min(result, None, pointer, scope, relaxed, value)?
                    }
                    (Combine::Max, Scalar::I32) => {
                        self.b.atomic_s_max(result, None, pointer, scope, relaxed, value)?
                    }
                    (Combine::Min, _) => self.b.atomic_u_min(result, None, pointer, scope, relaxed, value)?,
                    (Combine::Max, _) => self.b.atomic_u_max(result, None, pointer, scope, relaxed, value)?,
                }
            }
            Op::Raw { fallback, .. } => self.v(*fallback),
            _ => return Err(Stop::Unsupported("a statement where a value is needed")),
        })
    }

    /// Keeps `word` from being contracted with its neighbours.
    fn exact(&mut self, word: Word) -> Word {
        self.b.decorate(word, Decoration::NoContraction, []);
        word
    }

    fn builtin(&mut self, b: Builtin) -> Emitted<Word> {
        let (slot, axis) = match b {
            Builtin::LocalId => (LOCAL_INDEX, None),
            Builtin::WorkgroupId(axis) => (WORKGROUP_ID, Some(axis)),
            Builtin::NumWorkgroups(axis) => (NUM_WORKGROUPS, Some(axis)),
            Builtin::Lane => (LANE, None),
            Builtin::SubgroupId => (SUBGROUP_ID, None),
        };
        let scalar = self.b.type_int(32, 0);
        let variable = self.inputs[slot].unwrap_or_default();
        let Some(axis) = axis else { return Ok(self.b.load(scalar, None, variable, None, [])?) };
        let vector = self.b.type_vector(scalar, 3);
        let all = self.b.load(vector, None, variable, None, [])?;
        Ok(self.b.composite_extract(scalar, None, all, [u32::from(axis)])?)
    }

    fn load(&mut self, mem: Mem, index: ValueId, lanes: u8, ty: Ty) -> Emitted<Word> {
        let place = self.place(mem);
        let index = self.v(index);
        let result = self.ty(ty);
        if lanes > 1 {
            let u32_ = self.b.type_int(32, 0);
            let alias = match mem {
                Mem::Buffer(b) => self.wide[b as usize][usize::from(lanes == 2)],
                _ => None,
            };
            if let Some(alias) = alias {
                let shift = self.u32(u32::from(lanes).trailing_zeros());
                let at = self.b.shift_right_logical(u32_, None, index, shift)?;
                let pointer = self.pointer(alias, at)?;
                return Ok(self.b.load(result, None, pointer, self.shared_access, [])?);
            }
            let scalar = self.scalar(ty.scalar);
            let mut parts = Vec::new();
            for lane in 0..u32::from(lanes) {
                let offset = self.u32(lane);
                let at = self.b.i_add(u32_, None, index, offset)?;
                let pointer = self.pointer(place, at)?;
                parts.push(self.b.load(scalar, None, pointer, self.shared_access, [])?);
            }
            return Ok(self.b.composite_construct(result, None, parts)?);
        }
        let pointer = self.pointer(place, index)?;
        let elem = self.elem(place.elem);
        let word = self.b.load(elem, None, pointer, self.shared_access, [])?;
        Ok(if place.elem.bytes() < 4 { self.b.u_convert(result, None, word)? } else { word })
    }

    fn shuffle_xor(&mut self, value: Word, mask: u32, result: Word) -> Emitted<Word> {
        self.capability(Capability::GroupNonUniformShuffle);
        let (scope, mask) = (self.u32(Scope::Subgroup as u32), self.u32(mask));
        Ok(self.b.group_non_uniform_shuffle_xor(result, None, scope, value, mask)?)
    }

    fn combine(&mut self, op: Combine, scalar: Scalar, a: Word, b: Word, result: Word) -> Emitted<Word> {
        let op = match op {
            Combine::Add => BinOp::Add,
            Combine::Min => BinOp::Min,
            Combine::Max => BinOp::Max,
        };
        self.arithmetic(op, scalar, a, b, result)
    }

    fn unary(&mut self, op: UnOp, a: ValueId, result: Word) -> Emitted<Word> {
        let scalar = self.types[a.0 as usize].scalar;
        let a = self.v(a);
        let function = match op {
            UnOp::Neg if scalar == Scalar::F32 => return Ok(self.b.f_negate(result, None, a)?),
            UnOp::Neg => return Ok(self.b.s_negate(result, None, a)?),
            UnOp::Not if scalar == Scalar::Bool => return Ok(self.b.logical_not(result, None, a)?),
            UnOp::Not => return Ok(self.b.not(result, None, a)?),
            UnOp::PopCount => return Ok(self.b.bit_count(result, None, a)?),
            UnOp::Abs => glsl::ABS,
            UnOp::Sqrt => glsl::SQRT,
            UnOp::RoundEven => glsl::ROUND_EVEN,
            UnOp::Floor => glsl::FLOOR,
        };
        Ok(self.b.ext_inst(result, None, self.glsl, function, [Operand::IdRef(a)])?)
    }

    fn binary(&mut self, op: BinOp, a: ValueId, b: ValueId, result: Word) -> Emitted<Word> {
        let scalar = self.types[a.0 as usize].scalar;
        let (a, b) = (self.v(a), self.v(b));
        self.arithmetic(op, scalar, a, b, result)
    }

    fn arithmetic(&mut self, op: BinOp, scalar: Scalar, x: Word, y: Word, result: Word) -> Emitted<Word> {
        use Scalar::{Bool, F32, I32};
        let b = &mut self.b;
        let word = match (op, scalar) {
            (BinOp::Add, F32) => b.f_add(result, None, x, y)?,
            (BinOp::Sub, F32) => b.f_sub(result, None, x, y)?,
            (BinOp::Mul, F32) => b.f_mul(result, None, x, y)?,
            (BinOp::Div, F32) => b.f_div(result, None, x, y)?,
            (BinOp::Add, _) => b.i_add(result, None, x, y)?,
            (BinOp::Sub, _) => b.i_sub(result, None, x, y)?,
            (BinOp::Mul, _) => b.i_mul(result, None, x, y)?,
            (BinOp::Div, I32) => b.s_div(result, None, x, y)?,
            (BinOp::Div, _) => b.u_div(result, None, x, y)?,
            (BinOp::Rem, _) => b.u_mod(result, None, x, y)?,
            (BinOp::And, Bool) => b.logical_and(result, None, x, y)?,
            (BinOp::Or, Bool) => b.logical_or(result, None, x, y)?,
            (BinOp::Xor, Bool) => b.logical_not_equal(result, None, x, y)?,
            (BinOp::And, _) => b.bitwise_and(result, None, x, y)?,
            (BinOp::Or, _) => b.bitwise_or(result, None, x, y)?,
            (BinOp::Xor, _) => b.bitwise_xor(result, None, x, y)?,
            (BinOp::Shl, _) => b.shift_left_logical(result, None, x, y)?,
            (BinOp::Shr, I32) => b.shift_right_arithmetic(result, None, x, y)?,
            (BinOp::Shr, _) => b.shift_right_logical(result, None, x, y)?,
            (BinOp::Eq, F32) => b.f_ord_equal(result, None, x, y)?,
            (BinOp::Ne, F32) => b.f_unord_not_equal(result, None, x, y)?,
            (BinOp::Lt, F32) => b.f_ord_less_than(result, None, x, y)?,
            (BinOp::Le, F32) => b.f_ord_less_than_equal(result, None, x, y)?,
            (BinOp::Eq, _) => b.i_equal(result, None, x, y)?,
            (BinOp::Ne, _) => b.i_not_equal(result, None, x, y)?,
            (BinOp::Lt, I32) => b.s_less_than(result, None, x, y)?,
            (BinOp::Lt, _) => b.u_less_than(result, None, x, y)?,
            (BinOp::Le, I32) => b.s_less_than_equal(result, None, x, y)?,
            (BinOp::Le, _) => b.u_less_than_equal(result, None, x, y)?,
            // Selects, not the instructions of that name: those may give either operand for NaN.
            (BinOp::Min | BinOp::Max, _) => {
                let bool_ = b.type_bool();
                let (x1, y1) = if op == BinOp::Min { (x, y) } else { (y, x) };
                let first = self.arithmetic(BinOp::Lt, scalar, x1, y1, bool_)?;
                return Ok(self.b.select(result, None, first, x, y)?);
            }
        };
        let inexact = matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div);
        Ok(if scalar == F32 && inexact { self.exact(word) } else { word })
    }

    fn cast(&mut self, cast: Cast, to: Scalar, a: ValueId, result: Word) -> Emitted<Word> {
        let from = self.types[a.0 as usize].scalar;
        let a = self.v(a);
        let float = self.b.type_float(32, None);
        let pair = self.b.type_vector(float, 2);
        Ok(match (cast, from, to) {
            (Cast::Value, Scalar::I32, Scalar::F32) => self.b.convert_s_to_f(result, None, a)?,
            (Cast::Value, Scalar::U32, Scalar::F32) => self.b.convert_u_to_f(result, None, a)?,
            (Cast::Value, Scalar::F32, Scalar::I32) => self.b.convert_f_to_s(result, None, a)?,
            (Cast::Value, Scalar::F16, _) => {
                let args = [Operand::IdRef(a)];
                let both = self.b.ext_inst(pair, None, self.glsl, glsl::UNPACK_HALF, args)?;
                self.b.composite_extract(result, None, both, [0])?
            }
            (Cast::Value, _, Scalar::F16) => {
                let zero = self.b.constant_bit32(float, 0);
                let both = self.b.composite_construct(pair, None, [a, zero])?;
                let args = [Operand::IdRef(both)];
                self.b.ext_inst(result, None, self.glsl, glsl::PACK_HALF, args)?
            }
            (Cast::Bits, Scalar::U32, Scalar::F16) => {
                let mask = self.u32(0xffff);
                self.b.bitwise_and(result, None, a, mask)?
            }
            (Cast::Bits, Scalar::F16, Scalar::U32) => a,
            _ => self.b.bitcast(result, None, a)?,
        })
    }
}

/// Whether each buffer is loaded four and two elements at a time.
fn wide_loads(kernel: &Kernel) -> Vec<[bool; 2]> {
    fn walk(block: &Block, out: &mut [[bool; 2]]) {
        for inst in &block.0 {
            if let Op::Load { mem: Mem::Buffer(b), lanes, .. } = inst.op
                && lanes > 1
                && let Some(used) = out.get_mut(b as usize)
            {
                used[usize::from(lanes == 2)] = true;
            }
            inst.op.blocks().for_each(|b| walk(b, out));
        }
    }
    let mut out = vec![[false; 2]; kernel.buffers.len()];
    walk(&kernel.body, &mut out);
    out
}

fn loops(block: &Block) -> usize {
    let own = |i: &Inst| usize::from(matches!(i.op, Op::For { .. }));
    block.0.iter().map(|i| own(i) + i.op.blocks().map(loops).sum::<usize>()).sum()
}
