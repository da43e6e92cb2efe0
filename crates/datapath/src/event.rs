//! Typed events of a trace, decoded from the numbers that the packet path reports.

use crate::abi::{
    AdjacencyId, GroupId, HeaderSetId, PolicyId, Reason, RouteId, SIDESTEP_TAG_CHANGE,
    SIDESTEP_TAG_ID, SIDESTEP_TAG_POP, SIDESTEP_TAG_PUSH, SIDESTEP_TAG_SET, SIDESTEP_TRACE_BACKUP,
    SIDESTEP_TRACE_BEHAVIOR, SIDESTEP_TRACE_CHOICE, SIDESTEP_TRACE_CSID, SIDESTEP_TRACE_DECAP,
    SIDESTEP_TRACE_DEMASQUERADE, SIDESTEP_TRACE_DSCP, SIDESTEP_TRACE_FORWARD, SIDESTEP_TRACE_HMAC,
    SIDESTEP_TRACE_LAST_SEGMENT, SIDESTEP_TRACE_LEARN, SIDESTEP_TRACE_LOOKUP,
    SIDESTEP_TRACE_MASQUERADE, SIDESTEP_TRACE_PARSED, SIDESTEP_TRACE_POP, SIDESTEP_TRACE_PORT,
    SIDESTEP_TRACE_PORT_HOP, SIDESTEP_TRACE_PUSH, SIDESTEP_TRACE_REFLECT,
    SIDESTEP_TRACE_REPLACE_CSID, SIDESTEP_TRACE_REROUTE, SIDESTEP_TRACE_RESTORE,
    SIDESTEP_TRACE_RETURN, SIDESTEP_TRACE_SOURCE, SIDESTEP_TRACE_SRH, SIDESTEP_TRACE_TAG, ViewId,
    sidestep_action, sidestep_trace,
};

/// Address bytes of an event in network order. IPv4 occupies the first four bytes.
pub type AddressBytes = [u8; 16];

/// Inner packet of an encapsulation, from the upper-layer protocol number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// IPv4 (4).
    Ipv4,
    /// IPv6 (41).
    Ipv6,
    /// Ethernet (143).
    Ethernet,
}

