//! The frame that the demo sends, and frames in words: one line per header.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::lab::mac_text;

/// A UDP packet from host a to host b, from its destination MAC on.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    /// MAC of the ingress router's port.
    pub destination: [u8; 6],
    /// MAC of host a.
    pub source: [u8; 6],
    /// Address of host a.
    pub from: Ipv6Addr,
    /// Address of host b.
    pub to: Ipv6Addr,
    /// Destination port; 9 is discard.
    pub port: u16,
    /// What it carries.
    pub payload: &'a [u8],
}

impl Udp<'_> {
    /// The bytes, with a right checksum, Hop Limit 64 and Flow Label 0.
    pub fn frame(&self) -> Vec<u8> {
        let length = (8 + self.payload.len()) as u16;
        let mut udp = Vec::with_capacity(usize::from(length));
        udp.extend(SOURCE_PORT.to_be_bytes());
        udp.extend(self.port.to_be_bytes());
        udp.extend(length.to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(self.payload);
        let checksum = self.checksum(&udp);
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        let mut frame = [&self.destination[..], &self.source, &[0x86, 0xdd]].concat();
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([UDP, 64]);
        frame.extend(self.from.octets());
        frame.extend(self.to.octets());
        frame.extend(udp);
        frame
    }

    /// RFC 8200 8.1: over the pseudo-header too.
    fn checksum(&self, udp: &[u8]) -> u16 {
        let mut sum = udp.len() as u32 + u32::from(UDP);
        for part in [&self.from.octets()[..], &self.to.octets(), udp] {
            for pair in part.chunks(2) {
                let low = pair.get(1).copied().unwrap_or_default();
                sum += u32::from(u16::from_be_bytes([pair[0], low]));
            }
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        match !(sum as u16) {
            0 => 0xffff,
            checksum => checksum,
        }
    }
}

/// The headers of a frame, one line each, from the outside in; the last line says what is left.
pub fn headers(frame: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut reader, mut next) = (Reader(frame), Header::Ethernet);
    // A header that is cut short is payload; it has taken some of its bytes from the copy only.
    let mut ahead = reader;
    while let Some(after) = parse(next, &mut ahead, &mut lines) {
        (reader, next) = (ahead, after);
    }
    if !reader.0.is_empty() {
        lines.push(format!("{:<9}{} bytes", "payload", reader.0.len()));
    }
    lines
}

/// What comes next.
#[derive(Clone, Copy)]
enum Header {
    Ethernet,
    EtherType(u16),
    /// An IP protocol number, which an IPv6 Next Header is too.
    Protocol(u8),
    Payload,
}

/// One header, and what comes behind it; none if it is cut short, or nothing that has a name here.
fn parse(header: Header, reader: &mut Reader<'_>, lines: &mut Vec<String>) -> Option<Header> {
    match header {
        Header::Ethernet | Header::Protocol(143) => ethernet(reader, lines),
        Header::EtherType(0x86dd) | Header::Protocol(41) => ipv6(reader, lines),
        Header::EtherType(0x0800) | Header::Protocol(4) => ipv4(reader, lines),
        Header::Protocol(43) => routing(reader, lines),
        Header::Protocol(UDP) => udp(reader, lines),
        Header::EtherType(_) | Header::Protocol(_) | Header::Payload => None,
    }
}

fn ethernet(reader: &mut Reader<'_>, lines: &mut Vec<String>) -> Option<Header> {
    let (destination, source): ([u8; 6], [u8; 6]) = (reader.take()?, reader.take()?);
    let kind = u16::from_be_bytes(reader.take()?);
    lines.push(format!(
        "{:<9}{} > {}",
        "Ethernet",
        mac_text(source),
        mac_text(destination)
    ));
    Some(Header::EtherType(kind))
}

fn ipv6(reader: &mut Reader<'_>, lines: &mut Vec<String>) -> Option<Header> {
    let first: [u8; 4] = reader.take()?;
    let length = u16::from_be_bytes(reader.take()?);
    let [next, hop_limit]: [u8; 2] = reader.take()?;
    let (source, destination): ([u8; 16], [u8; 16]) = (reader.take()?, reader.take()?);
    let label = u32::from_be_bytes(first) & 0xf_ffff;
    let (source, destination) = (Ipv6Addr::from(source), Ipv6Addr::from(destination));
    lines.push(format!(
        "{:<9}{source} > {destination}  hop limit {hop_limit}, label {label:#07x}, {length} bytes",
        "IPv6",
    ));
    Some(Header::Protocol(next))
}

