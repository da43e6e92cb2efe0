//! Memory latency, measured by a chain of loads in which each address depends on the previous load.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::time::Instant;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use sidestep_testkit::random::Random;

use super::subject::Trouble;

/// Bytes of a line.
const LINE: usize = 64;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Loads that are timed.
const LOADS: usize = 1 << 18;

/// How the memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB, as for a BPF map.
    Small,
    /// 2 MiB, if the kernel has free ones.
    Huge,
}

/// Memory in which every line holds the index of another one. All lines form one cycle.
pub struct Chain {
    start: NonNull<u64>,
    mapped: NonZeroUsize,
    lines: usize,
}

impl Chain {
    /// Creates a chain of this size in bytes, a multiple of 64 and at least two cache lines.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(bytes: usize, pages: Pages, random: &mut Random) -> Result<Self, Trouble> {
        let failed = |errno| Trouble::of("memory", errno);
        let mapped = NonZeroUsize::MIN.saturating_add(bytes.next_multiple_of(HUGE) - 1);
        // SAFETY: a new mapping at an address that the kernel chooses; the advice only affects its
        // page size.
        let start = unsafe {
            let read_write = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            let start =
                mmap_anonymous(None, mapped, read_write, MapFlags::MAP_PRIVATE).map_err(failed)?;
            let advice = match pages {
                Pages::Small => MmapAdvise::MADV_NOHUGEPAGE,
                Pages::Huge => MmapAdvise::MADV_HUGEPAGE,
            };
            // A kernel without huge pages uses small ones.
            let _ = madvise(start, mapped.get(), advice);
            start
        };
        let mut chain = Self {
            start: start.cast(),
            mapped,
            lines: bytes / LINE,
        };
        chain.link(random);
        Ok(chain)
    }

    /// Links all lines in one random cycle, each cycle with equal probability (Sattolo's
    /// algorithm).
    fn link(&mut self, random: &mut Random) {
        let mut order: Vec<usize> = (0..self.lines).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i));
        }
        let words = self.words();
        for (line, next) in order.into_iter().enumerate() {
            words[line * LINE / 8] = next as u64;
        }
    }

    fn words(&mut self) -> &mut [u64] {
        // SAFETY: the mapping has this length, is zeroed and aligned to a page, and only this value
        // refers to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.mapped.get() / 8) }
    }

    /// Returns the nanoseconds per load if each load starts after the previous one has finished.
    pub fn latency(&mut self) -> f64 {
        let lines = self.lines;
        let words = self.words();
        let mut at = 0;
        let mut follow = |loads: usize| {
            for _ in 0..loads {
                at = words[at * LINE / 8] as usize;
            }
        };
        follow(lines.min(LOADS * 8));
        let begun = Instant::now();
        follow(LOADS);
        let time = begun.elapsed();
        std::hint::black_box(at);
        time.as_secs_f64() * 1e9 / LOADS as f64
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which is not used afterwards. The call cannot fail with
        // these arguments.
        let _ = unsafe { munmap(self.start.cast(), self.mapped.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_visits_every_line_before_it_repeats() {
        let mut chain = Chain::new(1000 * LINE, Pages::Small, &mut Random::new(1)).expect("memory");
        let words = chain.words();
        let (mut at, mut steps) = (0, 0);
        loop {
            at = words[at * LINE / 8] as usize;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, 1000);
    }
}
