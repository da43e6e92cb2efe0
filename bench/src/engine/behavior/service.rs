//! A service behind the router: SR proxies, which Linux lacks, and the reference cases of both:
//! plain IPv6 through the service, and an SR-aware service with End.

use std::net::Ipv6Addr;

use sidestep_wire::Protocol;

use super::super::customer::{
    Customer, HOST_6, LAST, NEXT, SID, TO_CUSTOMER_6, TUNSRC, passed, path, path_words, received6,
    sent6,
};
use super::super::packet::srh;
use super::endpoint::outer;
use super::{Arguments, Behavior, Kind, LEAST_6};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "service",
        title: "plain IPv6 through a service",
        sids: 0..=0,
        not_in_linux: None,
        make: |asked| plain(asked, Service::Kernel),
        ..KIND
    },
    Kind {
        name: "service.xdp",
        title: "plain IPv6 through a service in XDP",
        sids: 0..=0,
        not_in_linux: None,
        make: |asked| plain(asked, Service::Xdp),
        ..KIND
    },
    Kind {
        name: "service.end",
        title: "a service that does End",
        not_in_linux: None,
        make: |asked| through(&passed(&[NEXT, SID], asked.sids), Service::Kernel, asked),
        ..KIND
    },
    Kind {
        name: "end.as",
        title: "End.AS",
        sids: 1..=10,
        make: |asked| end_as(asked, Service::Kernel),
        ..KIND
    },
    Kind {
        name: "end.as.xdp",
        title: "End.AS, service in XDP",
        sids: 1..=10,
        make: |asked| end_as(asked, Service::Xdp),
        ..KIND
    },
    Kind {
        name: "end.ad",
        title: "End.AD",
        make: |asked| end_ad(asked, Service::Kernel, 0),
        ..KIND
    },
    Kind {
        name: "end.ad.age1",
        title: "End.AD, age 1",
        make: |asked| end_ad(asked, Service::Kernel, 1),
        ..KIND
    },
    Kind {
        name: "end.ad.xdp",
        title: "End.AD, service in XDP",
        make: |asked| end_ad(asked, Service::Xdp, 0),
        ..KIND
    },
    Kind {
        name: "end.ad.xdp.age1",
        title: "End.AD, age 1, service in XDP",
        make: |asked| end_ad(asked, Service::Xdp, 1),
        ..KIND
    },
    Kind {
        name: "end.am",
        title: "End.AM",
        sids: 3..=10,
        make: |asked| end_am(asked, Service::Kernel),
        ..KIND
    },
    Kind {
        name: "end.am.xdp",
        title: "End.AM, service in XDP",
        sids: 3..=10,
        make: |asked| end_am(asked, Service::Xdp),
        ..KIND
    },
];

/// Defaults of all kinds in this file.
const KIND: Kind = Kind {
    name: "",
    title: "",
    sids: 2..=10,
    takes_rules: true,
    not_in_linux: Some("Linux has no SR proxy"),
    needs_vrf: false,
    limit: false,
    least: LEAST_6,
    make: |asked| plain(asked, Service::Kernel),
};

/// How a service forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The kernel routes packets, and runs End for packets to the service's SID.
    Kernel,
    /// An XDP program sends all packets out of the other interface without reading them, so that
    /// the service costs little.
    Xdp,
}

impl Service {
    /// Returns the hop limit after the service, for this hop limit before it.
    fn across(self, hop_limit: u8) -> u8 {
        match self {
            Self::Kernel => hop_limit - 3,
            Self::Xdp => hop_limit - 2,
        }
    }
}

/// Both directions have the same destination, so returned packets have a route in a separate table.
fn plain(asked: &Arguments, service: Service) -> Behavior {
    let customer = Customer::v6(asked.length);
    let mut made = Behavior {
        routes: vec![
            TO_CUSTOMER_6.to_owned(),
            "2001:db8:d::/48 via fd00:1::2 dev vnf0".to_owned(),
        ],
        service: Some(service),
        ..Behavior::passing(
            customer.received(64),
            customer,
            customer.sent(service.across(64)),
        )
    };
    made.ruled([made.last_selector()]);
    made
}

/// The dynamic proxy. Its learned headers change at most once in `age` seconds. With 0, each packet
/// with different headers changes them.
fn end_ad(asked: &Arguments, service: Service, age: u32) -> Behavior {
    let list = passed(&[NEXT, SID], asked.sids);
    let inner = Customer::v6(asked.length).packet(service.across(64));
    Behavior {
        // The service's packet with the headers that End would send.
        from_sidestep: sent6(&packet(63, HOST_6, 0, &list, &inner)),
        computed_label: true,
        own: vec![format!(
            "{TO_SERVICE} action End.AD {BEHIND} age {age} dev vnf0"
        )],
        ..through(&list, service, asked)
    }
}

/// The static proxy, which encapsulates returned packets with this number of segments.
fn end_as(asked: &Arguments, service: Service) -> Behavior {
    let inner = Customer::v6(asked.length).packet(service.across(64));
    let (last, segments) = (asked.sids as u8 - 1, path_words(asked.sids));
    Behavior {
        from_sidestep: sent6(&packet(64, TUNSRC, last, &path(asked.sids), &inner)),
        computed_label: true,
        own: vec![format!(
            "{TO_SERVICE} action End.AS {BEHIND} segs {segments} src {TUNSRC} dev vnf0"
        )],
        ..through(&[NEXT, SID], service, asked)
    }
}

/// The masquerading proxy. The packet has one segment more: a returned packet with Segments Left 0
/// is the service's own.
fn end_am(asked: &Arguments, service: Service) -> Behavior {
    let list = passed(&[LAST, NEXT, SID], asked.sids);
    let inner = Customer::v6(asked.length).packet(64);
    Behavior {
        from_sidestep: sent6(&packet(service.across(64), HOST_6, 1, &list, &inner)),
        own: vec![format!("{TO_SERVICE} action End.AM {BEHIND} dev vnf0")],
        ..through(&list, service, asked)
    }
}

/// A packet with this segment list, in the header's order, in which the router's or the service's
/// SID is active.
fn through(list: &[Ipv6Addr], service: Service, asked: &Arguments) -> Behavior {
    let customer = Customer::v6(asked.length);
    let inner = customer.packet(64);
    let left = list.iter().position(|it| *it == SID).unwrap_or(0) as u8;
    let sent = received6(&packet(64, HOST_6, left, list, &inner));
    // The router, End, and the router each decrement the hop limit.
    let out = sent6(&packet(61, HOST_6, left - 1, list, &inner));
    Behavior {
        // The route to the sink, which rules select, and the route to the service.
        routes: vec![
            "fc0b::/64 via fc01::1 dev eth1".to_owned(),
            "fc0f::/16 via fd00:1::2 dev vnf0".to_owned(),
        ],
        service: Some(service),
        ..Behavior::passing(sent, customer, out)
    }
}

/// Returns a packet whose destination is the active segment.
fn packet(hop_limit: u8, source: Ipv6Addr, left: u8, list: &[Ipv6Addr], inner: &[u8]) -> Vec<u8> {
    let mut header = outer(Protocol::ROUTING, hop_limit, list[usize::from(left)]);
    header.source = source;
    header.emit(&srh(Protocol::IPV6, left, list, inner))
}

/// SID of each proxy.
const TO_SERVICE: &str = "fc0f::1/128 encap seg6local";
/// The service has two ports, one for each direction.
const BEHIND: &str = "oif vnf0 iif vnf1 nh6 fd00:1::2";
