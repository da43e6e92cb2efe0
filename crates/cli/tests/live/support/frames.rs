//! Frames to send, and checks of received frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sidestep_wire::checksum::{self, Sum};
use sidestep_wire::{
    Ends, EtherType, Ethernet, Header, Headers, Icmp, Icmpv6Type, Ipv4, Ipv6, Ipv6View, Protocol,
    Srh, Udp,
};

pub type Mac = [u8; 6];

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;

pub const TCP: u8 = Protocol::TCP.0;
pub const UDP: u8 = Protocol::UDP.0;
pub const IPV4: u8 = Protocol::IPV4.0;
pub const IPV6: u8 = Protocol::IPV6.0;
pub const CARRIES_ETHERNET: u8 = Protocol::ETHERNET.0;
pub const ROUTING: u8 = Protocol::ROUTING.0;
pub const ICMPV6: u8 = Protocol::ICMPV6.0;

/// Returns an Ethernet frame. Its type follows from the IP version of the packet.
pub fn ethernet(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    let ethertype = match packet[0] >> 4 {
        6 => EtherType::IPV6,
        _ => EtherType::IPV4,
    };
    let (destination, source) = (to, from);
    Ethernet {
        destination,
        source,
        ethertype,
    }
    .emit(packet)
}

/// A broadcast request for the hardware address of `target` (RFC 826).
pub fn arp_request(from: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    let body = [
        &head[..],
        &from,
        &sender.octets(),
        &[0; 6],
        &target.octets(),
    ]
    .concat();
    [&[0xff; 6][..], &from, &[0x08, 0x06], &body].concat()
}

/// An IPv6 packet without a flow label.
pub fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6 {
        hop_limit,
        ..Ipv6::new(from, to, Protocol(next))
    };
    header.emit(payload)
}

/// An IPv4 packet with a right header checksum.
pub fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4 {
        fragment: Ipv4::DONT_FRAGMENT,
        ttl,
        ..Ipv4::new(from, to, Protocol(protocol))
    };
    header.emit(payload)
}

/// A UDP packet with this hop limit or TTL.
pub fn udp(from: IpAddr, to: IpAddr, hop_limit: u8, data: &[u8]) -> Vec<u8> {
    udp_between(from, to, [40_000, 5_000], hop_limit, data)
}

/// As [`udp`], with these ports: source, destination.
pub fn udp_between(
    from: IpAddr,
    to: IpAddr,
    ports: [u16; 2],
    hop_limit: u8,
    data: &[u8],
) -> Vec<u8> {
    let header = Udp {
        source_port: ports[0],
        destination_port: ports[1],
    };
    let datagram = header.emit(data, Ends::new(from, to));
    match (from, to) {
        (IpAddr::V6(from), IpAddr::V6(to)) => ipv6(from, to, UDP, hop_limit, &datagram),
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, UDP, hop_limit, &datagram),
        _ => panic!("{from} and {to} are of one family"),
    }
}

/// An `ICMPv6` echo request.
pub fn echo_request(from: Ipv6Addr, to: Ipv6Addr, sequence: u16) -> Vec<u8> {
    let header = Icmp::v6(
        Icmpv6Type::ECHO_REQUEST,
        0,
        0x5353_0000 | u32::from(sequence),
    );
    let message = header.emit_v6(&[], Ends::new(from, to));
    ipv6(from, to, ICMPV6, 64, &message)
}

/// The checksum of an `ICMPv6` message whose own is 0.
pub fn icmpv6_checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    checksum::upper_layer(Ends::new(from, to), Protocol::ICMPV6, message)
}

/// Returns a neighbor solicitation for `target` (RFC 4861 4.3, RFC 4291 2.7.1).
pub fn solicitation(from: Ipv6Addr, target: Ipv6Addr, mac: Mac) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let mut group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).octets();
    group[13..].copy_from_slice(&[a, b, c]);
    let to = Ipv6Addr::from(group);
    let body = [&target.octets()[..], &[1, 1], &mac].concat();
    let header = Icmp::v6(Icmpv6Type::NEIGHBOR_SOLICITATION, 0, 0);
    let message = header.emit_v6(&body, Ends::new(from, to));
    let packet = ipv6(from, to, ICMPV6, 255, &message);
    ethernet([0x33, 0x33, 0xff, a, b, c], mac, &packet)
}

/// Returns the target address of a Neighbor Solicitation (RFC 4861 4.3).
pub fn solicited(frame: &[u8]) -> Option<Ipv6Addr> {
    if icmpv6_type(frame)? != 135 {
        return None;
    }
    let target = frame.get(ETHERNET + 48..)?.first_chunk::<16>()?;
    Some(Ipv6Addr::from(*target))
}

