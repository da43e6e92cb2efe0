//! The headers of a frame as names and values, in wire order, for text and JSON.
//!
//! Decoding never fails and judges nothing. A header with missing bytes is reported as cut short.
//! Everything behind the last known header is payload.

use std::fmt::{self, Display, Formatter};
use std::net::Ipv6Addr;

use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use sidestep_model::node::Mac;
use sidestep_wire::field::srh as field;
use sidestep_wire::{
    self as wire, EtherType, Headers, IcmpView, Ipv4View, Layer, Next, Protocol, RoutingType,
    RoutingView,
};

/// LIMIT: headers of one frame that are printed.
pub const HEADERS_MAX: usize = 32;

/// Value of a field. JSON has every number as a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, printed in decimal.
    Number(u64),
    /// A number and its count of hexadecimal digits.
    Hex(u64, usize),
    /// A Next Header or protocol number, printed with its name.
    Protocol(Protocol),
    /// An `EtherType`, printed with its name.
    EtherType(EtherType),
    /// An address.
    Text(String),
    /// Segment List, Segment List\[0\] first.
    List(Vec<Ipv6Addr>),
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Hex(number, digits) => write!(f, "{number:#0width$x}", width = digits + 2),
            Self::Protocol(number) => named(f, number.0, number.name()),
            Self::EtherType(number) => named(f, format_args!("{:#06x}", number.0), number.name()),
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
            Self::Protocol(number) => number.0.serialize(serializer),
            Self::EtherType(number) => number.0.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
        }
    }
}

/// One header of a frame. Its JSON form is one object: `header`, then the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name of the header: `IPv6`, `SRH`, ...
    pub name: &'static str,
    /// Fields with the names of their RFC, in lower case.
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

    fn next(self, next_header: Protocol) -> Self {
        self.value("next header", Value::Protocol(next_header))
    }

    fn value(mut self, name: &'static str, value: Value) -> Self {
        self.fields.push((name, value));
        self
    }

    /// Returns the field with this name.
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

/// Decodes an Ethernet frame, with the headers that an encapsulation carries.
pub fn headers(frame: &[u8]) -> Vec<Header> {
    headers_of_head(frame, frame.len())
}

/// Decodes the first bytes of a frame that has `length` bytes.
pub fn headers_of_head(bytes: &[u8], length: usize) -> Vec<Header> {
    let mut layers = Headers::frame(bytes).with_length(length);
    let mut headers: Vec<_> = layers
        .by_ref()
        .take(HEADERS_MAX)
        .map(|it| fields(&it))
        .collect();
    if headers.len() < HEADERS_MAX {
        headers.extend(end(&layers));
    }
    headers
}

/// Returns outer headers as a dynamic proxy learns them, as JSON and as text.
///
/// Fields that differ between the packets of one flow are left out.
pub fn learned(bytes: &[u8]) -> (Json, String) {
    let layers = Headers::starting(Next::Protocol(Protocol::IPV6), bytes).ignore_lengths();
    let varying = ["payload length", "traffic class", "flow label"];
    let mut headers: Vec<_> = layers.take(HEADERS_MAX).map(|it| fields(&it)).collect();
    for header in &mut headers {
        header.fields.retain(|(name, _)| !varying.contains(name));
    }
    let text: Vec<_> = headers.iter().map(summary).collect();
    let json = serde_json::to_value(&headers).unwrap_or_default();
    (json, text.join("; "))
}

/// Name and distinctive fields of a learned header.
fn summary(header: &Header) -> String {
    let ordinary = ["next header", "last entry", "flags", "tag"];
    let fields = header.fields.iter();
    let fields = fields.filter(|(name, _)| !ordinary.contains(name));
    let fields: Vec<_> = fields
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    format!("{} {}", header.name, fields.join(", "))
}

