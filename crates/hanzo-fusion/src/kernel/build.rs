//! Kernels are Rust functions: this is what they are written with.
//!
//! A [`Builder`] records instructions; a [`Val`] is a handle to a value, `Copy`, with Rust's operators. Rust's `for` and `if` run while
//! the kernel is *built* (they unroll and specialize); [`Builder::for_range`], [`Builder::when`] and [`Builder::when_else`] run on the
//! device.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::Location;

use super::ir::{
    Access, BinOp, Block, Buffer, Builtin, Cast, Combine, Const, Dot, Elem, Frag, FragOp, Fragment, Inst,
    Kernel, Mem, Op, Param, Scalar, Shared, Side, Table, Ty, UnOp, ValueId, Var,
};
use super::{Dialect, KernelError, verify};

/// Records a kernel.
#[derive(Debug)]
pub struct Builder {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    kernel: Kernel,
    /// Blocks that are open, the innermost last.
    open: Vec<Block>,
    types: Vec<Ty>,
}

/// A register type, by its Rust name.
pub trait Register: Copy {
    /// What it is in the IR.
    const SCALAR: Scalar;
}

/// A register type that has constants.
pub trait Literal: Register {
    /// The constant.
    fn constant(self) -> Const;
}

macro_rules! register {
    ($($t:ty: $scalar:ident),*) => {$(
        impl Register for $t {
            const SCALAR: Scalar = Scalar::$scalar;
        }
        impl Literal for $t {
            fn constant(self) -> Const {
                Const::$scalar(self)
            }
        }
    )*};
}
register!(bool: Bool, i32: I32, u32: U32, f32: F32);

/// IEEE half, as a register type.
#[derive(Clone, Copy, Debug)]
pub struct F16;
impl Register for F16 {
    const SCALAR: Scalar = Scalar::F16;
}

/// A value of type `T`.
#[derive(Debug)]
pub struct Val<'k, T> {
    k: &'k Builder,
    id: ValueId,
    ty: PhantomData<T>,
}

impl<T> Clone for Val<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Val<'_, T> {}

/// Whatever stands for a value of type `T`: a [`Val`], or a constant.
pub trait IntoVal<'k, T> {
    /// The value.
    fn val(self, k: &'k Builder) -> Val<'k, T>;
}
impl<'k, T> IntoVal<'k, T> for Val<'k, T> {
    fn val(self, _k: &'k Builder) -> Val<'k, T> {
        self
    }
}
impl<'k, T: Literal> IntoVal<'k, T> for T {
    #[track_caller]
    fn val(self, k: &'k Builder) -> Val<'k, T> {
        k.define(Op::Const(self.constant()), Ty::scalar(T::SCALAR))
    }
}

/// A register that may be assigned again.
#[derive(Debug)]
pub struct Reg<'k, T> {
    k: &'k Builder,
    var: Var,
    ty: PhantomData<T>,
}
impl<T> Clone for Reg<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Reg<'_, T> {}

impl<'k, T: Register> Reg<'k, T> {
    /// What it holds now.
    #[track_caller]
    pub fn get(self) -> Val<'k, T> {
        self.k.define(Op::Get(self.var), Ty::scalar(T::SCALAR))
    }

    /// From here on it holds `v`.
    #[track_caller]
    pub fn set(self, v: impl IntoVal<'k, T>) {
        let v = v.val(self.k);
        self.k.emit(Op::Set(self.var, v.id));
    }
}

/// Memory whose loads give `T`.
#[derive(Debug)]
pub struct Array<'k, T> {
    k: &'k Builder,
    mem: Mem,
    ty: PhantomData<T>,
}
impl<T> Clone for Array<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Array<'_, T> {}

