//! ICMP messages to the source of a reported packet.

use std::net::Ipv6Addr;

use sidestep_datapath::Report;
use sidestep_wire::{Ends, FragmentView, Icmp, IcmpView, Icmpv6Type, Protocol, checksum};

use super::packet::{Chain, error_receiver_v6, version};
use super::{Kind, Limit, Message, error};

/// Returns the message to send for a report of a packet, or none if the RFCs forbid one. Frames
/// have [`super::frame::answer`].
pub fn answer(report: &Report) -> Option<Message> {
    if report.is_frame {
        return None;
    }
    let pointer = report.value;
    let kind = match report.reason.name {
        // RFC 8754 2.1, 2.1.2.2, 4.3.1.1 S10, 4.3.2; RFC 8986 4.1 S09, 4.4 S03; RFC 8200 4.4.
        "srh_length"
        | "srh_segments_left"
        | "srh_tlv"
        | "segments_left_not_zero"
        | "not_a_sid"
        | "hmac_wrong"
        | "hmac_key"
        | "hmac_segments"
        | "routing_header" => Kind::HeaderField { pointer },
        "no_srh" | "segments_left_zero" | "upper_layer" => return at_a_sid(report),
        // RFC 8200 4.
        "hop_by_hop_order" => Kind::NextHeader { pointer },
        // RFC 8200 4.2: the two highest bits of the option type. 01 is discarded silently.
        "unknown_option" if *report.packet.get(pointer as usize)? >= 0x80 => {
            Kind::Option { pointer }
        }
        // RFC 8200 4.5: about the first fragment only.
        "reassembly" => {
            let (fragment, _) = FragmentView::parse(report.packet.get(pointer as usize..)?)?;
            if fragment.offset() != 0 {
                return None;
            }
            Kind::ReassemblyTimeExceeded
        }
        "too_many_headers" => limit(Limit::Headers, pointer),
        "too_many_options" => limit(Limit::Options, pointer),
        "chain_too_long" => limit(Limit::ChainLength, pointer),
        "hop_limit" => Kind::TimeExceeded,
        "too_big" if report.value > 0 => Kind::TooBig { mtu: report.value },
        "no_route" => Kind::NoRoute,
        _ => return None,
    };
    error(kind, &report.packet)
}

fn limit(limit: Limit, pointer: u32) -> Kind {
    Kind::Limit { limit, pointer }
}

/// RFC 8986 4.1.1 and RFC 9259 3: the packet arrived at a SID with Segments Left 0, and its
/// upper-layer header is not allowed there.
fn at_a_sid(report: &Report) -> Option<Message> {
    let pointer = report.value;
    if version(&report.packet)? != 6 {
        return None;
    }
    let is_echo_request = report.packet.get(pointer as usize) == Some(&Icmpv6Type::ECHO_REQUEST.0);
    match Protocol(report.proto) {
        Protocol::ICMPV6 if is_echo_request => echo_reply(report),
        // RFC 4443 3.1: no listener. The source is the destination of the packet, as 2.2 requires.
        Protocol::UDP => error(Kind::PortUnreachable, &report.packet).map(|message| Message {
            from: Some(report.destination),
            ..message
        }),
        _ => error(Kind::UpperLayer { pointer }, &report.packet),
    }
}

/// RFC 4443 4.2, from the SID. Truncated or damaged requests get no reply.
fn echo_reply(report: &Report) -> Option<Message> {
    let to: Ipv6Addr = error_receiver_v6(&report.packet)?;
    let request = report.packet.get(report.value as usize..)?;
    let (header, data) = IcmpView::parse(request)?;
    let ends = Ends::new(
        Chain::parse(&report.packet)?.ipv6.source(),
        report.destination,
    );
    let is_complete = report.packet.len() == report.length as usize;
    if !is_complete || checksum::upper_layer(ends, Protocol::ICMPV6, request) != 0 {
        return None;
    }
    let reply = Icmp::v6(Icmpv6Type::ECHO_REPLY, 0, header.word());
    Some(Message {
        kind: Kind::EchoReply,
        to: to.into(),
        from: Some(report.destination),
        bytes: reply.emit_without_checksum(data),
    })
}
