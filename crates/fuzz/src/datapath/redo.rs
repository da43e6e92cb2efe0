//! A second implementation of the rewrite. It applies the decisions of a trace to a vector of
//! bytes, header by header, while `datapath/rewrite.h` moves a buffer once and writes fields in
//! place.

use sidestep_datapath::abi::{
    PUNT_local, SIDESTEP_POLICY_ENCAPS_L2, SIDESTEP_POLICY_INSERT, SIDESTEP_ROUTE_END_B6_INSERT,
    SIDESTEP_ROUTE_REFLECT,
};
use std::collections::BTreeMap;

use sidestep_datapath::event::{Inner, TagChange};
use sidestep_datapath::{AdjacencyId, HeaderSetId, Image, PolicyId, Trace, TraceEvent};
use sidestep_wire::{Ipv4, Protocol};

use super::flow;
use super::packet::{Kind, extension_length, headers};

mod edit;

use edit::{insert, push, restore, take_out};

const ETHERNET: usize = 14;
const IPV6: usize = 40;

/// The expected frame at the egress.
#[derive(Debug, PartialEq, Eq)]
pub struct Expected {
    /// Bytes of the frame.
    pub frame: Vec<u8>,
    /// Offset of the checksum of the current IPv4 header. 0xffff is as correct as 0.
    pub ipv4_checksum: Option<usize>,
    /// Offsets of IPv6 headers whose flow label the packet path chooses (at least 1). The label is
    /// 0 in `frame`.
    pub labels: Vec<usize>,
    /// Whether the trace does not identify the SRH, so that `frame` may be wrong.
    pub which_srh_is_unknown: bool,
}

/// Expected header sets of the dynamic proxies, by index and flow. The flow is empty if the proxy
/// does not learn per flow. The previous headers of a flow are kept as well: an evicted flow learns
/// again whatever its age.
pub type Learned = BTreeMap<(HeaderSetId, Vec<u8>), Vec<Vec<u8>>>;

/// Decisions for one packet.
#[derive(Clone, Default)]
struct Decided {
    /// Start of the current header, and end of its packet.
    at: usize,
    end: usize,
    /// Version of the current header. 0 for a frame.
    version: u8,
    /// Whether this is a frame that a service returned. It is forwarded unmodified; `version` is
    /// that of its payload.
    carried: bool,
    ecn: u8,
    /// SIDs that moved the packet to its next segment (RFC 8986 4.1 S12).
    sids: u8,
    /// The last lookup found an address of the node.
    is_local: bool,
    destination: Option<[u8; 16]>,
    /// Offset of the SRH, and its Segments Left.
    segments_left: Option<(usize, u8)>,
    /// Offset of an SRH whose Segment List[0] changes, and the new segment.
    last_segment: Option<(usize, [u8; 16])>,
    /// Offset and length of each SRH that is removed, in their order.
    pops: Vec<(usize, usize)>,
    policy: Option<PolicyId>,
    /// Learned headers.
    restored: Option<Vec<u8>>,
    adjacency: Option<AdjacencyId>,
    tag: Option<TagChange>,
    /// The packet is a probe of S-BFD and becomes its answer. Whether the reflector is down.
    reflected: Option<bool>,
    which_srh_is_unknown: bool,
}

/// Returns whether the step parsed an IP header or a frame.
fn is_parsed(step: &Trace) -> bool {
    let event = TraceEvent::decode(step);
    matches!(
        event,
        Some(TraceEvent::Parsed { .. } | TraceEvent::Frame { .. })
    )
}

/// Returns the frame that results from a trace, or `None` if the trace is inconsistent.
///
/// `learned`: headers learned from earlier packets. The headers of this packet are added.
pub fn redo(
    arrived: &[u8],
    trace: &[Trace],
    image: &Image,
    learned: &mut Learned,
) -> Option<Expected> {
    // Headers that are pushed halfway are parsed like those of an arriving packet.
    let starts = trace.iter().enumerate().skip(1);
    let mut starts = starts.filter(|(_, step)| is_parsed(step));
    // The first step belongs to the arriving packet itself.
    starts.next()?;
    let mut tables = Tables { image, learned };
    let mut begin = 0;
    let mut expected = Expected {
        frame: arrived.to_vec(),
        ipv4_checksum: None,
        labels: vec![],
        which_srh_is_unknown: false,
    };
    for (end, _) in starts {
        expected = tables.stage(&expected, &trace[begin..end], true)?;
        begin = end;
    }
    tables.stage(&expected, &trace[begin..], false)
}

