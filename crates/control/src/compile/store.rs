//! Record store: the records of all tables, with their reference counts. A record exists as long as
//! another record, a prefix or a port refers to it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_datapath::abi::{
    DROP_blackhole, SIDESTEP_ADJACENCY_DOWN, SIDESTEP_ADJACENCY_PEER, SIDESTEP_ADJACENCY_VALID,
    SIDESTEP_ADJACENCY_XDP, SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_SIDESTEP_ONLY,
    SIDESTEP_ROUTE_SOURCE, sidestep_action, sidestep_adjacency, sidestep_group, sidestep_hmac_key,
    sidestep_learned, sidestep_policy, sidestep_reason, sidestep_route,
};
use sidestep_datapath::{
    AdjacencyId, CounterId, FibKey, FlowTableId, GroupId, HeaderSetId, KeySlot, PolicyId, RouteId,
    ViewId,
};
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::{Family, NextHop, Route, RouteKey};
use sidestep_model::vlan::VlanTableId;

use super::allocator::TableFull;
use super::change::ChangeLog;
use super::error::{CompileError, Skip, unsupported};
use super::index::{
    AdjacencyInfo, Compiled, Continuation, Counted, PolicyInfo, RouteInfo, ViewInfo,
};
use super::indices::Indices;
use super::keys::{AdjacencyKey, Via, ViewKey};
use super::object::ObjectGroups;
use super::record::{full_record, punt, record};
use super::tables::Prefix;

/// The records of one compilation.
pub(super) struct RecordStore<'a> {
    node: &'a Node,
    pub indices: &'a mut Indices,
    pub out: &'a mut Compiled,
    pub log: ChangeLog,
    /// Route records for what does not fit: of the kernel's routes, and of Sidestep-only ones.
    pub full_routes: [RouteId; 2],
    /// Views that some record no longer refers to.
    pub abandoned_views: Vec<ViewId>,
    /// Groups of nexthop objects.
    pub objects: ObjectGroups,
}

impl<'a> RecordStore<'a> {
    /// Returns a store that changes `out`.
    pub fn new(
        node: &'a Node,
        indices: &'a mut Indices,
        out: &'a mut Compiled,
        full_routes: [RouteId; 2],
        objects: ObjectGroups,
        log: ChangeLog,
    ) -> Self {
        Self {
            node,
            indices,
            out,
            log,
            full_routes,
            abandoned_views: Vec::new(),
            objects,
        }
    }

    /// Removes unreferenced records, and what only they referred to. Stops at an unreferenced view
    /// and returns it, for the caller to remove.
    pub fn settle(&mut self) -> Option<ViewId> {
        loop {
            if let Some(index) = self.indices.routes.next_unreferenced() {
                self.drop_route(index);
            } else if let Some(index) = self.indices.groups.next_unreferenced() {
                self.drop_group(index);
            } else if let Some(index) = self.indices.policies.next_unreferenced() {
                self.drop_policy(index);
            } else if let Some(index) = self.indices.views.next_unreferenced() {
                return Some(index);
            } else if let Some(index) = self.indices.hmac_keys.next_unreferenced() {
                let image = &mut self.out.image.hmac_keys;
                self.log
                    .set(|it| &mut it.delta.hmac_keys, image, index, None);
            } else if let Some(index) = self.indices.learned.next_unreferenced() {
                self.put_learned(index, None);
            } else if self.indices.flow_tables.next_unreferenced().is_some() {
                // A flow table has no record of its own.
            } else if let Some(index) = self.indices.adjacencies.next_unreferenced() {
                self.put_adjacency(index, None);
            } else if let Some(index) = self.indices.counters.next_unreferenced() {
                if let Some(&key) = self.indices.counters.key(index) {
                    self.set_counter(key, None);
                }
            } else {
                return None;
            }
        }
    }

