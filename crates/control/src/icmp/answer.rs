//! ICMP messages to the source of a reported packet.

use std::net::Ipv6Addr;

use sidestep_datapath::Report;

use super::packet::{
    ECHO_REQUEST, FRAGMENT, ICMPV6, UDP, checksum_is_right, may_answer_v6, source, version,
};
use super::{Kind, Message, error, message};

/// Returns the message to send for a report, or none if the RFCs forbid one.
pub fn answer(report: &Report) -> Option<Message> {
    let pointer = report.value;
    let kind = match report.reason.name {
        // RFC 8754 2.1, 4.3.1.1 S10; RFC 8986 4.1 S09, 4.4 S03; RFC 8200 4.4.
        "srh_length"
        | "srh_segments_left"
        | "srh_tlv"
        | "segments_left_not_zero"
        | "routing_header" => Kind::HeaderField { pointer },
        "no_srh" | "segments_left_zero" | "upper_layer" => return at_a_sid(report),
        "hop_limit" => Kind::TimeExceeded,
        "too_big" if report.value > 0 => Kind::TooBig { mtu: report.value },
        "no_route" => Kind::NoRoute,
        _ => return None,
    };
    error(kind, &report.packet)
}

/// RFC 8986 4.1.1 and RFC 9259 3: the packet arrived at a SID with Segments Left 0, and its
/// upper-layer header is not allowed there.
fn at_a_sid(report: &Report) -> Option<Message> {
    let pointer = report.value;
    if version(&report.packet)? != 6 {
        return None;
    }
    match report.proto {
        ICMPV6 if report.packet.get(pointer as usize) == Some(&ECHO_REQUEST) => echo_reply(report),
        // RFC 4443 3.1: no listener. The source is the destination of the packet, as 2.2 requires.
        UDP => error(Kind::PortUnreachable, &report.packet).map(|message| Message {
            from: Some(report.destination),
            ..message
        }),
        // The packet would have to be reassembled first.
        FRAGMENT => None,
        _ => error(Kind::UpperLayer { pointer }, &report.packet),
    }
}

/// RFC 4443 4.2, from the SID. Truncated or damaged requests get no reply.
fn echo_reply(report: &Report) -> Option<Message> {
    let to: Ipv6Addr = may_answer_v6(&report.packet)?;
    let request = report.packet.get(report.value as usize..)?;
    let is_whole = report.packet.len() == report.length as usize && request.len() >= 8;
    if !is_whole || !checksum_is_right(request, source(&report.packet)?, report.destination) {
        return None;
    }
    let word = u32::from_be_bytes([request[4], request[5], request[6], request[7]]);
    let (kind, code, _) = Kind::EchoReply.head_v6();
    Some(Message {
        kind: Kind::EchoReply,
        to: to.into(),
        from: Some(report.destination),
        bytes: message((kind, code, word), &request[8..]),
    })
}
