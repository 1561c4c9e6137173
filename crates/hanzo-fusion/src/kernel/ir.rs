//! What a kernel is: typed values in structured blocks.
//!
//! Every value is defined once and used inside the block that defines it, or in blocks nested there. What changes in a loop lives in a
//! [`Var`]. Control flow is `for` and `if` only, so that each target can print it as its own `for` and `if`, and so that
//! "is this barrier reached by all?" has an answer ([`super::verify`]).

use std::panic::Location;

/// A scalar that registers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    /// True or false; never in memory.
    Bool,
    /// Two's complement, wrapping.
    I32,
    /// Wrapping. Also carries four packed bytes for [`Op::Dot4`].
    U32,
    /// IEEE single.
    F32,
    /// IEEE half; arithmetic happens in f32, so it is only loaded, stored and converted.
    F16,
}

/// A scalar, or a vector of 2 or 4 that a wide load gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ty {
    /// Of each lane.
    pub scalar: Scalar,
    /// 1, 2 or 4.
    pub lanes: u8,
}

impl Ty {
    /// True or false.
    pub const BOOL: Self = Self::scalar(Scalar::Bool);
    /// Signed.
    pub const I32: Self = Self::scalar(Scalar::I32);
    /// Unsigned.
    pub const U32: Self = Self::scalar(Scalar::U32);
    /// Single.
    pub const F32: Self = Self::scalar(Scalar::F32);
    /// Half.
    pub const F16: Self = Self::scalar(Scalar::F16);

    /// One lane.
    pub const fn scalar(scalar: Scalar) -> Self {
        Self { scalar, lanes: 1 }
    }
}

/// An element as memory holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Elem {
    /// 4 bytes.
    F32,
    /// 4 bytes.
    I32,
    /// 4 bytes.
    U32,
    /// 2 bytes; loads give [`Scalar::F16`].
    F16,
    /// 2 bytes, unsigned; loads give [`Scalar::U32`]. BF16 is this with a shift.
    U16,
    /// A byte, unsigned; loads give [`Scalar::U32`].
    U8,
}

impl Elem {
    /// Bytes of one.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::U16 => 2,
            Self::U8 => 1,
        }
    }

    /// What a register holds after a load.
    pub const fn scalar(self) -> Scalar {
        match self {
            Self::F32 => Scalar::F32,
            Self::I32 => Scalar::I32,
            Self::U32 | Self::U16 | Self::U8 => Scalar::U32,
            Self::F16 => Scalar::F16,
        }
    }
}

/// A value: defined by one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A register that may be assigned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

/// A place that is indexed by elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mem {
    /// A buffer that the launch binds: index into [`Kernel::buffers`].
    Buffer(u32),
    /// Workgroup memory: index into [`Kernel::shared`].
    Shared(u32),
    /// A table of constants: index into [`Kernel::tables`].
    Table(u32),
}

/// What a launch knows without being told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Builtin {
    /// Linear index of the invocation in its workgroup.
    LocalId,
    /// Index of the workgroup along an axis (0 to 2).
    WorkgroupId(u8),
    /// Number of workgroups along an axis.
    NumWorkgroups(u8),
    /// `LocalId % subgroup`.
    Lane,
    /// `LocalId / subgroup`.
    SubgroupId,
}

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Const {
    /// True or false.
    Bool(bool),
    /// Signed.
    I32(i32),
    /// Unsigned.
    U32(u32),
    /// Single; compared and printed by its bits.
    F32(f32),
}

impl Const {
    /// Its type.
    pub const fn ty(self) -> Ty {
        match self {
            Self::Bool(_) => Ty::BOOL,
            Self::I32(_) => Ty::I32,
            Self::U32(_) => Ty::U32,
            Self::F32(_) => Ty::F32,
        }
    }