impl<'k, T: Register> Array<'k, T> {
    /// The element at `index`.
    #[track_caller]
    pub fn at(self, index: impl IntoVal<'k, u32>) -> Val<'k, T> {
        let index = index.val(self.k).id;
        self.k.define(Op::Load { mem: self.mem, index, lanes: 1 }, Ty::scalar(T::SCALAR))
    }

    /// `N` = 2 or 4 elements from `index`, a multiple of `N`, in one access.
    #[track_caller]
    pub fn wide<const N: usize>(self, index: impl IntoVal<'k, u32>) -> [Val<'k, T>; N] {
        const { assert!(N == 2 || N == 4, "wide loads are of 2 or 4") };
        let index = index.val(self.k).id;
        if let Mem::Buffer(b) = self.mem
            && let Some(buffer) = self.k.state.borrow_mut().kernel.buffers.get_mut(b as usize)
        {
            buffer.align = buffer.align.max(N as u8);
        }
        let ty = Ty { scalar: T::SCALAR, lanes: N as u8 };
        let v: Val<'k, T> = self.k.define(Op::Load { mem: self.mem, index, lanes: N as u8 }, ty);
        std::array::from_fn(|i| self.k.define(Op::Lane(v.id, i as u8), Ty::scalar(T::SCALAR)))
    }

    /// Writes the element at `index`.
    #[track_caller]
    pub fn set(self, index: impl IntoVal<'k, u32>, value: impl IntoVal<'k, T>) {
        let (index, value) = (index.val(self.k).id, value.val(self.k).id);
        self.k.emit(Op::Store { mem: self.mem, index, value });
    }

    /// Combines the element at `index` with `value` in one step; gives what it was.
    #[track_caller]
    pub fn atomic(self, op: Combine, index: impl IntoVal<'k, u32>, value: impl IntoVal<'k, T>) -> Val<'k, T> {
        let (index, value) = (index.val(self.k).id, value.val(self.k).id);
        self.k.define(Op::Atomic { op, mem: self.mem, index, value }, Ty::scalar(T::SCALAR))
    }
}

/// A matrix fragment (see [`Fragment`]).
#[derive(Clone, Copy, Debug)]
pub struct Tile<'k> {
    k: &'k Builder,
    frag: u32,
}

impl<'k> Tile<'k> {
    /// Makes an accumulator zero.
    #[track_caller]
    pub fn zero(self) {
        self.k.emit(Op::FragZero(self.frag));
    }
    /// Loads it: element (i, j) from `index + i·stride + j`, or for [`Frag::B`] from `index + j·stride + i`. Factors may lie packed in words;
    /// index and stride then count words.
    #[track_caller]
    pub fn load<T: Register>(
        self,
        from: Array<'k, T>,
        index: impl IntoVal<'k, u32>,
        stride: impl IntoVal<'k, u32>,
    ) {
        let (index, stride) = (index.val(self.k).id, stride.val(self.k).id);
        self.k.emit(Op::FragLoad { frag: self.frag, mem: from.mem, index, stride });
    }
    /// Fills an accumulator with the vector of 16 that begins at `index`: an element a row, or an element a column.
    #[track_caller]
    pub fn spread<T: Register>(self, side: Side, from: Array<'k, T>, index: impl IntoVal<'k, u32>) {
        let index = index.val(self.k).id;
        self.k.emit(Op::FragSpread { frag: self.frag, side, mem: from.mem, index });
    }
    /// Becomes the f32 of an i32 accumulator.
    #[track_caller]
    pub fn float(self, a: Tile<'k>) {
        self.k.emit(Op::FragMap { to: self.frag, op: FragOp::Float(a.frag) });
    }
    /// Becomes `a · b`, element by element.
    #[track_caller]
    pub fn scale(self, a: Tile<'k>, b: Tile<'k>) {
        self.k.emit(Op::FragMap { to: self.frag, op: FragOp::Mul(a.frag, b.frag) });
    }
    /// Adds `a · b`, element by element, rounded once.
    #[track_caller]
    pub fn fma(self, a: Tile<'k>, b: Tile<'k>) {
        self.k.emit(Op::FragMap { to: self.frag, op: FragOp::Fma(a.frag, b.frag) });
    }
    /// Adds the matrix product `a · b`.
    #[track_caller]
    pub fn mul_add(self, a: Tile<'k>, b: Tile<'k>) {
        self.k.emit(Op::FragMulAdd { acc: self.frag, a: a.frag, b: b.frag });
    }
    /// Writes it row-major.
    #[track_caller]
    pub fn store<T: Register>(
        self,
        to: Array<'k, T>,
        index: impl IntoVal<'k, u32>,
        stride: impl IntoVal<'k, u32>,
    ) {
        let (index, stride) = (index.val(self.k).id, stride.val(self.k).id);
        self.k.emit(Op::FragStore { frag: self.frag, mem: to.mem, index, stride });
    }
}

