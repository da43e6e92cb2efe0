//! Changes that one compilation makes to tables and index, for publishing and for undoing them.

use std::collections::BTreeMap;

use sidestep_datapath::delta::{Changes, Delta};
use sidestep_datapath::{AdjacencyId, CounterId, GroupId, PolicyId, RouteId, ViewId};
use sidestep_model::route::RouteKey;
use sidestep_model::vlan::VlanTableId;

use super::index::{
    AdjacencyInfo, Compiled, Continuation, Counted, PolicyInfo, RouteInfo, ViewInfo,
};

/// Changes of one compilation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Changes of the tables.
    pub delta: Delta,
    pub(super) routes: Changes<RouteId, RouteInfo>,
    pub(super) leads: Changes<RouteId, Continuation>,
    pub(super) groups: Changes<GroupId, Vec<RouteId>>,
    pub(super) views: Changes<ViewId, ViewInfo>,
    pub(super) vlan_views: Changes<ViewId, VlanTableId>,
    pub(super) adjacencies: Changes<AdjacencyId, AdjacencyInfo>,
    pub(super) policies: Changes<PolicyId, PolicyInfo>,
    pub(super) counters: Changes<Counted, CounterId>,
    pub(super) unsupported: Changes<RouteKey, String>,
    pub(super) full: Changes<RouteKey, &'static str>,
}

impl Change {
    /// Undoes the changes in tables and index.
    pub fn revert(&self, compiled: &mut Compiled) {
        self.delta.revert(&mut compiled.image);
        let index = &mut compiled.index;
        self.routes.revert(&mut index.routes);
        self.leads.revert(&mut index.leads);
        self.groups.revert(&mut index.groups);
        self.views.revert(&mut index.views);
        self.vlan_views.revert(&mut index.vlan_views);
        self.adjacencies.revert(&mut index.adjacencies);
        self.policies.revert(&mut index.policies);
        self.counters.revert(&mut index.counters);
        self.unsupported.revert(&mut index.unsupported);
        self.full.revert(&mut index.full);
    }

    /// Counter slots that were assigned to another key.
    pub fn new_counters(&self) -> impl Iterator<Item = CounterId> {
        self.counters.upserts().map(|(_, slot)| *slot)
    }
}

/// Records changes, if it is on. A full compilation records none.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    pub on: bool,
    pub change: Change,
}

impl ChangeLog {
    /// Sets or removes an entry of a table. Returns the value that the table had.
    pub fn set<K: Ord + Clone, V: Clone + PartialEq>(
        &mut self,
        changes: impl FnOnce(&mut Change) -> &mut Changes<K, V>,
        table: &mut BTreeMap<K, V>,
        key: K,
        value: Option<V>,
    ) -> Option<V> {
        match (self.on, value) {
            (true, value) => changes(&mut self.change).set(table, key, value),
            (false, Some(value)) => table.insert(key, value),
            (false, None) => table.remove(&key),
        }
    }
}
