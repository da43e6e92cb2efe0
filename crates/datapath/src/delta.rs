//! Changes between two images. The compiler reports them, and [`crate::Kernel`] publishes them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::abi::{
    AdjacencyId, GroupId, HeaderSetId, KeySlot, PolicyId, RouteId, sidestep_adjacency,
    sidestep_group, sidestep_hmac_key, sidestep_learned, sidestep_policy, sidestep_port,
    sidestep_route,
};
use crate::image::{FibKey, Image, StationKey, record_tables};

/// Changes in one table: the old and the new value of each entry. `None` means that the entry does
/// not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<K, V>(BTreeMap<K, (Option<V>, Option<V>)>);

impl<K, V> Default for Changes<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> Changes<K, V> {
    /// Compares two tables in one pass.
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

    /// Changes an entry of a table and records the change. An entry that returns to its old value
    /// leaves no change. Returns the value that the table had.
    pub fn set(&mut self, table: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
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
                    vacant.insert((before.clone(), value));
                }
            }
        }
        before
    }

    /// Restores a table to its content before these changes.
    pub fn revert(&self, table: &mut BTreeMap<K, V>) {
        for (key, (before, _)) in &self.0 {
            match before {
                Some(before) => table.insert(key.clone(), before.clone()),
                None => table.remove(key),
            };
        }
    }

    /// Returns the new entries.
    pub fn added(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().filter_map(|(key, change)| match change {
            (None, Some(after)) => Some((key, after)),
            _ => None,
        })
    }

    /// Returns the entries whose value changes, with the old and the new value.
    pub fn changed(&self) -> impl Iterator<Item = (&K, &V, &V)> {
        self.0.iter().filter_map(|(key, change)| match change {
            (Some(before), Some(after)) => Some((key, before, after)),
            _ => None,
        })
    }

    /// Returns the removed entries.
    pub fn removed(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().filter_map(|(key, change)| match change {
            (Some(before), None) => Some((key, before)),
            _ => None,
        })
    }

    /// Returns the new and the changed entries with their new value.
    pub fn upserts(&self) -> impl Iterator<Item = (&K, &V)> {
        let new = self.0.iter().map(|(key, change)| (key, change.1.as_ref()));
        new.filter_map(|(key, after)| Some((key, after?)))
    }

    /// Returns each change with the old and the new value.
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

macro_rules! define_delta {
    ($($field:ident: $index:ty => $record:ty, $table:ident, $limit:expr;)*) => {
        /// Changes between two images, table by table (see [`Image`]).
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Delta {
            /// Ports by interface index.
            pub ports: Changes<u32, sidestep_port>,
            /// Ports toward stations.
            pub stations: Changes<StationKey, u32>,
            $(
                /// Records by index.
                pub $field: Changes<$index, $record>,
            )*
            /// Routes of prefixes.
            pub fib: Changes<FibKey, RouteId>,
        }

        impl Delta {
            /// Compares two images.
            pub fn between(from: &Image, to: &Image) -> Self {
                Self {
                    ports: Changes::between(&from.ports, &to.ports),
                    stations: Changes::between(&from.stations, &to.stations),
                    $($field: Changes::between(&from.$field, &to.$field),)*
                    fib: Changes::between(&from.fib, &to.fib),
                }
            }

            /// Restores an image to its content before these changes.
            pub fn revert(&self, image: &mut Image) {
                self.ports.revert(&mut image.ports);
                self.stations.revert(&mut image.stations);
                $(self.$field.revert(&mut image.$field);)*
                self.fib.revert(&mut image.fib);
            }

            /// Whether nothing changes.
            pub fn is_empty(&self) -> bool {
                self.ports.is_empty() && self.stations.is_empty() $(&& self.$field.is_empty())* && self.fib.is_empty()
            }
        }
    };
}
record_tables!(define_delta);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_added_changed_and_removed_entries() {
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
    fn single_changes_add_up_to_the_difference() {
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
