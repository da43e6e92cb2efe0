//! Views: chains of tables merged into one prefix table each, and what leads from one to another.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_datapath::abi::{
    PUNT_route_miss, PUNT_route_type, PUNT_rule, SIDESTEP_ROUTE_NEXT, SIDESTEP_ROUTE_SOURCE,
    sidestep_action,
};
use sidestep_datapath::{FibKey, RouteId, ViewId};
use sidestep_model::node::TableId;
use sidestep_model::route::{Family, RouteKind};

use super::chain::{Chain, Does};
use super::ids::Full;
use super::index::{Leads, ViewInfo};
use super::known::Known;
use super::merge::{Answers, Say, Search};
use super::resolved::Sent;
use super::routes::{Found, record};
use super::rules::Chains;
use super::stock::ViewKey;
use super::tables::{Entry, Place, Prefix, Routing, Table, Winner};
use super::{CompileError, Pass};

impl Pass<'_> {
    /// The index of the view for chains: of the only one, or of what leads to each by the source address.
    pub(super) fn view_of(&mut self, chains: &Chains) -> Result<ViewId, Full> {
        if let Some(chain) = chains.only() {
            return self.view(chain.clone());
        }
        let family = chains.family();
        let next: Result<Vec<RouteId>, Full> = chains
            .distinct()
            .iter()
            .map(|chain| {
                let view = self.view(chain.clone())?;
                self.lead(SIDESTEP_ROUTE_NEXT, family, view)
            })
            .collect();
        let next = next?;
        let sources = chains
            .sources()
            .map(|(prefix, place)| (prefix, next[place]));
        let by_source = self.by_source(family, sources.collect())?;
        let tables = chains.distinct().iter().flat_map(Chain::tables);
        let mut info = ViewInfo::new(family, tables);
        info.tables.sort_unstable();
        info.tables.dedup();
        self.leading_view(vec![(Prefix::DEFAULT, by_source)], info)
    }

    /// The index of the view for a chain.
    pub(super) fn view(&mut self, chain: Chain) -> Result<ViewId, Full> {
        let id = self.stock.views.get(&ViewKey::Chain(chain.clone()))?;
        if self.known.views.insert(chain.clone(), id).is_none() {
            let own = chain.steps.iter().filter_map(|step| match step.does {
                Does::Lookup { table, .. } => Some(table),
                _ => None,
            });
            self.name_view(id, Some(ViewInfo::new(chain.family, own)));
            self.unfilled.push(chain);
        }
        Ok(id)
    }

    /// The index of the view with just these prefixes, each with the index of its route.
    fn leading_view(
        &mut self,
        prefixes: Vec<(Prefix, RouteId)>,
        info: ViewInfo,
    ) -> Result<ViewId, Full> {
        let id = self.stock.views.get(&ViewKey::Leading(prefixes.clone()))?;
        self.name_view(id, Some(info));
        for (prefix, route) in prefixes {
            self.insert(id, prefix, route);
        }
        Ok(id)
    }

    fn insert(&mut self, view: ViewId, prefix: Prefix, route: RouteId) {
        self.put_prefix(key(view, prefix), Some(route));
    }

    /// The index of a record that leads on, into a view.
    fn lead(
        &mut self,
        how: sidestep_action,
        family: Family,
        view: ViewId,
    ) -> Result<RouteId, Full> {
        let mut lead = record(how);
        match family {
            Family::V4 => lead.view4 = view,
            Family::V6 => lead.view6 = view,
        }
        let index = self.bare(lead)?;
        let leads = match how {
            SIDESTEP_ROUTE_SOURCE => Leads::BySource,
            _ => Leads::Next,
        };
        self.name_lead(index, Some(leads));
        Ok(index)
    }

    /// The index of the record for destinations whose route depends on the source.
    fn by_source(
        &mut self,
        family: Family,
        sources: Vec<(Prefix, RouteId)>,
    ) -> Result<RouteId, Full> {
        let view = self.leading_view(sources, ViewInfo::new(family, []))?;
        self.lead(SIDESTEP_ROUTE_SOURCE, family, view)
    }

    /// Compiles the routes of every table that a view uses, then merges tables into views. Compiling a SID may ask for
    /// further views, so it goes on until none is new.
    pub(super) fn views(&mut self) -> Result<(), CompileError> {
        while let Some(chain) = self.unfilled.pop() {
            for table in chain.tables() {
                if !self.known.entries.contains_key(&(chain.family, table)) {
                    self.table(chain.family, table)?;
                }
            }
            let view = self.known.views[&chain];
            let last = self.last(&chain);
            let refusals = self.refusals(&chain);
            let search = self.known.merging(&chain, &refusals, last);
            let merged: Vec<_> = search.merge(Found::route).collect();
            for (prefix, answers) in merged {
                self.say(&chain, view, prefix, Some(answers))?;
            }
        }
        Ok(())
    }

    /// An entry of a table changed: so does what the views say of its prefix, and of longer ones that depend on it.
    pub(super) fn merge_below(&mut self, place: Place) -> Result<(), CompileError> {
        let views = self.known.views.iter();
        let views: Vec<(Chain, ViewId)> = views
            .filter(|(chain, _)| chain.asks(place.of()))
            .map(|(chain, view)| (chain.clone(), *view))
            .collect();
        for (chain, view) in views {
            let (last, refusals) = (self.last(&chain), self.refusals(&chain));
            let search = self.known.merging(&chain, &refusals, last);
            let table = &self.known.entries[&place.of()];
            let mut prefixes = BTreeSet::from([place.prefix]);
            let is_it = |other: &Routing<Found>| std::ptr::eq(other, table);
            search.depending(place.prefix, is_it, &mut prefixes);
            let merged: Vec<_> = prefixes
                .into_iter()
                .map(|prefix| (prefix, search.merged(prefix, Found::route)))
                .collect();
            for (prefix, answers) in merged {
                self.say(&chain, view, prefix, answers)?;
            }
        }
        Ok(())
    }

    /// Brings a prefix of a view to what its tables say.
    fn say(
        &mut self,
        chain: &Chain,
        view: ViewId,
        prefix: Prefix,
        answers: Option<Answers>,
    ) -> Result<(), CompileError> {
        let route = match answers {
            None => None,
            Some(Answers::All(route)) => Some(self.or_miss(route)?),
            Some(Answers::BySource(sources)) => {
                let sources: Result<Vec<_>, CompileError> = sources
                    .into_iter()
                    .map(|(source, route)| Ok((source, self.or_miss(route)?)))
                    .collect();
                // Where there is no room for it, the prefix is the kernel's.
                let route = self
                    .by_source(chain.family, sources?)
                    .unwrap_or_else(|full| {
                        self.no_room_for(chain, prefix, full);
                        self.full()
                    });
                Some(route)
            }
        };
        self.put_prefix(key(view, prefix), route);
        Ok(())
    }

    /// What a chain ends with: the view that follows.
    fn last(&mut self, chain: &Chain) -> Option<RouteId> {
        let then = chain.then.as_ref()?;
        let next = self.view(Chain::clone(then));
        let next = next.and_then(|view| self.lead(SIDESTEP_ROUTE_NEXT, chain.family, view));
        Some(next.unwrap_or_else(|full| {
            self.out.index.full_for_rules.insert(full.table);
            self.full()
        }))
    }

    /// The records of those steps of a chain that end the search.
    fn refusals(&mut self, chain: &Chain) -> Vec<(Does, RouteId)> {
        let ends = chain.steps.iter().map(|step| &step.does);
        let ends = ends.filter(|does| !matches!(does, Does::Lookup { .. }));
        ends.map(|does| (does.clone(), self.refusal(does)))
            .collect()
    }

    fn or_miss(&mut self, route: Say) -> Result<RouteId, CompileError> {
        Ok(match route {
            Some(route) => route,
            None => self.bare_punt(PUNT_route_miss)?,
        })
    }

    /// The record of a rule that ends the search. Where there is no room for it, the kernel does the same.
    fn refusal(&mut self, does: &Does) -> RouteId {
        let record = match does {
            Does::Refuse(RouteKind::Blackhole) => self.bare_drop(),
            Does::Leave(_) => self.bare_punt(PUNT_rule),
            _ => self.bare_punt(PUNT_route_type),
        };
        record.unwrap_or_else(|_| self.full())
    }

    /// Notes the routes with `from` for a prefix that there was no room for.
    fn no_room_for(&mut self, chain: &Chain, prefix: Prefix, full: Full) {
        let words = CompileError::from(full).to_string();
        let mut keys = Vec::new();
        for table in chain.tables() {
            let winners = self.known.winners.get(&(chain.family, table));
            let covering = winners.into_iter().flat_map(|it| it.covering(prefix));
            let routes = covering.flat_map(|(_, entry)| entry.iter());
            let with_from = routes.filter(|(from, _)| from.is_some());
            keys.extend(with_from.map(|(_, winner)| winner.key));
        }
        for key in keys {
            self.name_unsupported(key, Some(words.clone()));
            self.name_lacking(key, Some(full.table));
        }
    }

    /// Nobody asks for a view any more. Of tables that are in no other, nothing is kept.
    pub(super) fn drop_view(&mut self, view: ViewId) {
        let key = self.stock.views.key(view).cloned();
        self.clear_view(view);
        if let Some(ViewKey::Vlans(_)) = key {
            return self.name_vlan_view(view, None);
        }
        self.name_view(view, None);
        let Some(ViewKey::Chain(chain)) = key else {
            return;
        };
        self.known.views.remove(&chain);
        for table in chain.tables() {
            if !self.known.is_viewed((chain.family, table)) {
                self.drop_table(chain.family, table);
            }
        }
    }

    fn drop_table(&mut self, family: Family, table: TableId) {
        let entries = self.known.entries.remove(&(family, table));
        self.known.asking.remove(&(family, table));
        for (&prefix, entry) in entries.iter().flat_map(Table::iter) {
            let place = Place {
                family,
                table,
                prefix,
            };
            for (_, found) in entry.iter() {
                self.stock.routes.let_go(found.route());
                self.leave_views(found.route());
                self.vacated.push((place, found.route()));
            }
            self.known.resolved.forget(&place);
            let winners = self.known.winners.get(&(family, table));
            let winners = winners.and_then(|it| it.get(prefix)).cloned();
            for (_, winner) in winners.iter().flat_map(Entry::iter) {
                self.name_unsupported(winner.key, None);
            }
        }
    }
}

