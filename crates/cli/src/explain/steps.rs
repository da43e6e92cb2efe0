//! Conversion of a trace into steps with names: prefixes, tables, behaviors, RFC sections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;
use sidestep_control::compile::Continuation;
use sidestep_datapath::event::{Inner, TagChange};
use sidestep_datapath::{PolicyId, RouteId, Trace, TraceEvent, ViewId};
use sidestep_model::grammar::{encap, ether, protection, route};
use sidestep_model::node::{Node, TableId};
use sidestep_model::route::{Encap, Family, Route};

use super::Names;
use super::chosen::{self, encap};

/// Sections on SR proxies and End.AM.
const DYNAMIC_PROXY: &str = "draft-ietf-spring-srv6-service-programming-00 6.2";
const PROXIES: &str = "draft-ietf-spring-srv6-service-programming-00 6";
const MASQUERADING: &str = "draft-ietf-spring-srv6-service-programming-00 6.4.1";
const DESTINATION_NAT: &str = "draft-ietf-spring-srv6-service-programming-00 6.4.2";

/// One step of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// A frame arrived.
    Port {
        /// Ingress port.
        port: String,
        /// Bytes of the frame.
        bytes: u32,
    },
    /// The IP header was parsed.
    Parsed {
        /// `IPv6` or `IPv4`.
        header: &'static str,
        /// Offset of the header in the frame.
        offset: u32,
        /// Destination address.
        destination: IpAddr,
        /// Section that specifies the header.
        source: &'static str,
    },
    /// A longest-prefix match.
    Lookup {
        /// The address that was looked up.
        address: IpAddr,
        /// Tables of the rules, in order.
        tables: Vec<String>,
        /// Matching route, if any.
        route: Option<RouteName>,
    },
    /// Longest-prefix match of the source address, for rules or routes with `from`.
    Source {
        /// The address that was looked up.
        address: IpAddr,
        /// Matching route, if any.
        route: Option<RouteName>,
    },
    /// The flow selected one of several next hops.
    Choice {
        /// The next hop, in iproute2's words.
        next_hop: String,
        /// Slots of this next hop and slots in total: its share of the flows.
        slots: (usize, usize),
        /// Section that specifies it.
        source: &'static str,
    },
    /// The ingress port selected the next hop of a SID.
    PortHop {
        /// Description.
        summary: &'static str,
    },
    /// A segment list or a next hop is down, and the packet takes the backup.
    Backup {
        /// Kind of the record that is down.
        down: &'static str,
        /// Section of an RFC.
        source: &'static str,
        /// Its backup, as far as the record is known.
        backup: String,
    },
    /// A probe of S-BFD becomes its own answer.
    Reflect {
        /// Discriminator of the reflector.
        discriminator: u32,
        /// Destination address of the answer.
        to: IpAddr,
        /// Section that specifies it.
        source: &'static str,
    },
    /// The outermost VLAN tag of the frame changes.
    Tag {
        /// The change.
        summary: String,
    },
    /// The DSCP selected the route record.
    Class {
        /// The DSCP.
        dscp: u32,
        /// Selected route record.
        route: RouteName,
        /// Section that specifies it.
        source: &'static str,
    },
    /// An endpoint behavior began.
    Behavior {
        /// Name.
        name: &'static str,
        /// Summary.
        summary: &'static str,
        /// Section that specifies it.
        source: &'static str,
    },
    /// The next segment became the destination address.
    Advance {
        /// Segments Left before, and after.
        segments_left: (u32, u32),
        /// The destination address before, and after.
        destination: (IpAddr, IpAddr),
        /// Section that specifies it.
        source: &'static str,
    },
    /// The next compressed SID came into the destination address.
    Compressed {
        /// Flavor: `NEXT-C-SID` or `REPLACE-C-SID`.
        flavor: &'static str,
        /// Segments Left and DA.Arg.Index afterwards; `None` for NEXT-C-SID, which does not use
        /// them.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<(u32, u32)>,
        /// The destination address before, and after.
        destination: (IpAddr, IpAddr),
        /// Section that specifies it.
        source: &'static str,
    },
    /// A service behind an SR proxy returned the packet: the port has a return path.
    Back {
        /// Summary.
        summary: &'static str,
        /// Section that specifies it.
        source: &'static str,
    },
    /// The destination address became another entry of the segment list; the active segment stays
    /// (End.AM).
    Masquerade {
        /// Segments Left.
        segments_left: u32,
        /// The destination address before, and after.
        destination: (IpAddr, IpAddr),
        /// Section that specifies it.
        source: &'static str,
    },
    /// The destination address that the service wrote became the last segment (End.AM, flavor NAT).
    LastSegment {
        /// That segment.
        segment: IpAddr,
        /// Section that specifies it.
        source: &'static str,
    },
    /// A dynamic proxy compared the outer headers with its header set and learned any difference
    /// (End.AD).
    Learn {
        /// Their length.
        bytes: u32,
        /// Section that specifies it.
        source: &'static str,
    },
    /// A dynamic proxy added the headers that it had learned.
    Restore {
        /// Bytes of headers.
        bytes: u32,
        /// The destination address in them.
        destination: IpAddr,
        /// Section that specifies it.
        source: &'static str,
    },
    /// The SRH was removed (PSP).
    Pop {
        /// Its length.
        bytes: u32,
        /// Section that specifies it.
        source: &'static str,
    },
    /// The outer headers were removed.
    Decapsulate {
        /// Inner packet: `IPv6`, `IPv4` or `Ethernet`.
        inner: &'static str,
        /// Offset of the inner header in the frame on arrival.
        offset: u32,
        /// Destination address of the inner packet; `None` for an Ethernet frame.
        destination: Option<IpAddr>,
    },
    /// The VLANs of a decapsulated frame were looked up (End.DX2V).
    Vlans {
        /// The VLAN table.
        table: u32,
        /// VLAN ids of the two outermost tags; 0 if a tag is absent.
        vids: (u16, u16),
        /// Section that specifies it.
        source: &'static str,
    },
    /// The HMAC of the SRH was verified.
    Hmac {
        /// HMAC Key ID.
        key: u32,
        /// Reason of the drop; `None` if the HMAC is valid.
        wrong: Option<&'static str>,
        /// Section that specifies it.
        source: &'static str,
    },
    /// A headend encapsulated the packet, or inserted an SRH.
    Push {
        /// The headend behavior.
        name: &'static str,
        /// The segments in the order of travel.
        segments: Vec<Ipv6Addr>,
        /// Source address of the outer header, if there is one.
        outer_source: Option<Ipv6Addr>,
        /// Bytes of the added headers.
        bytes: u32,
        /// Section that specifies it.
        source: &'static str,
    },
    /// The next hop is resolved, and the packet fits its MTU.
    Forward {
        /// Egress port.
        port: String,
        /// Next hop; `None` for a route to the interface itself.
        via: Option<IpAddr>,
        /// Length of the transmitted layer 3 packet, in bytes.
        bytes: u32,
    },
}

