//! What buffers and workgroup memory hold during a run, and who touched it.
//!
//! Each cell remembers its last writer and its last readers. Two accesses of one cell, one of them a write, are a race when they come from
//! different invocations of a workgroup with no barrier between them, or from different workgroups. Atomics race with plain accesses only.

use std::fmt;

use super::super::ir::{Elem, Kernel, Mem};
use super::BufferData;

/// What an access met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The index and the length.
    OutOfBounds(u32, usize),
    /// Nothing was written there.
    Undefined(u32),
    /// Another invocation's access is not ordered with this one.
    Race {
        /// The element.
        index: u32,
        /// The other invocation.
        other: u32,
        /// Whether that is of another workgroup.
        elsewhere: bool,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds(index, len) => write!(f, "element {index} of {len}"),
            Self::Undefined(index) => write!(f, "element {index} is read, but was never written"),
            Self::Race { index, other, elsewhere } => {
                let place = if *elsewhere { " of another workgroup" } else { "" };
                write!(f, "element {index} races with invocation {other}{place}")
            }
        }
    }
}

/// An access: when, by whom, and whether atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Access {
    /// Counts workgroups from 1; 0 is "never".
    workgroup: u32,
    /// Counts barriers of the workgroup.
    epoch: u32,
    invocation: u32,
    atomic: bool,
}

impl Access {
    /// Whether `self` and a later `now` may happen in either order.
    fn unordered(self, now: Self) -> bool {
        let both_atomic = self.atomic && now.atomic;
        self.workgroup != 0
            && !both_atomic
            && (self.workgroup != now.workgroup
                || (self.epoch == now.epoch && self.invocation != now.invocation))
    }

    fn race(self, index: u32, now: Self) -> Fault {
        Fault::Race { index, other: self.invocation, elsewhere: self.workgroup != now.workgroup }
    }
}

#[derive(Clone, Debug, Default)]
struct Cell {
    word: Option<u32>,
    write: Access,
    /// The last two readers that differ: enough to find one that is not the writer.
    reads: [Access; 2],
}

#[derive(Debug)]
struct Space {
    cells: Vec<Cell>,
    elem: Elem,
}

/// All memory of a run.
#[derive(Debug)]
pub struct Memory {
    buffers: Vec<Space>,
    shared: Vec<Space>,
    tables: Vec<Vec<u32>>,
    workgroup: u32,
    epoch: u32,
}

impl Memory {
    pub(super) fn new(kernel: &Kernel, buffers: &[BufferData]) -> Self {
        let cells = |words: &[Option<u32>]| {
            words.iter().map(|&word| Cell { word, ..Cell::default() }).collect::<Vec<_>>()
        };
        let buffers = kernel.buffers.iter().zip(buffers);
        let buffers = buffers.map(|(b, data)| Space { cells: cells(&data.words), elem: b.elem }).collect();
        let shared = kernel.shared.iter();
        let shared =
            shared.map(|s| Space { cells: vec![Cell::default(); s.len as usize], elem: s.elem }).collect();
        let tables = kernel.tables.iter().map(|t| t.words.clone()).collect();
        Self { buffers, shared, tables, workgroup: 0, epoch: 0 }
    }

    /// Workgroup memory holds nothing again.
    pub(super) fn next_workgroup(&mut self) {
        self.workgroup += 1;
        self.epoch = 0;
        self.shared.iter_mut().flat_map(|s| &mut s.cells).for_each(|c| *c = Cell::default());
    }

    pub(super) fn barrier(&mut self) {
        self.epoch += 1;
    }

    pub(super) fn write_back(self, buffers: &mut [BufferData]) {
        for (space, data) in self.buffers.into_iter().zip(buffers) {
            data.words = space.cells.into_iter().map(|c| c.word).collect();
        }
    }

    fn now(&self, invocation: u32, atomic: bool) -> Access {
        Access { workgroup: self.workgroup, epoch: self.epoch, invocation, atomic }
    }

    fn cell(&mut self, mem: Mem, index: u32) -> Result<(&mut Cell, Elem), Fault> {
        let space = match mem {
            Mem::Buffer(b) => self.buffers.get_mut(b as usize),
            Mem::Shared(s) => self.shared.get_mut(s as usize),
            Mem::Table(_) => None,
        };
        let Some(Space { cells, elem }) = space else { return Err(Fault::OutOfBounds(index, 0)) };
        let len = cells.len();
        match cells.get_mut(index as usize) {
            Some(cell) => Ok((cell, *elem)),
            None => Err(Fault::OutOfBounds(index, len)),
        }
    }

    pub(super) fn load(&mut self, mem: Mem, index: u32, invocation: u32) -> Result<u32, Fault> {
        if let Mem::Table(t) = mem {
            let table = self.tables.get(t as usize).map_or(&[][..], |t| t);
            return table.get(index as usize).copied().ok_or(Fault::OutOfBounds(index, table.len()));
        }
        let now = self.now(invocation, false);
        let (cell, _) = self.cell(mem, index)?;
        if cell.write.unordered(now) {
            return Err(cell.write.race(index, now));
        }
        if cell.reads[0].invocation != invocation || cell.reads[0].workgroup != now.workgroup {
            cell.reads[1] = cell.reads[0];
        }
        cell.reads[0] = now;
        cell.word.ok_or(Fault::Undefined(index))
    }

    pub(super) fn store(&mut self, mem: Mem, index: u32, invocation: u32, word: u32) -> Result<(), Fault> {
        let now = self.now(invocation, false);
        let (cell, elem) = self.cell(mem, index)?;
        if let Some(other) = [cell.write, cell.reads[0], cell.reads[1]].into_iter().find(|a| a.unordered(now))
        {
            return Err(other.race(index, now));
        }
        cell.write = now;
        cell.word = Some(match elem {
            Elem::U8 => word & 0xff,
            Elem::U16 | Elem::F16 => word & 0xffff,
            _ => word,
        });
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        mem: Mem,
        index: u32,
        invocation: u32,
        f: impl FnOnce(u32) -> u32,
    ) -> Result<u32, Fault> {
        let now = self.now(invocation, true);
        let (cell, _) = self.cell(mem, index)?;
        if let Some(other) = [cell.write, cell.reads[0], cell.reads[1]].into_iter().find(|a| a.unordered(now))
        {
            return Err(other.race(index, now));
        }
        let old = cell.word.ok_or(Fault::Undefined(index))?;
        (cell.write, cell.word) = (now, Some(f(old)));
        Ok(old)
    }
}
