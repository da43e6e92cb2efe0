//! Real hosts whose packets pass an SRv6-unaware service behind SR proxies in both directions: a
//! container behind two veths, and a virtual machine behind two taps. With `THROUGHPUT=1`, iperf3
//! measures the throughput.

use std::time::Instant;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Napi;
use sidestep_testkit::offload::Offload;
use sidestep_testkit::tap::{Machine, Tap};
use sidestep_testkit::{LinkEnd, lab::mac_text};

use crate::support::hosts::{
    CORE_MTU, Chain, Segments, began_at_tc, cross, print_duration, throughput, were_left_uncut,
};
use crate::support::ip::Ip;
use crate::support::{Daemon, begin, modes, printed, report};

/// The router in the middle.
const MIDDLE: [&str; 4] = [
    "address add fc00:12::2/64 dev eth0",
    "address add fc00:23::2/64 dev eth1",
    "route add fc00:1::/48 via fc00:12::1 dev eth0",
    "route add fc00:3::/48 via fc00:23::3 dev eth1",
];
/// Ports of the middle router: toward the service for packets from `a`, and from it.
const SERVICE_PORTS: [&str; 2] = ["vnf0", "vnf1"];
/// Addresses of the ports to the service.
const SERVICE_ADDRESSES: [&str; 4] = [
    "address add fd00:1::1/64 dev vnf0",
    "address add 10.1.1.1/24 dev vnf0",
    "address add fd00:2::1/64 dev vnf1",
    "address add 10.1.2.1/24 dev vnf1",
];
/// Segments per direction, for IPv6 and for IPv4 packets. The edge has End before its last SID, so
/// that the proxy is not the last segment but one.
const SEGMENTS: Segments = [
    ["fc00:2::a6,fc00:3::e", "fc00:2::a4,fc00:3::e"],
    ["fc00:2::b6,fc00:1::e", "fc00:2::b4,fc00:1::e"],
];

/// Proxy in front of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proxy {
    Static,
    Dynamic,
    Masquerading,
    /// With one interface, the flow determines the direction.
    ByFlow,
}

impl Proxy {
    /// Proxies with two interfaces.
    const ALL: [Self; 3] = [Self::Static, Self::Dynamic, Self::Masquerading];

    /// Returns the arguments of `sidestep route add` for each of [`SEGMENTS`].
    fn routes(self) -> Vec<String> {
        let mut routes = Vec::new();
        for (customer, [there, back], edge, net) in [
            ('a', SERVICE_PORTS, 3, 1),
            ('b', [SERVICE_PORTS[1], SERVICE_PORTS[0]], 1, 2),
        ] {
            let by_flow = self == Self::ByFlow;
            let (there, back) = if by_flow {
                ("vnf0", "vnf0")
            } else {
                (there, back)
            };
            let net = if by_flow { 1 } else { net };
            for family in [6, 4] {
                // Masqueraded packets are IPv6 with any payload.
                let service = if family == 6 || self == Self::Masquerading {
                    format!("nh6 fd00:{net}::2")
                } else {
                    format!("nh4 10.1.{net}.2")
                };
                let behavior = match self {
                    Self::Static => {
                        let segments = format!("segs fc00:{edge}::e,fc00:{edge}::d{family}");
                        format!("End.AS oif {there} iif {back} {service} {segments} src fc00:12::2")
                    }
                    Self::Dynamic => format!("End.AD oif {there} iif {back} {service}"),
                    Self::ByFlow => format!("End.AD oif {there} {service} flows"),
                    Self::Masquerading => format!("End.AM oif {there} iif {back} {service}"),
                };
                routes.push(format!(
                    "fc00:2::{customer}{family}/128 encap seg6local action {behavior} dev {there}"
                ));
            }
        }
        routes
    }
}

/// Returns the hosts without the service.
fn hosts(topic: &str) -> Chain {
    let chain = Chain::new(topic, &MIDDLE, SEGMENTS);
    for (edge, locator) in [("pe1", 1), ("pe2", 3)] {
        let end = format!("route add fc00:{locator}::e/128 encap seg6local action End dev eth0");
        Ip::new(chain.node(edge)).all([&*end]);
    }
    chain
}

