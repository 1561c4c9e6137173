//! CUDA C++, HIP C++ and Metal, from one printer.
//!
//! The body of a kernel is the same text in all three, written in a few `hz_…` functions and `HZ_…` macros; a dialect is a prelude that
//! defines them (`prelude/`) and the shape of a kernel's head. So what one dialect computes is what the others compute, and the
//! preludes are the only places where they can differ.
//!
//! Values that are used once, in the block that defines them, are printed where they are used; all others get a name.

use std::fmt::Write;

use super::super::ir::{
    Access, BinOp, Block, Builtin, Cast, Combine, Const, Dot, Elem, Frag, FragOp, Fragment, Inst, Kernel,
    Mem, Op, Scalar, Side, Ty, UnOp, ValueId,
};
use super::super::{Dialect, names};

/// Beyond this an expression gets a name of its own.
const MAX_EXPRESSION: usize = 72;

/// The source of `kernel` in `dialect`. Its entry point has the kernel's name; buffers are bound in order, then the parameters (Metal: as
/// one struct, in the binding after the last buffer).
pub fn source(kernel: &Kernel, dialect: Dialect) -> String {
    let subgroup = format!("#define HZ_SUBGROUP {}\n", kernel.subgroup);
    let matrix = if kernel.fragments.is_empty() { "" } else { matrix_prelude(dialect) };
    format!("{subgroup}{}{matrix}{}", prelude(dialect), definition(kernel, dialect))
}

/// [`source`] without what goes before it: kernels of one subgroup width can share a prelude.
pub fn definition(kernel: &Kernel, dialect: Dialect) -> String {
    let mut out = String::new();
    for line in kernel.doc.lines() {
        let _ = writeln!(out, "// {}", line.trim());
    }
    let _ = writeln!(out, "// {} invocations in subgroups of {}.", kernel.workgroup, kernel.subgroup);
    for table in &kernel.tables {
        let _ =
            write!(out, "HZ_TABLE uint {}[{}] = {{", names::table(kernel, &table.name), table.words.len());
        for (i, word) in table.words.iter().enumerate() {
            out.push_str(if i % 12 == 0 { "\n    " } else { " " });
            let _ = write!(out, "0x{word:x}u,");
        }
        out.push_str("\n};\n");
    }
    head(&mut out, kernel, dialect);
    let mut printer = Printer {
        kernel,
        dialect,
        types: kernel.value_types(),
        uses: uses(kernel),
        text: vec![None; kernel.n_values as usize],
        out,
        depth: 1,
    };
    printer.declarations();
    printer.block(&kernel.body);
    printer.out.push_str("}\n");
    printer.out
}

/// What defines the `hz_…` functions in `dialect`.
pub fn prelude(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Cuda => include_str!("prelude/cuda.h"),
        Dialect::Hip => include_str!("prelude/hip.h"),
        Dialect::Metal => include_str!("prelude/metal.h"),
    }
}

/// What defines matrix fragments, after [`prelude`], for kernels that have any.
pub fn matrix_prelude(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Cuda => {
            concat!(include_str!("prelude/cuda_matrix.h"), include_str!("prelude/matrix_sums.h"))
        }
        Dialect::Hip => concat!(include_str!("prelude/hip_matrix.h"), include_str!("prelude/matrix_sums.h")),
        Dialect::Metal => include_str!("prelude/metal_matrix.h"),
    }
}

