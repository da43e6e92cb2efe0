//! What changes between two images: what the compiler says of a change, and what is written of it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::abi::{
    sidestep_adjacency, sidestep_group, sidestep_hmac_key, sidestep_learned, sidestep_policy,
    sidestep_port, sidestep_route,
};

use crate::image::{FibKey, Image};

/// What changes in one table: what an entry was and what it will be; none: it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<K, V>(BTreeMap<K, (Option<V>, Option<V>)>);

impl<K, V> Default for Changes<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> Changes<K, V> {
    /// One pass over both.
    pub fn between(from: &BTreeMap<K, V>, to: &BTreeMap<K, V>) -> Self {
        let mut changes = Vec::new();
        let (mut old, mut new) = (from.iter().peekable(), to.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Self(changes.into_iter().collect()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let before = old.next_if(|_| order.is_le());
            let after = new.next_if(|_| order.is_ge());
            let key = before.or(after).map(|(key, _)| key.clone());
            let (before, after) = (before.map(|(_, v)| v), after.map(|(_, v)| v));
            if let Some(key) = key.filter(|_| before != after) {
                changes.push((key, (before.cloned(), after.cloned())));
            }
        }
    }

    /// Changes an entry of a table, and notes it. What is changed back is no change.
    pub fn set(&mut self, table: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
        let before = match value.clone() {
            Some(value) => table.insert(key.clone(), value),
            None => table.remove(&key),
        };
        match self.0.entry(key) {
            Entry::Occupied(mut noted) => {
                if noted.get().0 == value {
                    noted.remove();
                } else {
                    noted.get_mut().1 = value;
                }
            }
            Entry::Vacant(vacant) => {
                if before != value {
                    vacant.insert((before, value));
                }
            }
        }
    }

    /// Changes a table back to what it was before these changes.
    pub fn revert(&self, table: &mut BTreeMap<K, V>) {
        for (key, (before, _)) in &self.0 {
            match before {
                Some(before) => table.insert(key.clone(), before.clone()),
                None => table.remove(key),
            };
        }
    }

    /// What comes.
    pub fn added(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().filter_map(|(key, change)| match change {
            (None, Some(after)) => Some((key, after)),
            _ => None,
        })
    }

    /// What gets another value: the old and the new one.
    pub fn changed(&self) -> impl Iterator<Item = (&K, &V, &V)> {
        self.0.iter().filter_map(|(key, change)| match change {
            (Some(before), Some(after)) => Some((key, before, after)),
            _ => None,
        })
    }

    /// What goes.
    pub fn removed(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().filter_map(|(key, change)| match change {
            (Some(before), None) => Some((key, before)),
            _ => None,
        })
    }

    /// What comes or gets another value, with the new one.
    pub fn upserts(&self) -> impl Iterator<Item = (&K, &V)> {
        let new = self.0.iter().map(|(key, change)| (key, change.1.as_ref()));
        new.filter_map(|(key, after)| Some((key, after?)))
    }

    /// Each change: what was and what will be.
    pub fn iter(&self) -> impl Iterator<Item = (&K, Option<&V>, Option<&V>)> {
        self.0
            .iter()
            .map(|(key, (before, after))| (key, before.as_ref(), after.as_ref()))
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What changes between two images, table by table (see [`Image`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// By interface index.
    pub ports: Changes<u32, sidestep_port>,
    /// By index.
    pub routes: Changes<u32, sidestep_route>,
    /// By index.
    pub groups: Changes<u32, sidestep_group>,
    /// By index.
    pub adjacencies: Changes<u32, sidestep_adjacency>,
    /// By index.
    pub policies: Changes<u32, sidestep_policy>,
    /// By index.
    pub hmac_keys: Changes<u32, sidestep_hmac_key>,
    /// By index.
    pub learned: Changes<u32, sidestep_learned>,
    /// By view and prefix.
    pub fib: Changes<FibKey, u32>,
}

impl Delta {
    /// What leads from one image to another.
    pub fn between(from: &Image, to: &Image) -> Self {
        Self {
            ports: Changes::between(&from.ports, &to.ports),
            routes: Changes::between(&from.routes, &to.routes),
            groups: Changes::between(&from.groups, &to.groups),
            adjacencies: Changes::between(&from.adjacencies, &to.adjacencies),
            policies: Changes::between(&from.policies, &to.policies),
            hmac_keys: Changes::between(&from.hmac_keys, &to.hmac_keys),
            learned: Changes::between(&from.learned, &to.learned),
            fib: Changes::between(&from.fib, &to.fib),
        }
    }

    /// Changes an image back to what it was before.
    pub fn revert(&self, image: &mut Image) {
        self.ports.revert(&mut image.ports);
        self.routes.revert(&mut image.routes);
        self.groups.revert(&mut image.groups);
        self.adjacencies.revert(&mut image.adjacencies);
        self.policies.revert(&mut image.policies);
        self.hmac_keys.revert(&mut image.hmac_keys);
        self.learned.revert(&mut image.learned);
        self.fib.revert(&mut image.fib);
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
            && self.routes.is_empty()
            && self.groups.is_empty()
            && self.adjacencies.is_empty()
            && self.policies.is_empty()
            && self.hmac_keys.is_empty()
            && self.learned.is_empty()
            && self.fib.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_says_what_is_new_other_and_gone() {
        let from = BTreeMap::from([(1, 'a'), (2, 'b'), (3, 'c')]);
        let to = BTreeMap::from([(0, 'z'), (2, 'B'), (3, 'c'), (9, 'n')]);
        let changes = Changes::between(&from, &to);
        assert!(changes.added().eq([(&0, &'z'), (&9, &'n')]));
        assert!(changes.changed().eq([(&2, &'b', &'B')]));
        assert!(changes.removed().eq([(&1, &'a')]));
        assert_eq!(changes.upserts().count(), 3);
        assert!(Changes::between(&to, &to).is_empty());
        let mut table = to;
        changes.revert(&mut table);
        assert_eq!(table, from);
    }

    #[test]
    fn changes_made_one_by_one_are_the_difference_of_their_result() {
        let from = BTreeMap::from([(1, 'a'), (2, 'b'), (3, 'c')]);
        let (mut table, mut changes) = (from.clone(), Changes::default());
        for (key, value) in [
            (1, None),
            (2, Some('x')),
            (4, Some('d')),
            (2, Some('y')),
            (1, Some('a')),
            (5, Some('e')),
            (5, None),
            (3, None),
        ] {
            changes.set(&mut table, key, value);
        }
        assert_eq!(table, BTreeMap::from([(1, 'a'), (2, 'y'), (4, 'd')]));
        assert_eq!(changes, Changes::between(&from, &table));
    }
}
