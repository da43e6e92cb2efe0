//! Records in the image, and who refers to whom: a record is there as long as another one, a prefix or a port holds it.

use std::collections::BTreeMap;

use sidestep_datapath::abi::{
    sidestep_adjacency, sidestep_group, sidestep_hmac_key, sidestep_learned, sidestep_policy,
    sidestep_route,
};
use sidestep_datapath::delta::{Changes, Delta};
use sidestep_datapath::{
    AdjacencyId, CounterId, FibKey, FlowTableId, GroupId, HeaderSetId, KeySlot, PolicyId, RouteId,
    ViewId,
};
use sidestep_model::route::RouteKey;
use sidestep_model::vlan::VlanTableId;

use super::ids::Full;
use super::index::{AdjacencyInfo, Counted, Leads, PolicyInfo, RouteInfo, ViewInfo};
use super::{Compiled, Pass};

/// What a pass changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// In the tables.
    pub delta: Delta,
    routes: Changes<RouteId, RouteInfo>,
    leads: Changes<RouteId, Leads>,
    groups: Changes<GroupId, Vec<RouteId>>,
    views: Changes<ViewId, ViewInfo>,
    vlan_views: Changes<ViewId, VlanTableId>,
    adjacencies: Changes<AdjacencyId, AdjacencyInfo>,
    policies: Changes<PolicyId, PolicyInfo>,
    counters: Changes<Counted, CounterId>,
    unsupported: Changes<RouteKey, String>,
    full: Changes<RouteKey, &'static str>,
}

impl Change {
    /// Changes tables and index back to what they were before it.
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

    /// Counter slots that have another route than before.
    pub fn new_counters(&self) -> impl Iterator<Item = CounterId> {
        self.counters.upserts().map(|(_, slot)| *slot)
    }
}

/// Takes note of changes, or not: nobody asks what a pass over everything changed.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub on: bool,
    pub change: Change,
}

impl Log {
    fn set<K: Ord + Clone, V: Clone + PartialEq>(
        &mut self,
        changes: impl FnOnce(&mut Change) -> &mut Changes<K, V>,
        table: &mut BTreeMap<K, V>,
        key: K,
        value: Option<V>,
    ) {
        match (self.on, value) {
            (true, value) => changes(&mut self.change).set(table, key, value),
            (false, Some(value)) => _ = table.insert(key, value),
            (false, None) => _ = table.remove(&key),
        }
    }
}

