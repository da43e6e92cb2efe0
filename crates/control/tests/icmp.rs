//! ICMP messages from what may be hostile: reports that end anywhere and hold anything, errors that quote anything.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use sidestep_control::compile::PolicyInfo;
use sidestep_control::icmp::Kind;
use sidestep_control::icmp::answer::answer;
use sidestep_control::icmp::frame;
use sidestep_control::icmp::relay::{Relayed, relay as relay_to};
use sidestep_datapath::abi::REASONS;
use sidestep_datapath::{Report, ViewId};
use sidestep_model::behavior::{EncapMode, Seg6Encap};
use sidestep_testkit::random::Random;
use sidestep_wire::{EthernetView, Ipv4View, Ipv6View, Protocol, checksum};

/// Relays an error of a node whose addresses are not the inner source.
fn relay<'a>(heard: &[u8], policies: impl Iterator<Item = &'a PolicyInfo>) -> Option<Relayed> {
    relay_to(heard, policies, |_| false)
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// IPv6 of these bytes behind its header.
fn ipv6(from: &str, to: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let head = [0x60, 0, 0, 0, length[0], length[1], next, 64];
    let ends = [address(from).octets(), address(to).octets()].concat();
    [&head[..], &ends, payload].concat()
}

/// UDP over IPv4 with DF.
fn ipv4() -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 40, 0, 0, 0x40, 0, 9, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1,
    ];
    packet.extend([7; 20]);
    packet
}

/// An SRH of these segments in the order of travel.
fn srh(next: u8, segments: &[&str]) -> Vec<u8> {
    let count = segments.len() as u8;
    let mut header = vec![next, 2 * count, 4, 1, count - 1, 0, 0, 0];
    let octets = segments.iter().rev().map(|text| address(text).octets());
    header.extend(octets.flatten());
    header
}

const TUNNEL_SOURCE: &str = "fc00:5::1";
const SEGMENTS: [&str; 2] = ["fc0a::1", "fc0a::2"];

fn policy(mode: EncapMode) -> PolicyInfo {
    PolicyInfo {
        encap: Seg6Encap {
            mode,
            segments: SEGMENTS.map(address).into(),
            hmac: None,
            tunsrc: None,
            lookup: None,
        },
        source: address(TUNNEL_SOURCE),
    }
}

/// Packet Too Big of 1400 bytes, or Time Exceeded, about packets that the policy sends.
fn error_about(kind: u8, next: u8, inside: &[u8]) -> Vec<u8> {
    let payload = [&srh(next, &SEGMENTS)[..], inside].concat();
    let packet = ipv6(TUNNEL_SOURCE, SEGMENTS[0], 43, &payload);
    [&[kind, 0, 0, 0][..], &1400u32.to_be_bytes(), &packet].concat()
}

fn reports(packet: &[u8], value: u32, proto: u8) -> impl Iterator<Item = Report> + '_ {
    REASONS.iter().map(move |reason| Report {
        time: 0,
        ifindex: 1,
        reason,
        value,
        proto,
        view: ViewId(0),
        destination: address("fc0f::1"),
        is_frame: false,
        length: packet.len() as u32,
        packet: packet.to_vec(),
    })
}

#[test]
fn a_message_quotes_only_the_reported_packet() {
    let mut random = Random::new(4443);
    let list = srh(6, &["fc0f::1", "fc0a::1"]);
    let seeds = [
        ipv6("fc00::1", "fc0f::1", 43, &[&list[..], &[1; 1400]].concat()),
        ipv6(
            "fc00::1",
            "fc0f::1",
            58,
            &[128, 0, 0x11, 0x22, 0, 1, 0, 2, 3],
        ),
        ipv6("fc00::1", "fc0f::1", 44, &[17, 0, 0, 1, 0, 0, 0, 1, 9, 9]),
        ipv4(),
    ];
    let (mut answered, mut silent) = (0, 0);
    for seed in &seeds {
        for round in 0..400 {
            let mut packet = seed.clone();
            if round > 0 {
                for _ in 0..=random.below(4) {
                    let at = random.below(packet.len().min(64));
                    packet[at] = random.byte();
                }
                packet.truncate(random.below(packet.len() + 1));
            }
            let value = random.below(3) as u32 * 40;
            let proto = [6, 17, 44, 58][random.below(4)];
            for report in reports(&packet, value, proto) {
                let Some(message) = answer(&report) else {
                    silent += 1;
                    continue;
                };
                answered += 1;
                assert!(message.bytes.len() <= 1240 || message.kind == Kind::EchoReply);
                let quote = &message.bytes[8..];
                let from = if message.kind == Kind::EchoReply {
                    value as usize + 8
                } else {
                    0
                };
                assert_eq!(quote, &packet[from..from + quote.len()], "{report:?}");
            }
        }
    }
    assert!(answered > 1000 && silent > 1000, "{answered}, {silent}");
}