impl Builder {
    /// A kernel named `name` (a C identifier) of `workgroup` invocations in subgroups of `subgroup`. `doc` states tile, order and bound.
    pub fn new(name: &str, doc: &str, workgroup: u32, subgroup: u32) -> Self {
        let kernel = Kernel {
            name: name.to_owned(),
            doc: doc.to_owned(),
            buffers: Vec::new(),
            params: Vec::new(),
            shared: Vec::new(),
            tables: Vec::new(),
            vars: Vec::new(),
            fragments: Vec::new(),
            workgroup,
            subgroup,
            body: Block::default(),
            n_values: 0,
        };
        Self { state: RefCell::new(State { kernel, open: vec![Block::default()], types: Vec::new() }) }
    }

    /// The kernel, checked.
    ///
    /// # Errors
    /// What [`verify`] finds, with the place in the kernel's source.
    pub fn finish(self) -> Result<Kernel, KernelError> {
        let State { mut kernel, mut open, types } = self.state.into_inner();
        kernel.body = open.pop().unwrap_or_default();
        kernel.n_values = types.len() as u32;
        verify::verify(&kernel)?;
        Ok(kernel)
    }

    #[track_caller]
    fn define<T>(&self, op: Op, ty: Ty) -> Val<'_, T> {
        let mut state = self.state.borrow_mut();
        let id = ValueId(state.types.len() as u32);
        state.types.push(ty);
        state.push(Inst { def: Some((id, ty)), op, at: Location::caller() });
        Val { k: self, id, ty: PhantomData }
    }

    #[track_caller]
    fn emit(&self, op: Op) {
        self.state.borrow_mut().push(Inst { def: None, op, at: Location::caller() });
    }

    fn buffer<T: Register>(&self, name: &str, elem: Elem, access: Access) -> Array<'_, T> {
        let mut state = self.state.borrow_mut();
        let mem = Mem::Buffer(state.kernel.buffers.len() as u32);
        state.kernel.buffers.push(Buffer { name: name.to_owned(), elem, access, align: 1 });
        Array { k: self, mem, ty: PhantomData }
    }

    /// A buffer of `T` that nobody writes.
    pub fn input<T: Stored>(&self, name: &str) -> Array<'_, T> {
        self.buffer(name, T::ELEM, Access::Read)
    }
    /// A buffer of `T` that is written.
    pub fn output<T: Stored>(&self, name: &str) -> Array<'_, T> {
        self.buffer(name, T::ELEM, Access::Write)
    }
    /// A buffer of `T` that is read and written.
    pub fn inout<T: Stored>(&self, name: &str) -> Array<'_, T> {
        self.buffer(name, T::ELEM, Access::ReadWrite)
    }
    /// A buffer of bytes, or of 16-bit words, that nobody writes; a load zero-extends.
    pub fn input_small(&self, name: &str, elem: Elem) -> Array<'_, u32> {
        self.buffer(name, elem, Access::Read)
    }
    /// A buffer of bytes, or of 16-bit words, that is written; a store keeps the low bits.
    pub fn output_small(&self, name: &str, elem: Elem) -> Array<'_, u32> {
        self.buffer(name, elem, Access::Write)
    }

    /// A scalar of the launch.
    #[track_caller]
    pub fn param<T: Literal>(&self, name: &str) -> Val<'_, T> {
        let index = {
            let mut state = self.state.borrow_mut();
            state.kernel.params.push(Param { name: name.to_owned(), ty: T::SCALAR });
            state.kernel.params.len() as u32 - 1
        };
        self.define(Op::Param(index), Ty::scalar(T::SCALAR))
    }

    /// Workgroup memory of `len` elements; holds nothing defined at first.
    pub fn shared<T: Stored>(&self, name: &str, len: u32) -> Array<'_, T> {
        self.shared_of(name, T::ELEM, len)
    }
    /// Workgroup memory of bytes or 16-bit words.
    pub fn shared_small(&self, name: &str, elem: Elem, len: u32) -> Array<'_, u32> {
        self.shared_of(name, elem, len)
    }
    fn shared_of<T: Register>(&self, name: &str, elem: Elem, len: u32) -> Array<'_, T> {
        let mut state = self.state.borrow_mut();
        let mem = Mem::Shared(state.kernel.shared.len() as u32);
        state.kernel.shared.push(Shared { name: name.to_owned(), elem, len });
        Array { k: self, mem, ty: PhantomData }
    }

    /// A table of constants.
    pub fn table(&self, name: &str, words: impl Into<Vec<u32>>) -> Array<'_, u32> {
        let mut state = self.state.borrow_mut();
        let mem = Mem::Table(state.kernel.tables.len() as u32);
        state.kernel.tables.push(Table { name: name.to_owned(), words: words.into() });
        Array { k: self, mem, ty: PhantomData }
    }

    /// A matrix fragment.
    pub fn tile(&self, role: Frag, elem: Elem) -> Tile<'_> {
        let mut state = self.state.borrow_mut();
        state.kernel.fragments.push(Fragment { role, elem });
        Tile { k: self, frag: state.kernel.fragments.len() as u32 - 1 }
    }

    /// A register that holds `init`.
    #[track_caller]
    pub fn reg<'k, T: Register>(&'k self, init: impl IntoVal<'k, T>) -> Reg<'k, T> {
        let var = {
            let mut state = self.state.borrow_mut();
            state.kernel.vars.push(T::SCALAR);
            Var(state.kernel.vars.len() as u32 - 1)
        };
        let reg = Reg { k: self, var, ty: PhantomData };
        reg.set(init);
        reg
    }

    #[track_caller]
    fn builtin(&self, b: Builtin) -> Val<'_, u32> {
        self.define(Op::Builtin(b), Ty::U32)
    }
    /// Linear index of the invocation in its workgroup.
    #[track_caller]
    pub fn local_id(&self) -> Val<'_, u32> {
        self.builtin(Builtin::LocalId)
    }
    /// Index of the workgroup along `axis`.
    #[track_caller]
    pub fn workgroup_id(&self, axis: u8) -> Val<'_, u32> {
        self.builtin(Builtin::WorkgroupId(axis))
    }
    /// Number of workgroups along `axis`.
    #[track_caller]
    pub fn num_workgroups(&self, axis: u8) -> Val<'_, u32> {
        self.builtin(Builtin::NumWorkgroups(axis))
    }
    /// Index in the subgroup.
    #[track_caller]
    pub fn lane(&self) -> Val<'_, u32> {
        self.builtin(Builtin::Lane)
    }
    /// Index of the subgroup in its workgroup.
    #[track_caller]
    pub fn subgroup_id(&self) -> Val<'_, u32> {
        self.builtin(Builtin::SubgroupId)
    }
    /// Lanes of a subgroup: known while building.
    pub fn subgroup(&self) -> u32 {
        self.state.borrow().kernel.subgroup
    }
    /// Invocations of a workgroup: known while building.
    pub fn workgroup(&self) -> u32 {
        self.state.borrow().kernel.workgroup
    }

    /// All of the workgroup meet.
    #[track_caller]
    pub fn barrier(&self) {
        self.emit(Op::Barrier);
    }

    /// `for index in (start..end).step_by(step)` on the device.
    #[track_caller]
    pub fn for_step<'k>(
        &'k self,
        start: impl IntoVal<'k, u32>,
        end: impl IntoVal<'k, u32>,
        step: impl IntoVal<'k, u32>,
        body: impl FnOnce(Val<'k, u32>),
    ) {
        self.loop_(start.val(self), end.val(self), step.val(self), false, body, Location::caller());
    }

    /// `for index in start..end` on the device.
    #[track_caller]
    pub fn for_range<'k>(
        &'k self,
        start: impl IntoVal<'k, u32>,
        end: impl IntoVal<'k, u32>,
        body: impl FnOnce(Val<'k, u32>),
    ) {
        self.loop_(start.val(self), end.val(self), 1.val(self), false, body, Location::caller());
    }

    /// As [`Builder::for_range`]; targets are asked to unroll it.
    #[track_caller]
    pub fn for_unrolled<'k>(
        &'k self,
        start: impl IntoVal<'k, u32>,
        end: impl IntoVal<'k, u32>,
        body: impl FnOnce(Val<'k, u32>),
    ) {
        self.loop_(start.val(self), end.val(self), 1.val(self), true, body, Location::caller());
    }

    /// Each `i` below `n` once, over the workgroup: invocation `t` takes `t`, `t + workgroup`, …
    #[track_caller]
    pub fn each<'k>(&'k self, n: impl IntoVal<'k, u32>, body: impl FnOnce(Val<'k, u32>)) {
        let (start, end, step) = (self.local_id(), n.val(self), self.workgroup().val(self));
        self.loop_(start, end, step, false, body, Location::caller());
    }

    fn loop_<'k>(
        &'k self,
        start: Val<'k, u32>,
        end: Val<'k, u32>,
        step: Val<'k, u32>,
        unroll: bool,
        body: impl FnOnce(Val<'k, u32>),
        at: &'static Location<'static>,
    ) {
        let index = {
            let mut state = self.state.borrow_mut();
            let id = ValueId(state.types.len() as u32);
            state.types.push(Ty::U32);
            state.open.push(Block::default());
            id
        };
        body(Val { k: self, id: index, ty: PhantomData });
        let mut state = self.state.borrow_mut();
        let body = state.open.pop().unwrap_or_default();
        let op = Op::For { index, start: start.id, end: end.id, step: step.id, unroll, body };
        state.push(Inst { def: None, op, at });
    }

    /// `if condition` on the device.
    #[track_caller]
    pub fn when<'k>(&'k self, condition: Val<'k, bool>, then: impl FnOnce()) {
        self.branch(condition, then, || {}, Location::caller());
    }

    /// `if condition … else …` on the device.
    #[track_caller]
    pub fn when_else<'k>(&'k self, condition: Val<'k, bool>, then: impl FnOnce(), otherwise: impl FnOnce()) {
        self.branch(condition, then, otherwise, Location::caller());
    }

    fn branch<'k>(
        &'k self,
        condition: Val<'k, bool>,
        then: impl FnOnce(),
        otherwise: impl FnOnce(),
        at: &'static Location<'static>,
    ) {
        let record = |f: Box<dyn FnOnce() + '_>| {
            self.state.borrow_mut().open.push(Block::default());
            f();
            self.state.borrow_mut().open.pop().unwrap_or_default()
        };
        let then = record(Box::new(then));
        let otherwise = record(Box::new(otherwise));
        let op = Op::If(condition.id, then, otherwise);
        self.state.borrow_mut().push(Inst { def: None, op, at });
    }

    /// `acc + Σ a[i]·b[i]` of four packed signed bytes each.
    #[track_caller]
    pub fn dot4<'k>(
        &'k self,
        kind: Dot,
        a: Val<'k, u32>,
        b: Val<'k, u32>,
        acc: impl IntoVal<'k, i32>,
    ) -> Val<'k, i32> {
        let acc = acc.val(self);
        self.define(Op::Dot4(kind, a.id, b.id, acc.id), Ty::I32)
    }

    /// One expression in targets' own words (`$0`, `$1` are the arguments); `fallback` is the same value for all others.
    #[track_caller]
    pub fn raw<'k, T: Register>(
        &'k self,
        text: &[(Dialect, &str)],
        args: &[Val<'k, u32>],
        fallback: Val<'k, T>,
    ) -> Val<'k, T> {
        let text = text.iter().map(|(d, s)| (*d, (*s).to_owned())).collect();
        let args = args.iter().map(|a| a.id).collect();
        self.define(Op::Raw { text, args, fallback: fallback.id }, Ty::scalar(T::SCALAR))
    }
}

