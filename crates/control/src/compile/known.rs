//! What a pass leaves behind for the next one, which compiles only what has changed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use sidestep_datapath::{KeySlot, RouteId, ViewId};
use sidestep_model::behavior::proxy;
use sidestep_model::node::{IfIndex, Node, TableId};
use sidestep_model::route::{Encap, Family, NextHop, Route, RouteKey, RouteKind};

use super::chain::Chain;
use super::policy::by_dscp;
use super::resolved::Resolved;
use super::routes::Found;
use super::rules::{self, Chains, Source};
use super::tables::{self, Entry, Place, Prefix, Routing, Winner};

/// Of which family, the interface and the VRF as far as rules name them, and the VRF's table.
type SourceKey = (Family, [Option<String>; 2], Option<TableId>);

/// Routing tables and views, compiled.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The interfaces that rules with `iif` name.
    pub named: BTreeSet<String>,
    /// What rules make of packets from each place that they tell apart.
    pub chains: BTreeMap<SourceKey, Result<Arc<Chains>, String>>,
    /// Per table and prefixes the route that wins: the lowest metric (and no TOS: those are the kernel's).
    pub winners: BTreeMap<(Family, TableId), Routing<Winner>>,
    /// What was made of the tables that a view uses.
    pub entries: BTreeMap<(Family, TableId), Routing<Found>>,
    /// The chains that all ports share, per family, if they do: then next hops can be resolved ahead.
    pub common: BTreeMap<Family, Chains>,
    /// The views, by what they are merged of.
    pub views: BTreeMap<Chain, ViewId>,
    /// Those of them that ports ask for.
    pub rooted: BTreeSet<ViewId>,
    /// Addresses of neighbors that can be used, and the links that they are on.
    pub neighbors: BTreeSet<(Prefix, IfIndex)>,
    /// How many records of a table's entries may lead to a view.
    pub asking: BTreeMap<(Family, TableId), isize>,
    /// What was looked up to make the entries.
    pub resolved: Resolved,
    /// HMAC keys by id: their slots.
    pub hmac_keys: BTreeMap<u32, KeySlot>,
    /// Route records that keep the counters of segment lists, also while they are not valid.
    pub kept_counters: BTreeSet<RouteId>,
    /// The next hops of segment lists, and the route records that keep them.
    pub kept_next_hops: (BTreeSet<(IfIndex, IpAddr)>, BTreeSet<RouteId>),
    /// The route record of what did not fit: it leaves packets to the kernel.
    pub full: RouteId,
}

impl Known {
    /// Of the node, with nothing compiled.
    pub fn of(node: &Node) -> Self {
        let mut known = Self {
            named: rules::named(node),
            ..Self::default()
        };
        let routes = node.routes.iter().filter(|(_, route)| !is_way_back(route));
        for (key, route) in routes {
            let table = (tables::family(&key.prefix), key.table);
            let table = known.winners.entry(table).or_default();
            contend(table.entry(key.prefix.into()), route);
        }
        for (&(dev, address), neighbor) in &node.neighbors {
            if neighbor.lladdr.is_some() {
                known.neighbors.insert((Prefix::host(address), dev));
            }
        }
        known
    }

    /// As [`rules::chains`], once for all sources that rules do not tell apart.
    pub fn chains(
        &mut self,
        node: &Node,
        family: Family,
        source: Source<'_>,
    ) -> Result<Arc<Chains>, String> {
        let named = |name: Option<&str>| {
            let name = name.filter(|name| self.named.contains(*name));
            name.map(str::to_owned)
        };
        let seen = [source.iif, source.perhaps].map(named);
        let key = (family, seen, source.vrf);
        let chains = || rules::chains(node, family, source).map(Arc::new);
        self.chains.entry(key).or_insert_with(chains).clone()
    }

    /// Routes to a prefix changed. What was there before.
    pub fn choose(&mut self, node: &Node, changed: &RouteKey) -> Option<Entry<Winner>> {
        let first = RouteKey {
            from: None,
            tos: 0,
            metric: 0,
            ..*changed
        };
        let of_prefix = node
            .routes
            .range(first..)
            .take_while(|(key, _)| (key.table, key.prefix) == (changed.table, changed.prefix));
        let mut entry = Entry::default();
        for (_, route) in of_prefix.filter(|(_, route)| !is_way_back(route)) {
            contend(&mut entry, route);
        }
        let place = Place::new(changed);
        if !entry.is_empty() {
            let table = self.winners.entry(place.of()).or_default();
            return table.insert(place.prefix, entry);
        }
        let table = self.winners.get_mut(&place.of())?;
        let before = table.remove(place.prefix);
        if table.is_empty() {
            self.winners.remove(&place.of());
        }
        before
    }

