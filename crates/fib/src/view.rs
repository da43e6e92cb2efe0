//! One view: its prefixes, and the trees with the same content.
//!
//! The edges of a view are the addresses at which its prefixes start and end. Between two edges the
//! longest match is the same, so a lookup is a search for an interval. A change first adds edges
//! with the current value. It then stores the new value in each interval for which the prefix is
//! the longest match, one by one. For each address a reader sees the old or the new route.
//!
//! The prefixes determine the edges, and the /64s that have a tree over their lower halves
//! ([`View::is_edge`]). A view therefore stores only the prefixes and the trees.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

use crate::Prefix;
use crate::layout::Reference;
use crate::memory::Memory;
use crate::sweep::Swept;
use crate::tree::Trees;

/// A view of the writer.
#[derive(Debug, Default)]
pub(crate) struct View {
    prefixes: BTreeMap<Prefix, u32>,
    root: Reference,
    edges: usize,
    leaves: usize,
    tall: bool,
    written: Written,
}

/// Size of a view when it was last rebuilt, or when a rebuild failed, which is then not retried at
/// once.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    edges: usize,
    leaves: usize,
}

impl View {
    /// Returns a view of these prefixes with new trees.
    pub fn of<M: Memory + ?Sized>(
        prefixes: BTreeMap<Prefix, u32>,
        swept: Swept,
        trees: &mut Trees<'_, M>,
    ) -> Self {
        let edges = swept.edges();
        let mut above = swept.above;
        let mut at = 0;
        for (high, intervals) in &swept.below {
            while above[at].0 != *high {
                at += 1;
            }
            above[at].1 = trees.build(intervals);
        }
        let root = trees.build(&above);
        let leaves = std::mem::take(&mut trees.leaves) as usize;
        Self {
            prefixes,
            root,
            edges,
            leaves,
            tall: std::mem::take(&mut trees.tall),
            written: Written { edges, leaves },
        }
    }

    /// Retires all lines.
    pub fn retire<M: Memory + ?Sized>(self, trees: &mut Trees<'_, M>) {
        trees.retire(self.root);
    }

    pub fn prefixes(&self) -> &BTreeMap<Prefix, u32> {
        &self.prefixes
    }

    pub fn root(&self) -> Reference {
        self.root
    }

    /// Returns whether a rebuild is worth its time: the view has two fifths more leaves than its
    /// edges needed at the last rebuild, or is twice as large. Also records the current size for
    /// the next call.
    pub fn take_sparse(&mut self) -> bool {
        let Written { edges, leaves } = self.written;
        let (now, then) = (self.leaves * edges, leaves * self.edges);
        let sparse = self.leaves > 64 && (now * 5 > then * 7 || self.leaves >= leaves * 2);
        if sparse {
            self.written = Written {
                edges: self.edges,
                leaves: self.leaves,
            };
        }
        sparse
    }

    /// Records the result of a change.
    pub fn settle<M: Memory + ?Sized>(&mut self, trees: &mut Trees<'_, M>) {
        let leaves = self.leaves as isize + std::mem::take(&mut trees.leaves);
        self.leaves = leaves.max(0) as usize;
        self.tall |= std::mem::take(&mut trees.tall);
    }

    /// Returns whether a tree is about to become higher than readers can follow.
    pub fn is_tall(&self) -> bool {
        self.tall
    }

    /// Returns the number of leaves of all trees.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Returns the number of edges of all trees.
    pub fn edges(&self) -> usize {
        self.edges
    }

    /// Sets the route of a prefix. Returns the old route.
    pub fn insert<M: Memory + ?Sized>(
        &mut self,
        trees: &mut Trees<'_, M>,
        prefix: Prefix,
        route: u32,
    ) -> Option<u32> {
        let known = self.prefixes.get(&prefix).copied();
        let edges = match known {
            None => self.without(needs(prefix)),
            Some(_) => [None; 4],
        };
        self.prefixes.insert(prefix, route);
        for edge in edges.into_iter().flatten() {
            self.divide(trees, edge);
        }
        if known != Some(route) {
            self.give(trees, prefix, Reference::route(route));
        }
        known
    }

