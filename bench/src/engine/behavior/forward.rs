//! Forwarding without SRv6, the reference for all other behaviors.

use super::super::customer::{Customer, TO_CUSTOMER_4, TO_CUSTOMER_6};
use super::{Behavior, Kind, LEAST_4, LEAST_6};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "ipv6",
        title: "plain IPv6",
        sids: 0..=0,
        takes_rules: true,
        not_in_linux: None,
        needs_vrf: false,
        limit: false,
        least: LEAST_6,
        make: |asked| forward(TO_CUSTOMER_6, Customer::v6(asked.length)),
    },
    Kind {
        name: "ipv4",
        title: "plain IPv4",
        sids: 0..=0,
        takes_rules: true,
        not_in_linux: None,
        needs_vrf: false,
        limit: false,
        least: LEAST_4,
        make: |asked| forward(TO_CUSTOMER_4, Customer::v4(asked.length)),
    },
];

fn forward(route: &str, customer: Customer) -> Behavior {
    Behavior {
        routes: vec![route.to_owned()],
        ..Behavior::passing(customer.received(64), customer, customer.sent(63))
    }
}
