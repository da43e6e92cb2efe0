//! Routes as records: the action of a route, its next hop, its policy.

use std::net::{IpAddr, Ipv6Addr};

use sidestep_datapath::abi::{
    DROP_blackhole, PUNT_egress, PUNT_local, PUNT_multicast, PUNT_neighbor, PUNT_route_type,
    PUNT_table_full, PUNT_unsupported, SIDESTEP_ADJACENCY_VALID, SIDESTEP_ADJACENCY_XDP,
    SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_PUNT, SIDESTEP_ROUTE_SIDESTEP_ONLY,
    sidestep_action, sidestep_adjacency, sidestep_reason, sidestep_route,
};
use sidestep_datapath::{AdjacencyId, CounterId, KeySlot, RouteId, ViewId};
use sidestep_model::behavior::Seg6Encap;
use sidestep_model::node::{IfIndex, LinkKind, Mac, TableId};
use sidestep_model::route::{Encap, Family, NextHop, Owner, Route, RouteKind};

use super::group;
use super::ids::Full;
use super::index::{AdjacencyInfo, Counted, RouteInfo};
use super::merge::Say;
use super::policy::by_dscp;
use super::tables::{self, Entry, Place, Prefix, Verdict, Winner};
use super::{CompileError, Pass};

/// What tells one route record from another: all of it.
pub(crate) type RouteRecord = sidestep_route;
/// Egress, next hop, MTU of the route if it has one of its own.
pub(crate) type AdjacencyKey = (IfIndex, Via, Option<u32>);

/// Who takes what leaves by an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Via {
    /// The link: a frame as it is (End.DX2), which needs no neighbor.
    Link,
    /// The neighbor with that address.
    Address(IpAddr),
    /// Whoever has that Ethernet address.
    Ethernet(Mac),
}
/// Encapsulation, source, hop limit, flow label mode, adjacency, view, HMAC key.
pub(crate) type PolicyKey = (Seg6Encap, Ipv6Addr, u8, u8, AdjacencyId, ViewId, KeySlot);

/// What a table says, compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// None: to go on with the next rule.
    route: Say,
    /// Bits of the prefix up to which it is suppressed, if it can be (`suppress_prefixlength`).
    bits: Option<u8>,
}

impl Found {
    fn of(route: &Route, index: Say) -> Self {
        let bits = route.key.prefix.prefix_len();
        Self {
            route: index,
            bits: Winner::from(route).is_suppressed(bits).then_some(bits),
        }
    }

    /// What a rule says itself.
    pub(super) const fn by_rule(index: RouteId) -> Self {
        Self {
            route: Some(index),
            bits: None,
        }
    }

    /// The index of the route, of what does not throw.
    pub(super) fn route(&self) -> RouteId {
        self.route.unwrap_or(RouteId::NONE)
    }
}

impl Verdict for Found {
    fn throws(&self) -> bool {
        self.route.is_none()
    }

    fn is_suppressed(&self, bits: u8) -> bool {
        self.bits.is_some_and(|own| own <= bits)
    }
}

/// A route that the packet path leaves to the kernel: the packet's reason, and words for the operator.
pub(super) enum Unsupported {
    /// The fast path cannot express it.
    Because(sidestep_reason, String),
    /// A table has no room for it.
    Full(Full),
}

pub(super) fn unsupported<T>(words: impl Into<String>) -> Result<T, Unsupported> {
    Err(Unsupported::Because(PUNT_unsupported, words.into()))
}

/// The record for a route, and why it is left to the kernel, if it is; or what has no room for it.
pub(super) type Recorded = Result<(sidestep_route, Option<String>), Full>;

/// `Err(Err(_))` ends the compilation, `Err(Ok(_))` only this route.
pub(super) type Outcome<T> = Result<T, Result<Unsupported, CompileError>>;

pub(super) fn left<T>(result: Result<T, Unsupported>) -> Outcome<T> {
    result.map_err(Ok)
}

/// Where a table is full, the route is the kernel's.
pub(super) fn room<T>(result: Result<T, Full>) -> Outcome<T> {
    result.map_err(|full| Ok(Unsupported::Full(full)))
}

pub(super) fn record(action: sidestep_action) -> sidestep_route {
    sidestep_route {
        action: action as u8,
        ..Default::default()
    }
}

pub(super) fn punt(reason: sidestep_reason) -> sidestep_route {
    sidestep_route {
        reason: reason as u8,
        ..record(SIDESTEP_ROUTE_PUNT)
    }
}

