//! Routes: every form that the kernel accepts, and every way to add, change and remove them.

#[path = "../common/mod.rs"]
mod common;
mod encap;

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use common::{assert_current, batch, in_namespace, index, ip, sysctl, try_ip, two_pairs, until};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, bind, sendto,
    setsockopt, socket, sockopt,
};
use sidestep_mirror::Mirror;
use sidestep_model::behavior::Behavior;
use sidestep_model::node::{IfIndex, Node, TableId};
use sidestep_model::route::{Encap, Route, RouteKey, RouteKind};

/// Returns the routes to a prefix, in all tables and with all metrics.
fn to<'a>(node: &'a Node, prefix: &str) -> Vec<&'a Route> {
    let prefix = prefix.parse().expect("a prefix");
    node.routes
        .values()
        .filter(|route| route.key.prefix == prefix)
        .collect()
}

fn the<'a>(node: &'a Node, prefix: &str) -> &'a Route {
    match to(node, prefix)[..] {
        [route] => route,
        ref others => panic!("{} routes to {prefix}", others.len()),
    }
}

#[test]
fn every_attribute_of_a_plain_route_is_mirrored() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        batch(
            "route add 192.0.2.0/24 via 10.1.0.2 dev va src 10.1.0.1 metric 7 tos 0x10 mtu 1400 proto 99 table 1000
             route add 192.0.2.0/24 via 10.1.0.3 dev va metric 7 table 1000
             route add 192.0.2.0/24 via 10.1.0.3 dev va metric 8 table 1000
             route add default via 192.0.2.9 dev vc onlink
             route add blackhole 192.0.2.1/32
             route add unreachable 192.0.2.2/32
             route add prohibit 192.0.2.3/32
             route add throw 192.0.2.4/32 table 1000
             route add 192.0.2.5/32 via inet6 fe80::1 dev va
             route add 198.51.100.0/24 nexthop via 10.1.0.2 dev va weight 3 nexthop via 10.2.0.2 dev vc weight 256
             -6 route add 2001:db8::/32 from 2001:db8:1::/48 via fc00:1::2 dev va src fc00:1::1 mtu 1300 metric 5
             -6 route add default via fc00:9::9 dev vc onlink
             -6 route add blackhole 2001:db8::1
             -6 route add unreachable 2001:db8::2
             -6 route add prohibit 2001:db8::3
             -6 route add throw 2001:db8::4
             -6 route add 2001:db8::5 dev va
             -6 route add 2001:db8:7::/48 nexthop via fc00:1::2 dev va weight 3 nexthop via fc00:2::2 dev vc",
        );
        until(&mut mirror, "the last route", |node| {
            // The kernel adds the route of an address a little later.
            ["2001:db8:7::/48", "fc00:1::1/128"]
                .iter()
                .all(|prefix| !to(node, prefix).is_empty())
        });
        let (a, c) = (index(&mirror, "va"), index(&mirror, "vc"));
        let node = mirror.node();
        let key = |metric, tos| RouteKey {
            table: TableId(1000),
            prefix: "192.0.2.0/24".parse().unwrap(),
            from: None,
            tos,
            metric,
        };
        let full = &node.routes[&key(7, 0x10)];
        assert_eq!(full.prefsrc, Some("10.1.0.1".parse().unwrap()));
        assert_eq!((full.mtu, full.protocol, full.nhid), (Some(1400), 99, None));
        assert_eq!(full.next_hops[0].via, Some("10.1.0.2".parse().unwrap()));
        assert!(node.routes.contains_key(&key(7, 0)) && node.routes.contains_key(&key(8, 0)));
        assert!(the(node, "0.0.0.0/0").next_hops[0].onlink);
        assert!(the(node, "::/0").next_hops[0].onlink);
        assert!(!full.next_hops[0].onlink);
        for (prefix, kind) in [
            ("192.0.2.1/32", RouteKind::Blackhole),
            ("192.0.2.2/32", RouteKind::Unreachable),
            ("192.0.2.3/32", RouteKind::Prohibit),
            ("192.0.2.4/32", RouteKind::Throw),
            ("2001:db8::1/128", RouteKind::Blackhole),
            ("2001:db8::2/128", RouteKind::Unreachable),
            ("2001:db8::3/128", RouteKind::Prohibit),
            ("2001:db8::4/128", RouteKind::Throw),
        ] {
            let route = the(node, prefix);
            assert_eq!((route.kind, route.next_hops.len()), (kind, 0), "{prefix}");
        }
        assert_eq!(
            the(node, "192.0.2.5/32").next_hops[0].via,
            Some("fe80::1".parse().unwrap())
        );
        assert_eq!(the(node, "2001:db8::5/128").next_hops[0].via, None);
        let from = the(node, "2001:db8::/32");
        assert_eq!(from.key.from, Some("2001:db8:1::/48".parse().unwrap()));
        assert_eq!((from.key.metric, from.mtu), (5, Some(1300)));
        assert_eq!(from.prefsrc, Some("fc00:1::1".parse().unwrap()));
        let hops = |prefix| -> Vec<_> {
            let hops = the(node, prefix).next_hops.iter();
            hops.map(|hop| (hop.dev, hop.weight)).collect()
        };
        assert_eq!(hops("198.51.100.0/24"), [(Some(a), 3), (Some(c), 256)]);
        assert_eq!(hops("2001:db8:7::/48"), [(Some(a), 3), (Some(c), 1)]);
        assert_eq!(the(node, "10.1.0.1/32").kind, RouteKind::Local);
        assert_eq!(the(node, "10.1.0.255/32").kind, RouteKind::Broadcast);
        assert_eq!(the(node, "fc00:1::1/128").kind, RouteKind::Local);
        assert_eq!(the(node, "ff00::/8").kind, RouteKind::Multicast);
        assert_current(&mut mirror, "after all forms");
    });
}

