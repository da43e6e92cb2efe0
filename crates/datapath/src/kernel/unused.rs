//! Records that nothing refers to any more, but that a packet may still be reading.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::delta::{Changes, Delta};

/// What was taken out of use.
#[derive(Debug, Default)]
pub(super) struct Unused {
    /// Since the last grace period began.
    retired: Records,
    /// Before the grace period that is under way began.
    waiting: Records,
    /// How many route records in use name each counter slot.
    counted: HashMap<u32, usize>,
}

/// Indices by table.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// With the counter slot that the route names.
    pub routes: BTreeMap<u32, u32>,
    pub groups: BTreeSet<u32>,
    pub policies: BTreeSet<u32>,
    pub hmac_keys: BTreeSet<u32>,
    pub learned: BTreeSet<u32>,
    pub adjacencies: BTreeSet<u32>,
    /// Views of the prefix table: what leads to one may just have been read.
    pub views: BTreeSet<u32>,
}

impl Records {
    /// How many, views excepted.
    pub fn len(&self) -> usize {
        let others = [
            &self.groups,
            &self.policies,
            &self.hmac_keys,
            &self.learned,
            &self.adjacencies,
        ];
        self.routes.len() + others.map(BTreeSet::len).iter().sum::<usize>()
    }

    fn append(&mut self, other: &mut Self) {
        self.routes.append(&mut other.routes);
        self.groups.append(&mut other.groups);
        self.policies.append(&mut other.policies);
        self.hmac_keys.append(&mut other.hmac_keys);
        self.learned.append(&mut other.learned);
        self.adjacencies.append(&mut other.adjacencies);
        self.views.append(&mut other.views);
    }

    /// What comes back into use is not unused.
    fn keep(&mut self, delta: &Delta) {
        for (index, _) in delta.routes.added() {
            self.routes.remove(index);
        }
        keep(&mut self.groups, &delta.groups);
        keep(&mut self.policies, &delta.policies);
        keep(&mut self.hmac_keys, &delta.hmac_keys);
        keep(&mut self.learned, &delta.learned);
        keep(&mut self.adjacencies, &delta.adjacencies);
    }
}

fn keep<V: Clone + PartialEq>(unused: &mut BTreeSet<u32>, changes: &Changes<u32, V>) {
    for (index, _) in changes.added() {
        unused.remove(index);
    }
}

impl Unused {
    pub fn is_empty(&self) -> bool {
        let is_empty = |records: &Records| records.len() == 0 && records.views.is_empty();
        is_empty(&self.retired) && is_empty(&self.waiting)
    }

    /// What these changes took out of use.
    pub fn note(&mut self, delta: &Delta) {
        self.retired.keep(delta);
        self.waiting.keep(delta);
        for (_, route) in delta.routes.added() {
            *self.counted.entry(route.counter).or_insert(0) += 1;
        }
        for (index, route) in delta.routes.removed() {
            self.retired.routes.insert(*index, route.counter);
            if let Some(count) = self.counted.get_mut(&route.counter) {
                *count -= 1;
                if *count == 0 {
                    self.counted.remove(&route.counter);
                }
            }
        }
        let retired = &mut self.retired;
        retired.groups.extend(delta.groups.removed().map(|it| it.0));
        retired
            .policies
            .extend(delta.policies.removed().map(|it| it.0));
        retired
            .hmac_keys
            .extend(delta.hmac_keys.removed().map(|it| it.0));
        retired
            .learned
            .extend(delta.learned.removed().map(|it| it.0));
        retired
            .adjacencies
            .extend(delta.adjacencies.removed().map(|it| it.0));
    }

    /// Nothing refers to the view any more.
    pub fn retire_view(&mut self, view: u32) {
        self.retired.views.insert(view);
    }

    /// The view has prefixes again.
    pub fn keep_view(&mut self, view: u32) {
        self.retired.views.remove(&view);
        self.waiting.views.remove(&view);
    }

    /// Whether what the view has is of another time.
    pub fn has_view(&self, view: u32) -> bool {
        self.retired.views.contains(&view) || self.waiting.views.contains(&view)
    }

    /// Whether a route record in use names the counter slot.
    pub fn is_counted(&self, counter: u32) -> bool {
        self.counted.contains_key(&counter)
    }

    /// A grace period begins.
    pub fn begin_grace(&mut self) {
        self.waiting.append(&mut self.retired);
    }

    /// The grace period that was begun has passed: records that nobody reads any more.
    pub fn end_grace(&mut self) -> Records {
        std::mem::take(&mut self.waiting)
    }

    /// They could not be cleared: the next time.
    pub fn put_back(&mut self, mut records: Records) {
        self.waiting.append(&mut records);
    }
}
