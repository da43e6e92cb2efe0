//! Errors about packets that this node encapsulated: a router between the segments sends them to the source of the outer
//! header, which is this node, while only the sender of the packet inside can do something about it. Linux keeps them.

use std::net::{IpAddr, Ipv6Addr};

use super::packet::{IPV4, IPV4_LENGTH, IPV6, ROUTING, address, headers, source, version};
use sidestep_model::behavior::{EncapMode, Seg6Encap};

use super::{Kind, Message, error};
use crate::compile::PolicyInfo;

/// An error that is told on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// To the sender of the packet inside.
    pub message: Message,
    /// Where that packet is for,
    pub destination: IpAddr,
    /// and what it was put into: the route with both says in which VRF its sender is.
    pub encap: Seg6Encap,
}

// IANA: ICMPv6 "type" Numbers.
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
/// IANA: IPv6 Routing Types.
const ROUTING_TYPE_SRH: u8 = 4;

/// What the sender inside is told of an `ICMPv6` error that came to this node. None: it is not about a packet that one of
/// these policies encapsulated, or it is one that the sender must not or need not hear of.
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
            // What is in front of the packet inside is there on all of its way to where it did not fit.
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
    // It was sent, so whoever sent it can be told; that it is no error itself is looked at again.
    let message = error(kind, packet)?;
    Some(Relayed {
        message,
        destination,
        encap: policy.encap.clone(),
    })
}

/// Where the packet inside begins in an encapsulated one.
fn inside(packet: &[u8]) -> Option<usize> {
    if version(packet)? != 6 {
        return None;
    }
    let last = headers(packet).last()?;
    let is_packet = matches!(last.proto, IPV4 | IPV6);
    is_packet.then_some(last.at)
}

/// Whether the policy puts such a header in front of packets. Its SRH may be gone on the way (PSP, or reduced to none).
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

/// The segments of an SRH, in the order of travel.
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
