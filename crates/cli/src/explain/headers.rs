//! The headers of a frame, taken apart for people: names and values in the order of the wire.
//!
//! This only shows: it judges nothing and never fails. What cannot be read is said to be cut short, and what stands
//! behind the last header that is known is payload. The packet path reads frames on its own.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use sidestep_model::node::Mac;

/// LIMIT: headers of one frame that are shown.
pub const HEADERS_MAX: usize = 32;

/// A field's value. In JSON every number is a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, shown in decimal.
    Number(u64),
    /// A number, shown in hexadecimal with that many digits.
    Hex(u64, usize),
    /// A Next Header or protocol number, shown with its name.
    Protocol(u8),
    /// An `EtherType`, shown with its name.
    EtherType(u16),
    /// An address.
    Text(String),
    /// Segment List, Segment List\[0\] first.
    List(Vec<Ipv6Addr>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Hex(number, digits) => write!(f, "{number:#0width$x}", width = digits + 2),
            Self::Protocol(number) => write!(f, "{number}{}", protocol_name(*number)),
            Self::EtherType(number) => write!(f, "{number:#06x}{}", ethertype_name(*number)),
            Self::Text(text) => f.write_str(text),
            Self::List(list) => {
                let words: Vec<_> = list.iter().map(Ipv6Addr::to_string).collect();
                f.write_str(&words.join(","))
            }
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) | Self::Hex(number, _) => number.serialize(serializer),
            Self::Protocol(number) => number.serialize(serializer),
            Self::EtherType(number) => number.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
        }
    }
}

/// One header of a frame. Written as JSON it is one object: `header`, then the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is: `IPv6`, `SRH`, …
    pub name: &'static str,
    /// Its fields, by the names that their RFC gives them, in lower case.
    pub fields: Vec<(&'static str, Value)>,
}

impl Header {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            fields: Vec::new(),
        }
    }

    fn number(self, name: &'static str, value: impl Into<u64>) -> Self {
        self.value(name, Value::Number(value.into()))
    }

    fn text(self, name: &'static str, value: &impl ToString) -> Self {
        self.value(name, Value::Text(value.to_string()))
    }

    fn hex(self, name: &'static str, value: impl Into<u64>, digits: usize) -> Self {
        self.value(name, Value::Hex(value.into(), digits))
    }

    fn value(mut self, name: &'static str, value: Value) -> Self {
        self.fields.push((name, value));
        self
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    }
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let key = |name: &str| name.replace(' ', "_");
        let name = std::iter::once((key("header"), Value::Text(self.name.into())));
        serializer.collect_map(
            name.chain(
                self.fields
                    .iter()
                    .map(|(name, value)| (key(name), value.clone())),
            ),
        )
    }
}

/// Takes an Ethernet frame apart. The headers that an encapsulation carries are in it as well.
pub fn headers(frame: &[u8]) -> Vec<Header> {
    headers_of_head(frame, frame.len())
}

/// As [`headers`], of a frame of that length of which the first bytes are known.
pub fn headers_of_head(bytes: &[u8], length: usize) -> Vec<Header> {
    let mut reader = Reader {
        rest: bytes,
        unknown: length.saturating_sub(bytes.len()),
        headers: Vec::new(),
    };
    let mut next = Next::Ethernet;
    while next != Next::End && reader.headers.len() < HEADERS_MAX {
        next = reader.read(next);
    }
    reader.headers
}

/// Outer headers without what is each packet's own, as a dynamic proxy learns them: as JSON, and in words.
pub fn told(bytes: &[u8]) -> (Json, String) {
    let headers = outer_headers(bytes);
    let text: Vec<_> = headers.iter().map(words).collect();
    let json = serde_json::to_value(&headers).unwrap_or_default();
    (json, text.join("; "))
}

