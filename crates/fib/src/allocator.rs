//! Allocates lines. A freed line is reused only after all its readers have ended.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::FANOUT;

/// Allocates single lines, for the root of a tree, and blocks of [`FANOUT`] lines, for the children
/// of a line.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// First line that was never allocated.
    next: u32,
    end: u32,
    /// Blocks that are allocated line by line and have free lines, with one bit per free line.
    divided: BTreeMap<u32, u8>,
    blocks: Vec<u32>,
    /// Lines retired since the last grace period began.
    retired: Vec<Lines>,
    /// Lines retired before the current grace period.
    waiting: Vec<Lines>,
    in_use: usize,
    /// Number of lines in `retired` and `waiting`.
    held: usize,
}

/// Lines that were allocated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    Single(u32),
    Block(u32),
}

impl Lines {
    fn count(self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Block(_) => FANOUT,
        }
    }
}

impl Allocator {
    /// Returns an allocator for the lines from `first` up to `end`, exclusive.
    pub fn new(first: u32, end: u32) -> Self {
        Self {
            next: first.next_multiple_of(FANOUT as u32),
            end,
            divided: BTreeMap::new(),
            blocks: Vec::new(),
            retired: Vec::new(),
            waiting: Vec::new(),
            in_use: 0,
            held: 0,
        }
    }

    /// Adds the lines of an enlarged memory.
    pub fn extend(&mut self, end: u32) {
        self.end = end;
    }

    /// As [`Allocator::new`], without the lines that another writer already uses.
    pub fn beside(first: u32, end: u32, taken: &BTreeSet<u32>) -> Self {
        let mut allocator = Self::new(first, end);
        let blocks = |line: &u32| *line / FANOUT as u32;
        let taken: BTreeSet<u32> = taken.iter().map(blocks).collect();
        let after = taken.last().map_or(0, |last| (last + 1) * FANOUT as u32);
        let before = allocator.next;
        allocator.next = before.max(after);
        allocator.blocks = (before / FANOUT as u32..allocator.next / FANOUT as u32)
            .filter(|block| !taken.contains(block))
            .map(|block| block * FANOUT as u32)
            .collect();
        allocator.in_use = taken.len() * FANOUT;
        allocator
    }

    /// Returns one line, or `None` if none is free.
    pub fn single(&mut self) -> Option<u32> {
        // Use the first divided block, so that the last ones become whole again.
        let (block, free) = match self.divided.pop_first() {
            Some(divided) => divided,
            None => (self.fresh()?, ALL),
        };
        let line = free.trailing_zeros();
        let left = free & !(1 << line);
        if left != 0 {
            self.divided.insert(block, left);
        }
        self.in_use += 1;
        Some(block + line)
    }

    /// Returns a block, or `None` if none is free.
    pub fn block(&mut self) -> Option<u32> {
        let block = self.fresh()?;
        self.in_use += FANOUT;
        Some(block)
    }

    fn fresh(&mut self) -> Option<u32> {
        if let Some(block) = self.blocks.pop() {
            return Some(block);
        }
        let block = self.next;
        self.next = block
            .checked_add(FANOUT as u32)
            .filter(|next| *next <= self.end)?;
        Some(block)
    }

    /// Retires lines that new readers cannot reach. Current readers may still use them.
    pub fn retire(&mut self, lines: Lines) {
        self.held += lines.count();
        self.retired.push(lines);
    }

    /// Frees allocated lines that no reader has ever reached.
    pub fn give_back(&mut self, lines: Lines) {
        self.in_use -= lines.count();
        match lines {
            Lines::Single(line) => {
                let (block, bit) = (line - line % FANOUT as u32, 1 << (line % FANOUT as u32));
                let free = self.divided.entry(block).or_insert(0);
                *free |= bit;
                if *free == ALL {
                    self.divided.remove(&block);
                    self.blocks.push(block);
                }
            }
            Lines::Block(block) => self.blocks.push(block),
        }
    }

    /// Begins a grace period.
    pub fn begin_grace(&mut self) {
        self.waiting.append(&mut self.retired);
    }

    /// Ends the current grace period, and frees the lines that waited for it.
    pub fn end_grace(&mut self) {
        for lines in std::mem::take(&mut self.waiting) {
            self.held -= lines.count();
            self.give_back(lines);
        }
    }

    /// Returns the number of lines that can be allocated in blocks without a grace period. Lines of
    /// divided blocks do not count.
    pub fn free(&self) -> usize {
        let fresh = self.end.saturating_sub(self.next) as usize;
        fresh - fresh % FANOUT + self.blocks.len() * FANOUT
    }

    /// Returns the number of lines that are reachable, or were until recently.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Returns the number of lines that wait for a grace period.
    pub fn held(&self) -> usize {
        self.held
    }
}

/// All lines of a block.
const ALL: u8 = u8::MAX;
const _: () = assert!(FANOUT == u8::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_whole_again_when_all_its_lines_are_free() {
        let mut allocator = Allocator::new(0, 16);
        let singles: Vec<u32> = (0..9).filter_map(|_| allocator.single()).collect();
        assert_eq!(singles, (0..9).collect::<Vec<u32>>());
        assert_eq!((allocator.block(), allocator.free()), (None, 0));
        for line in &singles[1..] {
            allocator.give_back(Lines::Single(*line));
        }
        assert_eq!(
            allocator.free(),
            8,
            "seven free lines are not enough for a block"
        );
        assert_eq!(allocator.block(), Some(8));
        assert_eq!(allocator.single(), Some(1));
        allocator.give_back(Lines::Single(0));
        allocator.give_back(Lines::Single(1));
        assert_eq!((allocator.free(), allocator.in_use()), (8, 8));
    }

    #[test]
    fn a_line_is_reused_only_after_a_later_grace_period() {
        let mut allocator = Allocator::new(3, 16);
        assert_eq!(allocator.block(), Some(8));
        assert_eq!(allocator.block(), None, "lines 3 to 7 are not a block");
        allocator.begin_grace();
        allocator.retire(Lines::Block(8));
        allocator.end_grace();
        assert_eq!(allocator.block(), None, "that grace period began earlier");
        allocator.begin_grace();
        assert_eq!((allocator.held(), allocator.free()), (8, 0));
        allocator.end_grace();
        assert_eq!(allocator.single(), Some(8));
        assert_eq!(allocator.single(), Some(9));
        assert_eq!(allocator.in_use(), 2);
    }
}