fn head(out: &mut String, kernel: &Kernel, dialect: Dialect) {
    let pointer = |access: Access| if access == Access::Read { "const " } else { "" };
    match dialect {
        Dialect::Cuda | Dialect::Hip => {
            let _ = write!(out, "HZ_KERNEL({}) {}(", kernel.workgroup, kernel.name);
            let buffers = kernel
                .buffers
                .iter()
                .map(|b| format!("{}{}* __restrict__ {}", pointer(b.access), elem(b.elem), b.name));
            let params = kernel.params.iter().map(|p| format!("{} {}", scalar(p.ty), p.name));
            out.push_str(&buffers.chain(params).collect::<Vec<_>>().join(", "));
            out.push_str(") {\n");
        }
        Dialect::Metal => {
            if !kernel.params.is_empty() {
                let _ = write!(out, "struct {} {{", names::params(kernel));
                for p in &kernel.params {
                    let _ = write!(out, " {} {};", scalar(p.ty), p.name);
                }
                out.push_str(" };\n");
            }
            let _ = write!(out, "HZ_KERNEL({}) {}(", kernel.workgroup, kernel.name);
            let mut args: Vec<_> = kernel
                .buffers
                .iter()
                .enumerate()
                .map(|(i, b)| {
                    format!("device {}{}* {} [[buffer({i})]]", pointer(b.access), elem(b.elem), b.name)
                })
                .collect();
            if !kernel.params.is_empty() {
                let n = kernel.buffers.len();
                args.push(format!("constant {}& hz_params [[buffer({n})]]", names::params(kernel)));
            }
            args.extend(
                [
                    "uint hz_local_id [[thread_index_in_threadgroup]]",
                    "uint3 hz_workgroup [[threadgroup_position_in_grid]]",
                    "uint3 hz_grid [[threadgroups_per_grid]]",
                ]
                .map(str::to_owned),
            );
            out.push_str(&args.join(", "));
            out.push_str(") {\n");
            for p in &kernel.params {
                let _ = writeln!(out, "    const {} {} = hz_params.{};", scalar(p.ty), p.name, p.name);
            }
        }
    }
}

/// How often each value is used, and whether only in the block that defines it.
#[derive(Clone, Copy, Default)]
struct Uses {
    count: u32,
    elsewhere: bool,
    block: u32,
}

fn uses(kernel: &Kernel) -> Vec<Uses> {
    fn walk(block: &Block, this: u32, next: &mut u32, uses: &mut [Uses]) {
        for inst in &block.0 {
            for v in inst.op.operands() {
                let u = &mut uses[v.0 as usize];
                u.count += 1;
                u.elsewhere |= u.block != this;
            }
            if let Some((id, _)) = inst.def {
                uses[id.0 as usize].block = this;
            }
            for b in inst.op.blocks() {
                *next += 1;
                walk(b, *next, next, uses);
            }
        }
    }
    let mut uses = vec![Uses::default(); kernel.n_values as usize];
    walk(&kernel.body, 0, &mut 0, &mut uses);
    uses
}

struct Printer<'a> {
    kernel: &'a Kernel,
    dialect: Dialect,
    types: Vec<Ty>,
    uses: Vec<Uses>,
    /// How a value is written.
    text: Vec<Option<String>>,
    out: String,
    depth: usize,
}

