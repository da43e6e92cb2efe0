//! View builder: compiles routing tables entry by entry, and merges them into views.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_datapath::RouteId;
use sidestep_model::node::TableId;
use sidestep_model::route::{Family, Route, RouteKind};

use super::entries::{CompiledRoute, CompiledTables};
use super::kept::KeptLists;
use super::lookups::Dependent;
use super::resolver::{Candidate, by_dscp};
use super::routes::RouteCompiler;
use super::tables::{Entry, EntryKey, LookupResult as _, Prefix, Winner};

/// One compilation: a full one of a node, or an incremental one of a change.
pub(super) struct ViewBuilder<'a> {
    pub routes: RouteCompiler<'a>,
    pub tables: CompiledTables,
    pub kept: KeptLists,
    /// Entries that changed, with the route records that they had.
    pub vacated: Vec<(EntryKey, RouteId)>,
}

impl ViewBuilder<'_> {
    /// Compiles all routes of one table, with a host route for each neighbor on a connected prefix.
    pub(super) fn table(&mut self, family: Family, table_id: TableId) {
        self.tables.entries.entry((family, table_id)).or_default();
        let mut leading = 0;
        let resolver = &self.routes.resolver;
        let Some(winners) = resolver.winners.get(&(family, table_id)) else {
            return;
        };
        // Sidestep-only routes first: if not all fit, the kernel can forward the others.
        let is_sidestep_only =
            |entry: &Entry<Winner>| entry.iter().any(|(_, winner)| winner.is_own());
        let (first, others): (Vec<_>, Vec<_>) = winners
            .iter()
            .partition(|(_, entry)| is_sidestep_only(entry));
        let hosts = resolver.neighbors.iter().map(|(host, _)| *host);
        let hosts: BTreeSet<Prefix> = hosts.filter(|it| winners.get(*it).is_none()).collect();
        let routes = first.into_iter().chain(others).map(|(prefix, _)| *prefix);
        let prefixes: Vec<Prefix> = routes.chain(hosts).collect();
        let mut entries = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            let entry = self.entry(EntryKey {
                family,
                table_id,
                prefix,
            });
            if !entry.is_empty() {
                leading += self.acquire(&entry);
                entries.push((prefix, entry));
            }
        }
        let entries = entries.into_iter().collect();
        self.tables.entries.insert((family, table_id), entries);
        self.tables.leading.insert((family, table_id), leading);
    }

    /// Acquires the records of an entry. Returns the number of those that may lead to a view.
    fn acquire(&mut self, entry: &Entry<CompiledRoute>) -> isize {
        let mut leading = 0;
        for (_, compiled) in entry.iter() {
            self.routes.store.indices.routes.acquire(compiled.route());
            leading += isize::from(self.routes.store.may_lead_to_view(compiled.route()));
        }
        leading
    }

    /// Compiles an entry again and returns whether it has changed.
    pub(super) fn rebuild_entry(&mut self, key: EntryKey) -> bool {
        let lookups = &mut self.routes.resolver.lookups;
        lookups.forget(&Dependent::Entry(key));
        let entry = self.entry(key);
        let table = self.tables.entries.entry(key.table()).or_default();
        let before = if entry.is_empty() {
            table.remove(key.prefix)
        } else {
            table.insert(key.prefix, entry.clone())
        };
        let before = before.unwrap_or_default();
        if before == entry {
            return false;
        }
        let mut leading = self.acquire(&entry);
        let records = before.iter().map(|(_, compiled)| compiled.route());
        for route in records.filter(|route| route.is_some()) {
            self.routes.store.indices.routes.release(route);
            leading -= isize::from(self.routes.store.may_lead_to_view(route));
            self.routes.store.abandon_views(route);
            self.vacated.push((key, route));
        }
        *self.tables.leading.entry(key.table()).or_insert(0) += leading;
        true
    }

    /// Compiles an entry. It is empty if the table has no route for exactly this prefix.
    fn entry(&mut self, key: EntryKey) -> Entry<CompiledRoute> {
        self.routes.dependent = Some(Dependent::Entry(key));
        let mut entry = Entry::default();
        let candidates = self.routes.resolver.routes(self.routes.node, &key);
        for Candidate {
            route, neighbor, ..
        } in &candidates
        {
            if neighbor.is_none() {
                self.routes.store.set_unsupported(route.key, None);
            }
        }
        for Candidate {
            from,
            route,
            neighbor,
        } in candidates
        {
            let index = match route.kind {
                RouteKind::Throw if route.key.tos == 0 => None,
                _ => Some(self.route(route, neighbor)),
            };
            entry.set(from, CompiledRoute::new(route, index));
        }
        entry
    }

    /// Returns the record of a route. With `neighbor`, the record serves only that neighbor on the
    /// route's link.
    fn route(&mut self, route: &Route, neighbor: Option<IpAddr>) -> RouteId {
        let compiled = match self.routes.record_of(route, neighbor) {
            Ok(compiled) => compiled,
            Err(full) if neighbor.is_some() && by_dscp(route).is_some() => {
                // Use the record without the neighbor: steering by DSCP stays in effect, and the
                // kernel forwards the other packets.
                let index = self.route(route, None);
                let instead = "; the kernel forwards to neighbors what is not steered";
                self.routes.store.report_full(route, full, instead);
                return index;
            }
            Err(full) => return self.routes.store.no_room(route, full),
        };
        if compiled.punt_reason.is_some() {
            let store = &mut self.routes.store;
            store.set_unsupported(route.key, compiled.punt_reason);
        }
        match self.routes.store.intern(compiled.record) {
            Ok(index) => {
                let store = &mut self.routes.store;
                store.set_route_info(index, route, neighbor, None);
                index
            }
            Err(full) => self.routes.store.no_room(route, full),
        }
    }

    /// Removes unreferenced records and views.
    pub(super) fn settle(&mut self) {
        while let Some(view) = self.routes.store.settle() {
            self.drop_view(view);
        }
    }
}
