//! One change compiled alone: what depends on it is made anew, everything else stays.
//!
//! An entry of a table depends on the route of its prefix; if that was made for an address (a first segment, the next hop
//! of a cross-connect), on the route of that address (`resolved.rs`); a host's, on the neighbor and the route that covers
//! it. A prefix of a view depends on the entries that cover it in the tables merged there. Neighbors alone decide what
//! stands in an adjacency.
//!
//! What decides over everything is compiled as a whole: links, addresses, rules, settings, VLAN tables, whatever does not
//! fit in the prefix table or of rules, and the SIDs of SR proxies, which decide over what their ports do. (A route that other
//! tables have no room for is left to the kernel alone; whether there is room for it later, the next whole pass finds.) So is a table named by a rule that gets its
//! first route or loses its last: the chain of a SID may depend on it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_datapath::abi::sidestep_policy;
use sidestep_datapath::{RouteId, ViewId};
use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::route::{Family, Route, RouteKey, RuleAction};
use thiserror::Error;

use super::index::RouteInfo;
use super::routes::{Found, Via};
use super::rules::Chains;
use super::stock::ViewKey;
use super::tables::{Entry, Place, Prefix};
use super::{CompileError, Pass, service};

/// Why a change cannot be compiled alone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Whole {
    /// Nothing was compiled before, or it was not accepted.
    #[error("nothing is known of what was compiled before")]
    Unknown,
    /// A rule names a table that was empty, or is empty now.
    #[error("table {} came or went", .0.0)]
    Table(TableId),
    /// The SID of an SR proxy, which decides over the way back of a port, too.
    #[error("an SR proxy changes")]
    Proxy,
    /// What a view was asked for by is gone, and it may only be asked for by what is in it.
    #[error("a view may have become unreachable")]
    View,
    /// So much changes that compiling all of it costs less.
    #[error("{0} changes at once")]
    Many(usize),
    /// Prefixes, or what rules make of packets, do not fit, or did not before.
    #[error("a table is full")]
    Full,
    /// It cannot be compiled.
    #[error(transparent)]
    Error(#[from] CompileError),
}