    /// Returns the index of a route record, and adds the record if it is new.
    pub fn intern(&mut self, record: sidestep_route) -> Result<RouteId, TableFull> {
        let index = self.indices.routes.index_of(&record)?;
        let image = &mut self.out.image;
        if !image.routes.contains_key(&index) {
            let table = &mut image.routes;
            self.log
                .set(|it| &mut it.delta.routes, table, index, Some(record));
            self.indices.counters.acquire(record.counter);
            self.indices.adjacencies.acquire(record.adjacency);
            self.indices.policies.acquire(record.policy_id());
            self.indices.hmac_keys.acquire(record.key_slot());
            self.indices.learned.acquire(record.header_set());
            self.indices.groups.acquire(record.group);
            for view in record.views() {
                self.indices.views.acquire(view);
            }
        }
        Ok(index)
    }

    pub fn drop_route(&mut self, index: RouteId) {
        let Some(&record) = self.out.image.routes.get(&index) else {
            return;
        };
        let (image, infos) = (&mut self.out.image.routes, &mut self.out.index.routes);
        self.log.set(|it| &mut it.delta.routes, image, index, None);
        self.log.set(|it| &mut it.routes, infos, index, None);
        self.set_continuation(index, None);
        self.indices.counters.release(record.counter);
        self.indices.adjacencies.release(record.adjacency);
        self.indices.policies.release(record.policy_id());
        self.indices.hmac_keys.release(record.key_slot());
        self.indices.learned.release(record.header_set());
        self.indices.groups.release(record.group);
        for view in record.views() {
            self.release_view(view);
        }
    }

    /// Adds a group at its index.
    pub fn put_group(&mut self, index: GroupId, content: &sidestep_group, slots: Vec<RouteId>) {
        if !self.out.image.groups.contains_key(&index) {
            self.set_group(index, content, slots);
        }
    }

    /// Adds or changes a group.
    pub fn set_group(&mut self, index: GroupId, content: &sidestep_group, slots: Vec<RouteId>) {
        for &route in &slots {
            self.indices.routes.acquire(route);
        }
        let before = self.out.index.groups.get(&index).into_iter().flatten();
        for &route in before {
            self.indices.routes.release(route);
        }
        let (image, infos) = (&mut self.out.image.groups, &mut self.out.index.groups);
        self.log
            .set(|it| &mut it.delta.groups, image, index, Some(*content));
        self.log.set(|it| &mut it.groups, infos, index, Some(slots));
    }

    pub fn drop_group(&mut self, index: GroupId) {
        self.objects.forget(index);
        let slots = self.out.index.groups.get(&index).cloned();
        for route in slots.into_iter().flatten() {
            self.indices.routes.release(route);
        }
        let (image, infos) = (&mut self.out.image.groups, &mut self.out.index.groups);
        self.log.set(|it| &mut it.delta.groups, image, index, None);
        self.log.set(|it| &mut it.groups, infos, index, None);
    }

    /// Adds a policy at its index.
    pub fn put_policy(&mut self, index: PolicyId, content: &sidestep_policy, info: PolicyInfo) {
        if self.out.image.policies.contains_key(&index) {
            return;
        }
        self.indices.adjacencies.acquire(content.adjacency);
        self.indices.hmac_keys.acquire(content.hmac_key);
        self.indices.views.acquire(content.view);
        let (image, infos) = (&mut self.out.image.policies, &mut self.out.index.policies);
        self.log
            .set(|it| &mut it.delta.policies, image, index, Some(*content));
        self.log
            .set(|it| &mut it.policies, infos, index, Some(info));
    }

    /// Sets the path of a policy.
    pub fn set_path(&mut self, index: PolicyId, adjacency: AdjacencyId) {
        let Some(&before) = self.out.image.policies.get(&index) else {
            return;
        };
        self.indices.adjacencies.acquire(adjacency);
        self.indices.adjacencies.release(before.adjacency);
        let after = sidestep_policy {
            adjacency,
            ..before
        };
        let image = &mut self.out.image.policies;
        self.log
            .set(|it| &mut it.delta.policies, image, index, Some(after));
    }

