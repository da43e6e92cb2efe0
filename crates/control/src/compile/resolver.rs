//! Resolver: the winning route for each prefix of a table, and the route that rule chains give an
//! address.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use sidestep_model::behavior::proxy;
use sidestep_model::node::{IfIndex, Node, TableId};
use sidestep_model::policy::Steering;
use sidestep_model::route::{Encap, Family, NextHop, Route, RouteKey, RouteKind};

use super::chain::Chain;
use super::lookups::{Lookups, Resolution};
use super::merge::Search;
use super::rules::{self, Chains, Source};
use super::tables::{Entry, EntryKey, Found, LookupResult as _, Prefix, Routing, Winner};

/// Origin of packets, as far as rules distinguish it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SourceKey {
    family: Family,
    /// The interface and the VRF, if rules name them.
    seen: [Option<String>; 2],
    /// Table of the VRF.
    vrf: Option<TableId>,
}

/// Rule chains of the ports for IPv4 or IPv6 addresses.
#[derive(Debug, Default)]
pub(super) struct PortChains {
    /// Distinct chains.
    pub distinct: Vec<Arc<Chains>>,
    /// Position of each port's chains in `distinct`; none if only the kernel can evaluate its rules.
    pub by_port: BTreeMap<IfIndex, Option<usize>>,
}

impl PortChains {
    /// Sets the chains of a port.
    pub fn set(&mut self, port: IfIndex, chains: Option<Arc<Chains>>) {
        let place = chains.map(|chains| {
            let known = self.distinct.iter().position(|known| *known == chains);
            known.unwrap_or_else(|| {
                self.distinct.push(chains);
                self.distinct.len() - 1
            })
        });
        self.by_port.insert(port, place);
    }
}

/// Routing tables and rules of a node.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    /// Interfaces that rules with `iif` name.
    named: BTreeSet<String>,
    /// Rule chains for each origin that rules distinguish.
    chains: BTreeMap<SourceKey, Result<Arc<Chains>, String>>,
    /// Winning route for each prefix of each table: the one with the lowest metric. Routes with a
    /// TOS are punted.
    pub winners: BTreeMap<(Family, TableId), Routing<Winner>>,
    /// Rule chains by which SIDs and headends look up next hops.
    pub of_ports: BTreeMap<Family, Arc<PortChains>>,
    /// Addresses of resolved neighbors, with their links.
    pub neighbors: BTreeSet<(Prefix, IfIndex)>,
    /// Lookups that entries depend on.
    pub lookups: Lookups,
}

impl Resolver {
    /// Returns the resolver of a node, with nothing compiled.
    pub fn new(node: &Node) -> Self {
        let mut resolver = Self {
            named: rules::named(node),
            ..Self::default()
        };
        let routes = node.routes.values();
        let mut winners: BTreeMap<_, Vec<(Prefix, Entry<Winner>)>> = BTreeMap::new();
        for route in routes.filter(|route| !is_return_only(route)) {
            let EntryKey {
                family,
                table_id,
                prefix,
            } = EntryKey::new(&route.key);
            let entries = winners.entry((family, table_id)).or_default();
            // The routes of a prefix follow each other.
            match entries.last_mut() {
                Some((last, entry)) if *last == prefix => compete(entry, route),
                _ => {
                    let mut entry = Entry::default();
                    compete(&mut entry, route);
                    entries.push((prefix, entry));
                }
            }
        }
        let winners = winners.into_iter();
        resolver.winners = winners
            .map(|(table, entries)| (table, entries.into_iter().collect()))
            .collect();
        for (&(dev, address), neighbor) in &node.neighbors {
            if neighbor.lladdr.is_some() {
                resolver.neighbors.insert((Prefix::host(address), dev));
            }
        }
        resolver
    }