impl Pass<'_> {
    /// Compiles what depends on these routes and neighbors.
    pub(super) fn update(
        &mut self,
        routes: &[RouteKey],
        neighbors: &[(IfIndex, IpAddr)],
    ) -> Result<(), Whole> {
        let changed = self.choose(routes)?;
        let mut dirty = BTreeSet::new();
        for place in &changed {
            dirty.insert(*place);
            dirty.extend(self.known.neighbors_in(place));
            let resolve =
                |chains: &Chains, address, source| self.known.resolve(chains, address, source);
            self.known.resolved.affected(place, resolve, &mut dirty);
            dirty.extend(self.depending_on(place));
        }
        for &(dev, address) in neighbors {
            self.neighbor(dev, address, &mut dirty)?;
        }
        if dirty.iter().any(|place| self.is_proxy(place)) {
            return Err(Whole::Proxy);
        }
        let mut moved = Vec::new();
        for place in dirty {
            if self.known.entries.contains_key(&place.of()) && self.bring(place)? {
                moved.push(place);
            }
        }
        for place in moved {
            self.merge_below(place)?;
        }
        self.views()?;
        self.keep_next_hops()?;
        self.settle();
        for (place, record) in std::mem::take(&mut self.vacated) {
            self.stand_in(place, record);
        }
        if self.out.index.is_short() {
            return Err(Whole::Full);
        }
        let left = std::mem::take(&mut self.left);
        if left.into_iter().any(|view| self.may_be_stranded(view)) {
            return Err(Whole::View);
        }
        Ok(())
    }

    /// Whether there is, or was, the SID of a proxy.
    fn is_proxy(&self, place: &Place) -> bool {
        let before = self.known.entries.get(&place.of());
        let before = before.and_then(|entries| entries.get(place.prefix));
        let mut records = before.iter().flat_map(|entry| entry.iter());
        let routes = &self.out.image.routes;
        let is = |record| routes.get(&record).is_some_and(service::is_proxy);
        let mut after = self.known.routes(self.node, place).into_iter();
        records.any(|(_, found)| is(found.route()))
            || after.any(|(_, route, _)| service::is_of_proxy(route))
    }

    /// The winners of the prefixes of these routes, which changed.
    fn choose(&mut self, routes: &[RouteKey]) -> Result<BTreeSet<Place>, Whole> {
        let mut changed = BTreeSet::new();
        for key in routes {
            let place = Place::new(key);
            if !changed.insert(place) {
                continue;
            }
            let was_there = self.known.winners.contains_key(&place.of());
            let before = self.known.choose(self.node, key);
            for (_, winner) in before.iter().flat_map(Entry::iter) {
                self.name_unsupported(winner.key, None);
            }
            let is_there = self.known.winners.contains_key(&place.of());
            if was_there != is_there && self.is_named(place.of()) {
                return Err(Whole::Table(place.table));
            }
        }
        Ok(changed)
    }

    /// Whether a rule names the table.
    fn is_named(&self, (family, table): (Family, TableId)) -> bool {
        let mut rules = self.node.rules.range((family, 0)..=(family, u32::MAX));
        let names = |action: &RuleAction| *action == RuleAction::Table(table);
        rules.any(|(_, rules)| rules.iter().any(|rule| names(&rule.action)))
    }

    /// A neighbor came, went, or has another address on its link.
    fn neighbor(
        &mut self,
        dev: IfIndex,
        address: IpAddr,
        dirty: &mut BTreeSet<Place>,
    ) -> Result<(), Whole> {
        let prefix = Prefix::host(address);
        let neighbor = self.node.neighbors.get(&(dev, address));
        if neighbor.is_some_and(|neighbor| neighbor.lladdr.is_some()) {
            self.known.neighbors.insert((prefix, dev));
        } else {
            self.known.neighbors.remove(&(prefix, dev));
        }
        let family = Family::of(&address);
        let tables = self.known.entries.keys();
        let tables = tables.filter(|(of, _)| *of == family);
        dirty.extend(tables.map(|&(family, table)| Place {
            family,
            table,
            prefix,
        }));
        let via = Via::Address(address);
        let keys = self
            .stock
            .adjacencies
            .range((dev, via, None)..=(dev, via, Some(u32::MAX)));
        let there = &self.out.image.adjacencies;
        let keys: Vec<_> = keys
            .filter(|(_, index)| there.contains_key(index))
            .collect();
        let mtus: Vec<_> = keys.into_iter().map(|((_, _, mtu), _)| *mtu).collect();
        for mtu in mtus {
            // It is there, so there is room, and its link.
            self.adjacency(dev, via, mtu).map_err(|_| Whole::Full)?;
        }
        Ok(())
    }

    /// Makes an entry anew. Whether it is another one now.
    pub(super) fn bring(&mut self, place: Place) -> Result<bool, CompileError> {
        self.known.resolved.forget(&place);
        let entry = self.entry(place)?;
        let table = self.known.entries.entry(place.of()).or_default();
        let before = if entry.is_empty() {
            table.remove(place.prefix)
        } else {
            table.insert(place.prefix, entry.clone())
        };
        let before = before.unwrap_or_default();
        if before == entry {
            return Ok(false);
        }
        let records = |entry: &Entry<Found>| -> Vec<RouteId> {
            let routes = entry.iter().map(|(_, found)| found.route());
            routes.filter(|route| route.is_some()).collect()
        };
        let mut asking = 0;
        for route in records(&entry) {
            self.stock.routes.hold(route);
            asking += isize::from(self.asks(route));
        }
        for route in records(&before) {
            self.stock.routes.let_go(route);
            asking -= isize::from(self.asks(route));
            self.leave_views(route);
            self.vacated.push((place, route));
        }
        *self.known.asking.entry(place.of()).or_insert(0) += asking;
        Ok(true)
    }

    /// A record that many routes share (those that are not counted) has the name of one of them: of another one, if that
    /// one has left it.
    fn stand_in(&mut self, place: Place, record: RouteId) {
        let Some(named) = self.out.index.routes.get(&record).cloned() else {
            return;
        };
        let Some(route) = named.route.as_ref().filter(|_| named.next_hop.is_none()) else {
            return;
        };
        if named.place() != Some(place) {
            return;
        }
        let other = self.other(place, record);
        let (neighbor, next_hop) = match other {
            Some((_, neighbor)) => (neighbor, None),
            // Only groups refer to it, or, if it is not counted, a rule.
            None if named.counter.is_none() => (None, route.next_hops.first().cloned()),
            None => (
                None,
                Some(route.next_hops.first().cloned().unwrap_or_default()),
            ),
        };
        let of_group = next_hop.is_some().then_some(route);
        let info = RouteInfo {
            route: other.map(|(route, _)| route).or(of_group).cloned(),
            neighbor,
            next_hop,
            counter: named.counter,
        };
        self.name_route(record, info);
    }

    /// Another entry with this record, the next one if it is in the same table: many that go, go in their order.
    fn other(&self, place: Place, record: RouteId) -> Option<(&Route, Option<IpAddr>)> {
        let here = self.known.entries.get(&place.of()).into_iter();
        let here = here.flat_map(|entries| entries.after(place.prefix));
        let here = here.map(|it| (place.of(), it));
        let tables = self.known.entries.iter();
        let anywhere = tables.flat_map(|(of, entries)| entries.iter().map(|it| (*of, it)));
        let has = |entry: &Entry<Found>| entry.iter().any(|(_, it)| it.route() == record);
        let ((family, table), (&prefix, entry)) =
            here.chain(anywhere).find(|(_, (_, entry))| has(entry))?;
        let other = Place {
            family,
            table,
            prefix,
        };
        let found = entry.iter().find(|(_, it)| it.route() == record)?;
        let routes = self.known.routes(self.node, &other);
        let of_source = routes.into_iter().find(|(from, ..)| *from == found.0);
        of_source.map(|(_, route, neighbor)| (route, neighbor))
    }

    /// Whether a view that something ceased to ask for may now be asked for by nothing but what is in it.
    fn may_be_stranded(&self, view: ViewId) -> bool {
        let Some(ViewKey::Chain(chain)) = self.stock.views.key(view) else {
            return false;
        };
        let mut tables = chain.tables().map(|table| (chain.family, table));
        self.stock.views.is_held(view)
            && !self.known.rooted.contains(&view)
            && tables.any(|table| {
                self.known
                    .asking
                    .get(&table)
                    .is_some_and(|&count| count > 0)
            })
    }

    /// An entry left a record, which others may share.
    pub(super) fn leave_views(&mut self, record: RouteId) {
        let image = &self.out.image;
        let Some(route) = image.routes.get(&record).filter(|_| self.asks(record)) else {
            return;
        };
        let policy = image.policies.get(&route.policy_id());
        let of_policy = policy.into_iter().flat_map(sidestep_policy::views);
        let views = route.views().into_iter().chain(of_policy);
        let members = self.out.index.groups.get(&route.group).cloned();
        self.left.extend(views.filter(|view| view.is_some()));
        for member in members.into_iter().flatten().collect::<BTreeSet<_>>() {
            self.leave_views(member);
        }
    }

    /// Whether a record may lead to a view.
    fn asks(&self, record: RouteId) -> bool {
        let record = self.out.image.routes.get(&record);
        record.is_some_and(|it| {
            it.views() != [ViewId::NONE; 2] || it.policy_id().is_some() || it.group.is_some()
        })
    }
}
