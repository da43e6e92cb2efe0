//! Comparison of the frames that left with the expected ones.

use std::net::IpAddr;

use ipnet::IpNet;
use sidestep_testkit::hexdiff::{diff, plain};
use sidestep_testkit::linux::Output;
use sidestep_testkit::vectors::{Answer, Case, Expect, Linux, Node};
use sidestep_wire::field::{ipv4, ipv6};
use sidestep_wire::{Ethernet, Header, Headers, Ipv4, Ipv6, Protocol};

use super::fragments::reassemble;

/// Result of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The expected frames and messages left, and nothing else.
    Pass,
    /// Anything else: the frames and their difference.
    Fail(String),
    /// The engine lacks a configuration that the case needs, for this reason.
    NotSupported(String),
}

/// Compares the frames that left with the expected ones, and the router's own ICMP messages with
/// the expected one if the case is about that.
pub fn judge(node: &Node, case: &Case, found: &[Output]) -> Finding {
    let of_node = |(_, frame): &Output| is_own_error(node, frame);
    let (own, found): (Vec<Output>, Vec<_>) = found.iter().cloned().partition(of_node);
    let wrong = judge_frames(case, &found).or_else(|| judge_answer(case, &own));
    wrong.map_or(Finding::Pass, Finding::Fail)
}

/// Difference between the frames and the expected ones, if there is one.
fn judge_frames(case: &Case, found: &[Output]) -> Option<String> {
    if !case.fragments.is_empty() {
        let ports = |frames: &[Output]| -> Vec<String> {
            let mut ports: Vec<_> = frames.iter().map(|(port, _)| port.clone()).collect();
            ports.dedup();
            ports
        };
        let packet = |frames: &[Output]| reassemble(frames.iter().map(|(_, frame)| frame));
        let same =
            ports(found) == ports(&case.fragments) && packet(found) == packet(&case.fragments);
        return (!same).then(|| in_words(&case.fragments, found, "; "));
    }
    let ways = match (&case.expect, &case.linux) {
        // Each engine hashes in its own way.
        (Expect::Forward { .. }, Linux::OneOf(ways)) => ways.clone(),
        (Expect::Forward { port, frame }, _) => vec![(port.clone(), frame.clone())],
        _ => vec![],
    };
    let right = match found {
        [] => ways.is_empty(),
        [(port, frame)] => ways
            .iter()
            .any(|(to, expected)| port == to && same(case, expected, frame)),
        _ => false,
    };
    (!right).then(|| in_words(&ways, found, " or "))
}

/// Difference between the messages of the router to the sender and the expected one. The source
/// address is compared where the case has one, otherwise it is the router's to choose.
fn judge_answer(case: &Case, own: &[Output]) -> Option<String> {
    let right = match case.answer.as_ref()? {
        Answer::Silence => own.is_empty(),
        // Messages about earlier packets may come late.
        Answer::Message { to, from, message } => {
            let is_it = |(source, destination, found): (IpAddr, IpAddr, Vec<u8>)| {
                let source_fits = from.is_none_or(|from| source == IpAddr::from(from));
                source_fits && destination == *to && found == *message
            };
            let mut own = own.iter();
            own.any(|(_, frame)| read(frame).is_some_and(is_it))
        }
    };
    let expected = match case.answer.as_ref()? {
        Answer::Silence => "no ICMP message".to_owned(),
        Answer::Message { to, message, .. } => {
            format!("the ICMP message {} to {to}", plain(message))
        }
    };
    (!right).then(|| format!("expected {expected}\nfound {}\n", list(own, "; ")))
}

/// Source, destination and ICMP message of a packet, for ICMPv6 with checksum 0.
fn read(frame: &[u8]) -> Option<(IpAddr, IpAddr, Vec<u8>)> {
    let mut ends = None;
    for layer in Headers::frame(frame) {
        match layer.header {
            Header::Ipv6(ip) => ends = Some((ip.source().into(), ip.destination().into())),
            Header::Ipv4(ip) => ends = Some((ip.source().into(), ip.destination().into())),
            Header::Icmpv4(_) => {
                let (from, to) = ends?;
                return Some((from, to, frame[layer.offset..].to_vec()));
            }
            Header::Icmpv6(_) => {
                let (from, to) = ends?;
                let mut message = frame[layer.offset..].to_vec();
                message.get_mut(2..4)?.fill(0);
                return Some((from, to, message));
            }
            _ => {}
        }
    }
    None
}

