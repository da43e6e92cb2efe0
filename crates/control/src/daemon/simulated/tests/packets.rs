//! Packets that the packet path reports: ICMP messages, fragments, copies and counters.

use std::net::{IpAddr, Ipv6Addr};

use sidestep_datapath::VerdictKind;
use sidestep_testkit::differential::headers::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ipv4, Ipv6, Srh, ipv4, ipv6, srh,
};

use super::SECOND;
use crate::api::Request;
use crate::daemon::simulated::{STAR, Simulation};
use crate::icmp::Message;
use crate::report;

const HOST: &str = "fc00:a::2";
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const NONE: u8 = 59;

/// A node with headends and SIDs.
fn start() -> Simulation {
    let mut node = Simulation::with(STAR, &["eth0", "eth1", "eth2"], "");
    for words in [
        "route add fc0a::/16 via fc00:c::2 dev eth2",
        "route add 203.0.113.0/24 encap seg6 mode encap segs fc0a::1 dev eth2",
        "route add 2001:db8:c::/48 encap seg6 mode encap segs fc0a::1,fc0a::2 dev eth2",
        "route add 2001:db8:e::/48 encap seg6 mode inline segs fc0a::1 dev eth2",
        "route add fc0f::1/128 encap seg6local action End dev eth0",
        "route add fc0f::2/128 encap seg6local action End dev eth0",
        "route add 192.0.2.0/24 via 10.0.2.2 dev eth1",
    ] {
        node.ip(words);
    }
    node
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn six(to: &str, hop_limit: u8, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let fields = Ipv6 {
        traffic_class: 0,
        flow_label: 0,
        hop_limit,
        source: address(HOST),
        destination: address(to),
    };
    ipv6(&fields, next_header, payload)
}

fn four(to: &str, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let fields = Ipv4 {
        tos: 0,
        id: 7,
        fragment: 0,
        ttl,
        source: "10.0.1.2".parse().expect("an address"),
        destination: to.parse().expect("an address"),
    };
    ipv4(&fields, UDP, payload)
}

/// A packet by SIDs, in the order of travel, with this byte of SRH flags.
fn by(sids: &[&str], last: &str, hop_limit: u8, flags: u8) -> Vec<u8> {
    let path: Vec<Ipv6Addr> = sids.iter().chain([&last]).map(|it| address(it)).collect();
    let fields = Srh {
        list: path.iter().rev().copied().collect(),
        segments_left: sids.len() as u8,
        flags,
        tag: 0,
        tlvs: Vec::new(),
    };
    six(sids[0], hop_limit, ROUTING, &srh(&fields, NONE, &[]))
}

fn messages(node: &Simulation) -> Vec<Message> {
    std::mem::take(&mut node.world.messages.borrow_mut())
}

#[test]
fn a_packet_that_expires_at_a_headend_or_a_sid_is_answered_with_all_of_itself() {
    let mut node = start();
    let mut sent = 0;
    for hop_limit in [1, 0] {
        for packet in [
            four("203.0.113.1", hop_limit, &[0; 16]),
            six("2001:db8:c::1", hop_limit, UDP, &[0; 16]),
            six("2001:db8:e::1", hop_limit, UDP, &[0; 16]),
            by(&["fc0f::1"], "fc0a::9", hop_limit, 0),
        ] {
            let is_four = packet[0] >> 4 == 4;
            let ethertype = if is_four {
                ETHERTYPE_IPV4
            } else {
                ETHERTYPE_IPV6
            };
            let (verdict, _) = node.send("eth0", ethertype, &packet);
            assert_eq!(verdict.kind(), VerdictKind::Drop);
            let [message] = &messages(&node)[..] else {
                panic!("one message")
            };
            let host = if is_four { "10.0.1.2" } else { HOST };
            assert_eq!(message.to, host.parse::<IpAddr>().expect("an address"));
            assert_eq!(message.bytes[..2], [if is_four { 11 } else { 3 }, 0]);
            assert_eq!(message.bytes[8..], packet, "the packet as it arrived");
            sent += 1;
        }
    }
    // Two SIDs of one node: the packet expires at the second one.
    let packet = by(&["fc0f::1", "fc0f::2"], "fc0a::9", 2, 0);
    node.send("eth0", ETHERTYPE_IPV6, &packet);
    assert_eq!(messages(&node)[0].bytes[8..], packet);
    let icmp: report::Icmp = node.report(Request::ShowIcmp);
    assert_eq!(icmp.sent.get("time_exceeded"), Some(&(sent + 1)));
    let drops: report::Drops = node.report(Request::ShowDrops);
    let reason = drops.iter().find(|reason| reason.name == "hop_limit");
    assert_eq!(reason.expect("the reason").packets, sent + 1);
}

#[test]
fn reports_that_waited_for_longer_than_two_seconds_are_not_answered() {
    let mut node = start();
    let packet = six("2001:db8:c::1", 1, UDP, &[0; 16]);
    node.send("eth0", ETHERTYPE_IPV6, &packet);
    assert_eq!(messages(&node).len(), 1);
    for (waits, expected) in [(SECOND, 1), (SECOND * 3, 0)] {
        let native = node.unread("eth0", ETHERTYPE_IPV6, &packet);
        node.instance.tables.kernel.note(&native);
        node.jump(waits);
        node.turn();
        assert_eq!(messages(&node).len(), expected, "{waits:?}");
    }
}

#[test]
fn without_sockets_nobody_is_told_until_they_can_be_opened() {
    let mut node = start();
    node.instance.senders.icmp = crate::daemon::icmp::Icmp::new(
        crate::daemon::config::icmp_rate(&node.instance.configured.own),
        node.world.now(),
    );
    node.world.no_sockets.set(true);
    let packet = six("2001:db8:c::1", 1, UDP, &[0; 16]);
    node.send("eth0", ETHERTYPE_IPV6, &packet);
    assert_eq!(messages(&node), []);
    assert!(
        node.problems().contains("icmp_not_sent"),
        "{:?}",
        node.problems()
    );
    node.world.no_sockets.set(false);
    node.run(SECOND * 2);
    node.send("eth0", ETHERTYPE_IPV6, &packet);
    assert_eq!(messages(&node).len(), 1);
    assert!(!node.problems().contains("icmp_not_sent"));
}

/// An ICMPv6 error of the core about an encapsulated packet.
fn error_about(encapsulated: &[u8], kind: u8, value: u32) -> Vec<u8> {
    let head = [kind, 0, 0, 0];
    [&head[..], &value.to_be_bytes(), encapsulated].concat()
}

#[test]
fn an_error_of_the_core_is_relayed_to_the_inner_source_at_a_limited_rate() {
    let file = "ports: [eth0, eth1, eth2]\nicmp_rate: 10\nicmp_burst: 2\n";
    let mut node = Simulation::with(STAR, &[], file);
    node.ip("route add fc0a::/16 via fc00:c::2 dev eth2");
    node.ip("route add 2001:db8:c::/48 encap seg6 mode encap segs fc0a::1,fc0a::2 dev eth2");
    let packet = six("2001:db8:c::1", 64, UDP, &[0; 1300]);
    let (verdict, frame) = node.send("eth0", ETHERTYPE_IPV6, &packet);
    assert_eq!(verdict.kind(), VerdictKind::Forward);
    let error = error_about(&frame[14..], 2, 1400);
    for _ in 0..5 {
        node.world.heard.borrow_mut().push_back(error.clone());
    }
    node.turn();
    let relayed = messages(&node);
    assert_eq!(relayed.len(), 2, "the burst");
    assert_eq!(relayed[0].to, HOST.parse::<IpAddr>().expect("an address"));
    assert_eq!(relayed[0].bytes[0], 2);
    let mtu = u32::from_be_bytes(relayed[0].bytes[4..8].try_into().expect("four bytes"));
    // The outer IPv6 header, and an SRH of two segments.
    assert_eq!(mtu, 1400 - 40 - 40);
    let icmp: report::Icmp = node.report(Request::ShowIcmp);
    assert_eq!((icmp.relayed["packet_too_big"], icmp.not_relayed), (2, 3));
    // A tenth of a second later, the bucket has one token again.
    node.run(SECOND / 10);
    node.world.heard.borrow_mut().extend([error.clone(), error]);
    node.turn();
    assert_eq!(messages(&node).len(), 1);
    // An error that quotes a packet of another headend.
    let other = six("2001:db8:c::1", 64, UDP, &[0; 16]);
    node.run(SECOND);
    node.world
        .heard
        .borrow_mut()
        .push_back(error_about(&other, 2, 1300));
    node.turn();
    assert_eq!(messages(&node), []);
}

#[test]
fn an_ipv4_packet_without_df_leaves_in_fragments_or_is_counted_as_failed() {
    let mut node = start();
    let eth2 = node.dev("eth2");
    let packet = four("203.0.113.1", 64, &[7; 1452]);
    let (verdict, _) = node.send("eth0", ETHERTYPE_IPV4, &packet);
    assert_ne!(verdict.kind(), VerdictKind::Forward);
    let frames = std::mem::take(&mut *node.world.frames.borrow_mut());
    assert!(frames.len() > 1, "{}", frames.len());
    assert!(
        frames
            .iter()
            .all(|(egress, frame)| *egress == eth2 && frame.len() <= 1514)
    );
    let shown: report::Fragments = node.report(Request::ShowFragments);
    assert_eq!((shown.packets, shown.fragments), (1, frames.len() as u64));
    assert_eq!((shown.failed, shown.expired), (0, 0));
    // The device refuses.
    node.world.no_frames.set(true);
    node.send("eth0", ETHERTYPE_IPV4, &packet);
    // The daemon was away for longer than a second.
    let native = node.unread("eth0", ETHERTYPE_IPV4, &packet);
    node.instance.tables.kernel.note(&native);
    node.jump(SECOND * 2);
    node.turn();
    let shown: report::Fragments = node.report(Request::ShowFragments);
    assert_eq!((shown.packets, shown.failed, shown.expired), (1, 1, 1));
    assert!(node.world.frames.borrow().is_empty());
}

#[test]
fn whoever_listens_gets_copies_of_packets_with_the_o_flag() {
    const O_FLAG: u8 = 0x20;
    let mut node = start();
    let packet = by(&["fc0f::1"], "fc0a::9", 64, O_FLAG);
    node.send("eth0", ETHERTYPE_IPV6, &packet);
    let oam: report::Oam = node.report(Request::ShowOam);
    assert_eq!((oam.rate, oam.copied.len()), (0, 0), "off by default");
    node.all(["oam rate 10"]);
    let listener = node.serve(Request::ListenOam);
    node.turn();
    assert_eq!(Simulation::lines(&listener).len(), 1, "the report");
    node.send("eth0", ETHERTYPE_IPV6, &packet);
    let [line] = &Simulation::lines(&listener)[..] else {
        panic!("one copy")
    };
    let copy: report::OamCopy = serde_json::from_value(line["ok"].clone()).expect("a copy");
    assert_eq!(
        (&copy.port[..], &copy.sid[..], copy.segments_left),
        ("eth0", "fc0f::1", 1)
    );
    assert_eq!(copy.bytes as usize, packet.len());
    drop(listener);
    node.send("eth0", ETHERTYPE_IPV6, &packet);
    assert_eq!(node.instance.senders.oam.poll_events().count(), 0);
    let oam: report::Oam = node.report(Request::ShowOam);
    assert_eq!(oam.copied["eth0"], 2);
}

#[test]
fn received_is_forwarded_plus_punted_plus_dropped_and_routes_have_their_packets() {
    let mut node = start();
    let packets = [
        six("2001:db8:c::1", 64, UDP, &[0; 16]),
        six("2001:db8:c::2", 64, UDP, &[0; 32]),
        six("2001:db8:c::1", 1, UDP, &[0; 16]),
        six("fc00:a::1", 64, UDP, &[0; 16]),
        six("fdff::1", 64, UDP, &[0; 16]),
        by(&["fc0f::1"], "fc0a::9", 64, 0),
    ];
    for packet in &packets {
        node.send("eth0", ETHERTYPE_IPV6, packet);
    }
    let counters: report::Counters = node.report(Request::ShowCounters);
    let of = |name: &str| {
        let found = counters.ports.iter().find(|port| port.name == name);
        found.expect("a port").clone()
    };
    let eth0 = of("eth0");
    assert_eq!((eth0.forwarded, eth0.punted, eth0.dropped), (3, 2, 1));
    assert_eq!(eth0.received_packets, 6);
    let bytes: usize = packets.iter().map(|packet| 14 + packet.len()).sum();
    assert_eq!(eth0.received_bytes as usize, bytes);
    assert_eq!(of("eth2").sent_packets, 3);
    let packets_of = |prefix: &str| {
        let found = counters.routes.iter().find(|route| route.prefix == prefix);
        found.expect("a route").packets
    };
    assert_eq!(
        (packets_of("2001:db8:c::/48"), packets_of("fc0f::1/128")),
        (2, 1)
    );
    let metrics: report::Metrics = node.report(Request::ShowMetrics);
    let sid = metrics.sids.iter().find(|sid| sid.sid == "fc0f::1/128");
    assert_eq!(sid.expect("the SID").packets, 1);
}

#[test]
fn counters_of_a_route_that_is_replaced_begin_again_and_those_of_others_stay() {
    let mut node = start();
    node.all(["route add fd00:1::/32 encap seg6 mode encap segs fc0a::1 dev eth2"]);
    let packet = six("fd00:1::1", 64, UDP, &[0; 16]);
    let other = six("2001:db8:c::1", 64, UDP, &[0; 16]);
    let counted = |node: &mut Simulation, prefix: &str| {
        let routes: report::Routes = node.report(Request::ShowRoutes { all: false });
        let found = routes.into_iter().find(|route| route.prefix == prefix);
        found.expect("a route").packets
    };
    for _ in 0..3 {
        node.send("eth0", ETHERTYPE_IPV6, &packet);
        node.send("eth0", ETHERTYPE_IPV6, &other);
    }
    assert_eq!(counted(&mut node, "fd00:1::/32"), 3);
    node.all(["route del fd00:1::/32"]);
    node.run(SECOND);
    node.all(["route add fd00:1::/32 encap seg6 mode encap segs fc0a::1 dev eth2"]);
    assert_eq!(counted(&mut node, "fd00:1::/32"), 0);
    assert_eq!(counted(&mut node, "2001:db8:c::/48"), 3);
}

#[test]
fn with_the_setting_icmp_an_ipv4_packet_without_df_is_answered_and_not_fragmented() {
    let file = "ports: [eth0, eth1, eth2]\nipv4_too_big: icmp\n";
    let mut node = Simulation::with(STAR, &[], file);
    node.ip("route add fc0a::/16 via fc00:c::2 dev eth2");
    node.ip("route add 203.0.113.0/24 encap seg6 mode encap segs fc0a::1 dev eth2");
    node.all(["route add 198.51.100.0/24 encap seg6 mode encap segs fc0a::1 dev eth2"]);
    for to in ["203.0.113.1", "198.51.100.1"] {
        let packet = four(to, 64, &[7; 1452]);
        let (verdict, _) = node.send("eth0", ETHERTYPE_IPV4, &packet);
        assert_eq!(verdict.kind(), VerdictKind::Drop, "{to}");
        let [message] = &messages(&node)[..] else {
            panic!("one message for {to}")
        };
        assert_eq!(message.bytes[..2], [3, 4]);
        // The outer IPv6 header, and an SRH of one segment.
        assert_eq!(message.bytes[4..8], (1500_u32 - 40 - 24).to_be_bytes());
    }
    assert!(node.world.frames.borrow().is_empty());
}
