//! SR proxies in front of services that modify packets with nftables, and packets of a service
//! outside the chain.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use sidestep_testkit::FrameSocket;

use crate::support::frames::{self, Mac};
use crate::support::service::{Direction, SERVICE, Served, headend};
use crate::support::{ROUTER, begin, eventually, modes};

const FORTH: Direction = Direction::Forth;

/// Runs `nft -f -` in the service.
fn rules(served: &Served, text: &str) {
    let done = served.service().exec_with_input(&["nft", "-f", "-"], text);
    let done = done.expect("nft starts");
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_destination_that_nftables_translates_behind_end_am_is_the_last_segment_from_then_on() {
    let Some(_turn) = begin() else {
        return;
    };
    let [from, last] = FORTH.inner6();
    let real: IpAddr = "2001:db8:b::77".parse().expect("an address");
    let (IpAddr::V6(from6), IpAddr::V6(last6), IpAddr::V6(real6)) = (from, last, real) else {
        panic!("IPv6");
    };
    let segments = |last| [FORTH.sid(), FORTH.next(), last];
    let packet = |destination: Ipv6Addr, hop_limit, segments_left, last: Ipv6Addr| {
        // The checksum counts the last segment as destination (RFC 8200 8.1).
        let datagram = frames::udp(from, last.into(), 64, b"to a virtual address");
        let srh = frames::srh(frames::UDP, &segments(last), segments_left);
        let payload = [&srh[..], &datagram[40..]].concat();
        frames::ipv6(from6, destination, frames::ROUTING, hop_limit, &payload)
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let served = Served::new("livenat");
        rules(
            &served,
            &format!(
                "table ip6 nat {{\n chain pre {{\n  type nat hook prerouting priority -100\n  ip6 daddr {last} dnat to \
                 {real}\n }}\n}}\n"
            ),
        );
        let _daemon = served.run(mode);
        let ([there, back], [nh6, _]) = (FORTH.ports(), FORTH.service());
        served.add(&format!(
            "{}/128 encap seg6local action End.AM oif {there} iif {back} nh6 {nh6} flavors nat dev {there}",
            FORTH.sid()
        ));
        let mut frame = served.to_proxy(FORTH, &[0x60]);
        frame.truncate(14);
        frame.extend(packet(FORTH.sid(), 64, 2, last6));
        let arrived = served.cross(FORTH, &frame);
        let expected = packet(FORTH.next(), 61, 1, real6);
        assert_eq!(arrived, served.at_the_end(FORTH, &expected), "{mode}");
    }
}

#[test]
fn a_payload_that_nftables_changes_behind_end_ad_goes_on_changed_by_its_chain() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let served = Served::new("livepayload");
        // Replace "plai" by "aipl": the checksum is the same, because only the order of its words
        // changes.
        rules(
            &served,
            "table inet change {\n chain forward {\n  type filter hook forward priority 0\n  udp dport 5000 @th,64,32 set \
             0x6169706c\n }\n}\n",
        );
        let _daemon = served.run(mode);
        let [there, back] = FORTH.ports();
        for (ipv4, function) in [(false, ""), (true, "4")] {
            served.add(&format!(
                "{}{function}/128 encap seg6local action End.AD oif {there} iif {back} {} dev {there}",
                FORTH.sid(),
                FORTH.next_hop(ipv4),
            ));
        }
        for ipv4 in [false, true] {
            let [from, to] = FORTH.inner(ipv4);
            let sid: Ipv6Addr = if ipv4 {
                format!("{}4", FORTH.sid()).parse().expect("a SID")
            } else {
                FORTH.sid()
            };
            let of_chain = |destination, hop_limit, left, inner: &[u8]| {
                let next = if ipv4 { frames::IPV4 } else { frames::IPV6 };
                let srh = frames::srh(next, &[sid, FORTH.next()], left);
                let payload = [&srh[..], inner].concat();
                frames::ipv6(headend(), destination, frames::ROUTING, hop_limit, &payload)
            };
            let mut frame = served.to_proxy(FORTH, &[0x60]);
            frame.truncate(14);
            frame.extend(of_chain(
                sid,
                64,
                1,
                &frames::udp(from, to, 64, b"plain text"),
            ));
            let arrived = served.cross(FORTH, &frame);
            let changed = frames::udp(from, to, 61, b"aipln text");
            let mut expected = of_chain(FORTH.next(), 63, 0, &changed);
            // RFC 6437: computed from the inner packet.
            expected[1..4].copy_from_slice(&arrived[15..18]);
            assert_eq!(
                arrived,
                served.at_the_end(FORTH, &expected),
                "{mode} IPv4 {ipv4}"
            );
        }
    }
}

/// Packets from a service to its node, as frames from its interface `eth0` at `vnf0`.
struct Case {
    what: &'static str,
    frame: Vec<u8>,
    /// Address of the socket that receives it; `None` if the node's stack replies.
    heard_at: Option<SocketAddr>,
    /// Returns whether a frame to the service is the node's reply.
    answers: fn(&[u8]) -> bool,
}

