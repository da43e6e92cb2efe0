//! Incremental compilation: rebuilds what depends on a change and keeps everything else.
//!
//! An entry of a table depends on the route of its prefix. The entry of a cross-connect also depends
//! on the route of its next hop, and the path of a segment list on the route of its first segment
//! (`lookups.rs`). Entries do not depend on the paths of their segment lists. A host entry depends
//! on the neighbor and on the covering route. A prefix of a view depends on the covering entries of
//! the merged tables. An adjacency depends only on neighbors and on its link.
//!
//! Changes with a global effect need a full compilation: addresses, rules, settings, VLAN tables,
//! SIDs of SR proxies, and whatever does not fit in the prefix table. So do links, unless they only
//! go up or down, and a table in a rule that gets its first route or loses its last, because the
//! chain of a SID may depend on it. A route that does not fit in another table is punted until the
//! next full compilation.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_datapath::{RouteId, ViewId};
use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::route::{
    Encap, Family, NextHop, NextHops, ObjectId, Route, RouteKey, RuleAction,
};
use thiserror::Error;

use super::builder::ViewBuilder;
use super::entries::CompiledRoute;
use super::error::CompileError;
use super::index::{Compiled, RouteInfo};
use super::keys::{AdjacencyKey, Via, ViewKey};
use super::lookups::Dependent;
use super::record::is_proxy;
use super::rules::Chains;
use super::service::is_proxy_route;
use super::tables::{Entry, EntryKey, Prefix};

/// Why a change needs a full compilation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NeedsFullCompile {
    /// There is no accepted compilation to update.
    #[error("no previous compilation to update")]
    Unknown,
    /// A table in a rule was empty, or is empty now.
    #[error("table {} became empty, or is no longer empty", .0.0)]
    Table(TableId),
    /// The SID of an SR proxy changed, which also sets the return path of a port.
    #[error("an SR proxy changes")]
    Proxy,
    /// A view lost a reference, and only its own entries may still refer to it.
    #[error("a view may have become unreachable")]
    View,
    /// The routes of a nexthop object need more than their group.
    #[error("each route of nexthop object {0} changes")]
    Object(u32),
    /// The number of changes makes a full compilation cheaper.
    #[error("{0} changes at once")]
    Many(usize),
    /// Prefixes or the views of rules do not fit, or did not fit before.
    #[error("a table is full")]
    Full,
    /// The node cannot be compiled.
    #[error(transparent)]
    Error(#[from] CompileError),
}

