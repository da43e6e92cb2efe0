//! Routes as records: the action of a route and of its next hops.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sidestep_datapath::KeySlot;
use sidestep_datapath::abi::{
    DROP_blackhole, PUNT_egress, PUNT_local, PUNT_multicast, PUNT_neighbor, PUNT_route_type,
    SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_SIDESTEP_ONLY, sidestep_route,
};
use sidestep_model::node::{LinkKind, Node};
use sidestep_model::route::{Encap, NextHop, NextHops, ObjectId, Route, RouteKind};

use super::allocator::TableFull;
use super::error::{Skip, unsupported};
use super::headend::Headend;
use super::index::Counted;
use super::keys::Via;
use super::lookups::Dependent;
use super::record::{punt, record};
use super::resolver::Resolver;
use super::share::alive;
use super::store::RecordStore;
use super::view_set::ViewSet;

/// Compiles routes to records. The behaviors, headends, groups, policies and SR proxies have files
/// of their own.
pub(super) struct RouteCompiler<'a> {
    pub node: &'a Node,
    pub store: RecordStore<'a>,
    pub resolver: Resolver,
    pub views: ViewSet,
    /// HMAC keys by HMAC Key ID.
    pub hmac_keys: BTreeMap<u32, KeySlot>,
    /// Current entry or path, which depends on the lookups.
    pub dependent: Option<Dependent>,
    /// The nexthop object that changes, with its new next hops. Its routes have the old ones.
    pub changed_object: Option<(ObjectId, NextHops)>,
}

/// The record of a route.
pub(super) struct CompiledRecord {
    pub record: sidestep_route,
    /// Explanation, if the packet path punts the route.
    pub punt_reason: Option<String>,
}

impl RouteCompiler<'_> {
    /// Returns the record of a route.
    pub(super) fn record_of(
        &mut self,
        route: &Route,
        neighbor: Option<IpAddr>,
    ) -> Result<CompiledRecord, TableFull> {
        let counter = self.store.counter(Counted::Route(route.key));
        let (mut record, punt_reason) = match self.action(route, neighbor) {
            Ok(record) => (record, None),
            Err(Skip::Unsupported { reason, text }) => (punt(reason), Some(text)),
            Err(Skip::Full(full)) => return Err(full),
        };
        if !route.owner.in_kernel() {
            record.flags |= SIDESTEP_ROUTE_SIDESTEP_ONLY as u8;
        }
        // A route onto the only list of a policy uses the counter of the list.
        if record.counter.is_none() {
            record.counter = counter;
        }
        Ok(CompiledRecord {
            record,
            punt_reason,
        })
    }

    fn action(&mut self, route: &Route, neighbor: Option<IpAddr>) -> Result<sidestep_route, Skip> {
        if route.key.tos != 0 {
            return unsupported("selects by TOS");
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
            RouteKind::Other(number) => return unsupported(format!("route type {number}")),
        }
        let hops = self.hops(route);
        if let Some(record) = self.by_object(route, &hops)? {
            return Ok(record);
        }
        match &alive(&hops)[..] {
            [] => unsupported("no next hop"),
            [next_hop] => self.next_hop(route, next_hop, neighbor),
            several => self.multipath(route, several),
        }
    }

    /// Returns the record of one next hop of a route.
    pub(super) fn next_hop(
        &mut self,
        route: &Route,
        next_hop: &NextHop,
        neighbor: Option<IpAddr>,
    ) -> Result<sidestep_route, Skip> {
        match &next_hop.encap {
            None => self.plain(route, next_hop, neighbor),
            Some(Encap::Seg6(encap)) => self.headend(Headend {
                table: route.key.table,
                family: route.family(),
                next_hop,
                encap,
                alone: None,
                guard: self.guard_of(encap),
            }),
            Some(Encap::Seg6Local(local)) => self.endpoint(&route.key, next_hop, local),
            Some(Encap::Policy(steering)) => self.steered(route, steering, neighbor),
            Some(Encap::Binding(policy)) => {
                self.steered_first(route, std::iter::once(policy.as_str()))
            }
            Some(Encap::Unsupported(words)) => unsupported(words.clone()),
        }
    }

    fn plain(
        &mut self,
        route: &Route,
        next_hop: &NextHop,
        neighbor: Option<IpAddr>,
    ) -> Result<sidestep_route, Skip> {
        let Some(dev) = next_hop.dev else {
            return unsupported("no device");
        };
        match self.node.links.get(&dev).map(|link| &link.kind) {
            Some(LinkKind::Loopback) => return Ok(punt(PUNT_local)),
            Some(LinkKind::NotEthernet(_) | LinkKind::Vrf { .. }) => return Ok(punt(PUNT_egress)),
            Some(_) => {}
            None => return unsupported("its device does not exist"),
        }
        match next_hop.via.or(neighbor) {
            Some(via) => {
                let adjacency = self.store.adjacency(dev, Via::Address(via), route.mtu)?;
                Ok(sidestep_route {
                    adjacency,
                    ..record(SIDESTEP_ROUTE_FORWARD)
                })
            }
            None => Ok(punt(PUNT_neighbor)),
        }
    }
}

pub(super) fn is_ethernet(kind: &LinkKind) -> bool {
    !matches!(
        kind,
        LinkKind::Loopback | LinkKind::NotEthernet(_) | LinkKind::Vrf { .. }
    )
}