/// An IPv6 header with any Payload Length, and the extension headers behind it.
fn outer_headers(bytes: &[u8]) -> Vec<Header> {
    let mut bytes = bytes.to_vec();
    let payload = bytes.len().saturating_sub(40) as u16;
    if let Some(field) = bytes.get_mut(4..6) {
        field.copy_from_slice(&payload.to_be_bytes());
    }
    let mut reader = Reader {
        rest: &bytes,
        unknown: 0,
        headers: Vec::new(),
    };
    let mut next = Next::Protocol(IPV6);
    while !reader.rest.is_empty() && next != Next::End && reader.headers.len() < HEADERS_MAX {
        next = reader.read(next);
    }
    for header in &mut reader.headers {
        let packets = ["payload length", "traffic class", "flow label"];
        header.fields.retain(|(name, _)| !packets.contains(name));
    }
    reader.headers
}

/// What tells one chain from another.
fn words(header: &Header) -> String {
    let ordinary = ["next header", "last entry", "flags", "tag"];
    let fields = header.fields.iter();
    let fields = fields.filter(|(name, _)| !ordinary.contains(name));
    let fields: Vec<_> = fields
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    format!("{} {}", header.name, fields.join(", "))
}

/* IANA "Assigned Internet Protocol Numbers". */
const HOP_BY_HOP: u8 = 0;
const ICMP: u8 = 1;
const IPV4: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6: u8 = 41;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ICMPV6: u8 = 58;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION_OPTIONS: u8 = 60;
const SCTP: u8 = 132;
const ETHERNET: u8 = 143;

/* RFC 791 3.1, flags and fragment offset. */
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// What stands next in a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Ethernet,
    EtherType(u16),
    Protocol(u8),
    End,
}

