//! Views and owned forms against bytes from Scapy (`vectors/`) and from the RFCs.

use std::net::{Ipv4Addr, Ipv6Addr};

use sidestep_wire::{
    Ends, EtherType, Ethernet, Header, Headers, Hmac, Icmp, Icmpv4Type, Icmpv6Type, Ipv4, Ipv6,
    Next, Options, OptionsView, Protocol, RoutingView, Srh, SrhError, Tlv, Udp, Vlan, checksum,
};

fn bytes(text: &str) -> Vec<u8> {
    hex::decode(text.split_whitespace().collect::<String>()).expect("hexadecimal digits")
}

fn ip(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn names(headers: impl Iterator<Item = impl std::fmt::Debug>) -> Vec<String> {
    let name = |text: String| text.split(&['(', ' '][..]).next().unwrap_or("").to_owned();
    headers.map(|header| name(format!("{header:?}"))).collect()
}

/// `vectors/end_psp.yaml`, `end_psp_removes_the_srh`: Ethernet, IPv6, SRH with two segments, UDP.
const SRV6: &str = "020000000001 020000000011 86dd
    60000000 0038 2b 40 fc00aaaa000000000000000000000001 fc0f0000000000000000000000000001
    11 04 04 01 01 00 0000 fc0a0000000000000000000000000001 fc0f0000000000000000000000000001
    1000 0035 0010 9c2d 7369646573746570";

#[test]
fn emitted_headers_equal_those_of_scapy() {
    // A UDP checksum in front of an SRH covers the last segment (RFC 8200 8.1).
    let ends = Ends::new(ip("fc00:aaaa::1"), ip("fc0a::1"));
    let udp = Udp {
        source_port: 4096,
        destination_port: 53,
    };
    let list = vec![ip("fc0a::1"), ip("fc0f::1")];
    let srh = Srh::new(Protocol::UDP, 1, list).emit(&udp.emit(b"sidestep", ends));
    let ipv6 = Ipv6::new(ip("fc00:aaaa::1"), ip("fc0f::1"), Protocol::ROUTING).emit(&srh);
    let ethernet = Ethernet {
        destination: [2, 0, 0, 0, 0, 1],
        source: [2, 0, 0, 0, 0, 0x11],
        ethertype: EtherType::IPV6,
    };
    assert_eq!(ethernet.emit(&ipv6), bytes(SRV6));
}

#[test]
fn a_frame_is_decoded_down_to_udp() {
    let frame = bytes(SRV6);
    let mut headers = Headers::frame(&frame);
    let layers: Vec<_> = headers.by_ref().collect();
    let offsets: Vec<_> = layers.iter().map(|layer| layer.offset).collect();
    assert_eq!(offsets, [0, 14, 54, 94]);
    assert_eq!(
        (headers.remaining(), headers.next_header()),
        (8, Next::Payload)
    );
    let Header::Routing(routing) = layers[2].header else {
        panic!("{:?}", layers[2]);
    };
    let srh = routing.srh().expect("an SRH");
    assert_eq!((srh.segments_left(), srh.last_entry()), (1, 1));
    assert!(srh.segment_list().eq([ip("fc0a::1"), ip("fc0f::1")]));
    assert_eq!(srh.tlvs().count(), 0);
    let Header::Udp(udp) = layers[3].header else {
        panic!("{:?}", layers[3]);
    };
    assert_eq!((udp.source_port(), udp.destination_port()), (4096, 53));
    assert_eq!((udp.length(), udp.checksum()), (16, 0x9c2d));
}

#[test]
fn decoding_stops_at_a_truncated_header() {
    let frame = bytes(SRV6);
    for (length, count, next) in [
        (13, 0, Next::Ethernet),
        (53, 1, Next::EtherType(EtherType::IPV6)),
        (93, 2, Next::Protocol(Protocol::ROUTING)),
        (101, 3, Next::Protocol(Protocol::UDP)),
    ] {
        let mut headers = Headers::frame(&frame[..length]).with_length(frame.len());
        assert_eq!(headers.by_ref().count(), count);
        assert_eq!(headers.next_header(), next);
        assert_eq!(headers.remaining(), frame.len() - [0, 14, 54, 94][count]);
    }
}

#[test]
fn padding_behind_a_packet_is_not_payload() {
    let mut frame = bytes(SRV6);
    frame.extend([0; 30]);
    let mut headers = Headers::frame(&frame);
    assert_eq!(headers.by_ref().count(), 4);
    assert_eq!(headers.remaining(), 8);
    frame[18..20].fill(0);
    assert_eq!(Headers::frame(&frame).count(), 2);
    assert_eq!(Headers::frame(&frame).ignore_lengths().count(), 4);
}

#[test]
fn decoding_follows_tags_tunnels_and_ethernet_in_ipv6() {
    let inner = Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Protocol::ICMP);
    let echo = Icmp::v4(Icmpv4Type::ECHO_REQUEST, 0, 7).emit_v4(b"data");
    let ethernet = Ethernet {
        destination: [2; 6],
        source: [4; 6],
        ethertype: EtherType::IPV4,
    };
    let outer = Ipv6::new(ip("fc00::1"), ip("fc00::2"), Protocol::DESTINATION_OPTIONS);
    let options = Options {
        next_header: Protocol::ETHERNET,
        options: vec![],
    };
    let tag = |ethertype| Vlan {
        priority: 5,
        drop_eligible: true,
        id: 0xabc,
        ethertype,
    };
    let frame = outer.emit(&options.emit(&ethernet.emit(&inner.emit(&echo))));
    let frame = tag(EtherType::VLAN).emit(&tag(EtherType::IPV6).emit(&frame));
    let frame = Ethernet {
        ethertype: EtherType::QINQ,
        ..ethernet
    }
    .emit(&frame);
    assert_eq!(frame[12..18], [0x88, 0xa8, 0xba, 0xbc, 0x81, 0x00]);
    let expected = [
        "Ethernet",
        "Vlan",
        "Vlan",
        "Ipv6",
        "Destination",
        "Ethernet",
        "Ipv4",
        "Icmpv4",
    ];
    assert_eq!(names(Headers::frame(&frame).map(|it| it.header)), expected);
}