    /// The 32 bits that a register holds.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bool(b) => b as u32,
            Self::I32(i) => i.cast_unsigned(),
            Self::U32(u) => u,
            Self::F32(f) => f.to_bits(),
        }
    }

    /// The constant of type `scalar` with these bits; `None` for [`Scalar::F16`], which has no constants.
    pub const fn from_bits(scalar: Scalar, bits: u32) -> Option<Self> {
        Some(match scalar {
            Scalar::Bool => Self::Bool(bits != 0),
            Scalar::I32 => Self::I32(bits.cast_signed()),
            Scalar::U32 => Self::U32(bits),
            Scalar::F32 => Self::F32(f32::from_bits(bits)),
            Scalar::F16 => return None,
        })
    }
}

/// Of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnOp {
    /// `−x` (integers wrap).
    Neg,
    /// Logical or bitwise complement.
    Not,
    /// `|x|`, of f32.
    Abs,
    /// IEEE square root.
    Sqrt,
    /// To the nearest integer, ties to even, as f32.
    RoundEven,
    /// Toward −∞, as f32.
    Floor,
    /// Number of set bits.
    PopCount,
}

/// Of two operands of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinOp {
    /// Sum; integers wrap.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient; of integers toward zero, the divisor must not be 0.
    Div,
    /// Remainder of u32.
    Rem,
    /// `a < b ? a : b`.
    Min,
    /// `a > b ? a : b`.
    Max,
    /// Bitwise or logical.
    And,
    /// Bitwise or logical.
    Or,
    /// Bitwise or logical.
    Xor,
    /// Left, by a count below 32.
    Shl,
    /// Right, by a count below 32; of i32 the sign is kept.
    Shr,
    /// `a == b`.
    Eq,
    /// `a != b`.
    Ne,
    /// `a < b`.
    Lt,
    /// `a <= b`.
    Le,
}

impl BinOp {
    /// Whether it gives a [`Scalar::Bool`] of any operands.
    pub const fn compares(self) -> bool {
        matches!(self, Self::Eq | Self::Ne | Self::Lt | Self::Le)
    }
}

/// How a value becomes one of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cast {
    /// By value: integer to f32 rounds to nearest even, f32 to integer cuts toward zero (in range, or it is a fault), f16 and f32
    /// round to nearest even.
    Value,
    /// The same 32 bits. Between u32 and f16: the low 16.
    Bits,
}

/// Signedness of a packed dot product `Σ a[i]·b[i]` of four bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dot {
    /// Both signed.
    SignedSigned,
    /// The first unsigned, the second signed.
    UnsignedSigned,
}

/// What subgroups and atomics combine by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Sum.
    Add,
    /// Least.
    Min,
    /// Greatest.
    Max,
}

/// The role of a matrix fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frag {
    /// Left factor, M × K, row-major in memory.
    A,
    /// Right factor, K × N, column-major in memory (so that a row of weights is a column).
    B,
    /// Accumulator, M × N, row-major in memory.
    Acc,
}

/// A side of an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The vector has an element a row.
    Rows,
    /// The vector has an element a column.
    Columns,
}

/// What is done to accumulators, element by element, where they are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FragOp {
    /// The f32 nearest to each element of an i32 accumulator.
    Float(u32),
    /// Products of f32, rounded once.
    Mul(u32, u32),
    /// `a · b` added to what is there, rounded once.
    Fma(u32, u32),
}

impl FragOp {
    /// The fragments that it reads.
    pub fn operands(self) -> impl Iterator<Item = u32> {
        let (a, b) = match self {
            Self::Float(a) => (a, None),
            Self::Mul(a, b) | Self::Fma(a, b) => (a, Some(b)),
        };
        [a].into_iter().chain(b)
    }
}

