//! Several next hops: the slots that a packet's flow chooses among.

use std::net::IpAddr;

use sidestep_datapath::abi::{
    SIDESTEP_GROUP_SLOTS, SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_GROUP,
    SIDESTEP_ROUTE_SIDESTEP_ONLY, sidestep_group, sidestep_route,
};
use sidestep_datapath::{AdjacencyId, GroupId, RouteId};
use sidestep_model::route::{NextHop, Owner, Route, RouteKind};

use super::Pass;
use super::resolved::Sent;
use super::routes::{self, Outcome, Via, left, record, room, unsupported};
use super::rules::Chains;
use super::share::slots;

/// Seed of the hash, and the route of each slot.
pub(crate) type GroupKey = (u32, Vec<RouteId>);

/// Where a packet toward an address leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By this adjacency.
    Adjacency(AdjacencyId),
    /// By one of this group's routes, each to an adjacency.
    Group(GroupId),
}

/// Where chains of tables send an address.
pub(super) enum Toward {
    /// To a plain next hop, or several.
    Way(Way),
    /// There is no route.
    Nowhere,
    /// That depends on the source address.
    Depends,
    /// By a route that does more than forward.
    NotPlain,
}

impl Way {
    /// The record of a cross-connect by it.
    pub(super) fn of(self, route: sidestep_route) -> sidestep_route {
        match self {
            Self::Adjacency(adjacency) => sidestep_route { adjacency, ..route },
            Self::Group(group) => sidestep_route { group, ..route },
        }
    }
}

/// The next hops that packets are spread over: the kernel passes over dead ones (`fib_select_multipath`,
/// `fib6_select_path`). With all of them dead there is nothing to choose. In an order of their own: the kernel's is not
/// told reliably, and the same next hops are to have the same slots.
pub(super) fn alive(next_hops: &[NextHop]) -> Vec<&NextHop> {
    let mut alive: Vec<_> = next_hops.iter().filter(|hop| !hop.dead).collect();
    if alive.is_empty() {
        alive = next_hops.iter().collect();
    }
    alive.sort_unstable();
    alive
}

impl Pass<'_> {
    /// The record of a route with these next hops, each of which may have its own encapsulation. They have no counter: the
    /// packets count for the record, so that all routes with the same next hops share one group.
    pub(super) fn multipath(
        &mut self,
        route: &Route,
        hops: &[&NextHop],
    ) -> Outcome<sidestep_route> {
        let mut ways = Vec::new();
        for hop in hops {
            let mut member = self.way(route, hop, None)?;
            if member.group.is_some() {
                return left(unsupported(
                    "several next hops, one of which has several ways itself",
                ));
            }
            if route.owner == Owner::Sidestep {
                member.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
            }
            ways.push((self.member(route, hop, member)?, hop.weight));
        }
        Ok(sidestep_route {
            group: self.group(&ways)?,
            ..record(SIDESTEP_ROUTE_GROUP)
        })
    }

    /// Where chains of tables send an address; `source`: packets from there, or from anywhere.
    pub(super) fn toward(
        &mut self,
        chains: &Chains,
        address: IpAddr,
        source: Option<IpAddr>,
    ) -> Outcome<Toward> {
        let sent = self.known.resolve(chains, address, source);
        if let Some(place) = self.place {
            let resolved = &mut self.known.resolved;
            resolved.note(place, chains, (address, source), sent);
        }
        let node = self.node;
        let route = match sent {
            Sent::By(key) => &node.routes[&key],
            Sent::Nowhere => return Ok(Toward::Nowhere),
            Sent::Depends => return Ok(Toward::Depends),
        };
        let hops = alive(&route.next_hops);
        let plain = |hop: &&NextHop| {
            let link = hop.dev.and_then(|dev| node.links.get(&dev));
            hop.encap.is_none() && link.is_some_and(|link| routes::is_ethernet(&link.kind))
        };
        if route.kind != RouteKind::Unicast
            || route.key.tos != 0
            || hops.is_empty()
            || !hops.iter().all(plain)
        {
            return Ok(Toward::NotPlain);
        }
        let mut ways = Vec::new();
        for hop in &hops {
            let Some(dev) = hop.dev else {
                return Ok(Toward::NotPlain);
            };
            let adjacency =
                self.adjacency(dev, Via::Address(hop.via.unwrap_or(address)), route.mtu)?;
            if hops.len() == 1 {
                return Ok(Toward::Way(Way::Adjacency(adjacency)));
            }
            let member = sidestep_route {
                adjacency,
                ..record(SIDESTEP_ROUTE_FORWARD)
            };
            ways.push((self.member(route, hop, member)?, hop.weight));
        }
        Ok(Toward::Way(Way::Group(self.group(&ways)?)))
    }

    /// The index of a record that only a group refers to.
    pub(super) fn member(
        &mut self,
        route: &Route,
        hop: &NextHop,
        record: sidestep_route,
    ) -> Outcome<RouteId> {
        let index = room(self.intern(record))?;
        // Routes that weigh it differently share it.
        let hop = NextHop {
            weight: 1,
            ..hop.clone()
        };
        self.name(index, route, None, Some(&hop));
        Ok(index)
    }

    /// The index of a group of routes with weights.
    fn group(&mut self, ways: &[(RouteId, u16)]) -> Outcome<GroupId> {
        if ways.len() > SIDESTEP_GROUP_SLOTS as usize {
            return left(unsupported(format!(
                "{} next hops; up to {SIDESTEP_GROUP_SLOTS} are possible",
                ways.len()
            )));
        }
        let weights: Vec<u16> = ways.iter().map(|(_, weight)| *weight).collect();
        let slots: Vec<RouteId> = ways
            .iter()
            .zip(slots(&weights))
            .flat_map(|((route, _), slots)| std::iter::repeat_n(*route, slots))
            .collect();
        self.group_of(self.node.multipath_hash_seed, slots)
    }

    /// The index of the group with that seed and these routes, one for each slot.
    pub(super) fn group_of(&mut self, seed: u32, slots: Vec<RouteId>) -> Outcome<GroupId> {
        let mut content = sidestep_group {
            slots: slots.len() as u32,
            seed,
            ..Default::default()
        };
        content.routes[..slots.len()].copy_from_slice(&slots);
        let index = room(self.stock.groups.get(&(content.seed, slots.clone())))?;
        self.put_group(index, &content, slots);
        Ok(index)
    }
}
