//! Reading a header front to back, from memory or from a file, never beyond what is there.
//!
//! From a file the header is copied in growing pieces, as far as it turns out to reach; the map is not touched.
//! A count or length is compared with the bytes that remain before anything is read or allocated for it.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::limits::{MAX_HEADER_BYTES, MAX_STRING_BYTES};
use crate::source::FileSource;

/// First piece of a header read from a file; later pieces double up to [`LAST_PIECE`].
const FIRST_PIECE: u64 = 64 << 10;
const LAST_PIECE: u64 = 4 << 20;

pub(crate) struct Cursor<'s> {
    backing: Backing<'s>,
    pos: u64,
    /// Length of the whole file.
    file_len: u64,
    /// Where the header must have ended.
    limit: u64,
}

enum Backing<'s> {
    Slice(&'s [u8]),
    File { file: &'s FileSource, copy: Vec<u8> },
}

/// A stretch of header bytes. Headers are limited to [`MAX_HEADER_BYTES`], so 32 bits do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize).unwrap_or_default()
    }
}

impl<'s> Cursor<'s> {
    pub(crate) fn over_slice(bytes: &'s [u8]) -> Self {
        Cursor {
            backing: Backing::Slice(bytes),
            pos: 0,
            file_len: bytes.len() as u64,
            limit: MAX_HEADER_BYTES,
        }
    }

    /// `budget`: how many bytes this header may take (shards share [`MAX_HEADER_BYTES`]).
    pub(crate) fn over_file(file: &'s FileSource, budget: u64) -> Self {
        let backing = Backing::File { file, copy: Vec::new() };
        Cursor { backing, pos: 0, file_len: file.len(), limit: budget.min(MAX_HEADER_BYTES) }
    }

    pub(crate) fn pos(&self) -> u64 {
        self.pos
    }

    pub(crate) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The header bytes read so far (for a slice: all of it).
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.backing {
            Backing::Slice(bytes) => bytes,
            Backing::File { copy, .. } => copy,
        }
    }

    /// The copy that was made of a file's header, cut to what was parsed; nothing for a slice.
    pub(crate) fn into_copy(self) -> Vec<u8> {
        match self.backing {
            Backing::Slice(_) => Vec::new(),
            Backing::File { mut copy, .. } => {
                copy.truncate(self.pos as usize);
                copy.shrink_to_fit();
                copy
            }
        }
    }

    /// That `n` more bytes are in the file and within the header limit.
    fn check_room(&self, n: u64, what: &'static str) -> Result<u64> {
        let have = self.file_len - self.pos;
        if n > have {
            return Err(Error::Truncated { what, offset: self.pos, need: n, have });
        }
        let end = self.pos + n;
        if end > self.limit {
            let what = "the length of the header";
            return Err(Error::Limit { what, value: end, limit: self.limit, offset: self.pos });
        }
        Ok(end)
    }

    /// That `count` things of at least `min_bytes` each can follow; `at` is where the count was read.
    pub(crate) fn check_count(&self, count: u64, min_bytes: u64, what: &'static str, at: u64) -> Result<()> {
        let have = self.file_len - self.pos;
        let possible = have / min_bytes;
        if count > possible {
            return Err(Error::ImpossibleCount { what, count, offset: at, have, possible });
        }
        // count ≤ possible, so the product does not overflow.
        self.check_room(count * min_bytes, what).map(drop)
    }

    /// The next `n` bytes, without moving on.
    fn peek(&mut self, n: u64, what: &'static str) -> Result<&[u8]> {
        let end = self.check_room(n, what)?;
        if let Backing::File { file, copy } = &mut self.backing
            && end > copy.len() as u64
        {
            let have = copy.len() as u64;
            let piece = have.clamp(FIRST_PIECE, LAST_PIECE);
            let most = self.file_len.min(self.limit);
            let target = end.max(have.saturating_add(piece)).min(most);
            // All that the header may need, at once: untouched pages cost nothing, moving a grown copy would
            // hold it twice. It is cut to size in the end. (The limit is far below what usize can count.)
            copy.reserve_exact((most - have) as usize);
            copy.resize(target as usize, 0);
            let filled = match copy.get_mut(have as usize..) {
                Some(fresh) => file.read_at(have, fresh),
                None => Ok(()),
            };
            if let Err(error) = filled {
                copy.truncate(have as usize);
                return Err(error);
            }
        }
        let (start, end) = (self.pos as usize, end as usize);
        Ok(self.bytes().get(start..end).unwrap_or_default())
    }

    /// Moves over `n` bytes and says where they are.
    pub(crate) fn span(&mut self, n: u64, what: &'static str) -> Result<Span> {
        self.peek(n, what)?;
        let span = Span { start: self.pos as u32, len: n as u32 };
        self.pos += n;
        Ok(span)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let mut out = [0; N];
        let bytes = self.peek(N as u64, what)?;
        if bytes.len() == N {
            out.copy_from_slice(bytes);
        }
        self.pos += N as u64;
        Ok(out)
    }

    pub(crate) fn bytes4(&mut self, what: &'static str) -> Result<[u8; 4]> {
        self.array(what)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length and that many bytes: where the bytes are.
    pub(crate) fn string(&mut self, what: &'static str, limit: u64) -> Result<Span> {
        let at = self.pos;
        let len = self.u64(what)?;
        let have = self.file_len - self.pos;
        if len > have {
            return Err(Error::Truncated { what, offset: self.pos, need: len, have });
        }
        if len > limit {
            return Err(Error::Limit { what, value: len, limit, offset: at });
        }
        self.span(len, what)
    }

    /// Moves over `count` strings, noting in `index` where every `stride`-th begins, relative to the first.
    pub(crate) fn strings(&mut self, count: u64, stride: u64, index: &mut Vec<u32>) -> Result<()> {
        let base = self.pos;
        let mut done = 0;
        while done < count {
            let (walked, pos) = self.walk_strings(base, done, count, stride, index);
            (done, self.pos) = (walked, pos);
            // The next one is not in hand, or is wrong; this fetches it or says how.
            if done < count {
                if done % stride == 0 {
                    index.push((self.pos - base) as u32);
                }
                self.string("a string of an array", MAX_STRING_BYTES)?;
                done += 1;
            }
        }
        Ok(())
    }

    /// Walks the strings from number `done` on that are in hand and in order: how many are then done, and where.
    /// A vocabulary's strings are nearly all moved over here, with two comparisons each.
    fn walk_strings(
        &self,
        base: u64,
        done: u64,
        count: u64,
        stride: u64,
        index: &mut Vec<u32>,
    ) -> (u64, u64) {
        let bytes = self.bytes();
        let in_hand = bytes.len().min(usize::try_from(self.limit).unwrap_or(usize::MAX));
        let mut at = self.pos as usize;
        for i in done..count {
            let head = bytes.get(at..).and_then(|rest| rest.first_chunk());
            let len = head.map_or(u64::MAX, |head| u64::from_le_bytes(*head));
            // No more than MAX_STRING_BYTES, so the sum does not overflow.
            if len > MAX_STRING_BYTES || at + 8 + len as usize > in_hand {
                return (i, at as u64);
            }
            if i % stride == 0 {
                index.push((at as u64 - base) as u32);
            }
            at += 8 + len as usize;
        }
        (count, at as u64)
    }
}