/// Returns the reply to a Neighbor Solicitation: `target` has this MAC (RFC 4861 4.4: solicited,
/// override).
pub fn advertisement(target: Ipv6Addr, mac: Mac, asked: &[u8]) -> Vec<u8> {
    let to = source6(asked).expect("a solicitation has a source");
    let body = [&target.octets()[..], &[2, 1], &mac].concat();
    let header = Icmp::v6(Icmpv6Type::NEIGHBOR_ADVERTISEMENT, 0, 0x6000_0000);
    let message = header.emit_v6(&body, Ends::new(target, to));
    let source = asked[6..12].try_into().expect("an Ethernet header");
    ethernet(source, mac, &ipv6(target, to, ICMPV6, 255, &message))
}

/// Returns a Segment Routing Header (RFC 8754 2) with these segments, in order of travel.
pub fn srh(next: u8, segments: &[Ipv6Addr], segments_left: u8) -> Vec<u8> {
    let list = segments.iter().rev().copied().collect();
    Srh::new(Protocol(next), segments_left, list).emit(&[])
}

/// The destination MAC of a frame.
pub fn to_mac(frame: &[u8]) -> Mac {
    frame[..6].try_into().expect("an Ethernet header")
}

/// The source of an IPv6 frame.
pub fn source6(frame: &[u8]) -> Option<Ipv6Addr> {
    header6(frame).map(|header| header.source())
}

/// The destination of an IPv6 frame.
pub fn destination6(frame: &[u8]) -> Option<Ipv6Addr> {
    header6(frame).map(|header| header.destination())
}

/// The IPv6 header behind an Ethernet header.
fn header6(frame: &[u8]) -> Option<Ipv6View<'_>> {
    match Headers::frame(frame).nth(1)?.header {
        Header::Ipv6(header) => Some(header),
        _ => None,
    }
}

/// The first Next Header of an IPv6 frame.
pub fn next_header(frame: &[u8]) -> Option<u8> {
    header6(frame).map(|header| header.next_header().0)
}

/// The flow label of an IPv6 frame.
pub fn flow_label(frame: &[u8]) -> Option<u32> {
    header6(frame).map(|header| header.flow_label())
}

/// Type of the `ICMPv6` message in an IPv6 frame without extension headers.
pub fn icmpv6_type(frame: &[u8]) -> Option<u8> {
    if next_header(frame)? != ICMPV6 {
        return None;
    }
    frame.get(ETHERNET + 40).copied()
}

/// State of a frame's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// The packet has an upper-layer checksum, and all checksums are right.
    Right,
    /// The upper-layer checksum covers only the pseudo header; the device completes it, as between
    /// veths.
    LeftToDevice,
    /// The packet has no upper-layer checksum.
    None,
}

/// Verifies the checksums of IPv4, TCP, UDP, ICMP and `ICMPv6` from the bytes. Returns the problem
/// as an error. Padding behind the packet is wrong too.
pub fn checksums(frame: &[u8]) -> Result<Checksums, String> {
    let mut headers = Headers::frame(frame).ignore_lengths();
    let present = frame.len() - ETHERNET;
    match headers.nth(1).map(|layer| layer.header) {
        Some(Header::Ipv6(header)) => {
            let length = usize::from(header.payload_length());
            let payload = &frame[ETHERNET + Ipv6::LENGTH..];
            // 0 for a segment larger than 64 KiB before segmentation.
            if length != payload.len() && length != 0 {
                let present = payload.len();
                return Err(format!(
                    "Payload Length {length}, {present} bytes are there"
                ));
            }
            upper_layer(header.ends(), header.next_header(), payload)
        }
        Some(Header::Ipv4(header)) => {
            let length = usize::from(header.total_length());
            if !header.has_right_checksum() {
                return Err("IPv4 header checksum".to_owned());
            }
            if length != present {
                return Err(format!("Total Length {length}, {present} bytes are there"));
            }
            let payload = &frame[frame.len() - headers.remaining()..];
            upper_layer(header.ends(), header.protocol(), payload)
        }
        _ => Ok(Checksums::None),
    }
}

fn upper_layer(ends: Ends, protocol: Protocol, payload: &[u8]) -> Result<Checksums, String> {
    let field = match protocol {
        Protocol::TCP => 16,
        Protocol::UDP => 6,
        Protocol::ICMP | Protocol::ICMPV6 => 2,
        Protocol::FRAGMENT => return Ok(Checksums::None),
        other => return Err(format!("an upper layer {} at a host", other.0)),
    };
    let pseudo = match protocol {
        Protocol::ICMP => Sum::default(),
        _ => Sum::default().add_pseudo_header(ends, protocol, payload.len()),
    };
    if pseudo.add_bytes(payload).checksum() == 0 {
        return Ok(Checksums::Right);
    }
    // Until the device completes it, the field holds the sum of the pseudo header without the
    // complement (CHECKSUM_PARTIAL, include/linux/skbuff.h).
    if payload[field..field + 2] == pseudo.fold().to_be_bytes() {
        return Ok(Checksums::LeftToDevice);
    }
    Err(format!("checksum of protocol {}", protocol.0))
}