impl State {
    fn push(&mut self, inst: Inst) {
        if let Some(block) = self.open.last_mut() {
            block.0.push(inst);
        }
    }
}

/// A register type that memory holds as it is.
pub trait Stored: Register {
    /// The element.
    const ELEM: Elem;
}
impl Stored for f32 {
    const ELEM: Elem = Elem::F32;
}
impl Stored for i32 {
    const ELEM: Elem = Elem::I32;
}
impl Stored for u32 {
    const ELEM: Elem = Elem::U32;
}
impl Stored for F16 {
    const ELEM: Elem = Elem::F16;
}

/// Types with arithmetic.
pub trait Number: Literal {}
impl Number for i32 {}
impl Number for u32 {}
impl Number for f32 {}

/// Types with bits.
pub trait Bits: Literal {}
impl Bits for i32 {}
impl Bits for u32 {}
impl Bits for bool {}

impl<'k, T: Register> Val<'k, T> {
    /// Its number in the IR.
    pub fn id(self) -> ValueId {
        self.id
    }
    /// What records it.
    pub fn builder(self) -> &'k Builder {
        self.k
    }
    #[track_caller]
    fn unary<U: Register>(self, op: UnOp) -> Val<'k, U> {
        self.k.define(Op::Unary(op, self.id), Ty::scalar(U::SCALAR))
    }
    #[track_caller]
    fn binary<U: Register>(self, op: BinOp, other: Val<'k, T>) -> Val<'k, U> {
        self.k.define(Op::Binary(op, self.id, other.id), Ty::scalar(U::SCALAR))
    }
    #[track_caller]
    fn cast<U: Register>(self, kind: Cast) -> Val<'k, U> {
        self.k.define(Op::Cast(kind, U::SCALAR, self.id), Ty::scalar(U::SCALAR))
    }
    /// The value of lane `lane ^ mask` of the subgroup.
    #[track_caller]
    pub fn shuffle_xor(self, mask: u32) -> Val<'k, T> {
        self.k.define(Op::ShuffleXor(self.id, mask), Ty::scalar(T::SCALAR))
    }
    /// The value of the given lane of the subgroup.
    #[track_caller]
    pub fn shuffle(self, lane: impl IntoVal<'k, u32>) -> Val<'k, T> {
        let lane = lane.val(self.k);
        self.k.define(Op::Shuffle(self.id, lane.id), Ty::scalar(T::SCALAR))
    }
}