impl Printer<'_> {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", 4 * self.depth);
    }

    fn declarations(&mut self) {
        // Fragments are loaded in words of up to 16 bytes.
        let align = if self.kernel.fragments.is_empty() { "" } else { "alignas(16) " };
        for s in &self.kernel.shared {
            let text = format!("{align}HZ_SHARED {} {}[{}];", elem(s.elem), s.name, s.len);
            self.line(&text);
        }
        for (i, &var) in self.kernel.vars.iter().enumerate() {
            let text = format!("{} r{i};", scalar(var));
            self.line(&text);
        }
        for (i, f) in self.kernel.fragments.iter().enumerate() {
            let text = format!("hz_frag_{} f{i};", fragment(*f));
            self.line(&text);
        }
    }

    fn block(&mut self, block: &Block) {
        block.0.iter().for_each(|inst| self.inst(inst));
    }

    fn nested(&mut self, block: &Block) {
        self.depth += 1;
        self.block(block);
        self.depth -= 1;
    }

    fn val(&self, v: ValueId) -> String {
        self.text[v.0 as usize].clone().unwrap_or_else(|| format!("v{}", v.0))
    }

    fn mem(&self, mem: Mem) -> (String, Elem) {
        match mem {
            Mem::Buffer(b) => {
                let b = &self.kernel.buffers[b as usize];
                (b.name.clone(), b.elem)
            }
            Mem::Shared(s) => {
                let s = &self.kernel.shared[s as usize];
                (s.name.clone(), s.elem)
            }
            // Tables stand outside of the kernel, so their names carry its name.
            Mem::Table(t) => (names::table(self.kernel, &self.kernel.tables[t as usize].name), Elem::U32),
        }
    }

    fn inst(&mut self, inst: &Inst) {
        match &inst.op {
            Op::Store { mem, index, value } => {
                let (name, elem_) = self.mem(*mem);
                let value = bare(self.val(*value));
                let value = match elem_ {
                    Elem::U8 => format!("hz_u8({value})"),
                    Elem::U16 => format!("hz_u16({value})"),
                    _ => value,
                };
                let text = format!("{name}[{}] = {value};", bare(self.val(*index)));
                self.line(&text);
            }
            Op::Set(var, v) => {
                let text = format!("r{} = {};", var.0, bare(self.val(*v)));
                self.line(&text);
            }
            Op::Barrier => self.line("hz_barrier();"),
            Op::If(c, then, otherwise) => {
                let text = format!("if ({}) {{", bare(self.val(*c)));
                self.line(&text);
                self.nested(then);
                if !otherwise.0.is_empty() {
                    self.line("} else {");
                    self.nested(otherwise);
                }
                self.line("}");
            }
            Op::For { index, start, end, step, unroll, body } => {
                let name = format!("i{}", index.0);
                if *unroll {
                    self.line("HZ_UNROLL");
                }
                let step = bare(self.val(*step));
                let advance = if step == "1u" { format!("++{name}") } else { format!("{name} += {step}") };
                let text = format!(
                    "for (uint {name} = {}; {name} < {}; {advance}) {{",
                    bare(self.val(*start)),
                    self.val(*end)
                );
                self.text[index.0 as usize] = Some(name);
                self.line(&text);
                self.nested(body);
                self.line("}");
            }
            Op::FragZero(f) => {
                let text = format!("hz_frag_zero(f{f});");
                self.line(&text);
            }
            Op::FragLoad { frag, mem, index, stride } => {
                let text = format!(
                    "hz_frag_load(f{frag}, {} + {}, {});",
                    self.mem(*mem).0,
                    self.val(*index),
                    bare(self.val(*stride))
                );
                self.line(&text);
            }
            Op::FragSpread { frag, side, mem, index } => {
                let side = if *side == Side::Rows { "rows" } else { "columns" };
                let text =
                    format!("hz_frag_spread_{side}(f{frag}, {} + {});", self.mem(*mem).0, self.val(*index));
                self.line(&text);
            }
            Op::FragMap { to, op } => {
                let text = match op {
                    FragOp::Float(a) => format!("hz_frag_float(f{to}, f{a});"),
                    FragOp::Mul(a, b) => format!("hz_frag_mul(f{to}, f{a}, f{b});"),
                    FragOp::Fma(a, b) => format!("hz_frag_fma(f{to}, f{a}, f{b});"),
                };
                self.line(&text);
            }
            Op::FragMulAdd { acc, a, b } => {
                let text = format!("hz_frag_mul_add(f{acc}, f{a}, f{b});");
                self.line(&text);
            }
            Op::FragStore { frag, mem, index, stride } => {
                let text = format!(
                    "hz_frag_store(f{frag}, {} + {}, {});",
                    self.mem(*mem).0,
                    self.val(*index),
                    bare(self.val(*stride))
                );
                self.line(&text);
            }
            op => {
                let Some((id, ty)) = inst.def else { return };
                let text = self.expression(op);
                let Uses { count, elsewhere, .. } = self.uses[id.0 as usize];
                let trivial = matches!(op, Op::Const(_) | Op::Param(_) | Op::Builtin(_));
                let inline = op.is_pure() && count <= 1 && !elsewhere && text.len() <= MAX_EXPRESSION;
                if trivial || inline {
                    self.text[id.0 as usize] = Some(text);
                } else if count == 0 && op.is_pure() {
                } else if count == 0 {
                    // An atomic whose old value nobody wants.
                    let text = format!("{text};");
                    self.line(&text);
                } else {
                    let text = format!("const {} v{} = {};", register(ty), id.0, bare(text));
                    self.line(&text);
                }
            }
        }
    }

    fn expression(&self, op: &Op) -> String {
        let v = |v: &ValueId| self.val(*v);
        let arg = |v: &ValueId| bare(self.val(*v));
        match op {
            Op::Const(c) => constant(*c),
            Op::Param(p) => self.kernel.params[*p as usize].name.clone(),
            Op::Builtin(b) => match b {
                Builtin::LocalId => "HZ_LOCAL_ID".to_owned(),
                Builtin::WorkgroupId(axis) => format!("HZ_WORKGROUP_ID.{}", axis_name(*axis)),
                Builtin::NumWorkgroups(axis) => format!("HZ_NUM_WORKGROUPS.{}", axis_name(*axis)),
                Builtin::Lane => "(HZ_LOCAL_ID % HZ_SUBGROUP)".to_owned(),
                Builtin::SubgroupId => "(HZ_LOCAL_ID / HZ_SUBGROUP)".to_owned(),
            },
            Op::Unary(op, a) => match (op, self.types[a.0 as usize].scalar) {
                (UnOp::Neg, Scalar::I32) => format!("int(0u - uint({}))", arg(a)),
                (UnOp::Neg, Scalar::U32) => format!("(0u - {})", v(a)),
                (UnOp::Neg, _) => format!("(-{})", v(a)),
                (UnOp::Not, Scalar::Bool) => format!("(!{})", v(a)),
                (UnOp::Not, _) => format!("(~{})", v(a)),
                (UnOp::Abs, _) => format!("hz_abs({})", arg(a)),
                (UnOp::Sqrt, _) => format!("hz_sqrt({})", arg(a)),
                (UnOp::RoundEven, _) => format!("hz_round_even({})", arg(a)),
                (UnOp::Floor, _) => format!("hz_floor({})", arg(a)),
                (UnOp::PopCount, _) => format!("hz_popcount({})", arg(a)),
            },
            Op::Binary(op, a, b) => self.binary(*op, a, b),
            Op::Fma(a, b, c) => format!("hz_fma({}, {}, {})", arg(a), arg(b), arg(c)),
            Op::Select(c, a, b) => format!("({} ? {} : {})", v(c), v(a), v(b)),
            Op::Cast(cast, to, a) => {
                let from = self.types[a.0 as usize].scalar;
                let f = match (cast, from, to) {
                    (Cast::Value, Scalar::F16, _) => "hz_f16_to_f32",
                    (Cast::Value, _, Scalar::F16) => "hz_f32_to_f16",
                    (Cast::Bits, Scalar::F32, Scalar::U32) => "hz_bits",
                    (Cast::Bits, Scalar::U32, Scalar::F32) => "hz_float",
                    (Cast::Bits, Scalar::F32, Scalar::I32) => return format!("int(hz_bits({}))", arg(a)),
                    (Cast::Bits, Scalar::I32, Scalar::F32) => return format!("hz_float(uint({}))", arg(a)),
                    (Cast::Bits, _, Scalar::F16) => "hz_u16",
                    _ => scalar(*to),
                };
                format!("{f}({})", arg(a))
            }
            Op::Dot4(kind, a, b, acc) => {
                let f = if *kind == Dot::SignedSigned { "hz_dot4" } else { "hz_dot4_us" };
                format!("{f}({}, {}, {})", arg(a), arg(b), arg(acc))
            }
            Op::Load { mem, index, lanes } => {
                let (name, elem) = self.mem(*mem);
                match lanes {
                    1 if matches!(elem, Elem::U8 | Elem::U16) => format!("uint({name}[{}])", arg(index)),
                    1 => format!("{name}[{}]", arg(index)),
                    n => format!("HZ_WIDE({}{n}, {name}, {})", scalar(elem.scalar()), arg(index)),
                }
            }
            Op::Lane(a, lane) => format!("{}.{}", v(a), ["x", "y", "z", "w"][usize::from(*lane) % 4]),
            Op::Get(var) => format!("r{}", var.0),
            Op::SubgroupReduce(op, a) => format!("hz_reduce_{}({})", combine(*op), arg(a)),
            Op::ShuffleXor(a, mask) => format!("hz_shuffle_xor({}, {mask}u)", arg(a)),
            Op::Shuffle(a, lane) => format!("hz_shuffle({}, {})", arg(a), arg(lane)),
            Op::Ballot(a) => format!("hz_ballot({})", arg(a)),
            Op::Atomic { op, mem, index, value } => {
                format!("hz_atomic_{}(&{}[{}], {})", combine(*op), self.mem(*mem).0, arg(index), arg(value))
            }
            Op::Raw { text, args, fallback } => match text.iter().find(|(d, _)| *d == self.dialect) {
                Some((_, text)) => args
                    .iter()
                    .enumerate()
                    .fold(text.clone(), |text, (i, a)| text.replace(&format!("${i}"), &v(a))),
                None => v(fallback),
            },
            // Statements, printed by `inst`.
            _ => String::new(),
        }
    }

    fn binary(&self, op: BinOp, a: &ValueId, b: &ValueId) -> String {
        let (x, y) = (self.val(*a), self.val(*b));
        let ty = self.types[a.0 as usize].scalar;
        let sign = match op {
            BinOp::Add => "+",
            BinOp::Sub => "-",
            BinOp::Mul => "*",
            BinOp::Div => "/",
            BinOp::Rem => "%",
            BinOp::And if ty == Scalar::Bool => "&&",
            BinOp::Or if ty == Scalar::Bool => "||",
            BinOp::Xor if ty == Scalar::Bool => "!=",
            BinOp::And => "&",
            BinOp::Or => "|",
            BinOp::Xor => "^",
            BinOp::Shl if ty == Scalar::I32 => return format!("int(uint({}) << {y})", bare(x)),
            BinOp::Shl => "<<",
            BinOp::Shr => ">>",
            BinOp::Eq => "==",
            BinOp::Ne => "!=",
            BinOp::Lt => "<",
            BinOp::Le => "<=",
            BinOp::Min => return format!("hz_min({}, {})", bare(x), bare(y)),
            BinOp::Max => return format!("hz_max({}, {})", bare(x), bare(y)),
        };
        // Signed overflow is undefined in C: i32 wraps by way of uint.
        if ty == Scalar::I32 && matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul) {
            return format!("int(uint({}) {sign} uint({}))", bare(x), bare(y));
        }
        format!("({x} {sign} {y})")
    }
}

