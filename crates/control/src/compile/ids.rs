//! Stable indices: the same thing keeps its index as long as it is in use, and an index is given to another thing only
//! after every packet that could still read the old record has gone.

use std::collections::{BTreeMap, BTreeSet};

/// Indices from 1 for things of type `K`.
#[derive(Debug)]
pub(crate) struct Ids<K> {
    table: &'static str,
    limit: u32,
    used: BTreeMap<K, (u32, u64)>,
    generation: u64,
    /// What got an index in this pass.
    fresh: Vec<K>,
    next: u32,
    free: Vec<u32>,
    quarantine: Vec<u32>,
}

/// More things than the table has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) table: &'static str,
    pub(crate) limit: u32,
}

impl<K: Ord + Clone> Ids<K> {
    /// `limit`: entries of the table, index 0 included.
    pub(crate) fn new(table: &'static str, limit: u32) -> Self {
        Self {
            table,
            limit,
            used: BTreeMap::new(),
            generation: 0,
            fresh: Vec::new(),
            next: 1,
            free: Vec::new(),
            quarantine: Vec::new(),
        }
    }

    /// Indices that an earlier process gave out: not to be used before the next [`Ids::release`].
    pub(crate) fn avoid(&mut self, indices: impl Iterator<Item = u32>) {
        let avoided: BTreeSet<u32> = indices.filter(|&index| index != 0).collect();
        let end = avoided.last().map_or(1, |last| last + 1);
        self.free = (1..end)
            .rev()
            .filter(|index| !avoided.contains(index))
            .collect();
        self.next = end;
        self.quarantine = avoided.into_iter().collect();
    }

    /// Whether [`Ids::release`] would free anything.
    pub(crate) fn holds_back(&self) -> bool {
        !self.quarantine.is_empty()
    }

    /// Begins a pass: what is not asked for until [`Ids::sweep`] is no longer in use. A pass before it that was not
    /// ended so never was.
    pub(crate) fn begin(&mut self) {
        for key in std::mem::take(&mut self.fresh) {
            self.free
                .extend(self.used.remove(&key).map(|(index, _)| index));
        }
        self.generation += 1;
    }

    /// The index of `key`, a new one if it has none.
    pub(crate) fn get(&mut self, key: &K) -> Result<u32, Full> {
        if let Some((index, generation)) = self.used.get_mut(key) {
            *generation = self.generation;
            return Ok(*index);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.next < self.limit => {
                self.next += 1;
                self.next - 1
            }
            None => {
                return Err(Full {
                    table: self.table,
                    limit: self.limit,
                });
            }
        };
        self.used.insert(key.clone(), (index, self.generation));
        self.fresh.push(key.clone());
        Ok(index)
    }

    /// Ends a pass: indices not asked for go into quarantine.
    pub(crate) fn sweep(&mut self) {
        self.fresh.clear();
        let generation = self.generation;
        let quarantine = &mut self.quarantine;
        self.used.retain(|_, (index, last)| {
            let keep = *last == generation;
            if !keep {
                quarantine.push(*index);
            }
            keep
        });
    }

    /// A grace period has passed since the last pass was applied: what was in quarantine can be used again.
    pub(crate) fn release(&mut self) {
        self.free.append(&mut self.quarantine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_kept_while_in_use_and_reused_only_after_the_grace_period() {
        let mut ids = Ids::new("t", 4);
        ids.begin();
        assert_eq!(ids.get(&'a'), Ok(1));
        assert_eq!(ids.get(&'b'), Ok(2));
        ids.sweep();
        ids.begin();
        assert_eq!(ids.get(&'b'), Ok(2));
        ids.sweep();
        ids.begin();
        assert_eq!(ids.get(&'c'), Ok(3), "1 may still be read by a packet");
        assert_eq!(
            ids.get(&'d'),
            Err(Full {
                table: "t",
                limit: 4
            })
        );
        ids.release();
        assert_eq!(ids.get(&'d'), Ok(1));
    }

    #[test]
    fn a_pass_that_was_not_ended_changes_nothing() {
        let mut ids = Ids::new("t", 4);
        ids.begin();
        assert_eq!(ids.get(&'a'), Ok(1));
        ids.sweep();
        ids.begin();
        assert_eq!((ids.get(&'b'), ids.get(&'c')), (Ok(2), Ok(3)));
        ids.begin();
        assert_eq!(ids.get(&'a'), Ok(1), "it was in use all the while");
        assert!(ids.get(&'d').is_ok() && ids.get(&'e').is_ok());
        assert!(ids.get(&'f').is_err());
        assert!(!ids.holds_back());
    }
}