    /// Removes a prefix. Returns its route.
    pub fn remove<M: Memory + ?Sized>(
        &mut self,
        trees: &mut Trees<'_, M>,
        prefix: Prefix,
    ) -> Option<u32> {
        let old = self.prefixes.remove(&prefix)?;
        let shorter = match prefix.length.checked_sub(1) {
            Some(most) => self.longest(prefix.address, 0..=most).unwrap_or(0),
            None => 0,
        };
        if shorter != old {
            self.give(trees, prefix, Reference::route(shorter));
        }
        for edge in self.without(needs(prefix)).into_iter().rev().flatten() {
            self.unite(trees, edge);
        }
        Some(old)
    }

    /// Returns whether an interval starts at an address: a prefix starts there or ended just
    /// before, or it is a boundary of a /64 with a tree of its own. PERF: most queried addresses
    /// are not edges, and the nearest prefix on each side shows that.
    fn is_edge(&self, edge: u128) -> bool {
        let from = Prefix {
            address: edge,
            length: 0,
        };
        let is_of_64 = lower(edge) == 0;
        if let Some((next, _)) = self.prefixes.range(from..).next() {
            let is_in_64 = is_of_64 && upper(next.address) == upper(edge);
            if next.address == edge || is_in_64 {
                return true;
            }
        }
        let Some(last) = edge.checked_sub(1) else {
            return false;
        };
        let Some((before, _)) = self.prefixes.range(..=Prefix::new(last, 128)).next_back() else {
            return false;
        };
        if is_of_64 && before.length > 64 && upper(before.address) == upper(last) {
            return true;
        }
        // Prefixes of at least this length that contain the address have it as their last address.
        let length = 128 - edge.trailing_zeros() as u8;
        let common = (before.address ^ last).leading_zeros() as u8;
        common >= length && self.longest(last, length..=128).is_some()
    }

    /// Returns those of the addresses that are not edges.
    fn without(&self, edges: [Option<u128>; 4]) -> [Option<u128>; 4] {
        edges.map(|edge| edge.filter(|edge| !self.is_edge(*edge)))
    }

    /// Returns whether a /64 contains a longer prefix.
    fn is_divided(&self, high: u64) -> bool {
        let whole = Prefix::new(u128::from(high) << 64, 64);
        let longer = (Bound::Excluded(whole), Bound::Unbounded);
        let next = self.prefixes.range(longer).next();
        next.is_some_and(|(longer, _)| whole.contains(*longer))
    }

    /// Returns the route of the longest prefix with such a length that contains an address.
    fn longest(&self, address: u128, lengths: RangeInclusive<u8>) -> Option<u32> {
        let (least, most) = lengths.into_inner();
        let mut before = Prefix {
            address,
            length: most + 1,
        };
        loop {
            let (found, route) = self.prefixes.range(..before).next_back()?;
            // Any prefix that contains the address also contains the part that it shares with the
            // found prefix.
            let common = (found.address ^ address).leading_zeros() as u8;
            let common = common.min(found.length);
            if common < least {
                return None;
            }
            if common == found.length {
                return Some(*route);
            }
            before = Prefix::new(address, common);
            if let Some(route) = self.prefixes.get(&before) {
                return Some(*route);
            }
        }
    }

    /// Stores a value where the prefix is the longest match.
    fn give<M: Memory + ?Sized>(
        &mut self,
        trees: &mut Trees<'_, M>,
        prefix: Prefix,
        value: Reference,
    ) {
        let mut from = Some(prefix.address);
        let mut next = (prefix.address, prefix.length + 1);
        while let Some(begin) = from {
            let longer = self
                .prefixes
                .range(
                    Prefix {
                        address: next.0,
                        length: next.1,
                    }..,
                )
                .next()
                .map(|(longer, _)| *longer)
                .filter(|longer| longer.address <= prefix.last());
            match longer {
                Some(longer) => {
                    if longer.address > begin {
                        self.give_interval(trees, begin, longer.address - 1, value);
                    }
                    from = longer
                        .last()
                        .checked_add(1)
                        .filter(|from| *from <= prefix.last());
                    next = (from.unwrap_or(0), 0);
                }
                None => {
                    self.give_interval(trees, begin, prefix.last(), value);
                    from = None;
                }
            }
        }
    }