/// One step of a packet, as `enum sidestep_trace_kind` of `datapath/abi.h` defines it. Offsets and
/// lengths are in bytes; offsets count from the start of the frame as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A frame entered a port.
    Port {
        /// Interface index.
        ifindex: u32,
        /// Length of the frame.
        bytes: u32,
    },
    /// A service returned an Ethernet frame to its proxy.
    Frame {
        /// Offset of the frame.
        offset: u32,
    },
    /// The IP header was parsed.
    Parsed {
        /// IP version, 4 or 6.
        version: u8,
        /// Offset of the header.
        offset: u32,
        /// Destination address.
        destination: AddressBytes,
    },
    /// A destination address was looked up.
    Lookup {
        /// View that was searched.
        view: ViewId,
        /// Matching route, or `NONE`.
        route: RouteId,
        /// Key of the lookup.
        key: AddressBytes,
    },
    /// A source address was looked up.
    Source {
        /// View that was searched.
        view: ViewId,
        /// Matching route, or `NONE`.
        route: RouteId,
        /// Key of the lookup.
        key: AddressBytes,
    },
    /// The flow of the packet selected a slot of a group.
    Choice {
        /// Group.
        group: GroupId,
        /// Selected route.
        route: RouteId,
    },
    /// The DSCP of the packet selected a route.
    Dscp {
        /// DSCP.
        dscp: u32,
        /// Selected route.
        route: RouteId,
    },
    /// The ingress port selected the next hop of a SID.
    PortHop {
        /// Route with the next hop.
        route: RouteId,
    },
    /// An endpoint behavior began.
    Behavior {
        /// Behavior.
        action: sidestep_action,
        /// Route of the SID.
        route: RouteId,
    },
    /// The next segment became the destination address.
    Srh {
        /// Offset of the SRH.
        offset: u32,
        /// New Segments Left.
        segments_left: u32,
        /// New destination address.
        destination: AddressBytes,
    },
    /// The next compressed SID of a NEXT-C-SID container became active.
    NextCsid {
        /// New destination address.
        destination: AddressBytes,
    },
    /// The next compressed SID of a REPLACE-C-SID container became active.
    ReplaceCsid {
        /// New Segments Left.
        segments_left: u32,
        /// New `DA.Arg.Index`.
        index: u32,
        /// New destination address.
        destination: AddressBytes,
    },
    /// The SRH was removed (PSP).
    Pop {
        /// Offset of the SRH.
        offset: u32,
        /// Length of the SRH.
        bytes: u32,
    },
    /// The outer headers were removed.
    Decap {
        /// Type of the inner packet.
        inner: Inner,
        /// Offset of the inner header.
        offset: u32,
        /// Destination address of an inner IP packet.
        destination: AddressBytes,
    },
    /// A headend pushed a policy.
    Push {
        /// Policy record.
        policy: PolicyId,
        /// Length of the pushed headers.
        bytes: u32,
        /// First segment, the new destination address.
        destination: AddressBytes,
    },
    /// The session of a policy is down, and the packet takes the backup.
    Backup {
        /// Policy record.
        policy: PolicyId,
        /// Its backup.
        backup: PolicyId,
    },
    /// A next hop is down, and the packet takes the route of its backup.
    Reroute {
        /// Adjacency.
        adjacency: AdjacencyId,
        /// The backup.
        route: RouteId,
    },
    /// The packet leaves by an adjacency.
    Forward {
        /// Adjacency.
        adjacency: AdjacencyId,
        /// Layer 3 length.
        bytes: u32,
    },
    /// The packet takes the return path of an SR proxy.
    Return {
        /// Route of the return path.
        route: RouteId,
    },
    /// End.AM replaced the destination address before the service.
    Masquerade {
        /// Segments Left.
        segments_left: u32,
        /// New destination address.
        destination: AddressBytes,
    },
    /// End.AM restored the destination address behind the service.
    Demasquerade {
        /// Segments Left.
        segments_left: u32,
        /// New destination address.
        destination: AddressBytes,
    },
    /// The last segment became the destination address that the service set (End.AM, NAT flavor).
    LastSegment {
        /// Offset of the SRH.
        offset: u32,
        /// New Segment List[0].
        segment: AddressBytes,
    },
    /// End.AD compared the outer headers with a header set, and learned them if they differ.
    Learn {
        /// Header set.
        header_set: HeaderSetId,
        /// Length of the headers.
        bytes: u32,
        /// Destination address behind the proxy.
        destination: AddressBytes,
    },
    /// End.AD pushed a learned header set.
    Restore {
        /// Header set.
        header_set: HeaderSetId,
        /// Length of the headers.
        bytes: u32,
        /// New destination address.
        destination: AddressBytes,
    },
    /// The outermost VLAN tag of a frame was changed.
    Tag {
        /// The change.
        change: TagChange,
    },
    /// A probe of S-BFD becomes its own answer.
    Reflect {
        /// Discriminator of the reflector.
        discriminator: u32,
        /// Destination address of the answer.
        destination: AddressBytes,
    },
    /// The HMAC of the SRH was verified.
    Hmac {
        /// HMAC Key ID.
        key: u32,
        /// Reason of the failure, or `None` for a correct HMAC.
        failure: Option<&'static Reason>,
    },
}

/// A change of the outermost VLAN tag, with its VLAN ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagChange {
    /// Removed.
    Pop,
    /// Added, 802.1Q with priority 0.
    Push(u16),
    /// Changed; the rest of the tag stays.
    Set(u16),
}

impl TagChange {
    /// Decodes the field `tag` of a route record.
    fn decode(tag: u32) -> Option<Self> {
        let id = (tag & SIDESTEP_TAG_ID) as u16;
        match tag & SIDESTEP_TAG_CHANGE {
            SIDESTEP_TAG_POP => Some(Self::Pop),
            SIDESTEP_TAG_PUSH => Some(Self::Push(id)),
            SIDESTEP_TAG_SET => Some(Self::Set(id)),
            _ => None,
        }
    }
}

