//! Walks over whole tables: their intervals, and the lines that they use.

use std::collections::BTreeSet;

use crate::layout::{Reference, VIEWS};
use crate::line::{Inner, Leaf};
use crate::lookup::value;
use crate::memory::{Memory, load};
use crate::sync::Ordering;

/// Returns the number of lines that the lookup of an address reads in sequence, including the line
/// of the view.
pub fn depth<M: Memory + ?Sized>(memory: &M, view: u32, address: u128) -> u32 {
    let root = memory.words()[view as usize % VIEWS].load(Ordering::Acquire);
    let (mut found, mut lines) = (Reference(root as u32), 1);
    for number in [(address >> 64) as u64, address as u64] {
        if found.is_tree() {
            lines += found.height() + 1;
            found = value(memory, found, number);
        }
    }
    lines
}

/// Returns all intervals of a view with their routes. Adjacent intervals with equal routes are
/// merged.
pub fn intervals<M: Memory + ?Sized>(memory: &M, view: u32) -> Vec<(u128, u32)> {
    let root = Reference(memory.words()[view as usize % VIEWS].load(Ordering::Acquire) as u32);
    let mut found: Vec<(u128, u32)> = Vec::new();
    each(memory, root, &mut |_| {}, &mut |high, value| {
        let base = u128::from(high) << 64;
        let mut put = |at, route| {
            if found.last().is_none_or(|(_, last)| *last != route) {
                found.push((at, route));
            }
        };
        if value.is_tree() {
            each(memory, value, &mut |_| {}, &mut |low, value| {
                put(base | u128::from(low), value.0);
            });
        } else {
            put(base, value.0);
        }
    });
    found
}

/// Returns the views that are not empty, and all lines that they use.
pub(crate) fn survey<M: Memory + ?Sized>(memory: &M) -> (Vec<u32>, BTreeSet<u32>) {
    let (mut views, mut lines) = (Vec::new(), BTreeSet::new());
    for (view, word) in memory.words()[..VIEWS].iter().enumerate() {
        let root = Reference(word.load(Ordering::Acquire) as u32);
        if root == Reference::NONE {
            continue;
        }
        views.push(view as u32);
        let mut below = Vec::new();
        each(
            memory,
            root,
            &mut |line| lines.extend([line]),
            &mut |_, value| below.push(value),
        );
        for tree in below.into_iter().filter(|value| value.is_tree()) {
            each(
                memory,
                tree,
                &mut |line| lines.extend([line]),
                &mut |_, _| {},
            );
        }
    }
    (views, lines)
}

/// Visits the lines of a tree, and its intervals in order.
fn each<M: Memory + ?Sized>(
    memory: &M,
    root: Reference,
    line: &mut impl FnMut(u32),
    interval: &mut impl FnMut(u64, Reference),
) {
    if root.is_tree() {
        each_below(memory, root.line(), root.height(), 0, line, interval);
    } else {
        interval(0, root);
    }
}

fn each_below<M: Memory + ?Sized>(
    memory: &M,
    index: u32,
    height: u32,
    from: u64,
    line: &mut impl FnMut(u32),
    interval: &mut impl FnMut(u64, Reference),
) {
    line(index);
    let content = load(memory, index);
    if height == 0 {
        let leaf = Leaf::read(&content);
        let begins = std::iter::once(from).chain(leaf.edges);
        for (begin, value) in begins.zip(leaf.values) {
            interval(begin, value);
        }
        return;
    }
    let inner = Inner::read(&content);
    let begins = std::iter::once(from).chain(inner.separators.iter().copied());
    for (child, begin) in (inner.children..).zip(begins) {
        each_below(memory, child, height - 1, begin, line, interval);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Fib, Heap, Prefix};

    #[test]
    fn a_lookup_reads_the_line_of_the_view_and_one_per_level() {
        let mut fib = Fib::new(Heap::new(1 << 12));
        let depth = |fib: &Fib<Heap>, address| super::depth(fib.memory(), 1, address);
        assert_eq!(depth(&fib, 7), 1);
        fib.insert(1, Prefix::new(1 << 100, 32), 1).expect("room");
        assert_eq!(depth(&fib, 7), 2);
        fib.insert(1, Prefix::new(7, 128), 2).expect("room");
        // The /64 of the host route has a tree of its own.
        assert_eq!((depth(&fib, 7), depth(&fib, 1 << 64)), (3, 2));
        for n in 0..100 {
            fib.insert(1, Prefix::new(n << 80, 48), 3).expect("room");
        }
        assert_eq!(depth(&fib, 1 << 64), 2 + fib.usage().height);
    }
}
