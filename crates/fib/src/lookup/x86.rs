//! The words of a line compared at once, with AVX-512 or AVX2.
//!
//! A vector cannot be loaded atomically in Rust, and a plain load of what another thread may store
//! to is undefined. So the loads are inline assembly. It equals a relaxed load of each word, since
//! x86 loads an aligned word atomically, also within a vector, and in program order. Words that
//! change while a line is reachable, `children` and values, are part of the vector. Their
//! comparison results are unused or constant, and they are loaded again separately.

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm256_castsi256_pd, _mm256_cmpgt_epi64, _mm256_movemask_pd, _mm256_set1_epi64x,
    _mm256_storeu_si256, _mm256_sub_epi64, _mm256_xor_si256, _mm512_cmple_epu64_mask,
    _mm512_cvtepi64_epi32, _mm512_loadu_si512, _mm512_mask_add_epi64, _mm512_set1_epi64, _pdep_u64,
};
use std::is_x86_feature_detected;

use super::search::{Line, Search, Walk, first_child, line, nth_value};
use crate::layout::{EDGES, EDGES_AT, NO_SEPARATOR};
use crate::sync::Ordering;

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
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt"))
        .then_some(Self(()))
    }

    /// With everything below compiled for it.
    #[inline(always)]
    pub fn run<W: Walk>(self, walk: W) -> W::Found {
        #[target_feature(enable = "avx512f,bmi2,popcnt")]
        fn run<W: Walk>(search: Avx512, walk: W) -> W::Found {
            walk.walk(search)
        }
        // SAFETY: the processor has it, or there would be no `self`.
        unsafe { run(self, walk) }
    }
}

impl Search for Avx512 {
    #[inline(always)]
    fn place(self, lines: &[Line], at: u32) -> usize {
        let places = (lines.len() - 1) * size_of::<Line>();
        // SAFETY: the processor has it, or there would be no `self`. PERF: folds and multiplies in one.
        unsafe { _pdep_u64(at.into(), places as u64) as usize }
    }

    #[inline(always)]
    unsafe fn child(self, lines: &[Line], place: usize, half: u64) -> u32 {
        // SAFETY: the processor has it, or there would be no `self`.
        unsafe { child(lines, place, half) }
    }

    #[inline(always)]
    unsafe fn value(self, lines: &[Line], place: usize, number: u64) -> u32 {
        // SAFETY: the processor has it, or there would be no `self`.
        unsafe { value(lines, place, number) }
    }

    #[inline(always)]
    unsafe fn children<const N: usize>(
        self,
        lines: &[Line],
        place: usize,
        halves: &[u64; N],
        children: &mut [u32; N],
    ) {
        // SAFETY: the processor has it, or there would be no `self`.
        unsafe { self::children(lines, place, halves, children) }
    }
}

/// `children` has its highest bit set, and so is larger than any halved number: it is not counted.
///
/// # Safety
/// There is a line at that place.
#[inline]
#[target_feature(enable = "avx512f,bmi2,popcnt")]
unsafe fn child(lines: &[Line], place: usize, half: u64) -> u32 {
    let child: u32;
    // SAFETY: reads a line of the slice. PERF: not through a reference to it, which would be an addition more.
    unsafe {
        asm!(
            "vpcmpnltuq {found}, {half}, zmmword ptr [{lines} + {place}]",
            "kmovw {child:e}, {found}",
            "popcnt {child:e}, {child:e}",
            "add {child:e}, dword ptr [{lines} + {place}]",
            found = out(kreg) _,
            half = in(zmm_reg) _mm512_set1_epi64(half as i64),
            lines = in(reg) lines.as_ptr(),
            place = in(reg) place,
            child = out(reg) child,
            options(nostack, readonly),
        );
    }
    child
}

/// # Safety
/// There is a line at that place.
#[inline]
#[target_feature(enable = "avx512f,bmi2,popcnt")]
unsafe fn value(lines: &[Line], place: usize, number: u64) -> u32 {
    let value: u32;
    // SAFETY: reads a line of the slice, which has a value more than edges.
    unsafe {
        asm!(
            "vpcmpnltuq {found}{{{edges}}}, {number}, zmmword ptr [{line}]",
            "kmovw {value:e}, {found}",
            "popcnt {value:e}, {value:e}",
            "mov {value:e}, dword ptr [{line} + 4 * {value:r}]",
            found = out(kreg) _,
            edges = in(kreg) EDGE_WORDS as u16,
            number = in(zmm_reg) _mm512_set1_epi64(number as i64),
            line = in(reg) lines.as_ptr().byte_add(place),
            value = out(reg) value,
            options(nostack, readonly),
        );
    }
    value
}