/// A route that matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteName {
    /// Prefix; `None` for the action of a rule.
    pub prefix: Option<String>,
    /// Table.
    pub table: Option<String>,
    /// The route in iproute2 syntax.
    pub words: String,
    /// Neighbor on the link with this address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbor: Option<IpAddr>,
}

/// Returns the steps of a trace, with names.
pub(super) fn steps(names: Names<'_>, trace: &[Trace]) -> Vec<Step> {
    let mut destination = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    trace
        .iter()
        .filter_map(|event| step(names, event, &mut destination))
        .collect()
}

/// Returns the step of one event. `destination` is the destination address of the current header.
fn step(names: Names<'_>, event: &Trace, destination: &mut IpAddr) -> Option<Step> {
    use TraceEvent as Event;
    Some(match TraceEvent::decode(event)? {
        Event::Port { ifindex, bytes } => Step::Port {
            port: names.port(ifindex),
            bytes,
        },
        // The next step reports the return path.
        Event::Frame { .. } => return None,
        Event::Parsed {
            version,
            offset,
            destination: bytes,
        } => {
            let (header, source, family) = match version {
                4 => ("IPv4", "RFC 791 3.1", Family::V4),
                _ => ("IPv6", "RFC 8200 3", Family::V6),
            };
            *destination = address(bytes, family);
            Step::Parsed {
                header,
                offset,
                destination: *destination,
                source,
            }
        }
        Event::Lookup { view, key, .. } if names.index.vlan_views.contains_key(&view) => {
            Step::Vlans {
                table: names.index.vlan_views[&view].0,
                vids: vlan_ids(key),
                source: "RFC 8986 4.10",
            }
        }
        Event::Lookup { view, route, key } => Step::Lookup {
            address: address(key, family_of(names, view, *destination)),
            tables: tables(names, view),
            route: route.is_some().then(|| route_name(names, route)),
        },
        Event::Source { view, route, key } => Step::Source {
            address: address(key, family_of(names, view, *destination)),
            route: route.is_some().then(|| route_name(names, route)),
        },
        Event::Choice { group, route } => chosen::by_flow(names, group, route),
        Event::PortHop { .. } => Step::PortHop {
            summary: "selected by the rules of the ingress port",
        },
        Event::Tag { change } => Step::Tag {
            summary: match change {
                TagChange::Pop => "removes the outermost tag".into(),
                TagChange::Push(vid) => format!("adds a tag with VLAN {vid}"),
                TagChange::Set(vid) => format!("changes the VLAN of the outermost tag to {vid}"),
            },
        },
        Event::Backup { backup, .. } => Step::Backup {
            down: "segment list",
            source: "RFC 9256 9.3",
            backup: names.index.policies.get(&backup).map_or_else(
                || format!("policy {backup}"),
                |info| format!("segs {}", encap::print_list(&info.encap.segments)),
            ),
        },
        Event::Reroute { route, .. } => Step::Backup {
            down: "next hop",
            source: "RFC 9855",
            backup: backup(names, route).unwrap_or_else(|| format!("route {route}")),
        },
        Event::Dscp { dscp, route } => chosen::by_dscp(names, dscp, route),
        Event::Behavior { route, .. } => behavior(names, route),
        Event::Hmac { key, failure } => Step::Hmac {
            key,
            wrong: failure.map(|reason| reason.name),
            source: "RFC 8754 2.1.2.1",
        },
        Event::Forward { adjacency, bytes } => {
            let info = names.index.adjacencies.get(&adjacency);
            let port = info.map_or_else(
                || format!("adjacency {adjacency}"),
                |found| names.port(found.ifindex.0),
            );
            Step::Forward {
                port,
                via: info.and_then(|found| found.via),
                bytes,
            }
        }
        Event::Return { .. } => Step::Back {
            summary: "returned by a service to the proxy of this port",
            source: PROXIES,
        },
        header => header_step(names, header, destination)?,
    })
}

