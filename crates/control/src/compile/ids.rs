//! Stable indices: the same thing keeps its index as long as it is in use, and an index is given to another thing only
//! after every packet that could still read the old record has gone.
//!
//! Who refers to a thing holds it. What nobody holds at the end of a pass is out of use; until its index is released it is
//! remembered, so that what comes back (a route that flaps) finds the index that it had.

use sidestep_datapath::TableIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

/// Indices from 1 for things of type `K`.
#[derive(Debug)]
pub(crate) struct Ids<K, I> {
    table: &'static str,
    limit: u32,
    used: BTreeMap<K, I>,
    /// By index; that of 0 is nobody's.
    slots: Vec<Slot<K>>,
    free: Vec<I>,
    /// What got an index since the last accepted pass.
    fresh: Vec<I>,
    /// What came up in this pass and may be held by nobody.
    loose: Vec<I>,
    /// What turned out to be held by nobody.
    dropped: Vec<I>,
    /// Out of use since the last grace period began.
    idle: BTreeSet<I>,
    /// Out of use before the grace period that is under way began.
    waiting: BTreeSet<I>,
}

#[derive(Clone, Debug)]
struct Slot<K> {
    key: Option<K>,
    holders: u32,
}

impl<K> Slot<K> {
    const EMPTY: Self = Self {
        key: None,
        holders: 0,
    };
}

/// Position of an index in [`Ids::slots`].
fn place<I: TableIndex>(index: I) -> usize {
    index.into() as usize
}

/// More things than the table has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) table: &'static str,
    pub(crate) limit: u32,
}

/// How a pass went, whatever the indices are for.
pub(crate) trait Passes {
    /// Begins to compile everything: nobody holds anything. Passes before it that were not accepted never were.
    fn begin(&mut self);
    /// The last pass is what is applied: what nobody holds is out of use. `whole`: it began with [`Passes::begin`].
    fn accept(&mut self, whole: bool);
    /// Whether indices are out of use.
    fn holds_back(&self) -> bool;
    /// What has been accepted is applied, and a grace period begins.
    fn begin_release(&mut self);
    /// That grace period has passed: indices that were out of use when it began, and still are, can be used again.
    fn end_release(&mut self);
}

