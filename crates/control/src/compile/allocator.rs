//! Allocation of stable table indices. A key keeps its index as long as it is referenced. The index
//! is reused only after every packet that could still read the old record has finished.
//!
//! Each user of a key acquires its index. An index without references at the end of a pass is
//! retired. Until the index is reclaimed, the allocator remembers its key, so that a route that
//! flaps gets the same index again.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};
use sidestep_datapath::TableIndex;

/// Allocates indices from 1 for keys of type `K`.
#[derive(Debug)]
pub(crate) struct IndexAllocator<K, I> {
    table: &'static str,
    limit: u32,
    /// Indices by the hash of their keys, which `slots` has.
    used: HashTable<I>,
    hasher: DefaultHashBuilder,
    /// Slots by index. Slot 0 stays empty.
    slots: Vec<Slot<K>>,
    free: Vec<I>,
    /// Indices assigned since the last accepted pass.
    fresh: Vec<I>,
    /// Indices that this pass used and that may be unreferenced.
    candidates: Vec<I>,
    /// Indices that turned out to be unreferenced.
    unreferenced: Vec<I>,
    /// Indices retired since the last grace period began.
    retired: BTreeSet<I>,
    /// Indices retired before the current grace period began.
    waiting: BTreeSet<I>,
}

#[derive(Clone, Debug)]
struct Slot<K> {
    key: Option<K>,
    references: u32,
}

impl<K> Slot<K> {
    const EMPTY: Self = Self {
        key: None,
        references: 0,
    };
}

/// Position of an index in [`IndexAllocator::slots`].
fn position<I: TableIndex>(index: I) -> usize {
    index.into() as usize
}

/// A table has no free entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableFull {
    pub(crate) table: &'static str,
    pub(crate) limit: u32,
}

/// Life cycle of an allocator, independent of the key type.
pub(crate) trait Allocator {
    /// Begins a full compilation: clears all references. Earlier passes that were not accepted are
    /// forgotten.
    fn begin(&mut self);
    /// Accepts the last pass: retires unreferenced indices. `full`: the pass began with
    /// [`Allocator::begin`].
    fn accept(&mut self, full: bool);
    /// Whether indices wait to be reclaimed.
    fn has_pending(&self) -> bool;
    /// Begins a grace period, after the accepted pass has been published.
    fn begin_reclaim(&mut self);
    /// Ends the grace period: frees the indices that were retired when it began and still are.
    fn end_reclaim(&mut self);
}

