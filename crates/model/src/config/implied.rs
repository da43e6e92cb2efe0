//! The routes that the kernel creates for an interface and its addresses.
//!
//! A test compares them with a kernel (`tests/iproute2.rs`). Not included: the link-local address
//! that Linux derives from the MAC, and the loopback interface.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::node::{IfIndex, Node, TableId};
use crate::route::{NextHop, NextHops, Owner, Route, RouteKey, RouteKind};
use crate::source::{self, SourceCandidate};

/// Metric of the kernel's own IPv6 routes: `IP6_RT_PRIO_ADDRCONF`.
const METRIC_ADDRCONF: u32 = 256;
/// `RTPROT_KERNEL`.
const PROTOCOL_KERNEL: u8 = 2;

/// Adds addresses to an interface of the node, in this order, and the routes that follow from them
/// and from the interface. The first of several IPv4 addresses in one prefix is the primary
/// address.
pub fn add_routes(node: &mut Node, dev: IfIndex, addresses: &[IpNet]) {
    let anycast = node.links.get(&dev).is_some_and(|link| link.forwarding6);
    for (number, address) in addresses.iter().enumerate() {
        node.addresses.insert((dev, *address));
        match address {
            IpNet::V6(net) => {
                let candidates = node.sources.entry(dev).or_default();
                source::place(candidates, SourceCandidate::new(*net));
                add_ipv6(node, dev, *net);
            }
            IpNet::V4(net) => add_ipv4(node, dev, *net, &addresses[..number]),
        }
    }
    let link_local = Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 64);
    let multicast = Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);
    add(
        node,
        dev,
        RouteKind::Unicast,
        TableId::MAIN,
        link_local.into(),
        METRIC_ADDRCONF,
        None,
    );
    add(
        node,
        dev,
        RouteKind::Multicast,
        TableId::LOCAL,
        multicast.into(),
        METRIC_ADDRCONF,
        None,
    );
    // RFC 4291 2.6.1: a router has the subnet-router anycast address of its prefixes. As in Linux,
    // a /127 has none, since it would be the other end of the link (RFC 6164).
    if anycast {
        let nets = addresses.iter().filter_map(|address| match address {
            IpNet::V6(net) if net.prefix_len() < 127 => Some(*net),
            _ => None,
        });
        for net in nets.chain([link_local]) {
            let prefix = IpNet::from(IpAddr::from(net.network()));
            add(
                node,
                dev,
                RouteKind::Anycast,
                TableId::LOCAL,
                prefix,
                0,
                None,
            );
        }
    }
}

fn add_ipv6(node: &mut Node, dev: IfIndex, net: Ipv6Net) {
    let host = IpNet::from(IpAddr::from(net.addr()));
    add(node, dev, RouteKind::Local, TableId::LOCAL, host, 0, None);
    add(
        node,
        dev,
        RouteKind::Unicast,
        TableId::MAIN,
        net.trunc().into(),
        METRIC_ADDRCONF,
        None,
    );
}

/// Linux: `fib_add_ifaddr` in `net/ipv4/fib_frontend.c`.
fn add_ipv4(node: &mut Node, dev: IfIndex, net: Ipv4Net, before: &[IpNet]) {
    let primary = before
        .iter()
        .filter_map(|other| match other {
            IpNet::V4(other) => Some(*other),
            IpNet::V6(_) => None,
        })
        .find(|other| other.trunc() == net.trunc());
    let source = Some(IpAddr::from(primary.unwrap_or(net).addr()));
    let host = IpNet::from(IpAddr::from(net.addr()));
    add(node, dev, RouteKind::Local, TableId::LOCAL, host, 0, source);
    if primary.is_some() {
        return;
    }
    if net.prefix_len() < 32 {
        add(
            node,
            dev,
            RouteKind::Unicast,
            TableId::MAIN,
            net.trunc().into(),
            0,
            source,
        );
    }
    if net.prefix_len() < 31 {
        let broadcast = IpNet::from(IpAddr::from(net.broadcast()));
        add(
            node,
            dev,
            RouteKind::Broadcast,
            TableId::LOCAL,
            broadcast,
            0,
            source,
        );
    }
}

/// Adds a route. If its key exists, the kernel keeps both and uses the first (IPv4), or merges them
/// into a multipath route (IPv6).
fn add(
    node: &mut Node,
    dev: IfIndex,
    kind: RouteKind,
    table: TableId,
    prefix: IpNet,
    metric: u32,
    prefsrc: Option<IpAddr>,
) {
    let key = RouteKey {
        table,
        metric,
        ..RouteKey::new(prefix)
    };
    let hop = NextHop {
        dev: Some(dev),
        ..NextHop::new()
    };
    let route = node.routes.entry(key).or_insert_with(|| Route {
        key,
        kind,
        next_hops: NextHops::default(),
        prefsrc,
        mtu: None,
        nhid: None,
        protocol: PROTOCOL_KERNEL,
        owner: Owner::Kernel,
    });
    let ipv6 = matches!(prefix, IpNet::V6(_));
    let another = ipv6 && route.kind == kind && !route.next_hops.contains(&hop);
    if route.next_hops.is_empty() || another {
        route.next_hops.edit(|hops| hops.push(hop));
    }
}

/// Returns true if `there` is a route that the kernel created, and `route` is equal to it.
pub(super) fn holds(there: &Route, route: &Route) -> bool {
    let kernels = |route: &Route| route.protocol == PROTOCOL_KERNEL && route.owner == Owner::Kernel;
    kernels(there)
        && kernels(route)
        && there.kind == route.kind
        && route
            .next_hops
            .iter()
            .all(|hop| there.next_hops.contains(hop))
}
