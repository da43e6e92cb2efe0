//! ICMP errors of a live router: from Sidestep where Linux sends none, and from Linux where it
//! does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sidestep_control::api::Request;
use sidestep_control::report;
use sidestep_testkit::FrameSocket;
use sidestep_testkit::Napi;

use crate::support::frames::{
    Checksums, ETHERNET, IPV4, IPV6, ROUTING, TCP, checksums, echo_request, ethernet, icmpv6_type,
    ipv6, source6, srh, udp,
};
use crate::support::{ROUTER, Star, begin, eventually, made, modes, printed, report};

const SECOND: Duration = Duration::from_secs(1);
pub(crate) const SHORTLY: Duration = Duration::from_millis(100);
/// End, of Linux.
pub(crate) const END: &str = "fc0f::1";
/// End.X with USD, which Linux does not have.
pub(crate) const USD: &str = "fc0f::3";
/// End.DT6, of Linux.
const END_DT6: &str = "fc0f::d6";

pub(crate) fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

pub(crate) fn ends(a: &str, b: &str) -> [IpAddr; 2] {
    [a, b].map(|text| text.parse().expect("an address"))
}

/// From host `a`.
pub(crate) fn frame(star: &Star, packet: &[u8]) -> Vec<u8> {
    ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), packet)
}

/// A packet from host `a` with an arbitrary payload.
pub(crate) fn outer(to: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    ipv6(address("fc00:a::2"), address(to), next, 60, payload)
}

pub(crate) fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    star.ip().all([
        &*format!("route add {END}/128 encap seg6local action End dev eth0"),
        &format!("route add {END_DT6}/128 encap seg6local action End.DT6 table 254 dev eth0"),
    ]);
    star
}

/// The message that comes to a host next: source, and the bytes from its type on. Its checksums are right.
pub(crate) fn message(socket: &FrameSocket) -> Option<(IpAddr, Vec<u8>)> {
    let frame = socket.receive(SECOND).expect("receive")?;
    assert_eq!(
        checksums(&frame),
        Ok(Checksums::Right),
        "{}",
        crate::support::hex(&frame)
    );
    if let Some(source) = source6(&frame) {
        return Some((source.into(), frame[ETHERNET + 40..].to_vec()));
    }
    let source = frame[ETHERNET + 12..].first_chunk::<4>();
    let source = Ipv4Addr::from(*source.expect("an IPv4 header"));
    Some((source.into(), frame[ETHERNET + 20..].to_vec()))
}

/// Type, code, the word after the checksum, and the quoted packet.
pub(crate) fn parts(message: &[u8]) -> (u8, u8, u32, &[u8]) {
    let word = message[4..].first_chunk().expect("a word");
    (
        message[0],
        message[1],
        u32::from_be_bytes(*word),
        &message[8..],
    )
}