impl<K: Hash + Eq + Clone, I: TableIndex> IndexAllocator<K, I> {
    /// Returns an allocator for a table with `limit` entries, including index 0.
    pub(crate) fn new(table: &'static str, limit: u32) -> Self {
        Self {
            table,
            limit,
            used: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            slots: vec![Slot::EMPTY],
            free: Vec::new(),
            fresh: Vec::new(),
            candidates: Vec::new(),
            unreferenced: Vec::new(),
            retired: BTreeSet::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// Retires indices that an earlier process assigned, so that they are not reused before a grace
    /// period.
    pub(crate) fn reserve(&mut self, indices: impl Iterator<Item = I>) {
        self.retired = indices.filter(|index| (*index).into() != 0).collect();
        let end = self.retired.last().map_or(1, |&last| last.into() + 1);
        self.slots.resize(end as usize, Slot::EMPTY);
        self.free = (1..end)
            .rev()
            .map(I::from)
            .filter(|index| !self.retired.contains(index))
            .collect();
    }

    /// Returns the index of `key`, or assigns one. The index is kept if it is referenced at the end
    /// of the pass.
    pub(crate) fn index_of(&mut self, key: &K) -> Result<I, TableFull> {
        let hash = self.hasher.hash_one(key);
        let has = |index: &I| self.slots[position(*index)].key.as_ref() == Some(key);
        if let Some(&index) = self.used.find(hash, has) {
            if self.slots[position(index)].references == 0 {
                self.candidates.push(index);
            }
            return Ok(index);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.limit as usize => {
                self.slots.push(Slot::EMPTY);
                I::from(self.slots.len() as u32 - 1)
            }
            None => {
                return Err(TableFull {
                    table: self.table,
                    limit: self.limit,
                });
            }
        };
        self.slots[position(index)].key = Some(key.clone());
        let (slots, hasher) = (&self.slots, &self.hasher);
        let rehash = |index: &I| {
            let key = slots[position(*index)].key.as_ref();
            key.map_or(0, |key| hasher.hash_one(key))
        };
        self.used.insert_unique(hash, index, rehash);
        self.fresh.push(index);
        self.candidates.push(index);
        Ok(index)
    }

    /// Returns all keys with their indices, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, I)> {
        let used = self.used.iter();
        used.filter_map(|&index| Some((self.key(index)?, index)))
    }

    /// Returns the key of an index.
    pub(crate) fn key(&self, index: I) -> Option<&K> {
        self.slots.get(position(index))?.key.as_ref()
    }

    /// Adds a reference. Index 0 is not counted.
    pub(crate) fn acquire(&mut self, index: I) {
        if index.into() == 0 {
            return;
        }
        let references = &mut self.slots[position(index)].references;
        *references += 1;
        if *references == 1 {
            self.retired.remove(&index);
            self.waiting.remove(&index);
        }
    }

    /// Removes a reference. Index 0 is not counted.
    pub(crate) fn release(&mut self, index: I) {
        if index.into() == 0 {
            return;
        }
        let references = &mut self.slots[position(index)].references;
        *references -= 1;
        if *references == 0 {
            self.candidates.push(index);
        }
    }

    /// Whether an index has references.
    pub(crate) fn is_referenced(&self, index: I) -> bool {
        self.slots[position(index)].references > 0
    }

    /// Returns the next unreferenced index that this pass used.
    pub(crate) fn next_unreferenced(&mut self) -> Option<I> {
        while let Some(index) = self.candidates.pop() {
            if !self.is_referenced(index) {
                self.unreferenced.push(index);
                return Some(index);
            }
        }
        None
    }

    fn free_index(&mut self, index: I) {
        if let Some(key) = self.slots[position(index)].key.take() {
            let hash = self.hasher.hash_one(&key);
            if let Ok(entry) = self.used.find_entry(hash, |it| *it == index) {
                entry.remove();
            }
        }
        self.free.push(index);
    }
}

impl<K: Hash + Eq + Clone, I: TableIndex> Allocator for IndexAllocator<K, I> {
    fn begin(&mut self) {
        for index in std::mem::take(&mut self.fresh) {
            self.free_index(index);
        }
        for slot in &mut self.slots {
            slot.references = 0;
        }
        self.candidates.clear();
        self.unreferenced.clear();
    }

    fn accept(&mut self, full: bool) {
        // A new index without references never reached a packet, so it needs no grace period.
        for index in std::mem::take(&mut self.fresh) {
            if !self.is_referenced(index) {
                self.free_index(index);
            }
        }
        let mut unreferenced = std::mem::take(&mut self.unreferenced);
        if full {
            unreferenced = (1..self.slots.len() as u32).map(I::from).collect();
        }
        for index in unreferenced {
            let slot = &self.slots[position(index)];
            if slot.key.is_some() && slot.references == 0 && !self.waiting.contains(&index) {
                self.retired.insert(index);
            }
        }
    }

    fn has_pending(&self) -> bool {
        !self.retired.is_empty() || !self.waiting.is_empty()
    }

    fn begin_reclaim(&mut self) {
        self.waiting.append(&mut self.retired);
    }

