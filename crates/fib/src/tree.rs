//! A tree from 64-bit numbers to values that changes while readers use it.
//!
//! One store publishes each change to readers. A new leaf is written to a new block, with copies of
//! its neighbors. Then the word `children` of their parent is set to the new block. If separators
//! change too, the same happens one level higher, up to the reference to the root. A reader uses
//! either the old lines or the new ones.
//!
//! A full line shares edges with its neighbors before a line is added, so that lines stay well
//! filled for any order of edges.

use crate::allocator::{Allocator, Lines};
use crate::layout::{EDGES, FANOUT, HEIGHT_MAX, Reference};
use crate::line::{Content, Inner, Leaf, child, children_word, place, slot};
use crate::lookup::value;
use crate::memory::{Memory, fill, line, load};
use crate::sync::Ordering;

/// Returns the maximum number of lines that one [`Trees::divide`] needs in a view with this many
/// leaves: two blocks per level, and a root. Each half of a divided block has at least four
/// children.
pub(crate) fn lines_per_change(leaves: usize) -> usize {
    let height = leaves.max(1).ilog2() as usize / 2 + 2;
    height.min(HEIGHT_MAX as usize + 1) * 2 * FANOUT + FANOUT
}

/// The trees of a memory, and its allocator.
pub(crate) struct Trees<'a, M: Memory + ?Sized> {
    pub memory: &'a M,
    pub lines: &'a mut Allocator,
    /// Added minus removed leaves.
    pub leaves: isize,
    /// Lines beyond [`lines_per_change`] that changes may use to fill lines better.
    pub spare: usize,
    /// Whether a tree is about to become higher than readers can follow.
    pub tall: bool,
}

/// A line, and the first number that it covers.
type Node = (u64, Content);

/// The path to the leaf of a number.
struct Way {
    /// Inner lines from the root on, with the position of the next child.
    above: Vec<(u32, usize)>,
    leaf: u32,
    /// First number of the leaf.
    from: u64,
    /// Last number of the leaf.
    to: u64,
}