#[test]
fn senders_are_told_of_what_linux_drops_in_silence() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = star("liveicmp");
        star.ip().run("link set eth1 mtu 1400");
        // A veth takes XDP redirects where the other end runs NAPI.
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let own = format!(
            "route add {USD}/128 encap seg6local action End.X nh6 fc00:b::2 flavors usd dev eth0"
        );
        printed(star.router(), &own.split(' ').collect::<Vec<_>>());
        let a = star.socket("a");
        let here: IpAddr = "fc00:a::1".parse().expect("an address");
        let list = [address(END), address("fc00:b::2")];
        let wrong = |left: u8, next: u8, payload: &[u8]| {
            let header = srh(next, &list, left);
            outer(END, ROUTING, &[&header[..], payload].concat())
        };
        let [from, to] = ends("fc00:a::2", "fc00:b::2");
        let long = vec![7; 1400];
        let cases = [
            ("Segments Left", wrong(9, TCP, &[0; 20]), (4, 0, 43), 0),
            ("a long packet", wrong(9, TCP, &long), (4, 0, 43), 0),
            ("upper layer", outer(END, TCP, &[0; 20]), (4, 4, 40), 0),
            // Left to the kernel, which sends no answer.
            (
                "a routing header of type 0",
                outer(
                    END,
                    ROUTING,
                    &[[TCP, 2, 0, 1].as_slice(), &[0; 40]].concat(),
                ),
                (4, 0, 42),
                0,
            ),
            (
                "inner hop limit",
                outer(USD, IPV6, &udp(from, to, 1, b"x")),
                (3, 0, 0),
                40,
            ),
            (
                "inner too big",
                outer(USD, IPV6, &udp(from, to, 9, &long)),
                (2, 0, 1400),
                40,
            ),
        ];
        for (what, packet, expected, quoted_from) in cases {
            a.send(&frame(&star, &packet)).expect("send");
            let (source, message) =
                message(&a).unwrap_or_else(|| panic!("{mode}: {what}: silence"));
            let (kind, code, word, quote) = parts(&message);
            assert_eq!((kind, code, word), expected, "{mode}: {what}");
            let quoted = &packet[quoted_from..];
            assert_eq!(quote, &quoted[..quoted.len().min(1232)], "{mode}: {what}");
            assert_eq!(source, here, "{mode}: {what}");
        }
        let [from4, to4] = ends("10.0.1.2", "10.0.2.2");
        let inner = udp(from4, to4, 1, b"four");
        a.send(&frame(&star, &outer(USD, IPV4, &inner)))
            .expect("send");
        let (source, answer) = message(&a).expect("a message");
        assert_eq!(parts(&answer), (11, 0, 0, &inner[..]), "{mode}");
        assert_eq!(
            source,
            "10.0.1.1".parse::<IpAddr>().expect("an address"),
            "{mode}"
        );

        // RFC 4443 2.4(e): an error is not answered, however wrong its SRH is.
        let error = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0; 40]].concat();
        a.send(&frame(&star, &wrong(9, 58, &error))).expect("send");
        assert_eq!(a.receive(SHORTLY).expect("receive"), None, "{mode}");

        let icmp: report::Icmp = report(star.router(), Request::ShowIcmp);
        let sent = |name: &str| icmp.sent.get(name).copied().unwrap_or(0);
        assert_eq!(
            sent("parameter_problem_header_field"),
            3,
            "{mode}: {icmp:?}"
        );
        assert_eq!(sent("parameter_problem_upper_layer"), 1, "{mode}: {icmp:?}");
        assert_eq!(
            (sent("time_exceeded"), sent("packet_too_big")),
            (2, 1),
            "{mode}: {icmp:?}"
        );
        assert_eq!(icmp.failed, 0, "{mode}");
        let shown = printed(star.router(), &["show", "icmp"]);
        assert!(shown.contains("parameter_problem_upper_layer"), "{shown}");
    }
}

#[test]
fn too_many_errors_are_not_sent_but_counted() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("liveicmprate");
    let args = [
        "--mode",
        "tc",
        "--icmp-rate",
        "1",
        "--icmp-burst",
        "3",
        "eth0",
        "eth1",
    ];
    let daemon = star.run(&args);
    let a = star.socket("a");
    let wrong = frame(&star, &outer(END, TCP, &[0; 20]));
    for _ in 0..10 {
        a.send(&wrong).expect("send");
    }
    let mut answer = 0;
    while message_within(&a, SHORTLY * 3) {
        answer += 1;
    }
    // A second may begin meanwhile.
    assert!((3..=4).contains(&answer), "{answer}");
    let icmp: report::Icmp = report(star.router(), Request::ShowIcmp);
    assert_eq!(
        icmp.suppressed.get("eth0"),
        Some(&(10 - answer)),
        "{icmp:?}"
    );
    drop(daemon);
    let _daemon = star.run(&["--mode", "tc", "--icmp-rate", "0", "eth0"]);
    a.drain().expect("receive");
    a.send(&wrong).expect("send");
    assert_eq!(a.receive(SHORTLY).expect("receive"), None, "rate 0");
}

fn message_within(socket: &FrameSocket, time: Duration) -> bool {
    socket.receive(time).expect("receive").is_some()
}