#[test]
fn next_hops_of_an_ipv6_route_are_added_and_removed_one_by_one() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let prefix = "2001:db8::/32";
        let count = |expected: usize| {
            move |node: &Node| {
                to(node, prefix).first().map_or(0, |it| it.next_hops.len()) == expected
            }
        };
        let mut step = |command: &str, expected: usize| {
            ip(&format!("-6 route {command}"));
            until(&mut mirror, command, count(expected));
            assert_current(&mut mirror, command);
        };
        step("add 2001:db8::/32 via fc00:1::2", 1);
        step("append 2001:db8::/32 via fc00:2::2", 2);
        step(
            "append 2001:db8::/32 via fc00:1::3 encap seg6 mode encap segs fc01::1",
            3,
        );
        step(
            "append 2001:db8::/32 nexthop via fc00:1::4 nexthop via fc00:2::4",
            5,
        );
        step("prepend 2001:db8::/32 via fc00:2::5", 6);
        step("del 2001:db8::/32 via fc00:1::2", 5);
        step(
            "del 2001:db8::/32 nexthop via fc00:1::4 nexthop via fc00:2::4",
            3,
        );
        step(
            "replace 2001:db8::/32 nexthop via fc00:1::6 weight 2 nexthop via fc00:2::6 weight 5",
            2,
        );
        step(
            "replace 2001:db8::/32 nexthop via fc00:1::6 nexthop via fc00:2::6 nexthop via fc00:2::7",
            3,
        );
        step("replace 2001:db8::/32 via fc00:1::7", 1);
        step("append 2001:db8::/32 dev va", 1);
        step("append 2001:db8::/32 dev vc", 1);
        step("append 2001:db8::/32 via fc00:1::8", 2);
        step("replace 2001:db8::/32 dev vc metric 1024 mtu 1400", 2);
        for command in [
            "del 2001:db8::/32 via fc00:1::8",
            "replace blackhole 2001:db8::/32",
            "append 2001:db8::/32 via fc00:1::9",
            "replace 2001:db8::/32 nexthop via fc00:1::a nexthop via fc00:2::a",
            "del 2001:db8::/32",
            "del 2001:db8::/32",
        ] {
            ip(&format!("-6 route {command}"));
            assert_current(&mut mirror, command);
        }
    });
}