    fn end_reclaim(&mut self) {
        for index in std::mem::take(&mut self.waiting) {
            self.free_index(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use sidestep_datapath::RouteId;

    use super::*;

    const TABLE_FULL: TableFull = TableFull {
        table: "t",
        limit: 4,
    };

    /// A full pass that references these keys.
    fn full(
        allocator: &mut IndexAllocator<char, RouteId>,
        keys: &str,
    ) -> Vec<Result<RouteId, TableFull>> {
        allocator.begin();
        let indices: Vec<_> = keys.chars().map(|key| allocator.index_of(&key)).collect();
        indices
            .iter()
            .flatten()
            .for_each(|&index| allocator.acquire(index));
        while allocator.next_unreferenced().is_some() {}
        indices
    }

    fn release(allocator: &mut IndexAllocator<char, RouteId>) {
        allocator.begin_reclaim();
        allocator.end_reclaim();
    }

    #[test]
    fn an_index_is_reused_only_after_the_grace_period() {
        let mut allocator = IndexAllocator::new("t", 4);
        assert_eq!(full(&mut allocator, "ab"), [Ok(RouteId(1)), Ok(RouteId(2))]);
        allocator.accept(true);
        assert_eq!(full(&mut allocator, "b"), [Ok(RouteId(2))]);
        allocator.accept(true);
        assert_eq!(
            full(&mut allocator, "bcd"),
            [Ok(RouteId(2)), Ok(RouteId(3)), Err(TABLE_FULL)],
            "1 may still be read by a packet"
        );
        allocator.accept(true);
        release(&mut allocator);
        assert_eq!(
            full(&mut allocator, "bcd"),
            [Ok(RouteId(2)), Ok(RouteId(3)), Ok(RouteId(1))]
        );
    }

    #[test]
    fn a_pass_that_was_not_accepted_changes_nothing() {
        let mut allocator = IndexAllocator::new("t", 4);
        assert_eq!(full(&mut allocator, "a"), [Ok(RouteId(1))]);
        allocator.accept(true);
        assert_eq!(full(&mut allocator, "bc"), [Ok(RouteId(2)), Ok(RouteId(3))]);
        assert_eq!(
            full(&mut allocator, "adef"),
            [
                Ok(RouteId(1)),
                Ok(RouteId(3)),
                Ok(RouteId(2)),
                Err(TABLE_FULL)
            ],
            "it was in use all the while"
        );
        assert!(!allocator.has_pending());
    }

    #[test]
    fn a_new_unreferenced_index_is_free_at_once() {
        let mut allocator = IndexAllocator::new("t", 4);
        full(&mut allocator, "a");
        assert_eq!(allocator.index_of(&'b'), Ok(RouteId(2)));
        allocator.accept(true);
        assert!(!allocator.has_pending());
        assert_eq!(
            (allocator.index_of(&'c'), allocator.index_of(&'b')),
            (Ok(RouteId(2)), Ok(RouteId(3)))
        );
    }

    #[test]
    fn a_key_that_returns_before_reclaim_keeps_its_index() {
        let mut allocator = IndexAllocator::new("t", 4);
        full(&mut allocator, "ab");
        allocator.accept(true);
        allocator.release(RouteId(1));
        assert_eq!(
            (allocator.next_unreferenced(), allocator.next_unreferenced()),
            (Some(RouteId(1)), None)
        );
        allocator.accept(false);
        assert!(allocator.has_pending());
        allocator.begin_reclaim();
        assert_eq!(allocator.index_of(&'a'), Ok(RouteId(1)));
        allocator.acquire(RouteId(1));
        allocator.accept(false);
        // Retired again after the grace period began, so the end of that period does not free it.
        allocator.release(RouteId(1));
        allocator.next_unreferenced();
        allocator.accept(false);
        allocator.end_reclaim();
        assert_eq!(allocator.index_of(&'c'), Ok(RouteId(3)));
        allocator.acquire(RouteId(3));
        allocator.accept(false);
        release(&mut allocator);
        assert_eq!(allocator.index_of(&'d'), Ok(RouteId(1)));
    }
}