    /// Sets the policy that takes over while the session of a policy is down.
    pub fn set_backup(&mut self, index: PolicyId, backup: PolicyId) {
        let Some(&before) = self.out.image.policies.get(&index) else {
            return;
        };
        if before.backup == backup {
            return;
        }
        self.indices.policies.acquire(backup);
        self.indices.policies.release(before.backup);
        let after = sidestep_policy { backup, ..before };
        let image = &mut self.out.image.policies;
        self.log
            .set(|it| &mut it.delta.policies, image, index, Some(after));
    }

    pub fn drop_policy(&mut self, index: PolicyId) {
        let Some(&content) = self.out.image.policies.get(&index) else {
            return;
        };
        self.indices.adjacencies.release(content.adjacency);
        self.indices.hmac_keys.release(content.hmac_key);
        self.indices.policies.release(content.backup);
        self.release_view(content.view);
        let (image, infos) = (&mut self.out.image.policies, &mut self.out.index.policies);
        self.log
            .set(|it| &mut it.delta.policies, image, index, None);
        self.log.set(|it| &mut it.policies, infos, index, None);
    }

    /// Adds an HMAC key at its index.
    pub fn put_hmac_key(&mut self, index: KeySlot, content: &sidestep_hmac_key) {
        let image = &mut self.out.image.hmac_keys;
        if !image.contains_key(&index) {
            self.log
                .set(|it| &mut it.delta.hmac_keys, image, index, Some(*content));
        }
    }

    /// Adds or removes the header set of a proxy.
    pub fn put_learned(&mut self, index: HeaderSetId, content: Option<&sidestep_learned>) {
        let content = content.copied();
        let image = &mut self.out.image.learned;
        let table =
            |content: Option<&sidestep_learned>| content.map_or(FlowTableId::NONE, |it| it.table);
        self.indices.flow_tables.acquire(table(content.as_ref()));
        self.indices.flow_tables.release(table(image.get(&index)));
        self.log
            .set(|it| &mut it.delta.learned, image, index, content);
    }