/// Eight numbers are one operand, and each separator is compared with all of them.
///
/// # Safety
/// There is a line at that place.
#[inline]
#[target_feature(enable = "avx512f,bmi2,popcnt")]
unsafe fn children<const N: usize>(
    lines: &[Line],
    place: usize,
    halves: &[u64; N],
    children: &mut [u32; N],
) {
    // SAFETY: there is one.
    let line = unsafe { line(lines, place) };
    let first = first_child(line);
    let (eights, rest) = halves.as_chunks::<8>();
    let (children_of_eights, children_of_rest) = children.as_chunks_mut::<8>();
    for (halves, children) in eights.iter().zip(children_of_eights) {
        // SAFETY: eight numbers.
        let halves = unsafe { _mm512_loadu_si512(halves.as_ptr().cast()) };
        let mut found = _mm512_set1_epi64(first.into());
        for word in &line[1..] {
            let separator = word.load(Ordering::Relaxed);
            if separator == NO_SEPARATOR {
                break;
            }
            let separator = _mm512_set1_epi64(separator as i64);
            let before = _mm512_cmple_epu64_mask(separator, halves);
            found = _mm512_mask_add_epi64(found, before, found, _mm512_set1_epi64(1));
        }
        let found = _mm512_cvtepi64_epi32(found);
        // SAFETY: room for eight numbers.
        unsafe { _mm256_storeu_si256(children.as_mut_ptr().cast(), found) };
    }
    for (half, found) in rest.iter().zip(children_of_rest) {
        // SAFETY: there is one.
        *found = unsafe { child(lines, place, *half) };
    }
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
    unsafe fn child(self, lines: &[Line], place: usize, half: u64) -> u32 {
        // SAFETY: it is the place of a line, and the processor has it, or there would be no `self`.
        let (line, before) = unsafe { (line(lines, place), before(line(lines, place), half)) };
        first_child(line) + (before & SEPARATOR_WORDS).count_ones()
    }

    #[inline(always)]
    unsafe fn value(self, lines: &[Line], place: usize, number: u64) -> u32 {
        // SAFETY: it is the place of a line, and the processor has it, or there would be no `self`.
        let (line, larger) = unsafe { (line(lines, place), larger(line(lines, place), number)) };
        nth_value(line, EDGES as u32 - (larger & EDGE_WORDS).count_ones())
    }
}

/// Returns the words of an inner line that are not larger than half a number. As in BPF, the sign
/// of the difference decides.
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

    fn written(content: [u64; LINE_WORDS]) -> [Line; 1] {
        [content.map(crate::sync::AtomicU64::new)]
    }

    proptest! {
        #[test]
        fn every_way_to_search_an_inner_line_finds_the_same_child(
            children in 0..u32::MAX - 8,
            separators in prop::collection::btree_set(number(), 0..=7),
            number in number(),
        ) {
            let separators = separators.into_iter().map(|it| it & !1).collect();
            let lines = written(Inner { children, separators }.write());
            let half = number >> 1;
            let child = unsafe { Portable.child(&lines, 0, half) };
            for found in [
                Avx512::detect().map(|it| unsafe { it.child(&lines, 0, half) }),
                Avx2::detect().map(|it| unsafe { it.child(&lines, 0, half) }),
            ].into_iter().flatten() {
                prop_assert_eq!(found, child);
            }
        }

        #[test]
        fn numbers_that_are_at_one_line_find_the_children_that_each_would_find(
            children in 0..u32::MAX - 8,
            separators in prop::collection::btree_set(number(), 0..=7),
            numbers in prop::array::uniform11(number()),
        ) {
            let separators = separators.into_iter().map(|it| it & !1).collect();
            let lines = written(Inner { children, separators }.write());
            let halves = numbers.map(|number| number >> 1);
            let each = halves.map(|half| unsafe { Portable.child(&lines, 0, half) });
            if let Some(search) = Avx512::detect() {
                let mut found = [0; 11];
                unsafe { search.children(&lines, 0, &halves, &mut found) };
                prop_assert_eq!(found, each);
            }
        }

        #[test]
        fn every_way_to_search_a_leaf_finds_the_same_value(
            edges in prop::collection::btree_set(number(), 0..=EDGES),
            values in prop::collection::vec(any::<u32>(), EDGES + 1),
            number in number(),
        ) {
            let edges: Vec<u64> = edges.into_iter().filter(|edge| *edge > 0).collect();
            let values = values[..=edges.len()].iter().map(|it| crate::layout::Reference(*it)).collect();
            let lines = written(Leaf { edges, values }.write());
            let value = unsafe { Portable.value(&lines, 0, number) };
            for found in [
                Avx512::detect().map(|it| unsafe { it.value(&lines, 0, number) }),
                Avx2::detect().map(|it| unsafe { it.value(&lines, 0, number) }),
            ].into_iter().flatten() {
                prop_assert_eq!(found, value);
            }
        }
    }
}
