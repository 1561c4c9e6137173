//! Values of the template language: Python's, as far as Jinja2 lets a template see them.
//!
//! Everything but a namespace is immutable, as in the sandbox that chat templates run in elsewhere. Every container
//! knows how deep it is nested, and nothing deeper than [`MAX_DEPTH`] can be built: printing, comparing and dropping
//! values may recurse. A namespace cannot be put into itself (cycles would leak).

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;

use super::ast::{Literal, Name};
use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// Deepest nesting of a value.
pub(crate) const MAX_DEPTH: u16 = 256;

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Undefined(Undefined),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    Seq(Rc<Seq>),
    Dict(Rc<Dict>),
    Iter(Rc<Lazy>),
    Object(Rc<Object>),
}

/// Why a value is not there; the text of the error if it is used.
#[derive(Debug, Clone)]
pub(crate) enum Undefined {
    Name(Name),
    Attr {
        owner: &'static str,
        name: Name,
    },
    Item {
        owner: &'static str,
        key: Arc<str>,
    },
    /// An attribute that exists in Python but that the sandbox does not give out.
    Forbidden {
        owner: &'static str,
        name: Name,
    },
    Other(&'static str),
}

/// A list, or a tuple.
#[derive(Debug)]
pub(crate) struct Seq {
    pub(crate) items: Vec<Value>,
    pub(crate) tuple: bool,
    shape: Shape,
}

#[derive(Debug)]
pub(crate) struct Dict {
    pub(crate) map: IndexMap<Key, Value>,
    shape: Shape,
}

/// What can be iterated over but is not a list: a generator, a view of a dict, an iterator.
#[derive(Debug)]
pub(crate) struct Lazy {
    /// Python's name of the type.
    pub(crate) type_name: &'static str,
    /// Views can be iterated over again and have a length; generators are empty the second time.
    pub(crate) view: bool,
    pub(crate) consumed: Cell<bool>,
    pub(crate) items: Vec<Value>,
    shape: Shape,
}

#[derive(Debug)]
pub(crate) enum Object {
    Namespace(Namespace),
    /// A macro by its number in the rendering, and the scope that it was defined in.
    Macro {
        name: Name,
        id: usize,
        scope: usize,
    },
    Function(&'static str),
    Method {
        receiver: Value,
        name: Name,
    },
    Loop(LoopState),
    Cycler {
        items: Vec<Value>,
        at: Cell<usize>,
    },
    Joiner {
        separator: Value,
        used: Cell<bool>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Namespace {
    pub(crate) vars: RefCell<IndexMap<Name, Value>>,
    depth: Cell<u16>,
}

/// The `loop` variable.
#[derive(Debug)]
pub(crate) struct LoopState {
    pub(crate) items: Rc<Vec<Value>>,
    pub(crate) index: Cell<usize>,
    pub(crate) depth0: usize,
    /// Which recursive loop `loop(…)` runs again; `None` in a plain loop.
    pub(crate) recursive: Option<usize>,
    pub(crate) changed: RefCell<Option<Vec<Value>>>,
    pub(crate) shape: Shape,
}

/// How deep a value is nested, and whether something mutable is inside.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape {
    pub(crate) depth: u16,
    pub(crate) mutable: bool,
}

impl Shape {
    /// The shape of a container of these.
    pub(crate) fn around<'v>(items: impl IntoIterator<Item = &'v Value>) -> TemplateResult<Self> {
        let mut shape = Self::default();
        for item in items {
            let inner = item.shape();
            shape.depth = shape.depth.max(inner.depth);
            shape.mutable |= inner.mutable;
        }
        shape.depth += 1;
        if shape.depth > MAX_DEPTH {
            let message = format!("a value is nested more than {MAX_DEPTH} deep");
            return Err(TemplateError::new(Kind::Limit, message));
        }
        Ok(shape)
    }
}

/// A key of a dict. `1` and `True` are one key, as in Python.
#[derive(Debug, Clone)]
pub(crate) enum Key {
    Str(Arc<str>),
    Int(i128),
    Bool(bool),
    None,
    Float(u64),
    Tuple(Vec<Key>),
}

impl Key {
    fn number(&self) -> Option<i128> {
        match self {
            Key::Int(i) => Some(*i),
            Key::Bool(b) => Some(i128::from(*b)),
            _ => None,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Key::Str(a), Key::Str(b)) => a == b,
            (Key::Float(a), Key::Float(b)) => a == b,
            (Key::Tuple(a), Key::Tuple(b)) => a == b,
            (Key::None, Key::None) => true,
            _ => matches!((self.number(), other.number()), (Some(a), Some(b)) if a == b),
        }
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Key::Str(s) => s.hash(state),
            Key::Float(bits) => bits.hash(state),
            Key::Tuple(items) => items.hash(state),
            Key::None => 0xfeedu32.hash(state),
            Key::Int(_) | Key::Bool(_) => self.number().hash(state),
        }
    }
}

