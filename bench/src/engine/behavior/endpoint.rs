//! End, End.X, End.T and similar behaviors: packets between this SID and the next one, with an SRH
//! of `sids` segments. The first of the list need not be in it (RFC 8754 4.1.1), so one segment is
//! enough.

use std::net::Ipv6Addr;

use sidestep_wire::{Ipv6, Protocol};

use super::super::customer::{
    Customer, HOST_6, NEXT, SID, TO_CUSTOMER_6, TUNSRC, passed, path, path_words, received6, sent6,
};
use super::super::packet::srh;
use super::{Arguments, Behavior, Kind, LEAST_6};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "end",
        title: "End",
        make: |asked| endpoint(asked, &[&local("End")]),
        ..KIND
    },
    Kind {
        name: "end.t",
        title: "End.T",
        make: |asked| {
            let next = "fc0b::/16 via fc01::1 dev eth1 table 100";
            endpoint(asked, &[&local("End.T table 100"), next])
        },
        ..KIND
    },
    Kind {
        name: "end.x",
        title: "End.X",
        make: |asked| endpoint(asked, &[&local("End.X nh6 fc01::1")]),
        ..KIND
    },
    // For a next hop on the link, Linux allocates a route per packet (FLOWI_FLAG_KNOWN_NH).
    Kind {
        name: "end.x.gateway",
        title: "End.X, by a gateway",
        make: |asked| endpoint(asked, &[&local("End.X nh6 fc0e::1"), GATEWAY]),
        ..KIND
    },
    Kind {
        name: "end.psp",
        title: "End with PSP",
        make: |asked| psp(asked, "End flavors psp"),
        ..KIND
    },
    Kind {
        name: "end.usd",
        title: "End with USD",
        sids: 0..=10,
        takes_rules: false,
        not_in_linux: Some("Linux has no flavor USD"),
        make: usd,
        ..KIND
    },
    Kind {
        name: "end.next-csid",
        title: "End with NEXT-C-SID",
        sids: 0..=10,
        make: |asked| next_csid(asked, "End flavors next-csid lblen 32 nflen 16"),
        ..KIND
    },
    Kind {
        name: "end.x.next-csid",
        title: "End.X with NEXT-C-SID",
        sids: 0..=10,
        make: |asked| {
            next_csid(
                asked,
                "End.X nh6 fc01::1 flavors next-csid lblen 32 nflen 16",
            )
        },
        ..KIND
    },
    Kind {
        name: "end.b6.encaps",
        title: "End.B6.Encaps",
        make: b6_encaps,
        ..KIND
    },
];

/// Defaults of all kinds in this file.
const KIND: Kind = Kind {
    name: "",
    title: "",
    sids: 1..=10,
    takes_rules: true,
    not_in_linux: None,
    needs_vrf: false,
    limit: false,
    least: LEAST_6,
    make: usd,
};

/// Route to a next hop that is not on the link.
pub(super) const GATEWAY: &str = "fc0e::/16 via fc01::1 dev eth1";

/// Returns the route of the router's SID.
pub(super) fn local(action: &str) -> String {
    format!("fc0f::1/128 encap seg6local action {action} dev eth0")
}

fn endpoint(asked: &Arguments, routes: &[&str]) -> Behavior {
    let customer = Customer::v6(asked.length);
    let sent = received6(&underway(asked, 64, SID, 1));
    Behavior {
        routes: routes.iter().map(|&route| route.to_owned()).collect(),
        ..Behavior::passing(sent, customer, sent6(&underway(asked, 63, NEXT, 0)))
    }
}

/// Returns a packet between the SID and the next one.
fn underway(asked: &Arguments, hop_limit: u8, destination: Ipv6Addr, segments_left: u8) -> Vec<u8> {
    let list = passed(&[NEXT, SID], asked.sids);
    let inner = Customer::v6(asked.length).packet(64);
    outer(Protocol::ROUTING, hop_limit, destination).emit(&srh(
        Protocol::IPV6,
        segments_left,
        &list,
        &inner,
    ))
}