impl<K: Ord + Clone, I: TableIndex> Ids<K, I> {
    /// `limit`: entries of the table, index 0 included.
    pub(crate) fn new(table: &'static str, limit: u32) -> Self {
        Self {
            table,
            limit,
            used: BTreeMap::new(),
            slots: vec![Slot::EMPTY],
            free: Vec::new(),
            fresh: Vec::new(),
            loose: Vec::new(),
            dropped: Vec::new(),
            idle: BTreeSet::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// Indices that an earlier process gave out: not to be used before they are released.
    pub(crate) fn avoid(&mut self, indices: impl Iterator<Item = I>) {
        self.idle = indices.filter(|index| (*index).into() != 0).collect();
        let end = self.idle.last().map_or(1, |&last| last.into() + 1);
        self.slots.resize(end as usize, Slot::EMPTY);
        self.free = (1..end)
            .rev()
            .map(I::from)
            .filter(|index| !self.idle.contains(index))
            .collect();
    }

    /// The index of `key`, a new one if it has none. It is kept if somebody holds it when the pass ends.
    pub(crate) fn get(&mut self, key: &K) -> Result<I, Full> {
        if let Some(&index) = self.used.get(key) {
            if self.slots[place(index)].holders == 0 {
                self.loose.push(index);
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
                return Err(Full {
                    table: self.table,
                    limit: self.limit,
                });
            }
        };
        self.used.insert(key.clone(), index);
        self.slots[place(index)].key = Some(key.clone());
        self.fresh.push(index);
        self.loose.push(index);
        Ok(index)
    }

    /// The indices of keys in a range.
    pub(crate) fn range(&self, keys: impl RangeBounds<K>) -> impl Iterator<Item = (&K, I)> {
        self.used.range(keys).map(|(key, index)| (key, *index))
    }

    /// What has that index.
    pub(crate) fn key(&self, index: I) -> Option<&K> {
        self.slots.get(place(index))?.key.as_ref()
    }

    /// One more refers to it. (Of 0, which is nothing, nobody takes note.)
    pub(crate) fn hold(&mut self, index: I) {
        if index.into() == 0 {
            return;
        }
        let holders = &mut self.slots[place(index)].holders;
        *holders += 1;
        if *holders == 1 {
            self.idle.remove(&index);
            self.waiting.remove(&index);
        }
    }

    /// One less refers to it.
    pub(crate) fn let_go(&mut self, index: I) {
        if index.into() == 0 {
            return;
        }
        let holders = &mut self.slots[place(index)].holders;
        *holders -= 1;
        if *holders == 0 {
            self.loose.push(index);
        }
    }

    /// Whether anybody refers to it.
    pub(crate) fn is_held(&self, index: I) -> bool {
        self.slots[place(index)].holders > 0
    }

    /// The next that came up in this pass and is held by nobody.
    pub(crate) fn next_dropped(&mut self) -> Option<I> {
        while let Some(index) = self.loose.pop() {
            if !self.is_held(index) {
                self.dropped.push(index);
                return Some(index);
            }
        }
        None
    }

    fn forget(&mut self, index: I) {
        if let Some(key) = self.slots[place(index)].key.take() {
            self.used.remove(&key);
        }
        self.free.push(index);
    }
}

impl<K: Ord + Clone, I: TableIndex> Passes for Ids<K, I> {
    fn begin(&mut self) {
        for index in std::mem::take(&mut self.fresh) {
            self.forget(index);
        }
        for slot in &mut self.slots {
            slot.holders = 0;
        }
        self.loose.clear();
        self.dropped.clear();
    }

    fn accept(&mut self, whole: bool) {
        // What came up and did not fit after all: no packet ever reads it, so nobody has to wait.
        for index in std::mem::take(&mut self.fresh) {
            if !self.is_held(index) {
                self.forget(index);
            }
        }
        let mut dropped = std::mem::take(&mut self.dropped);
        if whole {
            dropped = (1..self.slots.len() as u32).map(I::from).collect();
        }
        for index in dropped {
            let slot = &self.slots[place(index)];
            if slot.key.is_some() && slot.holders == 0 && !self.waiting.contains(&index) {
                self.idle.insert(index);
            }
        }
    }

    fn holds_back(&self) -> bool {
        !self.idle.is_empty() || !self.waiting.is_empty()
    }

    fn begin_release(&mut self) {
        self.waiting.append(&mut self.idle);
    }

    fn end_release(&mut self) {
        for index in std::mem::take(&mut self.waiting) {
            self.forget(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use sidestep_datapath::RouteId;

    use super::*;

    const FULL: Full = Full {
        table: "t",
        limit: 4,
    };

    /// A pass over everything that holds these.
    fn whole(ids: &mut Ids<char, RouteId>, keys: &str) -> Vec<Result<RouteId, Full>> {
        ids.begin();
        let indices: Vec<_> = keys.chars().map(|key| ids.get(&key)).collect();
        indices.iter().flatten().for_each(|&index| ids.hold(index));
        while ids.next_dropped().is_some() {}
        indices
    }

    fn release(ids: &mut Ids<char, RouteId>) {
        ids.begin_release();
        ids.end_release();
    }

    #[test]
    fn an_index_is_kept_while_in_use_and_reused_only_after_the_grace_period() {
        let mut ids = Ids::new("t", 4);
        assert_eq!(whole(&mut ids, "ab"), [Ok(RouteId(1)), Ok(RouteId(2))]);
        ids.accept(true);
        assert_eq!(whole(&mut ids, "b"), [Ok(RouteId(2))]);
        ids.accept(true);
        assert_eq!(
            whole(&mut ids, "bcd"),
            [Ok(RouteId(2)), Ok(RouteId(3)), Err(FULL)],
            "1 may still be read by a packet"
        );
        ids.accept(true);
        release(&mut ids);
        assert_eq!(
            whole(&mut ids, "bcd"),
            [Ok(RouteId(2)), Ok(RouteId(3)), Ok(RouteId(1))]
        );
    }

    #[test]
    fn a_pass_that_was_not_accepted_changes_nothing() {
        let mut ids = Ids::new("t", 4);
        assert_eq!(whole(&mut ids, "a"), [Ok(RouteId(1))]);
        ids.accept(true);
        assert_eq!(whole(&mut ids, "bc"), [Ok(RouteId(2)), Ok(RouteId(3))]);
        assert_eq!(
            whole(&mut ids, "adef"),
            [Ok(RouteId(1)), Ok(RouteId(3)), Ok(RouteId(2)), Err(FULL)],
            "it was in use all the while"
        );
        assert!(!ids.holds_back());
    }

    #[test]
    fn what_came_up_and_is_held_by_nobody_is_not_held_back() {
        let mut ids = Ids::new("t", 4);
        whole(&mut ids, "a");
        assert_eq!(ids.get(&'b'), Ok(RouteId(2)));
        ids.accept(true);
        assert!(!ids.holds_back());
        assert_eq!(
            (ids.get(&'c'), ids.get(&'b')),
            (Ok(RouteId(2)), Ok(RouteId(3)))
        );
    }

    #[test]
    fn what_comes_back_before_its_index_is_released_has_the_index_that_it_had() {
        let mut ids = Ids::new("t", 4);
        whole(&mut ids, "ab");
        ids.accept(true);
        ids.let_go(RouteId(1));
        assert_eq!(
            (ids.next_dropped(), ids.next_dropped()),
            (Some(RouteId(1)), None)
        );
        ids.accept(false);
        assert!(ids.holds_back());
        ids.begin_release();
        assert_eq!(ids.get(&'a'), Ok(RouteId(1)));
        ids.hold(RouteId(1));
        ids.accept(false);
        // Out of use again since the grace period began: that one says nothing of it.
        ids.let_go(RouteId(1));
        ids.next_dropped();
        ids.accept(false);
        ids.end_release();
        assert_eq!(ids.get(&'c'), Ok(RouteId(3)));
        ids.hold(RouteId(3));
        ids.accept(false);
        release(&mut ids);
        assert_eq!(ids.get(&'d'), Ok(RouteId(1)));
    }
}