/// The key of a view's prefix.
fn key(view: ViewId, Prefix { address, length }: Prefix) -> FibKey {
    FibKey {
        view,
        address,
        length,
    }
}

impl Known {
    /// The compiled tables of a chain's own steps, to be merged.
    fn merging<'s>(
        &'s self,
        chain: &'s Chain,
        refusals: &[(Does, RouteId)],
        last: Option<RouteId>,
    ) -> Search<'s, Found> {
        let record = |does: &Does| {
            let mut refusals = refusals.iter();
            refusals.find(|(it, _)| it == does).map(|(_, index)| *index)
        };
        let search = Search::new(
            &chain.steps,
            |table| self.entries.get(&(chain.family, table)),
            |does| record(does).map(Found::by_rule),
        );
        search.or(last.map(Found::by_rule))
    }

    /// The routes of a chain, to be searched.
    fn search<'s>(&'s self, chain: &'s Chain) -> Search<'s, Winner> {
        Search::new(
            chain.all_steps(),
            |table| self.winners.get(&(chain.family, table)),
            |_| None,
        )
    }

    /// Where chains send an address; `source`: packets from there, or from anywhere.
    pub(super) fn resolve(&self, chains: &Chains, address: IpAddr, source: Option<IpAddr>) -> Sent {
        let host = Prefix::host(address);
        let sent = match source {
            Some(source) => self.found(chains.of(source), host, Prefix::host(source)),
            None => self.resolve_for_all(chains, host),
        };
        match sent {
            // What the kernel would do there is not known.
            Sent::Nowhere if chains.leaves().is_some() => Sent::Depends,
            sent => sent,
        }
    }

    fn found(&self, chain: &Chain, host: Prefix, source: Prefix) -> Sent {
        let search = self.search(chain);
        let found = search.find(host, source);
        found.map_or(Sent::Nowhere, |winner| Sent::By(winner.key))
    }

    fn resolve_for_all(&self, chains: &Chains, host: Prefix) -> Sent {
        let mut all = chains.distinct().iter().map(|chain| {
            if self.search(chain).sources(host).is_empty() {
                self.found(chain, host, Prefix::DEFAULT)
            } else {
                Sent::Depends
            }
        });
        let first = all.next().unwrap_or(Sent::Nowhere);
        if first != Sent::Depends && all.all(|other| other == first) {
            first
        } else {
            Sent::Depends
        }
    }
}