/// The payload, or the header that is truncated, with its bytes in the frame.
fn end(layers: &Headers<'_>) -> Option<Header> {
    let name = match layers.next_header() {
        Next::Payload => "payload",
        Next::Ethernet | Next::Protocol(Protocol::ETHERNET) => "Ethernet, cut short",
        Next::EtherType(EtherType::IPV4) | Next::Protocol(Protocol::IPV4) => "IPv4, cut short",
        Next::EtherType(EtherType::IPV6) | Next::Protocol(Protocol::IPV6) => "IPv6, cut short",
        Next::EtherType(_) => "VLAN tag, cut short",
        Next::Protocol(Protocol::ROUTING) => "Routing header, cut short",
        Next::Protocol(Protocol::FRAGMENT) => "Fragment header, cut short",
        Next::Protocol(Protocol::TCP) => "TCP",
        Next::Protocol(Protocol::UDP) => "UDP",
        Next::Protocol(Protocol::SCTP) => "SCTP",
        Next::Protocol(Protocol::ICMP) => "ICMP",
        Next::Protocol(Protocol::ICMPV6) => "ICMPv6",
        Next::Protocol(_) => "extension header, cut short",
    };
    let bytes = layers.remaining();
    (bytes > 0 || name != "payload").then(|| Header::new(name).number("bytes", bytes as u64))
}

/// The fields of one header, in the order in which they are printed.
fn fields(layer: &Layer<'_>) -> Header {
    match layer.header {
        wire::Header::Ethernet(it) => Header::new("Ethernet")
            .text("source", &Mac(it.source()))
            .text("destination", &Mac(it.destination()))
            .value("type", Value::EtherType(it.ethertype())),
        wire::Header::Vlan(it) => Header::new("VLAN tag")
            .number("priority", it.priority())
            .number("id", it.id())
            .value("type", Value::EtherType(it.ethertype())),
        wire::Header::Ipv6(it) => Header::new("IPv6")
            .text("source", &it.source())
            .text("destination", &it.destination())
            .next(it.next_header())
            .number("hop limit", it.hop_limit())
            .number("payload length", it.payload_length())
            .hex("traffic class", it.traffic_class(), 2)
            .hex("flow label", it.flow_label(), 5),
        wire::Header::Ipv4(it) => ipv4(&it),
        wire::Header::HopByHop(it) => options("Hop-by-Hop Options", it.next_header(), layer),
        wire::Header::Destination(it) => options("Destination Options", it.next_header(), layer),
        wire::Header::Authentication(it) => options("Authentication", it.next_header(), layer),
        wire::Header::Routing(it) if it.routing_type() == RoutingType::SRH => srh(&it),
        wire::Header::Routing(it) => Header::new("Routing header")
            .next(it.next_header())
            .number("routing type", it.routing_type().0)
            .number("segments left", it.segments_left()),
        wire::Header::Fragment(it) => Header::new("Fragment header")
            .next(it.next_header())
            .number("fragment offset", it.offset())
            .number("more fragments", it.more_fragments())
            .hex("identification", it.identification(), 8),
        wire::Header::Tcp(it) => ports("TCP", it.source_port(), it.destination_port()),
        wire::Header::Udp(it) => ports("UDP", it.source_port(), it.destination_port()),
        wire::Header::Sctp(it) => ports("SCTP", it.source_port(), it.destination_port()),
        wire::Header::Icmpv4(it) => icmp("ICMP", &it),
        wire::Header::Icmpv6(it) => icmp("ICMPv6", &it),
    }
}

fn ipv4(view: &Ipv4View<'_>) -> Header {
    let mut header = Header::new("IPv4")
        .text("source", &view.source())
        .text("destination", &view.destination())
        .value("protocol", Value::Protocol(view.protocol()))
        .number("ttl", view.ttl())
        .number("total length", view.total_length())
        .hex("tos", view.tos(), 2)
        .hex("header checksum", view.checksum(), 4);
    if view.more_fragments() || view.fragment_offset() > 0 {
        header = header.number("fragment offset", view.fragment_offset());
        header = header.number("more fragments", view.more_fragments());
    }
    match view.options().len() {
        0 => header,
        bytes => header.number("bytes of options", bytes as u64),
    }
}

