//! The syntax tree. Left-associative chains are lists, not nested nodes, so that the depth of a tree is the depth of
//! brackets and blocks in the source, which the parser bounds: no pass over a tree can exhaust the stack.

use std::sync::Arc;

/// An interned name: attribute names, filters and variables share the text.
pub(crate) type Name = Arc<str>;

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) line: u32,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Const(Literal),
    Var(Name),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    /// `a if test else b`; without `else` the value is undefined.
    Cond {
        test: Box<Expr>,
        then: Box<Expr>,
        otherwise: Option<Box<Expr>>,
    },
    /// `a or b or c`: the first true one, or the last.
    Or(Vec<Expr>),
    /// `a and b and c`: the first false one, or the last.
    And(Vec<Expr>),
    Not(Box<Expr>),
    Neg(Box<Expr>),
    Pos(Box<Expr>),
    /// `a < b == c`: Python's chained comparison.
    Compare {
        first: Box<Expr>,
        rest: Vec<(CmpOp, Expr)>,
    },
    /// A left-associative chain of operators of one precedence.
    Arith {
        first: Box<Expr>,
        rest: Vec<(BinOp, Expr)>,
    },
    /// `a ~ b ~ c`.
    Concat(Vec<Expr>),
    /// An expression followed by attributes, subscripts, calls, filters and tests.
    Postfix {
        base: Box<Expr>,
        ops: Vec<Postfix>,
    },
}

/// A value written in the source.
#[derive(Debug, Clone)]
pub(crate) enum Literal {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Name),
}

#[derive(Debug)]
pub(crate) struct Postfix {
    pub(crate) line: u32,
    pub(crate) kind: PostfixKind,
}

#[derive(Debug)]
pub(crate) enum PostfixKind {
    Attr(Name),
    Item(Expr),
    Slice { start: Option<Expr>, stop: Option<Expr>, step: Option<Expr> },
    Call(Args),
    Filter { name: Name, args: Args },
    Test { name: Name, args: Args, negated: bool },
}

#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(Name, Expr)>,
    pub(crate) splat: Option<Box<Expr>>,
    pub(crate) named_splat: Option<Box<Expr>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Debug)]
pub(crate) struct Stmt {
    pub(crate) line: u32,
    pub(crate) kind: StmtKind,
}

#[derive(Debug)]
pub(crate) enum StmtKind {
    Text(Name),
    Emit(Expr),
    If {
        branches: Vec<(Expr, Vec<Stmt>)>,
        otherwise: Vec<Stmt>,
    },
    For(Box<ForLoop>),
    Set {
        target: Target,
        value: Expr,
    },
    SetBlock {
        target: Target,
        filters: Vec<Postfix>,
        body: Vec<Stmt>,
    },
    With {
        bindings: Vec<(Target, Expr)>,
        body: Vec<Stmt>,
    },
    FilterBlock {
        filters: Vec<Postfix>,
        body: Vec<Stmt>,
    },
    Macro(Box<MacroDef>),
    /// `{% call(args) f(x) %}body{% endcall %}`: the body is a macro that `f` sees as `caller`.
    Call {
        call: Expr,
        body: Box<MacroDef>,
    },
    Break,
    Continue,
}

#[derive(Debug)]
pub(crate) struct ForLoop {
    pub(crate) target: Target,
    pub(crate) iter: Expr,
    pub(crate) filter: Option<Expr>,
    pub(crate) recursive: bool,
    pub(crate) body: Vec<Stmt>,
    pub(crate) otherwise: Vec<Stmt>,
}

#[derive(Debug)]
pub(crate) enum Target {
    Name(Name),
    /// `ns.attr`: the only assignment that outlives its block.
    Attr(Name, Name),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub(crate) struct MacroDef {
    pub(crate) name: Name,
    pub(crate) params: Vec<(Name, Option<Expr>)>,
    pub(crate) body: Vec<Stmt>,
    pub(crate) uses: Uses,
}

/// Which of the names that every macro has its body mentions; only then are surplus arguments allowed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Uses {
    pub(crate) varargs: bool,
    pub(crate) kwargs: bool,
    pub(crate) caller: bool,
}