/// Tables that the decisions refer to.
struct Tables<'a> {
    image: &'a Image,
    learned: &'a mut Learned,
}

impl Tables<'_> {
    /// Applies a part of the trace to a frame. `halfway`: it ends with pushed headers and continues
    /// with the next lookup.
    fn stage(&mut self, before: &Expected, trace: &[Trace], halfway: bool) -> Option<Expected> {
        let arrived = &before.frame[..];
        let mut decided = decide(arrived, trace, self.image, self.learned)?;
        let retagged = match decided.tag {
            Some(change) if decided.carried => {
                let frame = edit::retag(arrived, change)?;
                decided.end = frame.len();
                decided.version = 0;
                frame
            }
            _ => arrived.to_vec(),
        };
        let arrived = &retagged[..];
        if decided.version == 0 && !decided.carried {
            let frame = arrived.get(decided.at..decided.end)?;
            return Some(Expected {
                frame: match decided.tag {
                    Some(change) => edit::retag(frame, change)?,
                    None => frame.to_vec(),
                },
                ipv4_checksum: None,
                labels: vec![],
                which_srh_is_unknown: before.which_srh_is_unknown,
            });
        }
        let policy = match decided.policy {
            Some(index) => Some(self.image.policies.get(&index)?),
            None => None,
        };
        let is_kind = |kind| policy.is_some_and(|policy| u32::from(policy.kind) == kind);
        let pushes = decided.policy.is_some() || decided.restored.is_some();
        let leaves = decided.adjacency.is_some() || halfway;
        let decrement = if is_kind(SIDESTEP_POLICY_ENCAPS_L2) || decided.reflected.is_some() {
            // An answer begins here.
            0
        } else if leaves || pushes {
            decided.sids.max(1)
        } else {
            // The kernel decrements the hop limit of a packet that it forwards.
            decided.sids.saturating_sub(u8::from(!decided.is_local))
        };
        let mut packet = if decided.carried {
            arrived.get(decided.at..decided.end)?.to_vec()
        } else {
            current(arrived, &decided, decrement)?
        };
        if let Some(is_down) = decided.reflected {
            edit::reflect(&mut packet, is_down)?;
        }
        let current_length = packet.len();
        let mut ether_type = [0x86, 0xdd];
        let mut any_label = false;
        match policy {
            Some(policy) if is_kind(SIDESTEP_POLICY_INSERT) => {
                let key = self.image.hmac_keys.get(&policy.hmac_key);
                insert(&mut packet, policy, key)?;
            }
            Some(policy) => any_label = push(&mut packet, policy, arrived, &decided)?,
            None if decided.restored.is_some() => {
                any_label = restore(&mut packet, arrived, &decided)?;
            }
            None if decided.version == 4 => ether_type = [0x08, 0x00],
            None => {}
        }
        if pushes && !leaves {
            packet[7] = packet[7].saturating_add(1);
        }
        let mut frame = match decided.adjacency {
            Some(index) => {
                let adjacency = self.image.adjacencies.get(&index)?;
                [adjacency.destination, adjacency.source].concat()
            }
            None => arrived.get(..12)?.to_vec(),
        };
        frame.extend(ether_type);
        frame.extend(packet);
        let mut labels = vec![];
        if any_label {
            labels.push(ETHERNET);
        }
        for &label in &before.labels {
            if label == decided.at && is_kind(SIDESTEP_POLICY_INSERT) {
                labels.push(ETHERNET);
            } else if label == decided.at {
                labels.push(frame.len() - current_length);
            } else if label > decided.at {
                labels.push((frame.len() + label).checked_sub(decided.end)?);
            }
        }
        Some(Expected {
            ipv4_checksum: (decided.version == 4 && !decided.carried)
                .then(|| frame.len() - current_length + 10),
            frame,
            labels,
            which_srh_is_unknown: before.which_srh_is_unknown || decided.which_srh_is_unknown,
        })
    }
}

