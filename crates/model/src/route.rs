//! Routes and policy rules, as rtnetlink has them.

use std::net::IpAddr;

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

/// What a route says of its destinations (`RTN_*`).
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
    /// Drop without a word.
    Blackhole,
    /// Drop, ICMP no route / host unreachable.
    Unreachable,
    /// Drop, ICMP administratively prohibited.
    Prohibit,
    /// No match in this table: go on with the next rule.
    Throw,
    /// Any other type, by its number.
    Other(u8),
}

/// Who holds the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// The kernel has the same route: a packet may be left to it unchanged.
    Kernel,
    /// Only Sidestep has it (`sidestep route add`, YAML).
    Sidestep,
}

/// What identifies a route: one `ip route add` with the same key is refused by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

impl RouteKey {
    /// The key of a route to this prefix that says nothing else: table main, the kernel's default metric.
    pub const fn new(prefix: IpNet) -> Self {
        Self {
            table: TableId::MAIN,
            prefix,
            from: None,
            tos: 0,
            metric: Self::default_metric(Family::of_prefix(&prefix)),
        }
    }

    /// The metric of a route that was added without one (IPv6: `IP6_RT_PRIO_USER`).
    pub const fn default_metric(family: Family) -> u32 {
        match family {
            Family::V4 => 0,
            Family::V6 => 1024,
        }
    }
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Identity.
    pub key: RouteKey,
    /// Type.
    pub kind: RouteKind,
    /// Next hops; empty for blackhole and its like. More than one: multipath.
    pub next_hops: Vec<NextHop>,
    /// `src`: preferred source address.
    pub prefsrc: Option<IpAddr>,
    /// `mtu` metric of the route.
    pub mtu: Option<u32>,
    /// `nhid`: nexthop object, if the route refers to one.
    pub nhid: Option<u32>,
    /// Routing protocol number (`proto`).
    pub protocol: u8,
    /// Who holds it.
    pub owner: Owner,
}

impl Route {
    /// The family of its prefix.
    pub const fn family(&self) -> Family {
        Family::of_prefix(&self.key.prefix)
    }
}

/// One next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NextHop {
    /// `via ADDRESS`; none: destinations are on the link.
    pub via: Option<IpAddr>,
    /// `dev`.
    pub dev: Option<IfIndex>,
    /// Weight, 1 to 256.
    pub weight: u16,
    /// `onlink`.
    pub onlink: bool,
    /// The kernel says that this next hop cannot be used now (dead, link down).
    pub dead: bool,
    /// `encap …`.
    pub encap: Option<Encap>,
}

impl NextHop {
    /// A next hop that says nothing yet: weight 1.
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
    /// Steered into SR policies; Sidestep's own.
    Policy(Steering),
    /// The binding SID of the SR policy of that name.
    Binding(String),
    /// Something the fast path does not know: such packets are the kernel's. Says what.
    Unsupported(String),
}

/// A policy rule (`ip rule`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rule {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Lower is earlier.
    pub priority: u32,
    /// `not`.
    pub invert: bool,
    /// `iif NAME`: the name, since a rule may name an interface that is not there.
    pub iif: Option<String>,
    /// `oif NAME` (locally generated packets only).
    pub oif: Option<String>,
    /// `from PREFIX`.
    pub from: Option<IpNet>,
    /// `to PREFIX`.
    pub to: Option<IpNet>,
    /// `l3mdev`: the table of the VRF that the interface belongs to; the action is then `Table(TableId(0))`, as the
    /// kernel has it.
    pub l3mdev: bool,
    /// `suppress_prefixlength`: a route whose prefix has up to so many bits does not count.
    pub suppress_prefixlength: Option<u32>,
    /// What the rule does.
    pub action: RuleAction,
    /// Selectors and actions that the fast path does not know (fwmark, tos, ports, goto, …), in iproute2's words:
    /// the keyword and, where it is known, its value (`fwmark 0x10`).
    pub unsupported: Vec<String>,
    /// Who holds it.
    pub owner: Owner,
}

/// What a rule does with a packet that it matches.
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
    /// `seg6local-behaviour BEHAVIOR`: packets come back from the services of these SR proxies. Says nothing to
    /// forwarding: the way back belongs to the port.
    Proxies(Behavior),
    /// `goto` and others: not known to the fast path.
    Other,
}
