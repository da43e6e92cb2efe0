//! Two SR proxies in a row on one node: packets that the first service returns pass directly to the
//! second.

use sidestep_testkit::Napi;

use crate::support::frames;
use crate::support::ip::Ip;
use crate::support::service::{Direction, PORTS, Served, headend};
use crate::support::{ROUTER, begin, modes};

/// Node name of the second service, and name of the router's port to it. The service returns
/// packets by the interface that received them.
const SECOND: &str = "vnf2";

/// [`Served`] with a second service.
fn two_services(topic: &str) -> (Served, Napi) {
    let mut served = Served::new(topic);
    served.star.lab.node(SECOND).expect("a namespace");
    let star = &mut served.star;
    star.lab
        .link(SECOND, "eth0", ROUTER, SECOND)
        .expect("a cable");
    let service = star.host(SECOND);
    for (path, value) in [
        ("net/ipv6/conf/all/forwarding", "1"),
        ("net/ipv4/ip_forward", "1"),
        // A service with one interface for both directions would send redirects.
        ("net/ipv4/conf/all/send_redirects", "0"),
        ("net/ipv4/conf/eth0/send_redirects", "0"),
    ] {
        service.sysctl(path, value).expect("a sysctl");
    }
    Ip::new(service).all([
        "address add fc00:f::2/64 dev eth0",
        "address add 10.0.6.2/24 dev eth0",
        "route add default via fc00:f::1",
        "route add default via 10.0.6.1",
    ]);
    star.ip().all([
        "address add fc00:f::1/64 dev vnf2",
        "address add 10.0.6.1/24 dev vnf2",
    ]);
    let napi = Napi::attach(star.host(SECOND), "eth0").expect("NAPI");
    (served, napi)
}

#[test]
fn a_packet_crosses_two_services_of_one_node_behind_one_segment_list() {
    let Some(_turn) = begin() else {
        return;
    };
    let (direction, second) = (Direction::Forth, "fc00:5::2");
    let [there, back] = direction.ports();
    for mode in modes(&["tc", "xdp-always"]) {
        for ipv4 in [false, true] {
            let (served, _napi) = two_services("livetwo");
            let _daemon = served
                .star
                .run(&[&["--mode", mode][..], &PORTS, &[SECOND]].concat());
            let nh = if ipv4 {
                "nh4 10.0.6.2"
            } else {
                "nh6 fc00:f::2"
            };
            for words in [
                format!(
                    "{}/128 encap seg6local action End.AD oif {there} iif {back} {} dev {there}",
                    direction.sid(),
                    direction.next_hop(ipv4)
                ),
                format!(
                    "{second}/128 encap seg6local action End.AD oif {SECOND} {nh} dev {SECOND}"
                ),
            ] {
                served.add(&words);
            }
            let [from, to] = direction.inner(ipv4);
            let packet = |hop_limit| frames::udp(from, to, hop_limit, b"two in a row");
            let segments = [
                direction.sid(),
                second.parse().expect("a SID"),
                direction.next(),
            ];
            let next_header = if ipv4 { frames::IPV4 } else { frames::IPV6 };
            let chain = |left: u8, hop_limit, inner: &[u8]| {
                let active = segments[segments.len() - 1 - usize::from(left)];
                let payload = [&frames::srh(next_header, &segments, left)[..], inner].concat();
                frames::ipv6(headend(), active, frames::ROUTING, hop_limit, &payload)
            };
            let [near, _] = direction.hosts();
            let sent = frames::ethernet(
                served.star.mac(ROUTER, "eth0"),
                served.star.mac(near, "eth0"),
                &chain(2, 64, &packet(64)),
            );
            let arrived = served.cross(direction, &sent);
            // Outer hop limit: two SIDs decrement it. Inner hop limit: each service decrements it
            // once, and the router does so before and after each service.
            let mut expected = chain(0, 62, &packet(58));
            // The flow label is computed from the inner packet (RFC 6437).
            expected[1..4].copy_from_slice(&arrived[15..18]);
            assert_eq!(
                arrived,
                served.at_the_end(direction, &expected),
                "{mode} IPv4 {ipv4}"
            );
        }
    }
}
