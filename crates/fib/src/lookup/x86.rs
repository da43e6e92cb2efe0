//! The words of a line compared at once, with AVX-512 or AVX2.
//!
//! A vector cannot be loaded atomically in Rust, and a plain load of what another thread may store to is undefined. So
//! the loads are inline assembly, which to the language is what the processor makes of it: a relaxed load of each word,
//! since x86 loads an aligned word whole, also as a part of a vector, and loads in the order of the program. Words that
//! change while a line is reachable, `children` and values, are in the vector, but what they compare as is not used or
//! always the same; they are loaded once more by themselves.

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm256_castsi256_pd, _mm256_cmpgt_epi64, _mm256_movemask_pd, _mm256_set1_epi64x,
    _mm256_sub_epi64, _mm256_xor_si256, _mm512_set1_epi64,
};
use std::is_x86_feature_detected;

use super::search::{Line, Search, Walk};
use crate::layout::{EDGES, EDGES_AT};

/// Words of an inner line that are separators, one bit each.
const SEPARATOR_WORDS: u32 = 0xff & 0xff << 1;
/// Words of a leaf line that are edges.
const EDGE_WORDS: u32 = 0xff & 0xff << EDGES_AT;

/// A line is one operand.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// If the processor has it.
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt"))
            .then_some(Self(()))
    }

    /// With everything below compiled for it.
    #[inline(always)]
    pub fn run<W: Walk>(self, walk: W) -> W::Found {
        #[target_feature(enable = "avx512f,popcnt")]
        fn run<W: Walk>(search: Avx512, walk: W) -> W::Found {
            walk.walk(search)
        }
        // SAFETY: the processor has it, or there would be no `self`.
        unsafe { run(self, walk) }
    }
}

impl Search for Avx512 {
    #[inline(always)]
    fn child(self, lines: &[Line], at: usize, number: u64) -> u32 {
        // `children` has its highest bit set, and so is larger than any halved number.
        // SAFETY: the processor has it, or there would be no `self`.
        unsafe { not_larger(lines, at, number >> 1) }.count_ones()
    }

    #[inline(always)]
    fn interval(self, lines: &[Line], at: usize, number: u64) -> u32 {
        // SAFETY: the processor has it, or there would be no `self`.
        (unsafe { not_larger(lines, at, number) } & EDGE_WORDS).count_ones()
    }
}

/// The words of a line that are not larger than a number, one bit each.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn not_larger(lines: &[Line], at: usize, number: u64) -> u32 {
    let found: u16;
    assert!(at < lines.len());
    // SAFETY: reads a line of the slice. PERF: not through `&lines[at]`, which would be an addition more.
    unsafe {
        asm!(
            "vpcmpnltuq {found}, {number}, zmmword ptr [{lines} + {offset}]",
            found = lateout(kreg) found,
            number = in(zmm_reg) _mm512_set1_epi64(number as i64),
            lines = in(reg) lines.as_ptr(),
            offset = in(reg) at * size_of::<Line>(),
            options(nostack, preserves_flags, readonly),
        );
    }
    found.into()
}

/// A line is two operands.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// If the processor has it.
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")).then_some(Self(()))
    }

    /// With everything below compiled for it.
    #[inline(always)]
    pub fn run<W: Walk>(self, walk: W) -> W::Found {
        #[target_feature(enable = "avx2,popcnt")]
        fn run<W: Walk>(search: Avx2, walk: W) -> W::Found {
            walk.walk(search)
        }
        // SAFETY: the processor has it, or there would be no `self`.
        unsafe { run(self, walk) }
    }
}

impl Search for Avx2 {
    #[inline(always)]
    fn child(self, lines: &[Line], at: usize, number: u64) -> u32 {
        // SAFETY: the processor has it, or there would be no `self`.
        (unsafe { before(&lines[at], number >> 1) } & SEPARATOR_WORDS).count_ones()
    }

    #[inline(always)]
    fn interval(self, lines: &[Line], at: usize, number: u64) -> u32 {
        // SAFETY: the processor has it, or there would be no `self`.
        EDGES as u32 - (unsafe { larger(&lines[at], number) } & EDGE_WORDS).count_ones()
    }
}

/// The words of an inner line that are not larger than half a number: the sign of a difference says so, as in BPF.
#[inline]
#[target_feature(enable = "avx2")]
fn before(line: &Line, half: u64) -> u32 {
    let beyond = _mm256_set1_epi64x((half + 1) as i64);
    let [low, high] = load(line).map(|words| signs(_mm256_sub_epi64(words, beyond)));
    low | high << 4
}

/// The words of a line that are larger than a number.
#[inline]
#[target_feature(enable = "avx2")]
fn larger(line: &Line, number: u64) -> u32 {
    // There is a comparison for signed numbers only.
    let flip = _mm256_set1_epi64x(i64::MIN);
    let number = _mm256_xor_si256(_mm256_set1_epi64x(number as i64), flip);
    let [low, high] =
        load(line).map(|words| signs(_mm256_cmpgt_epi64(_mm256_xor_si256(words, flip), number)));
    low | high << 4
}

#[inline]
#[target_feature(enable = "avx2")]
fn signs(words: __m256i) -> u32 {
    _mm256_movemask_pd(_mm256_castsi256_pd(words)) as u32
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(line: &Line) -> [__m256i; 2] {
    let (low, high);
    // SAFETY: reads the line.
    unsafe {
        asm!(
            "vmovdqu {low}, ymmword ptr [{line}]",
            "vmovdqu {high}, ymmword ptr [{line} + 32]",
            low = out(ymm_reg) low,
            high = lateout(ymm_reg) high,
            line = in(reg) line,
            options(nostack, preserves_flags, readonly),
        );
    }
    [low, high]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LINE_WORDS;
    use crate::line::{Inner, Leaf};
    use crate::lookup::search::Portable;
    use proptest::prelude::*;

    /// Numbers at the ends of what there is, and anywhere.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..8, (0u64..8).prop_map(|n| u64::MAX - n), any::<u64>()]
    }

    fn line(content: [u64; LINE_WORDS]) -> [Line; 1] {
        [content.map(crate::sync::AtomicU64::new)]
    }

    proptest! {
        #[test]
        fn every_way_to_search_an_inner_line_finds_the_same_child(
            children in any::<u32>(),
            separators in prop::collection::btree_set(number(), 0..=7),
            number in number(),
        ) {
            let separators = separators.into_iter().map(|it| it & !1).collect();
            let lines = line(Inner { children, separators }.write());
            let child = Portable.child(&lines, 0, number);
            for found in [
                Avx512::detect().map(|it| it.child(&lines, 0, number)),
                Avx2::detect().map(|it| it.child(&lines, 0, number)),
            ].into_iter().flatten() {
                prop_assert_eq!(found, child);
            }
        }

        #[test]
        fn every_way_to_search_a_leaf_finds_the_same_interval(
            edges in prop::collection::btree_set(number(), 0..=EDGES),
            values in prop::collection::vec(any::<u32>(), EDGES + 1),
            number in number(),
        ) {
            let edges: Vec<u64> = edges.into_iter().filter(|edge| *edge > 0).collect();
            let values = values[..=edges.len()].iter().map(|it| crate::layout::Reference(*it)).collect();
            let lines = line(Leaf { edges, values }.write());
            let interval = Portable.interval(&lines, 0, number);
            for found in [
                Avx512::detect().map(|it| it.interval(&lines, 0, number)),
                Avx2::detect().map(|it| it.interval(&lines, 0, number)),
            ].into_iter().flatten() {
                prop_assert_eq!(found, interval);
            }
        }
    }
}
