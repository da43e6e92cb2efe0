//! Upper bounds for all engines: plain IPv6 packets of the customer on a path that does nothing, or
//! only redirects.

use super::super::customer::{Customer, received6, sent6};
use super::{Arguments, Behavior, Kind, LEAST_6};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "ceiling",
        title: "generator to sink, nothing between",
        make: |asked| {
            let packet = Customer::v6(asked.length).packet(64);
            unchanged(asked, received6(&packet))
        },
        ..KIND
    },
    Kind {
        name: "redirect",
        title: "bare XDP redirect, constant MACs",
        make: |asked| {
            let packet = Customer::v6(asked.length).packet(64);
            unchanged(asked, sent6(&packet))
        },
        ..KIND
    },
];

/// Defaults of all kinds in this file.
const KIND: Kind = Kind {
    name: "",
    title: "",
    sids: 0..=0,
    takes_rules: false,
    not_in_linux: None,
    needs_vrf: false,
    limit: true,
    least: LEAST_6,
    make: |asked| unchanged(asked, Vec::new()),
};

/// The packet after the Ethernet header is unmodified.
fn unchanged(asked: &Arguments, out: Vec<u8>) -> Behavior {
    let customer = Customer::v6(asked.length);
    Behavior::passing(customer.received(64), customer, out)
}