/// Without the parentheses around the whole of it.
fn bare(text: String) -> String {
    let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) else { return text };
    let mut depth = 0i32;
    for c in inner.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth < 0 {
            return text;
        }
    }
    inner.to_owned()
}

fn constant(c: Const) -> String {
    match c {
        Const::Bool(b) => b.to_string(),
        Const::I32(i32::MIN) => "int(0x80000000u)".to_owned(),
        Const::I32(i) if i < 0 => format!("({i})"),
        Const::I32(i) => i.to_string(),
        Const::U32(u) if u > 0xffff => format!("0x{u:x}u"),
        Const::U32(u) => format!("{u}u"),
        Const::F32(f) if !f.is_finite() => format!("hz_float(0x{:x}u)", f.to_bits()),
        Const::F32(f) if f.is_sign_negative() => format!("({f:?}f)"),
        Const::F32(f) => format!("{f:?}f"),
    }
}

fn axis_name(axis: u8) -> &'static str {
    ["x", "y", "z"][usize::from(axis) % 3]
}

fn fragment(f: Fragment) -> &'static str {
    match (f.role, f.elem) {
        (Frag::A, Elem::F16) => "a_f16",
        (Frag::B, Elem::F16) => "b_f16",
        (Frag::Acc, Elem::F32) => "acc_f32",
        (Frag::A, _) => "a_i8",
        (Frag::B, _) => "b_i8",
        (Frag::Acc, _) => "acc_i32",
    }
}

fn combine(op: Combine) -> &'static str {
    match op {
        Combine::Add => "add",
        Combine::Min => "min",
        Combine::Max => "max",
    }
}

fn scalar(s: Scalar) -> &'static str {
    match s {
        Scalar::Bool => "bool",
        Scalar::I32 => "int",
        Scalar::U32 => "uint",
        Scalar::F32 => "float",
        Scalar::F16 => "hz_f16",
    }
}

fn register(ty: Ty) -> String {
    match ty.lanes {
        1 => scalar(ty.scalar).to_owned(),
        n => format!("{}{n}", scalar(ty.scalar)),
    }
}

fn elem(e: Elem) -> &'static str {
    match e {
        Elem::F32 => "float",
        Elem::I32 => "int",
        Elem::U32 => "uint",
        Elem::F16 => "hz_f16",
        Elem::U16 => "ushort",
        Elem::U8 => "uchar",
    }
}
