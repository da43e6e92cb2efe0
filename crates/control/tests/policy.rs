//! SR policies as tables that the compiler would not make: no packet may leave with what is in none of them.

#[allow(dead_code, reason = "the other tests use the rest")]
mod common;

use common::compile;
use sidestep_abi::{SIDESTEP_ROUTE_BY_DSCP, SIDESTEP_ROUTE_GROUP};
use sidestep_datapath::{Native, Verdict};
use sidestep_model::config::File;

/// With a way out for every address, `::` too.
const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"]}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc01::2/64"]}
neighbors: ["fc01::1 lladdr 02:00:00:00:00:11 dev eth1"]
routes:
- "default via fc01::1 dev eth1"
- "2001:db8::/32 dscp 0 policy p"
policies:
- "p color 1 endpoint fc0a::1 segs fc0a::1 segs fc0a::2"
"#;

/// An IPv6 packet without payload to that address, with DSCP 0, in a frame to eth0.
fn frame(destination: &str) -> Vec<u8> {
    let address = |text: &str| {
        let address: std::net::Ipv6Addr = text.parse().expect("an address");
        address.octets()
    };
    let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0x10, 0x86, 0xdd];
    let head = [0x60, 0, 0, 0, 0, 0, 59, 64];
    [
        &ethernet[..],
        &head,
        &address("fc00::1"),
        &address(destination),
    ]
    .concat()
}

#[test]
fn a_group_behind_a_group_is_no_headend() {
    let node = File::parse(NODE).and_then(|file| file.node());
    let mut image = compile(&node.expect("a good node")).image;
    let sent = |image: &_| Native::new(image).run(1, &frame("2001:db8::1"));
    let ifindex = 2;
    assert_eq!(sent(&image), Verdict::Forward { ifindex });
    let by_flow = image.routes.iter().find(|(_, record)| {
        u32::from(record.action) == SIDESTEP_ROUTE_GROUP
            && u32::from(record.flags) & SIDESTEP_ROUTE_BY_DSCP == 0
    });
    let (&by_flow, _) = by_flow.expect("two lists");
    for group in image.groups.values_mut() {
        group.routes.fill(by_flow);
    }
    match sent(&image) {
        Verdict::Drop(reason) => assert_eq!(reason.name, "kernel_only"),
        other => panic!("{other:?}"),
    }
}
