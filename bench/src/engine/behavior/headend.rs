//! H.Encaps and its variants, and H.Insert. They push `sids` segments.

use sidestep_wire::{Ipv6, Protocol};

use super::super::customer::{
    CUSTOMER_6, Customer, HOST_6, NEXT, TUNSRC, path, path_words, received6, sent6,
};
use super::super::packet::srh;
use super::{Arguments, Behavior, Kind, LEAST_4, LEAST_6};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "h.encaps",
        title: "H.Encaps",
        make: |asked| encaps(asked.sids, Customer::v6(asked.length), false),
        ..KIND
    },
    Kind {
        name: "h.encaps.v4",
        title: "H.Encaps of IPv4",
        least: LEAST_4,
        make: |asked| encaps(asked.sids, Customer::v4(asked.length), false),
        ..KIND
    },
    Kind {
        name: "h.encaps.red",
        title: "H.Encaps.Red",
        make: |asked| encaps(asked.sids, Customer::v6(asked.length), true),
        ..KIND
    },
    Kind {
        name: "h.encaps.red.v4",
        title: "H.Encaps.Red of IPv4",
        least: LEAST_4,
        make: |asked| encaps(asked.sids, Customer::v4(asked.length), true),
        ..KIND
    },
    Kind {
        name: "h.insert",
        title: "H.Insert",
        make: insert,
        ..KIND
    },
    Kind {
        name: "h.encaps.l2",
        title: "H.Encaps.L2",
        make: |asked| encaps_l2(asked, false),
        ..KIND
    },
    Kind {
        name: "h.encaps.l2.red",
        title: "H.Encaps.L2.Red",
        make: |asked| encaps_l2(asked, true),
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
    make: insert,
};

/// A packet of the customer in an outer header; `behind` gives its Next Header and builds the
/// payload. Linux decrements the outer hop limit, Sidestep the inner one (RFC 8986 5.1 S05).
pub fn headend(
    route: String,
    customer: Customer,
    next_header: Protocol,
    behind: &dyn Fn(&[u8]) -> Vec<u8>,
) -> Behavior {
    let out = |outer, inner| {
        sent6(&outer_header(next_header, outer).emit(&behind(&customer.packet(inner))))
    };
    Behavior {
        routes: vec![route],
        from_linux: out(63, 64),
        from_sidestep: out(64, 63),
        computed_label: true,
        ..Behavior::passing(customer.received(64), customer, Vec::new())
    }
}

fn encaps(sids: u32, customer: Customer, reduced: bool) -> Behavior {
    let prefix = if customer.ipv4 {
        "198.51.100.0/24"
    } else {
        "2001:db8:d::/48"
    };
    let mode = if reduced { "encap.red" } else { "encap" };
    let route = format!(
        "{prefix} encap seg6 mode {mode} segs {} dev eth1",
        path_words(sids)
    );
    let (next_header, behind) = pushed(customer.protocol(), sids, reduced);
    headend(route, customer, next_header, &behind)
}

/// Returns the Next Header of the outer header, and a function that builds its payload.
fn pushed(protocol: Protocol, sids: u32, reduced: bool) -> (Protocol, impl Fn(&[u8]) -> Vec<u8>) {
    let mut list = path(sids);
    if reduced {
        // RFC 8986 5.2: only the destination address contains the first segment, and one segment
        // needs no SRH.
        list.pop();
    }
    let next_header = if list.is_empty() {
        protocol
    } else {
        Protocol::ROUTING
    };
    let behind = move |inner: &[u8]| {
        if list.is_empty() {
            inner.to_vec()
        } else {
            srh(protocol, sids as u8 - 1, &list, inner)
        }
    };
    (next_header, behind)
}

fn insert(asked: &Arguments) -> Behavior {
    let customer = Customer::v6(asked.length);
    let packet = customer.packet(64);
    let header = Ipv6 {
        hop_limit: 63,
        ..Ipv6::new(HOST_6, NEXT, Protocol::ROUTING)
    };
    let mut list = path(asked.sids);
    list.insert(0, CUSTOMER_6);
    let out = sent6(&header.emit(&srh(
        Protocol(packet[6]),
        asked.sids as u8,
        &list,
        &packet[40..],
    )));
    let segments = path_words(asked.sids);
    Behavior {
        routes: vec![format!(
            "2001:db8:d::/48 encap seg6 mode inline segs {segments} dev eth1"
        )],
        ..Behavior::passing(received6(&packet), customer, out)
    }
}

/// The router encapsulates the frame unchanged. Linux copies the outer hop limit from the packet in
/// the frame.
fn encaps_l2(asked: &Arguments, reduced: bool) -> Behavior {
    let customer = Customer::v6(asked.length);
    let frame = customer.received(64);
    let (next_header, behind) = pushed(Protocol::ETHERNET, asked.sids, reduced);
    let out = |hop_limit| sent6(&outer_header(next_header, hop_limit).emit(&behind(&frame)));
    let mode = if reduced { "l2encap.red" } else { "l2encap" };
    let segments = path_words(asked.sids);
    Behavior {
        routes: vec![format!(
            "2001:db8:d::/48 encap seg6 mode {mode} segs {segments} dev eth1"
        )],
        from_linux: out(63),
        from_sidestep: out(64),
        computed_label: true,
        ..Behavior::passing(frame.clone(), customer, Vec::new())
    }
}

fn outer_header(next_header: Protocol, hop_limit: u8) -> Ipv6 {
    Ipv6 {
        hop_limit,
        ..Ipv6::new(TUNSRC, NEXT, next_header)
    }
}
