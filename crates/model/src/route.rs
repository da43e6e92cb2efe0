//! Routes and policy rules, as rtnetlink has them.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::behavior::{Behavior, Seg6Encap, Seg6Local};
use crate::node::{IfIndex, TableId};
use crate::policy::Steering;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of this address.
    pub const fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The family of this prefix.
    pub const fn of_prefix(prefix: &IpNet) -> Self {
        match prefix {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }
}

/// Type of a route (`RTN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RouteKind {
    /// Forward to a next hop.
    Unicast,
    /// An address of this node.
    Local,
    /// IPv4 broadcast.
    Broadcast,
    /// Anycast address of this node.
    Anycast,
    /// Multicast.
    Multicast,
    /// Drop silently.
    Blackhole,
    /// Drop, ICMP no route / host unreachable.
    Unreachable,
    /// Drop, ICMP administratively prohibited.
    Prohibit,
    /// No match in this table; continue with the next rule.
    Throw,
    /// Any other type, by its number.
    Other(u8),
}

/// Where a route was configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// The kernel has the same route, so a packet can be punted.
    Kernel,
    /// The route exists only in Sidestep (`sidestep route add`, node file).
    Sidestep,
    /// The route came from FRR by FPM (`sidestep run --fpm`).
    Fpm {
        /// Whether the kernel has a route with the same key, so that a packet can be punted.
        in_kernel: bool,
    },
}

impl Owner {
    /// Returns whether the kernel has the route, so that a packet can be punted.
    pub const fn in_kernel(self) -> bool {
        match self {
            Self::Kernel => true,
            Self::Sidestep => false,
            Self::Fpm { in_kernel } => in_kernel,
        }
    }

    /// Returns the name of the owner in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Sidestep => "sidestep",
            Self::Fpm { .. } => "fpm",
        }
    }
}

/// Identity of a route. The kernel refuses a second `ip route add` with the same key. Ordered by its
/// fields, so that the routes of a table and those of a prefix follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteKey {
    /// Table.
    pub table: TableId,
    /// Destination prefix, host bits zero.
    pub prefix: IpNet,
    /// Source prefix of a source-specific route (`from`), if any.
    pub from: Option<IpNet>,
    /// IPv4 TOS selector; 0 matches every packet.
    pub tos: u8,
    /// Metric (IPv6) or priority (IPv4); the lowest wins.
    pub metric: u32,
}

// PERF: trees of routes compare keys all the time, and prefixes compare faster as numbers.
impl Ord for RouteKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let number = |prefix: &IpNet| match prefix {
            IpNet::V4(net) => (
                Family::V4,
                u128::from(net.addr().to_bits()),
                net.prefix_len(),
            ),
            IpNet::V6(net) => (Family::V6, net.addr().to_bits(), net.prefix_len()),
        };
        let first = self.table.cmp(&other.table);
        first
            .then_with(|| number(&self.prefix).cmp(&number(&other.prefix)))
            .then_with(|| self.from.cmp(&other.from))
            .then_with(|| (self.tos, self.metric).cmp(&(other.tos, other.metric)))
    }
}

impl PartialOrd for RouteKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl RouteKey {
    /// Returns the key of a plain route to this prefix: table main, the kernel's default metric.
    pub const fn new(prefix: IpNet) -> Self {
        Self {
            table: TableId::MAIN,
            prefix,
            from: None,
            tos: 0,
            metric: Self::default_metric(Family::of_prefix(&prefix)),
        }
    }

    /// Default metric (IPv6: `IP6_RT_PRIO_USER`).
    pub const fn default_metric(family: Family) -> u32 {
        match family {
            Family::V4 => 0,
            Family::V6 => 1024,
        }
    }
}

/// Where routes and nexthop objects come from. The IDs of one source mean nothing to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Netlink of the kernel.
    Kernel,
    /// FRR, by FPM.
    Fpm,
}

impl Source {
    /// Returns the source of a route of the mirror.
    pub const fn of(route: &Route) -> Self {
        match route.owner {
            Owner::Fpm { .. } => Self::Fpm,
            Owner::Kernel | Owner::Sidestep => Self::Kernel,
        }
    }
}

/// Identity of a nexthop object: `NHA_ID` with its source.
pub type ObjectId = (Source, u32);

/// A change of a nexthop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectChange {
    /// Object.
    pub object: ObjectId,
    /// Next hops before; none if the object dropped packets.
    pub before: Option<Vec<NextHop>>,
    /// Next hops after.
    pub after: Option<Vec<NextHop>>,
    /// Number of routes that refer to the object.
    pub routes: usize,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Identity.
    pub key: RouteKey,
    /// Type.
    pub kind: RouteKind,
    /// Next hops. Empty for blackhole, unreachable and prohibit; more than one for multipath.
    pub next_hops: NextHops,
    /// `src`: preferred source address.
    pub prefsrc: Option<IpAddr>,
    /// `mtu` metric of the route.
    pub mtu: Option<u32>,
    /// `nhid`: ID of the nexthop object that the route refers to.
    pub nhid: Option<u32>,
    /// Routing protocol number (`proto`).
    pub protocol: u8,
    /// Owner.
    pub owner: Owner,
}

