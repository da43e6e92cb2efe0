//! SR policies with full or wrong tables, and the attribution of shared records.

#[allow(dead_code, reason = "the other tests use the rest")]
mod common;

use std::collections::BTreeMap;

use common::compile;
use sidestep_control::compile::Compiler;
use sidestep_datapath::abi::{
    SIDESTEP_ROUTE_BY_DSCP, SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_GROUP,
};
use sidestep_datapath::{CounterId, Limits, Native, Verdict};
use sidestep_model::config::File;
use sidestep_model::node::Node;
use sidestep_testkit::differential::headers::bare_ipv6;

/// A policy with two lists. With a way out for every address, `::` too.
const NODE: &str = r#"
ports:
  eth0: {mac: "02:00:00:00:00:01", addresses: ["fc00::2/64"]}
  eth1: {mac: "02:00:00:00:00:02", addresses: ["fc01::2/64"]}
neighbors: ["fc01::1 lladdr 02:00:00:00:00:11 dev eth1"]
routes:
- "default via fc01::1 dev eth1"
policies:
- "p color 1 endpoint fc0a::1 segs fc0a::1 segs fc0a::2"
"#;

fn node(lines: &str) -> Node {
    let file = File::parse(&NODE.replace("routes:\n", &format!("routes:\n{lines}")));
    file.and_then(|file| file.node()).expect("a good node")
}

/// An IPv6 packet without payload to that address, with DSCP 0, in a frame to eth0.
fn frame(destination: &str) -> Vec<u8> {
    let [from, to] = ["fc00::1", destination].map(|text| text.parse().expect("an address"));
    bare_ipv6([2, 0, 0, 0, 0, 1], from, to)
}

#[test]
fn a_group_after_a_group_is_no_headend() {
    let mut image = compile(&node("- \"2001:db8::/32 dscp 0 policy p\"\n")).image;
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

#[test]
fn a_prefix_without_a_group_uses_one_list() {
    const PREFIXES: u32 = 4;
    let lines = (1..=PREFIXES).map(|number| format!("- \"2001:db9:{number}::/48 policy p\"\n"));
    let node = node(&lines.collect::<String>());
    let ports = node.links.keys().copied().collect();
    let limits = Limits {
        groups: 3,
        ..Limits::default()
    };
    let compiled = Compiler::new(limits).attempt(&node, &ports, &BTreeMap::new());
    let compiled = compiled.expect("it compiles as far as it fits");
    let full = compiled.index.full.keys();
    let full: Vec<_> = full
        .filter(|key| node.policies.routes().contains_key(key))
        .collect();
    assert!((1..PREFIXES as usize).contains(&full.len()), "{full:?}");
    for words in full.iter().map(|key| &compiled.index.unsupported[key]) {
        let want = "; all packets go by the heaviest valid list";
        assert!(words.ends_with(want), "{words}");
    }
    let mut native = Native::new(&compiled.image);
    for number in 1..=PREFIXES {
        let verdict = native.run(1, &frame(&format!("2001:db9:{number}::1")));
        assert_eq!(verdict, Verdict::Forward { ifindex: 2 }, "{number}");
    }
}

#[test]
fn a_shared_next_hop_is_named_after_the_route() {
    let compiled = compile(&node(
        "- \"fc0b::/16 nexthop via fc01::1 dev eth1 nexthop via fc00::9 dev eth0\"\n\
         - \"fc0f::e/128 encap seg6local action End.X nh6 fc0b::1 dev eth0\"\n",
    ));
    let routes = compiled.image.routes.iter();
    let plain = routes.filter(|(_, record)| {
        u32::from(record.action) == SIDESTEP_ROUTE_FORWARD && record.counter == CounterId(0)
    });
    let named: Vec<bool> = plain
        .map(|(index, _)| compiled.index.routes[index].route.is_some())
        .collect();
    assert_eq!(named, [true, true]);
}