fn options(name: &'static str, next_header: Protocol, layer: &Layer<'_>) -> Header {
    Header::new(name)
        .next(next_header)
        .number("bytes", layer.length as u64)
}

/// The fields of an SRH. One whose fields contradict each other is shown as far as it goes.
fn srh(view: &RoutingView<'_>) -> Header {
    let bytes = view.bytes();
    let [last_entry, flags] = [field::LAST_ENTRY, field::FLAGS].map(|at| bytes[at]);
    let tag = u16::from_be_bytes([bytes[field::TAG], bytes[field::TAG + 1]]);
    let (segments, _) = bytes[field::SEGMENT_LIST..].as_chunks::<16>();
    let entries = segments.len().min(usize::from(last_entry) + 1);
    let list = segments[..entries].iter().map(|it| Ipv6Addr::from(*it));
    let header = Header::new("SRH")
        .next(view.next_header())
        .number("segments left", view.segments_left())
        .number("last entry", last_entry)
        .hex("flags", flags, 2)
        .number("tag", tag)
        .value("segment list", Value::List(list.collect()));
    match bytes.len() - field::SEGMENT_LIST - 16 * entries {
        0 => header,
        tlvs => header.number("bytes of tlvs", tlvs as u64),
    }
}

fn ports(name: &'static str, source: u16, destination: u16) -> Header {
    Header::new(name)
        .number("source port", source)
        .number("destination port", destination)
}

fn icmp(name: &'static str, view: &IcmpView<'_>) -> Header {
    Header::new(name)
        .number("type", view.kind())
        .number("code", view.code())
}

/// A number with its name, if it has one.
fn named(f: &mut Formatter<'_>, number: impl Display, name: Option<&str>) -> fmt::Result {
    match name {
        Some(name) => write!(f, "{number} {name}"),
        None => write!(f, "{number}"),
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
    fn an_srv6_packet_is_decoded_down_to_its_ports() {
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
    fn json_has_the_header_and_its_fields() {
        let json = serde_json::to_value(&headers(&hex(SRV6))[2]).expect("JSON");
        let expected = serde_json::json!({
            "header": "SRH", "next_header": 17, "segments_left": 1, "last_entry": 1, "flags": 0, "tag": 0,
            "segment_list": ["fc0a::1", "fc0f::1"],
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn learned_headers_have_no_fields_that_differ_between_packets() {
        let bytes = hex(
            "60000000 0000 2b 3f fc00aaaa000000000000000000000001 fc0f0000000000000000000000000001
            29 05 04 01 01 00 0000 fc0a0000000000000000000000000001 fc0f0000000000000000000000000001
            7c 06 000000000000",
        );
        let (json, text) = learned(&bytes);
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
    fn a_truncated_frame_is_decoded_as_far_as_it_goes() {
        let frame = hex(SRV6);
        let whole = names(&frame);
        for length in 0..frame.len() {
            let cut = names(&frame[..length]);
            let same = cut.iter().zip(&whole).take_while(|(a, b)| a == b).count();
            assert!(same + 1 >= cut.len(), "cut at {length}: {cut:?}");
        }
    }

    #[test]
    fn the_payload_of_a_truncated_frame_has_its_full_length() {
        let frame = hex(SRV6);
        let bytes =
            |headers: &[Header]| headers.last().and_then(|last| last.field("bytes").cloned());
        // A cut within the payload changes nothing: its bytes are not printed.
        let head = headers_of_head(&frame[..frame.len() - 5], frame.len());
        assert_eq!(head, headers(&frame));
        // Padding behind the packet does not count, whether it is present or not.
        let padded = headers_of_head(&frame[..frame.len() - 5], frame.len() + 100);
        assert_eq!(padded, headers(&frame));
        // A cut within a header is reported.
        let head = headers_of_head(&frame[..14 + 40 + 8], frame.len());
        assert_eq!(head[2].name, "Routing header, cut short");
        assert_eq!(bytes(&head), Some(Value::Number(frame.len() as u64 - 54)));
    }

    #[test]
    fn random_bytes_neither_fail_nor_exceed_the_limit() {
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