#[test]
fn a_sid_answers_pings_and_traceroutes() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = star("liveicmpping");
        let line = "route add fc0f::2/128 encap seg6local action End.X nh6 fc00:b::2 dev eth0";
        star.ip().run(line);
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let a = star.socket("a");
        for sid in [END, "fc0f::2", END_DT6] {
            let request = echo_request(address("fc00:a::2"), address(sid), 7);
            a.send(&frame(&star, &request)).expect("send");
            let (source, reply) = message(&a).unwrap_or_else(|| panic!("{mode}: {sid} is silent"));
            assert_eq!(source, IpAddr::from(address(sid)), "{mode}");
            assert_eq!(
                parts(&reply),
                (129, 0, 0x5353_0007, &[][..]),
                "{mode}: {sid}"
            );
            // After an SRH with Segments Left 0.
            let header = srh(58, &[address(END), address(sid)], 0);
            let packet = outer(sid, ROUTING, &[&header[..], &request[40..]].concat());
            a.send(&frame(&star, &packet)).expect("send");
            let (source, reply) = message(&a).unwrap_or_else(|| panic!("{mode}: {sid} is silent"));
            assert_eq!((source, reply[0]), (address(sid).into(), 129), "{mode}");
            let [from, to] = ends("fc00:a::2", sid);
            let probe = udp(from, to, 9, b"probe");
            a.send(&frame(&star, &probe)).expect("send");
            let (source, answer) = message(&a).unwrap_or_else(|| panic!("{mode}: {sid} is silent"));
            assert_eq!(source, to, "{mode}");
            assert_eq!(parts(&answer), (1, 4, 0, &probe[..]), "{mode}: {sid}");
        }
    }
}

/// Packets that Linux answers itself, by kind.
fn answered_by_linux() -> Vec<(&'static str, Vec<u8>)> {
    let [from, to] = ends("fc00:a::2", "fc00:b::2");
    let [from4, to4] = ends("10.0.1.2", "10.0.2.2");
    let nowhere = ends("fc00:a::2", "2001:db8:dead::1")[1];
    let prohibited = ends("fc00:a::2", "2001:db8:bad::1")[1];
    let list = [address(END), address("fc00:b::2")];
    let through = |hop_limit: u8, data: &[u8]| {
        let header = srh(17, &list, 1);
        let payload = [&header[..], data].concat();
        ipv6(
            address("fc00:a::2"),
            address(END),
            ROUTING,
            hop_limit,
            &payload,
        )
    };
    vec![
        ("plain IPv6, hop limit 1", udp(from, to, 1, b"six")),
        ("plain IPv4, TTL 1", udp(from4, to4, 1, b"four")),
        ("plain IPv6, too big", udp(from, to, 9, &[1; 1400])),
        ("plain IPv4, too big", udp(from4, to4, 9, &[1; 1400])),
        ("no route", udp(from, nowhere, 9, b"x")),
        ("prohibited", udp(from, prohibited, 9, b"x")),
        ("End, too big", through(9, &[0; 1400])),
        (
            "inside End.DT6, hop limit 1",
            outer(END_DT6, IPV6, &udp(from, to, 1, b"x")),
        ),
        (
            "inside End.DT6, too big",
            outer(END_DT6, IPV6, &udp(from, to, 9, &[1; 1400])),
        ),
        (
            "inside End.DT6, no route",
            outer(END_DT6, IPV6, &udp(from, nowhere, 9, b"x")),
        ),
    ]
}

#[test]
fn what_linux_says_it_says_with_sidestep_on_its_ports() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("liveicmplinux");
    star.ip().all([
        "link set eth1 mtu 1300",
        "route add prohibit 2001:db8:bad::/48",
    ]);
    // Two runs of one test are more than a host's errors of a second (net.ipv6.icmp.ratelimit).
    for path in ["net/ipv6/icmp/ratelimit", "net/ipv4/icmp_ratelimit"] {
        star.router().sysctl(path, "0").expect("a sysctl");
    }
    let a = star.socket("a");
    let ask = |place: &str| -> Vec<Option<(IpAddr, Vec<u8>)>> {
        let packets = answered_by_linux().into_iter();
        packets
            .map(|(what, packet)| {
                a.send(&frame(&star, &packet)).expect("send");
                let answer = message(&a);
                assert!(answer.is_some(), "{place}: {what}: silence");
                answer
            })
            .collect()
    };
    let alone = ask("Linux alone");
    for mode in modes(&["tc", "xdp-always"]) {
        let _daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        let beside = ask(mode);
        for (((what, _), alone), beside) in answered_by_linux().iter().zip(&alone).zip(&beside) {
            assert_eq!(alone, beside, "{mode}: {what}");
        }
        let icmp: report::Icmp = report(star.router(), Request::ShowIcmp);
        assert!(icmp.sent.is_empty(), "{mode}: {icmp:?}");
    }
}

