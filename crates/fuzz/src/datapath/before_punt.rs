//! *Decide before you punt* (ARCHITECTURE.md), from the tables and the frame alone: which packets
//! the kernel may get as they arrived.
//!
//! The packet path has flags for this. This module does not look at them, nor at the trace: it finds
//! the route of the frame's own destination, and what must have been decided about it.

use sidestep_datapath::abi::{
    SIDESTEP_POLICY_ENCAPS_L2, SIDESTEP_PORT_BRIDGED, SIDESTEP_ROUTE_BY_DSCP, SIDESTEP_ROUTE_END,
    SIDESTEP_ROUTE_GROUP, SIDESTEP_ROUTE_HEADEND, SIDESTEP_ROUTE_NEXT, SIDESTEP_ROUTE_NEXT_CSID,
    SIDESTEP_ROUTE_PUNT, SIDESTEP_ROUTE_REPLACE_CSID, SIDESTEP_ROUTE_SIDESTEP_ONLY,
    SIDESTEP_ROUTE_SOURCE, sidestep_route,
};
use sidestep_datapath::{Image, PolicyId, RouteId, ViewId};
use sidestep_wire::field::{ipv4, ipv6};
use sidestep_wire::{Ethernet, Header, Headers, Ipv4, Ipv6};

use super::rules::longest_match;

/// LIMIT: indirect records that a lookup follows.
const INDIRECT_MAX: usize = 8;

/// A received IP packet, as far as its route depends on it.
struct Arrived {
    destination: [u8; 16],
    source: [u8; 16],
    traffic_class: u8,
    hop_limit: u8,
    view: ViewId,
}

impl Arrived {
    /// Reads a frame that is addressed to the port, whose packet is neither for a group nor for the
    /// link. Packets from a service have routes of their own.
    fn read(image: &Image, ifindex: u32, frame: &[u8]) -> Option<Self> {
        let port = image.ports.get(&ifindex)?;
        let serves = [port.return6, port.return4, port.return_l2];
        // The bridge of a port gets its packets.
        let is_bridged = port.flags & SIDESTEP_PORT_BRIDGED != 0;
        let has_route = serves.iter().any(|route| route.is_some());
        if is_bridged || has_route || frame.get(..6)? != port.mac {
            return None;
        }
        let packet = &frame[Ethernet::LENGTH.min(frame.len())..];
        let padded = |bytes: &[u8]| {
            let mut address = [0; 16];
            address[..bytes.len()].copy_from_slice(bytes);
            address
        };
        let arrived = match (frame.get(12..14)?, packet.first()? >> 4) {
            ([0x86, 0xdd], 6) if packet.len() >= Ipv6::LENGTH => Self {
                destination: padded(&packet[ipv6::DESTINATION..][..16]),
                source: padded(&packet[ipv6::SOURCE..][..16]),
                traffic_class: packet[0] << 4 | packet[1] >> 4,
                hop_limit: packet[ipv6::HOP_LIMIT],
                view: port.view6,
            },
            ([0x08, 0x00], 4) if packet.len() >= Ipv4::LENGTH => Self {
                destination: padded(&packet[ipv4::DESTINATION..][..4]),
                source: padded(&packet[ipv4::SOURCE..][..4]),
                traffic_class: packet[ipv4::TOS],
                hop_limit: packet[ipv4::TTL],
                view: port.view4,
            },
            _ => return None,
        };
        let [first, second, ..] = arrived.destination;
        let of_the_link = if frame[12] == 0x86 {
            first == 0xff || first == 0xfe && second & 0xc0 == 0x80
        } else {
            first & 0xf0 == 0xe0 || arrived.destination[..4] == [0xff; 4]
        };
        (!of_the_link).then_some(arrived)
    }