impl Pass<'_> {
    /// Compiles all routes of one table, with a host route for each neighbor on a connected prefix.
    pub(super) fn table(&mut self, family: Family, table: TableId) -> Result<(), CompileError> {
        self.known.entries.entry((family, table)).or_default();
        let Some(winners) = self.known.winners.get(&(family, table)) else {
            return Ok(());
        };
        // Our own first: where there is no room for all, the kernel can stand in for the others.
        let node = self.node;
        let is_ours = |entry: &Entry<Winner>| {
            let mut routes = entry.iter().map(|(_, winner)| &node.routes[&winner.key]);
            routes.any(|route| route.owner == Owner::Sidestep)
        };
        let (ours, others): (Vec<_>, Vec<_>) =
            winners.iter().partition(|(_, entry)| is_ours(entry));
        let hosts = self.known.neighbors.iter().map(|(host, _)| host);
        let prefixes: Vec<Prefix> = ours
            .iter()
            .chain(&others)
            .map(|(prefix, _)| *prefix)
            .chain(hosts)
            .copied()
            .collect();
        for prefix in prefixes {
            self.bring(Place {
                family,
                table,
                prefix,
            })?;
        }
        Ok(())
    }

    /// What a table says of a prefix. Empty: it has none of this length.
    pub(super) fn entry(&mut self, place: Place) -> Result<Entry<Found>, CompileError> {
        self.place = Some(place);
        let mut entry = Entry::default();
        let routes = self.known.routes(self.node, &place);
        for (_, route, neighbor) in &routes {
            if neighbor.is_none() {
                self.name_unsupported(route.key, None);
            }
        }
        for (from, route, neighbor) in routes {
            let index = match route.kind {
                RouteKind::Throw if route.key.tos == 0 => None,
                _ => Some(self.route(route, neighbor)?),
            };
            entry.set(from, Found::of(route, index));
        }
        Ok(entry)
    }

    /// The index of the record for a route, narrowed to a neighbor on its link or not.
    fn route(&mut self, route: &Route, neighbor: Option<IpAddr>) -> Result<RouteId, CompileError> {
        let (record, left) = match self.record_of(route, neighbor)? {
            Ok(found) => found,
            Err(full) if neighbor.is_some() && by_dscp(route).is_some() => {
                // Its other packets are the kernel's then, and what is steered is not lost.
                let index = self.route(route, None)?;
                let instead = "; the kernel forwards to neighbors what is not steered";
                self.name_full(route, full, instead);
                return Ok(index);
            }
            Err(full) => return Ok(self.no_room(route, full)),
        };
        if left.is_some() {
            self.name_unsupported(route.key, left);
        }
        let index = match self.intern(record) {
            Ok(index) => index,
            Err(full) => return Ok(self.no_room(route, full)),
        };
        self.name(index, route, neighbor, None);
        Ok(index)
    }

    /// The record for a route.
    pub(super) fn record_of(
        &mut self,
        route: &Route,
        neighbor: Option<IpAddr>,
    ) -> Result<Recorded, CompileError> {
        let counter = self.counter(Counted::Route(route.key));
        let (mut record, left) = match self.action(route, neighbor) {
            Ok(record) => (record, None),
            Err(Ok(Unsupported::Because(reason, words))) => (punt(reason), Some(words)),
            Err(Ok(Unsupported::Full(full))) => return Ok(Err(full)),
            Err(Err(error)) => return Err(error),
        };
        if route.owner == Owner::Sidestep {
            record.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
        }
        // Onto the only list of a policy: that is counted.
        if record.counter.is_none() {
            record.counter = counter;
        }
        Ok(Ok((record, left)))
    }

    /// Where it is counted, and that it is. A full counter table costs the counters of what comes last, never the
    /// forwarding: 0.
    pub(super) fn counter(&mut self, of: Counted) -> CounterId {
        let Ok(slot) = self.stock.counters.get(&of) else {
            return CounterId::NONE;
        };
        self.name_counter(of, Some(slot));
        slot
    }

    /// Says what a record stands for, unless another route that shares it was first. (What only a group refers to is second.)
    pub(super) fn name(
        &mut self,
        record: RouteId,
        route: &Route,
        neighbor: Option<IpAddr>,
        next_hop: Option<&NextHop>,
    ) {
        let info = RouteInfo {
            route: Some(route.clone()),
            neighbor,
            next_hop: next_hop.cloned(),
            counter: self.out.image.routes[&record].counter,
        };
        let there = self.out.index.routes.get(&record);
        // Nobody's, as those that are kept for segment lists: it has the name of who shares it.
        let is_anothers = |there: &RouteInfo| {
            there.route.is_some()
                && (there.next_hop.is_none() && next_hop.is_some()
                    || there.next_hop.is_none() == next_hop.is_none()
                        && there.place() != info.place())
        };
        if !there.is_some_and(is_anothers) {
            self.name_route(record, info);
        }
    }

    /// The record of a route that a table has no room for. (Of one of our own, which the kernel does not have, packets are
    /// dropped.)
    fn no_room(&mut self, route: &Route, full: Full) -> RouteId {
        self.name_full(route, full, "");
        self.full()
    }

    /// Says that a table has no room for a route, and what becomes of its packets, unless they are left to the kernel.
    pub(super) fn name_full(&mut self, route: &Route, full: Full, instead: &str) {
        let words = format!("{}{instead}", CompileError::from(full));
        self.name_unsupported(route.key, Some(words));
        self.name_lacking(route.key, Some(full.table));
    }

    /// The record for what does not fit, which is in the tables if anything refers to it.
    pub(super) fn full(&mut self) -> RouteId {
        // It has its index since the pass began.
        self.bare(punt(PUNT_table_full)).unwrap_or(self.known.full)
    }

    /// A rule's own `blackhole`.
    pub(super) fn bare_drop(&mut self) -> Result<RouteId, Full> {
        self.bare(sidestep_route {
            reason: DROP_blackhole as u8,
            ..record(SIDESTEP_ROUTE_DROP)
        })
    }

    /// A rule's own `unreachable` or `prohibit`.
    pub(super) fn bare_punt(&mut self, reason: sidestep_reason) -> Result<RouteId, Full> {
        self.bare(punt(reason))
    }

    pub(super) fn bare(&mut self, record: sidestep_route) -> Result<RouteId, Full> {
        let index = self.intern(record)?;
        let nobodys = RouteInfo {
            route: None,
            neighbor: None,
            next_hop: None,
            counter: CounterId::NONE,
        };
        self.name_route(index, nobodys);
        Ok(index)
    }

    fn action(&mut self, route: &Route, neighbor: Option<IpAddr>) -> Outcome<sidestep_route> {
        if route.key.tos != 0 {
            return left(unsupported("selects by TOS"));
        }
        match route.kind {
            RouteKind::Unicast => {}
            RouteKind::Local | RouteKind::Anycast => return Ok(punt(PUNT_local)),
            RouteKind::Broadcast | RouteKind::Multicast => return Ok(punt(PUNT_multicast)),
            RouteKind::Blackhole => {
                return Ok(sidestep_route {
                    reason: DROP_blackhole as u8,
                    ..record(SIDESTEP_ROUTE_DROP)
                });
            }
            RouteKind::Unreachable | RouteKind::Prohibit | RouteKind::Throw => {
                return Ok(punt(PUNT_route_type));
            }
            RouteKind::Other(number) => return left(unsupported(format!("route type {number}"))),
        }
        match &group::alive(&route.next_hops)[..] {
            [] => left(unsupported("no next hop")),
            [next_hop] => self.way(route, next_hop, neighbor),
            several => self.multipath(route, several),
        }
    }

    /// The record for one next hop of a route.
    pub(super) fn way(
        &mut self,
        route: &Route,
        next_hop: &NextHop,
        neighbor: Option<IpAddr>,
    ) -> Outcome<sidestep_route> {
        match &next_hop.encap {
            None => self.plain(route, next_hop, neighbor),
            Some(Encap::Seg6(encap)) => {
                self.headend(tables::family(&route.key.prefix), next_hop, encap)
            }
            Some(Encap::Seg6Local(local)) => self.endpoint(&route.key, next_hop, local),
            Some(Encap::Policy(steering)) => self.steered(route, steering, neighbor),
            Some(Encap::Binding(policy)) => {
                self.steered_first(route, std::iter::once(policy.as_str()))
            }
            Some(Encap::Unsupported(words)) => left(unsupported(words.clone())),
        }
    }

    fn plain(
        &mut self,
        route: &Route,
        next_hop: &NextHop,
        neighbor: Option<IpAddr>,
    ) -> Outcome<sidestep_route> {
        let Some(dev) = next_hop.dev else {
            return left(unsupported("no device"));
        };
        match self.node.links.get(&dev).map(|link| &link.kind) {
            Some(LinkKind::Loopback) => return Ok(punt(PUNT_local)),
            Some(LinkKind::NotEthernet(_) | LinkKind::Vrf { .. }) => return Ok(punt(PUNT_egress)),
            Some(_) => {}
            None => return left(unsupported("its device is not there")),
        }
        match next_hop.via.or(neighbor) {
            Some(via) => {
                let adjacency = self.adjacency(dev, Via::Address(via), route.mtu)?;
                Ok(sidestep_route {
                    adjacency,
                    ..record(SIDESTEP_ROUTE_FORWARD)
                })
            }
            None => Ok(punt(PUNT_neighbor)),
        }
    }

    pub(super) fn adjacency(
        &mut self,
        dev: IfIndex,
        via: Via,
        mtu: Option<u32>,
    ) -> Outcome<AdjacencyId> {
        let Some(link) = self.node.links.get(&dev) else {
            return left(unsupported("its device is not there"));
        };
        let index = room(self.stock.adjacencies.get(&(dev, via, mtu)))?;
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
        let flags = [
            (valid, SIDESTEP_ADJACENCY_VALID),
            (link.xdp_transmit, SIDESTEP_ADJACENCY_XDP),
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
            mtu: mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
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
}

pub(super) fn is_ethernet(kind: &LinkKind) -> bool {
    !matches!(
        kind,
        LinkKind::Loopback | LinkKind::NotEthernet(_) | LinkKind::Vrf { .. }
    )
}