    /// Returns the rule chains of a source, computed once for all sources that rules do not
    /// distinguish.
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
        let seen = [source.iif, source.maybe_iif].map(named);
        let key = SourceKey {
            family,
            seen,
            vrf: source.vrf,
        };
        let chains = || rules::chains(node, family, source).map(Arc::new);
        self.chains.entry(key).or_insert_with(chains).clone()
    }

    /// Returns the rule chains of the ports.
    pub fn of_ports(&self, family: Family) -> Arc<PortChains> {
        self.of_ports.get(&family).cloned().unwrap_or_default()
    }

    /// Updates the winner after routes to a prefix changed, and returns the former one.
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
        for (_, route) in of_prefix.filter(|(_, route)| !is_return_only(route)) {
            compete(&mut entry, route);
        }
        let key = EntryKey::new(changed);
        if !entry.is_empty() {
            let table = self.winners.entry(key.table()).or_default();
            return table.insert(key.prefix, entry);
        }
        let table = self.winners.get_mut(&key.table())?;
        let before = table.remove(key.prefix);
        if table.is_empty() {
            self.winners.remove(&key.table());
        }
        before
    }

    /// Returns the routes of an entry. For a host that is a neighbor, these are the covering routes
    /// on its link, narrowed to the neighbor.
    pub fn routes<'a>(&self, node: &'a Node, entry: &EntryKey) -> Vec<Candidate<'a>> {
        let Some(winners) = self.winners.get(&entry.table()) else {
            return Vec::new();
        };
        let all = |prefix: Prefix, of_prefix: &Entry<Winner>| -> Vec<Candidate<'a>> {
            let here = EntryKey { prefix, ..*entry };
            let candidate = |(from, winner): (Option<Prefix>, &Winner)| {
                Some(Candidate {
                    from,
                    route: node.routes.get(&winner.key(&here, from))?,
                    neighbor: None,
                })
            };
            of_prefix.iter().filter_map(candidate).collect()
        };
        let address = entry.prefix.address(entry.family);
        let address = address.filter(|address| !is_link_local(*address));
        if let Some(address) = address
            && let Some((prefix, covering)) = winners.longest_match(entry.prefix)
        {
            let mut routes = all(prefix, covering);
            for candidate in &mut routes {
                let ip = self.ip_route(node, candidate.route);
                let is = ip.is_some_and(|route| is_neighbor(node, route, address));
                candidate.neighbor = is.then_some(address);
            }
            if routes.iter().any(|it| it.neighbor.is_some()) {
                return routes;
            }
        }
        let of_prefix = winners.get(entry.prefix);
        of_prefix
            .map(|it| all(entry.prefix, it))
            .unwrap_or_default()
    }

    /// Follows routes that steer by DSCP to the route for the other packets.
    fn ip_route<'a>(&self, node: &'a Node, mut route: &'a Route) -> Option<&'a Route> {
        while by_dscp(route).is_some() {
            route = self.next_best(node, &route.key)?;
        }
        Some(route)
    }

    /// Returns the route for packets that a policy route does not steer. It is the IP route with
    /// the same prefix in that table, for a covering source; otherwise the route to the longest
    /// covering prefix.
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

    /// Returns the route of the same table to the longest prefix that covers this one.
    fn covering<'a>(&self, node: &'a Node, key: &RouteKey) -> Option<&'a Route> {
        let entry = EntryKey::new(key);
        let winners = self.winners.get(&entry.table())?;
        let mut around = winners.covering(entry.prefix);
        let (prefix, above) =
            around.find(|(prefix, it)| *prefix != entry.prefix && !it.has_sources())?;
        let winner = above.get(None)?;
        node.routes
            .get(&winner.key(&EntryKey { prefix, ..entry }, None))
    }

    /// Returns the search through the routes of a chain.
    fn search<'s>(&'s self, chain: &'s Chain) -> Search<'s, Winner> {
        Search::new(
            chain.all_steps(),
            |table| self.winners.get(&(chain.family, table)),
            |_| None,
        )
    }

    /// Resolves an address with rule chains, for packets from `source` or from any source.
    pub fn resolve(&self, chains: &Chains, address: IpAddr, source: Option<IpAddr>) -> Resolution {
        let host = Prefix::host(address);
        let resolution = match source {
            Some(source) => self.resolve_in(chains.of(source), host, Prefix::host(source)),
            None => self.resolve_for_all(chains, host),
        };
        match resolution {
            // The result of a rule that only the kernel can evaluate is unknown.
            Resolution::NoRoute if chains.punt_reason().is_some() => Resolution::Depends,
            resolution => resolution,
        }
    }

    fn resolve_in(&self, chain: &Chain, host: Prefix, source: Prefix) -> Resolution {
        let search = self.search(chain);
        let found = search.find(host, source);
        found.map_or(Resolution::NoRoute, |(table, found)| {
            Resolution::Route(key_of((chain.family, table), found))
        })
    }

    fn resolve_for_all(&self, chains: &Chains, host: Prefix) -> Resolution {
        let mut all = chains.distinct().iter().map(|chain| {
            if self.search(chain).sources(host).is_empty() {
                self.resolve_in(chain, host, Prefix::DEFAULT)
            } else {
                Resolution::Depends
            }
        });
        let first = all.next().unwrap_or(Resolution::NoRoute);
        if first != Resolution::Depends && all.all(|other| other == first) {
            first
        } else {
            Resolution::Depends
        }
    }

    /// Returns the hosts in a prefix that are neighbors.
    pub fn neighbors_in(&self, entry: &EntryKey) -> impl Iterator<Item = EntryKey> {
        let ((first, last), of) = (entry.prefix.bounds(), *entry);
        let from = Prefix {
            address: first,
            length: 0,
        };
        self.neighbors
            .range((from, IfIndex(0))..)
            .map(|(host, _)| *host)
            .take_while(move |host| host.address <= last)
            .filter(move |host| host.address(of.family).is_some())
            .map(move |prefix| EntryKey { prefix, ..of })
    }
}

