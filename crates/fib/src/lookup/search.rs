//! Where a number lies in a line: in the instructions that every machine has, or in the widest of the one at hand.

#[cfg(all(target_arch = "x86_64", not(loom)))]
use std::sync::LazyLock;

#[cfg(all(target_arch = "x86_64", not(loom)))]
use super::x86::{Avx2, Avx512};
use crate::layout::{EDGES_AT, LINE_WORDS};
use crate::sync::{AtomicU64, Ordering};

/// A line as readers see it.
pub(super) type Line = [AtomicU64; LINE_WORDS];

/// A way to search a line. A value of such a type exists only where the processor has the instructions.
pub(super) trait Search: Copy {
    /// How many separators of an inner line are not larger than a number.
    ///
    /// # Panics
    /// If there is no such line.
    fn child(self, lines: &[Line], at: usize, number: u64) -> u32;

    /// How many edges of a leaf line are not larger than a number.
    ///
    /// # Panics
    /// If there is no such line.
    fn interval(self, lines: &[Line], at: usize, number: u64) -> u32;
}

/// What is to be done in one way or another to search lines.
pub(super) trait Walk {
    type Found;

    fn walk<S: Search>(self, search: S) -> Self::Found;
}

/// What the processor at hand is best searched with.
#[cfg(all(target_arch = "x86_64", not(loom)))]
enum Best {
    Avx512(Avx512),
    Avx2(Avx2),
    Portable,
}

// PERF: asked once; the question takes as long as two levels of the tree.
#[cfg(all(target_arch = "x86_64", not(loom)))]
static BEST: LazyLock<Best> = LazyLock::new(|| {
    let wide = Avx512::detect().map(Best::Avx512);
    wide.or_else(|| Avx2::detect().map(Best::Avx2))
        .unwrap_or(Best::Portable)
});

/// In the fastest way that the processor has.
// PERF: inlined, since a walk handed on in memory is written in other pieces than it is read, which takes as long as a
// lookup.
#[inline(always)]
pub(super) fn best<W: Walk>(walk: W) -> W::Found {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    match *BEST {
        Best::Avx512(search) => return search.run(walk),
        Best::Avx2(search) => return search.run(walk),
        Best::Portable => {}
    }
    walk.walk(Portable)
}

/// Word by word, as the packet path does it in BPF.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Search for Portable {
    #[inline(always)]
    fn child(self, lines: &[Line], at: usize, number: u64) -> u32 {
        let beyond = (number >> 1) + 1;
        let before = |word: &AtomicU64| word.load(Ordering::Relaxed).wrapping_sub(beyond) >> 63;
        lines[at][1..].iter().map(before).sum::<u64>() as u32
    }

    #[inline(always)]
    fn interval(self, lines: &[Line], at: usize, number: u64) -> u32 {
        let before = |word: &AtomicU64| u32::from(word.load(Ordering::Relaxed) <= number);
        lines[at][EDGES_AT..].iter().map(before).sum()
    }
}