/// Host `a` behind a headend toward `c`, with a router that cannot forward the encapsulated packet.
#[test]
fn a_headend_tells_on_what_comes_back_to_it() {
    let Some(_turn) = begin() else {
        return;
    };
    for (mode, red) in [("tc", ""), ("tc", ".red")] {
        let star = Star::new("liveicmprelay");
        let encap = format!("encap seg6 mode encap{red} segs fc0a::1,fc0a::2 dev eth2");
        star.ip().all([
            "address add fc00:5::1/128 dev lo",
            "route add fc0a::/16 via fc00:c::2 dev eth2",
            &*format!("route add 2001:db8:c::/48 {encap}"),
            &format!("route add 203.0.113.0/24 {encap}"),
        ]);
        let _daemon = star.run(&["--mode", mode, "eth0", "eth2"]);
        let (a, c) = (star.socket("a"), star.socket("c"));
        let back = |kind: [u8; 2], word: u32, quote: &[u8]| {
            let head = [&[kind[0], kind[1], 0, 0][..], &word.to_be_bytes(), quote].concat();
            let packet = icmpv6("fc0a::1", "fc00:5::1", head);
            ethernet(star.mac(ROUTER, "eth2"), star.mac("c", "eth0"), &packet)
        };
        for (from, to, kinds) in [
            ("fc00:a::2", "2001:db8:c::1", [(2, 0), (1, 3), (1, 3)]),
            ("10.0.1.2", "203.0.113.1", [(3, 4), (3, 1), (3, 1)]),
        ] {
            let [from, to] = ends(from, to);
            let packet = udp(from, to, 9, &[5; 1200]);
            a.send(&frame(&star, &packet)).expect("send");
            let out = c.receive(SECOND).expect("receive").expect("encapsulated");
            let outer = &out[ETHERNET..];
            let grown = outer.len() - packet.len();
            assert_eq!(grown, if red.is_empty() { 80 } else { 64 }, "{red}");
            let quote = &outer[..outer.len().min(1232)];
            for (index, heard) in [([2, 0], 1400), ([3, 0], 0), ([1, 0], 0)]
                .into_iter()
                .enumerate()
            {
                c.send(&back(heard.0, heard.1, quote)).expect("send");
                let (_, answer) = message(&a).unwrap_or_else(|| panic!("{red} {from}: silence"));
                let (kind, code, word, quoted) = parts(&answer);
                assert_eq!((kind, code), kinds[index], "{red} {from}");
                let mtu = if index == 0 { 1400 - grown as u32 } else { 0 };
                assert_eq!(word, mtu, "{red} {from}");
                // The inner quoted packet, with the hop limit decremented.
                let inside = &outer[grown..];
                assert_eq!(quoted, &inside[..quoted.len()], "{red} {from}");
                assert!(quoted.len() >= 28, "{red} {from}");
            }
            // Not one of ours: another list of segments.
            let mut other = quote.to_vec();
            other[40 + 8 + 15] ^= 0xff;
            other[24 + 15] ^= 0xff;
            c.send(&back([2, 0], 1400, &other)).expect("send");
            assert_eq!(a.receive(SHORTLY).expect("receive"), None, "{red} {from}");
        }
        let icmp: report::Icmp = report(star.router(), Request::ShowIcmp);
        assert_eq!(icmp.relayed.get("packet_too_big"), Some(&2), "{icmp:?}");
        assert_eq!(
            icmp.relayed.get("address_unreachable"),
            Some(&4),
            "{icmp:?}"
        );
    }
}

/// A socket of the headend itself learns the path MTU less the encapsulation, once.
#[test]
fn a_socket_of_the_headend_learns_the_path_mtu() {
    let Some(_turn) = begin() else {
        return;
    };
    for (red, grown) in [("", 80), (".red", 64)] {
        let star = Star::new("liveicmpown");
        star.ip().all([
            "address add fc00:5::1/128 dev lo",
            "route add fc0a::/16 via fc00:c::2 dev eth2",
            &*format!(
                "route add 2001:db8:c::/48 encap seg6 mode encap{red} segs fc0a::1,fc0a::2 dev eth2"
            ),
        ]);
        let _daemon = star.run(&["--mode", "tc", "eth0", "eth2"]);
        let c = star.socket("c");
        let socket = star.router().run(|| {
            let socket = std::net::UdpSocket::bind("[fc00:c::1]:0").expect("a socket");
            socket.connect("[2001:db8:c::1]:9").expect("a route");
            socket
        });
        let socket = socket.expect("the namespace");
        socket.send(&[5; 1200]).expect("sent");
        let out = c.receive(SECOND).expect("receive").expect("encapsulated");
        let outer = &out[ETHERNET..];
        assert_eq!(outer.len(), 40 + 8 + 1200 + grown, "{red}");
        let quote = &outer[..outer.len().min(1232)];
        let head = [&[2, 0, 0, 0][..], &1350u32.to_be_bytes(), quote].concat();
        let packet = icmpv6("fc0a::1", "fc00:5::1", head);
        let frame = ethernet(star.mac(ROUTER, "eth2"), star.mac("c", "eth0"), &packet);
        // Linux takes a reduced list for a complete one.
        let expected = 1350 - grown as i32;
        // IPV6_MTU of a connected socket.
        let script = "import socket as s; u = s.socket(s.AF_INET6, s.SOCK_DGRAM); \
            u.connect(('2001:db8:c::1', 9)); print(u.getsockopt(s.IPPROTO_IPV6, 24))";
        let mtu = || -> i32 {
            let text = star
                .router()
                .exec(&["python3", "-c", script])
                .expect("python3");
            text.trim().parse().expect("a number")
        };
        let before = mtu();
        let learned = eventually("the path MTU", || {
            c.send(&frame).expect("send");
            Some(mtu()).filter(|mtu| *mtu != before)
        });
        assert_eq!(learned, expected, "{red}");
    }
}