impl<'k, T: Number> Val<'k, T> {
    /// `a < b ? a : b`.
    #[track_caller]
    pub fn min(self, other: impl IntoVal<'k, T>) -> Self {
        self.binary(BinOp::Min, other.val(self.k))
    }
    /// `a > b ? a : b`.
    #[track_caller]
    pub fn max(self, other: impl IntoVal<'k, T>) -> Self {
        self.binary(BinOp::Max, other.val(self.k))
    }
    /// Equal.
    #[track_caller]
    pub fn eq(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.binary(BinOp::Eq, other.val(self.k))
    }
    /// Not equal.
    #[track_caller]
    pub fn ne(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.binary(BinOp::Ne, other.val(self.k))
    }
    /// Less.
    #[track_caller]
    pub fn lt(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.binary(BinOp::Lt, other.val(self.k))
    }
    /// Less or equal.
    #[track_caller]
    pub fn le(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.binary(BinOp::Le, other.val(self.k))
    }
    /// Greater.
    #[track_caller]
    pub fn gt(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        other.val(self.k).binary(BinOp::Lt, self)
    }
    /// Greater or equal.
    #[track_caller]
    pub fn ge(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        other.val(self.k).binary(BinOp::Le, self)
    }
    /// Combined over the subgroup by a fixed butterfly; every lane gets it.
    #[track_caller]
    pub fn subgroup(self, op: Combine) -> Self {
        self.k.define(Op::SubgroupReduce(op, self.id), Ty::scalar(T::SCALAR))
    }
}

