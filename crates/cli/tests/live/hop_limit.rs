//! Packets whose hop limit or TTL expires at a headend or at a SID of Linux: Linux forwards some of them. Sidestep sends
//! Time Exceeded and forwards none.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use nix::sys::signal::Signal;
use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::{FrameSocket, Napi};

use crate::icmp::{address, ends, frame, message, outer, parts};
use crate::support::frames::{ETHERNET, IPV4, IPV6, ROUTING, ipv6, srh, udp};
use crate::support::{Star, begin, modes, reasons, report};

const SECOND: Duration = Duration::from_secs(1);
const SHORTLY: Duration = Duration::from_millis(100);

/// Headends and SIDs of Linux. Their packets leave for host `c`, those of End.DX4 and End.DX6 for `b`. The source of
/// encapsulated packets is no address of the router, which therefore relays no error.
fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    star.ip().all([
        "route add fc0a::/16 via fc00:c::2 dev eth2",
        "route add 203.0.113.0/24 encap seg6 mode encap segs fc0a::1 dev eth2",
        "route add 198.51.100.0/24 encap seg6 mode encap.red segs fc0a::1,fc0a::2 dev eth2",
        "route add 2001:db8:c::/48 encap seg6 mode encap segs fc0a::1,fc0a::2 dev eth2",
        "route add 2001:db8:d::/48 encap seg6 mode encap.red segs fc0a::1 dev eth2",
        "route add 2001:db8:e::/48 encap seg6 mode inline segs fc0a::1 dev eth2",
        "route add fc0f::1/128 encap seg6local action End dev eth0",
        "route add fc0f::2/128 encap seg6local action End dev eth0",
        "route add fc0f::b6/128 encap seg6local action End.B6.Encaps srh segs fc0a::1 dev eth0",
        "route add fc0f::b7/128 encap seg6local action End.B6 srh segs fc0a::1 dev eth0",
        "route add fc0f::d6/128 encap seg6local action End.DT6 table 254 dev eth0",
        "route add fc0f::d4/128 encap seg6local action End.DX4 nh4 10.0.2.2 dev eth0",
        "route add fc0f::d7/128 encap seg6local action End.DX6 nh6 fc00:b::2 dev eth0",
    ]);
    star
}

fn udp_from_a(to: &str, hop_limit: u8) -> Vec<u8> {
    let to: IpAddr = to.parse().expect("an address");
    let from = if to.is_ipv4() {
        "10.0.1.2"
    } else {
        "fc00:a::2"
    };
    udp(from.parse().expect("an address"), to, hop_limit, b"probe")
}

/// From host `a` by SIDs of the router, in the order of travel, to `last`.
fn by(sids: &[&str], last: &str, hop_limit: u8) -> Vec<u8> {
    let path: Vec<Ipv6Addr> = sids.iter().chain([&last]).copied().map(address).collect();
    let left = sids.len() as u8;
    let header = srh(59, &path, left);
    ipv6(address("fc00:a::2"), path[0], ROUTING, hop_limit, &header)
}

/// Packets that expire at the router.
fn expired() -> Vec<(&'static str, Vec<u8>)> {
    let mut packets = Vec::new();
    for limit in [1, 0] {
        packets.extend([
            ("H.Encaps of IPv4", udp_from_a("203.0.113.1", limit)),
            ("H.Encaps.Red of IPv4", udp_from_a("198.51.100.1", limit)),
            ("H.Encaps of IPv6", udp_from_a("2001:db8:c::1", limit)),
            ("H.Encaps.Red of IPv6", udp_from_a("2001:db8:d::1", limit)),
            ("H.Insert", udp_from_a("2001:db8:e::1", limit)),
            ("End", by(&["fc0f::1"], "fc0a::9", limit)),
            ("End.B6.Encaps", by(&["fc0f::b6"], "fc0a::9", limit)),
            ("End.B6", by(&["fc0f::b7"], "fc0a::9", limit)),
        ]);
    }
    packets.push(("two SIDs", by(&["fc0f::1", "fc0f::2"], "fc0a::9", 2)));
    packets
}

fn nothing_arrives(socket: &FrameSocket, what: &str) {
    assert_eq!(socket.receive(SHORTLY).expect("receive"), None, "{what}");
}