fn ipv4(reader: &mut Reader<'_>, lines: &mut Vec<String>) -> Option<Header> {
    let first: [u8; 8] = reader.take()?;
    let [ttl, protocol]: [u8; 2] = reader.take()?;
    let _checksum: [u8; 2] = reader.take()?;
    let (source, destination): ([u8; 4], [u8; 4]) = (reader.take()?, reader.take()?);
    reader.skip((usize::from(first[0] & 0xf) * 4).checked_sub(20)?)?;
    let length = u16::from_be_bytes([first[2], first[3]]);
    let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
    lines.push(format!(
        "{:<9}{source} > {destination}  TTL {ttl}, {length} bytes",
        "IPv4",
    ));
    Some(Header::Protocol(protocol))
}

/// RFC 8754 2. A routing header of another type is named only.
fn routing(reader: &mut Reader<'_>, lines: &mut Vec<String>) -> Option<Header> {
    let [next, length, kind, left]: [u8; 4] = reader.take()?;
    let mut body = reader.split(usize::from(length) * 8 + 4)?;
    if kind != 4 {
        lines.push(format!("{:<9}type {kind}", "Routing"));
        return Some(Header::Protocol(next));
    }
    let [last, _flags, _tag, _]: [u8; 4] = body.take()?;
    let mut text = format!("{:<9}Segments Left {left}, list", "SRH");
    for number in 0..=last {
        let segment = Ipv6Addr::from(body.take::<16>()?);
        // The text of a String never fails.
        let _ = write!(text, " [{number}] {segment}");
    }
    lines.push(text);
    Some(Header::Protocol(next))
}

fn udp(reader: &mut Reader<'_>, lines: &mut Vec<String>) -> Option<Header> {
    let (source, destination): ([u8; 2], [u8; 2]) = (reader.take()?, reader.take()?);
    let _length_and_checksum: [u8; 4] = reader.take()?;
    let (source, destination) = (u16::from_be_bytes(source), u16::from_be_bytes(destination));
    lines.push(format!("{:<9}{source} > {destination}", "UDP"));
    Some(Header::Payload)
}

/// What is not read yet.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn split(&mut self, length: usize) -> Option<Reader<'a>> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Reader(taken))
    }

    fn skip(&mut self, length: usize) -> Option<()> {
        self.split(length).map(|_| ())
    }
}

/// The discard service: nobody answers.
pub const DISCARD: u16 = 9;
/// IANA, Protocol Numbers.
const UDP: u8 = 17;
const SOURCE_PORT: u16 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Vec<u8> {
        Udp {
            destination: [2, 0, 0, 0, 0, 2],
            source: [2, 0, 0, 0, 0, 1],
            from: Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 2),
            to: Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 2),
            port: 9,
            payload: b"hi",
        }
        .frame()
    }

    #[test]
    fn a_packet_has_the_length_and_checksum_that_rfc_8200_asks_for() {
        let frame = packet();
        assert_eq!(frame.len(), 64);
        // By hand: ones' complement sum of the pseudo-header, the ports 0x1000 and 9, twice the length 10, and "hi":
        // 0x2001+0xdb8+0xa+2 + 0x2001+0xdb8+0xb+2 + 10+17 + 0x1000+9+10 + 0x6869 = 0xd422.
        assert_eq!(frame[60..62], (!0xd422u16).to_be_bytes());
    }

    #[test]
    fn the_headers_of_an_encapsulated_packet_are_named_from_the_outside_in() {
        let inner = packet();
        let mut frame = inner[..14].to_vec();
        frame.extend([0x60, 0, 0, 0, 0, 90, 43, 63]);
        frame.extend([0xfc; 32]);
        frame.extend([41, 4, 4, 1, 1, 0, 0, 0]);
        frame.extend(Ipv6Addr::new(0xfc00, 3, 0, 0, 0, 0, 0, 0xd6).octets());
        frame.extend(Ipv6Addr::new(0xfc00, 2, 0, 0, 0, 0, 0, 0xe).octets());
        frame.extend(&inner[14..]);
        let lines = headers(&frame);
        assert_eq!(lines[0], "Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02");
        assert_eq!(
            lines[2],
            "SRH      Segments Left 1, list [0] fc00:3::d6 [1] fc00:2::e"
        );
        assert_eq!(
            lines[3],
            "IPv6     2001:db8:a::2 > 2001:db8:b::2  hop limit 64, label 0x00000, 10 bytes"
        );
        assert_eq!(lines[4..], ["UDP      4096 > 9", "payload  2 bytes"]);
    }

    #[test]
    fn a_frame_that_is_cut_short_is_named_as_far_as_it_goes() {
        let lines_at = [
            (0, 0),
            (13, 1),
            (14, 1),
            (15, 2),
            (53, 2),
            (54, 2),
            (55, 3),
            (62, 3),
            (63, 4),
        ];
        for (length, lines) in lines_at {
            assert_eq!(headers(&packet()[..length]).len(), lines, "{length} bytes");
        }
    }
}