    /// The routes that the flows of such packets can take.
    fn routes<'a>(&self, image: &'a Image) -> Vec<&'a sidestep_route> {
        let mut index = longest_match(image, self.view.0, self.destination);
        for _ in 0..=INDIRECT_MAX {
            let Some(route) = image.routes.get(&RouteId(index)) else {
                return vec![];
            };
            let by = if route.view6.is_some() {
                route.view6
            } else {
                route.view4
            };
            let group = image.groups.get(&route.group);
            index = match (u32::from(route.action), group) {
                (SIDESTEP_ROUTE_SOURCE, _) => longest_match(image, by.0, self.source),
                (SIDESTEP_ROUTE_NEXT, _) => longest_match(image, by.0, self.destination),
                (SIDESTEP_ROUTE_GROUP, Some(group))
                    if u32::from(route.flags) & SIDESTEP_ROUTE_BY_DSCP != 0 =>
                {
                    group.routes[usize::from(self.traffic_class >> 2)].0
                }
                (SIDESTEP_ROUTE_GROUP, Some(group)) => {
                    let slots = &group.routes[..group.slots as usize];
                    let routes = slots.iter().filter_map(|slot| image.routes.get(slot));
                    return routes.collect();
                }
                _ => return vec![route],
            };
        }
        vec![]
    }
}

/// Reasons for which the kernel gets packets of its own SIDs and headends as they arrived.
/// [Limits](../../../../docs/reference/limits.md) lists them.
const LEFT_TO_LINUX: [&str; 8] = [
    "forwarding_off",
    "reverse_path",
    "seg6_disabled",
    "jumbogram",
    "routing_header",
    "fragment",
    "hmac",
    "frame_segments",
];

/// Checks that the kernel may get this frame as it arrived, punted for this reason.
pub fn check(image: &Image, ifindex: u32, frame: &[u8], reason: &str) -> Result<(), &'static str> {
    let Some(arrived) = Arrived::read(image, ifindex, frame) else {
        return Ok(());
    };
    let routes = arrived.routes(image);
    let all = |is: &dyn Fn(&sidestep_route) -> bool| {
        !routes.is_empty() && routes.iter().all(|route| is(route))
    };
    // A port with rules that the tables cannot express has no lookups.
    if reason == "rule" {
        return Ok(());
    }
    let is_own = |route: &sidestep_route| {
        // Addresses of the node are routes that punt.
        u32::from(route.flags) & SIDESTEP_ROUTE_SIDESTEP_ONLY != 0
            && u32::from(route.action) != SIDESTEP_ROUTE_PUNT
    };
    if all(&is_own) {
        return Err("a packet of a Sidestep-only route reaches the kernel");
    }
    if LEFT_TO_LINUX.contains(&reason) {
        return Ok(());
    }
    let is_headend = |route: &sidestep_route| {
        let policy = image.policies.get(&PolicyId(route.policy));
        u32::from(route.action) == SIDESTEP_ROUTE_HEADEND
            && policy.is_some_and(|it| u32::from(it.kind) != SIDESTEP_POLICY_ENCAPS_L2)
    };
    if all(&is_headend) && arrived.hop_limit <= 1 {
        return Err("Linux encapsulates an expired packet");
    }
    // With Segments Left 0, a SID decapsulates the packet or drops it.
    let decapsulates = |route: &sidestep_route| {
        let carries_on = SIDESTEP_ROUTE_NEXT_CSID | SIDESTEP_ROUTE_REPLACE_CSID;
        u32::from(route.action) >= SIDESTEP_ROUTE_END && u32::from(route.flags) & carries_on == 0
    };
    if all(&decapsulates) && loses_a_mark(frame) {
        return Err("Linux forwards a marked packet whose sender does not know ECN");
    }
    Ok(())
}

/// Whether RFC 6040 4.2 drops the packet: CE outside, Not-ECT inside.
fn loses_a_mark(frame: &[u8]) -> bool {
    const CE: u8 = 3;
    let mut outer = None;
    for layer in Headers::frame(frame) {
        let bytes = &frame[layer.offset..];
        let ecn = match layer.header {
            Header::Ipv6(_) => bytes[1] >> 4 & 3,
            Header::Ipv4(_) => bytes[1] & 3,
            // Frames of customers keep their marks.
            Header::Ethernet(_) if outer.is_some() => return false,
            Header::Ethernet(_) | Header::HopByHop(_) | Header::Destination(_) => continue,
            Header::Routing(_) if bytes.get(3) == Some(&0) => continue,
            _ => return false,
        };
        match outer {
            None => outer = Some(ecn),
            Some(outer) => return outer == CE && ecn == 0,
        }
    }
    false
}
