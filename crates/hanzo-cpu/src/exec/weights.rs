//! Weights as the executor holds them, each in the one form that its uses need.

use std::sync::atomic::{AtomicU64, Ordering};

use hanzo_fusion::graph::{Graph, Op, WeightDecl};
use hanzo_fusion::{DeviceError, Progress, WeightSource};
use hanzo_quant::{QuantType, decode_row};

use super::load_error;
use super::pack_cache::PackCache;
use crate::packed::{PackedMatrix, RowSource};
use crate::pool::Pool;

/// A weight in memory.
#[derive(Debug)]
pub(super) enum Held {
    /// No op of the plan reads it.
    Unused,
    /// A vector of f32.
    Vector(Vec<f32>),
    /// A matrix that is contracted (and perhaps looked up).
    Packed(PackedMatrix),
    /// A matrix that is only looked up: the file's rows.
    Table { ty: QuantType, row_bytes: usize, bytes: Vec<u8> },
}

/// What a plan does with a weight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    None,
    Lookup,
    Vector,
    Contract,
}

impl Held {
    /// Loads what `graph` uses; packed matrices from the cache, where one is given and has them.
    pub(super) fn load_all(
        graph: &Graph,
        source: &dyn WeightSource,
        pool: &Pool,
        cache: Option<&PackCache>,
        progress: &dyn Progress,
    ) -> Result<Vec<Held>, DeviceError> {
        let mut uses = vec![Use::None; graph.weights.len()];
        let mut note = |w: Option<hanzo_fusion::Weight>, how: Use| {
            if let Some(u) = w.and_then(|w| uses.get_mut(w.index())) {
                *u = how.max(*u);
            }
        };
        for node in &graph.nodes {
            match node.op {
                Op::Embed { weight } | Op::EmbedPosition { weight } => note(Some(weight), Use::Lookup),
                Op::MatMul { weight, .. } | Op::MoeMatMul { weight, .. } => note(Some(weight), Use::Contract),
                Op::AddWeight { weight, .. } | Op::MulWeight { weight, .. } => {
                    note(Some(weight), Use::Vector)
                }
                Op::RmsNorm { weight, .. } => note(weight, Use::Vector),
                Op::LayerNorm { weight, bias, .. } => {
                    note(weight, Use::Vector);
                    note(bias, Use::Vector);
                }
                Op::Attention { spec, .. } => note(spec.sinks, Use::Vector),
                Op::CausalConv { weight, .. } => note(Some(weight), Use::Vector),
                _ => {}
            }
        }
        let used = || graph.weights.iter().zip(&uses).filter(|(_, u)| **u != Use::None);
        let mut total = 0u64;
        for (decl, _) in used() {
            total = total.saturating_add(size(decl)?.1 as u64);
        }
        let reader = Reader { source, progress, total: AtomicU64::new(total), done: AtomicU64::new(0) };
        let contracted = |index: usize| uses.get(index) == Some(&Use::Contract);
        let mut cached = cache.and_then(|cache| cache.begin(graph, &contracted, &reader, pool));
        let mut held = Vec::with_capacity(graph.weights.len());
        for (index, (decl, how)) in graph.weights.iter().zip(&uses).enumerate() {
            held.push(match how {
                Use::None => Held::Unused,
                Use::Lookup => reader.table(decl)?,
                Use::Vector => reader.vector(decl)?,
                Use::Contract => {
                    let kept = match &mut cached {
                        Some(cached) => cached.restore(index, decl, &reader, pool)?,
                        None => None,
                    };
                    Held::Packed(kept.map_or_else(|| reader.packed(decl, pool), Ok)?)
                }
            });
        }
        if let Some(cached) = cached {
            cached.finish(&held, &reader, pool);
        }
        Ok(held)
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Held::Unused => 0,
            Held::Vector(v) => v.len() * 4,
            Held::Packed(m) => m.bytes(),
            Held::Table { bytes, .. } => bytes.len(),
        }
    }

    pub(super) fn vector(&self) -> Option<&[f32]> {
        if let Held::Vector(v) = self { Some(v) } else { None }
    }

    pub(super) fn matrix(&self) -> Option<&PackedMatrix> {
        if let Held::Packed(m) = self { Some(m) } else { None }
    }

    /// Row `row` of a matrix, decoded; NaN where there is none.
    pub(super) fn row(&self, row: usize, out: &mut [f32]) {
        let ok = match self {
            Held::Packed(m) => m.dequantize_row(row, out).is_ok(),
            Held::Table { ty, row_bytes, bytes } => row
                .checked_mul(*row_bytes)
                .and_then(|at| bytes.get(at..at.checked_add(*row_bytes)?))
                .is_some_and(|bytes| decode_row(*ty, bytes, out).is_ok()),
            Held::Unused | Held::Vector(_) => false,
        };
        if !ok {
            out.fill(f32::NAN);
        }
    }
}

