//! Builders of the headers of random packets, based on the emitters of `sidestep_wire`.
//!
//! Each function returns a header with its payload. Fields are plain integers, because a random
//! packet may have any value in any field.

use std::net::{Ipv4Addr, Ipv6Addr};

use sidestep_wire::{self as wire, EtherType, Protocol};

/// Protocol numbers as integers.
#[allow(missing_docs)]
pub mod proto {
    use super::Protocol;

    pub const HOP_BY_HOP: u8 = Protocol::HOP_BY_HOP.0;
    pub const ICMP: u8 = Protocol::ICMP.0;
    pub const IPV4: u8 = Protocol::IPV4.0;
    pub const TCP: u8 = Protocol::TCP.0;
    pub const UDP: u8 = Protocol::UDP.0;
    pub const IPV6: u8 = Protocol::IPV6.0;
    pub const ROUTING: u8 = Protocol::ROUTING.0;
    pub const FRAGMENT: u8 = Protocol::FRAGMENT.0;
    pub const ICMPV6: u8 = Protocol::ICMPV6.0;
    pub const NO_NEXT_HEADER: u8 = Protocol::NO_NEXT_HEADER.0;
    pub const DESTINATION_OPTIONS: u8 = Protocol::DESTINATION_OPTIONS.0;
    pub const SCTP: u8 = Protocol::SCTP.0;
    pub const ETHERNET: u8 = Protocol::ETHERNET.0;
}

/// `EtherType` of IPv4.
pub const ETHERTYPE_IPV4: u16 = EtherType::IPV4.0;
/// `EtherType` of IPv6.
pub const ETHERTYPE_IPV6: u16 = EtherType::IPV6.0;

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = wire::Ethernet::LENGTH;
/// Bytes of an IPv6 header.
pub const IPV6: usize = wire::Ipv6::LENGTH;
/// Bytes of an IPv4 header without options.
pub const IPV4: usize = wire::Ipv4::LENGTH;

/// Returns an Ethernet frame.
pub fn ethernet(destination: [u8; 6], source: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    wire::Ethernet {
        destination,
        source,
        ethertype: EtherType(ethertype),
    }
    .emit(payload)
}

/// The fields of an IPv6 header (RFC 8200 3) that do not follow from the payload.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6 {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

/// Returns an IPv6 packet.
pub fn ipv6(fields: &Ipv6, next_header: u8, payload: &[u8]) -> Vec<u8> {
    wire::Ipv6 {
        traffic_class: fields.traffic_class,
        flow_label: fields.flow_label,
        next_header: Protocol(next_header),
        hop_limit: fields.hop_limit,
        source: fields.source,
        destination: fields.destination,
    }
    .emit(payload)
}

/// Returns a frame to `mac` with only an IPv6 header (No Next Header), which is enough for a
/// lookup.
pub fn bare_ipv6(mac: [u8; 6], source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let packet = wire::Ipv6::new(source, destination, Protocol::NO_NEXT_HEADER).emit(&[]);
    ethernet(mac, [2, 0, 0, 0, 0, 0x10], ETHERTYPE_IPV6, &packet)
}

/// The fields of an IPv4 header (RFC 791 3.1) that do not follow from the payload.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4 {
    /// DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset.
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

/// Returns an IPv4 packet with its header checksum.
pub fn ipv4(fields: &Ipv4, protocol: u8, payload: &[u8]) -> Vec<u8> {
    wire::Ipv4 {
        tos: fields.tos,
        identification: fields.id,
        fragment: fields.fragment,
        ttl: fields.ttl,
        protocol: Protocol(protocol),
        source: fields.source,
        destination: fields.destination,
    }
    .emit(payload)
}

/// Writes the checksum of the IPv4 header at the start of a packet. Does nothing if the header is
/// truncated or its IHL is below 5.
pub fn ipv4_set_checksum(packet: &mut [u8]) {
    if packet.first().is_some_and(|first| first & 15 >= 5) {
        wire::Ipv4::write_checksum(packet);
    }
}

/// Returns the ones' complement sum of RFC 1071, without the final complement.
pub fn ones_complement_sum(bytes: &[u8]) -> u16 {
    !wire::checksum::checksum(bytes)
}

/// The fields of a Segment Routing Header (RFC 8754 2).
#[derive(Clone, Debug)]
pub struct Srh {
    /// Segment List in wire order: the last segment of the path first.
    pub list: Vec<Ipv6Addr>,
    /// Number of segments that remain.
    pub segments_left: u8,
    /// Flags.
    pub flags: u8,
    /// Tag.
    pub tag: u16,
    /// TLVs, a multiple of 8 bytes.
    pub tlvs: Vec<u8>,
}

/// Returns a Segment Routing Header. Its TLVs are not checked.
pub fn srh(fields: &Srh, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let list = fields.list.clone();
    let header = wire::Srh {
        flags: fields.flags,
        tag: fields.tag,
        ..wire::Srh::new(Protocol(next_header), fields.segments_left, list)
    };
    let mut bytes = header.emit(&[&fields.tlvs, payload].concat());
    bytes[wire::field::srh::HDR_EXT_LEN] += (fields.tlvs.len() / 8) as u8;
    bytes
}

/// Returns a Hop-by-Hop or Destination Options header with padding.
pub fn options(next_header: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    wire::Options {
        next_header: Protocol(next_header),
        options: options.to_vec(),
    }
    .emit(payload)
}

/// Returns a Fragment header. The offset counts units of 8 bytes.
pub fn fragment(next_header: u8, offset: u16, more: bool, id: u32, payload: &[u8]) -> Vec<u8> {
    wire::Fragment {
        next_header: Protocol(next_header),
        offset,
        more_fragments: more,
        identification: id,
    }
    .emit(payload)
}