fn control_traffic(served: &Served) -> Vec<Case> {
    let (mac, router) = (
        served.star.mac(SERVICE, "eth0"),
        served.star.mac(ROUTER, "vnf0"),
    );
    let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
    let [from6, node6] = ["fc00:d::2", "fc00:d::1"];
    let (IpAddr::V6(from), IpAddr::V6(target)) = (ip(from6), ip(node6)) else {
        panic!("IPv6");
    };
    let dhcp = |to: Mac, from: &str, destination: &str, ports, port_of_node: u16| {
        let any = if from.contains(':') { "::" } else { "0.0.0.0" };
        let packet = frames::udp_between(ip(from), ip(destination), ports, 64, b"discover");
        let heard_at = Some(SocketAddr::new(ip(any), port_of_node));
        (frames::ethernet(to, mac, &packet), heard_at)
    };
    let case = |what, (frame, heard_at), answers| Case {
        what,
        frame,
        heard_at,
        answers,
    };
    let multicast = |last: [u8; 4]| [0x33, 0x33, last[0], last[1], last[2], last[3]];
    let solicitation = frames::solicitation(from, target, mac);
    let never: fn(&[u8]) -> bool = |_| false;
    vec![
        case(
            "an ARP request",
            (
                frames::arp_request(mac, [10, 0, 4, 2].into(), [10, 0, 4, 1].into()),
                None,
            ),
            |frame| frame[12..14] == [8, 6] && frame[21] == 2,
        ),
        case("a neighbor solicitation", (solicitation, None), |frame| {
            frames::icmpv6_type(frame) == Some(136)
        }),
        case(
            "DHCP by broadcast",
            dhcp([0xff; 6], "0.0.0.0", "255.255.255.255", [68, 67], 67),
            never,
        ),
        case(
            "DHCP to the node",
            dhcp(router, "10.0.4.2", "10.0.4.1", [68, 67], 67),
            never,
        ),
        case(
            "DHCPv6 by multicast",
            dhcp(
                multicast([0, 1, 0, 2]),
                "fe80::2",
                "ff02::1:2",
                [546, 547],
                547,
            ),
            never,
        ),
        case(
            "DHCPv6 to the node",
            dhcp(router, from6, node6, [546, 547], 547),
            never,
        ),
    ]
}

/// A socket of the node's own stack.
fn listener(served: &Served, at: SocketAddr) -> UdpSocket {
    let router = served.star.router();
    let vnf0 = router.ifindex("vnf0").expect("an interface");
    let open = || {
        let socket = UdpSocket::bind(at).expect("bound");
        if at.is_ipv6() {
            let all_dhcp = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
            socket.join_multicast_v6(&all_dhcp, vnf0).expect("joined");
        }
        socket
    };
    let socket = router.run(open).expect("the namespace");
    let timeout = Some(Duration::from_millis(200));
    socket.set_read_timeout(timeout).expect("a timeout");
    socket
}

#[test]
fn neighbor_discovery_arp_and_dhcp_of_a_service_are_the_nodes_and_nobody_elses() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        for (family, proxy) in [(6, "End.AD"), (4, "End.AD"), (6, "End.AM")] {
            let served = Served::new("livecontrol");
            let _daemon = served.run(mode);
            // With one interface, packets of the service use the return path.
            served.add(&format!(
                "{}/128 encap seg6local action {proxy} oif vnf0 {} dev vnf0",
                FORTH.sid(),
                FORTH.next_hop(family == 4),
            ));
            // With learned headers, all other packets would be forwarded.
            if proxy == "End.AD" {
                let [from, to] = FORTH.inner(family == 4);
                let [near, _] = FORTH.hosts().map(|host| served.star.socket(host));
                let inner = frames::udp(from, to, 64, b"learn");
                near.send(&served.to_proxy(FORTH, &inner)).expect("send");
            }
            let hosts = FORTH.hosts().map(|host| served.star.socket(host));
            let mut service = FrameSocket::open(served.service(), "eth0").expect("a packet socket");
            service.keep_noise(true);
            for case in control_traffic(&served) {
                let what = format!("{}, {mode}, {proxy} of IPv{family}", case.what);
                let heard = case.heard_at.map(|at| listener(&served, at));
                eventually(&what, || {
                    service.send(&case.frame).expect("send");
                    match &heard {
                        Some(socket) => {
                            let mut data = [0; 64];
                            let length = socket.recv(&mut data).ok()?;
                            (data[..length] == *b"discover").then_some(())
                        }
                        None => received(&service, 200)
                            .filter(|frame| (case.answers)(frame))
                            .map(|_| ()),
                    }
                });
            }
            for host in &hosts {
                while let Some(frame) = received(host, 20) {
                    // The packet from which the proxy learned may have returned already.
                    assert!(frame.ends_with(b"learn"), "{mode} {proxy}: {frame:02x?}");
                }
            }
        }
    }
}

fn received(socket: &FrameSocket, milliseconds: u64) -> Option<Vec<u8>> {
    let timeout = Duration::from_millis(milliseconds);
    socket.receive(timeout).expect("receive")
}