/// Frames and their ports.
fn list(frames: &[Output], between: &str) -> String {
    let one = |(port, frame): &Output| format!("by {port}: {}", plain(frame));
    match frames {
        [] => "no frame".to_owned(),
        frames => frames.iter().map(one).collect::<Vec<_>>().join(between),
    }
}

fn in_words(expected: &[Output], found: &[Output], between: &str) -> String {
    let wanted = list(expected, between);
    let mut text = format!("expected {wanted}\nfound {}\n", list(found, "; "));
    if let ([(_, expected)], [(_, found)]) = (expected, found) {
        text.push_str(&diff(expected, found));
    }
    text
}

/// Whether the frames are equal. The flow label of a new outer header is the node's to choose (RFC
/// 6437 3), unless the case is about it: then 0 is wrong where a label has to be computed.
fn same(case: &Case, expected: &[u8], found: &[u8]) -> bool {
    let label = |frame: &[u8]| -> [u8; 3] {
        let at = Ethernet::LENGTH + 1;
        let bytes = frame.get(at..at + 3).unwrap_or_default();
        <[u8; 3]>::try_from(bytes).map_or([0; 3], |[a, b, c]| [a & 0x0f, b, c])
    };
    let is_new = source(expected) != source(&case.frame) && version(expected) == 6;
    if !is_new || expected.len() != found.len() || version(found) != 6 {
        return expected == found;
    }
    let about = |rfc: &String| {
        let of_labels = ["6437", "6438", "8754 5.5"];
        of_labels.iter().any(|of| rfc.starts_with(of))
    };
    if case.rfc.iter().any(about) && (label(expected) == [0; 3]) != (label(found) == [0; 3]) {
        return false;
    }
    let without = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        let at = Ethernet::LENGTH + 1;
        frame[at] &= 0xf0;
        frame[at + 1..at + 3].fill(0);
        frame
    };
    without(expected) == without(found)
}

fn version(frame: &[u8]) -> u8 {
    match frame.get(12..15) {
        Some([0x86, 0xdd, first]) if first >> 4 == 6 => 6,
        Some([0x08, 0x00, first]) if first >> 4 == 4 => 4,
        _ => 0,
    }
}

/// Source address of the packet in a frame.
fn source(frame: &[u8]) -> Option<IpAddr> {
    let packet = frame.get(Ethernet::LENGTH..)?;
    match version(frame) {
        6 => {
            let octets = packet.get(ipv6::SOURCE..ipv6::SOURCE + 16)?;
            Some(IpAddr::from(<[u8; 16]>::try_from(octets).ok()?))
        }
        4 => {
            let octets = packet.get(ipv4::SOURCE..ipv4::SOURCE + 4)?;
            Some(IpAddr::from(<[u8; 4]>::try_from(octets).ok()?))
        }
        _ => None,
    }
}

/// Whether the frame has an ICMP message from an address or a SID of the router, or a link-local one.
fn is_own_error(node: &Node, frame: &[u8]) -> bool {
    let Some(source) = source(frame) else {
        return false;
    };
    let packet = &frame[Ethernet::LENGTH..];
    let is_icmp = match source {
        IpAddr::V6(_) => {
            packet.len() > Ipv6::LENGTH && packet[ipv6::NEXT_HEADER] == Protocol::ICMPV6.0
        }
        IpAddr::V4(_) => packet.len() > Ipv4::LENGTH && packet[ipv4::PROTOCOL] == Protocol::ICMP.0,
    };
    let addresses = node.ports.iter().flat_map(|(_, port)| &port.addresses);
    let mut own = addresses.filter_map(|it| it.split('/').next()?.parse::<IpAddr>().ok());
    let sids = node.routes.iter().filter(|line| line.contains("seg6local"));
    let mut sids = sids.filter_map(|line| prefix_of(line));
    let is_link_local = matches!(source, IpAddr::V6(it) if it.is_unicast_link_local());
    // RFC 7600: a router without an IPv4 address.
    let dummy = source == IpAddr::from([192, 0, 0, 8]);
    let of_node = own.any(|it| it == source) || sids.any(|sid| sid.contains(&source));
    is_icmp && (is_link_local || dummy || of_node)
}

/// Prefix of a route as in `ip route add`.
pub fn prefix_of(line: &str) -> Option<IpNet> {
    let mut words = line.split_whitespace();
    let types = ["blackhole", "unreachable", "prohibit", "throw"];
    let word = words.find(|word| !types.contains(word))?;
    let host = || word.parse::<IpAddr>().ok().map(IpNet::from);
    word.parse().ok().or_else(host)
}
