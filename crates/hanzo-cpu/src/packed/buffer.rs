//! Memory for packed weights: zeroed, and on huge pages where the system gives them.
//!
//! A stream through 4 KB pages pays for address translation (a sixth of the bandwidth here), and a matrix of a few megabytes that has a mapping
//! of its own lies mostly outside whole huge pages. So small buffers share slabs.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::MmapMut;

use crate::CpuError;
use crate::pool::Pool;

/// Bytes after the end that cores may read (never use): whole vectors at the end of a tile.
const SLACK: usize = 128;
/// Size of a huge page, and alignment of every mapping.
const HUGE: usize = 2 << 20;
/// Size of a slab.
const SLAB: usize = 64 << 20;
/// Buffers up to this size share slabs.
const SMALL: usize = 8 << 20;

/// A mapping, from its first huge-page boundary on. Never handed out twice.
struct Slab {
    start: *mut u8,
    // Keeps the pages.
    _map: MmapMut,
}

// SAFETY: plain memory; access goes through `Buffer`s, whose ranges are disjoint.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    fn new(bytes: usize) -> Option<Self> {
        let mut map = MmapMut::map_anon(bytes.checked_add(HUGE)?).ok()?;
        // A refusal costs speed only.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let skip = map.as_ptr().align_offset(HUGE).min(HUGE);
        // SAFETY: the mapping has `HUGE` bytes more than asked for.
        let start = unsafe { map.as_mut_ptr().add(skip) };
        Some(Slab { start, _map: map })
    }
}

/// The slab that small buffers are cut from, and how much of it is taken. It lives as long as one of its buffers does.
static OPEN: Mutex<(Weak<Slab>, usize)> = Mutex::new((Weak::new(), 0));

/// A large zeroed allocation.
pub(crate) struct Buffer {
    slab: Arc<Slab>,
    offset: usize,
    len: usize,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Buffer {
    /// `len` zero bytes. Pages are touched first by whoever writes them.
    pub(crate) fn zeroed(len: usize, what: &'static str) -> Result<Self, CpuError> {
        let memory = || CpuError::Memory { what, bytes: len };
        let total = len.checked_add(SLACK).and_then(|n| n.checked_next_multiple_of(64)).ok_or_else(memory)?;
        if total > SMALL {
            let slab = Slab::new(total).ok_or_else(memory)?;
            return Ok(Buffer { slab: Arc::new(slab), offset: 0, len });
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slab) = open.0.upgrade()
            && total <= SLAB - open.1
        {
            let offset = open.1;
            open.1 += total;
            return Ok(Buffer { slab, offset, len });
        }
        let slab = Arc::new(Slab::new(SLAB).ok_or_else(memory)?);
        *open = (Arc::downgrade(&slab), total);
        Ok(Buffer { slab, offset: 0, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        // SAFETY: `offset + len` bytes were reserved in the slab.
        unsafe { self.slab.start.add(self.offset) }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.slab.start.add(self.offset) }
    }

    /// Fills it in pieces of `piece` bytes (the last may be shorter), shared out to the threads of the pool: `fill(i, bytes)` writes the `i`-th
    /// and says whether it could. Gives whether all could; where one could not, the others are left out.
    pub(crate) fn fill(
        &mut self,
        piece: usize,
        pool: &Pool,
        fill: impl Fn(usize, &mut [u8]) -> bool + Sync,
    ) -> Result<bool, CpuError> {
        /// Lets threads write disjoint pieces.
        struct Start(*mut u8);
        // SAFETY: every piece is written by the one thread that claimed it.
        unsafe impl Sync for Start {}

        let (start, len) = (Start(self.as_mut_ptr()), self.len);
        let piece = piece.max(1);
        let pieces = len.div_ceil(piece);
        // Few enough claims for any length.
        let step = pieces.div_ceil(1 << 20).max(1);
        let whole = AtomicBool::new(true);
        pool.run(|ctx| {
            let start = &start;
            ctx.claim(pieces.div_ceil(step), |chunk| {
                for i in chunk * step..pieces.min((chunk + 1) * step) {
                    if !whole.load(Ordering::Relaxed) {
                        return;
                    }
                    let at = i * piece;
                    // SAFETY: inside the buffer, which is borrowed mutably; this piece belongs to this thread.
                    let bytes =
                        unsafe { std::slice::from_raw_parts_mut(start.0.add(at), piece.min(len - at)) };
                    if !fill(i, bytes) {
                        whole.store(false, Ordering::Relaxed);
                    }
                }
            });
        })?;
        Ok(whole.into_inner())
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: initialized (zero pages), and written only through `&mut self` or while packing.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_and_do_not_overlap() {
        let sizes = [1, 64, 100_000, SMALL - 192, SMALL, 3 << 20, 0, 20 << 20];
        let mut all: Vec<Buffer> =
            sizes.iter().cycle().take(24).map(|&n| Buffer::zeroed(n, "test").unwrap()).collect();
        for (i, b) in all.iter_mut().enumerate() {
            assert!(b.as_slice().iter().step_by(997).all(|&v| v == 0));
            // SAFETY: inside the buffer.
            unsafe { std::ptr::write_bytes(b.as_mut_ptr(), i as u8 + 1, b.len()) };
        }
        for (i, b) in all.iter().enumerate() {
            assert!(b.as_slice().iter().all(|&v| v == i as u8 + 1));
        }
        assert!(matches!(Buffer::zeroed(usize::MAX, "test"), Err(CpuError::Memory { .. })));
        assert!(matches!(Buffer::zeroed(1 << 60, "test"), Err(CpuError::Memory { .. })));
    }
}
