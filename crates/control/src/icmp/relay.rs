//! Relay of ICMPv6 errors about packets that this node encapsulated. A router on the path sends
//! such an error to the outer source, which is this node. Only the inner source can react to it,
//! and Linux does not relay it.

use std::net::{IpAddr, Ipv6Addr};

use super::packet::{IPV4, IPV4_LENGTH, IPV6, ROUTING, address, headers, source, version};
use sidestep_model::behavior::{EncapMode, Seg6Encap};

use super::{Kind, Message, error};
use crate::compile::PolicyInfo;

/// An error to relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Message to the source of the inner packet.
    pub message: Message,
    /// Destination of the inner packet.
    pub destination: IpAddr,
    /// Encapsulation of the packet. With the destination it identifies the route and its VRF.
    pub encap: Seg6Encap,
}

// IANA: ICMPv6 "type" Numbers.
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
/// IANA: IPv6 Routing Types.
const ROUTING_TYPE_SRH: u8 = 4;

/// Returns the error for the inner source of a received `ICMPv6` error. None: no policy here
/// encapsulated the quoted packet, or the source does not need the error.
pub fn relay<'a>(
    error_heard: &[u8],
    mut policies: impl Iterator<Item = &'a PolicyInfo>,
) -> Option<Relayed> {
    let (head, quote) = error_heard.split_at_checked(8)?;
    let inner = inside(quote)?;
    let policy = policies.find(|policy| encapsulated(quote, policy))?;
    let packet = quote.get(inner..)?;
    let kind = match (head[0], head[1]) {
        (PACKET_TOO_BIG, _) => {
            let mtu = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            // The headers before the inner packet stay in place on the whole path to that link.
            Kind::TooBig {
                mtu: mtu.checked_sub(inner as u32)?,
            }
        }
        (TIME_EXCEEDED, 0) => Kind::TimeExceeded,
        _ => return None,
    };
    let destination = match version(packet)? {
        6 => address(packet, 24)?.into(),
        4 => IpAddr::from(*packet.get(16..IPV4_LENGTH)?.first_chunk::<4>()?),
        _ => return None,
    };
    // The quoted packet was sent, so its source may get an error. `error` checks that the packet is
    // no ICMP error itself.
    let message = error(kind, packet)?;
    Some(Relayed {
        message,
        destination,
        encap: policy.encap.clone(),
    })
}

/// Returns the offset of the inner packet in an encapsulated packet.
fn inside(packet: &[u8]) -> Option<usize> {
    if version(packet)? != 6 {
        return None;
    }
    let last = headers(packet).last()?;
    let is_packet = matches!(last.proto, IPV4 | IPV6);
    is_packet.then_some(last.at)
}

/// Whether the policy pushes this outer header. The SRH may be missing (PSP, or a reduced
/// encapsulation of one segment).
fn encapsulated(packet: &[u8], policy: &PolicyInfo) -> bool {
    let mode = policy.encap.mode;
    let around_ip = matches!(mode, EncapMode::Encap | EncapMode::EncapRed);
    if !around_ip || source(packet) != Some(policy.source) {
        return false;
    }
    let segments = &policy.encap.segments;
    let mut lists = headers(packet)
        .filter(|header| header.proto == ROUTING)
        .filter_map(|header| segment_list(packet.get(header.at..header.at + header.length)?))
        .peekable();
    if lists.peek().is_none() {
        let destination = address(packet, 24);
        return destination.is_some() && destination == segments.last().copied();
    }
    lists.any(|list| list == *segments || segments.get(1..) == Some(&list[..]))
}

/// Returns the segments of an SRH in the order of travel.
fn segment_list(header: &[u8]) -> Option<Vec<Ipv6Addr>> {
    if *header.get(2)? != ROUTING_TYPE_SRH {
        return None;
    }
    let count = usize::from(*header.get(4)?) + 1;
    let places = (0..count).rev();
    places
        .map(|place| address(header, 8 + place * 16))
        .collect()
}
