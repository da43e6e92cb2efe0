//! Decodes a route from `RTM_NEWROUTE` or `RTM_DELROUTE`.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::route::{Encap, NextHop, Owner, Route, RouteKey, RouteKind};

use crate::seg6;
use crate::wire::{
    Attribute, Message, address, attributes, attributes_after, prefix, u16_at, u32_at,
};

/// Length of `struct rtmsg`.
pub(crate) const RTMSG: usize = 12;

/// A route as the kernel reports it.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub route: Route,
    pub lifetime: Lifetime,
}

/// Remaining lifetime of a route (`expires`). An IPv6 multipath route has that of its first next
/// hop in a dump, and that of the changed one in a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// None, or less than 10 ms.
    Unlimited,
    /// The route expires after this time.
    Left(Duration),
    /// The kernel does not use the route any more, and has not removed it yet.
    Expired,
}

impl Lifetime {
    /// Returns the lifetime of a `struct rta_cacheinfo`.
    fn decode(cacheinfo: &[u8]) -> Self {
        // rta_expires, in USER_HZ: 100 per second.
        let ticks = u32_at(cacheinfo, 8).unwrap_or_default() as i32;
        match ticks {
            0 => Self::Unlimited,
            1.. => Self::Left(Duration::from_millis(10 * u64::from(ticks.unsigned_abs()))),
            _ => Self::Expired,
        }
    }
}

/// Returns the route in `message`. Returns `None` for messages that are not about routes of a
/// table: clones with a path MTU or a redirect, other address families, multicast forwarding
/// entries.
pub(crate) fn decode(message: &Message<'_>) -> Option<Reported> {
    let fixed = message.body.first_chunk::<RTMSG>()?;
    let [
        family,
        dst_len,
        src_len,
        tos,
        table,
        protocol,
        _scope,
        kind,
        flags @ ..,
    ] = *fixed;
    let flags = u32::from_ne_bytes(flags);
    if flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut table = u32::from(table);
    let (mut dst, mut src, mut prefsrc) = (None, None, None);
    let (mut metric, mut mtu, mut nhid, mut multipath) = (0, None, None, None);
    let mut hop = HopAttributes::default();
    let mut lifetime = Lifetime::Unlimited;
    for attribute in attributes_after(message.body, RTMSG) {
        match attribute.kind {
            libc::RTA_DST => dst = attribute.address(),
            libc::RTA_SRC => src = attribute.address(),
            libc::RTA_PREFSRC => prefsrc = attribute.address(),
            libc::RTA_PRIORITY => metric = attribute.u32()?,
            libc::RTA_TABLE => table = attribute.u32()?,
            libc::RTA_METRICS => {
                mtu = attribute
                    .nested()
                    .find(|metric| metric.kind == RTAX_MTU)
                    .and_then(|metric| metric.u32());
            }
            libc::RTA_MULTIPATH => multipath = Some(attribute.value),
            RTA_NH_ID => nhid = attribute.u32(),
            libc::RTA_CACHEINFO => lifetime = Lifetime::decode(attribute.value),
            _ => hop.take(&attribute),
        }
    }
    let from = if src_len > 0 {
        Some(prefix(family, src, src_len)?)
    } else {
        None
    };
    let kind = route_kind(kind);
    let next_hops = if discards(kind) {
        Vec::new()
    } else if let Some(multipath) = multipath {
        next_hops(multipath)
    } else if nhid.is_some() && hop.is_empty() {
        // The kernel names the nexthop object and nothing else: net.ipv4.nexthop_compat_mode is 0.
        // The caller resolves it.
        Vec::new()
    } else {
        vec![hop.next_hop(flags as u8, 1)]
    };
    let mut route = Route {
        key: RouteKey {
            table: TableId(table),
            prefix: prefix(family, dst, dst_len)?,
            from,
            tos,
            metric,
        },
        kind,
        next_hops: next_hops.into(),
        prefsrc,
        mtu,
        nhid,
        protocol,
        owner: Owner::Kernel,
    };
    if matches!(route.key.prefix, IpNet::V6(_)) {
        // Sort, because an IPv6 notification starts with the changed sibling, and a dump with the
        // first one.
        route.next_hops.make_mut().sort_unstable();
    }
    Some(Reported { route, lifetime })
}

