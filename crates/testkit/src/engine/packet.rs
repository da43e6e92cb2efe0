//! Packets, header by header, as the RFCs draw them. Each function prepends one header.

use std::net::{Ipv4Addr, Ipv6Addr};

/// An IPv6 header; traffic class and flow label are 0.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6 {
    /// Next Header.
    pub next_header: u8,
    /// Hop Limit.
    pub hop_limit: u8,
    /// Source Address.
    pub source: Ipv6Addr,
    /// Destination Address.
    pub destination: Ipv6Addr,
}

impl Ipv6 {
    /// RFC 8200 3.
    pub fn around(self, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([self.next_header, self.hop_limit]);
        packet.extend(self.source.octets());
        packet.extend(self.destination.octets());
        packet.extend(payload);
        packet
    }
}

/// Ethernet II.
pub fn ethernet(destination: [u8; 6], source: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ethertype.to_be_bytes(), payload].concat()
}

/// RFC 8754 2, without flags, tag and TLVs. `list` is in the header's order: the last segment of the path first.
pub fn srh(next_header: u8, segments_left: u8, list: &[Ipv6Addr], payload: &[u8]) -> Vec<u8> {
    let entries = list.len() as u8;
    let mut packet = vec![
        next_header,
        2 * entries,
        4,
        segments_left,
        entries - 1,
        0,
        0,
        0,
    ];
    packet.extend(list.iter().flat_map(Ipv6Addr::octets));
    packet.extend(payload);
    packet
}

/// A UDP packet of `length` bytes, IPv6 header included.
pub fn udp6(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, length: usize) -> Vec<u8> {
    let addresses = [source.octets(), destination.octets()].concat();
    let header = Ipv6 {
        next_header: UDP,
        hop_limit,
        source,
        destination,
    };
    header.around(&udp(&addresses, length - 40))
}

/// A UDP packet of `length` bytes, IPv4 header included. RFC 791 3.1.
pub fn udp4(source: Ipv4Addr, destination: Ipv4Addr, ttl: u8, length: usize) -> Vec<u8> {
    let addresses = [source.octets(), destination.octets()].concat();
    let mut packet = vec![0x45, 0];
    packet.extend((length as u16).to_be_bytes());
    packet.extend([0, 0, 0, 0, ttl, UDP, 0, 0]);
    packet.extend(&addresses);
    let checksum = internet_checksum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(udp(&addresses, length - 20));
    packet
}

/// RFC 768: from [`SOURCE_PORT`] to 9 (discard), zeros inside.
fn udp(addresses: &[u8], length: usize) -> Vec<u8> {
    let mut datagram = [SOURCE_PORT, 9, length as u16, 0]
        .map(u16::to_be_bytes)
        .concat();
    datagram.resize(length, 0);
    let pseudo_header = [u16::from(UDP), length as u16]
        .map(u16::to_be_bytes)
        .concat();
    let checksum = internet_checksum(&[addresses, &pseudo_header, &datagram].concat());
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    datagram
}

/// RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let odd = odd.first().map(|last| [*last, 0]);
    let words = pairs.iter().copied().chain(odd);
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Ports of the first flow.
pub const SOURCE_PORT: u16 = 4096;
// IEEE 802 Numbers.
/// IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
// IANA, Protocol Numbers.
const UDP: u8 = 17;
/// IPv4 in IP.
pub const IPV4: u8 = 4;
/// IPv6 in IP.
pub const IPV6: u8 = 41;
/// Routing header.
pub const ROUTING: u8 = 43;
/// Ethernet in IP.
pub const ETHERNET: u8 = 143;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_that_scapy_computes() {
        let packet = udp4([10, 0, 0, 1].into(), [198, 51, 100, 1].into(), 64, 64);
        assert_eq!(packet[10..12], [0x46, 0x78]);
        assert_eq!(packet[26..28], [0xbb, 0x57]);
        let source = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 1);
        let packet = udp6(
            source,
            Ipv6Addr::new(0x2001, 0xdb8, 0xd, 0, 0, 0, 0, 1),
            64,
            64,
        );
        assert_eq!(packet[46..48], [0xc5, 0xec]);
    }

    #[test]
    fn an_srh_says_its_length_and_last_entry() {
        let segments = [Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED];
        let packet = srh(IPV6, 1, &segments, &[7]);
        assert_eq!(packet[..8], [41, 4, 4, 1, 1, 0, 0, 0]);
        assert_eq!(packet.len(), 8 + 32 + 1);
        assert_eq!((packet[23], packet[40]), (1, 7));
    }
}