/// Keys of the headers that a packet from a service may restore: of its own flow, and of the flow
/// that an ICMP error of the service quotes.
fn keys_of(arrived: &[u8], decided: &Decided, by_flow: bool) -> [Option<Vec<u8>>; 2] {
    if !by_flow {
        return [Some(vec![]), None];
    }
    let (at, version) = (decided.at, decided.version);
    [
        flow::key(arrived, at, version),
        flow::quoted(arrived, at, version),
    ]
}

/// Makes the inner packet or frame at `offset` the current one.
fn decapsulated(arrived: &[u8], outer: &Decided, inner: Inner, offset: usize) -> Option<Decided> {
    let mut decided = Decided {
        version: match inner {
            Inner::Ipv4 => 4,
            Inner::Ipv6 => 6,
            Inner::Ethernet => 0,
        },
        ..Decided::default()
    };
    decided.begin(arrived, offset)?;
    if decided.version == 0 {
        decided.end = outer.end;
    } else {
        decided.ecn = ecn_decapsulated(outer.ecn, decided.ecn_of(arrived)?);
    }
    Some(decided)
}

fn decide(
    arrived: &[u8],
    trace: &[Trace],
    image: &Image,
    learned: &mut Learned,
) -> Option<Decided> {
    let mut decided = Decided::default();
    for event in trace.iter().filter_map(TraceEvent::decode) {
        match event {
            TraceEvent::Frame { offset } => {
                decided = Decided {
                    at: offset as usize,
                    end: arrived.len(),
                    version: version_in(arrived),
                    carried: true,
                    ..Decided::default()
                };
            }
            TraceEvent::Parsed {
                version, offset, ..
            } => {
                decided = Decided {
                    version,
                    ..Decided::default()
                };
                decided.begin(arrived, offset as usize)?;
                decided.ecn = decided.ecn_of(arrived)?;
            }
            TraceEvent::Decap { inner, offset, .. } => {
                decided = decapsulated(arrived, &decided, inner, offset as usize)?;
            }
            TraceEvent::Srh {
                offset,
                segments_left,
                destination,
            } => {
                is_srh_with_segment(arrived.get(offset as usize..)?, segments_left)?;
                decided.segments_left = Some((offset as usize, segments_left as u8));
                decided.destination = Some(destination);
                decided.sids += 1;
            }
            TraceEvent::ReplaceCsid {
                segments_left,
                destination,
                ..
            } => {
                decided.destination = Some(destination);
                decided.sids += 1;
                decided.replace(arrived, segments_left as u8);
            }
            TraceEvent::LastSegment { offset, segment } => {
                decided.last_segment = Some((offset as usize, segment));
            }
            TraceEvent::Lookup { route, .. } | TraceEvent::Source { route, .. } => {
                let of = image.routes.get(&route);
                decided.is_local = of.is_some_and(|route| u32::from(route.reason) == PUNT_local);
            }
            TraceEvent::NextCsid { destination } => {
                decided.destination = Some(destination);
                decided.sids += 1;
            }
            TraceEvent::Behavior { action, .. } => {
                decided.sids += u8::from(action == SIDESTEP_ROUTE_END_B6_INSERT);
            }
            TraceEvent::Masquerade { destination, .. }
            | TraceEvent::Demasquerade { destination, .. } => {
                decided.destination = Some(destination);
            }
            TraceEvent::Learn {
                header_set, bytes, ..
            } => learn(arrived, &decided, (header_set, bytes), image, learned)?,
            TraceEvent::Restore {
                header_set,
                bytes,
                destination,
            } => {
                let by_flow = image.learned.get(&header_set)?.flows != 0;
                let keys = keys_of(arrived, &decided, by_flow);
                let is_restored = |headers: &&Vec<u8>| {
                    headers.len() == bytes as usize && headers[24..40] == destination
                };
                let of_key = |key| {
                    let sets = learned.get(&(header_set, key))?;
                    sets.iter().rev().find(is_restored)
                };
                let restored = keys.into_iter().flatten().find_map(of_key)?;
                decided.restored = Some(restored.clone());
            }
            TraceEvent::Pop { offset, bytes } => {
                let at = offset as usize;
                decided.pops.push((at, bytes as usize));
                decided.segments_left = decided.segments_left.filter(|(srh, _)| *srh != at);
            }
            TraceEvent::Tag { change } => decided.tag = Some(change),
            TraceEvent::Reflect { discriminator, .. } => {
                decided.reflected = Some(is_admin_down(image, discriminator)?);
            }
            TraceEvent::Push { policy, .. } => decided.policy = Some(policy),
            TraceEvent::Forward { adjacency, .. } => decided.adjacency = Some(adjacency),
            _ => {}
        }
    }
    (decided.at != 0).then_some(decided)
}