impl ViewBuilder<'_> {
    /// Compiles what depends on these routes, neighbors, and links that went up or down.
    pub(super) fn apply_changes(
        &mut self,
        routes: &[RouteKey],
        neighbors: &[(IfIndex, IpAddr)],
        links: &[IfIndex],
    ) -> Result<(), NeedsFullCompile> {
        let changed = self.choose_winners(routes)?;
        let (mut dirty, mut dependents) = (BTreeSet::new(), BTreeSet::new());
        for entry in &changed {
            dirty.insert(*entry);
            dirty.extend(self.routes.resolver.neighbors_in(entry));
            let resolver = &self.routes.resolver;
            let resolve =
                |chains: &Chains, address, source| resolver.resolve(chains, address, source);
            resolver.lookups.affected(entry, resolve, &mut dependents);
            dirty.extend(self.routes.depending_on(entry));
        }
        for &(dev, address) in neighbors {
            self.neighbor(dev, address, &mut dirty);
        }
        self.adjacencies(neighbors, links)?;
        self.rebuild(dirty, dependents)
    }

    /// Compiles the new next hops of a nexthop object, and what depends on routes that refer to it.
    pub(super) fn apply_object(
        &mut self,
        object: ObjectId,
        hops: NextHops,
    ) -> Result<(), NeedsFullCompile> {
        self.routes.changed_object = Some((object, hops));
        self.routes
            .rebuild_groups(object)
            .map_err(|_| NeedsFullCompile::Object(object.1))?;
        let mut dependents = BTreeSet::new();
        let routes = &self.routes.node.routes;
        let refers = |key: &RouteKey| routes.get(key).and_then(Route::object) == Some(object);
        self.routes
            .resolver
            .lookups
            .resolved_to(refers, &mut dependents);
        self.rebuild(BTreeSet::new(), dependents)
    }

    /// Compiles these entries and dependents of lookups again, and the views that contain them.
    fn rebuild(
        &mut self,
        mut dirty: BTreeSet<EntryKey>,
        dependents: BTreeSet<Dependent>,
    ) -> Result<(), NeedsFullCompile> {
        for dependent in dependents {
            match dependent {
                Dependent::Entry(entry) => _ = dirty.insert(entry),
                Dependent::Policy(policy) => {
                    let updated = self.routes.update_path(policy);
                    updated.map_err(|_| NeedsFullCompile::Full)?;
                }
            }
        }
        if dirty.iter().any(|entry| self.is_proxy(entry)) {
            return Err(NeedsFullCompile::Proxy);
        }
        let mut moved = Vec::new();
        for entry in dirty {
            if self.tables.entries.contains_key(&entry.table()) && self.rebuild_entry(entry) {
                moved.push(entry);
            }
        }
        for entry in moved {
            self.merge_below(entry)?;
        }
        self.views()?;
        self.kept
            .keep_next_hops(&mut self.routes.store, self.routes.node);
        self.settle();
        for (entry, record) in std::mem::take(&mut self.vacated) {
            self.update_representative(entry, record);
        }
        if self.routes.store.out.index.is_short() {
            return Err(NeedsFullCompile::Full);
        }
        let abandoned = std::mem::take(&mut self.routes.store.abandoned_views);
        if abandoned
            .into_iter()
            .any(|view| self.may_be_unreachable(view))
        {
            return Err(NeedsFullCompile::View);
        }
        Ok(())
    }

    /// Whether the entry is, or was, the SID of an SR proxy.
    fn is_proxy(&self, entry: &EntryKey) -> bool {
        let before = self.tables.entries.get(&entry.table());
        let before = before.and_then(|entries| entries.get(entry.prefix));
        let mut records = before.iter().flat_map(|entry| entry.iter());
        let routes = &self.routes.store.out.image.routes;
        let is = |record| routes.get(&record).is_some_and(is_proxy);
        let mut after = self
            .routes
            .resolver
            .routes(self.routes.node, entry)
            .into_iter();
        records.any(|(_, found)| is(found.route())) || after.any(|it| is_proxy_route(it.route))
    }

    /// Updates the winners for the prefixes of changed routes.
    fn choose_winners(
        &mut self,
        routes: &[RouteKey],
    ) -> Result<BTreeSet<EntryKey>, NeedsFullCompile> {
        let mut changed = BTreeSet::new();
        for key in routes {
            let entry = EntryKey::new(key);
            if !changed.insert(entry) {
                continue;
            }
            let was_there = self.routes.resolver.winners.contains_key(&entry.table());
            let before = self.routes.resolver.choose(self.routes.node, key);
            for (from, winner) in before.iter().flat_map(Entry::iter) {
                let route = winner.key(&entry, from);
                self.routes.store.set_unsupported(route, None);
            }
            let is_there = self.routes.resolver.winners.contains_key(&entry.table());
            if was_there != is_there && self.is_in_rule(entry.table()) {
                return Err(NeedsFullCompile::Table(entry.table_id));
            }
        }
        Ok(changed)
    }

    /// Whether a rule names the table.
    fn is_in_rule(&self, (family, table): (Family, TableId)) -> bool {
        let mut rules = self
            .routes
            .node
            .rules
            .range((family, 0)..=(family, u32::MAX));
        let names = |action: &RuleAction| *action == RuleAction::Table(table);
        rules.any(|(_, rules)| rules.iter().any(|rule| names(&rule.action)))
    }

    /// Updates a neighbor that appeared, disappeared, or changed its link-layer address.
    fn neighbor(&mut self, dev: IfIndex, address: IpAddr, dirty: &mut BTreeSet<EntryKey>) {
        let prefix = Prefix::host(address);
        let neighbor = self.routes.node.neighbors.get(&(dev, address));
        if neighbor.is_some_and(|neighbor| neighbor.lladdr.is_some()) {
            self.routes.resolver.neighbors.insert((prefix, dev));
        } else {
            self.routes.resolver.neighbors.remove(&(prefix, dev));
        }
        let family = Family::of(&address);
        let tables = self.tables.entries.keys();
        let tables = tables.filter(|(of, _)| *of == family);
        dirty.extend(tables.map(|&(family, table)| EntryKey {
            family,
            table_id: table,
            prefix,
        }));
    }

    /// Updates the adjacencies of these neighbors, and those of links that went up or down.
    fn adjacencies(
        &mut self,
        neighbors: &[(IfIndex, IpAddr)],
        links: &[IfIndex],
    ) -> Result<(), NeedsFullCompile> {
        if neighbors.is_empty() && links.is_empty() {
            return Ok(());
        }
        let neighbors: BTreeSet<_> = neighbors.iter().collect();
        let concerns = |key: &AdjacencyKey| {
            let of_neighbor = match key.via {
                Via::Address(address) => neighbors.contains(&(key.dev, address)),
                Via::Link | Via::Ethernet(_) => false,
            };
            of_neighbor || links.contains(&key.dev)
        };
        let store = &mut self.routes.store;
        let there = &store.out.image.adjacencies;
        let all = store.indices.adjacencies.iter();
        let present = all.filter(|(key, index)| concerns(key) && there.contains_key(index));
        let present: Vec<AdjacencyKey> = present.map(|(key, _)| *key).collect();
        for AdjacencyKey { dev, via, mtu } in present {
            // The adjacency exists, so the table has room for it, and its link exists.
            let updated = store.adjacency(dev, via, mtu);
            updated.map_err(|_| NeedsFullCompile::Full)?;
        }
        Ok(())
    }

    /// Updates the route that a shared record without a counter is named after, if that route no
    /// longer uses it.
    fn update_representative(&mut self, entry: EntryKey, record: RouteId) {
        let Some(named) = self.routes.store.out.index.routes.get(&record).cloned() else {
            return;
        };
        if named.next_hop.is_some() || named.entry() != Some(entry) {
            return;
        }
        let other = self.other_user(entry, record);
        let store = &self.routes.store;
        let info = match other {
            Some((route, neighbor)) => RouteInfo {
                route: Some(route.key),
                is_beneath: store.is_beneath(route),
                neighbor,
                ..named
            },
            // Only groups refer to it.
            None => RouteInfo {
                neighbor: None,
                next_hop: Some(Box::new(self.next_hop_of(&named, record))),
                ..named
            },
        };
        self.routes.store.set_route(record, info);
    }

    /// Returns the next hop that a record stands for. A counted one has a route of its own.
    fn next_hop_of(&self, named: &RouteInfo, record: RouteId) -> NextHop {
        if let Some(key) = named.route.filter(|_| named.counter.is_some()) {
            let node = self.routes.node;
            let route = node
                .policies
                .beneath(&key)
                .or_else(|| node.routes.get(&key));
            let hop = route.and_then(|route| route.next_hops.first());
            return hop.cloned().unwrap_or_default();
        }
        let Compiled { image, index } = &*self.routes.store.out;
        let Some(record) = image.routes.get(&record) else {
            return NextHop::new();
        };
        let adjacency = index.adjacencies.get(&record.adjacency);
        let policy = index.policies.get(&record.policy_id());
        NextHop {
            dev: adjacency.map(|adjacency| adjacency.ifindex),
            via: adjacency.and_then(|adjacency| adjacency.via),
            encap: policy.map(|policy| Encap::Seg6(policy.encap.clone())),
            ..NextHop::new()
        }
    }

    /// Returns another entry with this record, preferably the next one of the same table, since
    /// routes are often removed in order.
    fn other_user(&self, entry: EntryKey, record: RouteId) -> Option<(&Route, Option<IpAddr>)> {
        let here = self.tables.entries.get(&entry.table()).into_iter();
        let here = here.flat_map(|entries| entries.after(entry.prefix));
        let here = here.map(|it| (entry.table(), it));
        let tables = self.tables.entries.iter();
        let anywhere = tables.flat_map(|(of, entries)| entries.iter().map(|it| (*of, it)));
        let has = |entry: &Entry<CompiledRoute>| entry.iter().any(|(_, it)| it.route() == record);
        let ((family, table), (&prefix, entry)) =
            here.chain(anywhere).find(|(_, (_, entry))| has(entry))?;
        let other = EntryKey {
            family,
            table_id: table,
            prefix,
        };
        let found = entry.iter().find(|(_, it)| it.route() == record)?;
        let routes = self.routes.resolver.routes(self.routes.node, &other);
        let of_source = routes.into_iter().find(|it| it.from == found.0);
        of_source.map(|it| (it.route, it.neighbor))
    }

    /// Whether only the view's own entries may still refer to it.
    fn may_be_unreachable(&self, view: ViewId) -> bool {
        let Some(ViewKey::Chain(chain)) = self.routes.store.indices.views.key(view) else {
            return false;
        };
        let mut tables = chain.tables().map(|table| (chain.family, table));
        self.routes.store.indices.views.is_referenced(view)
            && !self.routes.views.rooted.contains(&view)
            && tables.any(|table| {
                self.tables
                    .leading
                    .get(&table)
                    .is_some_and(|&count| count > 0)
            })
    }
}