/// Returns whether a route of this kind never forwards packets, although the kernel may report a
/// device.
fn discards(kind: RouteKind) -> bool {
    matches!(
        kind,
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit | RouteKind::Throw
    )
}

/// Attributes of one next hop, from the message itself or from an entry of its `RTA_MULTIPATH`.
#[derive(Default)]
pub(crate) struct HopAttributes<'a> {
    pub via: Option<IpAddr>,
    pub dev: Option<IfIndex>,
    pub encap_type: Option<u16>,
    pub encap: Option<&'a [u8]>,
}

impl<'a> HopAttributes<'a> {
    fn take(&mut self, attribute: &Attribute<'a>) {
        match attribute.kind {
            libc::RTA_GATEWAY => self.via = attribute.address(),
            // struct rtvia: family, address.
            RTA_VIA => self.via = attribute.value.get(2..).and_then(address),
            libc::RTA_OIF => self.dev = attribute.u32().map(IfIndex),
            RTA_ENCAP_TYPE => self.encap_type = attribute.u16(),
            RTA_ENCAP => self.encap = Some(attribute.value),
            _ => {}
        }
    }

    fn is_empty(&self) -> bool {
        let has_encap = self.encap_type.is_some() || self.encap.is_some();
        self.via.is_none() && self.dev.is_none() && !has_encap
    }

    pub fn next_hop(self, flags: u8, weight: u16) -> NextHop {
        NextHop {
            via: self.via,
            dev: self.dev,
            weight,
            onlink: flags & RTNH_F_ONLINK != 0,
            // A next hop on a link without carrier (RTNH_F_LINKDOWN) remains usable, unless
            // ignore_routes_with_linkdown is set. The kernel then reports RTNH_F_DEAD as well.
            dead: flags & RTNH_F_DEAD != 0,
            encap: match (self.encap_type, self.encap) {
                (Some(of), value) => Some(seg6::decode(of, value.unwrap_or_default())),
                (None, Some(_)) => Some(Encap::Unsupported("an unknown type".to_owned())),
                (None, None) => None,
            },
        }
    }
}

/// Decodes the next hops of an `RTA_MULTIPATH`: a sequence of `struct rtnexthop` with attributes.
fn next_hops(mut bytes: &[u8]) -> Vec<NextHop> {
    let mut found = Vec::new();
    while let (Some(length), Some(&[flags, hops]), Some(ifindex)) =
        (u16_at(bytes, 0), bytes.get(2..4), u32_at(bytes, 4))
    {
        let Some(entry) = bytes.get(8..usize::from(length)) else {
            break;
        };
        let mut hop = HopAttributes::default();
        for attribute in attributes(entry) {
            hop.take(&attribute);
        }
        hop.dev = (ifindex != 0).then_some(IfIndex(ifindex));
        found.push(hop.next_hop(flags, u16::from(hops) + 1));
        bytes = bytes
            .get(usize::from(length).next_multiple_of(4)..)
            .unwrap_or_default();
    }
    found
}

/// Whether the kernel named the nexthop object of the route and nothing else.
pub(crate) fn is_unresolved(route: &Route) -> bool {
    route.nhid.is_some() && route.kind == RouteKind::Unicast && route.next_hops.is_empty()
}

fn route_kind(kind: u8) -> RouteKind {
    match kind {
        libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL => RouteKind::Local,
        libc::RTN_BROADCAST => RouteKind::Broadcast,
        libc::RTN_ANYCAST => RouteKind::Anycast,
        libc::RTN_MULTICAST => RouteKind::Multicast,
        libc::RTN_BLACKHOLE => RouteKind::Blackhole,
        libc::RTN_UNREACHABLE => RouteKind::Unreachable,
        libc::RTN_PROHIBIT => RouteKind::Prohibit,
        libc::RTN_THROW => RouteKind::Throw,
        other => RouteKind::Other(other),
    }
}

// include/uapi/linux/rtnetlink.h.
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_MTU: u16 = 2;
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_ONLINK: u8 = 4;
