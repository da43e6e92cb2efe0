//! Frames made and judged by this file alone: nothing of the product's own reading or writing is used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub type Mac = [u8; 6];

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;

// IANA: Protocol Numbers, IEEE 802 Numbers.
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const IPV4: u8 = 4;
pub const IPV6: u8 = 41;
pub const CARRIES_ETHERNET: u8 = 143;
pub const ROUTING: u8 = 43;
pub const ICMPV6: u8 = 58;
const ICMP: u8 = 1;
const FRAGMENT: u8 = 44;

/// An Ethernet frame; its type is that of the packet, by the version in its first byte.
pub fn ethernet(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    let ethertype: u16 = if packet[0] >> 4 == 6 { 0x86dd } else { 0x0800 };
    [&to[..], &from, &ethertype.to_be_bytes(), packet].concat()
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
    let length = (payload.len() as u16).to_be_bytes();
    let head = [0x60, 0, 0, 0, length[0], length[1], next, hop_limit];
    [&head[..], &from.octets(), &to.octets(), payload].concat()
}

/// An IPv4 packet with a right header checksum.
pub fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len() as u16).to_be_bytes();
    let head = [
        0x45, 0, length[0], length[1], 0, 0, 0x40, 0, ttl, protocol, 0, 0,
    ];
    let mut packet = [&head[..], &from.octets(), &to.octets(), payload].concat();
    let checksum = !sum(0, &packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
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
    let length = 8 + data.len() as u16;
    let mut datagram = [
        &ports[0].to_be_bytes()[..],
        &ports[1].to_be_bytes(),
        &length.to_be_bytes(),
        &[0, 0],
        data,
    ]
    .concat();
    let checksum = !sum(pseudo_header(from, to, UDP, datagram.len()), &datagram);
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    match (from, to) {
        (IpAddr::V6(from), IpAddr::V6(to)) => ipv6(from, to, UDP, hop_limit, &datagram),
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, UDP, hop_limit, &datagram),
        _ => panic!("{from} and {to} are of one family"),
    }
}

/// An `ICMPv6` echo request.
pub fn echo_request(from: Ipv6Addr, to: Ipv6Addr, sequence: u16) -> Vec<u8> {
    let mut message = [&[128, 0, 0, 0, 0x53, 0x53][..], &sequence.to_be_bytes()].concat();
    let checksum = icmpv6_checksum(from, to, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    ipv6(from, to, ICMPV6, 64, &message)
}

/// The checksum of an `ICMPv6` message whose own is 0.
pub fn icmpv6_checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let pseudo = pseudo_header(from.into(), to.into(), ICMPV6, message.len());
    !sum(pseudo, message)
}

/// Returns a neighbor solicitation for `target` (RFC 4861 4.3, RFC 4291 2.7.1).
pub fn solicitation(from: Ipv6Addr, target: Ipv6Addr, mac: Mac) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let mut group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).octets();
    group[13..].copy_from_slice(&[a, b, c]);
    let head = [135, 0, 0, 0, 0, 0, 0, 0];
    let mut message = [&head[..], &target.octets(), &[1, 1], &mac].concat();
    let to = Ipv6Addr::from(group);
    let checksum = icmpv6_checksum(from, to, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let packet = ipv6(from, to, ICMPV6, 255, &message);
    ethernet([0x33, 0x33, 0xff, a, b, c], mac, &packet)
}

/// The address that a Neighbor Solicitation asks for (RFC 4861 4.3).
pub fn solicited(frame: &[u8]) -> Option<Ipv6Addr> {
    if icmpv6_type(frame)? != 135 {
        return None;
    }
    let target = frame.get(ETHERNET + 48..)?.first_chunk::<16>()?;
    Some(Ipv6Addr::from(*target))
}

