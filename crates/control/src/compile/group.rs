//! Groups: several next hops; the flow of a packet selects one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use sidestep_datapath::abi::{
    SIDESTEP_GROUP_SLOTS, SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_GROUP,
    SIDESTEP_ROUTE_SIDESTEP_ONLY, sidestep_group, sidestep_route,
};
use sidestep_datapath::{AdjacencyId, GroupId, RouteId, ViewId};
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::{NextHop, NextHops, Route, RouteKind};

use super::allocator::TableFull;
use super::error::{Skip, unsupported};
use super::keys::{GroupKey, Via};
use super::lookups::Resolution;
use super::record::record;
use super::routes::{self, RouteCompiler};
use super::rules::Chains;
use super::share::{alive, slots};

/// Resolved next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResolvedHop {
    /// One adjacency.
    Adjacency(AdjacencyId),
    /// A group of routes with one adjacency each.
    Group(GroupId),
    /// A view with a route for each ingress port.
    ByPort(ViewId),
}

/// Result of resolving an address with rule chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextHopResolution {
    /// One or more plain next hops.
    Hop(ResolvedHop),
    /// There is no route.
    NoRoute,
    /// The result depends on the source address.
    Depends,
    /// The route does more than forward.
    NotPlain,
}

impl ResolvedHop {
    /// Adds the next hop to a record.
    pub(super) fn of(self, route: sidestep_route) -> sidestep_route {
        match self {
            Self::Adjacency(adjacency) => sidestep_route { adjacency, ..route },
            Self::Group(group) => sidestep_route { group, ..route },
            Self::ByPort(view6) => sidestep_route { view6, ..route },
        }
    }
}

