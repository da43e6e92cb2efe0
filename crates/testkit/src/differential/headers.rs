//! Headers as bytes, from their RFC's diagrams. Each function takes the payload and returns header
//! and payload.

use std::net::{Ipv4Addr, Ipv6Addr};

/// IANA "Assigned Internet Protocol Numbers".
pub mod proto {
    /// Hop-by-Hop options, RFC 8200 4.3.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IPv4 inside.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 inside.
    pub const IPV6: u8 = 41;
    /// Routing header, RFC 8200 4.4.
    pub const ROUTING: u8 = 43;
    /// Fragment header, RFC 8200 4.5.
    pub const FRAGMENT: u8 = 44;
    /// `ICMPv6`.
    pub const ICMPV6: u8 = 58;
    /// Nothing behind it, RFC 8200 4.7.
    pub const NO_NEXT_HEADER: u8 = 59;
    /// Destination options, RFC 8200 4.6.
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// Ethernet inside, RFC 8986 10.1.
    pub const ETHERNET: u8 = 143;
}

/// `EtherType` of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// `EtherType` of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Bytes of an IPv6 header.
pub const IPV6: usize = 40;
/// Bytes of an IPv4 header without options.
pub const IPV4: usize = 20;

/// Ethernet II.
pub fn ethernet(destination: [u8; 6], source: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ethertype.to_be_bytes(), payload].concat()
}

/// The fields of an IPv6 header (RFC 8200 3) that do not follow from the payload.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6 {
    /// Eight bits: DSCP and ECN.
    pub traffic_class: u8,
    /// Twenty bits.
    pub flow_label: u32,
    /// Field of this name.
    pub hop_limit: u8,
    /// Field of this name.
    pub source: Ipv6Addr,
    /// Field of this name.
    pub destination: Ipv6Addr,
}

/// RFC 8200 3.
pub fn ipv6(fields: &Ipv6, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let first = 6 << 28 | u32::from(fields.traffic_class) << 20 | fields.flow_label & 0xf_ffff;
    [
        &first.to_be_bytes()[..],
        &(payload.len() as u16).to_be_bytes(),
        &[next_header, fields.hop_limit],
        &fields.source.octets(),
        &fields.destination.octets(),
        payload,
    ]
    .concat()
}

/// A frame to `mac` with an IPv6 packet that has nothing behind its header (No Next Header): enough for a lookup.
pub fn bare_ipv6(mac: [u8; 6], source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let fields = Ipv6 {
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        source,
        destination,
    };
    let packet = ipv6(&fields, 59, &[]);
    ethernet(mac, [2, 0, 0, 0, 0, 0x10], 0x86dd, &packet)
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
    /// Field of this name.
    pub source: Ipv4Addr,
    /// Field of this name.
    pub destination: Ipv4Addr,
}

/// RFC 791 3.1, with its checksum.
pub fn ipv4(fields: &Ipv4, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = [
        &[0x45, fields.tos][..],
        &((IPV4 + payload.len()) as u16).to_be_bytes(),
        &fields.id.to_be_bytes(),
        &fields.fragment.to_be_bytes(),
        &[fields.ttl, protocol, 0, 0],
        &fields.source.octets(),
        &fields.destination.octets(),
        payload,
    ]
    .concat();
    ipv4_set_checksum(&mut packet);
    packet
}

/// Writes the checksum of the IPv4 header (RFC 791 3.1) that a packet begins with. Nothing if it is cut short.
pub fn ipv4_set_checksum(packet: &mut [u8]) {
    let length = packet
        .first()
        .map_or(0, |first| usize::from(first & 15) * 4);
    if length < IPV4 || packet.len() < length {
        return;
    }
    packet[10..12].fill(0);
    let checksum = !ones_complement_sum(&packet[..length]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// RFC 1071.
pub fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The fields of a Segment Routing Header (RFC 8754 2).
#[derive(Clone, Debug)]
pub struct Srh {
    /// In the order of the wire: the last segment of the path first.
    pub list: Vec<Ipv6Addr>,
    /// Field of this name.
    pub segments_left: u8,
    /// Eight bits.
    pub flags: u8,
    /// Sixteen bits.
    pub tag: u16,
    /// Filled up to a multiple of eight bytes.
    pub tlvs: Vec<u8>,
}

/// RFC 8754 2. Hdr Ext Len and Last Entry follow from list and TLVs.
pub fn srh(fields: &Srh, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let body: Vec<u8> = fields
        .list
        .iter()
        .flat_map(Ipv6Addr::octets)
        .chain(fields.tlvs.iter().copied())
        .collect();
    let last_entry = (fields.list.len() as u8).wrapping_sub(1);
    [
        &[
            next_header,
            (body.len() / 8) as u8,
            4,
            fields.segments_left,
            last_entry,
            fields.flags,
        ][..],
        &fields.tag.to_be_bytes(),
        &body,
        payload,
    ]
    .concat()
}

/// Hop-by-Hop or Destination options (RFC 8200 4.3, 4.6), filled up with `PadN` and `Pad1`.
pub fn options(next_header: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut header = [&[next_header, 0][..], options].concat();
    match (8 - header.len() % 8) % 8 {
        0 => {}
        1 => header.push(0),
        rest => {
            header.extend([1, rest as u8 - 2]);
            header.resize(header.len() + rest - 2, 0);
        }
    }
    header[1] = (header.len() / 8 - 1) as u8;
    header.extend(payload);
    header
}

/// RFC 8200 4.5.
pub fn fragment(next_header: u8, offset: u16, more: bool, id: u32, payload: &[u8]) -> Vec<u8> {
    [
        &[next_header, 0][..],
        &(offset << 3 | u16::from(more)).to_be_bytes(),
        &id.to_be_bytes(),
        payload,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_are_those_of_a_golden_vector() {
        // vectors/end_psp.yaml, end_psp_removes_the_srh: from Scapy.
        let expected = "6000000000382b40fc00aaaa000000000000000000000001fc0f0000000000000000000000000001\
                        1104040101000000fc0a0000000000000000000000000001fc0f0000000000000000000000000001\
                        1000003500109c2d7369646573746570";
        let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let list = vec![address("fc0a::1"), address("fc0f::1")];
        let udp = hex::decode("1000003500109c2d7369646573746570").expect("hex");
        let routing = srh(
            &Srh {
                list,
                segments_left: 1,
                flags: 0,
                tag: 0,
                tlvs: Vec::new(),
            },
            proto::UDP,
            &udp,
        );
        let fields = Ipv6 {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            source: address("fc00:aaaa::1"),
            destination: address("fc0f::1"),
        };
        let packet = ipv6(&fields, proto::ROUTING, &routing);
        assert_eq!(hex::encode(packet), expected);
    }

    #[test]
    fn options_are_filled_up_to_eight_bytes() {
        for length in 0..20 {
            let header = options(proto::UDP, &vec![0; length], &[]);
            assert_eq!(header.len() % 8, 0);
            assert_eq!(header.len(), (usize::from(header[1]) + 1) * 8);
        }
    }
}
