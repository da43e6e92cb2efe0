//! End.DX and End.DT, for packets at the end of a path of `sids` segments. With 0 segments the
//! packets have no SRH.

use sidestep_wire::{EtherType, Protocol};

use super::super::customer::{Customer, TO_CUSTOMER_4, TO_CUSTOMER_6};
use super::super::packet::ethernet;
use super::endpoint::{GATEWAY, arrived, local};
use super::{Arguments, Behavior, Kind, LEAST_4, LEAST_6};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "end.dx2",
        title: "End.DX2",
        make: dx2,
        ..KIND
    },
    // Linux resolves the inner destination on the link instead of nh4, hence the route by a
    // gateway.
    Kind {
        name: "end.dx4",
        title: "End.DX4",
        least: LEAST_4,
        make: |asked| {
            let gateway = "192.0.2.0/24 via 10.1.0.1 dev eth1".to_owned();
            let routes = vec![local("End.DX4 nh4 192.0.2.1"), gateway];
            decapsulation(asked, Customer::v4(asked.length), routes)
        },
        ..KIND
    },
    Kind {
        name: "end.dx6",
        title: "End.DX6",
        make: |asked| {
            let routes = vec![local("End.DX6 nh6 fc01::1")];
            decapsulation(asked, Customer::v6(asked.length), routes)
        },
        ..KIND
    },
    Kind {
        name: "end.dx6.gateway",
        title: "End.DX6, by a gateway",
        make: |asked| {
            let routes = vec![local("End.DX6 nh6 fc0e::1"), GATEWAY.to_owned()];
            decapsulation(asked, Customer::v6(asked.length), routes)
        },
        ..KIND
    },
    Kind {
        name: "end.dt4",
        title: "End.DT4",
        takes_rules: false,
        needs_vrf: true,
        least: LEAST_4,
        make: |asked| of_vrf("End.DT4", TO_CUSTOMER_4, asked, Customer::v4(asked.length)),
        ..KIND
    },
    Kind {
        name: "end.dt6",
        title: "End.DT6",
        make: |asked| {
            let routes = vec![local("End.DT6 table 254"), TO_CUSTOMER_6.to_owned()];
            decapsulation(asked, Customer::v6(asked.length), routes)
        },
        ..KIND
    },
    Kind {
        name: "end.dt46",
        title: "End.DT46, of IPv6",
        takes_rules: false,
        needs_vrf: true,
        make: |asked| of_vrf("End.DT46", TO_CUSTOMER_6, asked, Customer::v6(asked.length)),
        ..KIND
    },
    Kind {
        name: "end.dt46.v4",
        title: "End.DT46, of IPv4",
        takes_rules: false,
        needs_vrf: true,
        least: LEAST_4,
        make: |asked| of_vrf("End.DT46", TO_CUSTOMER_4, asked, Customer::v4(asked.length)),
        ..KIND
    },
];

/// Defaults of all kinds in this file.
const KIND: Kind = Kind {
    name: "",
    title: "",
    sids: 0..=10,
    takes_rules: true,
    not_in_linux: None,
    needs_vrf: false,
    limit: false,
    least: LEAST_6,
    make: dx2,
};

fn decapsulation(asked: &Arguments, customer: Customer, routes: Vec<String>) -> Behavior {
    let arrived = arrived(asked.sids, customer.protocol(), &customer.packet(64));
    Behavior {
        routes,
        ..Behavior::passing(arrived, customer, customer.sent(63))
    }
}

/// Decapsulation into the table of a VRF. Linux supports End.DT4 and End.DT46 only with a VRF
/// device, Sidestep with any table.
fn of_vrf(action: &str, route: &str, asked: &Arguments, customer: Customer) -> Behavior {
    let routes = vec![
        local(&format!("{action} vrftable {VRF}")),
        format!("{route} table {VRF}"),
    ];
    Behavior {
        devices: vec![
            format!("link add vrf{VRF} type vrf table {VRF}"),
            format!("link set vrf{VRF} up"),
        ],
        sysctls: vec![("net/vrf/strict_mode", "1")],
        own: vec![local(&format!("{action} table {VRF}"))],
        ..decapsulation(asked, customer, routes)
    }
}

/// End.DX2 with a frame between the hosts of two customers.
fn dx2(asked: &Arguments) -> Behavior {
    let customer = Customer::v6(asked.length);
    let hosts = [[2, 0, 0, 0, 0, 0xb], [2, 0, 0, 0, 0, 0xa]];
    let frame = ethernet(hosts[0], hosts[1], EtherType::IPV6, &customer.packet(64));
    let arrived = arrived(asked.sids, Protocol::ETHERNET, &frame);
    Behavior {
        routes: vec![local("End.DX2 oif eth1")],
        ..Behavior::passing(arrived, customer, frame)
    }
}

/// The table of the VRF.
const VRF: u32 = 100;
