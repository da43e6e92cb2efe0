//! The memory that packets read while a writer changes it.

use crate::layout::{LINE_WORDS, LINES_MAX, VIEWS};
use crate::sync::{AtomicU64, Ordering};

/// An array of lines; a line is 8 words. Readers in other threads or in the kernel may load any
/// word at any time.
///
/// # Safety
/// `words` always returns the same memory. It is aligned to a cache line, and its length is a
/// multiple of [`LINE_WORDS`] words.
pub unsafe trait Memory {
    /// Returns all words.
    fn words(&self) -> &[AtomicU64];

    /// Returns the number of lines that the table uses: the largest power of two that fits.
    fn lines(&self) -> usize {
        let lines = (self.words().len() / LINE_WORDS).min(LINES_MAX);
        lines.checked_ilog2().map_or(0, |power| 1 << power)
    }
}

/// Lines at the start of a memory that the views occupy.
pub const VIEW_LINES: usize = VIEWS / LINE_WORDS;

/// A cache line.
#[cfg_attr(not(loom), repr(C, align(64)))]
#[cfg_attr(loom, repr(C))]
#[derive(Debug, Default)]
struct Line([AtomicU64; LINE_WORDS]);

/// Memory of this process.
#[derive(Debug)]
pub struct Heap(Box<[Line]>);

impl Heap {
    /// Creates a memory with this number of lines, all zero: no view has a route.
    pub fn new(lines: usize) -> Self {
        Self((0..lines).map(|_| Line::default()).collect())
    }
}

// SAFETY: one allocation that never moves, of lines aligned to 64 bytes.
unsafe impl Memory for Heap {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: a Line is LINE_WORDS words without padding.
        unsafe {
            std::slice::from_raw_parts(
                self.0.as_ptr().cast::<AtomicU64>(),
                self.0.len() * LINE_WORDS,
            )
        }
    }
}

// SAFETY: the memory behind the pointer implements `Memory` itself.
unsafe impl<M: Memory> Memory for std::sync::Arc<M> {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }
}

/// Returns the words of a line.
pub(crate) fn line<M: Memory + ?Sized>(memory: &M, index: u32) -> &[AtomicU64; LINE_WORDS] {
    let start = index as usize * LINE_WORDS;
    memory.words()[start..start + LINE_WORDS]
        .try_into()
        .expect("a line has eight words")
}

/// Returns the content of a line. The loads are not one atomic operation, but the words of a
/// reachable line either never change or change independently.
pub(crate) fn load<M: Memory + ?Sized>(memory: &M, index: u32) -> [u64; LINE_WORDS] {
    std::array::from_fn(|i| line(memory, index)[i].load(Ordering::Acquire))
}

/// Fills a line that no reader can reach.
pub(crate) fn fill<M: Memory + ?Sized>(memory: &M, index: u32, content: &[u64; LINE_WORDS]) {
    for (word, value) in line(memory, index).iter().zip(content) {
        word.store(*value, Ordering::Relaxed);
    }
}
