//! Questions with addresses to a running router: `route get`, and `explain` for packets that are
//! built from addresses or read from a capture.

use serde_json::Value;
use sidestep_control::report;

use crate::support::frames::{ethernet, udp};
use crate::support::{ROUTER, Star, begin, counters, hex, modes, output, printed, text_of};

/// The routes, as arguments of `ip`.
const ROUTES: [&str; 5] = [
    "route add fc00:bb::/32 via fc00:b::2 dev eth1",
    "route add fc0c::/16 encap seg6 mode encap segs fc00:bb::e,fc00:bb::d6 dev eth1",
    "route add fc00:5::e/128 encap seg6local action End dev eth1",
    "route add fc00:99::/64 via fc00:c::99 dev eth2",
    "route add 192.0.2.0/24 via 10.0.2.2 dev eth1",
];

fn star(topic: &str) -> Star {
    let star = Star::new(topic);
    star.ip().all(ROUTES);
    star
}

/// Returns the error of a command that fails with status 1.
fn refused(star: &Star, args: &[&str]) -> String {
    let output = output(star.router(), args);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{args:?}: {}",
        text_of(&output)
    );
    assert!(output.stdout.is_empty(), "{args:?}");
    text_of(&output)
}

#[test]
fn route_get_prints_the_route_of_an_address() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("liverouteget");
    let get = |words: &str| {
        let args: Vec<_> = ["route", "get"]
            .into_iter()
            .chain(words.split(' '))
            .collect();
        printed(star.router(), &args)
    };
    let asked = |words: &str| {
        refused(
            &star,
            &[&["route", "get"][..], &words.split(' ').collect::<Vec<_>>()].concat(),
        )
    };
    assert!(asked("fc0c::1").contains("sidestep is not running"));
    let _daemon = star.run(&["--mode", "tc", "eth1", "eth0"]);

    let headend = get("fc0c::1");
    for expected in [
        "port         eth1, the first port\n",
        "tables       local, main\n",
        "owner        kernel\n",
        "behavior     H.Encaps\n",
        "segments     fc00:bb::e, fc00:bb::d6\n",
        "next hop     dev eth1\n",
        "handled by   sidestep\n",
        "verdict      forward by eth1",
    ] {
        assert!(headend.contains(expected), "{expected:?} in:\n{headend}");
    }
    let json = get("192.0.2.7 from 10.0.1.2 iif eth0 -j");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["port"], "eth0");
    assert_eq!(json["route"]["prefix"], "192.0.2.0/24");
    assert_eq!(json["route"]["next_hops"][0]["via"], "10.0.2.2");
    assert_eq!(json["verdict"], "forward");
    assert_eq!(json["egress"], "eth1");
    let sid = get("fc00:5::e");
    assert!(sid.contains("behavior     End\n"), "{sid}");
    assert!(sid.contains("verdict      depends on the packet"), "{sid}");
    // The neighbor is unknown.
    let unresolved = get("fc00:99::1 iif eth0");
    assert!(unresolved.contains("handled by   kernel\n"), "{unresolved}");
    assert!(
        unresolved.contains("verdict      punt: neighbor: "),
        "{unresolved}"
    );
    assert!(
        unresolved.contains("the kernel   resolves the next hop"),
        "{unresolved}"
    );
    let local = get("fc00:a::1 iif eth0");
    assert!(local.contains("punt: local: "), "{local}");

    let none = asked("fdff::1 iif eth0");
    let expected = "no route to fdff::1 from 100::1 at eth0 in tables local, main: route_miss: ";
    assert!(none.contains(expected), "{none}");
    assert!(asked("fe80::1").contains("fe80::1 at eth1: no lookup: link_local: "));
    assert!(asked("fc0c::1 iif eth2").contains("attached ports are eth0, eth1"));
    assert!(asked("fc0c::1 from 10.0.0.1").contains("expected an IPv6 address"));
}