struct Reader<'a> {
    rest: &'a [u8],
    /// Bytes behind them.
    unknown: usize,
    headers: Vec<Header>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, next: Next) -> Next {
        match next {
            Next::Ethernet | Next::Protocol(ETHERNET) => self.ethernet(),
            Next::EtherType(0x86dd) | Next::Protocol(IPV6) => self.ipv6(),
            Next::EtherType(0x0800) | Next::Protocol(IPV4) => self.ipv4(),
            Next::EtherType(0x8100 | 0x88a8) => self.vlan(),
            Next::Protocol(HOP_BY_HOP) => self.options("Hop-by-Hop Options"),
            Next::Protocol(DESTINATION_OPTIONS) => self.options("Destination Options"),
            Next::Protocol(ROUTING) => self.routing(),
            Next::Protocol(FRAGMENT) => self.fragment(),
            Next::Protocol(TCP) => self.ports("TCP", 20),
            Next::Protocol(UDP) => self.ports("UDP", 8),
            Next::Protocol(SCTP) => self.ports("SCTP", 12),
            Next::Protocol(ICMP) => self.icmp("ICMP"),
            Next::Protocol(ICMPV6) => self.icmp("ICMPv6"),
            Next::EtherType(_) | Next::Protocol(_) | Next::End => self.payload("payload"),
        }
    }

    /// The next `length` bytes, which then are read; none if there are fewer.
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn push(&mut self, header: Header, next: Next) -> Next {
        self.headers.push(header);
        next
    }

    /// What stands behind that many bytes is padding of the link.
    fn limit(&mut self, bytes: usize) {
        let known = self.rest.len().min(bytes);
        self.rest = &self.rest[..known];
        self.unknown = self.unknown.min(bytes - known);
    }

    fn payload(&mut self, name: &'static str) -> Next {
        let bytes = self.rest.len() + self.unknown;
        if bytes > 0 || name != "payload" {
            self.headers
                .push(Header::new(name).number("bytes", bytes as u64));
        }
        Next::End
    }

    fn ethernet(&mut self) -> Next {
        let Some(bytes) = self.take(14) else {
            return self.payload("Ethernet, cut short");
        };
        let header = Header::new("Ethernet")
            .text("source", &mac(bytes, 6))
            .text("destination", &mac(bytes, 0));
        let ethertype = u16_at(bytes, 12);
        self.push(
            header.value("type", Value::EtherType(ethertype)),
            Next::EtherType(ethertype),
        )
    }

    fn vlan(&mut self) -> Next {
        let Some(bytes) = self.take(4) else {
            return self.payload("VLAN tag, cut short");
        };
        let (tag, ethertype) = (u16_at(bytes, 0), u16_at(bytes, 2));
        let header = Header::new("VLAN tag")
            .number("priority", tag >> 13)
            .number("id", tag & 0xfff);
        self.push(
            header.value("type", Value::EtherType(ethertype)),
            Next::EtherType(ethertype),
        )
    }

    fn ipv6(&mut self) -> Next {
        let Some(bytes) = self.take(40) else {
            return self.payload("IPv6, cut short");
        };
        let first = u32_at(bytes, 0);
        let (length, next) = (u16_at(bytes, 4), bytes[6]);
        self.limit(length.into());
        let header = Header::new("IPv6")
            .text("source", &ipv6(bytes, 8))
            .text("destination", &ipv6(bytes, 24))
            .value("next header", Value::Protocol(next))
            .number("hop limit", bytes[7])
            .number("payload length", length)
            .hex("traffic class", first >> 20 & 0xff, 2)
            .hex("flow label", first & 0xf_ffff, 5);
        self.push(header, Next::Protocol(next))
    }

    fn ipv4(&mut self) -> Next {
        let Some(bytes) = self.take(20) else {
            return self.payload("IPv4, cut short");
        };
        let (length, protocol) = (u16_at(bytes, 2), bytes[9]);
        self.limit(usize::from(length).saturating_sub(20));
        let mut header = Header::new("IPv4")
            .text("source", &ipv4(bytes, 12))
            .text("destination", &ipv4(bytes, 16))
            .value("protocol", Value::Protocol(protocol))
            .number("ttl", bytes[8])
            .number("total length", length)
            .hex("tos", bytes[1], 2)
            .hex("header checksum", u16_at(bytes, 10), 4);
        let fragment = u16_at(bytes, 6);
        if fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0 {
            header = header.number("fragment offset", fragment & FRAGMENT_OFFSET);
            header = header.number("more fragments", fragment >> 13 & 1);
        }
        let options = (usize::from(bytes[0] & 15) * 4).saturating_sub(20);
        if options > 0 {
            header = header.number("bytes of options", options as u64);
        }
        let known = self.take(options).is_some() && fragment & FRAGMENT_OFFSET == 0;
        self.push(
            header,
            if known {
                Next::Protocol(protocol)
            } else {
                Next::EtherType(0)
            },
        )
    }

    /// A header whose second byte counts its 8-byte units behind the first.
    fn extension(&mut self, name: &'static str) -> Result<&'a [u8], Next> {
        let length = self
            .rest
            .get(1)
            .map_or(usize::MAX, |units| (usize::from(*units) + 1) * 8);
        self.take(length).ok_or_else(|| self.payload(name))
    }

    fn options(&mut self, name: &'static str) -> Next {
        let bytes = match self.extension("extension header, cut short") {
            Ok(bytes) => bytes,
            Err(next) => return next,
        };
        let header = Header::new(name).value("next header", Value::Protocol(bytes[0]));
        self.push(
            header.number("bytes", bytes.len() as u64),
            Next::Protocol(bytes[0]),
        )
    }

    fn routing(&mut self) -> Next {
        let bytes = match self.extension("Routing header, cut short") {
            Ok(bytes) => bytes,
            Err(next) => return next,
        };
        let next = bytes[0];
        let name = if bytes[2] == 4 {
            "SRH"
        } else {
            "Routing header"
        };
        let mut header = Header::new(name).value("next header", Value::Protocol(next));
        if bytes[2] == 4 {
            let (list, tlvs) = segment_list(bytes);
            header = header
                .number("segments left", bytes[3])
                .number("last entry", bytes[4])
                .hex("flags", bytes[5], 2)
                .number("tag", u16_at(bytes, 6));
            header = header.value("segment list", Value::List(list));
            if tlvs > 0 {
                header = header.number("bytes of tlvs", tlvs as u64);
            }
        } else {
            header = header
                .number("routing type", bytes[2])
                .number("segments left", bytes[3]);
        }
        self.push(header, Next::Protocol(next))
    }

    fn fragment(&mut self) -> Next {
        let Some(bytes) = self.take(8) else {
            return self.payload("Fragment header, cut short");
        };
        let offset = u16_at(bytes, 2);
        let header = Header::new("Fragment header")
            .value("next header", Value::Protocol(bytes[0]))
            .number("fragment offset", offset >> 3)
            .number("more fragments", offset & 1)
            .hex("identification", u32_at(bytes, 4), 8);
        self.push(
            header,
            if offset >> 3 == 0 {
                Next::Protocol(bytes[0])
            } else {
                Next::EtherType(0)
            },
        )
    }

    fn ports(&mut self, name: &'static str, length: usize) -> Next {
        let Some(bytes) = self.take(length) else {
            return self.payload(name);
        };
        let header = Header::new(name).number("source port", u16_at(bytes, 0));
        self.push(
            header.number("destination port", u16_at(bytes, 2)),
            Next::End,
        );
        self.payload("payload")
    }

    fn icmp(&mut self, name: &'static str) -> Next {
        let Some(bytes) = self.take(4) else {
            return self.payload(name);
        };
        self.push(
            Header::new(name)
                .number("type", bytes[0])
                .number("code", bytes[1]),
            Next::End,
        );
        self.payload("payload")
    }
}