impl Undefined {
    pub(crate) fn error(&self) -> TemplateError {
        match self {
            Undefined::Name(name) => TemplateError::new(Kind::Undefined, format!("'{name}' is undefined")),
            Undefined::Attr { owner, name } => {
                TemplateError::new(Kind::Undefined, format!("'{owner}' has no attribute '{name}'"))
            }
            Undefined::Item { owner, key } => {
                TemplateError::new(Kind::Undefined, format!("{owner} has no element {key}"))
            }
            Undefined::Forbidden { owner, name } => TemplateError::new(
                Kind::Security,
                format!("access to attribute '{name}' of '{owner}' is not allowed in a chat template"),
            ),
            Undefined::Other(what) => TemplateError::new(Kind::Undefined, *what),
        }
    }
}

impl Value {
    pub(crate) fn str(text: impl Into<Arc<str>>) -> Self {
        Value::Str(text.into())
    }

    pub(crate) fn list(items: Vec<Value>) -> TemplateResult<Self> {
        let shape = Shape::around(&items)?;
        Ok(Value::Seq(Rc::new(Seq { items, tuple: false, shape })))
    }

    pub(crate) fn tuple(items: Vec<Value>) -> TemplateResult<Self> {
        let shape = Shape::around(&items)?;
        Ok(Value::Seq(Rc::new(Seq { items, tuple: true, shape })))
    }

    pub(crate) fn dict(map: IndexMap<Key, Value>) -> TemplateResult<Self> {
        let shape = Shape::around(map.values())?;
        Ok(Value::Dict(Rc::new(Dict { map, shape })))
    }

    pub(crate) fn lazy(type_name: &'static str, items: Vec<Value>) -> TemplateResult<Self> {
        let shape = Shape::around(&items)?;
        let view = type_name.starts_with("dict_");
        Ok(Value::Iter(Rc::new(Lazy { type_name, view, consumed: Cell::new(false), items, shape })))
    }

    pub(crate) fn generator(items: Vec<Value>) -> TemplateResult<Self> {
        Self::lazy("generator", items)
    }

    pub(crate) fn object(object: Object) -> Self {
        Value::Object(Rc::new(object))
    }

    pub(crate) fn namespace(vars: IndexMap<Name, Value>) -> TemplateResult<Self> {
        let depth = Cell::new(Shape::around(vars.values())?.depth);
        Ok(Value::object(Object::Namespace(Namespace { vars: RefCell::new(vars), depth })))
    }

