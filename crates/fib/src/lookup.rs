//! Longest prefix match of one address, as the packet path does it in `datapath/table/fib6.h`.

use crate::layout::{EDGES_AT, LINE_WORDS, Reference, VIEWS};
use crate::line::place;
use crate::memory::Memory;
use crate::sync::{AtomicU64, Ordering};

/// A line as readers see it.
type Line = [AtomicU64; LINE_WORDS];

/// Returns the route index of an address in a view, or 0 if no prefix covers it.
pub fn lookup<M: Memory + ?Sized>(memory: &M, view: u32, address: u128) -> u32 {
    let lines = memory.words().as_chunks().0;
    let view = view as usize % VIEWS;
    let root = lines[view / LINE_WORDS][view % LINE_WORDS].load(Ordering::Acquire) as u32;
    let halves = [(address >> 64) as u64, address as u64];
    halves.into_iter().fold(root, |found, number| {
        let reference = Reference(found);
        if reference.is_tree() {
            descend(lines, reference, number)
        } else {
            found
        }
    })
}

/// Returns the value of a number in a tree.
pub(crate) fn value<M: Memory + ?Sized>(memory: &M, tree: Reference, number: u64) -> Reference {
    Reference(descend(memory.words().as_chunks().0, tree, number))
}

/// Walks from the root of a tree to the value of a number.
#[inline(always)]
fn descend(lines: &[Line], tree: Reference, number: u64) -> u32 {
    let at = (0..tree.height()).fold(tree.line(), |at, _| child(&lines[at as usize], number >> 1));
    leaf_value(&lines[at as usize], number)
}

/// Returns the index of the line below an inner line. The separators are compared with `half`.
// PERF: counts sign bits. Branches would be mispredicted.
#[inline(always)]
fn child(line: &Line, half: u64) -> u32 {
    let before = |word: &AtomicU64| word.load(Ordering::Relaxed).wrapping_sub(half + 1) >> 63;
    line[0].load(Ordering::Acquire) as u32 + line[1..].iter().map(before).sum::<u64>() as u32
}

/// Returns the value of a number in a leaf line.
#[inline(always)]
fn leaf_value(line: &Line, number: u64) -> u32 {
    let before = |word: &AtomicU64| usize::from(word.load(Ordering::Relaxed) <= number);
    let (word, shift) = place(line[EDGES_AT..].iter().map(before).sum());
    (line[word].load(Ordering::Acquire) >> shift) as u32
}