impl Pass<'_> {
    /// The index of a route record.
    pub(super) fn intern(&mut self, record: sidestep_route) -> Result<RouteId, Full> {
        let index = self.stock.routes.get(&record)?;
        let image = &mut self.out.image;
        if !image.routes.contains_key(&index) {
            let table = &mut image.routes;
            self.log
                .set(|it| &mut it.delta.routes, table, index, Some(record));
            self.stock.counters.hold(record.counter);
            self.stock.adjacencies.hold(record.adjacency);
            self.stock.policies.hold(record.policy_id());
            self.stock.hmac_keys.hold(record.key_slot());
            self.stock.learned.hold(record.header_set());
            self.stock.groups.hold(record.group);
            for view in record.views() {
                self.stock.views.hold(view);
            }
        }
        Ok(index)
    }

    fn drop_route(&mut self, index: RouteId) {
        let Some(&record) = self.out.image.routes.get(&index) else {
            return;
        };
        let (image, infos) = (&mut self.out.image.routes, &mut self.out.index.routes);
        self.log.set(|it| &mut it.delta.routes, image, index, None);
        self.log.set(|it| &mut it.routes, infos, index, None);
        self.name_lead(index, None);
        self.stock.counters.let_go(record.counter);
        self.stock.adjacencies.let_go(record.adjacency);
        self.stock.policies.let_go(record.policy_id());
        self.stock.hmac_keys.let_go(record.key_slot());
        self.stock.learned.let_go(record.header_set());
        self.stock.groups.let_go(record.group);
        for view in record.views() {
            self.leave_view(view);
        }
    }

    /// Puts a group at its index.
    pub(super) fn put_group(
        &mut self,
        index: GroupId,
        content: &sidestep_group,
        slots: Vec<RouteId>,
    ) {
        if self.out.image.groups.contains_key(&index) {
            return;
        }
        for &route in &slots {
            self.stock.routes.hold(route);
        }
        let (image, infos) = (&mut self.out.image.groups, &mut self.out.index.groups);
        self.log
            .set(|it| &mut it.delta.groups, image, index, Some(*content));
        self.log.set(|it| &mut it.groups, infos, index, Some(slots));
    }

    fn drop_group(&mut self, index: GroupId) {
        let slots = self.out.index.groups.get(&index).cloned();
        for route in slots.into_iter().flatten() {
            self.stock.routes.let_go(route);
        }
        let (image, infos) = (&mut self.out.image.groups, &mut self.out.index.groups);
        self.log.set(|it| &mut it.delta.groups, image, index, None);
        self.log.set(|it| &mut it.groups, infos, index, None);
    }

    /// Puts a policy at its index.
    pub(super) fn put_policy(
        &mut self,
        index: PolicyId,
        content: &sidestep_policy,
        info: PolicyInfo,
    ) {
        if self.out.image.policies.contains_key(&index) {
            return;
        }
        self.stock.adjacencies.hold(content.adjacency);
        self.stock.hmac_keys.hold(content.hmac_key);
        self.stock.views.hold(content.view);
        let (image, infos) = (&mut self.out.image.policies, &mut self.out.index.policies);
        self.log
            .set(|it| &mut it.delta.policies, image, index, Some(*content));
        self.log
            .set(|it| &mut it.policies, infos, index, Some(info));
    }

    fn drop_policy(&mut self, index: PolicyId) {
        let Some(&content) = self.out.image.policies.get(&index) else {
            return;
        };
        self.stock.adjacencies.let_go(content.adjacency);
        self.stock.hmac_keys.let_go(content.hmac_key);
        self.leave_view(content.view);
        let (image, infos) = (&mut self.out.image.policies, &mut self.out.index.policies);
        self.log
            .set(|it| &mut it.delta.policies, image, index, None);
        self.log.set(|it| &mut it.policies, infos, index, None);
    }

    /// Puts an HMAC key at its index.
    pub(super) fn put_hmac_key(&mut self, index: KeySlot, content: &sidestep_hmac_key) {
        let image = &mut self.out.image.hmac_keys;
        if !image.contains_key(&index) {
            self.log
                .set(|it| &mut it.delta.hmac_keys, image, index, Some(*content));
        }
    }

    /// Gives the headers that a proxy learns a place, or takes it away.
    pub(super) fn put_learned(&mut self, index: HeaderSetId, content: Option<&sidestep_learned>) {
        let content = content.copied();
        let image = &mut self.out.image.learned;
        let table =
            |content: Option<&sidestep_learned>| content.map_or(FlowTableId::NONE, |it| it.table);
        self.stock.flow_tables.hold(table(content.as_ref()));
        self.stock.flow_tables.let_go(table(image.get(&index)));
        self.log
            .set(|it| &mut it.delta.learned, image, index, content);
    }

    /// Puts an adjacency at its index, or brings it up to date there.
    pub(super) fn put_adjacency(
        &mut self,
        index: AdjacencyId,
        content: Option<(sidestep_adjacency, AdjacencyInfo)>,
    ) {
        let (record, info) = content.unzip();
        let image = &mut self.out.image.adjacencies;
        let infos = &mut self.out.index.adjacencies;
        self.log
            .set(|it| &mut it.delta.adjacencies, image, index, record);
        self.log.set(|it| &mut it.adjacencies, infos, index, info);
    }

    /// Gives a prefix of a view a route, or takes it out.
    pub(super) fn put_prefix(&mut self, key: FibKey, route: Option<RouteId>) {
        let before = self.out.image.fib.get(&key).copied();
        if before == route {
            return;
        }
        self.stock.routes.hold(route.unwrap_or(RouteId::NONE));
        self.stock.routes.let_go(before.unwrap_or(RouteId::NONE));
        let fib = &mut self.out.image.fib;
        self.log.set(|it| &mut it.delta.fib, fib, key, route);
    }

    fn leave_view(&mut self, view: ViewId) {
        self.stock.views.let_go(view);
        self.left.push(view);
    }

    /// Takes all prefixes out of a view.
    pub(super) fn clear_view(&mut self, view: ViewId) {
        let of_view = self.out.image.fib.range(FibKey::first(view)..);
        let keys: Vec<FibKey> = of_view
            .map(|(key, _)| *key)
            .take_while(|key| key.view == view)
            .collect();
        for key in keys {
            self.put_prefix(key, None);
        }
    }

    /// Says what a view is.
    pub(super) fn name_view(&mut self, view: ViewId, info: Option<ViewInfo>) {
        let infos = &mut self.out.index.views;
        if infos.get(&view) != info.as_ref() {
            self.log.set(|it| &mut it.views, infos, view, info);
        }
    }

    /// Says which VLAN table a view is.
    pub(super) fn name_vlan_view(&mut self, view: ViewId, table: Option<VlanTableId>) {
        let infos = &mut self.out.index.vlan_views;
        self.log.set(|it| &mut it.vlan_views, infos, view, table);
    }

    /// Says how a record leads on.
    pub(super) fn name_lead(&mut self, index: RouteId, leads: Option<Leads>) {
        let infos = &mut self.out.index.leads;
        if infos.get(&index) != leads.as_ref() {
            self.log.set(|it| &mut it.leads, infos, index, leads);
        }
    }

    /// Says what a route record stands for.
    pub(super) fn name_route(&mut self, index: RouteId, info: RouteInfo) {
        let infos = &mut self.out.index.routes;
        if infos.get(&index) != Some(&info) {
            self.log.set(|it| &mut it.routes, infos, index, Some(info));
        }
    }

    /// Says which counters a route or a way back has.
    pub(super) fn name_counter(&mut self, key: Counted, slot: Option<CounterId>) {
        let infos = &mut self.out.index.counters;
        if infos.get(&key) != slot.as_ref() {
            self.log.set(|it| &mut it.counters, infos, key, slot);
        }
    }

    /// Says why a route is left to the kernel, or that it is not.
    pub(super) fn name_unsupported(&mut self, key: RouteKey, words: Option<String>) {
        let infos = &mut self.out.index.unsupported;
        if infos.get(&key) != words.as_ref() {
            let is_none = words.is_none();
            self.log.set(|it| &mut it.unsupported, infos, key, words);
            if is_none {
                self.name_lacking(key, None);
            }
        }
    }

    /// Notes the table that has no room for a route, after why it is unsupported.
    pub(super) fn name_lacking(&mut self, key: RouteKey, table: Option<&'static str>) {
        let lacking = &mut self.out.index.full;
        if lacking.get(&key) != table.as_ref() {
            self.log.set(|it| &mut it.full, lacking, key, table);
        }
    }

    /// Takes out what nobody refers to, and what only that referred to.
    pub(super) fn settle(&mut self) {
        loop {
            if let Some(index) = self.stock.routes.next_dropped() {
                self.drop_route(index);
            } else if let Some(index) = self.stock.groups.next_dropped() {
                self.drop_group(index);
            } else if let Some(index) = self.stock.policies.next_dropped() {
                self.drop_policy(index);
            } else if let Some(index) = self.stock.views.next_dropped() {
                self.drop_view(index);
            } else if let Some(index) = self.stock.hmac_keys.next_dropped() {
                let image = &mut self.out.image.hmac_keys;
                self.log
                    .set(|it| &mut it.delta.hmac_keys, image, index, None);
            } else if let Some(index) = self.stock.learned.next_dropped() {
                self.put_learned(index, None);
            } else if self.stock.flow_tables.next_dropped().is_some() {
                // Nothing is said of it but in what has gone.
            } else if let Some(index) = self.stock.adjacencies.next_dropped() {
                self.put_adjacency(index, None);
            } else if let Some(index) = self.stock.counters.next_dropped() {
                if let Some(&key) = self.stock.counters.key(index) {
                    self.name_counter(key, None);
                }
            } else {
                return;
            }
        }
    }
}
