//! Sidestep-only routes on a live router. The kernel cannot forward any of these packets.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::Napi;
use sidestep_testkit::lab::mac_text;

use crate::support::frames::{
    ETHERNET, IPV4, IPV6, ROUTING, checksums, destination6, echo_request, ethernet, icmpv6_type,
    ipv6, source6, srh, to_mac, udp,
};
use crate::support::{ROUTER, Star, begin, counters, printed, reasons, report};

const SECOND: Duration = Duration::from_secs(1);
const SHORTLY: Duration = Duration::from_millis(200);
const SID: &str = "fc0f::46";
/// IANA "Protocol Numbers": Ethernet.
const ETHERNET_FRAME: u8 = 143;

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

/// Returns a frame from host `a` to the SID that contains `inner`, with an SRH or without.
fn around(star: &Star, next: u8, inner: &[u8], with_srh: bool) -> Vec<u8> {
    let sid = address(SID);
    let (next, payload) = if with_srh {
        let header = srh(next, &[address("fc0e::1"), sid], 0);
        (ROUTING, [&header[..], inner].concat())
    } else {
        (next, inner.to_vec())
    };
    let packet = ipv6(address("fc00:a::2"), sid, next, 60, &payload);
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
}

fn sid_counters(star: &Star) -> Option<report::Route> {
    let routes: report::Routes = report(star.router(), Request::ShowRoutes { all: false });
    routes
        .into_iter()
        .find(|route| route.prefix == format!("{SID}/128"))
}

#[test]
fn an_own_end_dt46_decapsulates_both_families_until_it_is_removed() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in crate::support::modes(&["tc", "xdp-always"]) {
        let star = Star::new("liveown");
        let router = star.router();
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let (a, b) = (star.socket("a"), star.socket("b"));
        let ends = |a: &str, b: &str| -> [IpAddr; 2] {
            [a, b].map(|text| text.parse().expect("an address"))
        };
        let [a6, b6] = ends("fc00:a::2", "fc00:b::2");
        let [a4, b4] = ends("10.0.1.2", "10.0.2.2");
        let inner6 = udp(a6, b6, 33, b"six");
        let inner4 = udp(a4, b4, 33, b"four");
        let frames: Vec<Vec<u8>> = [true, false]
            .into_iter()
            .flat_map(|with_srh| {
                [
                    around(&star, IPV6, &inner6, with_srh),
                    around(&star, IPV4, &inner4, with_srh),
                ]
            })
            .collect();

        // The SID is unknown.
        for frame in &frames {
            a.send(frame).expect("send");
        }
        assert_eq!(b.receive(SHORTLY).expect("receive"), None, "{mode}");
        assert_eq!(counters(router, "eth0").punted, 4, "{mode}");

        let line = format!("{SID}/128 encap seg6local action End.DT46 table 254 dev eth0");
        let words: Vec<&str> = ["route", "add"]
            .into_iter()
            .chain(line.split(' '))
            .collect();
        printed(router, &words);
        for frame in &frames {
            a.send(frame).expect("send");
            let out = b.receive(SECOND).expect("receive").expect("decapsulated");
            assert_eq!(to_mac(&out), star.mac("b", "eth0"), "{mode}");
            assert_eq!(out[6..12], star.mac(ROUTER, "eth1"), "{mode}");
            // The inner packet has a hop limit or TTL lower by one, and correct checksums.
            let six = destination6(&out).is_some();
            let expected = if six {
                udp(a6, b6, 32, b"six")
            } else {
                udp(a4, b4, 32, b"four")
            };
            assert_eq!(out[ETHERNET..], expected, "{mode}");
            checksums(&out).expect("right checksums");
        }
        let sid = sid_counters(&star).expect("the route");
        let bytes: usize = frames.iter().map(|frame| frame.len() - ETHERNET).sum();
        assert_eq!(
            (sid.packets, sid.bytes, sid.errors, &*sid.owner),
            (4, bytes as u64, 0, "sidestep")
        );
        assert_eq!(
            sid.route,
            format!("{SID} encap seg6local action End.DT46 table main dev eth0 metric 1024")
        );

        // The kernel's ICMP errors for the unknown SID.
        a.drain().expect("receive");
        // The router's kernel replies to a decapsulated packet for the router itself.
        for own in ["fc00:a::1", "fc00:b::1"] {
            let request = echo_request(address("fc00:a::2"), address(own), 7);
            a.send(&around(&star, IPV6, &request, true)).expect("send");
            let reply = a.receive(SECOND).expect("receive").expect("an echo reply");
            assert_eq!(icmpv6_type(&reply), Some(129), "{mode} {own}");
            assert_eq!(source6(&reply), Some(address(own)), "{mode}");
            checksums(&reply).expect("right checksums");
        }
        let decapsulated = reasons(router)
            .into_iter()
            .find(|(_, name, _)| name == "rewritten");
        assert_eq!(
            decapsulated,
            Some(("punt".into(), "rewritten".into(), 2)),
            "{mode}"
        );

        printed(router, &["route", "del", &format!("{SID}/128")]);
        assert_eq!(sid_counters(&star), None, "{mode}");
        let before = counters(router, "eth0");
        for frame in &frames {
            a.send(frame).expect("send");
        }
        assert_eq!(b.receive(SHORTLY).expect("receive"), None, "{mode}");
        let after = counters(router, "eth0");
        assert_eq!(
            (after.punted - before.punted, after.forwarded),
            (4, before.forwarded),
            "{mode}"
        );
        assert_eq!(
            after.received_packets,
            after.forwarded + after.punted + after.dropped
        );
    }
}