pub(super) fn outer(next_header: Protocol, hop_limit: u8, destination: Ipv6Addr) -> Ipv6 {
    Ipv6 {
        hop_limit,
        ..Ipv6::new(HOST_6, destination, next_header)
    }
}

/// RFC 8986 4.16.1: the next segment is the last one, and the router removes the SRH.
fn psp(asked: &Arguments, action: &str) -> Behavior {
    let out = outer(Protocol::IPV6, 63, NEXT).emit(&Customer::v6(asked.length).packet(64));
    Behavior {
        from_linux: sent6(&out),
        from_sidestep: sent6(&out),
        ..endpoint(asked, &[&local(action)])
    }
}

/// RFC 8986 4.16.3: the SID is the last segment, and the router removes the outer IPv6 header and
/// the SRH.
fn usd(asked: &Arguments) -> Behavior {
    let customer = Customer::v6(asked.length);
    let arrived = arrived(asked.sids, Protocol::IPV6, &customer.packet(64));
    Behavior {
        routes: vec![TO_CUSTOMER_6.to_owned()],
        own: vec![local("End flavors usd")],
        ..Behavior::passing(arrived, customer, customer.sent(63))
    }
}

/// Returns the frame of a packet at the end of a path with this number of segments; 0 means no SRH.
pub(super) fn arrived(sids: u32, protocol: Protocol, inner: &[u8]) -> Vec<u8> {
    let packet = if sids == 0 {
        outer(protocol, 64, SID).emit(inner)
    } else {
        let list = passed(&[SID], sids);
        outer(Protocol::ROUTING, 64, SID).emit(&srh(protocol, 0, &list, inner))
    };
    received6(&packet)
}

/// RFC 9800 4.1.1: the container's Argument moves up to the block. An SRH stays as it is.
fn next_csid(asked: &Arguments, action: &str) -> Behavior {
    let customer = Customer::v6(asked.length);
    let container = |words: [u16; 4]| {
        let [a, b, c, d] = words;
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)
    };
    let here = container([0xfcbb, 0xbb00, 0x11, 0xb1]);
    let next = container([0xfcbb, 0xbb00, 0xb1, 0]);
    let packet = |hop_limit, destination| {
        let inner = customer.packet(64);
        if asked.sids == 0 {
            return outer(Protocol::IPV6, hop_limit, destination).emit(&inner);
        }
        let list = passed(&[NEXT, here], asked.sids);
        outer(Protocol::ROUTING, hop_limit, destination).emit(&srh(
            Protocol::IPV6,
            1,
            &list,
            &inner,
        ))
    };
    Behavior {
        routes: vec![
            format!("fcbb:bb00:11::/48 encap seg6local action {action} dev eth0"),
            "fcbb:bb00:b1::/48 via fc01::1 dev eth1".to_owned(),
        ],
        ..Behavior::passing(
            received6(&packet(64, here)),
            customer,
            sent6(&packet(63, next)),
        )
    }
}

/// RFC 8986 4.13: the router encapsulates a packet of two segments with `sids` more. Linux
/// decrements the outer hop limit, Sidestep the inner one, as for H.Encaps.
fn b6_encaps(asked: &Arguments) -> Behavior {
    let customer = Customer::v6(asked.length);
    let two = Arguments { sids: 2, ..*asked };
    let out = |outer_hop_limit, hop_limit| {
        let header = Ipv6 {
            source: TUNSRC,
            ..outer(Protocol::ROUTING, outer_hop_limit, NEXT)
        };
        let inner = underway(&two, hop_limit, NEXT, 0);
        sent6(&header.emit(&srh(
            Protocol::IPV6,
            asked.sids as u8 - 1,
            &path(asked.sids),
            &inner,
        )))
    };
    let action = format!("End.B6.Encaps srh segs {}", path_words(asked.sids));
    Behavior {
        routes: vec![local(&action)],
        from_linux: out(63, 64),
        from_sidestep: out(64, 63),
        computed_label: true,
        ..Behavior::passing(received6(&underway(&two, 64, SID, 1)), customer, Vec::new())
    }
}