/// An instruction's work. Operand types are checked by [`super::verify`].
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A constant.
    Const(Const),
    /// A scalar of the launch: index into [`Kernel::params`].
    Param(u32),
    /// Where the invocation stands.
    Builtin(Builtin),
    /// One operand.
    Unary(UnOp, ValueId),
    /// Two operands.
    Binary(BinOp, ValueId, ValueId),
    /// `a · b + c` of f32, rounded once.
    Fma(ValueId, ValueId, ValueId),
    /// `c ? a : b`; both are computed.
    Select(ValueId, ValueId, ValueId),
    /// To another scalar type.
    Cast(Cast, Scalar, ValueId),
    /// `acc + Σ a[i]·b[i]`, four bytes each, exact in i32.
    Dot4(Dot, ValueId, ValueId, ValueId),
    /// `lanes` neighbouring elements; the index counts elements and is a multiple of `lanes`.
    Load {
        /// Where.
        mem: Mem,
        /// Element.
        index: ValueId,
        /// 1, 2 or 4.
        lanes: u8,
    },
    /// One lane of a vector.
    Lane(ValueId, u8),
    /// Writes one element.
    Store {
        /// Where: a writable buffer, or workgroup memory.
        mem: Mem,
        /// Element.
        index: ValueId,
        /// What.
        value: ValueId,
    },
    /// Reads a register.
    Get(Var),
    /// Assigns a register.
    Set(Var, ValueId),
    /// All of the workgroup meet; their writes to workgroup memory and buffers are seen by all after it.
    Barrier,
    /// Combined over the subgroup, the same in every lane, by a fixed butterfly: lane `i` takes lane `i ^ offset`, offsets halving.
    SubgroupReduce(Combine, ValueId),
    /// The value of lane `lane ^ mask`.
    ShuffleXor(ValueId, u32),
    /// The value of the given lane.
    Shuffle(ValueId, ValueId),
    /// Bit `i` of the result is lane `i`'s predicate (lanes 0 to 31 of the subgroup).
    Ballot(ValueId),
    /// `mem[index]` is combined with the value in one step; gives the old one. I32 and U32 only.
    Atomic {
        /// How.
        op: Combine,
        /// A writable buffer, or workgroup memory.
        mem: Mem,
        /// Element.
        index: ValueId,
        /// What.
        value: ValueId,
    },
    /// One of two blocks.
    If(ValueId, Block, Block),
    /// `for index in (start..end).step_by(step)`, of u32.
    For {
        /// Defined in the body.
        index: ValueId,
        /// First.
        start: ValueId,
        /// Beyond the last.
        end: ValueId,
        /// Not 0.
        step: ValueId,
        /// Asks targets to unroll.
        unroll: bool,
        /// What is repeated.
        body: Block,
    },
    /// Zeroes an accumulator fragment of the kernel: index into [`Kernel::fragments`].
    FragZero(u32),
    /// Loads a fragment from memory: element (i, j) at `index + i·stride + j` (B: `index + j·stride + i`). Index and stride are multiples of
    /// [`FRAG_ALIGN`] bytes, so that every target may load it in whole words. A and B may lie packed in memory of u32, lowest bytes
    /// first; index and stride count memory's elements.
    FragLoad {
        /// Which.
        frag: u32,
        /// Where.
        mem: Mem,
        /// Of its first element.
        index: ValueId,
        /// Elements from row to row (B: from column to column).
        stride: ValueId,
    },
    /// Fills an accumulator with a vector that memory holds: element (i, j) is the vector's i-th by [`Side::Rows`], its j-th by
    /// [`Side::Columns`]. The index is a multiple of [`FRAG_ALIGN`] bytes.
    FragSpread {
        /// Which.
        frag: u32,
        /// What the vector counts.
        side: Side,
        /// Where.
        mem: Mem,
        /// Of its first element.
        index: ValueId,
    },
    /// Elements of accumulators, each where it is held: no lane needs to know which it has.
    FragMap {
        /// What becomes of it.
        to: u32,
        /// From what.
        op: FragOp,
    },
    /// `acc += a · b`.
    FragMulAdd {
        /// Accumulator.
        acc: u32,
        /// Left.
        a: u32,
        /// Right.
        b: u32,
    },
    /// Writes an accumulator: element (i, j) to `index + i·stride + j`; index and stride as for loads.
    FragStore {
        /// Which.
        frag: u32,
        /// Where.
        mem: Mem,
        /// Of its first element.
        index: ValueId,
        /// Elements from row to row.
        stride: ValueId,
    },
    /// One expression in a target's own words, and the value that stands for it on every other target.
    Raw {
        /// Text by target, with `$0`, `$1` for the operands.
        text: Vec<(super::Dialect, String)>,
        /// Operands.
        args: Vec<ValueId>,
        /// The same value in this IR.
        fallback: ValueId,
    },
}

