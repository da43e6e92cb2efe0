//! Searches a number in a line, with portable code or with the widest instructions of this machine.

#[cfg(all(target_arch = "x86_64", not(loom)))]
use std::sync::LazyLock;

#[cfg(all(target_arch = "x86_64", not(loom)))]
use super::x86::{Avx2, Avx512};
use crate::layout::{EDGES_AT, LINE_WORDS};
use crate::line::place;
use crate::sync::{AtomicU64, Ordering};

/// A line as readers see it.
pub(super) type Line = [AtomicU64; LINE_WORDS];

/// A way to search a line. A value of such a type exists only where the processor has the instructions.
pub(super) trait Search: Copy {
    /// Where a line begins, in bytes. Memory of a power of two of lines. Line numbers are masked,
    /// so that no content can lead outside the memory.
    #[inline(always)]
    fn place(self, lines: &[Line], at: u32) -> usize {
        (at as usize & (lines.len() - 1)) * size_of::<Line>()
    }

    /// Which line comes behind an inner line for a number, of which separators are compared with `half`.
    ///
    /// # Safety
    /// `place` is the place of a line.
    unsafe fn child(self, lines: &[Line], place: usize, half: u64) -> u32;

    /// Returns the value of a leaf line for a number, as a [`Reference`](crate::layout::Reference).
    ///
    /// # Safety
    /// `place` is the place of a line.
    unsafe fn value(self, lines: &[Line], place: usize, number: u64) -> u32;

    /// As [`Search::child`], for numbers that are all at one line.
    ///
    /// # Safety
    /// `place` is the place of a line.
    #[inline(always)]
    unsafe fn children<const N: usize>(
        self,
        lines: &[Line],
        place: usize,
        halves: &[u64; N],
        children: &mut [u32; N],
    ) {
        for (child, half) in children.iter_mut().zip(halves) {
            // SAFETY: it is.
            *child = unsafe { self.child(lines, place, *half) };
        }
    }
}

/// The line at a place.
///
/// # Safety
/// There is one.
#[inline(always)]
pub(super) unsafe fn line(lines: &[Line], place: usize) -> &Line {
    debug_assert!(place.is_multiple_of(size_of::<Line>()));
    // SAFETY: there is one.
    unsafe { lines.get_unchecked(place / size_of::<Line>()) }
}

/// The line that an inner line's children begin at.
#[inline(always)]
pub(super) fn first_child(line: &Line) -> u32 {
    line[0].load(Ordering::Acquire) as u32
}

/// The n-th value of a leaf line.
#[inline(always)]
pub(super) fn nth_value(line: &Line, n: u32) -> u32 {
    let (word, shift) = place(n as usize);
    (line[word].load(Ordering::Acquire) >> shift) as u32
}

/// An operation that is generic over the search method.
pub(super) trait Walk {
    type Found;

    fn walk<S: Search>(self, search: S) -> Self::Found;
}

/// Fastest search method of this CPU.
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
    unsafe fn child(self, lines: &[Line], place: usize, half: u64) -> u32 {
        // SAFETY: it is the place of a line.
        let line = unsafe { line(lines, place) };
        let before = |word: &AtomicU64| word.load(Ordering::Relaxed).wrapping_sub(half + 1) >> 63;
        first_child(line) + line[1..].iter().map(before).sum::<u64>() as u32
    }

    #[inline(always)]
    unsafe fn value(self, lines: &[Line], place: usize, number: u64) -> u32 {
        // SAFETY: it is the place of a line.
        let line = unsafe { line(lines, place) };
        let before = |word: &AtomicU64| u32::from(word.load(Ordering::Relaxed) <= number);
        nth_value(line, line[EDGES_AT..].iter().map(before).sum())
    }
}