/// Returns what takes over by this route.
fn backup(names: Names<'_>, route: RouteId) -> Option<String> {
    let mut all = names.index.backups.iter();
    let (key, _) = all.find(|(_, backup)| **backup == Ok(route))?;
    let protection = names.node.protections.get(key)?;
    Some(protection::print_backup(&protection.by, names.node))
}

/// Returns the step of an event that changes headers, and updates the destination address.
fn header_step(names: Names<'_>, event: TraceEvent, destination: &mut IpAddr) -> Option<Step> {
    use TraceEvent as Event;
    let mut replace = |bytes| {
        let next = address(bytes, Family::V6);
        (std::mem::replace(destination, next), next)
    };
    Some(match event {
        Event::Reflect {
            discriminator,
            destination,
        } => Step::Reflect {
            discriminator,
            to: replace(destination).1,
            source: "RFC 7880 7.2",
        },
        Event::Srh {
            segments_left: left,
            destination,
            ..
        } => Step::Advance {
            segments_left: (left + 1, left),
            destination: replace(destination),
            source: "RFC 8986 4.1 S13-S14",
        },
        Event::NextCsid { destination } => Step::Compressed {
            flavor: "NEXT-C-SID",
            at: None,
            destination: replace(destination),
            source: "RFC 9800 4.1.1 S05-S06",
        },
        Event::ReplaceCsid {
            segments_left,
            index,
            destination,
        } => Step::Compressed {
            flavor: "REPLACE-C-SID",
            at: Some((segments_left, index)),
            destination: replace(destination),
            source: "RFC 9800 4.2.1 R20",
        },
        Event::Pop { bytes, .. } => Step::Pop {
            bytes,
            source: "RFC 8986 4.16.1",
        },
        Event::Decap {
            inner,
            offset,
            destination: bytes,
        } => {
            let (inner, family) = match inner {
                Inner::Ipv4 => ("IPv4", Some(Family::V4)),
                Inner::Ipv6 => ("IPv6", Some(Family::V6)),
                Inner::Ethernet => ("Ethernet", None),
            };
            let inner_destination = family.map(|family| address(bytes, family));
            *destination = inner_destination.unwrap_or(*destination);
            Step::Decapsulate {
                inner,
                offset,
                destination: inner_destination,
            }
        }
        Event::Push {
            policy,
            bytes,
            destination,
        } => {
            replace(destination);
            push(names, policy, bytes)
        }
        Event::Masquerade {
            segments_left,
            destination,
        }
        | Event::Demasquerade {
            segments_left,
            destination,
        } => Step::Masquerade {
            segments_left,
            destination: replace(destination),
            source: MASQUERADING,
        },
        Event::LastSegment { segment, .. } => Step::LastSegment {
            segment: address(segment, Family::V6),
            source: DESTINATION_NAT,
        },
        Event::Learn { bytes, .. } => Step::Learn {
            bytes,
            source: DYNAMIC_PROXY,
        },
        Event::Restore {
            bytes, destination, ..
        } => Step::Restore {
            bytes,
            destination: replace(destination).1,
            source: DYNAMIC_PROXY,
        },
        _ => return None,
    })
}