    /// The routes that an entry is made of, each with its source prefix and with the neighbor that it is narrowed to: to
    /// a host that is a neighbor on the link of the routes that cover it, these.
    pub fn routes<'a>(&self, node: &'a Node, place: &Place) -> Vec<Contender<'a>> {
        let Some(winners) = self.winners.get(&place.of()) else {
            return Vec::new();
        };
        let all = |entry: &Entry<Winner>| -> Vec<Contender<'a>> {
            let contender = |(from, winner): (Option<Prefix>, &Winner)| {
                Some((from, node.routes.get(&winner.key)?, None))
            };
            entry.iter().filter_map(contender).collect()
        };
        let address = place.prefix.address(place.family);
        let address = address.filter(|address| !is_link_local(*address));
        if let (Some(address), Some((_, covering))) = (address, winners.longest_match(place.prefix))
        {
            let mut routes = all(covering);
            for (_, route, neighbor) in &mut routes {
                let ip = self.ip_route(node, route);
                let is = ip.is_some_and(|route| is_neighbor(node, route, address));
                *neighbor = is.then_some(address);
            }
            if routes.iter().any(|(_, _, neighbor)| neighbor.is_some()) {
                return routes;
            }
        }
        winners.get(place.prefix).map(all).unwrap_or_default()
    }

    /// The route of what a route leaves to others that steers by DSCP; any other route itself.
    fn ip_route<'a>(&self, node: &'a Node, mut route: &'a Route) -> Option<&'a Route> {
        while by_dscp(route).is_some() {
            route = self.next_best(node, &route.key)?;
        }
        Some(route)
    }

    /// The route that packets take which a route into policies does not steer: the IP route of the same table with its
    /// prefix, for sources around its own, else the route to the longest prefix around it.
    pub fn next_best<'a>(&self, node: &'a Node, key: &RouteKey) -> Option<&'a Route> {
        let takes = |from: IpNet| key.from.is_some_and(|own| from.contains(&own));
        let same = node.plain_routes(key.table, key.prefix);
        let same = same.filter(|route| route.key.from.is_none_or(takes));
        let best = same.min_by_key(|route| {
            let bits = route.key.from.map_or(0, |from| from.prefix_len());
            (Reverse(bits), route.key.metric)
        });
        let route = best.or_else(|| self.covering(node, key))?;
        (route.kind != RouteKind::Throw).then_some(route)
    }

    /// The route of the same table to the longest prefix around one.
    fn covering<'a>(&self, node: &'a Node, key: &RouteKey) -> Option<&'a Route> {
        let place = Place::new(key);
        let winners = self.winners.get(&place.of())?;
        let mut around = winners.covering(place.prefix);
        let (_, entry) =
            around.find(|(prefix, entry)| *prefix != place.prefix && !entry.has_sources())?;
        let winner = entry.get(None)?;
        node.routes.get(&winner.key)
    }

    /// Hosts in a prefix that are neighbors.
    pub fn neighbors_in(&self, place: &Place) -> impl Iterator<Item = Place> {
        let ((first, last), of) = (place.prefix.bounds(), *place);
        let from = Prefix {
            address: first,
            length: 0,
        };
        self.neighbors
            .range((from, IfIndex(0))..)
            .map(|(host, _)| *host)
            .take_while(move |host| host.address <= last)
            .filter(move |host| host.address(of.family).is_some())
            .map(move |prefix| Place { prefix, ..of })
    }

    /// Whether a view is merged of this table.
    pub fn is_viewed(&self, table: (Family, TableId)) -> bool {
        self.views.keys().any(|chain| chain.asks(table))
    }
}

/// Source prefix, route, and the neighbor that it is narrowed to.
pub(super) type Contender<'a> = (Option<Prefix>, &'a Route, Option<IpAddr>);

/// Whether a route says no more than where packets of an SR proxy's service come back, which is known by the port: it takes
/// none, also where a rule leads to its table (`chain fromVNF`).
fn is_way_back(route: &Route) -> bool {
    let local = |hop: &NextHop| match &hop.encap {
        Some(Encap::Seg6Local(local)) => local.proxy.chain == Some(proxy::Chain::FromVnf),
        _ => false,
    };
    !route.next_hops.is_empty() && route.next_hops.iter().all(local)
}

/// Sets a route for its source prefix if it wins there.
fn contend(entry: &mut Entry<Winner>, route: &Route) {
    let from = route.key.from.filter(|from| from.prefix_len() > 0);
    let from = from.map(Prefix::from);
    // A TOS makes the whole prefix the kernel's.
    let rank = |key: &RouteKey| (key.tos == 0, key.metric);
    let there = entry.get(from);
    if there.is_none_or(|winner| rank(&route.key) < rank(&winner.key)) {
        entry.set(from, route.into());
    }
}

/// Whether a route leads to the link on which the address is a neighbor's.
fn is_neighbor(node: &Node, route: &Route, address: IpAddr) -> bool {
    let [hop] = &route.next_hops[..] else {
        return false;
    };
    let neighbor = hop.dev.and_then(|dev| node.neighbors.get(&(dev, address)));
    route.kind == RouteKind::Unicast
        && route.key.tos == 0
        && hop.via.is_none()
        && hop.encap.is_none()
        && neighbor.is_some_and(|neighbor| neighbor.lladdr.is_some())
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if a.is_unicast_link_local())
}
