//! Relay of ICMPv6 errors about packets that this node encapsulated. A router on the path sends
//! such an error to the outer source, which is this node. Only the inner source can react to it,
//! and Linux does not relay it.

use std::net::IpAddr;

use sidestep_model::behavior::{EncapMode, Seg6Encap};
use sidestep_wire::{Header, IcmpView, Icmpv6Type, Protocol};

use super::packet::{Chain, destination, dont_fragment, source, version};
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

/// Returns the error for the inner source of a received `ICMPv6` error. None: no policy here
/// encapsulated the quoted packet, or the source does not need the error. `is_own` tells the addresses
/// of this node.
pub fn relay<'a>(
    error_heard: &[u8],
    mut policies: impl Iterator<Item = &'a PolicyInfo>,
    is_own: impl Fn(IpAddr) -> bool,
) -> Option<Relayed> {
    let (header, quote) = IcmpView::parse(error_heard)?;
    let outer = Chain::parse(quote).filter(|_| version(quote) == Some(6))?;
    let Some((Protocol::IPV4 | Protocol::IPV6, packet)) = outer.upper else {
        return None;
    };
    let policy = policies.find(|policy| encapsulated(&outer, policy))?;
    let kind = match (Icmpv6Type(header.kind()), header.code()) {
        (Icmpv6Type::PACKET_TOO_BIG, _) => {
            // The headers before the inner packet stay in place on the whole path to that link.
            let pushed = (quote.len() - packet.len()) as u32;
            let mtu = header.word().checked_sub(pushed)?;
            // Linux subtracts the encapsulation from the path MTU of its own sockets.
            let again = is_own(source(packet)?).then(|| linux_headroom(&policy.encap));
            Kind::TooBig {
                mtu: mtu + again.unwrap_or_default(),
            }
        }
        // RFC 2473 8.1 to 8.3: a node in the tunnel cannot be reached, or the tunnel is too long.
        // The inner source cannot change either, so it learns that its destination is unreachable.
        (Icmpv6Type::DESTINATION_UNREACHABLE, _) | (Icmpv6Type::TIME_EXCEEDED, 0) => {
            Kind::AddressUnreachable
        }
        _ => return None,
    };
    // RFC 1191 4: no error if routers may fragment the packet.
    if version(packet)? == 4 && matches!(kind, Kind::TooBig { .. }) && !dont_fragment(packet) {
        return None;
    }
    let destination = destination(packet)?;
    // The quoted packet was sent, so its source may get an error. `error` checks that the packet is
    // no ICMP error itself.
    let message = error(kind, packet)?;
    Some(Relayed {
        message,
        destination,
        encap: policy.encap.clone(),
    })
}

/// Returns the bytes that Linux subtracts from the MTU of a route with this encapsulation
/// (`seg6_lwt_headroom`). It takes a reduced list for a complete one.
fn linux_headroom(encap: &Seg6Encap) -> u32 {
    let segments = encap.segments.len() as u32;
    40 + 8 + 16 * segments
}

/// Whether the policy pushes these outer headers. The SRH may be missing (PSP, or a reduced
/// encapsulation of one segment).
fn encapsulated(outer: &Chain<'_>, policy: &PolicyInfo) -> bool {
    let mode = policy.encap.mode;
    let around_ip = matches!(mode, EncapMode::Encap | EncapMode::EncapRed);
    if !around_ip || outer.ipv6.source() != policy.source {
        return false;
    }
    let segments = &policy.encap.segments;
    let mut lists = outer
        .extensions
        .iter()
        .filter_map(|header| match header {
            Header::Routing(routing) => routing.srh().ok(),
            _ => None,
        })
        // The order of travel.
        .map(|srh| srh.segment_list().rev().collect::<Vec<_>>())
        .peekable();
    if lists.peek().is_none() {
        return segments.last() == Some(&outer.ipv6.destination());
    }
    lists.any(|list| list == *segments || segments.get(1..) == Some(&list[..]))
}