#[test]
fn the_first_of_several_ipv4_routes_with_one_key_is_mirrored() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        let prefix = "192.0.2.0/24";
        let mut step = |command: &str, via: Option<&str>| {
            ip(&format!("route {command}"));
            let via = via.map(|via| via.parse().unwrap());
            until(&mut mirror, command, |node| {
                to(node, prefix).first().and_then(|it| it.next_hops[0].via) == via
            });
            assert_current(&mut mirror, command);
        };
        step("add 192.0.2.0/24 via 10.1.0.2", Some("10.1.0.2"));
        step("append 192.0.2.0/24 via 10.1.0.3", Some("10.1.0.2"));
        step("append 192.0.2.0/24 via 10.2.0.4", Some("10.1.0.2"));
        step("prepend 192.0.2.0/24 via 10.1.0.5", Some("10.1.0.5"));
        step("del 192.0.2.0/24 via 10.1.0.2", Some("10.1.0.5"));
        step("replace 192.0.2.0/24 via 10.1.0.6", Some("10.1.0.6"));
        step("del 192.0.2.0/24 via 10.1.0.6", Some("10.1.0.3"));
        step("del 192.0.2.0/24 via 10.1.0.3", Some("10.2.0.4"));
        step("change 192.0.2.0/24 via 10.2.0.7", Some("10.2.0.7"));
        step("del 192.0.2.0/24", None);
    });
}

#[test]
fn a_link_down_removes_routes_and_marks_next_hops_dead() {
    in_namespace(|| {
        two_pairs();
        batch(
            "route add 192.0.2.0/24 via 10.1.0.2
             route add 198.51.100.0/24 nexthop via 10.1.0.2 dev va nexthop via 10.2.0.2 dev vc
             -6 route add 2001:db8::/32 via fc00:1::2
             -6 route add 2001:db8:7::/48 nexthop via fc00:1::2 dev va nexthop via fc00:2::2 dev vc",
        );
        let mut mirror = Mirror::open().unwrap();
        let a = index(&mirror, "va");
        ip("link set va down");
        until(&mut mirror, "a down", |node| {
            !node.links[&a].up
                && to(node, "192.0.2.0/24").is_empty()
                && to(node, "2001:db8::/32").is_empty()
        });
        for prefix in ["198.51.100.0/24", "2001:db8:7::/48"] {
            let dead: BTreeMap<_, _> = the(mirror.node(), prefix)
                .next_hops
                .iter()
                .map(|hop| (hop.dev, hop.dead))
                .collect();
            assert_eq!(dead.len(), 2, "{prefix}");
            assert!(
                dead[&Some(a)] && !dead[&Some(index(&mirror, "vc"))],
                "{prefix}"
            );
        }
        assert_current(&mut mirror, "after a went down");
        ip("link set va up");
        until(&mut mirror, "a up", |node| {
            node.links[&a].up
                && the(node, "198.51.100.0/24")
                    .next_hops
                    .iter()
                    .all(|hop| !hop.dead)
        });
        assert_current(&mut mirror, "after a came up");
        // The mirror sees only the result, because both commands are in one batch.
        ip("route add 192.0.2.0/24 via 10.1.0.2");
        mirror.process().unwrap();
        batch("link set va down\nlink set va up");
        until(&mut mirror, "the flap", |node| {
            to(node, "192.0.2.0/24").is_empty()
        });
        assert_current(&mut mirror, "after a flap");
        // The other end goes down: no carrier.
        sysctl("ipv4/conf/va/ignore_routes_with_linkdown", "1");
        ip("link set vb down");
        until(&mut mirror, "no carrier", |node| {
            the(node, "198.51.100.0/24")
                .next_hops
                .iter()
                .any(|hop| hop.dead)
        });
        assert_current(&mut mirror, "without carrier");
        ip("link del va");
        until(&mut mirror, "a gone", |node| !node.links.contains_key(&a));
        assert_current(&mut mirror, "after a was deleted");
    });
}

