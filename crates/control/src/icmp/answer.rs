//! What the sender of a reported packet is told.

use std::net::Ipv6Addr;

use sidestep_datapath::Report;

use super::packet::{
    ECHO_REQUEST, FRAGMENT, ICMPV6, UDP, checksum_is_right, may_answer_v6, source, version,
};
use super::{Kind, Message, error, message};

/// The message to send on account of a report; none if there must not be one.
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

/// RFC 8986 4.1.1 and RFC 9259 3: what came to a SID with nothing left of its segment list, and is not what the SID is for.
fn at_a_sid(report: &Report) -> Option<Message> {
    let pointer = report.value;
    if version(&report.packet)? != 6 {
        return None;
    }
    match report.proto {
        ICMPV6 if report.packet.get(pointer as usize) == Some(&ECHO_REQUEST) => echo_reply(report),
        // RFC 4443 3.1: nobody listens. From where it was sent to, as 2.2 asks.
        UDP => error(Kind::PortUnreachable, &report.packet).map(|message| Message {
            from: Some(report.destination),
            ..message
        }),
        // It would have to be reassembled before anything can be said of it.
        FRAGMENT => None,
        _ => error(Kind::UpperLayer { pointer }, &report.packet),
    }
}

/// RFC 4443 4.2, from the SID. What did not arrive whole and undamaged is not answered.
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