/// The report of a frame with these tags and this type that exceeds an ether device by some octets.
fn too_long(tags: &[u8], ethertype: [u8; 2], packet: &[u8]) -> Report {
    let ends = [2, 0, 0, 0, 0xbb, 2, 2, 0, 0, 0, 0xaa, 1];
    let bytes = [&ends[..], tags, &ethertype, packet].concat();
    Report {
        time: 0,
        ifindex: 1,
        reason: REASONS
            .iter()
            .find(|reason| reason.name == "too_big")
            .expect("a reason"),
        value: 1400 + tags.len() as u32,
        proto: 143,
        view: ViewId(0),
        destination: Ipv6Addr::UNSPECIFIED,
        is_frame: true,
        length: bytes.len() as u32,
        packet: bytes,
    }
}

const IPV6_TYPE: [u8; 2] = [0x86, 0xdd];
const IPV4_TYPE: [u8; 2] = [8, 0];

#[test]
fn the_source_in_a_frame_that_is_too_long_hears_from_its_destination() {
    let tags = [0x88, 0xa8, 0, 100, 0x81, 0, 0, 200];
    let packet = ipv6("2001:db8::1", "2001:db8::2", 17, &[5; 1400]);
    for tags in [&tags[..], &tags[4..], &[]] {
        let (kind, sent) = frame::answer(&too_long(tags, IPV6_TYPE, &packet)).expect("a message");
        assert_eq!(kind, Kind::TooBig { mtu: 1400 });
        assert_eq!(
            sent[..12],
            [2, 0, 0, 0, 0xaa, 1, 2, 0, 0, 0, 0xbb, 2],
            "the addresses change places"
        );
        assert_eq!(&sent[12..12 + tags.len()], tags);
        let sent = &sent[14 + tags.len()..];
        assert_eq!(sent.len(), 1280, "RFC 4443 2.4(c)");
        let (header, message) = Ipv6View::parse(sent).expect("IPv6");
        assert_eq!(header.source(), address("2001:db8::2"));
        assert_eq!(header.destination(), address("2001:db8::1"));
        let sum = checksum::upper_layer(header.ends(), Protocol::ICMPV6, message);
        assert_eq!(sum, 0);
        let head = [&[2, 0][..], &message[2..4], &1400u32.to_be_bytes()].concat();
        assert_eq!(message[..8], head);
        assert_eq!(message[8..], packet[..1232]);
    }
    let (_, sent) = frame::answer(&too_long(&[], IPV4_TYPE, &ipv4())).expect("a message");
    let (header, message) = Ipv4View::parse(&sent[14..]).expect("IPv4");
    assert_eq!(header.source().octets(), [198, 51, 100, 1]);
    assert_eq!(header.destination().octets(), [192, 0, 2, 1]);
    assert!(header.has_right_checksum());
    assert_eq!(checksum::checksum(message), 0);
    assert_eq!(message[..2], [3, 4]);
    assert_eq!(message[4..8], [0, 0, 5, 120]);
    assert_eq!(message[8..], ipv4());
}

#[test]
fn frames_without_a_source_to_tell_get_no_message() {
    let packet = ipv6("2001:db8::1", "2001:db8::2", 17, &[5; 1400]);
    let silent = |what, report: &Report| assert_eq!(frame::answer(report), None, "{what}");
    let arp = too_long(&[], [8, 6], &packet);
    silent("ARP", &arp);
    let mut without_df = ipv4();
    without_df[6] = 0;
    silent(
        "IPv4 that may be fragmented",
        &too_long(&[], IPV4_TYPE, &without_df),
    );
    let error = ipv6("2001:db8::1", "2001:db8::2", 58, &[1; 1400]);
    silent("an ICMPv6 error", &too_long(&[], IPV6_TYPE, &error));
    let group = ipv6("2001:db8::1", "ff02::1", 17, &[5; 1400]);
    silent("a multicast packet", &too_long(&[], IPV6_TYPE, &group));
    for octet in [0, 6] {
        let mut report = too_long(&[], IPV6_TYPE, &packet);
        report.packet[octet] |= 1;
        silent("a frame with a group address", &report);
    }
    let mut report = too_long(&[], IPV6_TYPE, &packet);
    report.is_frame = false;
    silent("a packet", &report);
    report.is_frame = true;
    assert_eq!(answer(&report), None, "a frame is no packet");
    let mut random = Random::new(1191);
    let seed = too_long(&[0x81, 0, 0, 5], IPV6_TYPE, &packet[..200]);
    for _ in 0..20_000 {
        let mut report = seed.clone();
        let at = random.below(report.packet.len());
        report.packet[at] = random.byte();
        report.packet.truncate(random.below(seed.packet.len() + 1));
        if let Some((_, sent)) = frame::answer(&report) {
            let (ethernet, _) = EthernetView::parse(&sent).expect("a frame");
            assert_eq!(ethernet.destination()[..], report.packet[6..12]);
        }
    }
}

