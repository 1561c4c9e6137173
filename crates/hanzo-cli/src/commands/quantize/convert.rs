//! Carrying out a plan: tensors one after the other, their rows shared out to threads.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use hanzo_gguf::{GgufFile, GgufWriter, TensorInfo, TensorWriter};
use hanzo_quant::{EncodeError, QuantType, decode_row, encode_rows};

use super::importance::Importance;
use super::plan::{Action, Plan, new_type};

/// Elements that a thread takes at a time.
const PIECE: usize = 1 << 16;
/// Pieces a thread that are written together.
const PIECES: usize = 16;
/// Bytes copied at a time.
const COPY: u64 = 8 << 20;

/// Where progress goes: bytes of the input's tensors done, and of how many. An error ends the work.
pub(crate) type OnProgress<'a> = &'a (dyn Fn(u64, u64) -> Result<()> + Sync);

/// Writes the new file: `header` has its metadata; the tensors are added here.
///
/// # Errors
/// Reading, writing, or values that cannot be encoded, with the tensor's name; nothing is left at `path` then.
pub(crate) fn convert(
    file: &GgufFile,
    plan: &Plan,
    importance: Option<&Importance>,
    mut header: GgufWriter,
    path: &Path,
    threads: usize,
    progress: OnProgress<'_>,
) -> Result<()> {
    let mut slots = Vec::with_capacity(plan.actions.len());
    for (tensor, &action) in file.tensors().iter().zip(&plan.actions) {
        slots.push(header.tensor(tensor.name(), new_type(tensor, action), tensor.dims())?);
    }
    let mut out = header.create(path)?;
    let done = AtomicU64::new(0);
    let total = file.tensor_bytes_total();
    let advance = |bytes: u64| progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
    for ((tensor, &action), &slot) in file.tensors().iter().zip(&plan.actions).zip(&slots) {
        let work = match action {
            Action::Copy => copy(file, tensor, slot, &mut out, &advance),
            Action::Encode { from, to } => {
                let job = Job { file, tensor, from, to, threads, advance: &advance };
                importance
                    .map_or(Ok(None), |importance| importance.weights(tensor))
                    .and_then(|weights| job.run(weights.as_deref(), slot, &mut out))
            }
        };
        work.with_context(|| format!("tensor `{}`", tensor.name()))?;
    }
    file.check_unchanged()?;
    out.finish()?;
    Ok(())
}

fn copy(
    file: &GgufFile,
    tensor: &TensorInfo,
    slot: usize,
    out: &mut TensorWriter,
    advance: &dyn Fn(u64) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; tensor.n_bytes().min(COPY) as usize];
    let mut at = 0;
    while at < tensor.n_bytes() {
        let len = (tensor.n_bytes() - at).min(COPY);
        let buffer = &mut buffer[..len as usize];
        file.read_tensor_at(tensor, at, buffer)?;
        out.append(slot, buffer)?;
        advance(len)?;
        at += len;
    }
    Ok(())
}

/// One tensor to encode.
struct Job<'a> {
    file: &'a GgufFile,
    tensor: &'a TensorInfo,
    from: QuantType,
    to: QuantType,
    threads: usize,
    advance: &'a (dyn Fn(u64) -> Result<()> + Sync),
}

/// Rows that one thread encodes, and where the bytes go.
struct Piece<'a> {
    first_row: u64,
    rows: usize,
    out: &'a mut [u8],
}

impl Job<'_> {
    /// Encodes all rows, matrix after matrix (each of which may have its own weights).
    fn run(&self, weights: Option<&[Vec<f32>]>, slot: usize, out: &mut TensorWriter) -> Result<()> {
        let columns = usize::try_from(self.tensor.row_elems())?;
        let rows_of_matrix = self.tensor.dims().get(1).copied().unwrap_or(1);
        let matrices: u64 = self.tensor.dims().iter().skip(2).product();
        let row_bytes = self.to.row_bytes(columns).context("rows are no whole blocks")?;
        let piece_rows = (PIECE / columns.max(1)).max(1);
        let batch_rows = piece_rows.saturating_mul(self.threads * PIECES);
        let mut buffer = Vec::new();
        for matrix in 0..matrices {
            let weights = match weights {
                Some(all) => {
                    Some(all.get(matrix as usize).context("an importance for every matrix")?.as_slice())
                }
                None => None,
            };
            let mut row = 0;
            while row < rows_of_matrix {
                let rows = (rows_of_matrix - row).min(batch_rows as u64) as usize;
                let len = rows.checked_mul(row_bytes).context("too large")?;
                buffer.resize(len, 0);
                self.batch(matrix * rows_of_matrix + row, piece_rows, row_bytes, weights, &mut buffer)?;
                out.append(slot, &buffer)?;
                row += rows as u64;
            }
        }
        Ok(())
    }

    /// Encodes consecutive rows into `out`, pieces of them by turns on all threads.
    fn batch(
        &self,
        first_row: u64,
        piece_rows: usize,
        row_bytes: usize,
        weights: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<()> {
        let pieces = out.chunks_mut(piece_rows * row_bytes).enumerate().map(|(i, out)| Piece {
            first_row: first_row + (i * piece_rows) as u64,
            rows: out.len() / row_bytes,
            out,
        });
        let n_pieces = pieces.len();
        let queue = Mutex::new(pieces);
        // The failure of the earliest rows is the one reported, however the threads ran.
        let failure: Mutex<Option<(u64, anyhow::Error)>> = Mutex::new(None);
        let work = || {
            let mut room = (Vec::new(), Vec::new());
            loop {
                let piece = queue.lock().ok().and_then(|mut queue| queue.next());
                let Some(piece) = piece else { break };
                let at = piece.first_row;
                if let Err(error) = self.piece(piece, weights, &mut room)
                    && let Ok(mut failure) = failure.lock()
                    && failure.as_ref().is_none_or(|(earlier, _)| at < *earlier)
                {
                    *failure = Some((at, error));
                }
            }
        };
        if self.threads.min(n_pieces) <= 1 {
            work();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..self.threads.min(n_pieces) {
                    scope.spawn(work);
                }
            });
        }
        match failure.into_inner() {
            Ok(None) => Ok(()),
            Ok(Some((_, error))) => Err(error),
            Err(_) => Err(anyhow!("a thread died")),
        }
    }

    fn piece(&self, piece: Piece<'_>, weights: Option<&[f32]>, room: &mut (Vec<u8>, Vec<f32>)) -> Result<()> {
        let (bytes, values) = room;
        let columns = usize::try_from(self.tensor.row_elems())?;
        let row_bytes = self.tensor.row_bytes();
        bytes.resize(piece.rows * usize::try_from(row_bytes)?, 0);
        values.resize(piece.rows * columns, 0.0);
        self.file.read_tensor_at(self.tensor, piece.first_row * row_bytes, bytes)?;
        decode_row(self.from, bytes, values)?;
        encode_rows(self.to, values, columns, weights, piece.out).map_err(|error| match error {
            EncodeError::NotFinite { index, .. } | EncodeError::OutOfRange { index, .. } => {
                let (row, column) = (piece.first_row + (index / columns) as u64, index % columns);
                anyhow!(error).context(format!("row {row}, column {column}"))
            }
            other => anyhow!(other),
        })?;
        (self.advance)(bytes.len() as u64)
    }
}