/// The answer to a Neighbor Solicitation: `target` is at this MAC (RFC 4861 4.4: solicited, override).
pub fn advertisement(target: Ipv6Addr, mac: Mac, asked: &[u8]) -> Vec<u8> {
    let to = source6(asked).expect("a solicitation has a source");
    let head = [136, 0, 0, 0, 0x60, 0, 0, 0];
    let mut message = [&head[..], &target.octets(), &[2, 1], &mac].concat();
    let pseudo = pseudo_header(target.into(), to.into(), ICMPV6, message.len());
    let checksum = !sum(pseudo, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let source = asked[6..12].try_into().expect("an Ethernet header");
    ethernet(source, mac, &ipv6(target, to, ICMPV6, 255, &message))
}

/// A Segment Routing Header (RFC 8754 2) of these segments, in the order of travel.
pub fn srh(next: u8, segments: &[Ipv6Addr], segments_left: u8) -> Vec<u8> {
    let count = segments.len() as u8;
    let mut header = vec![next, 2 * count, 4, segments_left, count - 1, 0, 0, 0];
    for segment in segments.iter().rev() {
        header.extend(segment.octets());
    }
    header
}

/// The destination MAC of a frame.
pub fn to_mac(frame: &[u8]) -> Mac {
    frame[..6].try_into().expect("an Ethernet header")
}

/// The source of an IPv6 frame.
pub fn source6(frame: &[u8]) -> Option<Ipv6Addr> {
    address6(frame, 8)
}

/// The destination of an IPv6 frame.
pub fn destination6(frame: &[u8]) -> Option<Ipv6Addr> {
    address6(frame, 24)
}

fn address6(frame: &[u8], at: usize) -> Option<Ipv6Addr> {
    if !is_ipv6(frame) {
        return None;
    }
    let bytes = frame.get(ETHERNET + at..)?.first_chunk::<16>()?;
    Some(Ipv6Addr::from(*bytes))
}

/// The first Next Header of an IPv6 frame.
pub fn next_header(frame: &[u8]) -> Option<u8> {
    is_ipv6(frame).then(|| frame.get(ETHERNET + 6).copied())?
}

/// The flow label of an IPv6 frame.
pub fn flow_label(frame: &[u8]) -> Option<u32> {
    let word = frame.get(ETHERNET..)?.first_chunk::<4>()?;
    is_ipv6(frame).then(|| u32::from_be_bytes(*word) & 0xf_ffff)
}

/// Type of the `ICMPv6` message in an IPv6 frame without extension headers.
pub fn icmpv6_type(frame: &[u8]) -> Option<u8> {
    if next_header(frame)? != ICMPV6 {
        return None;
    }
    frame.get(ETHERNET + 40).copied()
}

fn is_ipv6(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x86, 0xdd])
}

/// State of a frame's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// There is one of an upper layer, and all are right.
    Right,
    /// The upper layer's is the sum over the pseudo header: left to the device, as between veth.
    LeftToDevice,
    /// No packet with one.
    None,
}

/// Verifies the checksums of IPv4, TCP, UDP, ICMP and `ICMPv6` from the bytes. Returns the problem
/// as an error. Padding behind the packet is wrong too.
pub fn checksums(frame: &[u8]) -> Result<Checksums, String> {
    let packet = &frame[ETHERNET..];
    match (frame[12], frame[13]) {
        (0x86, 0xdd) => {
            let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            let payload = &packet[40..];
            // 0: a segment larger than 64 KiB that is not cut yet.
            if length != payload.len() && length != 0 {
                return Err(format!(
                    "Payload Length {length}, {} bytes are there",
                    payload.len()
                ));
            }
            let address = |at: usize| address6(frame, at).expect("40 bytes were read");
            let ends = (address(8).into(), address(24).into());
            upper_layer(ends, packet[6], payload)
        }
        (0x08, 0x00) => {
            let header = usize::from(packet[0] & 15) * 4;
            let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            if sum(0, &packet[..header]) != 0xffff {
                return Err("IPv4 header checksum".to_owned());
            }
            if length != packet.len() {
                return Err(format!(
                    "Total Length {length}, {} bytes are there",
                    packet.len()
                ));
            }
            let address = |at: usize| {
                let bytes = packet[at..].first_chunk::<4>();
                Ipv4Addr::from(*bytes.expect("20 bytes were read"))
            };
            let ends = (address(12).into(), address(16).into());
            upper_layer(ends, packet[9], &packet[header..])
        }
        _ => Ok(Checksums::None),
    }
}

fn upper_layer(
    (from, to): (IpAddr, IpAddr),
    protocol: u8,
    payload: &[u8],
) -> Result<Checksums, String> {
    let (field, pseudo) = match protocol {
        TCP => (16, pseudo_header(from, to, TCP, payload.len())),
        UDP => (6, pseudo_header(from, to, UDP, payload.len())),
        ICMPV6 => (2, pseudo_header(from, to, ICMPV6, payload.len())),
        ICMP => (2, 0),
        FRAGMENT => return Ok(Checksums::None),
        other => return Err(format!("an upper layer {other} at a host")),
    };
    if sum(pseudo, payload) == 0xffff {
        return Ok(Checksums::Right);
    }
    // Before the device has done its part the field holds the sum of the pseudo header, not complemented
    // (CHECKSUM_PARTIAL, include/linux/skbuff.h).
    if payload[field..field + 2] == sum(pseudo, &[]).to_be_bytes() {
        return Ok(Checksums::LeftToDevice);
    }
    Err(format!("checksum of protocol {protocol}"))
}

/// RFC 8200 8.1, RFC 9293 3.1: pseudo-header and data of an upper layer's checksum.
fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, length: usize) -> u32 {
    let octets = |address| match address {
        IpAddr::V4(address) => Ipv4Addr::octets(&address).to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let words = |bytes: Vec<u8>| {
        bytes
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum::<u32>()
    };
    let length = length as u32;
    words(octets(from))
        + words(octets(to))
        + u32::from(protocol)
        + (length >> 16)
        + (length & 0xffff)
}

/// RFC 1071: the ones' complement sum, not complemented. 0xffff over data with its checksum.
fn sum(begin: u32, bytes: &[u8]) -> u16 {
    let mut total = u64::from(begin);
    for pair in bytes.chunks(2) {
        total += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    total as u16
}
