//! Real hosts whose packets go through a service that knows nothing of SRv6, behind static SR proxies, both ways.

mod live;

use std::time::Instant;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_lab::offload::Offload;
use sidestep_lab::traffic::Napi;

use live::hosts::{Chain, Segments, began_at_tc, cross, tell, were_left_uncut};
use live::ip::Ip;
use live::{Daemon, begin, modes, printed, report};

/// The router in the middle.
const MIDDLE: [&str; 4] = [
    "address add fc00:12::2/64 dev eth0",
    "address add fc00:23::2/64 dev eth1",
    "route add fc00:1::/48 via fc00:12::1 dev eth0",
    "route add fc00:3::/48 via fc00:23::3 dev eth1",
];
/// Its ports there: towards the service for packets from `a`, and back.
const SERVICE_PORTS: [&str; 2] = ["vnf0", "vnf1"];
/// In both directions: the SIDs of IPv6 and of IPv4 packets.
const SEGMENTS: Segments = [["fc00:2::a6", "fc00:2::a4"], ["fc00:2::b6", "fc00:2::b4"]];
/// The proxies of these SIDs.
const PROXIES: [&str; 4] = [
    "fc00:2::a6/128 encap seg6local action End.AS oif vnf0 iif vnf1 nh6 fd00:1::2 segs fc00:3::d6 src fc00:12::2 dev vnf0",
    "fc00:2::a4/128 encap seg6local action End.AS oif vnf0 iif vnf1 nh4 10.1.1.2 segs fc00:3::d4 src fc00:12::2 dev vnf0",
    "fc00:2::b6/128 encap seg6local action End.AS oif vnf1 iif vnf0 nh6 fd00:2::2 segs fc00:1::d6 src fc00:12::2 dev vnf1",
    "fc00:2::b4/128 encap seg6local action End.AS oif vnf1 iif vnf0 nh4 10.1.2.2 segs fc00:1::d4 src fc00:12::2 dev vnf1",
];

/// The hosts with the service between them.
fn chain() -> Chain {
    let mut chain = Chain::new("liveservice", &MIDDLE, SEGMENTS);
    chain.lab.node("vnf").expect("a namespace");
    let service = chain.node("vnf");
    for (path, value) in [
        ("net/ipv6/conf/default/addr_gen_mode", "0"),
        ("net/ipv6/conf/all/forwarding", "1"),
        ("net/ipv4/ip_forward", "1"),
    ] {
        service.sysctl(path, value).expect("a sysctl");
    }
    for (port, ifname) in SERVICE_PORTS.iter().zip(["eth0", "eth1"]) {
        chain.lab.link("p", port, "vnf", ifname).expect("a cable");
    }
    Ip::new(chain.node("p")).all([
        "address add fd00:1::1/64 dev vnf0",
        "address add 10.1.1.1/24 dev vnf0",
        "address add fd00:2::1/64 dev vnf1",
        "address add 10.1.2.1/24 dev vnf1",
    ]);
    Ip::new(chain.node("vnf")).all([
        "address add fd00:1::2/64 dev eth0",
        "address add 10.1.1.2/24 dev eth0",
        "address add fd00:2::2/64 dev eth1",
        "address add 10.1.2.2/24 dev eth1",
        "route add 2001:db8:a::/64 via fd00:1::1",
        "route add 2001:db8:b::/64 via fd00:2::1",
        "route add 10.0.1.0/24 via 10.1.1.1",
        "route add 10.0.2.0/24 via 10.1.2.1",
    ]);
    chain
}

fn start(chain: &Chain, mode: &str) -> Vec<Daemon> {
    let daemons = chain.start(mode, &SERVICE_PORTS);
    for proxy in PROXIES {
        let words: Vec<&str> = ["route", "add"]
            .into_iter()
            .chain(proxy.split(' '))
            .collect();
        printed(chain.node("p"), &words);
    }
    daemons
}

/// Everything went through the service, and the kernel had only to find neighbors.
fn check(chain: &Chain, place: &str) {
    let tally = chain.tally();
    assert!(
        tally.dropped < 20 && tally.kernel * 10 < tally.forwarded,
        "{place}: {tally:?}"
    );
    let routes: report::Routes = report(chain.node("p"), Request::ShowRoutes { all: false });
    assert_eq!(routes.len(), PROXIES.len(), "{routes:?}");
    for route in routes {
        assert!(
            route.packets > 20 && route.errors < 10,
            "{place}: {route:?}"
        );
        assert_eq!(route.left_to_kernel, None, "{place}");
    }
}

#[test]
fn tcp_crosses_a_service_with_all_offloads_on_and_nobody_cuts_a_segment() {
    let Some(_turn) = begin("tcp_crosses_a_service_with_all_offloads_on") else {
        return;
    };
    let chain = chain();
    let daemons = start(&chain, "auto");
    began_at_tc(&daemons);
    let started = Instant::now();
    let judged = cross(&chain);
    tell("through a service, tc, offloads on", started, judged);
    check(&chain, "offloads on");
    were_left_uncut(&judged);
}

#[test]
fn tcp_crosses_a_service_with_offloads_off_in_every_target() {
    let test = "tcp_crosses_a_service_with_offloads_off_in_every_target";
    let Some(_turn) = begin(test) else {
        return;
    };
    for mode in modes(test, &["tc", "xdp"]) {
        let chain = chain();
        // As network cards would: checksums written, segments cut, and nothing joined at the receiver.
        chain.offload(&["a", "b"], &["eth0"], Offload::OFF);
        chain.offload(&["vnf"], &["eth0", "eth1"], Offload::OFF);
        let ends = [
            ("a", "eth0"),
            ("b", "eth0"),
            ("vnf", "eth0"),
            ("vnf", "eth1"),
        ];
        let _napi =
            ends.map(|(node, ifname)| Napi::attach(chain.node(node), ifname).expect("NAPI"));
        let _daemons = start(&chain, mode);
        let started = Instant::now();
        let judged = cross(&chain);
        tell(
            &format!("through a service, {mode}, offloads off"),
            started,
            judged,
        );
        check(&chain, mode);
        for at_host in judged {
            assert!(
                at_host.right > 1000 && at_host.left_to_device == 0,
                "{mode}: {judged:?}"
            );
        }
    }
}