/// One step of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// What it defines, with its type.
    pub def: Option<(ValueId, Ty)>,
    /// What it does.
    pub op: Op,
    /// Where in the kernel's source it was written.
    pub at: &'static Location<'static>,
}

/// Instructions in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block(pub Vec<Inst>);

/// What a kernel may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only read, and nobody writes it during the launch.
    Read,
    /// Only written.
    Write,
    /// Both.
    ReadWrite,
}

/// A buffer parameter. Targets bind buffers in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// As the builder named it.
    pub name: String,
    /// Its elements.
    pub elem: Elem,
    /// What is done with it.
    pub access: Access,
    /// Widest load that is made from it: base addresses are aligned to that many elements.
    pub align: u8,
}

/// A scalar parameter; four bytes each, in this order, after the buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// As the builder named it.
    pub name: String,
    /// I32, U32 or F32.
    pub ty: Scalar,
}

/// An array that a workgroup shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// As the builder named it.
    pub name: String,
    /// Its elements.
    pub elem: Elem,
    /// How many.
    pub len: u32,
}

/// Constants that are indexed (a codebook).
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// As the builder named it.
    pub name: String,
    /// Values.
    pub words: Vec<u32>,
}

/// A matrix fragment that a subgroup holds together; which lane holds which element is the target's own business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its part in the product.
    pub role: Frag,
    /// F16 (accumulating in f32) or packed bytes (U8 elements holding i8, accumulating in i32).
    pub elem: Elem,
}

/// A fragment product is 16 × 16 × 16 on every target (targets with smaller units compose it).
pub const TILE: usize = 16;

/// Bytes that indices and strides of fragments are multiples of.
pub const FRAG_ALIGN: usize = 16;

/// A whole kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// A C identifier.
    pub name: String,
    /// Tile, order and bound, as the author states them; printed above the kernel in every target.
    pub doc: String,
    /// Buffers in binding order.
    pub buffers: Vec<Buffer>,
    /// Scalars in order.
    pub params: Vec<Param>,
    /// Workgroup memory.
    pub shared: Vec<Shared>,
    /// Constant tables.
    pub tables: Vec<Table>,
    /// Types of the registers, by [`Var`].
    pub vars: Vec<Scalar>,
    /// Matrix fragments.
    pub fragments: Vec<Fragment>,
    /// Invocations of a workgroup, a multiple of `subgroup`.
    pub workgroup: u32,
    /// Lanes of a subgroup: 8, 16, 32 or 64.
    pub subgroup: u32,
    /// What it does.
    pub body: Block,
    /// Values are numbered below this.
    pub n_values: u32,
}

impl Kernel {
    /// The elements of `mem`, which is declared.
    pub fn elem(&self, mem: Mem) -> Elem {
        match mem {
            Mem::Buffer(b) => self.buffers[b as usize].elem,
            Mem::Shared(s) => self.shared[s as usize].elem,
            Mem::Table(_) => Elem::U32,
        }
    }

    /// Bytes of workgroup memory.
    pub fn shared_bytes(&self) -> usize {
        self.shared.iter().map(|s| s.elem.bytes() * s.len as usize).sum()
    }
}

impl Kernel {
    /// Types by value; values that no instruction defines read as u32 (loop indices are).
    pub fn value_types(&self) -> Vec<Ty> {
        fn walk(block: &Block, types: &mut [Ty]) {
            for inst in &block.0 {
                if let Some((id, ty)) = inst.def
                    && let Some(slot) = types.get_mut(id.0 as usize)
                {
                    *slot = ty;
                }
                inst.op.blocks().for_each(|b| walk(b, types));
            }
        }
        let mut types = vec![Ty::U32; self.n_values as usize];
        walk(&self.body, &mut types);
        types
    }
}

