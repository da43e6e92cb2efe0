//! Neighbors of the packet path, whose traffic the kernel does not see: one in use stays valid and
//! follows a MAC change. An unresolved one is resolved, without loss if the kernel has the route.

use std::net::Ipv6Addr;
use std::thread;
use std::time::{Duration, Instant};

use sidestep_testkit::FrameSocket;
use sidestep_testkit::lab::mac_text;

use crate::support::frames::{
    IPV6, Mac, advertisement, destination6, ethernet, ipv6, next_header, solicited, source6, srh,
    to_mac, udp,
};
use crate::support::{ROUTER, Star, begin, counters, eventually, explain, printed, reasons};

/// The neighbor that is not static.
const NEXT: &str = "fc00:b::9";
/// Interval between two packets of the constant traffic.
const PACE: Duration = Duration::from_millis(1);

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// Returns a router that can resolve neighbors, because it has a link-local address.
fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    star.ip().run("address add fe80::1/64 dev eth1");
    star
}

/// Returns a socket for the frames of host `b`, including neighbor discovery.
fn at_b(star: &Star) -> FrameSocket {
    let mut socket = star.socket("b");
    socket.keep_noise(true);
    socket
}

/// Returns a packet from host `a` with data that identifies it.
fn packet(star: &Star, to: &str, data: &[u8]) -> Vec<u8> {
    let ends = ["fc00:a::2", to].map(|text| text.parse().expect("address"));
    let packet = udp(ends[0], ends[1], 64, data);
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
}

fn contains(frame: &[u8], data: &[u8]) -> bool {
    frame.windows(data.len()).any(|window| window == data)
}

/// Returns the kernel's entry of a neighbor.
fn state(star: &Star, of: &str) -> String {
    let shown = star.router().exec(&["ip", "neigh", "show", of]);
    shown.expect("ip neigh").trim().to_owned()
}

/// Gives host `b` an IPv6 stack with the address [`NEXT`], and shortens the router's neighbor
/// timers.
fn with_stack(star: &Star) {
    let host = star.host("b");
    host.sysctl("net/ipv6/conf/eth0/accept_dad", "0")
        .and_then(|()| host.sysctl("net/ipv6/conf/eth0/disable_ipv6", "0"))
        .expect("IPv6 at b");
    host.exec(&["ip", "address", "add", &format!("{NEXT}/64"), "dev", "eth0"])
        .expect("an address");
    for (name, value) in [
        ("base_reachable_time_ms", "400"),
        ("delay_first_probe_time", "1"),
        ("retrans_time_ms", "100"),
    ] {
        let path = format!("net/ipv6/neigh/eth1/{name}");
        star.router().sysctl(&path, value).expect("a sysctl");
    }
}

/// Sends traffic for some time. Returns the sent and received packets, and the solicitations seen
/// at `b`.
fn traffic(star: &Star, mac: Mac, seconds: u64) -> (u64, u64, u64) {
    let (a, b) = (star.socket("a"), at_b(star));
    let frame = packet(star, "fd00::1", b"constant");
    let (mut sent, mut arrived, mut asked) = (0, 0, 0);
    let mut look = |wait: Duration| {
        let Some(out) = b.receive(wait).expect("receive") else {
            return false;
        };
        asked += u64::from(solicited(&out).is_some());
        arrived += u64::from(contains(&out, b"constant") && to_mac(&out) == mac);
        true
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        a.send(&frame).expect("send");
        sent += 1;
        while look(Duration::ZERO) {}
        thread::sleep(PACE);
    }
    while look(Duration::from_millis(200)) {}
    (sent, arrived, asked)
}