/// Returns whether this reflector of S-BFD is down by configuration.
fn is_admin_down(image: &Image, discriminator: u32) -> Option<bool> {
    let mut reflectors = image.fib.iter().filter_map(|(key, route)| {
        let is_key = key.address[..4] == discriminator.to_be_bytes() && key.length == 32;
        let record = image.routes.get(route).filter(|_| is_key)?;
        (u32::from(record.action) == SIDESTEP_ROUTE_REFLECT).then_some(record)
    });
    Some(reflectors.next()?.inner == 0)
}

/// Records the headers that a dynamic proxy learns from a packet, per inner flow if the proxy
/// learns per flow. Returns `None` if the trace is inconsistent.
fn learn(
    arrived: &[u8],
    decided: &Decided,
    (header_set, bytes): (HeaderSetId, u32),
    image: &Image,
    learned: &mut Learned,
) -> Option<()> {
    let mut headers = current(arrived, decided, decided.sids)?;
    headers.truncate(bytes as usize);
    // Clears the fields that differ per packet.
    headers[..6].copy_from_slice(&[0x60, 0, 0, 0, 0, 0]);
    let proxy = image.learned.get(&header_set)?;
    let inside = decided.at + bytes as usize;
    let version = if carried(&headers)? == Protocol::IPV4.0 {
        4
    } else {
        6
    };
    let key = if proxy.flows == 0 {
        vec![]
    } else if let Some(key) = flow::key(arrived, inside, version) {
        key
    } else {
        // There is no inner packet, so stop here.
        return Some(());
    };
    let known = learned.entry((header_set, key)).or_default();
    if proxy.age == 0 {
        *known = vec![headers];
    } else if known.is_empty() || proxy.flows != 0 {
        // Time does not advance here, so headers with an age are learned once.
        known.push(headers);
    }
    Some(())
}

