//! One view: its prefixes, and the trees that say the same.
//!
//! The edges of a view are where its prefixes begin and where they end. Between two edges the longest match is the same,
//! so that a lookup is a search for an interval. A change adds edges with the value that is there anyway, then stores
//! the new value in each interval that it is the longest match of, one by one: for each address a reader sees what held
//! before or what holds now.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use crate::Prefix;
use crate::layout::Reference;
use crate::memory::Memory;
use crate::sweep::Swept;
use crate::tree::Trees;

/// A view, as its writer knows it.
#[derive(Debug, Default)]
pub(crate) struct View {
    prefixes: BTreeMap<Prefix, u32>,
    /// Of how many prefixes each edge is a boundary; edges around a /64 with a tree of its own count for that too.
    edges: HashMap<u128, u32>,
    /// The trees over the lower 64 bits: root, and edges in it.
    below: HashMap<u64, Below>,
    root: Reference,
    leaves: usize,
    tall: bool,
}

#[derive(Clone, Copy, Debug)]
struct Below {
    root: Reference,
    edges: u32,
}

impl View {
    /// A view of these prefixes, whose trees are new.
    pub fn of<M: Memory + ?Sized>(
        prefixes: BTreeMap<Prefix, u32>,
        swept: Swept,
        trees: &mut Trees<'_, M>,
    ) -> Self {
        let mut above = swept.above;
        let mut below = HashMap::with_capacity(swept.below.len());
        let mut at = 0;
        for (high, intervals) in &swept.below {
            let root = trees.build(intervals);
            let edges = intervals.len() as u32 - 1;
            below.insert(*high, Below { root, edges });
            while above[at].0 != *high {
                at += 1;
            }
            above[at].1 = root;
        }
        let root = trees.build(&above);
        Self {
            prefixes,
            edges: swept.edges,
            below,
            root,
            leaves: std::mem::take(&mut trees.leaves) as usize,
            tall: std::mem::take(&mut trees.tall),
        }
    }

    /// Gives up all lines.
    pub fn retire<M: Memory + ?Sized>(self, trees: &mut Trees<'_, M>) {
        trees.retire(self.root);
        for below in self.below.values() {
            trees.retire(below.root);
        }
    }

    pub fn prefixes(&self) -> &BTreeMap<Prefix, u32> {
        &self.prefixes
    }

    pub fn root(&self) -> Reference {
        self.root
    }

    /// Whether most of the leaves' room is empty: so much was taken out that writing it anew is worth the time.
    pub fn is_sparse(&self) -> bool {
        self.leaves > 64 && self.edges.len() * 2 < self.leaves * 3
    }

    /// Takes note of what a change did.
    pub fn settle<M: Memory + ?Sized>(&mut self, trees: &mut Trees<'_, M>) {
        let leaves = self.leaves as isize + std::mem::take(&mut trees.leaves);
        self.leaves = leaves.max(0) as usize;
        self.tall |= std::mem::take(&mut trees.tall);
    }

    /// Whether a tree is about to get higher than readers go.
    pub fn is_tall(&self) -> bool {
        self.tall
    }

    /// Leaves of all trees.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Edges of all trees.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Sets the route of a prefix; what it was.
    pub fn insert<M: Memory + ?Sized>(
        &mut self,
        trees: &mut Trees<'_, M>,
        prefix: Prefix,
        route: u32,
    ) -> Option<u32> {
        let old = self.prefixes.insert(prefix, route);
        if old.is_none() {
            for edge in boundaries(prefix) {
                self.need_edge(trees, edge);
            }
        }
        if old != Some(route) {
            self.give(trees, prefix, Reference::route(route));
        }
        old
    }

    /// Takes a prefix out; its route.
    pub fn remove<M: Memory + ?Sized>(
        &mut self,
        trees: &mut Trees<'_, M>,
        prefix: Prefix,
    ) -> Option<u32> {
        let old = self.prefixes.remove(&prefix)?;
        let shorter = self.shorter(prefix).unwrap_or(0);
        if shorter != old {
            self.give(trees, prefix, Reference::route(shorter));
        }
        for edge in boundaries(prefix) {
            self.spare_edge(trees, edge);
        }
        Some(old)
    }