#[test]
fn removing_an_address_removes_routes_and_preferred_sources() {
    in_namespace(|| {
        two_pairs();
        batch(
            "addr add 10.3.0.1/32 dev lo
             route add 192.0.2.0/24 via 10.2.0.2 dev vc src 10.3.0.1
             route add 198.51.100.0/24 via 10.1.0.2
             -6 addr add fc00:3::1/128 dev lo nodad
             -6 addr add fc00:3::2/128 dev vc nodad
             -6 route add 2001:db8:1::/48 via fc00:2::2 dev vc src fc00:3::1
             -6 route add 2001:db8:2::/48 via fc00:2::2 dev vc src fc00:3::2",
        );
        let mut mirror = Mirror::open().unwrap();
        ip("addr del 10.3.0.1/32 dev lo");
        until(&mut mirror, "IPv4 source", |node| {
            to(node, "192.0.2.0/24").is_empty()
        });
        assert_current(&mut mirror, "after an IPv4 source was removed");
        ip("-6 addr del fc00:3::2/128 dev vc");
        until(&mut mirror, "IPv6 source", |node| {
            the(node, "2001:db8:2::/48").prefsrc.is_none()
        });
        // The address is on another device than the route's; an older kernel (6.1) keeps it as a
        // source.
        ip("-6 addr del fc00:3::1/128 dev lo");
        assert_current(&mut mirror, "after an IPv6 source was removed");
        ip("addr del 10.1.0.1/24 dev va");
        until(&mut mirror, "the last IPv4 address", |node| {
            to(node, "198.51.100.0/24").is_empty()
        });
        assert_current(&mut mirror, "after the last IPv4 address was removed");
        ip("addr flush dev vc");
        assert_current(&mut mirror, "after a flush");
    });
}

#[test]
fn routes_follow_their_nexthop_object() {
    in_namespace(|| {
        two_pairs();
        let mut mirror = Mirror::open().unwrap();
        batch(
            "nexthop add id 1 via 10.1.0.2 dev va
             nexthop add id 2 via 10.2.0.2 dev vc
             nexthop add id 3 group 1/2,5
             nexthop add id 4 via fc00:1::2 dev va
             nexthop add id 5 blackhole
             route add 192.0.2.0/24 nhid 1
             route add 198.51.100.0/24 nhid 3
             -6 route add 2001:db8::/32 nhid 4
             route add 203.0.113.0/24 nhid 5",
        );
        until(&mut mirror, "four routes", |node| {
            !to(node, "203.0.113.0/24").is_empty()
        });
        let (one, group) = (
            the(mirror.node(), "192.0.2.0/24"),
            the(mirror.node(), "198.51.100.0/24"),
        );
        assert_eq!(
            (one.nhid, one.next_hops[0].via),
            (Some(1), Some("10.1.0.2".parse().unwrap()))
        );
        assert_eq!((group.nhid, group.next_hops.len()), (Some(3), 2));
        assert_eq!(the(mirror.node(), "2001:db8::/32").nhid, Some(4));
        assert_eq!(
            the(mirror.node(), "203.0.113.0/24").kind,
            RouteKind::Blackhole
        );
        assert_current(&mut mirror, "with nexthop objects");
        ip("nexthop replace id 1 via 10.1.0.9 dev va");
        until(&mut mirror, "another gateway", |node| {
            the(node, "192.0.2.0/24").next_hops[0].via == Some("10.1.0.9".parse().unwrap())
        });
        assert_current(&mut mirror, "after a nexthop object changed");
        ip("nexthop del id 4");
        until(&mut mirror, "no route", |node| {
            to(node, "2001:db8::/32").is_empty()
        });
        ip("link set va down");
        until(&mut mirror, "no route", |node| {
            to(node, "192.0.2.0/24").is_empty()
        });
        assert_current(&mut mirror, "after nexthop objects went");
        sysctl("ipv4/nexthop_compat_mode", "0");
        // The mirrored state of a route is valid until its object changes.
        ip("nexthop replace id 3 group 2");
        ip("nexthop add id 9 via 10.2.0.2 dev vc");
        ip("route add 192.0.2.0/24 nhid 9");
        until(&mut mirror, "a route by name", |node| {
            !to(node, "192.0.2.0/24").is_empty()
        });
        let via = |mirror: &Mirror, prefix| the(mirror.node(), prefix).next_hops[0].via;
        assert_eq!(
            via(&mirror, "192.0.2.0/24"),
            Some("10.2.0.2".parse().unwrap())
        );
        assert_current(&mut mirror, "with nexthop_compat_mode 0");
    });
}

