//! Next hops of cross-connects (End.X, End.DX4, End.DX6). Linux looks them up by the rules of the
//! ingress port. If all ports have the same next hop, the SID has it. Otherwise it has a view with
//! the next hop of each port.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sidestep_datapath::RouteId;
use sidestep_datapath::abi::{
    PUNT_route_miss, PUNT_unsupported, SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_GROUP,
};
use sidestep_model::node::IfIndex;
use sidestep_model::route::{Family, NextHop};

use super::error::{Skip, unsupported};
use super::group::{NextHopResolution, ResolvedHop};
use super::index::ViewInfo;
use super::keys::Via;
use super::record::{punt, record};
use super::resolver::is_link_local;
use super::routes::{RouteCompiler, is_ethernet};
use super::tables::Prefix;

impl RouteCompiler<'_> {
    /// Resolves the next hop of a cross-connect. A link-local next hop is on the link of the SID's
    /// own route. Linux looks it up on the ingress link (`seg6_lookup_any_nexthop`,
    /// `RT6_LOOKUP_F_IFACE`).
    pub(super) fn cross_connect(
        &mut self,
        route: &NextHop,
        next_hop: IpAddr,
    ) -> Result<ResolvedHop, Skip> {
        let node = self.node;
        let link = route.dev.and_then(|dev| node.links.get(&dev));
        if let Some(link) = link.filter(|link| is_ethernet(&link.kind))
            && is_link_local(next_hop)
        {
            let via = Via::Address(next_hop);
            let adjacency = self.store.adjacency(link.ifindex, via, None)?;
            return Ok(ResolvedHop::Adjacency(adjacency));
        }
        let ports = self.hops_by_port(next_hop)?;
        let first = ports.first().map(|(_, hop)| *hop);
        let all_agree = ports.iter().all(|(_, hop)| Some(*hop) == first);
        let is_hop = |hop: &NextHopResolution| matches!(hop, NextHopResolution::Hop(_));
        if !all_agree && ports.iter().any(|(_, hop)| is_hop(hop)) {
            return self.by_port(&ports);
        }
        match first.filter(|_| all_agree) {
            Some(NextHopResolution::Hop(hop)) => Ok(hop),
            Some(NextHopResolution::NoRoute) => Err(Skip::Unsupported {
                reason: PUNT_route_miss,
                text: format!("no route to its next hop {next_hop}"),
            }),
            Some(NextHopResolution::NotPlain) => {
                unsupported(format!("no plain route to its next hop {next_hop}"))
            }
            Some(NextHopResolution::Depends) | None => unsupported(format!(
                "the route to its next hop {next_hop} differs between packets"
            )),
        }
    }

    /// Resolves the next hop by the rules of each port, for packets from any source.
    fn hops_by_port(
        &mut self,
        next_hop: IpAddr,
    ) -> Result<Vec<(IfIndex, NextHopResolution)>, Skip> {
        let of_ports = self.resolver.of_ports(Family::of(&next_hop));
        let mut hops = Vec::new();
        for chains in &of_ports.distinct {
            let resolution = self.resolve(chains, next_hop, None);
            hops.push(self.hops_of(resolution, next_hop)?);
        }
        // Without chains, only the kernel can evaluate the rules.
        let hop = |place: &Option<usize>| place.map_or(NextHopResolution::Depends, |at| hops[at]);
        let ports = of_ports.by_port.iter();
        Ok(ports.map(|(port, place)| (*port, hop(place))).collect())
    }

    /// Returns the view with the next hop of each port. The most frequent one is the default route,
    /// so that a next hop within one VRF takes few prefixes.
    fn by_port(&mut self, ports: &[(IfIndex, NextHopResolution)]) -> Result<ResolvedHop, Skip> {
        let mut routes: Vec<(IfIndex, RouteId)> = Vec::new();
        let mut users: BTreeMap<RouteId, usize> = BTreeMap::new();
        for (port, hop) in ports {
            let route = self.store.keep(match hop {
                NextHopResolution::Hop(hop @ ResolvedHop::Group(_)) => {
                    hop.of(record(SIDESTEP_ROUTE_GROUP))
                }
                NextHopResolution::Hop(hop) => hop.of(record(SIDESTEP_ROUTE_FORWARD)),
                NextHopResolution::NoRoute => punt(PUNT_route_miss),
                NextHopResolution::Depends | NextHopResolution::NotPlain => punt(PUNT_unsupported),
            })?;
            *users.entry(route).or_default() += 1;
            routes.push((*port, route));
        }
        // The first port decides among equally frequent ones, whatever the indices are.
        let in_reverse = routes.iter().rev().map(|(_, route)| *route);
        let default = in_reverse.max_by_key(|route| users[route]);
        let others = routes.iter().filter(|(_, route)| Some(*route) != default);
        let prefixes = default
            .map(|route| (Prefix::DEFAULT, route))
            .into_iter()
            .chain(others.map(|(port, route)| (of_port(*port), *route)))
            .collect();
        let view = self
            .store
            .leading_view(prefixes, ViewInfo::new(Family::V6, []))?;
        Ok(ResolvedHop::ByPort(view))
    }
}

/// Returns the prefix of a port in a view by port (`datapath/next_hop.h`).
fn of_port(port: IfIndex) -> Prefix {
    Prefix::host(IpAddr::from(port.0.to_be_bytes()))
}
