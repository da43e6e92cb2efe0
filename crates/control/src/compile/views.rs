//! Views: chains of tables merged into one prefix table each, and what leads from one to another.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use sidestep_abi::{
    PUNT_route_miss, PUNT_route_type, PUNT_rule, SIDESTEP_ROUTE_NEXT, SIDESTEP_ROUTE_SOURCE,
    sidestep_action,
};
use sidestep_datapath::FibKey;
use sidestep_model::node::TableId;
use sidestep_model::route::{Family, Route, RouteKind};

use super::chain::{Chain, Does};
use super::ids::Full;
use super::index::{Leads, ViewInfo};
use super::merge::{Answers, Say, Search};
use super::routes::{Found, record};
use super::rules::Chains;
use super::tables::{Prefix, Routing};
use super::{CompileError, Pass, ViewKey};

/// Where chains send an address.
pub(super) enum Resolved<'a> {
    /// By this route.
    Route(&'a Route),
    /// There is no route.
    Nowhere,
    /// That depends on the source.
    Depends,
}

impl<'a> Pass<'a> {
    /// The index of the view for chains: of the only one, or of what leads to each by the source address.
    pub(super) fn view_of(&mut self, chains: &Chains) -> Result<u32, Full> {
        if let Some(chain) = chains.only() {
            return self.view(chain.clone());
        }
        let family = chains.family();
        let next: Result<Vec<u32>, Full> = chains
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
    pub(super) fn view(&mut self, chain: Chain) -> Result<u32, Full> {
        let id = self.ids.views.get(&ViewKey::Chain(chain.clone()))?;
        if let Entry::Vacant(vacant) = self.out.index.views.entry(id) {
            let own = chain.steps.iter().filter_map(|step| match step.does {
                Does::Lookup { table, .. } => Some(table),
                _ => None,
            });
            vacant.insert(ViewInfo::new(chain.family, own));
            self.wanted.push((chain, id));
        }
        Ok(id)
    }

    /// The index of the view with just these prefixes, each with the index of its route.
    fn leading_view(&mut self, prefixes: Vec<(Prefix, u32)>, info: ViewInfo) -> Result<u32, Full> {
        let id = self.ids.views.get(&ViewKey::Leading(prefixes.clone()))?;
        self.out.index.views.insert(id, info);
        for (prefix, route) in prefixes {
            self.insert(id, prefix, route);
        }
        Ok(id)
    }

    fn insert(&mut self, view: u32, prefix: Prefix, route: u32) {
        let Prefix { address, length } = prefix;
        let key = FibKey {
            view,
            address,
            length,
        };
        self.out.image.fib.insert(key, route);
    }

    /// The index of a record that leads on, into a view.
    fn lead(&mut self, how: sidestep_action, family: Family, view: u32) -> Result<u32, Full> {
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
        self.out.index.leads.insert(index, leads);
        Ok(index)
    }

    /// The index of the record for destinations whose route depends on the source.
    fn by_source(&mut self, family: Family, sources: Vec<(Prefix, u32)>) -> Result<u32, Full> {
        let view = self.leading_view(sources, ViewInfo::new(family, []))?;
        self.lead(SIDESTEP_ROUTE_SOURCE, family, view)
    }

    /// Compiles the routes of every table that a view uses, then merges tables into views. Compiling a SID may ask for
    /// further views, so it goes on until none is new.
    pub(super) fn views(&mut self) -> Result<(), CompileError> {
        let mut tables: BTreeMap<(Family, TableId), Routing<Found>> = BTreeMap::new();
        while let Some((chain, view)) = self.wanted.pop() {
            for table in chain.tables() {
                if let Entry::Vacant(vacant) = tables.entry((chain.family, table)) {
                    vacant.insert(self.table(chain.family, table)?);
                }
            }
            self.fill(&chain, view, &tables)?;
        }
        Ok(())
    }

    /// Merges the tables of a chain into its view.
    fn fill(
        &mut self,
        chain: &Chain,
        view: u32,
        tables: &BTreeMap<(Family, TableId), Routing<Found>>,
    ) -> Result<(), CompileError> {
        let last = match &chain.then {
            None => None,
            Some(then) => {
                let next = self.view(Chain::clone(then));
                let next = next.and_then(|view| self.lead(SIDESTEP_ROUTE_NEXT, chain.family, view));
                Some(Found::by_rule(next.unwrap_or_else(|_| self.full())))
            }
        };
        let search = Search::new(
            &chain.steps,
            |table| tables.get(&(chain.family, table)),
            |does| Some(Found::by_rule(self.refusal(does))),
        );
        let search = search.or(last);
        for (prefix, answers) in search.merge(Found::route) {
            let route = match answers {
                Answers::All(route) => self.or_miss(route)?,
                Answers::BySource(sources) => {
                    let sources: Result<Vec<_>, CompileError> = sources
                        .into_iter()
                        .map(|(source, route)| Ok((source, self.or_miss(route)?)))
                        .collect();
                    // Where there is no room for it, the prefix is the kernel's.
                    self.by_source(chain.family, sources?)
                        .unwrap_or_else(|full| {
                            self.no_room_for(chain, prefix, full);
                            self.full()
                        })
                }
            };
            self.insert(view, prefix, route);
        }
        Ok(())
    }

    fn or_miss(&mut self, route: Say) -> Result<u32, CompileError> {
        Ok(match route {
            Some(route) => route,
            None => self.bare_punt(PUNT_route_miss)?,
        })
    }

    /// The record of a rule that ends the search. Where there is no room for it, the kernel does the same.
    fn refusal(&mut self, does: &Does) -> u32 {
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
        for table in chain.tables() {
            let Some(routing) = self.tables.get(&(chain.family, table)) else {
                continue;
            };
            let routes = routing.covering(prefix).flat_map(|(_, entry)| entry.iter());
            for (_, route) in routes.filter(|(from, _)| from.is_some()) {
                self.out.index.full.insert(route.key, full.table);
                self.out.index.unsupported.insert(route.key, words.clone());
            }
        }
    }

    /// The routes of a chain, to be searched.
    pub(super) fn search<'s>(&'s self, chain: &'s Chain) -> Search<'s, &'a Route> {
        Search::new(
            chain.all_steps(),
            |table| self.tables.get(&(chain.family, table)),
            |_| None,
        )
    }

