//! Comparison of the frames that left with the expected ones.

use std::net::IpAddr;

use sidestep_testkit::hexdiff::{diff, plain};
use sidestep_testkit::linux::Output;
use sidestep_testkit::vectors::{Case, Expect, Linux, Node};
use sidestep_wire::field::{ipv4, ipv6};
use sidestep_wire::{Ethernet, Ipv4, Ipv6, Protocol};

/// Result of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The expected frame left, or none as expected.
    Pass,
    /// Anything else: the frames and their difference.
    Fail(String),
    /// The engine lacks a configuration that the case needs, for this reason.
    NotSupported(String),
}

/// Compares the frames that left with the expected one. Errors that the router sends in its own name
/// do not count: other cases are about these.
pub fn judge(node: &Node, case: &Case, mut found: Vec<Output>) -> Finding {
    found.retain(|(_, frame)| !is_own_error(node, frame));
    let ways = match (&case.expect, &case.linux) {
        // Each engine hashes in its own way.
        (Expect::Forward { .. }, Linux::OneOf(ways)) => ways.clone(),
        (Expect::Forward { port, frame }, _) => vec![(port.clone(), frame.clone())],
        _ => vec![],
    };
    let right = match &found[..] {
        [] => ways.is_empty(),
        [(port, frame)] => ways
            .iter()
            .any(|(to, expected)| port == to && same(case, expected, frame)),
        _ => false,
    };
    if right {
        return Finding::Pass;
    }
    Finding::Fail(in_words(&ways, &found))
}

fn in_words(ways: &[Output], found: &[Output]) -> String {
    let list = |frames: &[Output]| match frames {
        [] => "no frame".to_owned(),
        frames => {
            let one = |(port, frame): &Output| format!("by {port}: {}", plain(frame));
            frames.iter().map(one).collect::<Vec<_>>().join("; ")
        }
    };
    let mut text = format!("expected {}\nfound {}\n", list(ways), list(found));
    if let ([(_, expected)], [(_, found)]) = (ways, found) {
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

/// Whether the frame has an ICMP message from an address of the router, or a link-local one.
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
    let is_link_local = matches!(source, IpAddr::V6(it) if it.is_unicast_link_local());
    // RFC 7600: a router without an IPv4 address.
    let dummy = source == IpAddr::from([192, 0, 0, 8]);
    is_icmp && (is_link_local || dummy || own.any(|it| it == source))
}