/// The Segment List as far as the SRH holds it, and the bytes behind it.
fn segment_list(srh: &[u8]) -> (Vec<Ipv6Addr>, usize) {
    let entries = (usize::from(srh[4]) + 1).min((srh.len() - 8) / 16);
    (
        (0..entries)
            .map(|entry| ipv6(srh, 8 + 16 * entry))
            .collect(),
        srh.len() - 8 - 16 * entries,
    )
}

/* `bytes` holds the field at `at`: the callers took as many bytes as the header has. */

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

fn mac(bytes: &[u8], at: usize) -> Mac {
    let mut mac = [0; 6];
    mac.copy_from_slice(&bytes[at..at + 6]);
    Mac(mac)
}

fn ipv4(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32_at(bytes, at))
}

fn ipv6(bytes: &[u8], at: usize) -> Ipv6Addr {
    let mut address = [0; 16];
    address.copy_from_slice(&bytes[at..at + 16]);
    Ipv6Addr::from(address)
}

fn ethertype_name(ethertype: u16) -> &'static str {
    match ethertype {
        0x0800 => " IPv4",
        0x0806 => " ARP",
        0x8100 => " 802.1Q",
        0x86dd => " IPv6",
        0x88a8 => " 802.1ad",
        0x88cc => " LLDP",
        _ => "",
    }
}