    /// Stores a value from edge to edge; no longer prefix lies in between.
    fn give_interval<M: Memory + ?Sized>(
        &mut self,
        trees: &mut Trees<'_, M>,
        from: u128,
        to: u128,
        value: Reference,
    ) {
        let (mut high, high_to) = (upper(from), upper(to));
        let mut last = high_to;
        if trees.value(self.root, high).is_tree() {
            let end = if high == high_to { lower(to) } else { u64::MAX };
            self.set_below(trees, high, lower(from), end, value);
            if high == high_to {
                return;
            }
            high += 1;
        }
        if high <= high_to && trees.value(self.root, high_to).is_tree() {
            self.set_below(trees, high_to, 0, lower(to), value);
            if high == high_to {
                return;
            }
            last -= 1;
        }
        if high <= last {
            self.root = trees.set(self.root, high, last, value);
        }
    }

    fn set_below<M: Memory + ?Sized>(
        &mut self,
        trees: &mut Trees<'_, M>,
        high: u64,
        from: u64,
        to: u64,
        value: Reference,
    ) {
        let below = trees.value(self.root, high);
        let root = trees.set(below, from, to, value);
        debug_assert_eq!(root, below, "it has edges");
    }

    /// Starts an interval at an address that has become an edge.
    fn divide<M: Memory + ?Sized>(&mut self, trees: &mut Trees<'_, M>, edge: u128) {
        self.edges += 1;
        let (high, low) = (upper(edge), lower(edge));
        if low == 0 {
            let is_edge = |high| self.is_edge(u128::from(high) << 64);
            self.root = trees.divide(self.root, high, is_edge);
            return;
        }
        // The value is a tree, or the route of the whole /64.
        let before = trees.value(self.root, high);
        let is_edge = |low| self.is_edge(u128::from(high) << 64 | u128::from(low));
        let root = trees.divide(before, low, is_edge);
        if root != before {
            self.root = trees.set(self.root, high, high, root);
        }
    }

    /// Removes the interval that starts at an address that is no longer an edge.
    fn unite<M: Memory + ?Sized>(&mut self, trees: &mut Trees<'_, M>, edge: u128) {
        self.edges -= 1;
        let (high, low) = (upper(edge), lower(edge));
        if low == 0 {
            self.root = trees.unite(self.root, high);
            return;
        }
        let before = trees.value(self.root, high);
        let after = if self.is_divided(high) {
            trees.unite(before, low)
        } else {
            // The /64 contains no longer prefix any more, so one route applies to all of it.
            trees.value(before, low)
        };
        if after != before {
            self.root = trees.set(self.root, high, high, after);
        }
        if !after.is_tree() {
            trees.retire(before);
        }
    }
}

/// Returns the edges that a prefix needs: its start and the address after its end. A prefix longer
/// than a /64 first needs the same two edges of that /64. (Address 0 is always an edge.)
fn needs(prefix: Prefix) -> [Option<u128>; 4] {
    let boundaries = |prefix: Prefix| {
        let first = Some(prefix.address).filter(|first| *first != 0);
        [first, prefix.last().checked_add(1)]
    };
    if prefix.length <= 64 {
        let [first, behind] = boundaries(prefix);
        return [first, behind, None, None];
    }
    let [first, behind] = boundaries(Prefix::new(prefix.address, 64));
    let [low_first, low_behind] = boundaries(prefix).map(|it| it.filter(|edge| lower(*edge) != 0));
    [first, behind, low_first, low_behind]
}

fn upper(address: u128) -> u64 {
    (address >> 64) as u64
}

fn lower(address: u128) -> u64 {
    address as u64
}