impl Op {
    /// Operands that are values, nested blocks not included.
    pub fn operands(&self) -> Vec<ValueId> {
        match self {
            Op::Const(_) | Op::Param(_) | Op::Builtin(_) | Op::Get(_) | Op::Barrier => vec![],
            Op::FragZero(_) | Op::FragMulAdd { .. } | Op::FragMap { .. } => vec![],
            Op::Unary(_, a) | Op::Cast(_, _, a) | Op::Lane(a, _) | Op::Set(_, a) => vec![*a],
            Op::SubgroupReduce(_, a) | Op::ShuffleXor(a, _) | Op::Ballot(a) | Op::If(a, ..) => vec![*a],
            Op::Binary(_, a, b) | Op::Shuffle(a, b) => vec![*a, *b],
            Op::Fma(a, b, c) | Op::Select(a, b, c) | Op::Dot4(_, a, b, c) => vec![*a, *b, *c],
            Op::Load { index, .. } | Op::FragSpread { index, .. } => vec![*index],
            Op::Store { index, value, .. } | Op::Atomic { index, value, .. } => vec![*index, *value],
            Op::For { start, end, step, .. } => vec![*start, *end, *step],
            Op::FragLoad { index, stride, .. } | Op::FragStore { index, stride, .. } => vec![*index, *stride],
            Op::Raw { args, fallback, .. } => args.iter().chain([fallback]).copied().collect(),
        }
    }

    /// Applies `f` to every operand in place, nested blocks not included.
    pub fn map_operands(&mut self, mut f: impl FnMut(ValueId) -> ValueId) {
        match self {
            Op::Const(_) | Op::Param(_) | Op::Builtin(_) | Op::Get(_) | Op::Barrier => {}
            Op::FragZero(_) | Op::FragMulAdd { .. } | Op::FragMap { .. } => {}
            Op::Unary(_, a) | Op::Cast(_, _, a) | Op::Lane(a, _) | Op::Set(_, a) => *a = f(*a),
            Op::SubgroupReduce(_, a) | Op::ShuffleXor(a, _) | Op::Ballot(a) | Op::If(a, ..) => *a = f(*a),
            Op::Binary(_, a, b) | Op::Shuffle(a, b) => (*a, *b) = (f(*a), f(*b)),
            Op::Fma(a, b, c) | Op::Select(a, b, c) | Op::Dot4(_, a, b, c) => {
                (*a, *b, *c) = (f(*a), f(*b), f(*c));
            }
            Op::Load { index, .. } | Op::FragSpread { index, .. } => *index = f(*index),
            Op::Store { index, value, .. } | Op::Atomic { index, value, .. } => {
                (*index, *value) = (f(*index), f(*value));
            }
            Op::For { start, end, step, .. } => (*start, *end, *step) = (f(*start), f(*end), f(*step)),
            Op::FragLoad { index, stride, .. } | Op::FragStore { index, stride, .. } => {
                (*index, *stride) = (f(*index), f(*stride));
            }
            Op::Raw { args, fallback, .. } => {
                args.iter_mut().for_each(|a| *a = f(*a));
                *fallback = f(*fallback);
            }
        }
    }

    /// Nested blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let (a, b) = match self {
            Op::If(_, a, b) => (Some(a), Some(b)),
            Op::For { body, .. } => (Some(body), None),
            _ => (None, None),
        };
        a.into_iter().chain(b)
    }

    /// Nested blocks, to be changed.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        let (a, b) = match self {
            Op::If(_, a, b) => (Some(a), Some(b)),
            Op::For { body, .. } => (Some(body), None),
            _ => (None, None),
        };
        a.into_iter().chain(b)
    }

    /// Whether two of it with equal operands give one value wherever both can be reached: what may be merged or left out.
    pub fn is_pure(&self) -> bool {
        matches!(
            self,
            Op::Const(_)
                | Op::Param(_)
                | Op::Builtin(_)
                | Op::Unary(..)
                | Op::Binary(..)
                | Op::Fma(..)
                | Op::Select(..)
                | Op::Cast(..)
                | Op::Dot4(..)
                | Op::Lane(..)
                | Op::Load { mem: Mem::Table(_), .. }
        )
    }
}