/// Returns the hosts with a service between them: a namespace in which the kernel forwards.
fn with_namespace() -> Chain {
    let mut chain = hosts("liveservice");
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
        let end = |node, ifname| LinkEnd {
            node,
            ifname,
            mac: None,
        };
        // A masqueraded packet still has its SRv6 headers.
        let ends = [end("p", port), end("vnf", ifname)];
        chain.lab.link_with(ends, CORE_MTU, 1).expect("a cable");
    }
    Ip::new(chain.node("p")).all(SERVICE_ADDRESSES);
    Ip::new(chain.node("vnf")).all([
        "address add fd00:1::2/64 dev eth0",
        "address add 10.1.1.2/24 dev eth0",
        "address add fd00:2::2/64 dev eth1",
        "address add 10.1.2.2/24 dev eth1",
        "route add 2001:db8:a::/64 via fd00:1::1",
        "route add 2001:db8:b::/64 via fd00:2::1",
        "route add fc00:1::/48 via fd00:1::1",
        "route add fc00:3::/48 via fd00:2::1",
        "route add 10.0.1.0/24 via 10.1.1.1",
        "route add 10.0.2.0/24 via 10.1.2.1",
    ]);
    chain
}

/// Returns the hosts with a service between them: a machine that forwards between two taps.
fn with_machine(offloads: bool) -> (Chain, Machine) {
    let chain = hosts("livemachine");
    let router = chain.node("p");
    let macs = [1, 2].map(|port| [2, 0, 0, 0, 0xaa, port]);
    let taps = [0, 1].map(|at| {
        Tap::create(router, SERVICE_PORTS[at], macs[at], CORE_MTU, offloads).expect("a tap")
    });
    let machine = [2, 0, 0, 0, 0xaa, 9];
    let mac = mac_text(machine);
    let neighbors = [
        ("fd00:1::2", 0),
        ("10.1.1.2", 0),
        ("fd00:2::2", 1),
        ("10.1.2.2", 1),
    ]
    .map(|(address, at)| format!("neighbor add {address} lladdr {mac} dev vnf{at} nud permanent"));
    Ip::new(router).all(
        SERVICE_ADDRESSES
            .into_iter()
            .chain(neighbors.iter().map(String::as_str)),
    );
    let machine = Machine::start(taps, machine).expect("a machine");
    (chain, machine)
}

fn start(chain: &Chain, mode: &str, proxy: Proxy) -> Vec<Daemon> {
    let daemons = chain.start(mode, &SERVICE_PORTS);
    for route in proxy.routes() {
        let words: Vec<&str> = ["route", "add"]
            .into_iter()
            .chain(route.split(' '))
            .collect();
        printed(chain.node("p"), &words);
    }
    daemons
}

/// Checks that all packets passed the service, and that the kernel only resolved neighbors.
fn check(chain: &Chain, place: &str) {
    let tally = chain.tally();
    assert!(
        tally.dropped < 20 && tally.punted * 10 < tally.forwarded,
        "{place}: {tally:?}"
    );
    let routes: report::Routes = report(chain.node("p"), Request::ShowRoutes { all: false });
    assert_eq!(routes.len(), 4, "{routes:?}");
    for route in routes {
        assert!(
            route.packets > 20 && route.errors < 10,
            "{place}: {route:?}"
        );
        assert_eq!(route.punt_reason, None, "{place}");
    }
}

/// Checks that `show ports` prints the target of the service's ports, with the device as reason.
fn shown_at_tc(chain: &Chain, device: &str) {
    let ports: report::Ports = report(chain.node("p"), Request::ShowPorts);
    for name in SERVICE_PORTS {
        let port = ports.iter().find(|port| port.name == name);
        let port = port.unwrap_or_else(|| panic!("{name} in {ports:?}"));
        assert_eq!(port.target, "tc", "{port:?}");
        assert!(port.why.starts_with(device), "{port:?}");
    }
}

#[test]
fn tcp_crosses_a_service_with_all_offloads_on_and_nobody_cuts_a_segment() {
    let Some(_turn) = begin() else {
        return;
    };
    for proxy in Proxy::ALL {
        let chain = with_namespace();
        let daemons = start(&chain, "auto", proxy);
        began_at_tc(&daemons);
        shown_at_tc(&chain, "veth: ");
        let started = Instant::now();
        let judged = cross(&chain);
        print_duration(&format!("{proxy:?}, tc, offloads on"), started, judged);
        check(&chain, &format!("{proxy:?}, offloads on"));
        throughput(&chain, &format!("{proxy:?}, tc, offloads on"));
        were_left_uncut(&judged);
    }
}