#[test]
fn the_kernel_resolves_the_next_hop_of_a_decapsulated_packet() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in crate::support::modes(&["tc", "xdp-always"]) {
        let star = Star::new("liveownnew");
        // A router solicits from its link-local address (ndisc_solicit, net/ipv6/ndisc.c).
        star.ip().run("address add fe80::1/64 dev eth1 nodad");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let line =
            format!("route add {SID}/128 encap seg6local action End.DT46 table 254 dev eth0");
        printed(star.router(), &line.split(' ').collect::<Vec<_>>());
        let (a, mut b) = (star.socket("a"), star.socket("b"));
        b.keep_noise(true);
        for (next, from, to) in [
            (IPV6, "fc00:a::2", "fc00:b::99"),
            (IPV4, "10.0.1.2", "10.0.2.99"),
        ] {
            let ends = [from, to].map(|text| text.parse().expect("an address"));
            a.send(&around(
                &star,
                next,
                &udp(ends[0], ends[1], 33, b"new"),
                true,
            ))
            .expect("send");
            let asked =
                crate::support::eventually(&format!("{mode}: somebody asks for {to}"), || {
                    let frame = b.receive(SECOND).expect("receive")?;
                    // RFC 4861 4.3: the target of a Neighbor Solicitation; RFC 826: of a request.
                    let target: IpAddr = match icmpv6_type(&frame) {
                        Some(135) => Ipv6Addr::from(*frame[62..].first_chunk::<16>()?).into(),
                        None if frame[12..14] == [0x08, 0x06] => {
                            std::net::Ipv4Addr::from(*frame[38..].first_chunk::<4>()?).into()
                        }
                        _ => return None,
                    };
                    Some(target)
                });
            assert_eq!(asked, ends[1], "{mode}");
        }
    }
}

#[test]
fn a_host_pings_the_router_through_an_own_end_dt46() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in crate::support::modes(&["tc", "xdp-always"]) {
        let star = Star::new("liveownping");
        let (router, host) = (star.router(), star.host("a"));
        host.sysctl("net/ipv6/conf/all/disable_ipv6", "0")
            .and_then(|()| host.sysctl("net/ipv6/conf/eth0/disable_ipv6", "0"))
            .expect("IPv6 at host a");
        let mac = mac_text(star.mac(ROUTER, "eth0"));
        crate::support::ip::Ip::new(host).all(
            [
                "address add fc00:a::2/64 dev eth0 nodad".to_owned(),
                "address add 10.0.1.2/24 dev eth0".to_owned(),
                format!("neighbor add fc00:a::1 lladdr {mac} dev eth0 nud permanent"),
                format!("neighbor add 10.0.1.1 lladdr {mac} dev eth0 nud permanent"),
                format!("route add {SID}/128 via fc00:a::1"),
                format!("route add fc00:b::1/128 encap seg6 mode encap segs {SID} dev eth0"),
                format!("route add 10.0.2.1/32 encap seg6 mode encap segs {SID} dev eth0"),
                "sr tunsrc set fc00:a::2".to_owned(),
            ]
            .iter()
            .map(String::as_str),
        );
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let line =
            format!("route add {SID}/128 encap seg6local action End.DT46 table 254 dev eth0");
        printed(router, &line.split(' ').collect::<Vec<_>>());
        for target in ["fc00:b::1", "10.0.2.1"] {
            let words = [
                "ping", "-n", "-q", "-c", "5", "-i", "0.02", "-W", "2", target,
            ];
            let text = host.exec(&words).unwrap_or_else(|error| error.to_string());
            assert!(
                text.contains("5 packets transmitted, 5 received"),
                "{mode}: {text}"
            );
        }
        let decapsulated = reasons(router)
            .into_iter()
            .find(|(_, name, _)| name == "rewritten");
        assert_eq!(
            decapsulated,
            Some(("punt".into(), "rewritten".into(), 10)),
            "{mode}"
        );
        let sid = sid_counters(&star).expect("the route");
        assert_eq!((sid.packets, sid.errors), (10, 0), "{mode}");
    }
}

