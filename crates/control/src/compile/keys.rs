//! Keys of the index allocators: what distinguishes one record of a table from another.

use std::net::{IpAddr, Ipv6Addr};

use sidestep_datapath::abi::sidestep_route;
use sidestep_datapath::{KeySlot, RouteId, SessionId, ViewId};
use sidestep_model::behavior::Seg6Encap;
use sidestep_model::behavior::proxy::InnerType;
use sidestep_model::node::{IfIndex, Mac, TableId};
use sidestep_model::policy::{ListId, OnlyNextHop};
use sidestep_model::route::{Family, ObjectId, RouteKey};
use sidestep_model::vlan::VlanTableId;

use super::chain::Chain;
use super::tables::Prefix;

/// Key of a route record: the whole record.
pub(super) type RouteRecord = sidestep_route;

/// Key of a view of the prefix table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ViewKey {
    /// Routing tables, as rules search them.
    Chain(Chain),
    /// Exactly these prefixes, with their routes: a view by source address, or a view that leads to
    /// one.
    Leading(Vec<(Prefix, RouteId)>),
    /// A VLAN table.
    Vlans(VlanTableId),
    /// HMAC Key IDs.
    HmacKeys,
    /// Local addresses of an interface by which a service returns packets.
    Own(IfIndex, Family),
    /// The SID blocks of the SR domain.
    Domain,
    /// BFD discriminators of the node.
    Discriminators,
}

/// Key of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum GroupKey {
    /// Exactly this content.
    Slots {
        /// Seed of the flow hash.
        seed: u32,
        /// Route of each slot.
        slots: Vec<RouteId>,
    },
    /// The next hops of a nexthop object, whatever they are.
    Object(ObjectKey),
}

/// Key of the group of a nexthop object: the object, and the properties of its routes that their
/// next hops depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectKey {
    pub object: ObjectId,
    pub table: TableId,
    pub family: Family,
    pub mtu: Option<u32>,
    /// Whether the kernel has the routes.
    pub in_kernel: bool,
}

/// Key of an adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AdjacencyKey {
    /// Egress.
    pub dev: IfIndex,
    /// Receiver on the link.
    pub via: Via,
    /// MTU of the route, if it has one.
    pub mtu: Option<u32>,
}

/// Receiver of the frames that an adjacency sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Via {
    /// The link: a frame is sent unmodified (End.DX2), without a neighbor.
    Link,
    /// The neighbor with this IP address.
    Address(IpAddr),
    /// The neighbor with this Ethernet address.
    Ethernet(Mac),
}

/// Key of a policy record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PolicyKey {
    /// Encapsulation.
    pub encap: Seg6Encap,
    /// Source address of the outer header.
    pub source: Ipv6Addr,
    /// Hop limit of the outer header.
    pub hop_limit: u8,
    /// Flow label mode (`SIDESTEP_FLOW_LABEL_*`).
    pub flow_label: u8,
    /// The only next hop toward the first segment, if an SR policy determines it.
    pub alone: Option<OnlyNextHop>,
    /// View in which the first segment is looked up, if not the ingress port's.
    pub view: ViewId,
    /// HMAC key that signs the SRH.
    pub hmac_key: KeySlot,
    /// The list of an SR policy that the record is of, if the list has a path or a backup.
    pub guard: Option<Guard>,
}

/// A list of an SR policy with a path or a backup, or a list of a kernel route with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Guard {
    /// `None` for that of a kernel route.
    pub list: Option<ListId>,
    /// Session that says whether the path is down, or `NONE`.
    pub session: SessionId,
}

/// Key of a header set of End.AD.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum LearnedKey {
    /// Header set of one SID, which no other SID shares.
    Sid {
        service: Service,
        age: u32,
        sid: RouteKey,
    },
    /// Header sets by flow, for all SIDs with this return port.
    Flows { iif: IfIndex, age: u32, flows: u32 },
}

/// Location of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Service {
    /// Interface to the service.
    pub oif: IfIndex,
    /// Interface by which the service returns packets.
    pub iif: IfIndex,
    /// Receiver on the link to the service.
    pub via: Via,
    /// Packets that the service processes.
    pub inner_type: InnerType,
}
