//! Properties of every header: a parsed header equals the emitted one, and no parser panics.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use sidestep_wire::{
    Authentication, AuthenticationView, Ends, EtherType, Ethernet, EthernetView, Fragment,
    FragmentView, Header, Headers, Hmac, Icmp, IcmpView, Ipv4, Ipv4View, Ipv6, Ipv6View, Next,
    Options, OptionsView, Protocol, RoutingView, Srh, SrhTlvType, Tcp, TcpView, Tlv, Udp, UdpView,
    Vlan, VlanView, checksum,
};

fn tlv() -> impl Strategy<Value = Tlv> {
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    let hmac = (
        any::<u16>(),
        any::<u32>(),
        prop::sample::select(vec![20, 32]),
    );
    prop_oneof![
        Just(Tlv::Pad1),
        (0..20_u8).prop_map(Tlv::PadN),
        hmac.prop_map(|(flags, key_id, length)| {
            let hmac = vec![7; length];
            Tlv::Hmac(Hmac {
                flags,
                key_id,
                hmac,
            })
        }),
        (6_u8.., bytes).prop_map(|(kind, value)| Tlv::Opaque(SrhTlvType(kind), value)),
    ]
}

fn srh() -> impl Strategy<Value = Srh> {
    let list = prop::collection::vec(any::<Ipv6Addr>(), 1..20);
    let parts = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u16>(), list);
    let parts = (parts, prop::collection::vec(tlv(), 0..4));
    parts.prop_map(|((next, left, flags, tag, segment_list), tlvs)| Srh {
        next_header: Protocol(next),
        segments_left: left % (segment_list.len() as u8 + 1),
        flags,
        tag,
        segment_list,
        tlvs,
    })
}

/// Asserts that the view of the emitted bytes equals the header, with the payload behind it.
macro_rules! assert_same {
    ($view:ident, $header:expr, $emitted:expr, $payload:expr) => {
        let emitted = $emitted;
        let (view, rest) = $view::parse(&emitted).expect("complete");
        prop_assert_eq!(view.to_owned(), $header);
        prop_assert_eq!(rest, &$payload[..]);
    };
}

proptest! {
    #[test]
    fn emitted_headers_are_parsed_as_they_were(
        (destination, source) in any::<([u8; 6], [u8; 6])>(),
        (a, b) in any::<(Ipv6Addr, Ipv6Addr)>(),
        (c, d) in any::<(Ipv4Addr, Ipv4Addr)>(),
        (byte, flag, other) in any::<(u8, bool, u8)>(),
        (word, short, wide) in any::<(u16, u16, u32)>(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let (ethertype, next_header) = (EtherType(word), Protocol(byte));
        let header = Ethernet { destination, source, ethertype };
        assert_same!(EthernetView, header, header.emit(&payload), payload);
        let (priority, id) = (byte & 7, short & 0xfff);
        let header = Vlan { priority, drop_eligible: flag, id, ethertype };
        assert_same!(VlanView, header, header.emit(&payload), payload);
        let header = Ipv6 {
            traffic_class: other,
            flow_label: wide & 0xf_ffff,
            hop_limit: byte,
            ..Ipv6::new(a, b, next_header)
        };
        assert_same!(Ipv6View, header, header.emit(&payload), payload);
        let header = Ipv4 {
            tos: other,
            identification: word,
            fragment: short,
            ttl: other,
            ..Ipv4::new(c, d, next_header)
        };
        let packet = header.emit(&payload);
        prop_assert!(Ipv4View::parse(&packet).expect("complete").0.has_right_checksum());
        assert_same!(Ipv4View, header, packet, payload);
        let header = Fragment {
            next_header,
            offset: word & 0x1fff,
            more_fragments: flag,
            identification: wide,
        };
        assert_same!(FragmentView, header, header.emit(&payload), payload);
        let options = vec![other; 6 + 8 * usize::from(byte)];
        let header = Options { next_header, options };
        assert_same!(OptionsView, header, header.emit(&payload), payload);
        let icv = vec![other; 4 * usize::from(byte % 250)];
        let header = Authentication { next_header, spi: wide, sequence: !wide, icv };
        assert_same!(AuthenticationView, header, header.emit(&payload), payload);
        let header = Icmp { kind: byte, code: other, word: wide };
        assert_same!(IcmpView, header, header.emit_v4(&payload), payload);
        let (source_port, destination_port) = (word, short);
        for ends in [Ends::new(a, b), Ends::new(c, d)] {
            let header = Udp { source_port, destination_port };
            let datagram = header.emit(&payload, ends);
            prop_assert_eq!(checksum::upper_layer(ends, Protocol::UDP, &datagram), 0);
            assert_same!(UdpView, header, datagram, payload);
            let header = Tcp {
                source_port,
                destination_port,
                sequence: wide,
                acknowledgment: !wide,
                flags: byte,
                window: word,
            };
            let segment = header.emit(&payload, ends);
            prop_assert_eq!(checksum::upper_layer(ends, Protocol::TCP, &segment), 0);
            assert_same!(TcpView, header, segment, payload);
        }
    }

    #[test]
    fn an_emitted_srh_is_parsed_as_it_was(srh in srh(), payload: Vec<u8>) {
        let bytes = srh.emit(&payload);
        let (routing, rest) = RoutingView::parse(&bytes).expect("complete");
        prop_assert_eq!(rest, &payload[..]);
        let mut parsed = routing.srh().expect("consistent").to_owned();
        let padding = parsed.tlvs.split_off(srh.tlvs.len());
        prop_assert!(matches!(padding[..], [] | [Tlv::Pad1 | Tlv::PadN(_)]));
        prop_assert_eq!(parsed, srh);
    }

    #[test]
    fn no_bytes_make_the_decoder_fail(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        start in prop::sample::select(vec![0_u8, 4, 41, 43, 44, 51, 60, 143]),
        chain in prop::collection::vec((0..300_usize, 0..8_usize), 0..12),
        beyond in 0..50_usize,
    ) {
        // Plausible Next Header values let the decoder reach further in.
        for (at, value) in chain {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 4, 41, 43, 44, 51, 60, 143][value];
            }
        }
        let headers = Headers::starting(Next::Protocol(Protocol(start)), &bytes);
        let length = bytes.len() + beyond;
        for mut headers in [headers.clone().ignore_lengths(), headers.with_length(length)] {
            let mut at = 0;
            for layer in headers.by_ref() {
                prop_assert_eq!(layer.offset, at);
                prop_assert!(layer.length > 0);
                at += layer.length;
                if let Header::Routing(routing) = layer.header
                    && let Ok(srh) = routing.srh()
                {
                    let listed = srh.segment_list().count();
                    prop_assert_eq!(listed, usize::from(srh.last_entry()) + 1);
                    srh.to_owned();
                }
                // The Debug form reads all bytes of the header.
                let _ = format!("{layer:?}");
            }
            prop_assert!(at + headers.remaining() <= length);
        }
    }
}