    /// Where chains send an address; `source`: packets from there, or from anywhere.
    pub(super) fn resolve(
        &self,
        chains: &Chains,
        address: IpAddr,
        source: Option<IpAddr>,
    ) -> Resolved<'a> {
        let host = Prefix::host(address);
        let resolved = match source {
            Some(source) => self.found(chains.of(source), host, Prefix::host(source)),
            None => self.resolve_for_all(chains, host),
        };
        match resolved {
            // What the kernel would do there is not known.
            Resolved::Nowhere if chains.leaves().is_some() => Resolved::Depends,
            resolved => resolved,
        }
    }

    fn found(&self, chain: &Chain, host: Prefix, source: Prefix) -> Resolved<'a> {
        let found = self.search(chain).find(host, source).copied();
        found.map_or(Resolved::Nowhere, Resolved::Route)
    }

    fn resolve_for_all(&self, chains: &Chains, host: Prefix) -> Resolved<'a> {
        let mut all = chains.distinct().iter().map(|chain| {
            if self.search(chain).sources(host).is_empty() {
                self.found(chain, host, Prefix::DEFAULT)
            } else {
                Resolved::Depends
            }
        });
        let first = all.next().unwrap_or(Resolved::Nowhere);
        if all.all(|other| other.is(&first)) {
            first
        } else {
            Resolved::Depends
        }
    }
}

impl Resolved<'_> {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Route(a), Self::Route(b)) => a.key == b.key,
            (Self::Nowhere, Self::Nowhere) => true,
            _ => false,
        }
    }
}