#[test]
fn a_neighbor_in_use_is_kept_alive_and_followed_to_another_mac() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in ["tc", "xdp-always"] {
        let star = star("liveneigh");
        let _napi = sidestep_testkit::Napi::attach(star.host("b"), "eth0").expect("NAPI");
        with_stack(&star);
        star.ip()
            .run(&format!("route add fd00::/16 via {NEXT} dev eth1"));
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let mac = star.mac("b", "eth0");
        let frame = packet(&star, "fd00::1", b"settled");
        // Without traffic, the next hop of a route is resolved.
        eventually("the next hop is resolved", || {
            (explain(star.router(), "eth0", &frame).0 == "forward").then_some(())
        });

        // This lasts for many reachable times. Without probes, the kernel would have no
        // confirmation of the neighbor after the first one.
        let before = counters(star.router(), "eth0");
        let (sent, arrived, asked) = traffic(&star, mac, 6);
        let after = counters(star.router(), "eth0");
        assert_eq!(arrived, sent, "{mode}");
        assert_eq!(after.punted, before.punted, "{mode}: all by itself");
        assert!(
            (2..60).contains(&asked),
            "{mode}: {asked} solicitations in 6 s"
        );

        // A MAC change without announcement: probes detect it.
        let other = [2, 0xbb, 0, 0, 0, 9];
        star.host("b")
            .exec(&["ip", "link", "set", "eth0", "address", &mac_text(other)])
            .expect("another MAC");
        let (a, b) = (star.socket("a"), at_b(&star));
        eventually("the other MAC is followed", || {
            a.send(&frame).expect("send");
            let out = b.receive(Duration::from_millis(20)).expect("receive")?;
            (contains(&out, b"settled") && to_mac(&out) == other).then_some(())
        });
        eventually("by the packet path again", || {
            (explain(star.router(), "eth0", &frame).0 == "forward").then_some(())
        });
        let (sent, arrived, _) = traffic(&star, other, 1);
        assert_eq!(arrived, sent, "{mode}");
    }
}

/// Replies to the next solicitation of `target`, which must arrive.
fn answer(star: &Star, b: &FrameSocket, target: &str) {
    let mac = star.mac("b", "eth0");
    eventually(&format!("a solicitation of {target}"), || {
        let frame = b.receive(Duration::from_millis(100)).expect("receive")?;
        (solicited(&frame)? == address(target)).then(|| {
            b.send(&advertisement(address(target), mac, &frame))
                .expect("send");
        })
    });
}

/// A case: its neighbor, the part of the packet to find, and the frame.
type Case = (&'static str, &'static str, &'static [u8], Vec<u8>);

/// Returns a packet for each kind of route whose next hop is unresolved.
fn to_unresolved(star: &Star) -> [Case; 6] {
    let inner = |to: &str, data: &[u8]| {
        let ends = ["fc00:a::2", to].map(|text| text.parse().expect("address"));
        udp(ends[0], ends[1], 64, data)
    };
    let to_sid = |sid: &str, next, payload: &[u8]| {
        let packet = ipv6(address("fc00:a::2"), address(sid), next, 64, payload);
        ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
    };
    let through = [
        srh(IPV6, &["fc00:5::e", "fc00:b::77"].map(address), 1),
        inner("fd00::9", b"end.x"),
    ]
    .concat();
    [
        (
            "plain, on the link",
            "fc00:b::30",
            b"on link",
            packet(star, "fc00:b::30", b"on link"),
        ),
        (
            "plain, by a gateway",
            "fc00:b::31",
            b"gateway",
            packet(star, "fd01::1", b"gateway"),
        ),
        (
            "headend, first segment on the link",
            "fc00:b::32",
            b"segment",
            packet(star, "fd02::1", b"segment"),
        ),
        (
            "headend, first segment by a gateway",
            "fc00:b::33",
            b"wrapped",
            packet(star, "fd03::1", b"wrapped"),
        ),
        (
            "End.X",
            "fc00:b::34",
            b"end.x",
            to_sid("fc00:5::e", crate::support::frames::ROUTING, &through),
        ),
        (
            "End.DT6, then on the link",
            "fc00:b::35",
            b"decapsulated",
            to_sid("fc00:5::d", IPV6, &inner("fc00:b::35", b"decapsulated")),
        ),
    ]
}

#[test]
fn the_first_packet_to_an_unresolved_next_hop_arrives_by_way_of_the_kernel() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in ["tc", "xdp-always"] {
        let star = star("livefirst");
        let _napi = sidestep_testkit::Napi::attach(star.host("b"), "eth0").expect("NAPI");
        // The kernel holds a packet until a neighbor replies or fails. It must not fail during the
        // test.
        for (name, value) in [("mcast_solicit", "100"), ("retrans_time_ms", "200")] {
            let path = format!("net/ipv6/neigh/eth1/{name}");
            star.router().sysctl(&path, value).expect("a sysctl");
        }
        let routes = [
            "route add fd01::/16 via fc00:b::31 dev eth1",
            "route add fd02::/16 encap seg6 mode encap segs fc00:b::32 dev eth1",
            "route add fd03::/16 encap seg6 mode encap segs fd04::e dev eth1",
            "route add fd04::/16 via fc00:b::33 dev eth1",
            "route add fc00:5::e/128 encap seg6local action End.X nh6 fc00:b::34 dev eth0",
            "route add fc00:5::d/128 encap seg6local action End.DT6 table 254 dev eth0",
        ];
        star.ip().all(routes);
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let (a, b) = (star.socket("a"), at_b(&star));
        for (name, neighbor, data, frame) in to_unresolved(&star) {
            let place = format!("{mode}, {name}");
            let (verdict, ..) = explain(star.router(), "eth0", &frame);
            assert_eq!(verdict, "punt", "{place}: not resolved yet");
            b.drain().expect("receive");
            a.send(&frame).expect("send");
            answer(&star, &b, neighbor);
            let first = eventually(&format!("{place}: the first packet"), || {
                let out = b.receive(Duration::from_secs(1)).expect("receive")?;
                contains(&out, data).then_some(out)
            });
            assert_eq!(to_mac(&first), star.mac("b", "eth0"), "{place}");
            // From now on Sidestep forwards the packets in the same form, except for the flow label
            // and hop limits (docs/reference/conformance.md).
            eventually(&place, || {
                (explain(star.router(), "eth0", &frame).0 == "forward").then_some(())
            });
            let forwarded = counters(star.router(), "eth0").forwarded;
            a.send(&frame).expect("send");
            let second = eventually(&place, || {
                let out = b.receive(Duration::from_secs(1)).expect("receive")?;
                contains(&out, data).then_some(out)
            });
            let form = |frame: &[u8]| {
                (
                    frame.len(),
                    source6(frame),
                    destination6(frame),
                    next_header(frame),
                )
            };
            assert_eq!(form(&first), form(&second), "{place}");
            assert_eq!(
                counters(star.router(), "eth0").forwarded,
                forwarded + 1,
                "{place}"
            );
        }
    }
}