#[test]
fn both_directions_of_tcp_cross_one_interface_of_a_service_each_flow_by_its_own_chain() {
    let Some(_turn) = begin() else {
        return;
    };
    let chain = with_namespace();
    Ip::new(chain.node("vnf")).all([
        "route replace 2001:db8:b::/64 via fd00:1::1",
        "route replace 10.0.2.0/24 via 10.1.1.1",
    ]);
    for path in ["all", "eth0"] {
        let path = format!("net/ipv4/conf/{path}/send_redirects");
        chain.node("vnf").sysctl(&path, "0").expect("a sysctl");
    }
    let daemons = start(&chain, "auto", Proxy::ByFlow);
    began_at_tc(&daemons);
    let started = Instant::now();
    let judged = cross(&chain);
    print_duration("by flow, tc, offloads on", started, judged);
    check(&chain, "by flow");
    were_left_uncut(&judged);
}

/// As with network cards: checksums complete, segments of MTU size, and no GRO at the receiver.
fn without_offloads(chain: &Chain, ends: &[(&str, &str)]) -> Vec<Napi> {
    let without = |(node, ifname): &(&str, &str)| {
        chain.offload(&[node], &[ifname], Offload::OFF);
        Napi::attach(chain.node(node), ifname).expect("NAPI")
    };
    ends.iter().map(without).collect()
}

/// Checks the packets that passed a service without offloads.
fn crossed_whole(chain: &Chain, place: &str) {
    let started = Instant::now();
    let judged = cross(chain);
    print_duration(&format!("{place}, offloads off"), started, judged);
    check(chain, place);
    throughput(chain, &format!("{place}, offloads off"));
    for at_host in judged {
        assert!(
            at_host.right > 1000 && at_host.left_to_device == 0,
            "{place}: {judged:?}"
        );
    }
}

#[test]
fn tcp_crosses_a_service_with_offloads_off_in_every_target() {
    let Some(_turn) = begin() else {
        return;
    };
    let ends = [
        ("a", "eth0"),
        ("b", "eth0"),
        ("vnf", "eth0"),
        ("vnf", "eth1"),
    ];
    for mode in modes(&["tc", "xdp-always"]) {
        // With offloads on, all ports run TC.
        let proxies = if mode == "tc" {
            &Proxy::ALL[..1]
        } else {
            &Proxy::ALL
        };
        for &proxy in proxies {
            let chain = with_namespace();
            let _napi = without_offloads(&chain, &ends);
            let _daemons = start(&chain, mode, proxy);
            crossed_whole(&chain, &format!("{proxy:?}, {mode}"));
        }
    }
}

/// Linux segments these packets before a tap: after decapsulation, `bpf_skb_adjust_room` leaves
/// them `SKB_GSO_IPXIP6` (Linux 6.18), which a tap does not support. Checksums remain partial.
#[test]
fn tcp_crosses_a_machine_behind_taps_with_offloads_on_and_nobody_computes_a_checksum() {
    let Some(_turn) = begin() else {
        return;
    };
    let (chain, _machine) = with_machine(true);
    let daemons = start(&chain, "auto", Proxy::Dynamic);
    began_at_tc(&daemons);
    shown_at_tc(&chain, "tap: ");
    let started = Instant::now();
    let judged = cross(&chain);
    print_duration("through a machine, tc, offloads on", started, judged);
    check(&chain, "a machine, offloads on");
    throughput(&chain, "through a machine, tc, offloads on");
    for at_host in judged {
        assert!(
            at_host.left_to_device > at_host.right,
            "through a machine: {judged:?}"
        );
    }
}

#[test]
fn tcp_crosses_a_machine_behind_taps_with_offloads_off_in_every_target() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let (chain, _machine) = with_machine(false);
        let _napi = without_offloads(&chain, &[("a", "eth0"), ("b", "eth0")]);
        let _daemons = start(&chain, mode, Proxy::Dynamic);
        crossed_whole(&chain, &format!("through a machine, {mode}"));
    }
}