impl<'k> Val<'k, f32> {
    /// `self · b + c`, rounded once.
    #[track_caller]
    pub fn fma(self, b: impl IntoVal<'k, f32>, c: impl IntoVal<'k, f32>) -> Self {
        let (b, c) = (b.val(self.k), c.val(self.k));
        self.k.define(Op::Fma(self.id, b.id, c.id), Ty::F32)
    }
    /// `|x|`.
    #[track_caller]
    pub fn abs(self) -> Self {
        self.unary(UnOp::Abs)
    }
    /// Square root.
    #[track_caller]
    pub fn sqrt(self) -> Self {
        self.unary(UnOp::Sqrt)
    }
    /// To the nearest integer, ties to even.
    #[track_caller]
    pub fn round_even(self) -> Self {
        self.unary(UnOp::RoundEven)
    }
    /// Toward −∞.
    #[track_caller]
    pub fn floor(self) -> Self {
        self.unary(UnOp::Floor)
    }
    /// Toward zero, to i32.
    #[track_caller]
    pub fn i32(self) -> Val<'k, i32> {
        self.cast(Cast::Value)
    }
    /// Its bits.
    #[track_caller]
    pub fn bits(self) -> Val<'k, u32> {
        self.cast(Cast::Bits)
    }
    /// Rounded to half.
    #[track_caller]
    pub fn f16(self) -> Val<'k, F16> {
        self.cast(Cast::Value)
    }
}

impl<'k> Val<'k, F16> {
    /// Exact.
    #[track_caller]
    pub fn f32(self) -> Val<'k, f32> {
        self.cast(Cast::Value)
    }
    /// Its 16 bits.
    #[track_caller]
    pub fn bits(self) -> Val<'k, u32> {
        self.cast(Cast::Bits)
    }
}