fn protocol_name(protocol: u8) -> &'static str {
    match protocol {
        HOP_BY_HOP => " Hop-by-Hop",
        ICMP => " ICMP",
        IPV4 => " IPv4",
        TCP => " TCP",
        UDP => " UDP",
        IPV6 => " IPv6",
        ROUTING => " Routing",
        FRAGMENT => " Fragment",
        ICMPV6 => " ICMPv6",
        NO_NEXT_HEADER => " none",
        DESTINATION_OPTIONS => " Destination",
        SCTP => " SCTP",
        ETHERNET => " Ethernet",
        _ => "",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| {
            u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex")
        };
        digits.chunks(2).map(byte).collect()
    }

    /// IPv6, SRH of two segments, UDP; from `vectors/end.yaml`.
    pub(crate) const SRV6: &str = "020000000001 020000000011 86dd
        60000000 0038 2b 40 fc00aaaa000000000000000000000001 fc0f0000000000000000000000000001
        11 04 04 01 01 00 0000 fc0a0000000000000000000000000001 fc0f0000000000000000000000000001
        1000 0035 0010 9c2d 7369646573746570";

    fn names(frame: &[u8]) -> Vec<&'static str> {
        headers(frame).iter().map(|header| header.name).collect()
    }

    #[test]
    fn an_srv6_packet_is_taken_apart_down_to_its_ports() {
        let headers = headers(&hex(SRV6));
        let field =
            |header: usize, name: &str| headers[header].field(name).expect(name).to_string();
        assert_eq!(
            names(&hex(SRV6)),
            ["Ethernet", "IPv6", "SRH", "UDP", "payload"]
        );
        assert_eq!(field(0, "source"), "02:00:00:00:00:11");
        assert_eq!(field(1, "destination"), "fc0f::1");
        assert_eq!(field(1, "next header"), "43 Routing");
        assert_eq!(field(2, "segments left"), "1");
        assert_eq!(field(2, "segment list"), "fc0a::1,fc0f::1");
        assert_eq!(field(3, "destination port"), "53");
        assert_eq!(field(4, "bytes"), "8");
    }

    #[test]
    fn json_says_the_header_and_its_fields() {
        let json = serde_json::to_value(&headers(&hex(SRV6))[2]).expect("JSON");
        let expected = serde_json::json!({
            "header": "SRH", "next_header": 17, "segments_left": 1, "last_entry": 1, "flags": 0, "tag": 0,
            "segment_list": ["fc0a::1", "fc0f::1"],
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn learned_headers_are_told_without_what_is_each_packets_own() {
        let learned = hex(
            "60000000 0000 2b 3f fc00aaaa000000000000000000000001 fc0f0000000000000000000000000001
            29 05 04 01 01 00 0000 fc0a0000000000000000000000000001 fc0f0000000000000000000000000001
            7c 06 000000000000",
        );
        let (json, text) = told(&learned);
        assert_eq!(
            text,
            "IPv6 source fc00:aaaa::1, destination fc0f::1, hop limit 63; \
             SRH segments left 1, segment list fc0a::1,fc0f::1, bytes of tlvs 8"
        );
        let ipv6 = serde_json::json!({
            "header": "IPv6", "source": "fc00:aaaa::1", "destination": "fc0f::1", "next_header": 43, "hop_limit": 63,
        });
        assert_eq!(json[0], ipv6);
        assert_eq!(json.as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_frame_cut_anywhere_is_shown_as_far_as_it_goes() {
        let frame = hex(SRV6);
        let whole = names(&frame);
        for length in 0..frame.len() {
            let cut = names(&frame[..length]);
            let same = cut.iter().zip(&whole).take_while(|(a, b)| a == b).count();
            assert!(same + 1 >= cut.len(), "cut at {length}: {cut:?}");
        }
    }

    #[test]
    fn of_a_head_the_payload_has_the_bytes_that_the_frame_had() {
        let frame = hex(SRV6);
        let bytes =
            |headers: &[Header]| headers.last().and_then(|last| last.field("bytes").cloned());
        // Cut within the payload: nothing is missing but bytes that are not shown anyway.
        let head = headers_of_head(&frame[..frame.len() - 5], frame.len());
        assert_eq!(head, headers(&frame));
        // Padding behind the packet is none of it, known or not.
        let padded = headers_of_head(&frame[..frame.len() - 5], frame.len() + 100);
        assert_eq!(padded, headers(&frame));
        // Within a header: said.
        let head = headers_of_head(&frame[..14 + 40 + 8], frame.len());
        assert_eq!(head[2].name, "Routing header, cut short");
        assert_eq!(bytes(&head), Some(Value::Number(frame.len() as u64 - 54)));
    }

    #[test]
    fn no_bytes_at_all_can_make_it_fail_or_run_on() {
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let mut frame = hex(SRV6);
            for _ in 0..4 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % frame.len();
                frame[at] = (state >> 20) as u8;
            }
            assert!(headers(&frame).len() <= HEADERS_MAX);
        }
        let mut deep = hex("020000000001 020000000011 0800");
        for _ in 0..100 {
            deep.extend(hex("45000fa0 00000000 4004 0000 0a000001 0a000002"));
        }
        assert_eq!(headers(&deep).len(), HEADERS_MAX);
    }
}