#[test]
fn route_get_says_forward_where_tc_sends_the_packets_of_an_xdp_port() {
    let Some(_turn) = begin() else { return };
    if modes(&["xdp-always"]).is_empty() {
        return;
    }
    let star = star("livegetxdp");
    let router = star.router();
    // The peer of eth1 runs neither XDP nor GRO.
    let _daemon = star.run(&["--mode", "xdp-always", "eth0", "eth1"]);
    let own = "route add 2001:db8:77::/64 via fc00:b::2 dev eth1";
    printed(router, &own.split(' ').collect::<Vec<_>>());
    let (from, to) = (star.socket("a"), star.socket("b"));
    for destination in ["2001:db8:77::1", "fc00:b::2"] {
        let text = printed(router, &["route", "get", destination, "iif", "eth0", "-j"]);
        let selected: report::SelectedRoute = serde_json::from_str(&text).expect("JSON");
        assert_eq!(selected.verdict.as_deref(), Some("forward"), "{text}");
        assert_eq!(selected.reason, None, "{text}");
        // The packet path agrees.
        let [source, destination]: [std::net::IpAddr; 2] =
            ["fc00:a::2", destination].map(|text| text.parse().expect("an address"));
        let packet = udp(source, destination, 64, b"x");
        let frame = ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet);
        from.send(&frame).expect("send");
        let arrived = to.receive(std::time::Duration::from_millis(300));
        assert!(arrived.expect("receive").is_some());
    }
    let at = counters(router, "eth0");
    assert_eq!((at.forwarded, at.punted), (2, 0), "{at:?}");
}

#[test]
fn explain_builds_a_packet_from_addresses_or_reads_it_from_a_capture() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = star("liveexplain");
    let _daemon = star.run(&["--mode", "tc", "eth0", "eth1"]);
    let explain = |words: &str| {
        let args: Vec<_> = ["explain"].into_iter().chain(words.split(' ')).collect();
        printed(star.router(), &args)
    };
    let plain = explain("fc00:a::2 fc0c::1");
    for expected in [
        "eth0, frame of 62 bytes",
        "fc0c::/16 in main",
        "H.Encaps",
        "forwarded    by eth1",
    ] {
        assert!(plain.contains(expected), "{expected:?} in:\n{plain}");
    }
    let four = explain("10.0.1.2 192.0.2.7 --port eth0 --hop-limit 1");
    assert!(four.contains("hop_limit_exceeded"), "{four}");
    let json = explain("fc00:a::2 fc00:b::2 fc00:5::e fc00:bb::f -j");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["verdict"], "forward");
    let steps = json["explanation"]["steps"].as_array().expect("steps");
    let advance = steps.iter().find(|step| step["step"] == "advance");
    let advance = advance.expect("End processes the SRH");
    assert_eq!(advance["segments_left"], serde_json::json!([2, 1]));
    assert_eq!(advance["destination"][1], "fc00:bb::f");

    let refused_words = |words: &str| {
        refused(
            &star,
            &[&["explain"][..], &words.split(' ').collect::<Vec<_>>()].concat(),
        )
    };
    assert!(
        refused_words("fc00:a::2 10.0.0.1").contains("expected two IPv6 or two IPv4 addresses")
    );
    assert!(refused_words("10.0.0.1 10.0.0.2 fc00:5::e").contains("needs IPv6 addresses"));
    let unknown = refused_words("fc00:a::2 fc0c::1 --port eth7");
    assert!(
        unknown.contains("eth7: not attached; attached ports are eth0, eth1"),
        "{unknown}"
    );

    // A packet of a capture.
    let ends = ["fc00:a::2", "fc0c::1"].map(|text| text.parse().expect("an address"));
    let frame = |data: &[u8]| {
        let packet = udp(ends[0], ends[1], 64, data);
        ethernet(star.mac(ROUTER, "eth0"), star.mac("a", "eth0"), &packet)
    };
    let frames = [frame(b"one"), frame(b"second")];
    let folder = crate::common::Folder::new();
    let packets = [
        ("eth0", 1, frames[0].clone()),
        ("ppp0", 2, frames[1].clone()),
    ];
    let file = folder.write("in.pcapng", crate::common::pcapng(&packets));
    let digits = hex(&frames[0]);
    let expected = printed(
        star.router(),
        &["explain", "--port", "eth0", "--frame", &digits],
    );
    let found = printed(star.router(), &["explain", "--in", &file, "--packet", "1"]);
    assert_eq!(found, expected);
    let second = ["explain", "--in", &file, "--packet", "2"];
    let named = printed(star.router(), &[&second[..], &["--port", "eth1"]].concat());
    assert!(
        named.contains("other_host"),
        "the MAC address of eth0: {named}"
    );
    let unknown = refused(&star, &second);
    let expected = "packet 2: its interface \"ppp0\" is not an attached port; use --port NAME";
    assert!(unknown.contains(expected), "{unknown}");
}