    /// The route of the longest prefix that a prefix lies in, itself excepted.
    fn shorter(&self, prefix: Prefix) -> Option<u32> {
        let mut before = prefix;
        loop {
            let (found, route) = self
                .prefixes
                .range((Bound::Unbounded, Bound::Excluded(before)))
                .next_back()?;
            if found.contains(prefix) {
                return Some(*route);
            }
            // Whatever contains the prefix contains what it has in common with the one found, too.
            let common = (found.address ^ prefix.address).leading_zeros() as u8;
            let enclosing = Prefix::new(prefix.address, common);
            if let Some(route) = self.prefixes.get(&enclosing) {
                return Some(*route);
            }
            before = enclosing;
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

    /// Stores a value from edge to edge, with nothing longer in between.
    fn give_interval<M: Memory + ?Sized>(
        &mut self,
        trees: &mut Trees<'_, M>,
        from: u128,
        to: u128,
        value: Reference,
    ) {
        let (mut high, high_to) = (upper(from), upper(to));
        let mut last = high_to;
        if self.below.contains_key(&high) {
            let end = if high == high_to { lower(to) } else { u64::MAX };
            self.set_below(trees, high, lower(from), end, value);
            if high == high_to {
                return;
            }
            high += 1;
        }
        if high <= high_to && self.below.contains_key(&high_to) {
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
        let root = trees.set(self.below[&high].root, from, to, value);
        debug_assert_eq!(root, self.below[&high].root, "it has edges");
    }

    fn need_edge<M: Memory + ?Sized>(&mut self, trees: &mut Trees<'_, M>, edge: u128) {
        let count = self.edges.entry(edge).or_insert(0);
        *count += 1;
        if *count > 1 {
            return;
        }
        let (high, low) = (upper(edge), lower(edge));
        if low == 0 {
            let is_edge = |high| self.edges.contains_key(&(u128::from(high) << 64));
            self.root = trees.divide(self.root, high, is_edge);
            return;
        }
        let before = self.below.get(&high).copied().unwrap_or_else(|| {
            // The /64 becomes an interval of its own, to hold the tree.
            for edge in around(high) {
                self.need_edge(trees, edge);
            }
            Below {
                root: trees.value(self.root, high),
                edges: 0,
            }
        });
        let is_edge = |low| {
            self.edges
                .contains_key(&(u128::from(high) << 64 | u128::from(low)))
        };
        let root = trees.divide(before.root, low, is_edge);
        let edges = before.edges + 1;
        self.below.insert(high, Below { root, edges });
        if root != before.root {
            self.root = trees.set(self.root, high, high, root);
        }
    }

    fn spare_edge<M: Memory + ?Sized>(&mut self, trees: &mut Trees<'_, M>, edge: u128) {
        let Some(count) = self.edges.get_mut(&edge) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.edges.remove(&edge);
        let (high, low) = (upper(edge), lower(edge));
        if low == 0 {
            self.root = trees.unite(self.root, high);
            return;
        }
        let before = self.below[&high];
        if before.edges > 1 {
            let root = trees.unite(before.root, low);
            let edges = before.edges - 1;
            self.below.insert(high, Below { root, edges });
            if root != before.root {
                self.root = trees.set(self.root, high, high, root);
            }
            return;
        }
        // Nothing in this /64 is longer any more: one value for all of it.
        self.below.remove(&high);
        let value = trees.value(before.root, low);
        self.root = trees.set(self.root, high, high, value);
        trees.retire(before.root);
        for edge in around(high) {
            self.spare_edge(trees, edge);
        }
    }
}

/// Where a prefix begins, and what comes behind its end: the edges that it needs. (There is one at 0 without asking.)
fn boundaries(prefix: Prefix) -> impl Iterator<Item = u128> {
    let first = (prefix.address != 0).then_some(prefix.address);
    first.into_iter().chain(prefix.last().checked_add(1))
}

/// The edges of a /64.
fn around(high: u64) -> impl Iterator<Item = u128> {
    boundaries(Prefix::new(u128::from(high) << 64, 64))
}

fn upper(address: u128) -> u64 {
    (address >> 64) as u64
}

fn lower(address: u128) -> u64 {
    address as u64
}