impl<M: Memory + ?Sized> Trees<'_, M> {
    /// Returns the value of a number.
    pub fn value(&self, root: Reference, number: u64) -> Reference {
        match root.is_tree() {
            true => value(self.memory, root, number),
            false => root,
        }
    }

    /// Starts an interval at `edge`, with the value that applies there. Returns the root; the
    /// caller publishes it if it has changed. `is_edge` returns whether an interval starts at a
    /// number, including this one.
    ///
    /// # Panics
    /// If fewer than [`lines_per_change`] lines are free.
    pub fn divide(
        &mut self,
        root: Reference,
        edge: u64,
        is_edge: impl Fn(u64) -> bool,
    ) -> Reference {
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
            return self.replace(root, &way.above, (0, leaf.write()));
        }
        if let Some(&(above, child)) = way.above.last() {
            let leaves = self.spread_leaves(above, child, leaf, is_edge);
            return self.replace_children(root, &way.above, leaves);
        }
        let (left, separator, right) = leaf.halves();
        self.leaves += 1;
        self.replace_root(root, &[(0, left.write()), (separator, right.write())])
    }

    /// Removes an edge between two intervals with equal values. An edge that separates leaves
    /// remains, which is harmless. Returns the root as [`Trees::divide`] does.
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
        self.replace(root, &way.above, (0, leaf.write()))
    }

    /// Sets the value of all intervals that start from `from` to `to`, with one store each. Returns
    /// the root as [`Trees::divide`] does.
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

    /// Builds a tree of these intervals, which are sorted by their starts. The first one starts at
    /// 0.
    ///
    /// # Panics
    /// If fewer than [`lines_for`] lines are free.
    pub fn build(&mut self, intervals: &[(u64, Reference)]) -> Reference {
        if let [(_, value)] = intervals {
            return *value;
        }
        let mut nodes = leaves(intervals, intervals.len().div_ceil(EDGES + 1));
        self.leaves += nodes.len() as isize;
        let mut height = 0;
        while nodes.len() > 1 {
            let mut above = Vec::with_capacity(nodes.len().div_ceil(FANOUT));
            for children in even_chunks(&nodes, nodes.len().div_ceil(FANOUT)) {
                above.push((children[0].0, self.place_block(children)));
            }
            nodes = above;
            height += 1;
        }
        self.tall |= is_tall(height, &nodes[0].1);
        Reference::tree(self.place_single(&nodes[0].1), height)
    }

    /// Retires all lines of a tree, and of the trees that its values refer to.
    pub fn retire(&mut self, root: Reference) {
        if root.is_tree() {
            self.retire_below(root.line(), root.height());
            self.lines.retire(Lines::Single(root.line()));
        }
    }

    fn retire_below(&mut self, index: u32, height: u32) {
        if height == 0 {
            self.leaves -= 1;
            for value in Leaf::read(&load(self.memory, index)).values {
                self.retire(value);
            }
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
            let content = load(self.memory, way.leaf);
            let (child, from, to) = child(&content, number);
            way.from = from.unwrap_or(way.from);
            way.to = to.unwrap_or(way.to);
            way.above.push((way.leaf, child));
            way.leaf = content[0] as u32 + child as u32;
        }
        way
    }

    /// Returns the children of an inner line: the first number of each (0 for the first), and its
    /// content.
    fn children(&self, content: &Content) -> Vec<Node> {
        let inner = Inner::read(content);
        let begins = std::iter::once(0).chain(inner.separators);
        begins
            .zip(inner.children..)
            .map(|(begin, child)| (begin, load(self.memory, child)))
            .collect()
    }

    /// Redistributes the intervals of a leaf that has one too many, and of its neighbors.
    fn spread_leaves(
        &mut self,
        above: u32,
        child: usize,
        leaf: Leaf,
        is_edge: impl Fn(u64) -> bool,
    ) -> Vec<Node> {
        let before = self.children(&load(self.memory, above));
        let mut intervals: Vec<(u64, Reference)> = Vec::with_capacity((EDGES + 1) * FANOUT + 1);
        for (n, (begin, content)) in before.iter().enumerate() {
            let Leaf { edges, values } = match n == child {
                true => leaf.clone(),
                false => Leaf::read(content),
            };
            // A separator between leaves may no longer be an edge.
            let goes_on = intervals
                .last()
                .is_some_and(|(_, value)| *value == values[0]);
            let own = !goes_on || is_edge(*begin);
            let begins = std::iter::once(*begin).chain(edges);
            intervals.extend(begins.zip(values).skip(usize::from(!own)));
        }
        let fits = intervals.len() <= before.len() * LEAF_FILL;
        let parts = before.len() + usize::from(!fits);
        let after = leaves(&intervals, parts);
        self.leaves += after.len() as isize - before.len() as isize;
        after
    }

    /// Redistributes the children of a line that has one too many, and of its neighbors. Returns
    /// the new lines above them.
    fn spread(&mut self, parent: u32, child: usize, children: Vec<Node>) -> Vec<Node> {
        let siblings = self.children(&load(self.memory, parent));
        let mut all = Vec::with_capacity(FANOUT * FANOUT + 1);
        for (n, (begin, content)) in siblings.iter().enumerate() {
            let first = all.len();
            if n == child {
                all.extend(&children);
            } else {
                all.extend(self.children(content));
                self.lines.retire(Lines::Block(content[0] as u32));
            }
            all[first].0 = *begin;
        }
        let fits = all.len() <= siblings.len() * BLOCK_FILL;
        let parts = siblings.len() + usize::from(!fits);
        even_chunks(&all, parts)
            .map(|children| (children[0].0, self.place_block(children)))
            .collect()
    }

    /// Replaces a line that is below `above`, if its separators or edges have changed.
    fn replace(&mut self, root: Reference, above: &[(u32, usize)], node: Node) -> Reference {
        let Some(&(parent, child)) = above.last() else {
            return self.replace_root(root, &[node]);
        };
        let mut siblings = self.children(&load(self.memory, parent));
        siblings[child].1 = node.1;
        let old = load(self.memory, parent)[0] as u32;
        let block = self.place_children(&siblings);
        // The separators do not change: this one store publishes everything below.
        line(self.memory, parent)[0].store(children_word(block), Ordering::Release);
        self.lines.retire(Lines::Block(old));
        root
    }

    /// Replaces the children of the last line of `above`, by up to one child too many.
    fn replace_children(
        &mut self,
        root: Reference,
        mut above: &[(u32, usize)],
        mut children: Vec<Node>,
    ) -> Reference {
        while let Some((&(last, _), rest)) = above.split_last() {
            let old = load(self.memory, last)[0] as u32;
            self.lines.retire(Lines::Block(old));
            above = rest;
            if children.len() <= FANOUT {
                let node = (0, self.place_block(&children));
                return self.replace(root, above, node);
            }
            if let (Some(&(parent, child)), true) = (above.last(), self.may_spread()) {
                children = self.spread(parent, child, children);
                continue;
            }
            let halves: Vec<Node> = even_chunks(&children, 2)
                .map(|half| (half[0].0, self.place_block(half)))
                .collect();
            let Some(&(parent, child)) = above.last() else {
                return self.replace_root(root, &halves);
            };
            children = self.children(&load(self.memory, parent));
            let begin = children[child].0;
            children.splice(child..=child, halves);
            children[child].0 = begin;
        }
        self.replace_root(root, &children)
    }

    /// Returns whether there are enough lines to rewrite all children of neighboring lines.
    fn may_spread(&mut self) -> bool {
        let spare = self.spare.checked_sub((FANOUT + 1) * FANOUT);
        self.spare = spare.unwrap_or(self.spare);
        spare.is_some()
    }

    /// Replaces a root by one line, or by two lines and a new root above them.
    fn replace_root(&mut self, root: Reference, nodes: &[Node]) -> Reference {
        self.lines.retire(Lines::Single(root.line()));
        let (content, height) = match nodes {
            [(_, content)] => (*content, root.height()),
            _ => (self.place_block(nodes), root.height() + 1),
        };
        assert!(height <= HEIGHT_MAX, "a tall tree was rebuilt");
        self.tall |= is_tall(height, &content);
        Reference::tree(self.place_single(&content), height)
    }

    /// Writes children into a block, and returns the line above them.
    fn place_block(&mut self, children: &[Node]) -> Content {
        let inner = Inner {
            children: self.place_children(children),
            separators: children[1..].iter().map(|(from, _)| *from).collect(),
        };
        inner.write()
    }

    fn place_children(&mut self, children: &[Node]) -> u32 {
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

/// Returns the maximum number of lines that [`Trees::build`] needs for this many intervals.
pub(crate) fn lines_for(intervals: usize) -> usize {
    // A leaf and the separator after it use at least five edges.
    let mut lines = 0;
    let mut level = intervals / EDGES + 1;
    while level > 1 {
        let blocks = level.div_ceil(FANOUT);
        lines += blocks * FANOUT;
        level = blocks;
    }
    lines + FANOUT
}

/// Returns whether a root may soon need another level that readers cannot follow. One change
/// divides at most six lines.
fn is_tall(height: u32, root: &Content) -> bool {
    height == HEIGHT_MAX && Inner::read(root).count() > FANOUT - 6
}

/// Returns evenly filled leaves: this many, or more if edges are odd. Each has the even number at
/// which it starts.
fn leaves(intervals: &[(u64, Reference)], parts: usize) -> Vec<Node> {
    let Some((&(mut begin, first), edges)) = intervals.split_first() else {
        return vec![(0, Leaf::one(Reference::NONE).write())];
    };
    let mut leaves = Vec::with_capacity(parts + 1);
    let (mut value, mut at) = (first, 0);
    loop {
        let rest = &edges[at..];
        let parts = parts.saturating_sub(leaves.len()).max(1);
        let full = (rest.len().saturating_sub(parts - 1).div_ceil(parts)).min(EDGES);
        let (taken, next) = match rest.get(full) {
            None => (full, None),
            Some((edge, _)) if edge.is_multiple_of(2) => (full, Some(*edge)),
            Some((edge, _)) if full > 0 && rest[full - 1].0 == edge - 1 => {
                (full - 1, Some(edge - 1))
            }
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
            // The leaf starts one number before an odd edge, with the value of the previous
            // interval.
            value = leaf.values[taken];
        }
    }
}

/// Splits into this many parts, as even as possible.
fn even_chunks<T>(items: &[T], parts: usize) -> impl Iterator<Item = &[T]> {
    (0..parts).map(move |n| &items[n * items.len() / parts..(n + 1) * items.len() / parts])
}

/// Average number of intervals per leaf of a block up to which leaves are filled before one is
/// added.
const LEAF_FILL: usize = 5;
/// Average number of children per line, including its neighbors, up to which lines are filled
/// before one is added.
const BLOCK_FILL: usize = 7;
