//! A tree from 64-bit numbers to values, changed while it is read.
//!
//! Nothing that a reader can reach is changed, save by one store: a new leaf is written beside the old one, with copies
//! of its neighbors, and then the word `children` above them is set to the new block; if separators change too, the same
//! goes on one level higher, at last with the reference to the root. A reader is on the old lines or on the new ones.

use crate::allocator::{Allocator, Lines};
use crate::layout::{EDGES, FANOUT, HEIGHT_MAX, Reference};
use crate::line::{Content, Inner, Leaf, children_word, place, slot};
use crate::memory::{Memory, fill, line, load};
use crate::sync::Ordering;

/// Lines that one [`Trees::divide`] takes at most in a view of so many leaves: at each level a block, and another for the
/// other half, and a root. (Of blocks that were divided each half has at least four children.)
pub(crate) fn lines_per_change(leaves: usize) -> usize {
    let height = leaves.max(1).ilog2() as usize / 2 + 2;
    height.min(HEIGHT_MAX as usize + 1) * 2 * FANOUT + FANOUT
}

/// The trees in a memory, and the lines that they may use.
pub(crate) struct Trees<'a, M: Memory + ?Sized> {
    pub memory: &'a M,
    pub lines: &'a mut Allocator,
    /// Leaves that came, less those that went.
    pub leaves: isize,
}

/// The way to the leaf of a number.
struct Way {
    /// Inner lines from the root on, and which child comes next.
    above: Vec<(u32, usize)>,
    leaf: u32,
    /// What the leaf covers: from here
    from: u64,
    /// up to here.
    to: u64,
}

impl<M: Memory + ?Sized> Trees<'_, M> {
    /// The value of a number.
    pub fn value(&self, root: Reference, number: u64) -> Reference {
        if !root.is_tree() {
            return root;
        }
        let leaf = Leaf::read(&load(self.memory, self.way(root, number).leaf));
        leaf.values[leaf.edges.partition_point(|&edge| edge <= number)]
    }

    /// Begins an interval at `edge`, with the value that it has. Returns the root, which the caller publishes if it is
    /// another one.
    ///
    /// # Panics
    /// Without [`lines_per_change`] free lines.
    pub fn divide(&mut self, root: Reference, edge: u64) -> Reference {
        debug_assert_ne!(edge, 0);
        if !root.is_tree() {
            let mut leaf = Leaf::one(root);
            leaf.divide(edge);
            self.leaves += 1;
            return Reference::tree(self.place_single(&leaf.write()), 0);
        }
        let way = self.way(root, edge);
        let mut leaf = Leaf::read(&load(self.memory, way.leaf));
        if way.from == edge || leaf.edges.contains(&edge) {
            return root;
        }
        leaf.divide(edge);
        if leaf.edges.len() <= EDGES {
            return self.replace(root, &way, vec![(0, leaf.write())]);
        }
        let (left, separator, right) = leaf.halves();
        self.leaves += 1;
        self.replace(
            root,
            &way,
            vec![(0, left.write()), (separator, right.write())],
        )
    }

    /// Takes an edge out whose two intervals have the same value. (One that separates leaves stays: it is harmless.)
    /// Returns the root as [`Trees::divide`] does.
    pub fn unite(&mut self, root: Reference, edge: u64) -> Reference {
        if !root.is_tree() {
            return root;
        }
        let way = self.way(root, edge);
        let mut leaf = Leaf::read(&load(self.memory, way.leaf));
        let Some(n) = leaf.edges.iter().position(|known| *known == edge) else {
            return root;
        };
        debug_assert_eq!(leaf.values[n], leaf.values[n + 1], "edge {edge:x}");
        leaf.edges.remove(n);
        leaf.values.remove(n);
        self.replace(root, &way, vec![(0, leaf.write())])
    }

    /// Gives a value to all intervals that begin from `from` to `to`: each by one store. Returns the root as
    /// [`Trees::divide`] does.
    pub fn set(&mut self, root: Reference, from: u64, to: u64, value: Reference) -> Reference {
        if !root.is_tree() {
            debug_assert_eq!((from, to), (0, u64::MAX));
            return value;
        }
        let mut next = from;
        loop {
            let way = self.way(root, next);
            let words = line(self.memory, way.leaf);
            let leaf = Leaf::read(&load(self.memory, way.leaf));
            let begins = std::iter::once(way.from).chain(leaf.edges.iter().copied());
            for (n, begin) in begins.enumerate() {
                if begin >= from && begin <= to && leaf.values[n] != value {
                    let (word, shift) = place(slot(leaf.edges.len(), n));
                    // The other half of the word is another value, which only this writer changes.
                    let old = words[word].load(Ordering::Relaxed);
                    let new = old & !(u64::from(u32::MAX) << shift) | u64::from(value.0) << shift;
                    words[word].store(new, Ordering::Release);
                }
            }
            if way.to >= to {
                return root;
            }
            next = way.to + 1;
        }
    }

    /// A tree of these intervals: their beginnings, the first of them 0, in order.
    ///
    /// # Panics
    /// Without [`lines_for`] that many free lines.
    pub fn build(&mut self, intervals: &[(u64, Reference)]) -> Reference {
        if let [(_, value)] = intervals {
            return *value;
        }
        let mut nodes = leaves(intervals);
        self.leaves += nodes.len() as isize;
        let mut height = 0;
        while nodes.len() > 1 {
            let mut above = Vec::with_capacity(nodes.len().div_ceil(FANOUT));
            for children in even_chunks(&nodes, FANOUT) {
                above.push((children[0].0, self.place_block(children)));
            }
            nodes = above;
            height += 1;
        }
        Reference::tree(self.place_single(&nodes[0].1), height)
    }

    /// All lines of a tree, from now on unused.
    pub fn retire(&mut self, root: Reference) {
        if root.is_tree() {
            self.retire_below(root.line(), root.height());
            self.lines.retire(Lines::Single(root.line()));
        }
    }

    fn retire_below(&mut self, index: u32, height: u32) {
        if height == 0 {
            self.leaves -= 1;
            return;
        }
        let inner = Inner::read(&load(self.memory, index));
        for child in 0..inner.count() as u32 {
            self.retire_below(inner.children + child, height - 1);
        }
        self.lines.retire(Lines::Block(inner.children));
    }

    fn way(&self, root: Reference, number: u64) -> Way {
        let mut way = Way {
            above: Vec::with_capacity(root.height() as usize),
            leaf: root.line(),
            from: 0,
            to: u64::MAX,
        };
        for _ in 0..root.height() {
            let inner = Inner::read(&load(self.memory, way.leaf));
            let child = inner.child(number);
            if child > 0 {
                way.from = inner.separators[child - 1];
            }
            if let Some(next) = inner.separators.get(child) {
                way.to = next - 1;
            }
            way.above.push((way.leaf, child));
            way.leaf = inner.children + child as u32;
        }
        way
    }

    /// Puts nodes (the beginning of each, that of the first unchanged) in the place of a leaf.
    fn replace(&mut self, root: Reference, way: &Way, mut nodes: Vec<(u64, Content)>) -> Reference {
        for &(above, child) in way.above.iter().rev() {
            let inner = Inner::read(&load(self.memory, above));
            let only_one = nodes.len() == 1;
            let mut children: Vec<(u64, Content)> = (0..inner.count())
                .map(|n| {
                    let from = if n == 0 { 0 } else { inner.separators[n - 1] };
                    (from, load(self.memory, inner.children + n as u32))
                })
                .collect();
            nodes[0].0 = children[child].0;
            children.splice(child..=child, nodes);
            self.lines.retire(Lines::Block(inner.children));
            if only_one {
                // The separators are what they were: this one store publishes everything below.
                let block = self.place_children(&children);
                line(self.memory, above)[0].store(children_word(block), Ordering::Release);
                return root;
            }
            nodes = if children.len() <= FANOUT {
                vec![(0, self.place_block(&children))]
            } else {
                let (left, right) = children.split_at(children.len() / 2);
                let right = (right[0].0, self.place_block(right));
                vec![(0, self.place_block(left)), right]
            };
        }
        self.lines.retire(Lines::Single(root.line()));
        if let [(_, content)] = &nodes[..] {
            return Reference::tree(self.place_single(content), root.height());
        }
        let top = self.place_block(&nodes);
        assert!(
            root.height() < HEIGHT_MAX,
            "the memory is too small for that"
        );
        Reference::tree(self.place_single(&top), root.height() + 1)
    }

    /// Writes children into a block; the line above them.
    fn place_block(&mut self, children: &[(u64, Content)]) -> Content {
        let inner = Inner {
            children: self.place_children(children),
            separators: children[1..].iter().map(|(from, _)| *from).collect(),
        };
        inner.write()
    }

    fn place_children(&mut self, children: &[(u64, Content)]) -> u32 {
        let block = self.lines.block().expect("reserved by the caller");
        for (index, (_, content)) in (block..).zip(children) {
            fill(self.memory, index, content);
        }
        block
    }

    fn place_single(&mut self, content: &Content) -> u32 {
        let index = self.lines.single().expect("reserved by the caller");
        fill(self.memory, index, content);
        index
    }
}