#[test]
fn routes_follow_their_nexthop_object_if_the_kernel_names_it_alone() {
    in_namespace(|| {
        two_pairs();
        ip("link set lo up");
        sysctl("ipv4/nexthop_compat_mode", "0");
        batch(
            "nexthop add id 1 encap seg6 mode encap segs fc01::1,fc02::2 via fc00:1::2 dev va
             nexthop add id 2 via fc00:2::2 dev vc
             nexthop add id 3 group 1,3/2
             nexthop add id 4 group 1/2 type resilient buckets 8
             -6 nexthop add id 5 blackhole
             nexthop add id 6 via 10.1.0.2 dev va
             -6 nexthop add id 7 encap seg6local action End.X nh6 fe80::2 dev va
             -6 route add 2001:db8:1::/48 nhid 1
             -6 route add 2001:db8:3::/48 nhid 3
             -6 route add 2001:db8:4::/48 nhid 4
             -6 route add 2001:db8:5::/48 nhid 5
             -6 route add 2001:db8:7::/48 nhid 7
             route add 198.51.100.0/24 nhid 6",
        );
        let mut mirror = Mirror::open().unwrap();
        let vias = |mirror: &Mirror, prefix| -> Vec<(String, u16)> {
            let hops = the(mirror.node(), prefix).next_hops.iter();
            hops.map(|hop| {
                (
                    hop.via.map(|via| via.to_string()).unwrap_or_default(),
                    hop.weight,
                )
            })
            .collect()
        };
        let one = &the(mirror.node(), "2001:db8:1::/48").next_hops[0];
        assert!(matches!(&one.encap, Some(Encap::Seg6(it)) if it.segments.len() == 2));
        assert_eq!(one.dev, Some(index(&mirror, "va")));
        let x = &the(mirror.node(), "2001:db8:7::/48").next_hops[0].encap;
        assert!(
            matches!(x, Some(Encap::Seg6Local(it)) if it.action == Behavior::EndX),
            "{x:?}"
        );
        let both = [("fc00:1::2".to_owned(), 3), ("fc00:2::2".to_owned(), 1)];
        assert_eq!(vias(&mirror, "2001:db8:3::/48"), both);
        assert_eq!(vias(&mirror, "2001:db8:4::/48").len(), 2);
        assert_eq!(
            vias(&mirror, "198.51.100.0/24"),
            [("10.1.0.2".to_owned(), 1)]
        );
        let kind = |mirror: &Mirror| the(mirror.node(), "2001:db8:5::/48").kind;
        assert_eq!(kind(&mirror), RouteKind::Blackhole);

        ip("nexthop replace id 1 via fc00:1::9 dev va");
        until(&mut mirror, "another gateway", |node| {
            the(node, "2001:db8:1::/48").next_hops[0].via == Some("fc00:1::9".parse().unwrap())
        });
        assert_eq!(vias(&mirror, "2001:db8:3::/48")[0].0, "fc00:1::9");
        assert_eq!(vias(&mirror, "2001:db8:4::/48")[0].0, "fc00:1::9");
        assert_current(&mut mirror, "after a member changed");
        ip("nexthop replace id 3 group 2");
        ip("-6 nexthop replace id 5 via fc00:2::7 dev vc");
        until(&mut mirror, "no blackhole", |node| {
            the(node, "2001:db8:5::/48").kind == RouteKind::Unicast
        });
        assert_eq!(
            vias(&mirror, "2001:db8:3::/48"),
            [("fc00:2::2".to_owned(), 1)]
        );
        assert_current(&mut mirror, "after a group and a blackhole changed");
        ip("nexthop del id 1");
        until(&mut mirror, "no route", |node| {
            to(node, "2001:db8:1::/48").is_empty()
        });
        assert_eq!(
            vias(&mirror, "2001:db8:4::/48"),
            [("fc00:2::2".to_owned(), 1)]
        );
        assert_current(&mut mirror, "after an object was deleted");
        ip("link set vc down");
        until(&mut mirror, "no routes", |node| {
            to(node, "2001:db8:3::/48").is_empty() && to(node, "2001:db8:4::/48").is_empty()
        });
        assert_current(&mut mirror, "after a link went down");
    });
}

