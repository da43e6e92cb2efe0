//! How the table lies in memory: the same words for the packet path (`datapath/table/fib6.h`) and
//! for this crate.
//!
//! Memory is an array of lines of 64 bytes, one cache line each; words are of 8 bytes in the
//! machine's order. The first lines hold one [`Reference`] for each view, in the low half of a
//! word.
//!
//! ```text
//! inner line   | children (index of a line)      | 7 separators, shifted right by one      |
//!              0                                 8                                         64
//! leaf line    | 6 values (references)           | 5 edges                                 |
//!              0                                 24                                        64
//! ```
//!
//! A tree maps 64-bit numbers to values. An edge is the first number of an interval; the value
//! behind the n-th edge of a leaf is `value[n + 1]`, before the first `value[0]`. A leaf with fewer
//! than five edges repeats the last one (without edges: 0). Counting the edges that are not larger
//! than a number therefore gives 5 behind the last edge, and that value is always `value[5]`.
//!
//! In an inner line the children are adjacent lines. Child n holds the numbers that are not smaller
//! than separator `n - 1`. Separators are even, and stored shifted, so that
//! `separator - (number / 2 + 1)` has its sign bit set exactly when the separator is not larger. A
//! comparison takes two instructions, where BPF would need a branch. Unused ones are
//! [`NO_SEPARATOR`]. The first word, which holds the index in its lower half, has the same bit set,
//! so that a reader can compare all words of a line without an exception.
//!
//! A value is a [`Reference`]: a route, or the tree over the lower 64 bits of the addresses in that
//! interval.

/// Words of a line.
pub const LINE_WORDS: usize = 8;
/// Children of an inner line, lines of a block.
pub const FANOUT: usize = 8;
/// Separators of an inner line.
pub const SEPARATORS: usize = FANOUT - 1;
/// Edges of a leaf line.
pub const EDGES: usize = 5;
/// Values of a leaf line.
pub const VALUES: usize = EDGES + 1;
/// Index of the first word with edges in a leaf line, after the values.
pub const EDGES_AT: usize = VALUES / 2;
/// LIMIT: views. The memory starts with one word per view.
#[cfg(not(loom))]
pub const VIEWS: usize = 4096;
/// Fewer views, which keep the model small.
#[cfg(loom)]
pub const VIEWS: usize = 8;
/// LIMIT: inner lines on the way to a leaf. Eight of them hold 6 * 8^8 intervals.
#[cfg(not(test))]
pub const HEIGHT_MAX: u32 = 8;
/// A small height that tests can reach.
#[cfg(test)]
pub const HEIGHT_MAX: u32 = 3;
/// Larger than every shifted number plus 1, by less than 2^63.
pub const NO_SEPARATOR: u64 = 1 << 63;

/// Target of an interval or a view: a route index (0: no route), or a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference(pub u32);

const TREE: u32 = 1 << 31;
const HEIGHT_SHIFT: u32 = 27;
const INDEX_MASK: u32 = (1 << HEIGHT_SHIFT) - 1;
/// LIMIT: route indices.
pub const ROUTE_MAX: u32 = TREE - 1;
/// LIMIT: lines of a memory (8 GiB).
pub const LINES_MAX: usize = 1 << HEIGHT_SHIFT;

impl Reference {
    /// No route.
    pub const NONE: Self = Self(0);

    /// Returns a reference to a route index, up to [`ROUTE_MAX`].
    pub const fn route(index: u32) -> Self {
        Self(index & !TREE)
    }

    /// Returns a reference to a tree, by the line of its root and the number of inner levels above
    /// the leaves.
    pub const fn tree(line: u32, height: u32) -> Self {
        Self(TREE | height << HEIGHT_SHIFT | line & INDEX_MASK)
    }

    /// Returns whether this refers to a tree.
    pub const fn is_tree(self) -> bool {
        self.0 & TREE != 0
    }

    /// Returns the line of the tree's root.
    pub const fn line(self) -> u32 {
        self.0 & INDEX_MASK
    }

    /// Returns the number of inner lines above each leaf of the tree.
    pub const fn height(self) -> u32 {
        (self.0 & !TREE) >> HEIGHT_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_route_or_a_tree() {
        assert!(!Reference::route(ROUTE_MAX).is_tree());
        let tree = Reference::tree(INDEX_MASK, HEIGHT_MAX);
        assert_eq!(
            (tree.is_tree(), tree.line(), tree.height()),
            (true, INDEX_MASK, HEIGHT_MAX)
        );
    }
}