/// Returns a customer's frame in this VLAN.
fn tagged(vid: u16, payload: &[u8]) -> Vec<u8> {
    let macs = [[2, 0, 0, 0, 0xaa, 2], [2, 0, 0, 0, 0xaa, 1]].concat();
    let tag = [&[0x81, 0x00][..], &vid.to_be_bytes(), &[0x86, 0xdd]].concat();
    [macs, tag, payload.to_vec()].concat()
}

#[test]
fn a_vlan_table_is_changed_while_frames_pass() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in crate::support::modes(&["tc", "xdp-always"]) {
        let star = Star::new("liveownvlan");
        let router = star.router();
        let _napi = ["b", "c"].map(|host| Napi::attach(star.host(host), "eth0").expect("NAPI"));
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1", "eth2"]);
        let (a, b, c) = (star.socket("a"), star.socket("b"), star.socket("c"));
        let run = |line: &str| printed(router, &line.split(' ').collect::<Vec<_>>());
        let refused = |line: &str| {
            let output = crate::support::output(router, &line.split(' ').collect::<Vec<_>>());
            assert!(!output.status.success(), "{line}");
            crate::support::text_of(&output)
        };
        run(&format!(
            "route add {SID}/128 encap seg6local action End.DX2V vlantable 10 dev eth0"
        ));
        let ends = ["fc00:a::2", "fc00:b::2"].map(|text| text.parse().expect("an address"));
        let inner = udp(ends[0], ends[1], 1, b"vlan");
        let frame = around(&star, ETHERNET_FRAME, &tagged(100, &inner), true);
        // A receiving kernel removes the tag from the bytes, so the MAC addresses and the part
        // after the tag are compared.
        let is_it = |received: &[u8]| {
            received[..12] == tagged(100, &[])[..12] && received.ends_with(&inner)
        };

        a.send(&frame).expect("send");
        assert_eq!(b.receive(SHORTLY).expect("receive"), None, "{mode}");
        let misses = || {
            let found = reasons(router).into_iter();
            found
                .filter(|(_, name, _)| name == "vlan_miss")
                .map(|(_, _, count)| count)
                .sum::<u64>()
        };
        assert_eq!(misses(), 1, "{mode}");

        run("vlan add table 10 vid 100 dev eth1");
        run("vlan add table 10 vid 100 inner 7 dev eth2");
        a.send(&frame).expect("send");
        let out = b.receive(SECOND).expect("receive").expect("by eth1");
        assert!(is_it(&out), "{mode}: {}", crate::support::hex(&out));
        let again = refused("vlan add table 10 vid 100 dev eth2");
        assert!(again.contains("the entry exists already"), "{again}");

        run("vlan replace table 10 vid 100 dev eth2");
        let shown: report::Vlans = report(router, Request::ShowVlans);
        assert_eq!(
            shown,
            [
                "table 10 vid 100 dev eth2",
                "table 10 vid 100 inner 7 dev eth2"
            ]
        );
        a.send(&frame).expect("send");
        let out = c.receive(SECOND).expect("receive").expect("by eth2");
        assert!(is_it(&out), "{mode}: {}", crate::support::hex(&out));

        run("vlan del table 10 vid 100");
        a.send(&frame).expect("send");
        assert_eq!(c.receive(SHORTLY).expect("receive"), None, "{mode}");
        assert_eq!(misses(), 2, "{mode}");
        let gone = refused("vlan del table 10 vid 100");
        assert!(gone.contains("there is no such entry"), "{gone}");
        let sid = sid_counters(&star).expect("the route");
        // Each packet used the SID.
        assert_eq!((sid.packets, sid.errors), (4, 0), "{mode}");
        assert!(b.receive(SHORTLY).expect("receive").is_none());
    }
}
