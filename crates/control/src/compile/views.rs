//! Views: rule chains merged into one prefix table each.

use std::collections::BTreeSet;

use sidestep_datapath::abi::{PUNT_route_miss, PUNT_route_type, PUNT_rule, SIDESTEP_ROUTE_NEXT};
use sidestep_datapath::{RouteId, ViewId};
use sidestep_model::node::TableId;
use sidestep_model::route::{Family, RouteKind};

use super::allocator::TableFull;
use super::builder::ViewBuilder;
use super::chain::{Chain, RuleEffect};
use super::entries::CompiledRoute;
use super::error::CompileError;
use super::keys::ViewKey;
use super::lookups::Dependent;
use super::merge::MergedRoute;
use super::tables::{Entry, EntryKey, Prefix, Routing, Table};

impl ViewBuilder<'_> {
    /// Compiles the tables of all new views, then merges them. Compiling a SID may need further
    /// views, so this repeats until there is no new one.
    pub(super) fn views(&mut self) -> Result<(), CompileError> {
        while let Some(chain) = self.routes.views.unfilled.pop() {
            for table in chain.tables() {
                if !self.tables.entries.contains_key(&(chain.family, table)) {
                    self.table(chain.family, table);
                }
            }
            let view = self.routes.views.by_chain[&chain];
            let fallback = self.fallback(&chain);
            let terminals = self.terminals(&chain);
            let search = self.tables.merging(&chain, &terminals, fallback);
            let merged: Vec<_> = search.merge(|it| it.route()).collect();
            let mut prefixes = Vec::with_capacity(merged.len());
            for (prefix, answers) in merged {
                let route = self.merged_route(&chain, prefix, answers)?;
                prefixes.push((prefix.in_view(view), route));
            }
            self.routes.store.fill_view(prefixes);
        }
        Ok(())
    }

    /// Updates the views after an entry changed: its prefix, and longer prefixes that depend on it.
    pub(super) fn merge_below(&mut self, key: EntryKey) -> Result<(), CompileError> {
        let views = self.routes.views.by_chain.iter();
        let views: Vec<(Chain, ViewId)> = views
            .filter(|(chain, _)| chain.asks(key.table()))
            .map(|(chain, view)| (chain.clone(), *view))
            .collect();
        for (chain, view) in views {
            let (fallback, terminals) = (self.fallback(&chain), self.terminals(&chain));
            let search = self.tables.merging(&chain, &terminals, fallback);
            let table = &self.tables.entries[&key.table()];
            let mut prefixes = BTreeSet::from([key.prefix]);
            let is_changed = |other: &Routing<CompiledRoute>| std::ptr::eq(other, table);
            search.depending(key.prefix, is_changed, &mut prefixes);
            let merged: Vec<_> = prefixes
                .into_iter()
                .map(|prefix| (prefix, search.merged(prefix, |it| it.route())))
                .collect();
            for (prefix, answers) in merged {
                let route = match answers {
                    Some(answers) => Some(self.merged_route(&chain, prefix, answers)?),
                    None => None,
                };
                self.routes.store.put_prefix(prefix.in_view(view), route);
            }
        }
        Ok(())
    }

    /// Returns the record for a prefix of a view.
    fn merged_route(
        &mut self,
        chain: &Chain,
        prefix: Prefix,
        answers: MergedRoute,
    ) -> Result<RouteId, CompileError> {
        match answers {
            MergedRoute::All(route) => self.or_miss(route),
            MergedRoute::BySource(sources) => {
                let sources: Result<Vec<_>, CompileError> = sources
                    .into_iter()
                    .map(|(source, route)| Ok((source, self.or_miss(route)?)))
                    .collect();
                let sources = sources?;
                let mut routes = sources.iter().map(|(_, route)| *route);
                let own = routes.any(|route| self.routes.store.is_sidestep_only(route));
                // If the record does not fit, the prefix is punted, or dropped.
                let by_source = self.routes.store.by_source(chain.family, sources);
                Ok(by_source.unwrap_or_else(|full| {
                    self.report_full_prefix(chain, prefix, full);
                    self.routes.store.full(own)
                }))
            }
        }
    }

    /// Returns the record that continues in the view of the next chain, if there is one.
    fn fallback(&mut self, chain: &Chain) -> Option<RouteId> {
        let then = chain.then.as_ref()?;
        let next = self
            .routes
            .views
            .view(&mut self.routes.store, Chain::clone(then));
        let next = next.and_then(|view| {
            self.routes
                .store
                .lead(SIDESTEP_ROUTE_NEXT, chain.family, view)
        });
        Some(next.unwrap_or_else(|full| {
            self.routes
                .store
                .out
                .index
                .full_for_rules
                .insert(full.table);
            self.routes.store.full(false)
        }))
    }

    /// Returns the records of the steps that end the search.
    fn terminals(&mut self, chain: &Chain) -> Vec<(RuleEffect, RouteId)> {
        let ends = chain.steps.iter().map(|step| &step.effect);
        let ends = ends.filter(|effect| !matches!(effect, RuleEffect::Lookup { .. }));
        ends.map(|effect| (effect.clone(), self.terminal(effect)))
            .collect()
    }

    fn or_miss(&mut self, route: Option<RouteId>) -> Result<RouteId, CompileError> {
        Ok(match route {
            Some(route) => route,
            None => self.routes.store.punt(PUNT_route_miss)?,
        })
    }

    /// Returns the record of a rule that ends the search. If it does not fit, the packets are
    /// punted.
    fn terminal(&mut self, effect: &RuleEffect) -> RouteId {
        let record = match effect {
            RuleEffect::Refuse(RouteKind::Blackhole) => self.routes.store.blackhole(),
            RuleEffect::Punt(_) => self.routes.store.punt(PUNT_rule),
            _ => self.routes.store.punt(PUNT_route_type),
        };
        record.unwrap_or_else(|_| self.routes.store.full(false))
    }

    /// Reports the routes with `from` for a prefix that does not fit.
    fn report_full_prefix(&mut self, chain: &Chain, prefix: Prefix, full: TableFull) {
        let words = CompileError::from(full).to_string();
        let mut keys = Vec::new();
        for table in chain.tables() {
            let winners = self.routes.resolver.winners.get(&(chain.family, table));
            let covering = winners.into_iter().flat_map(|it| it.covering(prefix));
            for (prefix, entry) in covering {
                let key = EntryKey {
                    family: chain.family,
                    table_id: table,
                    prefix,
                };
                let with_from = entry.iter().filter(|(from, _)| from.is_some());
                keys.extend(with_from.map(|(from, winner)| winner.key(&key, from)));
            }
        }
        for key in keys {
            self.routes.store.set_unsupported(key, Some(words.clone()));
            self.routes.store.set_full_table(key, Some(full.table));
        }
    }

    /// Removes a view, and tables that no other view merges.
    pub(super) fn drop_view(&mut self, view: ViewId) {
        let key = self.routes.store.indices.views.key(view).cloned();
        self.routes.store.clear_view(view);
        if let Some(ViewKey::Vlans(_)) = key {
            return self.routes.store.set_vlan_view(view, None);
        }
        self.routes.store.set_view_info(view, None);
        let Some(ViewKey::Chain(chain)) = key else {
            return;
        };
        self.routes.views.by_chain.remove(&chain);
        for table in chain.tables() {
            if !self.routes.views.merges((chain.family, table)) {
                self.drop_table(chain.family, table);
            }
        }
    }

    fn drop_table(&mut self, family: Family, table: TableId) {
        let entries = self.tables.entries.remove(&(family, table));
        self.tables.leading.remove(&(family, table));
        for (&prefix, entry) in entries.iter().flat_map(Table::iter) {
            let key = EntryKey {
                family,
                table_id: table,
                prefix,
            };
            for (_, compiled) in entry.iter() {
                self.routes.store.indices.routes.release(compiled.route());
                self.routes.store.abandon_views(compiled.route());
                self.vacated.push((key, compiled.route()));
            }
            let lookups = &mut self.routes.resolver.lookups;
            lookups.forget(&Dependent::Entry(key));
            let winners = self.routes.resolver.winners.get(&(family, table));
            let winners = winners.and_then(|it| it.get(prefix)).cloned();
            for (from, winner) in winners.iter().flat_map(Entry::iter) {
                let route = winner.key(&key, from);
                self.routes.store.set_unsupported(route, None);
            }
        }
    }
}
