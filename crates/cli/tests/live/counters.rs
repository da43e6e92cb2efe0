//! Every received frame gets one verdict and is counted once. The kernel gets frames that the
//! packet path cannot send itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sidestep_testkit::FrameSocket;
use sidestep_testkit::Napi;
use sidestep_testkit::differential::headers::ipv4_set_checksum;

use crate::support::frames::{
    ETHERNET, IPV6, ROUTING, UDP, arp_request, checksums, ethernet, ipv6, srh, to_mac, udp,
};
use crate::support::{ROUTER, Star, begin, counters, eventually, queue_counter, reasons};

const SECOND: Duration = Duration::from_secs(1);

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

/// A packet from host `a` to host `b` or `c`, of both families.
fn packets(to: &str, data: &[u8]) -> [Vec<u8>; 2] {
    let number = if to == "b" { 2 } else { 3 };
    let six = udp(
        address("fc00:a::2"),
        address(&format!("fc00:{to}::2")),
        64,
        data,
    );
    let four = udp(
        address("10.0.1.2"),
        address(&format!("10.0.{number}.2")),
        64,
        data,
    );
    [six, four]
}

/// Returns frames of every kind, valid and invalid, with the name of the kind.
fn mixture(star: &Star) -> Vec<(&'static str, Vec<u8>)> {
    let (to, from) = (star.mac(ROUTER, "eth0"), star.mac("a", "eth0"));
    let [six, four] = packets("b", b"counted");
    let sid = v6("fc00:e::1");
    let to_sid = |next, payload: &[u8]| ipv6(v6("fc00:a::2"), sid, next, 64, payload);
    let through = srh(UDP, &[sid, v6("fc00:b::2")], 1);
    let mut long = srh(UDP, &[sid, v6("fc00:b::2")], 1);
    long[1] = 200;
    let mut beyond = srh(UDP, &[sid, v6("fc00:b::2")], 1);
    beyond[3] = 9;
    let changed = |packet: &[u8], at: usize, value: u8| {
        let mut packet = packet.to_vec();
        packet[at] = value;
        packet
    };
    let mut options = changed(&four, 0, 0x46);
    options.splice(20..20, [1, 1, 1, 0]);
    options[3] += 4;
    ipv4_set_checksum(&mut options);
    let frame = |packet: &[u8]| ethernet(to, from, packet);
    let mut tagged = frame(&six);
    tagged.splice(12..12, [0x81, 0x00, 0, 5]);
    vec![
        ("forwarded", frame(&six)),
        ("forwarded", frame(&four)),
        ("forwarded", frame(&to_sid(ROUTING, &through))),
        ("padded", [&frame(&six)[..], &[0; 9]].concat()),
        (
            "arp",
            arp_request(from, Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 1, 1)),
        ),
        (
            "local",
            frame(&udp(address("fc00:a::2"), address("fc00:a::1"), 64, b"you")),
        ),
        ("hop limit", frame(&changed(&six, 7, 1))),
        (
            "no route",
            frame(&udp(address("fc00:a::2"), address("fc0f::9"), 64, b"?")),
        ),
        ("another host", ethernet([2, 9, 9, 9, 9, 9], from, &six)),
        ("multicast", ethernet([0x33, 0x33, 0, 0, 0, 1], from, &six)),
        ("vlan", tagged),
        ("not ip", [&to[..], &from, &[0x88, 0xb5], &[7; 50]].concat()),
        ("options", frame(&options)),
        ("drop version", frame(&changed(&six, 0, 0x40))),
        ("drop length", frame(&changed(&six, 4, 0x40))),
        ("drop checksum", frame(&changed(&four, 10, four[10] ^ 0x55))),
        ("drop srh length", frame(&to_sid(ROUTING, &long))),
        ("drop segments left", frame(&to_sid(ROUTING, &beyond))),
        ("drop no srh", frame(&to_sid(UDP, &six[40..]))),
        ("drop cut", frame(&six)[..ETHERNET + 20].to_vec()),
        (
            "blackhole",
            frame(&udp(address("fc00:a::2"), address("fc0b::1"), 64, b"gone")),
        ),
        (
            "encap",
            frame(&udp(
                address("fc00:a::2"),
                address("fc0c::1"),
                64,
                b"wrapped",
            )),
        ),
        (
            "too big",
            frame(&udp(
                address("fc00:a::2"),
                address("fc0c::1"),
                64,
                &[1; 1440],
            )),
        ),
        ("inner", frame(&to_sid(IPV6, &six))),
    ]
}