/// Age from which the daemon drops reports.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A message with its checksum, behind an IPv6 header.
fn icmpv6(from: &str, to: &str, mut message: Vec<u8>) -> Vec<u8> {
    let (from, to) = (address(from), address(to));
    let checksum = crate::support::frames::icmpv6_checksum(from, to, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    ipv6(from, to, 58, 64, &message)
}

#[test]
fn without_the_daemon_packets_go_on_and_nobody_is_told() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("liveicmpdead");
    let daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let (a, b) = (star.socket("a"), star.socket("b"));
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    let _ = daemon.end();
    let sent = std::time::Instant::now();
    // More than the ring holds.
    for _ in 0..200 {
        a.send(&frame(&star, &outer(END, TCP, &[0; 20])))
            .expect("send");
    }
    assert_eq!(a.receive(SHORTLY).expect("receive"), None);
    let [from, to] = ends("fc00:a::2", "fc00:b::2");
    a.send(&frame(&star, &udp(from, to, 9, b"on")))
        .expect("send");
    assert!(b.receive(SECOND).expect("receive").is_some());
    // The next daemon resumes reading, and responds to new packets. It drops older reports.
    std::thread::sleep(TIMEOUT.saturating_sub(sent.elapsed()));
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    a.send(&frame(&star, &outer(END, TCP, &[0; 20])))
        .expect("send");
    let answer = a.receive(SECOND).expect("receive").expect("a message");
    assert_eq!(icmpv6_type(&answer), Some(4));
    assert_eq!(
        a.receive(SHORTLY).expect("receive"),
        None,
        "what is old is not answered"
    );
}

