//! A service behind the router: SR proxies, which Linux has not, and what they are compared with, which both have: plain IPv6
//! through the service, and a service that knows SRv6 and does End itself.

use std::net::Ipv6Addr;

use super::super::customer::{
    Customer, HOST_6, LAST, NEXT, SID, TO_CUSTOMER_6, TUNSRC, passed, path, path_words, received6,
    sent6,
};
use super::super::packet::{IPV6, ROUTING, srh};
use super::endpoint::outer;
use super::{Arguments, Behavior, Kind, LEAST_6, RULES_TABLE};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "service",
        title: "plain IPv6 through a service",
        sids: 0..=0,
        not_in_linux: None,
        make: plain,
        ..KIND
    },
    Kind {
        name: "service.end",
        title: "a service that does End",
        sids: 2..=10,
        not_in_linux: None,
        make: |asked| through(&passed(&[NEXT, SID], asked.sids), Service::Kernel, asked),
        ..KIND
    },
    Kind {
        name: "end.as",
        title: "End.AS",
        sids: 1..=10,
        make: |asked| end_as(asked.sids, asked.length, Service::Kernel),
        ..KIND
    },
    Kind {
        name: "end.ad",
        title: "End.AD",
        sids: 2..=10,
        make: |asked| end_ad(asked.sids, asked.length, Service::Kernel, 0),
        ..KIND
    },
    Kind {
        name: "end.am",
        title: "End.AM",
        sids: 3..=10,
        make: |asked| end_am(asked.sids, asked.length, Service::Kernel),
        ..KIND
    },
];

/// What they have in common.
const KIND: Kind = Kind {
    name: "",
    title: "",
    sids: 0..=0,
    takes_rules: false,
    not_in_linux: Some("Linux has no SR proxy"),
    needs_vrf: false,
    limit: false,
    least: LEAST_6,
    make: plain,
};

/// How a service forwards. Beside Linux it does End too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The kernel routes plain packets.
    Kernel,
    /// An XDP program sends all packets out of the other interface and looks at none: the service is not what is measured.
    Xdp,
}

impl Service {
    /// The hop limit, from what it was before the router to what it is behind it.
    fn across(self, hop_limit: u8) -> u8 {
        match self {
            Self::Kernel => hop_limit - 3,
            Self::Xdp => hop_limit - 2,
        }
    }
}

/// What comes back from the service has a route of its own.
fn plain(asked: &Arguments) -> Behavior {
    let customer = Customer::v6(asked.length);
    Behavior {
        routes: vec![
            "2001:db8:d::/48 via fd00:1::2 dev vnf0".to_owned(),
            format!("{TO_CUSTOMER_6} table {RULES_TABLE}"),
        ],
        rules: vec![format!("iif vnf1 priority 2000 lookup {RULES_TABLE}")],
        service: Some(Service::Kernel),
        ..Behavior::passing(customer.received(64), customer, customer.sent(61))
    }
}

/// The dynamic proxy, whose lines age after `age` seconds; 0: never. The packet has so many segments.
pub fn end_ad(sids: u32, length: usize, service: Service, age: u32) -> Behavior {
    let list = passed(&[NEXT, SID], sids);
    let inner = Customer::v6(length).packet(service.across(64));
    Behavior {
        // As End would have sent them, around what the service sent.
        from_sidestep: sent6(&packet(63, HOST_6, 0, &list, &inner)),
        computed_label: true,
        own: vec![format!(
            "{TO_SERVICE} action End.AD {BEHIND} age {age} dev vnf0"
        )],
        ..through(&list, service, &Arguments { sids, length })
    }
}

/// The static proxy, which puts so many segments around what comes back.
pub fn end_as(sids: u32, length: usize, service: Service) -> Behavior {
    let inner = Customer::v6(length).packet(service.across(64));
    let segments = path_words(sids);
    Behavior {
        from_sidestep: sent6(&packet(64, TUNSRC, sids as u8 - 1, &path(sids), &inner)),
        computed_label: true,
        own: vec![format!(
            "{TO_SERVICE} action End.AS {BEHIND} segs {segments} src {TUNSRC} dev vnf0"
        )],
        ..through(&[NEXT, SID], service, &Arguments { sids, length })
    }
}

/// The masquerading proxy. The packet has one segment more: what comes back with none left is the service's own.
pub fn end_am(sids: u32, length: usize, service: Service) -> Behavior {
    let list = passed(&[LAST, NEXT, SID], sids);
    let inner = Customer::v6(length).packet(64);
    Behavior {
        from_sidestep: sent6(&packet(service.across(64), HOST_6, 1, &list, &inner)),
        own: vec![format!("{TO_SERVICE} action End.AM {BEHIND} dev vnf0")],
        ..through(&list, service, &Arguments { sids, length })
    }
}

/// A packet with this segment list, in the header's order, in which the router's or the service's SID is active.
fn through(list: &[Ipv6Addr], service: Service, asked: &Arguments) -> Behavior {
    let customer = Customer::v6(asked.length);
    let inner = customer.packet(64);
    let left = list.iter().position(|it| *it == SID).unwrap_or(0) as u8;
    let sent = received6(&packet(64, HOST_6, left, list, &inner));
    // The router, End, and the router again.
    let out = sent6(&packet(61, HOST_6, left - 1, list, &inner));
    Behavior {
        routes: vec!["fc0f::/16 via fd00:1::2 dev vnf0".to_owned()],
        service: Some(service),
        ..Behavior::passing(sent, customer, out)
    }
}

/// The active segment is the destination.
fn packet(hop_limit: u8, source: Ipv6Addr, left: u8, list: &[Ipv6Addr], inner: &[u8]) -> Vec<u8> {
    let mut header = outer(ROUTING, hop_limit, list[usize::from(left)]);
    header.source = source;
    header.around(&srh(IPV6, left, list, inner))
}

/// The SID of every proxy that packets go through.
const TO_SERVICE: &str = "fc0f::1/128 encap seg6local";
/// Where the service is: behind two ports, one there and one back.
const BEHIND: &str = "oif vnf0 iif vnf1 nh6 fd00:1::2";