    /// Adds, updates or removes an adjacency.
    pub fn put_adjacency(
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

    /// Sets or removes the route of a prefix in a view.
    pub fn put_prefix(&mut self, key: FibKey, route: Option<RouteId>) {
        let fib = &mut self.out.image.fib;
        let before = self.log.set(|it| &mut it.delta.fib, fib, key, route);
        self.indices.routes.acquire(route.unwrap_or(RouteId::NONE));
        self.indices.routes.release(before.unwrap_or(RouteId::NONE));
    }

    /// Sets the routes of the prefixes of a new view, in order.
    pub fn fill_view(&mut self, prefixes: Vec<(FibKey, RouteId)>) {
        let fib = &mut self.out.image.fib;
        if self.log.on || prefixes.len() < fib.len() {
            for (key, route) in prefixes {
                self.put_prefix(key, Some(route));
            }
            return;
        }
        for (_, route) in &prefixes {
            self.indices.routes.acquire(*route);
        }
        // PERF: a tree that is made at once has full nodes.
        fib.append(&mut prefixes.into_iter().collect());
    }

    pub fn release_view(&mut self, view: ViewId) {
        self.indices.views.release(view);
        self.abandoned_views.push(view);
    }

    /// Removes all prefixes of a view.
    pub fn clear_view(&mut self, view: ViewId) {
        let of_view = self.out.image.fib.range(FibKey::first(view)..);
        let keys: Vec<FibKey> = of_view
            .map(|(key, _)| *key)
            .take_while(|key| key.view == view)
            .collect();
        for key in keys {
            self.put_prefix(key, None);
        }
    }

    /// Sets the meaning of a view.
    pub fn set_view_info(&mut self, view: ViewId, info: Option<ViewInfo>) {
        let infos = &mut self.out.index.views;
        if infos.get(&view) != info.as_ref() {
            self.log.set(|it| &mut it.views, infos, view, info);
        }
    }

    /// Sets the VLAN table of a view.
    pub fn set_vlan_view(&mut self, view: ViewId, table: Option<VlanTableId>) {
        let infos = &mut self.out.index.vlan_views;
        self.log.set(|it| &mut it.vlan_views, infos, view, table);
    }

    /// Sets how a record continues the lookup.
    pub fn set_continuation(&mut self, index: RouteId, leads: Option<Continuation>) {
        let infos = &mut self.out.index.leads;
        if infos.get(&index) != leads.as_ref() {
            self.log.set(|it| &mut it.leads, infos, index, leads);
        }
    }

    /// Sets the meaning of a route record.
    pub fn set_route(&mut self, index: RouteId, info: RouteInfo) {
        let infos = &mut self.out.index.routes;
        self.log.set(|it| &mut it.routes, infos, index, Some(info));
    }

    /// Sets the counter slot of a key.
    pub fn set_counter(&mut self, key: Counted, slot: Option<CounterId>) {
        let infos = &mut self.out.index.counters;
        self.log.set(|it| &mut it.counters, infos, key, slot);
    }

    /// Sets or clears the reason why a route is punted.
    pub fn set_unsupported(&mut self, key: RouteKey, words: Option<String>) {
        let infos = &mut self.out.index.unsupported;
        if infos.get(&key) != words.as_ref() {
            let is_none = words.is_none();
            self.log.set(|it| &mut it.unsupported, infos, key, words);
            if is_none {
                self.set_full_table(key, None);
            }
        }
    }

    /// Sets the full table that causes a route to be punted. Call it after `set_unsupported`.
    pub fn set_full_table(&mut self, key: RouteKey, table: Option<&'static str>) {
        let lacking = &mut self.out.index.full;
        if lacking.get(&key) != table.as_ref() {
            self.log.set(|it| &mut it.full, lacking, key, table);
        }
    }

    /// Returns the counter slot of a key. If the table is full, packets are forwarded without a
    /// counter (`NONE`).
    pub fn counter(&mut self, of: Counted) -> CounterId {
        let Ok(slot) = self.indices.counters.index_of(&of) else {
            return CounterId::NONE;
        };
        self.set_counter(of, Some(slot));
        slot
    }

    /// Whether an SR policy steers packets away from the route.
    pub fn is_beneath(&self, route: &Route) -> bool {
        self.node.policies.beneath(&route.key) == Some(route)
    }

    /// Sets the route of a record, unless another route that shares it came first. Routes have
    /// priority over members of groups.
    pub fn set_route_info(
        &mut self,
        record: RouteId,
        route: &Route,
        neighbor: Option<IpAddr>,
        next_hop: Option<&NextHop>,
    ) {
        let info = RouteInfo {
            route: Some(route.key),
            is_beneath: self.is_beneath(route),
            neighbor,
            next_hop: next_hop.cloned().map(Box::new),
            counter: self.out.image.routes[&record].counter,
        };
        let there = self.out.index.routes.get(&record);
        // A record kept for segment lists has no route yet and takes this one.
        let is_anothers = |there: &RouteInfo| {
            there.route.is_some()
                && (there.next_hop.is_none() && next_hop.is_some()
                    || there.next_hop.is_none() == next_hop.is_none()
                        && there.entry() != info.entry())
        };
        if !there.is_some_and(is_anothers) {
            self.set_route(record, info);
        }
    }

    /// Reports a route that does not fit and returns its record. Packets of a Sidestep-only route
    /// are dropped.
    pub fn no_room(&mut self, route: &Route, full: TableFull) -> RouteId {
        self.report_full(route, full, "");
        self.full(!route.owner.in_kernel())
    }

    /// Reports that a table has no entry for a route; `instead` describes what happens to its
    /// packets if they are not punted.
    pub fn report_full(&mut self, route: &Route, full: TableFull, instead: &str) {
        let words = format!("{}{instead}", CompileError::from(full));
        self.set_unsupported(route.key, Some(words));
        self.set_full_table(route.key, Some(full.table));
    }

    /// Returns the record for routes that do not fit; `own`: Sidestep-only ones, whose packets the
    /// kernel must not forward. It is in the tables if something refers to it.
    pub fn full(&mut self, own: bool) -> RouteId {
        // Its index was assigned at the start of the pass.
        self.unowned(full_record(own))
            .unwrap_or(self.full_routes[usize::from(own)])
    }

    /// Whether a record is that of a Sidestep-only route.
    pub fn is_sidestep_only(&self, route: RouteId) -> bool {
        let record = self.out.image.routes.get(&route);
        record.is_some_and(|route| u32::from(route.flags) & SIDESTEP_ROUTE_SIDESTEP_ONLY != 0)
    }

    /// Returns the record of a rule with `blackhole`.
    pub fn blackhole(&mut self) -> Result<RouteId, TableFull> {
        self.unowned(sidestep_route {
            reason: DROP_blackhole as u8,
            ..record(SIDESTEP_ROUTE_DROP)
        })
    }

    /// Returns the record of a rule that punts.
    pub fn punt(&mut self, reason: sidestep_reason) -> Result<RouteId, TableFull> {
        self.unowned(punt(reason))
    }

    pub fn unowned(&mut self, record: sidestep_route) -> Result<RouteId, TableFull> {
        let index = self.intern(record)?;
        let nobodys = RouteInfo {
            route: None,
            is_beneath: false,
            neighbor: None,
            next_hop: None,
            counter: CounterId::NONE,
        };
        self.set_route(index, nobodys);
        Ok(index)
    }

    pub fn adjacency(
        &mut self,
        dev: IfIndex,
        via: Via,
        mtu: Option<u32>,
    ) -> Result<AdjacencyId, Skip> {
        let Some(link) = self.node.links.get(&dev) else {
            return unsupported("its device does not exist");
        };
        let index = self
            .indices
            .adjacencies
            .index_of(&AdjacencyKey { dev, via, mtu })?;
        let lladdr = match via {
            Via::Address(via) => self
                .node
                .neighbors
                .get(&(dev, via))
                .and_then(|neighbor| neighbor.lladdr),
            Via::Ethernet(mac) => Some(mac),
            Via::Link => Some(link.mac),
        };
        let valid = link.up && lladdr.is_some();
        let protection = match via {
            Via::Address(via) => self.node.protection(dev, via),
            Via::Link | Via::Ethernet(_) => None,
        };
        let backup = protection.and_then(|(key, _)| self.out.index.backups.get(key)?.clone().ok());
        let path = protection.and_then(|(_, it)| it.path.as_deref());
        let is_down = !link.up || path.is_some_and(|path| self.node.watched.is_down(path));
        let to_peer = lladdr.is_some_and(|lladdr| self.node.redirects_to_peer(link, lladdr));
        let flags = [
            (valid, SIDESTEP_ADJACENCY_VALID),
            (link.xdp_transmit, SIDESTEP_ADJACENCY_XDP),
            (to_peer, SIDESTEP_ADJACENCY_PEER),
            (is_down, SIDESTEP_ADJACENCY_DOWN),
        ];
        let record = sidestep_adjacency {
            destination: lladdr.unwrap_or_default().0,
            flags: flags
                .iter()
                .filter(|(on, _)| *on)
                .map(|(_, flag)| *flag as u16)
                .sum(),
            source: link.mac.0,
            ifindex: dev.0,
            // No packet is longer.
            mtu: mtu.unwrap_or(u32::MAX).min(link.mtu).min(u16::MAX.into()) as u16,
            backup: backup.unwrap_or(RouteId::NONE),
            ..Default::default()
        };
        let info = AdjacencyInfo {
            ifindex: dev,
            via: match via {
                Via::Address(address) => Some(address),
                Via::Link | Via::Ethernet(_) => None,
            },
            valid,
        };
        self.put_adjacency(index, Some((record, info)));
        Ok(index)
    }

    /// Returns the index of a record to keep. If a route shares it, the route's info stays.
    pub fn keep(&mut self, record: sidestep_route) -> Result<RouteId, TableFull> {
        let index = self.intern(record)?;
        if self.out.index.routes.contains_key(&index) {
            return Ok(index);
        }
        self.unowned(record)
    }

    pub fn acquire_all(&mut self, routes: &BTreeSet<RouteId>) {
        for &index in routes {
            self.indices.routes.acquire(index);
        }
    }

    pub fn release_all(&mut self, routes: &BTreeSet<RouteId>) {
        for &index in routes {
            self.indices.routes.release(index);
        }
    }

    /// Returns the view with exactly these prefixes and routes.
    pub fn leading_view(
        &mut self,
        prefixes: Vec<(Prefix, RouteId)>,
        info: ViewInfo,
    ) -> Result<ViewId, TableFull> {
        let id = self
            .indices
            .views
            .index_of(&ViewKey::Leading(prefixes.clone()))?;
        self.set_view_info(id, Some(info));
        for (prefix, route) in prefixes {
            self.insert(id, prefix, route);
        }
        Ok(id)
    }

    pub fn insert(&mut self, view: ViewId, prefix: Prefix, route: RouteId) {
        self.put_prefix(prefix.in_view(view), Some(route));
    }

    /// Returns the index of a record that continues in a view.
    pub fn lead(
        &mut self,
        how: sidestep_action,
        family: Family,
        view: ViewId,
    ) -> Result<RouteId, TableFull> {
        let mut lead = record(how);
        match family {
            Family::V4 => lead.view4 = view,
            Family::V6 => lead.view6 = view,
        }
        let index = self.unowned(lead)?;
        let leads = match how {
            SIDESTEP_ROUTE_SOURCE => Continuation::BySource,
            _ => Continuation::Next,
        };
        self.set_continuation(index, Some(leads));
        Ok(index)
    }

    /// Returns the index of the record for destinations whose route depends on the source.
    pub fn by_source(
        &mut self,
        family: Family,
        sources: Vec<(Prefix, RouteId)>,
    ) -> Result<RouteId, TableFull> {
        let view = self.leading_view(sources, ViewInfo::new(family, []))?;
        self.lead(SIDESTEP_ROUTE_SOURCE, family, view)
    }

    /// Records that an entry no longer uses a record, whose views may therefore become unused.
    pub fn abandon_views(&mut self, record: RouteId) {
        let image = &self.out.image;
        let Some(route) = image.routes.get(&record) else {
            return;
        };
        if !self.may_lead_to_view(record) {
            return;
        }
        let policy = image.policies.get(&route.policy_id());
        let of_policy = policy.into_iter().flat_map(sidestep_policy::views);
        let views = route.views().into_iter().chain(of_policy);
        let members = self.out.index.groups.get(&route.group).cloned();
        self.abandoned_views
            .extend(views.filter(|view| view.is_some()));
        let mut members = members.unwrap_or_default();
        members.dedup();
        for member in members.into_iter().collect::<BTreeSet<_>>() {
            self.abandon_views(member);
        }
    }

    /// Whether a record may lead to a view.
    pub fn may_lead_to_view(&self, record: RouteId) -> bool {
        let record = self.out.image.routes.get(&record);
        record.is_some_and(|it| {
            it.views() != [ViewId::NONE; 2] || it.policy_id().is_some() || it.group.is_some()
        })
    }
}
