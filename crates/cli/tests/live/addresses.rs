//! Addresses that are never forwarded (RFC 4291 2.5, 2.7): at headends and SIDs of Linux, where Linux does not check
//! them, and in packets for the router itself.

use std::time::Duration;

use sidestep_testkit::{FrameSocket, Napi};

use crate::icmp::{address, ends, frame, outer};
use crate::support::frames::{
    IPV4, IPV6, ROUTING, destination6, echo_request, icmpv6_type, ipv6, srh, udp,
};
use crate::support::{Star, begin, modes, reasons};

const SECOND: Duration = Duration::from_secs(1);
const SHORTLY: Duration = Duration::from_millis(100);
const END: &str = "fc0f::1";
const END_X: &str = "fc0f::a";

/// All packets without another route are encapsulated toward host `c`. SIDs lead to `b`.
fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    let mac = sidestep_testkit::lab::mac_text(star.mac("a", "eth0"));
    star.ip().all([
        "route add fc0a::/16 via fc00:c::2 dev eth2",
        "route add fc0b::/16 via fc00:a::2 dev eth0",
        "route add ::/0 encap seg6 mode encap segs fc0a::1 dev eth2",
        "route add 2001:db8:e::/48 encap seg6 mode inline segs fc0a::1 dev eth2",
        "route add fc0f::1/128 encap seg6local action End dev eth0",
        "route add fc0f::a/128 encap seg6local action End.X nh6 fc00:b::2 dev eth0",
        "route add fc0f::d6/128 encap seg6local action End.DT6 table 254 dev eth0",
        "route add fc0f::d7/128 encap seg6local action End.DX6 nh6 fc00:b::2 dev eth0",
        "route add fc0f::d4/128 encap seg6local action End.DX4 nh4 10.0.2.2 dev eth0",
        "address add fe80::1/64 dev eth0 nodad",
        &*format!("neighbor add fe80::2 lladdr {mac} dev eth0 nud permanent"),
    ]);
    star
}

fn from(source: &str, to: &str) -> Vec<u8> {
    let [from, to] = ends(source, to);
    udp(from, to, 9, b"x")
}

fn segments(sid: &str, next: &str) -> Vec<u8> {
    let header = srh(59, &[address(sid), address(next), address("fc0a::9")], 2);
    ipv6(address("fc00:a::2"), address(sid), ROUTING, 9, &header)
}

#[test]
fn headends_and_sids_drop_addresses_that_are_never_forwarded() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = star("liveaddress");
        let _napi = ["b", "c"].map(|host| Napi::attach(star.host(host), "eth0").expect("NAPI"));
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1", "eth2"]);
        let sockets = ["a", "b", "c"].map(|host| star.socket(host));
        let (mut addresses, mut next) = (Vec::new(), Vec::new());
        for source in ["::", "fe80::9"] {
            addresses.extend([
                from(source, "2001:db8:c::1"),
                from(source, "2001:db8:e::1"),
                ipv6(
                    address(source),
                    address("fc0f::d7"),
                    IPV6,
                    9,
                    &from("fc00:a::2", "fc00:b::2"),
                ),
            ]);
        }
        for bad in ["fe80::5", "ff0e::5", "::1"] {
            addresses.push(outer("fc0f::d7", IPV6, &from("fc00:a::2", bad)));
            addresses.push(outer("fc0f::d6", IPV6, &from("fc00:a::2", bad)));
            addresses.push(outer("fc0f::d7", IPV6, &from(bad, "fc00:b::2")));
            next.extend([segments(END, bad), segments(END_X, bad)]);
        }
        for bad in ["127.0.0.1", "224.0.0.5", "0.1.2.3"] {
            addresses.push(outer("fc0f::d4", IPV4, &from("10.0.1.2", bad)));
        }
        next.push(segments(END_X, "ff02::5"));
        for packet in addresses.iter().chain(&next) {
            sockets[0].send(&frame(&star, packet)).expect("send");
        }
        for (host, socket) in ["a", "b", "c"].iter().zip(&sockets) {
            let out = socket.receive(SHORTLY).expect("receive");
            assert_eq!(out, None, "{mode}: to {host}");
        }
        let found = reasons(star.router());
        let of = |name| found.iter().find(|it| it.1 == name).map(|it| it.2 as usize);
        assert_eq!(of("bad_address"), Some(addresses.len()), "{mode}");
        assert_eq!(of("segment_address"), Some(next.len()), "{mode}");
        reaches_the_router(&star, &sockets[0], mode);
    }
}

/// Link-local packets for the router reach it, and Sidestep sends no Redirect.
fn reaches_the_router(star: &Star, a: &FrameSocket, mode: &str) {
    for (source, to) in [
        ("fe80::2", "fe80::1"),
        ("fe80::2", "fc00:a::1"),
        ("fe80::2", "fc00:b::1"),
        ("fc00:a::2", "fe80::1"),
    ] {
        let request = echo_request(address(source), address(to), 7);
        a.send(&frame(star, &request)).expect("send");
        let reply = a.receive(SECOND).expect("receive");
        let reply = reply.unwrap_or_else(|| panic!("{mode}: {source} to {to}: no reply"));
        assert_eq!(icmpv6_type(&reply), Some(129), "{mode}: {source} to {to}");
    }
    // From the link back to it.
    for packet in [segments(END, "fc0b::1"), from("fc00:a::2", "fc0b::1")] {
        a.send(&frame(star, &packet)).expect("send");
        let out = a.receive(SECOND).expect("receive").expect("forwarded");
        assert_eq!(destination6(&out), Some(address("fc0b::1")), "{mode}");
        let another = a.receive(SHORTLY).expect("receive");
        assert_eq!(another, None, "{mode}: a Redirect");
    }
}
