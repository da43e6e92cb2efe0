//! SR proxies whose service is down, or has even lost its interface: what becomes of packets to it, and of those that it
//! still sends back.

use std::collections::BTreeSet;

use sidestep_control::compile::Compiler;
use sidestep_datapath::{Image, Limits, RouteId};
use sidestep_model::config::File;
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::Encap;

const OUT: IfIndex = IfIndex(2);
const BACK: IfIndex = IfIndex(3);
const PROXIES: [&str; 3] = [
    "End.AM oif eth1 iif eth2 nh6 fc00:b::2",
    "End.AD oif eth1 iif eth2 nh4 10.0.0.2",
    "End.AS oif eth1 iif eth2 inner l2 segs fc00:a::2 src fc00:a::1",
];

fn node(proxy: &str, on_down: &str) -> Node {
    let text = format!(
        r#"
ports:
  eth0: {{mac: "02:00:00:00:00:01", addresses: ["fc00:a::1/64"], seg6_enabled: true}}
  eth1: {{mac: "02:00:00:00:00:02", addresses: ["fc00:b::1/64"], seg6_enabled: true}}
  eth2: {{mac: "02:00:00:00:00:03", addresses: ["fc00:c::1/64"], seg6_enabled: true}}
neighbors: ["fc00:a::2 lladdr 02:00:00:00:00:11 dev eth0"]
routes: ["fc00:5::f/128 encap seg6local action {proxy} liveness link on-down {on_down} dev eth1"]
"#
    );
    let file = File::parse(&text).expect("a good node file");
    file.node().expect("a good node")
}

fn compile(node: &Node) -> Image {
    let ports: BTreeSet<_> = node.links.keys().copied().collect();
    let compiled = Compiler::new(Limits::default()).compile(node, &ports);
    compiled.expect("the node compiles").image
}

/// Whether a route has this action and reason.
fn has(image: &Image, action: u32, reason: u32) -> bool {
    let mut routes = image.routes.values();
    routes.any(|route| (u32::from(route.action), u32::from(route.reason)) == (action, reason))
}

#[test]
fn on_down_and_the_return_path_outlive_the_interface() {
    use sidestep_datapath::abi::{DROP_service_down, SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_END};
    for proxy in PROXIES {
        for (on_down, action, reason) in [
            ("bypass", SIDESTEP_ROUTE_END, 0),
            ("drop", SIDESTEP_ROUTE_DROP, DROP_service_down),
        ] {
            let mut node = node(proxy, on_down);
            let back = |image: &Image| {
                let port = &image.ports[&BACK.0];
                [port.return6, port.return4, port.return_l2].map(|back| back != RouteId(0))
            };
            let with = compile(&node);
            assert!(!has(&with, action, reason), "{proxy}");
            let sent_back = back(&with);
            assert_eq!(sent_back.iter().filter(|it| **it).count(), 1, "{proxy}");

            node.links.remove(&OUT);
            let gone = compile(&node);
            assert!(!has(&gone, action, reason), "{proxy}: reported as down");
            assert_eq!(back(&gone), sent_back, "{proxy}");

            for route in node.routes.values() {
                if let Some(Encap::Seg6Local(local)) = &route.next_hops[0].encap {
                    node.services_down.extend(local.service());
                }
            }
            let down = compile(&node);
            assert!(has(&down, action, reason), "{proxy} {on_down}");
            assert_eq!(back(&down), sent_back, "{proxy}");
        }
    }
}