/// Bytes of a row and of the whole weight.
pub(super) fn size(decl: &WeightDecl) -> Result<(usize, usize), DeviceError> {
    let row = decl.ty.row_bytes(decl.n_in);
    let all = row.and_then(|r| r.checked_mul(decl.n_out)?.checked_mul(decl.n_stack));
    row.zip(all).ok_or_else(|| DeviceError::Weight {
        name: decl.name.clone(),
        reason: format!("[{}, {}, {}] of {} is no size", decl.n_stack, decl.n_out, decl.n_in, decl.ty),
    })
}

/// Reads weights and tells how far it has come.
pub(super) struct Reader<'a> {
    source: &'a dyn WeightSource,
    progress: &'a dyn Progress,
    total: AtomicU64,
    done: AtomicU64,
}

impl<'a> Reader<'a> {
    pub(super) fn source(&self) -> &'a dyn WeightSource {
        self.source
    }

    /// Bytes more are to be done.
    pub(super) fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes more are done.
    pub(super) fn advance(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let total = self.total.load(Ordering::Relaxed);
        self.progress.update(done.min(total), total);
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// What was done since [`done`](Self::done) gave this has to be done again.
    pub(super) fn go_back(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    fn read(&self, decl: &WeightDecl, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.source.read(decl, offset, out)?;
        self.advance(out.len() as u64);
        Ok(())
    }

    fn packed(&self, decl: &WeightDecl, pool: &Pool) -> Result<PackedMatrix, DeviceError> {
        let rows = Rows { reader: self, decl, row_bytes: size(decl)?.0 };
        let format = decl.ty.format();
        PackedMatrix::pack_experts(format, decl.n_stack, decl.n_out, decl.n_in, &rows, pool, None)
            .map_err(|e| load_error(&decl.name, e))
    }

    fn bytes(&self, decl: &WeightDecl) -> Result<Vec<u8>, DeviceError> {
        let n = size(decl)?.1;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(n).map_err(|_| DeviceError::OutOfMemory {
            what: format!("weight `{}`", decl.name),
            bytes: n as u64,
        })?;
        bytes.resize(n, 0);
        // In pieces, so that the progress moves.
        for (i, piece) in bytes.chunks_mut(16 << 20).enumerate() {
            self.read(decl, (i as u64) * (16 << 20), piece)?;
        }
        Ok(bytes)
    }

    fn table(&self, decl: &WeightDecl) -> Result<Held, DeviceError> {
        Ok(Held::Table { ty: decl.ty, row_bytes: size(decl)?.0, bytes: self.bytes(decl)? })
    }

    fn vector(&self, decl: &WeightDecl) -> Result<Held, DeviceError> {
        let bytes = self.bytes(decl)?;
        let n = decl.n_in.checked_mul(decl.n_out).and_then(|n| n.checked_mul(decl.n_stack)).unwrap_or(0);
        let mut out = vec![0.0; n];
        decode_row(decl.ty, &bytes, &mut out)
            .map_err(|e| DeviceError::Weight { name: decl.name.clone(), reason: e.to_string() })?;
        Ok(Held::Vector(out))
    }
}

/// Rows of one matrix, for packing.
struct Rows<'a> {
    reader: &'a Reader<'a>,
    decl: &'a WeightDecl,
    row_bytes: usize,
}

impl RowSource for Rows<'_> {
    fn read_rows(&self, first: usize, _rows: usize, out: &mut [u8]) -> std::io::Result<()> {
        let offset =
            (first as u64).checked_mul(self.row_bytes as u64).ok_or(std::io::ErrorKind::InvalidInput)?;
        self.reader.read(self.decl, offset, out).map_err(std::io::Error::other)
    }
}
