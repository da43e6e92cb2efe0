//! What the indices of the tables mean: for `route show -s`, `show` and `--explain`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use sidestep_datapath::{
    AdjacencyId, CounterId, GroupId, HeaderSetId, Image, PolicyId, RouteId, ViewId,
};
use sidestep_model::behavior::Seg6Encap;
use sidestep_model::behavior::proxy::InnerType;
use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::policy::ListId;
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
    /// The route it was made from. None: a rule's own action, or one of [`Index::leads`].
    pub route: Option<Route>,
    /// The neighbor on the link that a connected route was narrowed to.
    pub neighbor: Option<IpAddr>,
    /// Of a record that only a group refers to: the next hop of the route that it stands for.
    pub next_hop: Option<NextHop>,
    /// Slot in the route counters; 0: not counted.
    pub counter: CounterId,
}

impl RouteInfo {
    /// The entry of a table that it was made for.
    pub(super) fn entry(&self) -> Option<EntryKey> {
        let of_route = EntryKey::new(&self.route.as_ref()?.key);
        Some(EntryKey {
            prefix: self.neighbor.map_or(of_route.prefix, Prefix::host),
            ..of_route
        })
    }
}

/// A view of the FIB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewInfo {
    /// IPv4 or IPv6.
    pub family: Family,
    /// The tables merged in it, in the order of their rules, or those that it leads to. None in a view of sources.
    pub tables: Vec<TableId>,
}

impl ViewInfo {
    /// Of these tables.
    pub(crate) fn new(family: Family, tables: impl IntoIterator<Item = TableId>) -> Self {
        Self {
            family,
            tables: tables.into_iter().collect(),
        }
    }
}

/// How a record leads on that is no route itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// By the source address.
    BySource,
    /// To other tables.
    Next,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjacencyInfo {
    /// Egress interface.
    pub ifindex: IfIndex,
    /// Its address; none for an interface as such (End.DX2).
    pub via: Option<IpAddr>,
    /// Resolved and the interface up.
    pub valid: bool,
}

/// A headend's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// As configured.
    pub encap: Seg6Encap,
    /// Source address of the outer header.
    pub source: Ipv6Addr,
}

/// What has counters of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// A route.
    Route(RouteKey),
    /// What a route sends by that segment list of an SR policy.
    List(RouteKey, ListId),
    /// What services send back by this port, as it arrives there.
    ReturnPath(IfIndex, InnerType),
}

/// The SID of an SR proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInfo {
    /// Its behavior's name.
    pub behavior: &'static str,
    /// The interface to its service.
    pub oif: IfIndex,
    /// The port by which that sends back.
    pub iif: IfIndex,
    /// What is counted there.
    pub return_counter: Counted,
    /// Index of learned headers; 0: it learns none.
    pub learned: HeaderSetId,
}

/// What the indices of an image mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    /// By route index.
    pub routes: BTreeMap<RouteId, RouteInfo>,
    /// Those of them that lead on to another.
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
    /// Counter slot of each route and way back that has one.
    pub counters: BTreeMap<Counted, CounterId>,
    /// Of each SID of an SR proxy that the packet path has.
    pub proxies: BTreeMap<RouteKey, ProxyInfo>,
    /// Ports whose rules leave a family to the kernel, and why.
    pub punt_reasons: BTreeMap<(IfIndex, Family), String>,
    /// Routes that the packet path leaves to the kernel, and why.
    pub unsupported: BTreeMap<RouteKey, String>,
    /// Those of them that did not fit, and the table that has no room for them.
    pub full: BTreeMap<RouteKey, &'static str>,
    /// Tables that have no room for what rules make of packets: the view of a port, or what follows a chain.
    pub full_for_rules: BTreeSet<&'static str>,
}

impl Index {
    /// The counter slots of a route: its own, and those of the segment lists of policies that it leads into.
    pub fn counters_of(&self, key: RouteKey) -> impl Iterator<Item = CounterId> {
        let own = self.counters.get(&Counted::Route(key));
        let lists = Counted::List(key, ListId::MIN)..=Counted::List(key, ListId::MAX);
        let lists = self.counters.range(lists).map(|(_, slot)| slot);
        own.into_iter().chain(lists).copied()
    }

    /// Tables that something did not fit.
    pub fn full_tables(&self) -> BTreeSet<&'static str> {
        let of_routes = self.full.values();
        of_routes.chain(&self.full_for_rules).copied().collect()
    }

    /// Whether something did not fit that decides over more than the packets of its own route: a prefix, whose place
    /// another one may have to leave, or what a rule makes of packets.
    pub(super) fn is_short(&self) -> bool {
        self.full.values().any(|table| *table == PREFIXES) || !self.full_for_rules.is_empty()
    }

    /// Whether something did not fit.
    pub fn is_full(&self) -> bool {
        !self.full.is_empty() || !self.full_for_rules.is_empty()
    }
}