impl Route {
    /// Returns the nexthop object that the route refers to.
    pub fn object(&self) -> Option<ObjectId> {
        Some((Source::of(self), self.nhid?))
    }

    /// The family of its prefix.
    pub const fn family(&self) -> Family {
        Family::of_prefix(&self.key.prefix)
    }

    /// Returns true if packets for the prefix are processed by an endpoint behavior.
    pub fn is_sid(&self) -> bool {
        let mut encaps = self.next_hops.iter().map(|hop| &hop.encap);
        encaps.any(|encap| matches!(encap, Some(Encap::Seg6Local(_))))
    }
}

/// The next hops of a route. Copies share them, because many routes have the same ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<NextHop>", into = "Vec<NextHop>")]
pub struct NextHops(Arc<[NextHop]>);

impl NextHops {
    /// Returns them for a change. Routes that share them keep the old ones.
    pub fn make_mut(&mut self) -> &mut [NextHop] {
        Arc::make_mut(&mut self.0)
    }

    /// Changes the list itself.
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut Vec<NextHop>) -> T) -> T {
        let mut hops = self.0.to_vec();
        let value = change(&mut hops);
        self.0 = hops.into();
        value
    }

    /// Returns whether no other route has them.
    pub fn are_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Deref for NextHops {
    type Target = [NextHop];

    fn deref(&self) -> &[NextHop] {
        &self.0
    }
}

impl Default for NextHops {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl fmt::Debug for NextHops {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl From<Vec<NextHop>> for NextHops {
    fn from(hops: Vec<NextHop>) -> Self {
        Self(hops.into())
    }
}

impl From<NextHops> for Vec<NextHop> {
    fn from(hops: NextHops) -> Self {
        hops.0.to_vec()
    }
}

impl FromIterator<NextHop> for NextHops {
    fn from_iter<I: IntoIterator<Item = NextHop>>(hops: I) -> Self {
        Self(hops.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a NextHops {
    type Item = &'a NextHop;
    type IntoIter = std::slice::Iter<'a, NextHop>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// One next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NextHop {
    /// `via ADDRESS`. `None` if destinations are on-link.
    pub via: Option<IpAddr>,
    /// `dev`.
    pub dev: Option<IfIndex>,
    /// Weight, 1 to 256.
    pub weight: u16,
    /// `onlink`.
    pub onlink: bool,
    /// The kernel reports this next hop as unusable (dead, link down).
    pub dead: bool,
    /// `encap …`.
    pub encap: Option<Encap>,
}

impl NextHop {
    /// Returns a next hop with weight 1 and nothing else set.
    pub const fn new() -> Self {
        Self {
            via: None,
            dev: None,
            weight: 1,
            onlink: false,
            dead: false,
            encap: None,
        }
    }
}

impl Default for NextHop {
    fn default() -> Self {
        Self::new()
    }
}

/// Lightweight tunnel encapsulation of a next hop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Encap {
    /// Headend behavior.
    Seg6(Seg6Encap),
    /// Endpoint behavior.
    Seg6Local(Seg6Local),
    /// Steers into SR policies. Sidestep-only.
    Policy(Steering),
    /// Binding SID of the SR policy with this name.
    Binding(String),
    /// An encapsulation that the fast path does not support; its packets are punted. Holds its
    /// name.
    Unsupported(String),
}

/// A policy rule (`ip rule`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rule {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Priority. The lowest value is evaluated first.
    pub priority: u32,
    /// `not`.
    pub invert: bool,
    /// `iif NAME`. A name, since a rule may refer to an interface that does not exist.
    pub iif: Option<String>,
    /// `oif NAME` (locally generated packets only).
    pub oif: Option<String>,
    /// `from PREFIX`.
    pub from: Option<IpNet>,
    /// `to PREFIX`.
    pub to: Option<IpNet>,
    /// `l3mdev`: the table of the VRF that the interface belongs to. The action is then
    /// `Table(TableId(0))`, as in the kernel.
    pub l3mdev: bool,
    /// `suppress_prefixlength`: routes with a prefix of at most this length do not match.
    pub suppress_prefixlength: Option<u32>,
    /// Action.
    pub action: RuleAction,
    /// Selectors and actions that the fast path does not support (fwmark, tos, ports, goto, …), as
    /// iproute2 prints them: keyword and value if known (`fwmark 0x10`).
    pub unsupported: Vec<String>,
    /// Owner.
    pub owner: Owner,
}

/// Action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RuleAction {
    /// `lookup TABLE`.
    Table(TableId),
    /// `blackhole`.
    Blackhole,
    /// `unreachable`.
    Unreachable,
    /// `prohibit`.
    Prohibit,
    /// `seg6local-behaviour BEHAVIOR`: selects packets from the services of these SR proxies.
    /// Forwarding ignores it, since the return path belongs to the port.
    Proxies(Behavior),
    /// `goto` and other actions that the fast path does not support.
    Other,
}