#[test]
fn only_errors_about_own_policies_are_relayed() {
    let inside = ipv6("2001:db8:1::1", "2001:db8:2::1", 17, &[5; 40]);
    let heard = error_about(2, 41, &inside);
    let ours = policy(EncapMode::Encap);
    let relayed = relay(&heard, [&ours].into_iter()).expect("a relayed error");
    assert_eq!(relayed.message.to, address("2001:db8:1::1"));
    assert_eq!(relayed.destination, address("2001:db8:2::1"));
    // Less 40 + 8 + 32.
    assert_eq!(relayed.message.kind, Kind::TooBig { mtu: 1320 });
    assert_eq!(relayed.message.bytes[..8], [2, 0, 0, 0, 0, 0, 5, 40]);
    assert_eq!(relayed.message.bytes[8..], inside);
    // RFC 2473 8.2 and 8.3.
    for kind in [1, 3] {
        for (inner, packet, message) in [(41, &inside, [1, 3]), (4, &ipv4(), [3, 1])] {
            let heard = error_about(kind, inner, packet);
            let relayed = relay(&heard, [&ours].into_iter()).expect("a relayed error");
            assert_eq!(relayed.message.kind, Kind::AddressUnreachable);
            assert_eq!(relayed.message.bytes[..2], message);
        }
    }

    // A socket of the node: Linux subtracts 80 bytes from what it learns.
    let own = |it: std::net::IpAddr| it == address("2001:db8:1::1");
    let relayed = relay_to(&heard, [&ours].into_iter(), own).expect("a relayed error");
    assert_eq!(relayed.message.kind, Kind::TooBig { mtu: 1400 });

    let another_source = PolicyInfo {
        source: address("fc00:5::2"),
        ..ours.clone()
    };
    let mut another_list = ours.clone();
    another_list.encap.segments[0] = address("fc0b::1");
    for policy in [
        &another_source,
        &another_list,
        &policy(EncapMode::Inline),
        &policy(EncapMode::L2Encap),
    ] {
        assert_eq!(relay(&heard, [policy].into_iter()), None, "{policy:?}");
    }
    assert_eq!(relay(&heard, [].into_iter()), None);
    // RFC 4443 2.4(e), also for the inner packet.
    let error = ipv6(
        "2001:db8:1::1",
        "2001:db8:2::1",
        58,
        &[1, 0, 0, 0, 0, 0, 0, 0],
    );
    assert_eq!(
        relay(&error_about(2, 41, &error), [&ours].into_iter()),
        None
    );
    // Parameter Problem: the headend's own business.
    assert_eq!(
        relay(&error_about(4, 41, &inside), [&ours].into_iter()),
        None
    );
}

#[test]
fn the_reported_mtu_is_at_least_the_ipv6_minimum() {
    let inside = ipv6("2001:db8:1::1", "2001:db8:2::1", 17, &[5; 40]);
    let ours = policy(EncapMode::Encap);
    let mut heard = error_about(2, 41, &inside);
    heard[4..8].copy_from_slice(&1300u32.to_be_bytes());
    let relayed = relay(&heard, [&ours].into_iter()).expect("a relayed error");
    assert_eq!(relayed.message.bytes[4..8], 1280u32.to_be_bytes());
    // Less than the encapsulation itself: a lie.
    heard[4..8].copy_from_slice(&79u32.to_be_bytes());
    assert_eq!(relay(&heard, [&ours].into_iter()), None);
}

#[test]
fn arbitrary_errors_are_handled_and_only_they_are_quoted() {
    let mut random = Random::new(8754);
    let inside = ipv6("2001:db8:1::1", "2001:db8:2::1", 17, &[5; 40]);
    let policies = [policy(EncapMode::Encap), policy(EncapMode::EncapRed)];
    let mut kinds = BTreeSet::new();
    for seed in [
        error_about(2, 41, &inside),
        error_about(3, 41, &inside),
        error_about(2, 4, &ipv4()),
    ] {
        for end in 0..=seed.len() {
            let _ = relay(&seed[..end], policies.iter());
        }
        for _ in 0..4000 {
            let mut heard = seed.clone();
            for _ in 0..=random.below(2) {
                let at = random.below(heard.len());
                heard[at] = random.byte();
            }
            heard.truncate(random.below(heard.len() * 2));
            if let Some(relayed) = relay(&heard, policies.iter()) {
                let quote = &relayed.message.bytes[8..];
                assert!(heard.windows(quote.len()).any(|window| window == quote));
                kinds.insert(relayed.message.kind.name());
            }
        }
    }
    assert_eq!(
        kinds,
        BTreeSet::from(["address_unreachable", "packet_too_big"])
    );
}