    pub(crate) fn shape(&self) -> Shape {
        match self {
            Value::Seq(seq) => seq.shape,
            Value::Dict(dict) => dict.shape,
            Value::Iter(iter) => iter.shape,
            Value::Object(object) => match &**object {
                Object::Namespace(ns) => Shape { depth: ns.depth.get(), mutable: true },
                Object::Loop(state) => Shape { depth: state.shape.depth.saturating_add(1), mutable: true },
                Object::Method { receiver, .. } => {
                    let inner = receiver.shape();
                    Shape { depth: inner.depth.saturating_add(1), mutable: inner.mutable }
                }
                Object::Cycler { items, .. } => {
                    items.iter().fold(Shape { depth: 1, mutable: false }, |all, v| {
                        let inner = v.shape();
                        Shape {
                            depth: all.depth.max(inner.depth.saturating_add(1)),
                            mutable: all.mutable | inner.mutable,
                        }
                    })
                }
                Object::Joiner { separator: inner, .. } => {
                    let inner = inner.shape();
                    Shape { depth: inner.depth.saturating_add(1), mutable: inner.mutable }
                }
                Object::Macro { .. } | Object::Function(_) => Shape { depth: 1, mutable: false },
            },
            _ => Shape::default(),
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    /// Python's truth of the value.
    pub(crate) fn truth(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(b) => *b,
            Value::Int(i) => *i != 0,
            Value::Float(f) => *f != 0.0,
            Value::Str(s) => !s.is_empty(),
            Value::Seq(seq) => !seq.items.is_empty(),
            Value::Dict(dict) => !dict.map.is_empty(),
            Value::Iter(iter) => !iter.view || !iter.items.is_empty(),
            Value::Object(_) => true,
        }
    }

    /// Python's name of the type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::Seq(seq) if seq.tuple => "tuple",
            Value::Seq(_) => "list",
            Value::Dict(_) => "dict",
            Value::Iter(iter) => iter.type_name,
            Value::Object(object) => match &**object {
                Object::Namespace(_) => "Namespace",
                Object::Macro { .. } => "Macro",
                Object::Function(_) => "function",
                Object::Method { .. } => "builtin_function_or_method",
                Object::Loop(_) => "LoopContext",
                Object::Cycler { .. } => "Cycler",
                Object::Joiner { .. } => "Joiner",
            },
        }
    }

    /// How Jinja names the owner of a missing attribute.
    pub(crate) fn owner_name(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Undefined(_) => "Undefined object",
            Value::Bool(_) => "bool object",
            Value::Int(_) => "int object",
            Value::Float(_) => "float object",
            Value::Str(_) => "str object",
            Value::Seq(seq) if seq.tuple => "tuple object",
            Value::Seq(_) => "list object",
            Value::Dict(_) => "dict object",
            Value::Iter(_) => "iterator object",
            Value::Object(object) => match &**object {
                Object::Namespace(_) => "namespace object",
                Object::Loop(_) => "loop object",
                _ => "function object",
            },
        }
    }

    pub(crate) fn literal(literal: &Literal) -> Self {
        match literal {
            Literal::None => Value::None,
            Literal::Bool(b) => Value::Bool(*b),
            Literal::Int(i) => Value::Int(*i),
            Literal::Float(f) => Value::Float(*f),
            Literal::Str(s) => Value::Str(s.clone()),
        }
    }

    /// A JSON value as Python's `json.loads` would give it. Fails if it is nested deeper than [`MAX_DEPTH`].
    pub(crate) fn from_json(json: &serde_json::Value) -> TemplateResult<Self> {
        Self::from_json_at(json, 0)
    }

    fn from_json_at(json: &serde_json::Value, depth: u16) -> TemplateResult<Self> {
        if depth >= MAX_DEPTH {
            return Err(TemplateError::new(Kind::Request, format!("JSON nested more than {MAX_DEPTH} deep")));
        }
        Ok(match json {
            serde_json::Value::Null => Value::None,
            serde_json::Value::Bool(b) => Value::Bool(*b),
            serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(i), _) => Value::Int(i.into()),
                (None, Some(u)) => Value::Int(u.into()),
                (None, None) => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(s) => Value::str(s.as_str()),
            serde_json::Value::Array(items) => {
                let items: TemplateResult<Vec<_>> =
                    items.iter().map(|item| Self::from_json_at(item, depth + 1)).collect();
                Value::list(items?)?
            }
            serde_json::Value::Object(map) => Self::from_json_map_at(map, depth)?,
        })
    }

    fn from_json_map_at(
        map: &serde_json::Map<String, serde_json::Value>,
        depth: u16,
    ) -> TemplateResult<Self> {
        let entries: TemplateResult<IndexMap<_, _>> = map
            .iter()
            .map(|(key, value)| Ok((Key::Str(key.as_str().into()), Self::from_json_at(value, depth + 1)?)))
            .collect();
        Value::dict(entries?)
    }

    /// A JSON object as a dict.
    pub(crate) fn from_json_map(map: &serde_json::Map<String, serde_json::Value>) -> TemplateResult<Self> {
        Self::from_json_map_at(map, 0)
    }

    /// The value as a dict's key.
    pub(crate) fn to_key(&self) -> TemplateResult<Key> {
        Ok(match self {
            Value::Str(s) => Key::Str(s.clone()),
            Value::Int(i) => Key::Int(*i),
            Value::Bool(b) => Key::Bool(*b),
            Value::None => Key::None,
            // 1.0 and 1 are one key.
            Value::Float(f) if f.fract() == 0.0 && f.abs() < 1e15 => Key::Int(*f as i128),
            Value::Float(f) => Key::Float(f.to_bits()),
            Value::Seq(seq) if seq.tuple => {
                Key::Tuple(seq.items.iter().map(Value::to_key).collect::<TemplateResult<_>>()?)
            }
            Value::Undefined(undefined) => return Err(undefined.error()),
            other => {
                let message = format!("unhashable type: '{}'", other.type_name());
                return Err(TemplateError::new(Kind::Type, message));
            }
        })
    }

    pub(crate) fn from_key(key: &Key) -> TemplateResult<Self> {
        Ok(match key {
            Key::Str(s) => Value::Str(s.clone()),
            Key::Int(i) => Value::Int(*i),
            Key::Bool(b) => Value::Bool(*b),
            Key::None => Value::None,
            Key::Float(bits) => Value::Float(f64::from_bits(*bits)),
            Key::Tuple(items) => {
                Value::tuple(items.iter().map(Self::from_key).collect::<TemplateResult<_>>()?)?
            }
        })
    }
}

impl Namespace {
    /// Sets an attribute. A value that holds a namespace or a loop is refused: it could hold this one.
    pub(crate) fn set(&self, name: Name, value: Value) -> TemplateResult<()> {
        let shape = Shape::around([&value])?;
        if shape.mutable {
            let message = format!("'{name}': a namespace or loop cannot be stored in a namespace");
            return Err(TemplateError::new(Kind::Unsupported, message));
        }
        self.depth.set(self.depth.get().max(shape.depth));
        self.vars.borrow_mut().insert(name, value);
        Ok(())
    }
}