/// Lines that [`Trees::build`] takes at most for so many intervals.
pub(crate) fn lines_for(intervals: usize) -> usize {
    // A leaf and the separator behind it take at least five edges.
    let mut lines = 0;
    let mut level = intervals / EDGES + 1;
    while level > 1 {
        let blocks = level.div_ceil(FANOUT);
        lines += blocks * FANOUT;
        level = blocks;
    }
    lines + FANOUT
}

/// Full leaves, with the number where each begins, which is even.
fn leaves(intervals: &[(u64, Reference)]) -> Vec<(u64, Content)> {
    let Some(((_, first), edges)) = intervals.split_first() else {
        return vec![(0, Leaf::one(Reference::NONE).write())];
    };
    let mut leaves = Vec::with_capacity(intervals.len() / EDGES + 1);
    let (mut begin, mut value, mut at) = (0, *first, 0);
    loop {
        let rest = &edges[at..];
        let full = rest.len().min(EDGES);
        let (taken, next) = match rest.get(full) {
            None => (full, None),
            Some((edge, _)) if edge.is_multiple_of(2) => (full, Some(*edge)),
            Some((edge, _)) if rest[full - 1].0 == edge - 1 => (full - 1, Some(edge - 1)),
            Some((edge, _)) => (full, Some(edge - 1)),
        };
        let mut leaf = Leaf::one(value);
        for (edge, value) in &rest[..taken] {
            leaf.edges.push(*edge);
            leaf.values.push(*value);
        }
        leaves.push((begin, leaf.write()));
        let Some(next) = next else { return leaves };
        at += taken;
        begin = next;
        if edges[at].0 == next {
            value = edges[at].1;
            at += 1;
        } else {
            // It begins one number before an odd edge: still with the value of the interval before.
            value = leaf.values[taken];
        }
    }
}

/// Parts of at most `most`, as even as they can be.
fn even_chunks<T>(items: &[T], most: usize) -> impl Iterator<Item = &[T]> {
    let parts = items.len().div_ceil(most);
    (0..parts).map(move |n| &items[n * items.len() / parts..(n + 1) * items.len() / parts])
}