#[test]
fn a_destination_on_a_link_behind_a_route_of_our_own_is_resolved_for_the_packets_after_the_first() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in ["tc", "xdp-always"] {
        let star = star("liveonlink");
        let router = star.router();
        let _napi = sidestep_testkit::Napi::attach(star.host("b"), "eth0").expect("NAPI");
        // No rule of the kernel looks up table 100.
        star.ip().run("route add fc00:b::/64 dev eth1 table 100");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let words = "route add fc00:5::d6/128 encap seg6local action End.DT6 table 100 dev eth0";
        printed(router, &words.split(' ').collect::<Vec<_>>());
        let (a, b) = (star.socket("a"), at_b(&star));
        let ends = ["fc00:a::2", "fc00:b::61"].map(|text| text.parse().expect("address"));
        let inner = udp(ends[0], ends[1], 64, b"on link");
        let outer = ipv6(
            address("fc00:a::2"),
            address("fc00:5::d6"),
            IPV6,
            64,
            &inner,
        );
        let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &outer);
        a.send(&frame).expect("send");
        answer(&star, &b, "fc00:b::61");
        let dropped = ("drop".to_owned(), "no_neighbor".to_owned(), 1);
        assert!(reasons(router).contains(&dropped), "{:?}", reasons(router));
        eventually("it is resolved", || {
            (explain(router, "eth0", &frame).0 == "forward").then_some(())
        });
        a.send(&frame).expect("send");
        eventually("the second packet", || {
            let out = b.receive(Duration::from_secs(1)).expect("receive")?;
            contains(&out, b"on link").then_some(())
        });
    }
}

#[test]
fn what_somebody_keeps_in_the_neighbor_table_is_not_touched() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("livekept");
    let mut ip = star.ip();
    let kept = ["fc00:b::51", "fc00:b::52", "fc00:b::53"];
    let mac = mac_text(star.mac("b", "eth0"));
    ip.all([
        format!(
            "neighbor add {} lladdr {mac} dev eth1 nud permanent",
            kept[0]
        )
        .as_str(),
        format!(
            "neighbor add {} lladdr {mac} dev eth1 nud stale extern_learn",
            kept[1]
        )
        .as_str(),
        format!("neighbor add {} dev eth1 managed", kept[2]).as_str(),
    ]);
    let routes: Vec<String> = (0..3)
        .map(|number| format!("route add fd0{number}::/16 via {} dev eth1", kept[number]))
        .collect();
    ip.all(routes.iter().map(String::as_str));
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let a = star.socket("a");
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        for number in 0..3 {
            a.send(&packet(&star, &format!("fd0{number}::1"), b"kept"))
                .expect("send");
        }
        thread::sleep(PACE);
    }
    let words = ["PERMANENT", "extern_learn", "managed"];
    for (neighbor, word) in kept.iter().zip(words) {
        let now = state(&star, neighbor);
        assert!(now.contains(word), "{now}");
    }
}