impl Decided {
    fn begin(&mut self, arrived: &[u8], at: usize) -> Option<()> {
        let length = |offset| {
            let bytes = arrived.get(at + offset..at + offset + 2)?;
            Some(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
        };
        self.at = at;
        self.end = match self.version {
            6 => at + IPV6 + length(4)?,
            4 => at + length(2)?,
            _ => at,
        };
        Some(())
    }

    /// REPLACE-C-SID reports Segments Left, but not its SRH: the current one, else the first in the
    /// chain with segments left that is not removed. If other SRHs precede it, it may be one of
    /// them.
    fn replace(&mut self, arrived: &[u8], left: u8) {
        if let Some((_, so_far)) = &mut self.segments_left {
            *so_far = left;
            return;
        }
        let srhs: Vec<usize> = headers(arrived)
            .iter()
            .filter(|header| header.at >= self.at && header.kind == Kind::Routing)
            .map(|header| header.at)
            .take_while(|&at| at < self.end)
            .filter(|at| !self.pops.iter().any(|(popped, _)| popped == at))
            .collect();
        match srhs.iter().position(|&at| arrived[at + 3] != 0) {
            Some(0) => self.segments_left = Some((srhs[0], left)),
            Some(_) => self.which_srh_is_unknown = true,
            None => {}
        }
    }

    fn ecn_of(&self, arrived: &[u8]) -> Option<u8> {
        let byte = *arrived.get(self.at + 1)?;
        Some(if self.version == 6 { byte >> 4 } else { byte } & 3)
    }
}

/// Returns the header after an IPv6 header and its extension headers.
fn carried(headers: &[u8]) -> Option<u8> {
    let (mut next, mut at) = (*headers.get(6)?, IPV6);
    while at < headers.len() {
        let length = extension_length(next, headers.get(at..)?)?;
        next = headers[at];
        at += length;
    }
    Some(next)
}

/// RFC 8754 4.3.1.1: the Segment List is inside the SRH, and the new Segments Left is inside the
/// list.
fn is_srh_with_segment(srh: &[u8], segments_left: u32) -> Option<()> {
    let [_, length, kind, left, last_entry, ..] = *srh.first_chunk::<8>()?;
    let list = (usize::from(last_entry) + 1) * 16;
    let is_inside = kind == 4
        && list <= usize::from(length) * 8
        && u16::from(left) <= u16::from(last_entry) + 1
        && segments_left < u32::from(left);
    is_inside.then_some(())
}

/// RFC 6040 4.2, figure 4: rows by the inner field, columns by the outer, each in the order of the
/// code points.
fn ecn_decapsulated(outer: u8, inner: u8) -> u8 {
    const NOT_ECT: u8 = 0;
    const ECT1: u8 = 1;
    const ECT0: u8 = 2;
    const CE: u8 = 3;
    match (inner, outer) {
        (NOT_ECT, _) => NOT_ECT,
        (ECT1 | ECT0 | CE, CE) | (CE, _) => CE,
        (ECT0, ECT1) => ECT1,
        (same, _) => same,
    }
}

/// Returns the current packet with its rewritten fields.
fn current(arrived: &[u8], decided: &Decided, decrement: u8) -> Option<Vec<u8>> {
    let mut packet = arrived.get(decided.at..decided.end)?.to_vec();
    if decided.version == 4 {
        packet[1] = (packet[1] & !3) | decided.ecn;
        packet[8] = packet[8].checked_sub(decrement)?;
        Ipv4::write_checksum(&mut packet);
        return Some(packet);
    }
    packet[1] = (packet[1] & !0x30) | (decided.ecn << 4);
    packet[7] = packet[7].checked_sub(decrement)?;
    if let Some(destination) = decided.destination {
        packet[24..40].copy_from_slice(&destination);
    }
    if let Some((srh, left)) = decided.segments_left {
        *packet.get_mut(srh - decided.at + 3)? = left;
    }
    if let Some((srh, segment)) = decided.last_segment {
        let at = srh - decided.at + 8;
        packet.get_mut(at..at + 16)?.copy_from_slice(&segment);
    }
    for &(srh, length) in decided.pops.iter().rev() {
        take_out(&mut packet, srh - decided.at, length)?;
    }
    Some(packet)
}

/// Returns the version of an IP packet in a frame, or 0.
fn version_in(frame: &[u8]) -> u8 {
    let nibble = frame.get(ETHERNET).map_or(0, |byte| byte >> 4);
    match (frame.get(12..14), nibble) {
        (Some([0x86, 0xdd]), 6) if frame.len() >= ETHERNET + IPV6 => 6,
        (Some([0x08, 0x00]), 4) if frame.len() >= ETHERNET + 20 => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_an_srh_updates_the_next_header_before_it() {
        let mut packet = vec![0; IPV6 + 8 + 24 + 5];
        packet[6] = 0;
        packet[IPV6] = Protocol::ROUTING.0;
        packet[IPV6 + 8..IPV6 + 10].copy_from_slice(&[17, 2]);
        packet[IPV6 + 32..].copy_from_slice(b"hello");
        take_out(&mut packet, IPV6 + 8, 24).expect("it is there");
        assert_eq!(packet.len(), IPV6 + 8 + 5);
        assert_eq!((packet[6], packet[IPV6], packet[5]), (0, 17, 13));
        assert_eq!(&packet[IPV6 + 8..], b"hello");
        assert_eq!(take_out(&mut packet, IPV6 + 7, 8), None);
    }

    #[test]
    fn the_ecn_field_follows_rfc_6040() {
        // Rows: inner Not-ECT, ECT(0), ECT(1), CE. Columns: outer Not-ECT, ECT(0), ECT(1), CE
        // (dropped in the first row).
        let table = [
            (0, [0, 0, 0, 0]),
            (2, [2, 2, 1, 3]),
            (1, [1, 1, 1, 3]),
            (3, [3, 3, 3, 3]),
        ];
        for (inner, row) in table {
            let found = [0, 2, 1, 3].map(|outer| ecn_decapsulated(outer, inner));
            assert_eq!(found, row, "inner {inner}");
        }
    }
}