#[test]
fn senders_in_a_vrf_are_told_by_its_routes() {
    let Some(_turn) = begin() else { return };
    let star = Star::new("liveicmpvrf");
    if !made(star.router(), "vrf100 type vrf table 100") {
        return;
    }
    star.ip().all([
        "link set vrf100 up",
        "link set eth0 master vrf100",
        // Joining it took the interface down, so its configuration except IPv4 addresses is gone.
        "address add fc00:a::1/64 dev eth0",
        "address add fc00:5::1/128 dev lo",
        &*format!("route add {END}/128 encap seg6local action End dev eth0 table 100"),
        &format!(
            "route add {END_DT6}/128 encap seg6local action End.DT6 table 100 dev eth0 table 100"
        ),
        "route add fc0a::/16 via fc00:c::2 dev eth2",
        "route add fc0a::/16 via fc00:c::2 dev eth2 table 100",
        "route add 2001:db8:c::/48 encap seg6 mode encap segs fc0a::1,fc0a::2 dev eth2 table 100",
    ]);
    let mac = sidestep_testkit::lab::mac_text(star.mac("a", "eth0"));
    star.ip().run(&format!(
        "neighbor replace fc00:a::2 lladdr {mac} dev eth0 nud permanent"
    ));
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth2"]);
    let (a, c) = (star.socket("a"), star.socket("c"));
    let wrong = outer(END, TCP, &[0; 20]);
    a.send(&frame(&star, &wrong)).expect("send");
    let (_, answer) = message(&a).expect("from the VRF");
    assert_eq!(parts(&answer), (4, 4, 40, &wrong[..]));
    // Also by a SID that decapsulates other packets than that.
    for sid in [END, END_DT6] {
        let request = echo_request(address("fc00:a::2"), address(sid), 7);
        a.send(&frame(&star, &request)).expect("send");
        assert_eq!(message(&a).map(|(_, reply)| reply[0]), Some(129), "{sid}");
    }
    // From another port into the VRF: before its table, table local is asked.
    let own = "route add fc0f::100/128 encap seg6local action End.DT6 vrftable 100 dev eth2";
    printed(star.router(), &own.split(' ').collect::<Vec<_>>());
    let [from, to] = ends("fc00:a::2", "fc0a::1");
    let inside = udp(from, to, 1, b"x");
    let around = ipv6(
        address("fc00:c::2"),
        address("fc0f::100"),
        IPV6,
        60,
        &inside,
    );
    let to_router = ethernet(star.mac(ROUTER, "eth2"), star.mac("c", "eth0"), &around);
    c.send(&to_router).expect("send");
    let (_, answer) = message(&a).expect("the sender of the packet inside is in the VRF");
    assert_eq!(parts(&answer), (3, 0, 0, &inside[..]));

    let [from, to] = ends("fc00:a::2", "2001:db8:c::1");
    a.send(&frame(&star, &udp(from, to, 9, &[5; 1200])))
        .expect("send");
    let out = c.receive(SECOND).expect("receive").expect("encapsulated");
    let quote = &out[ETHERNET..][..1232];
    let error = [&[2, 0, 0, 0][..], &1400u32.to_be_bytes(), quote].concat();
    let packet = icmpv6("fc0a::1", "fc00:5::1", error);
    let back = ethernet(star.mac(ROUTER, "eth2"), star.mac("c", "eth0"), &packet);
    c.send(&back).expect("send");
    let (_, answer) = message(&a).expect("a relayed error in the VRF");
    assert_eq!((answer[0], parts(&answer).2), (2, 1320));
    let icmp: report::Icmp = report(star.router(), Request::ShowIcmp);
    assert_eq!(icmp.failed, 0, "{icmp:?}");
}

#[test]
fn an_address_that_is_no_sid_does_not_relay() {
    let Some(_turn) = begin() else {
        return;
    };
    for mode in modes(&["tc", "xdp-always"]) {
        let star = star("liveicmplocal");
        let _napi = Napi::attach(star.host("b"), "eth0").expect("NAPI");
        let (a, b) = (star.socket("a"), star.socket("b"));
        let relayed = |to: &str, left: u8| {
            let list = [address(to), address("fc00:b::2")];
            outer(to, ROUTING, &srh(59, &list, left))
        };
        let daemon = star.run(&["--mode", mode, "eth0", "eth1"]);
        for to in ["fc00:a::1", "fc00:b::1"] {
            let packet = relayed(to, 1);
            a.send(&frame(&star, &packet)).expect("send");
            let (_, answer) = message(&a).unwrap_or_else(|| panic!("{mode}: {to} is silent"));
            assert_eq!(parts(&answer), (4, 0, 43, &packet[..]), "{mode}: {to}");
            assert_eq!(b.receive(SHORTLY).expect("receive"), None, "{mode}: {to}");
        }
        // The inner packet, behind a SID of the kernel.
        let inner = relayed("fc00:a::1", 1);
        a.send(&frame(&star, &outer(END_DT6, IPV6, &inner)))
            .expect("send");
        let (_, answer) = message(&a).unwrap_or_else(|| panic!("{mode}: silence"));
        assert_eq!(parts(&answer), (4, 0, 43, &inner[..]), "{mode}");
        assert_eq!(b.receive(SHORTLY).expect("receive"), None, "{mode}");
        drop(daemon);

        let _daemon = star.run(&["--mode", mode, "--local-srh", "linux", "eth0", "eth1"]);
        a.send(&frame(&star, &relayed("fc00:a::1", 1)))
            .expect("send");
        let frame = b.receive(SHORTLY).expect("receive");
        let frame = frame.unwrap_or_else(|| panic!("{mode}: Linux does not relay"));
        let ipv6 = &frame[14..];
        assert_eq!(ipv6[24..40], address("fc00:b::2").octets(), "{mode}");
        assert_eq!(ipv6[40 + 3], 0, "{mode}: Segments Left");
        let drops = printed(star.router(), &["show", "drops"]);
        assert!(drops.contains(" local "), "{mode}: {drops}");
    }
}