/// A route for an entry of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    /// Source prefix of the packets; none: all sources.
    pub from: Option<Prefix>,
    /// The route.
    pub route: &'a Route,
    /// Neighbor that a connected route is narrowed to.
    pub neighbor: Option<IpAddr>,
}

/// Returns the key of a route that a search found in a table.
pub(super) fn key_of((family, table_id): (Family, TableId), found: Found<'_, Winner>) -> RouteKey {
    let Found {
        route,
        prefix,
        from,
    } = found;
    let entry = EntryKey {
        family,
        table_id,
        prefix,
    };
    route.key(&entry, from)
}

/// Whether a route only defines the return path of an SR proxy (`chain fromVNF`). The port
/// identifies returned packets, so such a route takes none.
fn is_return_only(route: &Route) -> bool {
    let local = |hop: &NextHop| match &hop.encap {
        Some(Encap::Seg6Local(local)) => local.proxy.chain == Some(proxy::Chain::FromVnf),
        _ => false,
    };
    !route.next_hops.is_empty() && route.next_hops.iter().all(local)
}

/// Sets a route for its source prefix if it wins there.
fn compete(entry: &mut Entry<Winner>, route: &Route) {
    let from = route.key.from.filter(|from| from.prefix_len() > 0);
    let from = from.map(Prefix::from);
    let wins = entry.get(from).is_none_or(|there| {
        // A route with a TOS punts the whole prefix, unless Sidestep has a route for the others.
        match (there.tos, route.key.tos) {
            (0, 0) => route.key.metric < there.metric,
            (0, _) => !there.is_own(),
            (_, 0) => !route.owner.in_kernel(),
            _ => route.key.metric < there.metric,
        }
    });
    if wins {
        entry.set(from, route.into());
    }
}

/// Whether a route is connected, on the link where the address is a resolved neighbor.
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

pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if a.is_unicast_link_local())
}

/// Returns the steering of a route that steers by DSCP.
pub(super) fn by_dscp(route: &Route) -> Option<&Steering> {
    let mut encaps = route.next_hops.iter().filter_map(|hop| hop.encap.as_ref());
    encaps.find_map(|encap| match encap {
        Encap::Policy(steering) if !steering.by_dscp.is_empty() => Some(steering),
        _ => None,
    })
}