impl RouteCompiler<'_> {
    /// Returns the record of a route with several next hops, each of which may have its own
    /// encapsulation. The members have no counters, so that routes with the same next hops share
    /// one group.
    pub(super) fn multipath(
        &mut self,
        route: &Route,
        hops: &[&NextHop],
    ) -> Result<sidestep_route, Skip> {
        let members = self.members(route, hops)?;
        Ok(sidestep_route {
            group: self.group(&members)?,
            ..record(SIDESTEP_ROUTE_GROUP)
        })
    }

    /// Returns the records of several next hops of a route, with their weights.
    pub(super) fn members(
        &mut self,
        route: &Route,
        hops: &[&NextHop],
    ) -> Result<Vec<(RouteId, u16)>, Skip> {
        let mut members = Vec::new();
        for hop in hops {
            let mut member = self.next_hop(route, hop, None)?;
            if member.group.is_some() {
                return unsupported("several next hops, one of which is itself a group");
            }
            if !route.owner.in_kernel() {
                member.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
            }
            members.push((self.member(route, hop, member)?, hop.weight));
        }
        Ok(members)
    }

    /// Resolves an address with rule chains, and records that the current entry or path depends on
    /// it.
    pub(super) fn resolve(
        &mut self,
        chains: &Chains,
        address: IpAddr,
        source: Option<IpAddr>,
    ) -> Resolution {
        let resolution = self.resolver.resolve(chains, address, source);
        if let Some(dependent) = self.dependent {
            let lookups = &mut self.resolver.lookups;
            lookups.note(dependent, chains, (address, source), resolution);
        }
        resolution
    }

    /// Returns the next hops toward an address, by the route that it resolved to.
    pub(super) fn hops_of(
        &mut self,
        resolution: Resolution,
        address: IpAddr,
    ) -> Result<NextHopResolution, Skip> {
        let route = match resolution {
            Resolution::Route(key) => match self.node.routes.get(&key) {
                Some(route) => route,
                // It was deleted, and what depends on it is compiled again.
                None => return Ok(NextHopResolution::NoRoute),
            },
            Resolution::NoRoute => return Ok(NextHopResolution::NoRoute),
            Resolution::Depends => return Ok(NextHopResolution::Depends),
        };
        let all = self.hops(route);
        let Some(hops) = plain_hops(self.node, route, &all) else {
            return Ok(NextHopResolution::NotPlain);
        };
        let mut members = Vec::new();
        for (hop, dev) in &hops {
            let dev = *dev;
            let adjacency =
                self.store
                    .adjacency(dev, Via::Address(hop.via.unwrap_or(address)), route.mtu)?;
            if hops.len() == 1 {
                return Ok(NextHopResolution::Hop(ResolvedHop::Adjacency(adjacency)));
            }
            let member = sidestep_route {
                adjacency,
                ..record(SIDESTEP_ROUTE_FORWARD)
            };
            members.push((self.member(route, hop, member)?, hop.weight));
        }
        Ok(NextHopResolution::Hop(ResolvedHop::Group(
            self.group(&members)?,
        )))
    }

    /// Returns the adjacency toward an address, if each of these rule chains leads to the same one.
    pub(super) fn only_adjacency(
        &mut self,
        all: &[Arc<Chains>],
        address: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<Option<AdjacencyId>, TableFull> {
        let all = all.iter();
        let resolutions: BTreeSet<Resolution> = all
            .map(|chains| self.resolve(chains, address, source))
            .collect();
        let only = resolutions.first().filter(|_| resolutions.len() == 1);
        let Some(Resolution::Route(key)) = only else {
            return Ok(None);
        };
        let Some(route) = self.node.routes.get(key) else {
            return Ok(None);
        };
        let all = self.hops(route);
        let hops = plain_hops(self.node, route, &all).unwrap_or_default();
        let [(hop, dev)] = &hops[..] else {
            return Ok(None);
        };
        let via = Via::Address(hop.via.unwrap_or(address));
        self.known_adjacency(*dev, via, route.mtu)
    }

    /// Returns an adjacency; none if its device does not exist.
    pub(super) fn known_adjacency(
        &mut self,
        dev: IfIndex,
        via: Via,
        mtu: Option<u32>,
    ) -> Result<Option<AdjacencyId>, TableFull> {
        match self.store.adjacency(dev, via, mtu) {
            Ok(adjacency) => Ok(Some(adjacency)),
            Err(Skip::Unsupported { .. }) => Ok(None),
            Err(Skip::Full(full)) => Err(full),
        }
    }

    /// Returns the index of a record that only a group refers to.
    pub(super) fn member(
        &mut self,
        route: &Route,
        hop: &NextHop,
        record: sidestep_route,
    ) -> Result<RouteId, Skip> {
        let index = self.store.intern(record)?;
        // Routes with other weights share the member.
        let hop = NextHop {
            weight: 1,
            ..hop.clone()
        };
        self.store.set_route_info(index, route, None, Some(&hop));
        Ok(index)
    }

    /// Returns the index of a group of weighted routes.
    fn group(&mut self, members: &[(RouteId, u16)]) -> Result<GroupId, Skip> {
        self.group_of(self.node.multipath_hash_seed, shares(members)?)
    }

    /// Returns the index of the group with this seed and one route per slot.
    pub(super) fn group_of(&mut self, seed: u32, slots: Vec<RouteId>) -> Result<GroupId, Skip> {
        let mut content = sidestep_group {
            slots: slots.len() as u32,
            seed,
            ..Default::default()
        };
        content.routes[..slots.len()].copy_from_slice(&slots);
        let index = self.store.indices.groups.index_of(&GroupKey::Slots {
            seed,
            slots: slots.clone(),
        })?;
        self.store.put_group(index, &content, slots);
        Ok(index)
    }
}

/// Returns the route of each slot for weighted routes.
pub(super) fn shares(members: &[(RouteId, u16)]) -> Result<Vec<RouteId>, Skip> {
    if members.len() > SIDESTEP_GROUP_SLOTS as usize {
        return unsupported(format!(
            "{} next hops; up to {SIDESTEP_GROUP_SLOTS} are possible",
            members.len()
        ));
    }
    let weights: Vec<u16> = members.iter().map(|(_, weight)| *weight).collect();
    let shares = members.iter().zip(slots(&weights));
    let slots = shares.flat_map(|((route, _), slots)| std::iter::repeat_n(*route, slots));
    Ok(slots.collect())
}

/// Returns the next hops of a route that only forwards, with their devices, and at least one.
fn plain_hops<'a>(
    node: &Node,
    route: &Route,
    all: &'a NextHops,
) -> Option<Vec<(&'a NextHop, IfIndex)>> {
    if route.kind != RouteKind::Unicast || route.key.tos != 0 {
        return None;
    }
    let hops = alive(all).into_iter();
    let plain = |hop: &'a NextHop| {
        let dev = hop.dev.filter(|_| hop.encap.is_none())?;
        let link = node.links.get(&dev)?;
        routes::is_ethernet(&link.kind).then_some((hop, dev))
    };
    let hops: Vec<_> = hops.map(plain).collect::<Option<_>>()?;
    (!hops.is_empty()).then_some(hops)
}