#[test]
fn a_packet_that_expires_at_a_headend_or_a_sid_is_answered_and_not_forwarded() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = star("livehops");
        let _napi = ["b", "c"].map(|host| Napi::attach(star.host(host), "eth0").expect("NAPI"));
        let daemon = star.run(&["--mode", mode, "eth0", "eth1", "eth2"]);
        let [a, b, c] = ["a", "b", "c"].map(|host| star.socket(host));
        for (what, packet) in expired() {
            let what = format!("{mode}: {what}");
            a.send(&frame(&star, &packet)).expect("send");
            let (source, answer) = message(&a).unwrap_or_else(|| panic!("{what}: no message"));
            let [here4, here6] = ends("10.0.1.1", "fc00:a::1");
            let (here, kind) = if packet[0] >> 4 == 4 {
                (here4, 11)
            } else {
                (here6, 3)
            };
            assert_eq!(parts(&answer), (kind, 0, 0, &packet[..]), "{what}");
            assert_eq!(source, here, "{what}");
            nothing_arrives(&c, &what);
        }
        let icmp: report::Icmp = report(star.router(), Request::ShowIcmp);
        let sent = icmp.sent.get("time_exceeded").copied();
        assert_eq!(sent, Some(expired().len() as u64), "{mode}: {icmp:?}");
        let reasons = reasons(star.router());
        let of = |name| reasons.iter().find(|it| it.1 == name).map(|it| it.2);
        assert_eq!(of("hop_limit"), sent, "{mode}: {reasons:?}");

        // Linux answers for the packets that its SIDs decapsulate.
        for (sid, next, to) in [
            ("fc0f::d6", IPV6, "fc00:b::2"),
            ("fc0f::d7", IPV6, "fc00:b::2"),
            ("fc0f::d4", IPV4, "10.0.2.2"),
        ] {
            let inner = udp_from_a(to, 1);
            a.send(&frame(&star, &outer(sid, next, &inner)))
                .expect("send");
            let (_, answer) = message(&a).unwrap_or_else(|| panic!("{mode}: {sid}: no message"));
            let kind = if next == IPV4 { 11 } else { 3 };
            assert_eq!((answer[0], answer[1]), (kind, 0), "{mode}: {sid}");
            nothing_arrives(&b, sid);
        }
        let after: report::Icmp = report(star.router(), Request::ShowIcmp);
        assert_eq!(after.sent, icmp.sent, "{mode}");

        forwarded(&star, &a, &c, mode);
        daemon.signal(Signal::SIGKILL);
        let _ = daemon.end();
        a.send(&frame(&star, &udp_from_a("203.0.113.1", 1)))
            .expect("send");
        nothing_arrives(&a, "without a daemon");
        nothing_arrives(&c, "without a daemon");
        forwarded(&star, &a, &c, mode);
    }
}

/// Packets with one hop more arrive at host `c` with hop limit or TTL 1.
fn forwarded(star: &Star, a: &FrameSocket, c: &FrameSocket, mode: &str) {
    for (packet, headers, field) in [
        (udp_from_a("203.0.113.1", 2), 40 + 24, 8),
        (udp_from_a("198.51.100.1", 2), 40 + 24, 8),
        (udp_from_a("2001:db8:c::1", 2), 40 + 40, 7),
        (udp_from_a("2001:db8:d::1", 2), 40, 7),
        (udp_from_a("2001:db8:e::1", 2), 0, 7),
        (by(&["fc0f::1"], "fc0a::9", 2), 0, 7),
        (by(&["fc0f::1", "fc0f::2"], "fc0a::9", 3), 0, 7),
        (by(&["fc0f::1", "fc0f::2", "fc0f::1"], "fc0a::9", 4), 0, 7),
        (by(&["fc0f::b6"], "fc0a::9", 2), 40 + 24, 7),
        (by(&["fc0f::b7"], "fc0a::9", 2), 0, 7),
    ] {
        let to = packet.clone();
        a.send(&frame(star, &packet)).expect("send");
        let out = c.receive(SECOND).expect("receive");
        let out = out.unwrap_or_else(|| panic!("{mode}: not forwarded: {to:x?}"));
        assert_eq!(out[ETHERNET + headers + field], 1, "{mode}: {to:x?}");
    }
}

#[test]
fn a_headend_without_an_ipv4_address_answers_from_the_dummy_address() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = star("livehopsdummy");
        star.ip().all([
            "address del 10.0.1.1/24 dev eth0",
            "address del 10.0.2.1/24 dev eth1",
            "address del 10.0.3.1/24 dev eth2",
            "route add 10.0.1.0/24 via inet6 fc00:a::2 dev eth0",
            // It went with the last address of its interface.
            "route add 203.0.113.0/24 encap seg6 mode encap segs fc0a::1 dev eth2",
        ]);
        let _daemon = star.run(&["--mode", mode, "eth0", "eth2"]);
        let a = star.socket("a");
        let probe = udp_from_a("203.0.113.1", 1);
        a.send(&frame(&star, &probe)).expect("send");
        let (source, answer) = message(&a).unwrap_or_else(|| panic!("{mode}: no message"));
        assert_eq!(parts(&answer), (11, 0, 0, &probe[..]), "{mode}");
        // RFC 7600.
        assert_eq!(source, IpAddr::from([192, 0, 0, 8]), "{mode}");
    }
}