#[test]
fn received_is_forwarded_plus_kernel_plus_dropped_and_what_was_sent_after_mixed_traffic() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in crate::support::modes(&["tc", "xdp-always"]) {
        let star = Star::new("livecount");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        star.ip().all([
            "route add fc00:e::1/128 encap seg6local action End dev eth0",
            "route add blackhole fc0b::/16",
            "route add fc0c::/16 encap seg6 mode encap segs fc00:b::2 dev eth1",
        ]);
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let mixture = mixture(&star);
        let (a, b) = (star.socket("a"), star.socket("b"));
        let mut bytes = 0;
        let rounds = 40u64;
        for round in 0..rounds {
            // Send them in a different order each time.
            for number in 0..mixture.len() {
                let (kind, frame) = &mixture[(number * 7 + round as usize) % mixture.len()];
                a.send(frame).expect("send");
                bytes += frame.len() as u64;
                // The kernel has removed the tag before TC.
                bytes -= if mode == "tc" && *kind == "vlan" {
                    4
                } else {
                    0
                };
            }
            // Send some in the opposite direction.
            for packet in packets("b", b"back") {
                let frame = ethernet(star.mac(ROUTER, "eth1"), star.mac("b", "eth0"), &packet);
                b.send(&frame).expect("send");
            }
        }
        let sent = rounds * mixture.len() as u64;
        let at = eventually("all frames are received", || {
            let at = counters(router, "eth0");
            (at.received_packets >= sent).then_some(at)
        });
        let back = counters(router, "eth1");
        let place = format!("{mode}: {at:?}\n{back:?}\n{:?}", reasons(router));
        assert_eq!(at.received_packets, sent, "{place}");
        assert_eq!(at.received_bytes, bytes, "{place}");
        assert_eq!(back.received_packets, 2 * rounds, "{place}");
        for port in [&at, &back] {
            assert_eq!(
                port.received_packets,
                port.forwarded + port.punted + port.dropped,
                "{place}"
            );
        }
        // Sums the packets of these kinds.
        let kinds = |wanted: &[&str]| {
            let of_kind = |(kind, _): &&(&str, Vec<u8>)| wanted.contains(kind);
            rounds * mixture.iter().filter(of_kind).count() as u64
        };
        let dropped = mixture.iter().filter(|(kind, _)| kind.starts_with("drop"));
        let dropped = rounds * (dropped.count() as u64) + kinds(&["blackhole", "inner", "too big"]);
        assert_eq!(
            at.forwarded,
            kinds(&["forwarded", "padded", "encap"]),
            "{place}"
        );
        assert_eq!(at.dropped, dropped, "{place}");
        // Each packet that was not forwarded has a reason.
        let sum = |verdict: &str| -> u64 {
            let of_verdict = reasons(router).into_iter().filter(|(of, ..)| of == verdict);
            of_verdict.map(|(_, _, packets)| packets).sum()
        };
        assert_eq!(sum("drop"), at.dropped + back.dropped, "{place}");
        assert_eq!(sum("punt"), at.punted + back.punted, "{place}");
        // Packets that left by eth1 entered at eth0 or at eth1.
        assert_eq!(back.sent_packets, at.forwarded + back.forwarded, "{place}");
        // The packets arrived: count frames from the router's MAC address that the kernel did not
        // send.
        let mut arrived = 0;
        while let Some(frame) = b.receive(Duration::from_millis(50)).expect("receive") {
            arrived += u64::from(to_mac(&frame) == star.mac("b", "eth0"));
        }
        assert!(arrived >= back.sent_packets, "{arrived} arrived; {place}");
    }
}

/// Sends packets of both families from `a` to `to`, and checks that each one arrives.
fn cross(star: &Star, to: &str, count: usize) -> (FrameSocket, usize) {
    let (a, far) = (star.socket("a"), star.socket(to));
    let mut arrived = 0;
    for number in 0..count {
        for packet in packets(to, format!("packet {number}").as_bytes()) {
            let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet);
            a.send(&frame).expect("send");
            let out = far.receive(SECOND).expect("receive");
            let out = out.unwrap_or_else(|| panic!("packet {number} to {to} is lost"));
            assert_eq!(to_mac(&out), star.mac(to, "eth0"));
            checksums(&out).expect("right checksums");
            arrived += 1;
        }
    }
    (far, arrived)
}