#[test]
fn checksums_equal_those_of_scapy() {
    let udp = Udp {
        source_port: 4096,
        destination_port: 9,
    };
    let [a, b] = [[10, 0, 0, 1], [198, 51, 100, 1]].map(Ipv4Addr::from);
    let datagram = udp.emit(&[0; 36], Ends::new(a, b));
    let packet = Ipv4::new(a, b, Protocol::UDP).emit(&datagram);
    assert_eq!(packet[10..12], [0x46, 0x78]);
    assert_eq!(packet[26..28], [0xbb, 0x57]);
    let ends = Ends::new(ip("fc00::1"), ip("2001:db8:d::1"));
    assert_eq!(udp.emit(&[0; 16], ends)[6..8], [0xc5, 0xec]);
}

#[test]
fn checksum_of_the_example_in_rfc_1071_is_right() {
    // RFC 1071 3: 0001 f203 f4f5 f6f7 have the sum ddf2.
    assert_eq!(checksum::checksum(&bytes("0001 f203 f4f5 f6f7")), !0xddf2);
    assert_eq!(checksum::checksum(&[0x12, 0x34, 0x56]), !(0x1234 + 0x5600));
    // 0800 + 1234 + 0007 = 1a3b.
    let echo = Icmp::v4(Icmpv4Type::ECHO_REQUEST, 0, 0x1234_0007).emit_v4(&[]);
    assert_eq!(echo, [8, 0, 0xe5, 0xc4, 0x12, 0x34, 0, 7]);
    let ends = Ends::new(ip("fe80::1"), ip("fe80::2"));
    let echo = Icmp::v6(Icmpv6Type::ECHO_REQUEST, 0, 1).emit_v6(b"odd", ends);
    assert_eq!(checksum::upper_layer(ends, Protocol::ICMPV6, &echo), 0);
}

#[test]
fn a_checksum_of_zero_is_emitted_as_ffff() {
    let ends = Ends::new(ip("::"), ip("::"));
    // 17 (UDP) + 8 (length of the pseudo header) + 8 (Length) + the ports = ffff.
    let udp = Udp {
        source_port: 0xffff - 17 - 16,
        destination_port: 0,
    };
    assert_eq!(udp.emit(&[], ends)[6..], [0xff, 0xff]);
}

#[test]
fn an_hmac_tlv_has_the_layout_of_rfc_8754() {
    let hmac = Tlv::Hmac(Hmac {
        flags: 0,
        key_id: 0x0102_0304,
        hmac: vec![0xab; 32],
    });
    let srh = Srh {
        flags: Srh::FLAG_HMAC,
        tlvs: vec![hmac.clone()],
        ..Srh::new(Protocol::IPV6, 0, vec![ip("fc00::1")])
    };
    let header = srh.emit(&[]);
    assert_eq!(header[..8], [41, 7, 4, 0, 0, 8, 0, 0]);
    assert_eq!(header[24..32], [5, 38, 0, 0, 1, 2, 3, 4]);
    assert_eq!(header[32..], [0xab; 32]);
    let (routing, _) = RoutingView::parse(&header).expect("a header");
    assert!(routing.srh().expect("an SRH").tlvs().eq([hmac]));
}

#[test]
fn an_srh_that_contradicts_itself_is_refused() {
    let header = Srh {
        tlvs: vec![Tlv::PadN(6)],
        ..Srh::new(Protocol::UDP, 0, vec![ip("fc00::1")])
    }
    .emit(&[]);
    for (at, value, error) in [
        (2, 0, SrhError::RoutingType),
        (4, 1, SrhError::LastEntry),
        (3, 2, SrhError::SegmentsLeft),
        (25, 7, SrhError::Tlv),
    ] {
        let mut header = header.clone();
        header[at] = value;
        let (routing, _) = RoutingView::parse(&header).expect("a header");
        assert_eq!(routing.srh().map(|_| ()), Err(error), "byte {at}");
    }
}

#[test]
fn options_are_padded_to_eight_bytes() {
    let emit = |options: &[u8]| {
        let (next_header, options) = (Protocol::UDP, options.to_vec());
        Options {
            next_header,
            options,
        }
        .emit(&[])
    };
    assert_eq!(emit(&[]), [17, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(emit(&[5, 2, 0, 0]), [17, 0, 5, 2, 0, 0, 1, 0]);
    assert_eq!(emit(&[9, 3, 1, 1, 1]), [17, 0, 9, 3, 1, 1, 1, 0]);
    let header = emit(&[0; 7]);
    let (view, rest) = OptionsView::parse(&header).expect("a header");
    assert_eq!((view.bytes().len(), rest.len()), (16, 0));
}
