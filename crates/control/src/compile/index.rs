//! Meaning of the table indices, for `route show -s`, `show` and `--explain`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use sidestep_datapath::{
    AdjacencyId, CounterId, GroupId, HeaderSetId, Image, PolicyId, RouteId, StationKey, ViewId,
};
use sidestep_model::behavior::Seg6Encap;
use sidestep_model::behavior::proxy::InnerType;
use sidestep_model::node::{IfIndex, Mac, Node, TableId};
use sidestep_model::policy::ListId;
use sidestep_model::protection::Protected;
use sidestep_model::route::{Family, NextHop, Route, RouteKey};
use sidestep_model::vlan::VlanTableId;

use super::tables::{EntryKey, Prefix};

/// Name of the prefix table in `show limits`.
pub(super) const PREFIXES: &str = "prefixes";

/// Tables and the meaning of their indices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compiled {
    /// Tables that the packet path reads.
    pub image: Image,
    /// Meaning of the indices.
    pub index: Index,
}

/// A compiled route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// Source route of the record. `None` for the action of a rule and for a continuation in
    /// [`Index::leads`].
    pub route: Option<RouteKey>,
    /// The route is the one that an SR policy steers away from (`beneath`), not the one in effect.
    pub is_beneath: bool,
    /// Neighbor, if the record serves one neighbor on the link of a connected route.
    pub neighbor: Option<IpAddr>,
    /// Next hop of the route that a group member represents.
    pub next_hop: Option<Box<NextHop>>,
    /// Counter slot, or `NONE`.
    pub counter: CounterId,
}

impl RouteInfo {
    /// Returns the source route.
    pub fn route<'n>(&self, node: &'n Node) -> Option<&'n Route> {
        let key = self.route.as_ref()?;
        if self.is_beneath {
            node.policies.beneath(key)
        } else {
            node.routes.get(key)
        }
    }

    /// Returns the table entry that the record was made for.
    pub(super) fn entry(&self) -> Option<EntryKey> {
        let of_route = EntryKey::new(self.route.as_ref()?);
        Some(EntryKey {
            prefix: self.neighbor.map_or(of_route.prefix, Prefix::host),
            ..of_route
        })
    }
}

/// A view of the prefix table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewInfo {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Merged tables in the order of their rules, or tables where a record of the view continues
    /// the lookup. Empty for a view of sources.
    pub tables: Vec<TableId>,
}

impl ViewInfo {
    /// Returns the info for these tables.
    pub(crate) fn new(family: Family, tables: impl IntoIterator<Item = TableId>) -> Self {
        Self {
            family,
            tables: tables.into_iter().collect(),
        }
    }
}

/// How a record without a route continues the lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// In a view of source prefixes.
    BySource,
    /// In a view of other tables.
    Next,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjacencyInfo {
    /// Egress interface.
    pub ifindex: IfIndex,
    /// IP address of the next hop; none for a bare interface (End.DX2).
    pub via: Option<IpAddr>,
    /// Whether the next hop is resolved and the interface is up.
    pub valid: bool,
}

/// A headend's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Encapsulation as configured.
    pub encap: Seg6Encap,
    /// Source address of the outer header.
    pub source: Ipv6Addr,
}

/// The route that the probes of a path take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRoute {
    /// Record of a headend.
    pub route: RouteId,
    /// Source address of the outer header.
    pub source: Ipv6Addr,
}

/// Key of a counter slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    /// A route.
    Route(RouteKey),
    /// A route's share of a segment list of an SR policy.
    List(RouteKey, ListId),
    /// Return path of services by this port and inner type.
    ReturnPath(IfIndex, InnerType),
    /// A reflector of S-BFD, by its discriminator.
    Reflector(u32),
}

/// The SID of an SR proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInfo {
    /// Behavior name.
    pub behavior: &'static str,
    /// Interface to the service.
    pub oif: IfIndex,
    /// Port that the service returns packets by.
    pub iif: IfIndex,
    /// Counter of the return path.
    pub return_counter: Counted,
    /// Header set, or `NONE` if the proxy learns none.
    pub learned: HeaderSetId,
}

/// Meaning of all indices of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    /// By route index.
    pub routes: BTreeMap<RouteId, RouteInfo>,
    /// Records that continue the lookup.
    pub leads: BTreeMap<RouteId, Continuation>,
    /// By group index: the route of each slot.
    pub groups: BTreeMap<GroupId, Vec<RouteId>>,
    /// By view index.
    pub views: BTreeMap<ViewId, ViewInfo>,
    /// VLAN tables by view index.
    pub vlan_views: BTreeMap<ViewId, VlanTableId>,
    /// By adjacency index.
    pub adjacencies: BTreeMap<AdjacencyId, AdjacencyInfo>,
    /// By policy index.
    pub policies: BTreeMap<PolicyId, PolicyInfo>,
    /// Counter slot of each route, list and return path that has one.
    pub counters: BTreeMap<Counted, CounterId>,
    /// SIDs of SR proxies in the packet path.
    pub proxies: BTreeMap<RouteKey, ProxyInfo>,
    /// Route of the probes of each path, or the reason without one.
    pub paths: BTreeMap<String, Result<PathRoute, String>>,
    /// Port toward the stations of each port of a bridge.
    pub ways_to_stations: BTreeMap<IfIndex, IfIndex>,
    /// Route of the backup of each protected next hop, or the reason without one.
    pub backups: BTreeMap<Protected, Result<RouteId, String>>,
    /// Ports whose rules punt packets of a family, with the reason.
    pub punt_reasons: BTreeMap<(IfIndex, Family), String>,
    /// Routes that are punted, with the reason.
    pub unsupported: BTreeMap<RouteKey, String>,
    /// Routes that did not fit, with the full table.
    pub full: BTreeMap<RouteKey, &'static str>,
    /// Full tables that kept the view of a port's rules, or a later view of its lookup, from being
    /// built.
    pub full_for_rules: BTreeSet<&'static str>,
}

impl Index {
    /// Returns a station of the table, and the port toward it. `port`: the port of its bridge; none
    /// if it is gone.
    pub fn station(
        &self,
        (bridge, mac): (IfIndex, Mac),
        port: Option<IfIndex>,
    ) -> (StationKey, Option<u32>) {
        let way = port.and_then(|port| self.ways_to_stations.get(&port));
        let key = StationKey {
            bridge: bridge.0,
            mac: mac.0,
        };
        (key, way.map(|way| way.0))
    }

    /// Returns the counter slots of a route: its own, and those of the segment lists of its
    /// policies.
    pub fn counters_of(&self, key: RouteKey) -> impl Iterator<Item = CounterId> {
        let own = self.counters.get(&Counted::Route(key));
        let lists = Counted::List(key, ListId::MIN)..=Counted::List(key, ListId::MAX);
        let lists = self.counters.range(lists).map(|(_, slot)| slot);
        own.into_iter().chain(lists).copied()
    }

    /// Returns the tables that are full.
    pub fn full_tables(&self) -> BTreeSet<&'static str> {
        let of_routes = self.full.values();
        of_routes.chain(&self.full_for_rules).copied().collect()
    }

    /// Whether an entry that affects other routes did not fit: a prefix, for which another prefix
    /// may make room, or the view of a rule.
    pub(super) fn is_short(&self) -> bool {
        self.full.values().any(|table| *table == PREFIXES) || !self.full_for_rules.is_empty()
    }

    /// Whether anything did not fit.
    pub fn is_full(&self) -> bool {
        !self.full.is_empty() || !self.full_for_rules.is_empty()
    }
}