impl TraceEvent {
    /// Decodes an event. Returns `None` for an event of a newer packet path.
    pub fn decode(raw: &sidestep_trace) -> Option<Self> {
        let sidestep_trace {
            kind,
            a,
            b,
            address,
        } = *raw;
        Some(match kind {
            SIDESTEP_TRACE_PORT => Self::Port {
                ifindex: a,
                bytes: b,
            },
            SIDESTEP_TRACE_PARSED if a == 0 => Self::Frame { offset: b },
            SIDESTEP_TRACE_PARSED => Self::Parsed {
                version: a as u8,
                offset: b,
                destination: address,
            },
            SIDESTEP_TRACE_LOOKUP => Self::Lookup {
                view: ViewId(a),
                route: RouteId(b),
                key: address,
            },
            SIDESTEP_TRACE_SOURCE => Self::Source {
                view: ViewId(a),
                route: RouteId(b),
                key: address,
            },
            SIDESTEP_TRACE_CHOICE => Self::Choice {
                group: GroupId(a),
                route: RouteId(b),
            },
            SIDESTEP_TRACE_DSCP => Self::Dscp {
                dscp: a,
                route: RouteId(b),
            },
            SIDESTEP_TRACE_TAG => Self::Tag {
                change: TagChange::decode(a)?,
            },
            SIDESTEP_TRACE_PORT_HOP => Self::PortHop { route: RouteId(b) },
            SIDESTEP_TRACE_BEHAVIOR => Self::Behavior {
                action: a,
                route: RouteId(b),
            },
            SIDESTEP_TRACE_PUSH => Self::Push {
                policy: PolicyId(a),
                bytes: b,
                destination: address,
            },
            SIDESTEP_TRACE_BACKUP => Self::Backup {
                policy: PolicyId(a),
                backup: PolicyId(b),
            },
            SIDESTEP_TRACE_REROUTE => Self::Reroute {
                adjacency: AdjacencyId(a),
                route: RouteId(b),
            },
            SIDESTEP_TRACE_FORWARD => Self::Forward {
                adjacency: AdjacencyId(a),
                bytes: b,
            },
            SIDESTEP_TRACE_RETURN => Self::Return { route: RouteId(b) },
            SIDESTEP_TRACE_LEARN => Self::Learn {
                header_set: HeaderSetId(a),
                bytes: b,
                destination: address,
            },
            SIDESTEP_TRACE_RESTORE => Self::Restore {
                header_set: HeaderSetId(a),
                bytes: b,
                destination: address,
            },
            _ => return Self::decode_header(raw),
        })
    }

    /// Decodes the events that change or check headers of the packet.
    fn decode_header(raw: &sidestep_trace) -> Option<Self> {
        let (a, b, address) = (raw.a, raw.b, raw.address);
        Some(match raw.kind {
            SIDESTEP_TRACE_SRH => Self::Srh {
                offset: a,
                segments_left: b,
                destination: address,
            },
            SIDESTEP_TRACE_CSID => Self::NextCsid {
                destination: address,
            },
            SIDESTEP_TRACE_REPLACE_CSID => Self::ReplaceCsid {
                segments_left: a,
                index: b,
                destination: address,
            },
            SIDESTEP_TRACE_POP => Self::Pop {
                offset: a,
                bytes: b,
            },
            SIDESTEP_TRACE_DECAP => Self::Decap {
                inner: match a {
                    4 => Inner::Ipv4,
                    41 => Inner::Ipv6,
                    _ => Inner::Ethernet,
                },
                offset: b,
                destination: address,
            },
            SIDESTEP_TRACE_MASQUERADE => Self::Masquerade {
                segments_left: b,
                destination: address,
            },
            SIDESTEP_TRACE_DEMASQUERADE => Self::Demasquerade {
                segments_left: b,
                destination: address,
            },
            SIDESTEP_TRACE_LAST_SEGMENT => Self::LastSegment {
                offset: a,
                segment: address,
            },
            SIDESTEP_TRACE_REFLECT => Self::Reflect {
                discriminator: a,
                destination: address,
            },
            SIDESTEP_TRACE_HMAC => Self::Hmac {
                key: a,
                failure: Reason::from_number(b).filter(|_| b != 0),
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_c_enum_decodes_and_no_other() {
        let event = |kind| {
            TraceEvent::decode(&sidestep_trace {
                kind,
                // For TAG.
                a: SIDESTEP_TAG_POP,
                ..Default::default()
            })
        };
        assert!((SIDESTEP_TRACE_PORT..=SIDESTEP_TRACE_REROUTE).all(|kind| event(kind).is_some()));
        assert_eq!(event(0), None);
        assert_eq!(event(SIDESTEP_TRACE_REROUTE + 1), None);
    }
}
