//! The two kinds of lines and their encoding.

use crate::layout::{
    EDGES, EDGES_AT, FANOUT, LINE_WORDS, NO_SEPARATOR, Reference, SEPARATORS, VALUES,
};

/// The words of a line.
pub(crate) type Content = [u64; LINE_WORDS];

/// Returns the first word of an inner line whose children start at a line.
pub(crate) const fn children_word(children: u32) -> u64 {
    NO_SEPARATOR | children as u64
}

/// A leaf: a few intervals. `values[n]` applies from `edges[n - 1]` on, and `values[0]` from the
/// start of the leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub edges: Vec<u64>,
    pub values: Vec<Reference>,
}

/// Returns the word of a leaf that contains value `slot`, and its shift in bits.
pub(crate) const fn place(slot: usize) -> (usize, u32) {
    (slot / 2, 32 * (slot % 2) as u32)
}

/// Returns the slot of the n-th value of a leaf with this many edges.
pub(crate) const fn slot(edges: usize, n: usize) -> usize {
    if n == edges { EDGES } else { n }
}

impl Leaf {
    pub fn one(value: Reference) -> Self {
        Self {
            edges: Vec::new(),
            values: vec![value],
        }
    }

    pub fn read(content: &Content) -> Self {
        let edges = &content[EDGES_AT..];
        let count = (0..EDGES)
            .take_while(|&i| edges[i] != 0 && (i == 0 || edges[i] != edges[i - 1]))
            .count();
        let value = |n| {
            let (word, shift) = place(slot(count, n));
            Reference((content[word] >> shift) as u32)
        };
        Self {
            edges: edges[..count].to_vec(),
            values: (0..=count).map(value).collect(),
        }
    }

    pub fn write(&self) -> Content {
        let count = self.edges.len();
        debug_assert!(count <= EDGES && self.values.len() == count + 1);
        let last = self.edges.last().copied().unwrap_or(0);
        let mut content = [0; LINE_WORDS];
        for (i, word) in content[EDGES_AT..].iter_mut().enumerate() {
            *word = self.edges.get(i).copied().unwrap_or(last);
        }
        for (n, value) in self.values.iter().enumerate() {
            let (word, shift) = place(slot(count, n));
            content[word] |= u64::from(value.0) << shift;
        }
        content
    }

    /// Adds an interval at `edge`, with the value that applies there.
    pub fn divide(&mut self, edge: u64) {
        let n = self.edges.partition_point(|&known| known < edge);
        self.edges.insert(n, edge);
        self.values.insert(n, self.values[n]);
    }

    /// Splits a leaf that has one edge too many. Returns the separator between the halves: an even
    /// number that is larger than all edges of the first half, and at most as large as those of the
    /// second.
    pub fn halves(mut self) -> (Self, u64, Self) {
        debug_assert_eq!(self.edges.len(), VALUES);
        let middle = self.edges.len() / 2;
        let even = [middle, middle - 1, middle + 1, middle - 2, middle + 2]
            .into_iter()
            .find(|&n| self.edges[n].is_multiple_of(2));
        if let Some(n) = even {
            let right = Self {
                edges: self.edges.split_off(n + 1),
                values: self.values.split_off(n + 1),
            };
            let separator = self.edges.pop().expect("the n-th edge");
            return (self, separator, right);
        }
        // All edges are odd, so the number before one is even and larger than the previous edge.
        let mut right = Self {
            edges: self.edges.split_off(middle),
            values: self.values.split_off(middle + 1),
        };
        right.values.insert(0, self.values[middle]);
        let separator = right.edges[0] - 1;
        (self, separator, right)
    }
}

/// An inner line: its children are adjacent lines, and child n starts at separator n - 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    pub children: u32,
    pub separators: Vec<u64>,
}

impl Inner {
    pub fn read(content: &Content) -> Self {
        let separators = content[1..]
            .iter()
            .take_while(|word| **word != NO_SEPARATOR)
            .map(|word| word << 1);
        Self {
            children: content[0] as u32,
            separators: separators.collect(),
        }
    }

    pub fn write(&self) -> Content {
        debug_assert!(self.separators.len() <= SEPARATORS);
        let mut content = [NO_SEPARATOR; LINE_WORDS];
        content[0] = children_word(self.children);
        for (word, separator) in content[1..].iter_mut().zip(&self.separators) {
            debug_assert!(separator.is_multiple_of(2));
            *word = separator >> 1;
        }
        content
    }

    /// Returns the number of children.
    pub fn count(&self) -> usize {
        debug_assert!(self.separators.len() < FANOUT);
        self.separators.len() + 1
    }
}

/// Returns the child of an inner line for a number, and where this child starts and ends, unless
/// the line itself starts or ends there. PERF: works on the encoded words, because each change
/// calls it several times.
pub(crate) fn child(content: &Content, number: u64) -> (usize, Option<u64>, Option<u64>) {
    let half = number >> 1;
    let child = content[1..].iter().filter(|word| **word <= half).count();
    let from = (child > 0).then(|| content[child] << 1);
    let next = content.get(child + 1).filter(|word| **word != NO_SEPARATOR);
    (child, from, next.map(|word| (word << 1) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(edges: &[u64]) -> Leaf {
        Leaf {
            edges: edges.to_vec(),
            values: (10..=10 + edges.len() as u32).map(Reference).collect(),
        }
    }

    #[test]
    fn leaves_of_every_size_are_read_as_they_were_written() {
        for count in 0..=EDGES as u64 {
            let leaf = leaf(&(1..=count).map(|n| n * 3).collect::<Vec<_>>());
            assert_eq!(Leaf::read(&leaf.write()), leaf);
        }
        let last = leaf(&[u64::MAX]);
        assert_eq!(Leaf::read(&last.write()), last);
    }

    #[test]
    fn inner_lines_are_read_as_they_were_written() {
        for count in 0..=SEPARATORS as u64 {
            let inner = Inner {
                children: 7,
                separators: (1..=count).map(|n| n * 4).collect(),
            };
            assert_eq!(Inner::read(&inner.write()), inner);
        }
    }

    #[test]
    fn a_full_leaf_is_halved_at_an_even_number() {
        for edges in [
            [2, 4, 6, 8, 10, 12],
            [1, 3, 5, 7, 9, 11],
            [1, 2, 3, 5, 7, 9],
            [1, 3, 5, 7, 9, 10],
            [1, 3, 4, 5, 7, u64::MAX],
        ] {
            let whole = leaf(&edges);
            let value = |at: u64, leaf: &Leaf| {
                leaf.values[leaf.edges.iter().filter(|edge| **edge <= at).count()]
            };
            let (left, separator, right) = whole.clone().halves();
            assert!(separator.is_multiple_of(2));
            assert!(left.edges.len() <= EDGES && right.edges.len() <= EDGES);
            assert!(left.edges.iter().all(|edge| *edge < separator));
            assert!(right.edges.iter().all(|edge| *edge >= separator));
            for at in (0..20).chain([u64::MAX]) {
                let part = if at < separator { &left } else { &right };
                assert_eq!(value(at, part), value(at, &whole), "{at} of {edges:?}");
            }
        }
    }
}