/// Sends a router advertisement with a lifetime of half an hour (RFC 4861, section 4.2).
fn advertise(router: Ipv6Addr, dev: IfIndex) {
    let socket = socket(
        AddressFamily::Inet6,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::IcmpV6,
    )
    .expect("a raw socket");
    setsockopt(&socket, sockopt::Ipv6MulticastHops, &255).expect("a hop limit");
    let at = |address| SockaddrIn6::from(SocketAddrV6::new(address, 0, 0, dev.0));
    bind(socket.as_raw_fd(), &at(router)).expect("the router's address");
    let mut message = [0; 16];
    message[0] = 134;
    message[4] = 64;
    message[6..8].copy_from_slice(&1800u16.to_be_bytes());
    let all_nodes = "ff02::1".parse().unwrap();
    sendto(
        socket.as_raw_fd(),
        &message,
        &at(all_nodes),
        MsgFlags::empty(),
    )
    .expect("to send");
}

#[test]
fn advertised_routers_do_not_form_a_multipath_route() {
    in_namespace(|| {
        two_pairs();
        batch(
            "-6 addr add fe80::a/64 dev vb nodad
             -6 addr add fe80::b/64 dev vb nodad",
        );
        sysctl("ipv6/conf/va/accept_ra", "2");
        sysctl("ipv6/conf/va/accept_ra_from_local", "1");
        let mut mirror = Mirror::open().unwrap();
        let (a, b): (Ipv6Addr, Ipv6Addr) = ("fe80::a".parse().unwrap(), "fe80::b".parse().unwrap());
        let vb = index(&mirror, "vb");
        advertise(a, vb);
        let to_a = |node: &Node| {
            let routes = to(node, "::/0");
            let hops = |route: &Route| {
                route.next_hops.len() == 1 && route.next_hops[0].via == Some(a.into())
            };
            routes.len() == 1 && hops(routes[0])
        };
        until(&mut mirror, "the first router", to_a);
        advertise(b, vb);
        let changes = until(&mut mirror, "a look for the second", |_| {
            String::from_utf8_lossy(&try_ip("-6 route show default").stdout)
                .matches("via")
                .count()
                == 2
        });
        assert!(
            changes.routes.is_empty(),
            "packets go to the first: {changes:?}"
        );
        assert_current(&mut mirror, "with two default routers");
        assert!(to_a(mirror.node()), "{:?}", to(mirror.node(), "::/0"));
        // A program that reads advertisements for the kernel adds one multipath route.
        batch(
            "-6 route add 2001:db8::/32 via fc00:1::2 dev va proto ra
             -6 route append 2001:db8::/32 via fc00:1::3 dev va proto ra",
        );
        until(&mut mirror, "two next hops", |node| {
            to(node, "2001:db8::/32")
                .iter()
                .any(|route| route.next_hops.len() == 2)
        });
        assert_current(&mut mirror, "with a multipath route of that protocol");
    });
}