impl<'k> Val<'k, u32> {
    /// Rounded to nearest even.
    #[track_caller]
    pub fn f32(self) -> Val<'k, f32> {
        self.cast(Cast::Value)
    }
    /// The same bits.
    #[track_caller]
    pub fn i32(self) -> Val<'k, i32> {
        self.cast(Cast::Bits)
    }
    /// The single with these bits.
    #[track_caller]
    pub fn as_f32(self) -> Val<'k, f32> {
        self.cast(Cast::Bits)
    }
    /// The half with the low 16 bits.
    #[track_caller]
    pub fn as_f16(self) -> Val<'k, F16> {
        self.cast(Cast::Bits)
    }
    /// Number of set bits.
    #[track_caller]
    pub fn count_ones(self) -> Self {
        self.unary(UnOp::PopCount)
    }
}

impl<'k> Val<'k, i32> {
    /// Rounded to nearest even.
    #[track_caller]
    pub fn f32(self) -> Val<'k, f32> {
        self.cast(Cast::Value)
    }
    /// The same bits.
    #[track_caller]
    pub fn u32(self) -> Val<'k, u32> {
        self.cast(Cast::Bits)
    }
}

impl<'k> Val<'k, bool> {
    /// `self ? a : b`; both are computed.
    #[track_caller]
    pub fn select<T: Register>(self, a: impl IntoVal<'k, T>, b: impl IntoVal<'k, T>) -> Val<'k, T> {
        let (a, b) = (a.val(self.k), b.val(self.k));
        self.k.define(Op::Select(self.id, a.id, b.id), Ty::scalar(T::SCALAR))
    }
    /// Bit `i` is lane `i`'s (0 to 31).
    #[track_caller]
    pub fn ballot(self) -> Val<'k, u32> {
        self.k.define(Op::Ballot(self.id), Ty::U32)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident $bound:ident),*) => {$(
        impl<'k, T: $bound, R: IntoVal<'k, T>> std::ops::$trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;
            #[track_caller]
            fn $method(self, other: R) -> Val<'k, T> {
                self.binary(BinOp::$op, other.val(self.k))
            }
        }
    )*};
}
operators!(
    Add add Add Number, Sub sub Sub Number, Mul mul Mul Number, Div div Div Number, Rem rem Rem Number,
    BitAnd bitand And Bits, BitOr bitor Or Bits, BitXor bitxor Xor Bits
);

macro_rules! constant_on_the_left {
    ($($t:ty),*) => {$(
        constant_on_the_left!($t, Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);
    )*};
    ($t:ty, $($trait:ident $method:ident $op:ident),*) => {$(
        impl<'k> std::ops::$trait<Val<'k, $t>> for $t {
            type Output = Val<'k, $t>;
            #[track_caller]
            fn $method(self, other: Val<'k, $t>) -> Val<'k, $t> {
                self.val(other.k).binary(BinOp::$op, other)
            }
        }
    )*};
}
constant_on_the_left!(f32, i32, u32);

impl<'k, T: Bits, R: IntoVal<'k, u32>> std::ops::Shl<R> for Val<'k, T> {
    type Output = Val<'k, T>;
    #[track_caller]
    fn shl(self, count: R) -> Val<'k, T> {
        let count = count.val(self.k);
        self.k.define(Op::Binary(BinOp::Shl, self.id, count.id), Ty::scalar(T::SCALAR))
    }
}
impl<'k, T: Bits, R: IntoVal<'k, u32>> std::ops::Shr<R> for Val<'k, T> {
    type Output = Val<'k, T>;
    #[track_caller]
    fn shr(self, count: R) -> Val<'k, T> {
        let count = count.val(self.k);
        self.k.define(Op::Binary(BinOp::Shr, self.id, count.id), Ty::scalar(T::SCALAR))
    }
}
impl<'k, T: Number> std::ops::Neg for Val<'k, T> {
    type Output = Val<'k, T>;
    #[track_caller]
    fn neg(self) -> Val<'k, T> {
        self.unary(UnOp::Neg)
    }
}
impl<'k, T: Bits> std::ops::Not for Val<'k, T> {
    type Output = Val<'k, T>;
    #[track_caller]
    fn not(self) -> Val<'k, T> {
        self.unary(UnOp::Not)
    }
}
