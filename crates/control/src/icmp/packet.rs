//! Reading packets that ICMP is about. Everything in them may be hostile, and they may end anywhere.

use std::net::{Ipv4Addr, Ipv6Addr};

/// RFC 8200 3.
pub(super) const IPV6_LENGTH: usize = 40;
/// RFC 791 3.1, without options.
pub(super) const IPV4_LENGTH: usize = 20;

// IANA: Assigned Internet Protocol Numbers.
pub(super) const HOP_BY_HOP: u8 = 0;
pub(super) const ICMPV4: u8 = 1;
pub(super) const IPV4: u8 = 4;
pub(super) const UDP: u8 = 17;
pub(super) const IPV6: u8 = 41;
pub(super) const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
pub(super) const AUTHENTICATION: u8 = 51;
pub(super) const ICMPV6: u8 = 58;
pub(super) const DESTINATION_OPTIONS: u8 = 60;

// IANA: ICMPv6 "type" Numbers.
pub(super) const ECHO_REQUEST: u8 = 128;
const REDIRECT: u8 = 137;
/// Errors are below.
const INFORMATIONAL: u8 = 128;

/// LIMIT: headers walked in one packet.
const HEADERS_MAX: usize = 16;

/// 4, 6 or whatever stands there. None: there is no byte.
pub(super) fn version(packet: &[u8]) -> Option<u8> {
    packet.first().map(|byte| byte >> 4)
}

/// The address in these 16 bytes of a packet.
pub(super) fn address(packet: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
    Some(octets.into())
}

/// Source of an IPv6 packet.
pub(super) fn source(packet: &[u8]) -> Option<Ipv6Addr> {
    address(packet, 8)
}

/// A header of an IPv6 packet's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Protocol number.
    pub proto: u8,
    /// Offset in the packet.
    pub at: usize,
    /// Bytes of it; of an upper-layer header 0.
    pub length: usize,
}

/// The headers behind the IPv6 header, in order, to the first one that no other can follow. Ends early where the bytes end,
/// and behind a fragment that is not the first.
pub(super) fn headers(packet: &[u8]) -> impl Iterator<Item = Header> + '_ {
    let mut next = packet
        .get(6)
        .map(|proto| (*proto, IPV6_LENGTH))
        .filter(|_| packet.len() >= IPV6_LENGTH);
    std::iter::from_fn(move || {
        let (proto, at) = next.take()?;
        let field = |offset: usize| packet.get(at + offset).copied();
        let length = match proto {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                field(1).map(|n| (usize::from(n) + 1) * 8)
            }
            AUTHENTICATION => field(1).map(|n| (usize::from(n) + 2) * 4),
            FRAGMENT => Some(8),
            _ => {
                let length = 0;
                return Some(Header { proto, at, length });
            }
        };
        let length = length?;
        let is_later =
            proto == FRAGMENT && field(3).is_none_or(|low| field(2) != Some(0) || low & 0xf8 != 0);
        if !is_later {
            next = field(0).map(|proto| (proto, at + length));
        }
        Some(Header { proto, at, length })
    })
    .take(HEADERS_MAX)
}

/// RFC 4443 2.4(e): to whom an error about this packet may go. None: to nobody. (Packets to multicast addresses are the
/// kernel's, and so are frames to all.)
pub(super) fn may_answer_v6(packet: &[u8]) -> Option<Ipv6Addr> {
    let source = source(packet)?;
    let destination = address(packet, 24)?;
    if source.is_unspecified() || source.is_multicast() || source.is_loopback() {
        return None;
    }
    if destination.is_multicast() {
        return None;
    }
    let icmp = headers(packet).find(|header| header.proto == ICMPV6);
    match icmp {
        // Without its type nobody knows what it is.
        Some(icmp) => packet
            .get(icmp.at)
            .is_some_and(|kind| *kind >= INFORMATIONAL && *kind != REDIRECT)
            .then_some(source),
        None => Some(source),
    }
}

/// RFC 1812 4.3.2.7, for IPv4.
pub(super) fn may_answer_v4(packet: &[u8]) -> Option<Ipv4Addr> {
    /// Echo, timestamp, information and address mask: all others are errors, or nobody's.
    const QUERIES: [u8; 8] = [0, 8, 13, 14, 15, 16, 17, 18];

    let header: &[u8; IPV4_LENGTH] = packet.first_chunk()?;
    let four =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let (source, destination) = (four(12), four(16));
    if source.octets()[0] == 0 || source.is_loopback() || source.octets()[0] >= 224 {
        return None;
    }
    if destination.octets()[0] >= 224 || u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
        return None;
    }
    if header[9] == ICMPV4 {
        let kind = packet.get(usize::from(header[0] & 15) * 4)?;
        return QUERIES.contains(kind).then_some(source);
    }
    Some(source)
}

/// Flag DF of an IPv4 packet.
pub(super) fn dont_fragment(packet: &[u8]) -> bool {
    packet.get(6).is_some_and(|flags| flags & 0x40 != 0)
}

/// RFC 1071, with `start` already summed up.
pub(super) fn checksum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum = words.fold(start, u32::wrapping_add);
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// RFC 8200 8.1: whether the checksum of an `ICMPv6` message is right.
pub(super) fn checksum_is_right(message: &[u8], source: Ipv6Addr, destination: Ipv6Addr) -> bool {
    let addresses = [source.octets(), destination.octets()].concat();
    let sum = u32::from(!checksum(&addresses, 0)) + message.len() as u32 + u32::from(ICMPV6);
    checksum(message, sum) == 0
}