#[test]
fn a_packet_leaves_by_an_interface_that_is_not_attached() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in crate::support::modes(&["tc", "xdp-always"]) {
        let star = Star::new("liveegress");
        let _napi = Napi::attach(star.host("c"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0"]);
        let (_, arrived) = cross(&star, "c", 50);
        let (at, out) = (
            counters(star.router(), "eth0"),
            counters(star.router(), "eth2"),
        );
        let arrived = arrived as u64;
        assert_eq!(
            (at.forwarded, out.sent_packets),
            (arrived, arrived),
            "{mode}: {at:?} {out:?}"
        );
        assert_eq!(out.received_packets, 0, "{mode}");
    }
}

#[test]
fn xdp_leaves_packets_to_a_veth_whose_peer_has_no_napi_to_tc_until_it_has() {
    let Some(_turn) = begin() else {
        return;
    };
    if crate::support::modes(&["xdp-always"]).is_empty() {
        return;
    }
    let star = Star::new("livenapi");
    let router = star.router();
    let _daemon = star.run(&["--mode", "xdp-always", "eth0"]);
    let (_, arrived) = cross(&star, "b", 50);
    let at = counters(router, "eth0");
    assert_eq!((at.forwarded, at.punted), (arrived as u64, 0), "{at:?}");
    assert_eq!(reasons(router), []);

    // When the peer starts polling, XDP takes over; when it stops, TC does. No packet is lost.
    let by_xdp = || queue_counter(router, "eth1", "tx", "xdp_xmit");
    assert_eq!(by_xdp(), 0);
    for round in 0..3 {
        let napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let before = by_xdp();
        eventually("XDP sends to b", || {
            cross(&star, "b", 5);
            (by_xdp() > before).then_some(())
        });
        // From now on XDP sends all packets.
        let before = (counters(router, "eth0").forwarded, by_xdp());
        let (_, arrived) = cross(&star, "b", 20);
        assert_eq!(
            (
                counters(router, "eth0").forwarded - before.0,
                by_xdp() - before.1
            ),
            (arrived as u64, arrived as u64),
            "round {round}"
        );
        drop(napi);
        eventually("TC sends to b", || {
            // Packets may be lost between the end of polling and its detection, but not afterwards.
            let far = star.socket("b");
            let [six, _] = packets("b", b"probe");
            let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &six);
            star.socket("a").send(&frame).expect("send");
            far.receive(SECOND / 10).expect("receive")
        });
        let before = (counters(router, "eth0").forwarded, by_xdp());
        let (_, arrived) = cross(&star, "b", 20);
        let at = counters(router, "eth0");
        assert_eq!(
            (at.forwarded - before.0, by_xdp() - before.1, at.punted),
            (arrived as u64, 0, 0),
            "round {round}"
        );
    }
}

#[test]
fn a_packet_that_an_egress_does_not_take_from_xdp_is_sent_by_tc_and_counted_once() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livenoegress");
    let router = star.router();
    // The peer of eth1 does not poll, so an XDP redirect does not arrive there.
    let _daemon = star.run(&["--mode", "xdp-always", "eth0"]);
    let words = "route add fc00:77::/48 via fc00:b::2 dev eth1";
    crate::support::printed(router, &words.split(' ').collect::<Vec<_>>());
    let [from, to] = ["fc00:a::2", "fc00:77::1"].map(|text| text.parse().expect("an address"));
    let frame = ethernet(
        star.mac(ROUTER, "eth0"),
        star.mac("a", "eth0"),
        &udp(from, to, 64, b"no way out"),
    );
    let far = star.socket("b");
    star.socket("a").send(&frame).expect("send");
    let arrived = far.receive(SECOND).expect("receive");
    assert!(arrived.is_some());
    let at = counters(router, "eth0");
    assert_eq!((at.received_packets, at.forwarded), (1, 1), "{at:?}");
    assert_eq!(reasons(router), []);
}