/// Returns the names of the tables of a view.
fn tables(names: Names<'_>, view: ViewId) -> Vec<String> {
    let tables = names.index.views.get(&view).map(|view| &view.tables);
    let name = |id: TableId| match names.node.ether_with_table(id) {
        Some((device, _)) => format!("the frames of {device}"),
        None => table(id),
    };
    tables.into_iter().flatten().map(|id| name(*id)).collect()
}

/// Returns the family of the view, or of the destination if the view is gone.
fn family_of(names: Names<'_>, view: ViewId, destination: IpAddr) -> Family {
    let view = names.index.views.get(&view);
    view.map_or(Family::of(&destination), |view| view.family)
}

fn behavior(names: Names<'_>, route: RouteId) -> Step {
    let info = names.index.routes.get(&route);
    // Each of several next hops can have its own behavior.
    let encap = info.and_then(|info| match &info.next_hop {
        Some(chosen) => chosen.encap.as_ref(),
        None => info.route(names.node).and_then(encap),
    });
    let row = match encap {
        Some(Encap::Seg6Local(local)) => Some(local.action.descriptor()),
        Some(Encap::Binding(policy)) => chosen::binding(names, policy),
        _ => None,
    };
    match row {
        Some(row) => Step::Behavior {
            name: row.name,
            summary: row.summary,
            source: row.source,
        },
        None => Step::Behavior {
            name: "endpoint behavior",
            summary: "",
            source: "RFC 8986 4",
        },
    }
}

fn push(names: Names<'_>, policy: PolicyId, bytes: u32) -> Step {
    let Some(info) = names.index.policies.get(&policy) else {
        let name = "headend behavior";
        return Step::Push {
            name,
            segments: vec![],
            outer_source: None,
            bytes,
            source: "RFC 8986 5",
        };
    };
    let row = info.encap.mode.descriptor();
    Step::Push {
        name: row.name,
        segments: info.encap.segments.clone(),
        outer_source: (!info.encap.mode.inserts()).then_some(info.source),
        bytes,
        source: row.source,
    }
}

pub(super) fn route_name(names: Names<'_>, index: RouteId) -> RouteName {
    let info = names.index.routes.get(&index);
    match info.and_then(|info| info.route(names.node)) {
        Some(found) if names.node.ether_of_table(found.key.table).is_some() => RouteName {
            prefix: None,
            table: None,
            words: ether_route(names.node, found),
            neighbor: None,
        },
        Some(found) => RouteName {
            prefix: Some(found.key.prefix.to_string()),
            table: Some(table(found.key.table)),
            words: route::print_resolved(found, names.node),
            neighbor: info.and_then(|info| info.neighbor),
        },
        None if info.is_none() => RouteName {
            prefix: None,
            table: None,
            words: "a route that has since been removed".into(),
            neighbor: None,
        },
        None => RouteName {
            prefix: None,
            table: None,
            words: match names.index.leads.get(&index) {
                Some(Continuation::BySource) => "depends on the source address".into(),
                Some(Continuation::Next) => "other tables".into(),
                None => "the action of a rule".into(),
            },
            neighbor: None,
        },
    }
}

/// Returns the words of an ether device, whose route this is.
fn ether_route(node: &Node, route: &Route) -> String {
    let found = node.ether_with_table(route.key.table);
    found.map_or_else(String::new, |(name, device)| ether::print(name, device))
}

/// Returns the name of a table, as `ip` prints it.
pub(crate) fn table(id: TableId) -> String {
    match id {
        TableId::DEFAULT => "default".into(),
        TableId::MAIN => "main".into(),
        TableId::LOCAL => "local".into(),
        TableId(number) => number.to_string(),
    }
}

/// Returns the VLAN ids in the key of a VLAN table: 12 of each 16 bits
/// (`datapath/behavior/end_dx2v.h`).
fn vlan_ids(key: [u8; 16]) -> (u16, u16) {
    let id = |at: usize| u16::from_be_bytes([key[at], key[at + 1]]) & 0xfff;
    (id(0), id(2))
}

/// Converts an address of a trace: network byte order, IPv4 in the first four bytes.
fn address(bytes: [u8; 16], family: Family) -> IpAddr {
    match family {
        Family::V6 => Ipv6Addr::from(bytes).into(),
        Family::V4 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
    }
}
