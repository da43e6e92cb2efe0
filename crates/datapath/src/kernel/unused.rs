//! Records that nothing refers to any more, but that a packet may still be reading.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::abi::{
    AdjacencyId, CounterId, GroupId, HeaderSetId, KeySlot, PolicyId, RouteId, ViewId,
};
use crate::delta::{Changes, Delta};
use crate::image::record_tables;

/// Records out of use, by the grace period that they wait for.
#[derive(Debug, Default)]
pub(super) struct Unused {
    /// Retired since the last grace period began.
    retired: Retired,
    /// Retired before the current grace period began.
    waiting: Retired,
    /// Counter slots of retired routes, until the route record is cleared.
    slots: BTreeMap<RouteId, CounterId>,
    /// Number of route records in use per counter slot.
    counted: HashMap<CounterId, usize>,
}

macro_rules! define_retired {
    ($($field:ident: $index:ty => $record:ty, $table:ident, $limit:expr;)*) => {
        /// Indices by table.
        #[derive(Debug, Default)]
        pub(super) struct Retired {
            $(pub $field: BTreeSet<$index>,)*
            /// Views of the prefix table: a packet may just have read a reference to one.
            pub views: BTreeSet<ViewId>,
        }

        impl Retired {
            /// Number of records, without views.
            pub fn len(&self) -> usize {
                0 $(+ self.$field.len())*
            }

            fn append(&mut self, other: &mut Self) {
                $(self.$field.append(&mut other.$field);)*
                self.views.append(&mut other.views);
            }

            /// Removes the records that these changes put back into use.
            fn keep(&mut self, delta: &Delta) {
                $(keep(&mut self.$field, &delta.$field);)*
            }

            /// Adds the records that these changes take out of use.
            fn retire(&mut self, delta: &Delta) {
                $(self.$field.extend(delta.$field.removed().map(|(index, _)| *index));)*
            }
        }
    };
}
record_tables!(define_retired);

fn keep<I: Ord + Clone, V: Clone + PartialEq>(unused: &mut BTreeSet<I>, changes: &Changes<I, V>) {
    for (index, _) in changes.added() {
        unused.remove(index);
    }
}

impl Unused {
    pub fn is_empty(&self) -> bool {
        let is_empty = |retired: &Retired| retired.len() == 0 && retired.views.is_empty();
        is_empty(&self.retired) && is_empty(&self.waiting)
    }

    /// Adds the records that these changes retire, and removes those that are in use again.
    pub fn update(&mut self, delta: &Delta) {
        self.retired.keep(delta);
        self.waiting.keep(delta);
        self.retired.retire(delta);
        for (index, route) in delta.routes.added() {
            self.slots.remove(index);
            *self.counted.entry(route.counter).or_insert(0) += 1;
        }
        for (index, route) in delta.routes.removed() {
            self.slots.insert(*index, route.counter);
            if let Some(count) = self.counted.get_mut(&route.counter) {
                *count -= 1;
                if *count == 0 {
                    self.counted.remove(&route.counter);
                }
            }
        }
    }

    /// Retires a view that nothing refers to any more.
    pub fn retire_view(&mut self, view: ViewId) {
        self.retired.views.insert(view);
    }

    /// Keeps a view that has prefixes again.
    pub fn keep_view(&mut self, view: ViewId) {
        self.retired.views.remove(&view);
        self.waiting.views.remove(&view);
    }

    /// Whether the view still has the prefixes from before it was retired.
    pub fn has_view(&self, view: ViewId) -> bool {
        self.retired.views.contains(&view) || self.waiting.views.contains(&view)
    }

    /// Returns the counter slot of a retired route, unless a route in use has the same slot.
    pub fn free_counter(&self, route: RouteId) -> Option<CounterId> {
        let slot = self.slots.get(&route).copied();
        slot.filter(|slot| !self.counted.contains_key(slot))
    }

    /// Forgets the counter slot of a route record that was cleared.
    pub fn forget(&mut self, route: RouteId) {
        self.slots.remove(&route);
    }

    /// Begins a grace period.
    pub fn begin_grace(&mut self) {
        self.waiting.append(&mut self.retired);
    }

    /// Ends the grace period and returns the records that no packet reads any more.
    pub fn end_grace(&mut self) -> Retired {
        std::mem::take(&mut self.waiting)
    }

    /// Keeps records that could not be cleared until the next grace period.
    pub fn put_back(&mut self, mut retired: Retired) {
        self.waiting.append(&mut retired);
    }
}
