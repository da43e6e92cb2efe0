//! Packet sizes: TCP adapts to a core whose MTU is too small for the encapsulation, and XDP
//! forwards large frames.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Napi;
use sidestep_testkit::offload::Offload;

use crate::support::frames::{ETHERNET, ROUTING, ethernet, ipv6, srh, udp};
use crate::support::hosts::{Chain, cross, print_duration};
use crate::support::ip::Ip;
use crate::support::{ROUTER, Star, begin, counters, report};

const MIDDLE: [&str; 5] = [
    "address add fc00:12::2/64 dev eth0",
    "address add fc00:23::2/64 dev eth1",
    "route add fc00:1::/48 via fc00:12::1 dev eth0",
    "route add fc00:3::/48 via fc00:23::3 dev eth1",
    "route add fc00:2::e/128 encap seg6local action End dev eth0",
];

/// Returns a chain with End in the middle, and an MTU of 1400 bytes on the link between these two.
fn chain(topic: &str, link: [(&str, &str); 2]) -> Chain {
    let chain = Chain::new(topic, &MIDDLE, [["fc00:2::e"; 2]; 2]);
    for (router, port) in link {
        Ip::new(chain.node(router)).run(&format!("link set {port} mtu 1400"));
    }
    chain
}

const IN_THE_MIDDLE: [(&str, &str); 2] = [("p", "eth1"), ("pe2", "eth0")];
const AT_THE_HEADEND: [(&str, &str); 2] = [("pe1", "eth1"), ("p", "eth0")];

/// Returns the number of errors that the edges sent or relayed, while both hosts send large segments
/// of both families.
fn told_on(chain: &Chain) -> u64 {
    let edges = ["pe1", "pe2"].map(|edge| {
        let icmp: report::Icmp = report(chain.node(edge), Request::ShowIcmp);
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("{edge}: {icmp:?}\n").as_bytes(),
        );
        let told = [&icmp.sent, &icmp.relayed].map(|of| of.get("packet_too_big").copied());
        told.into_iter().flatten().sum::<u64>()
    });
    edges.iter().sum()
}

#[test]
fn tcp_finds_its_way_through_a_smaller_link_with_tc() {
    let Some(_turn) = begin() else {
        return;
    };
    for (place, link) in [
        ("in the middle", IN_THE_MIDDLE),
        ("at the headend", AT_THE_HEADEND),
    ] {
        let chain = chain("livepmtu", link);
        let _daemons = chain.start("auto", &[]);
        let started = Instant::now();
        print_duration(place, started, cross(&chain));
        // At least one error per family.
        assert!(told_on(&chain) >= 2, "{place}");
    }
}

#[test]
fn tcp_finds_its_way_through_a_smaller_link_with_xdp() {
    let Some(_turn) = begin() else {
        return;
    };
    if crate::support::modes(&["xdp-always"]).is_empty() {
        return;
    }
    let chain = chain("livepmtux", IN_THE_MIDDLE);
    chain.offload(&["a", "b"], &["eth0"], Offload::OFF);
    let _napi = ["a", "b"].map(|host| Napi::attach(chain.node(host), "eth0").expect("NAPI"));
    let _daemons = chain.start("xdp-always", &[]);
    let started = Instant::now();
    print_duration("xdp-always", started, cross(&chain));
    assert!(told_on(&chain) >= 2);
}

#[test]
fn frames_of_9000_bytes_are_forwarded_in_xdp() {
    let Some(_turn) = begin() else {
        return;
    };
    if crate::support::modes(&["xdp-always"]).is_empty() {
        return;
    }
    let star = Star::new("livejumbo");
    for port in ["eth0", "eth1"] {
        star.ip().run(&format!("link set {port} mtu 9000"));
    }
    for host in ["a", "b"] {
        Ip::new(star.host(host)).run("link set eth0 mtu 9000");
    }
    star.ip().all([
        "route add fc0f::1/128 encap seg6local action End dev eth0",
        "route add fc0f::d6/128 encap seg6local action End.DT6 table 254 dev eth0",
        "route add fc0a::/16 via fc00:b::2 dev eth1",
        "route add 2001:db8:b::/48 encap seg6 mode encap segs fc0a::1,fc0a::2 dev eth1",
    ]);
    let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
    let _daemon = star.run(&["--mode", "xdp-always", "eth0", "eth1"]);
    let (a, b) = (star.socket("a"), star.socket("b"));
    let address = |text: &str| -> Ipv6Addr { text.parse().expect("an address") };
    let ends =
        |to: &str| -> [IpAddr; 2] { ["fc00:a::2", to].map(|it| it.parse().expect("an address")) };
    let data = |length: usize| (0..length).map(|at| (at % 251) as u8).collect::<Vec<_>>();
    let [from, to] = ends("fc00:b::2");
    let plain = udp(from, to, 9, &data(9000 - 48));
    let header = srh(17, &[address("fc0f::1"), address("fc00:b::2")], 1);
    let steered = |left: u8, to: &str, hop_limit: u8| {
        let mut header = header.clone();
        header[3] = left;
        let payload = [&header[..], &data(9000 - 80)].concat();
        ipv6(
            address("fc00:a::2"),
            address(to),
            ROUTING,
            hop_limit,
            &payload,
        )
    };
    let inner = udp(from, to, 9, &data(9000 - 88));
    let inside = ipv6(address("fc00:a::2"), address("fc0f::d6"), 41, 64, &inner);
    let [_, far] = ends("2001:db8:b::9");
    let small = udp(from, far, 9, &data(9000 - 80 - 48));
    let before = counters(star.router(), "eth0");
    for (what, packet, expected) in [
        ("plain", &plain, udp(from, to, 8, &data(9000 - 48))),
        ("End", &steered(1, "fc0f::1", 9), steered(0, "fc00:b::2", 8)),
        ("End.DT6", &inside, udp(from, to, 8, &data(9000 - 88))),
        ("H.Encaps", &small, udp(from, far, 8, &data(9000 - 80 - 48))),
    ] {
        let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), packet);
        a.send(&frame).expect("send");
        let out = b.receive(Duration::from_secs(1)).expect("receive");
        let out = out.unwrap_or_else(|| panic!("{what}: nothing arrives"));
        if what == "H.Encaps" {
            assert_eq!(out.len(), ETHERNET + 9000, "{what}");
            assert_eq!(out[ETHERNET + 80..], expected, "{what}");
        } else {
            assert_eq!(out[ETHERNET..], expected, "{what}");
        }
    }
    let after = counters(star.router(), "eth0");
    assert_eq!(
        after.forwarded - before.forwarded,
        4,
        "by the packet path alone"
    );
}
