//! The documented differences between Linux and Sidestep (`docs/conformance/differences.yaml`), each
//! as narrow as possible. Derives the frame that Linux has to send from the frame that Sidestep
//! sends.

use sidestep_datapath::abi::{
    SIDESTEP_POLICY_ENCAPS, SIDESTEP_POLICY_ENCAPS_L2, SIDESTEP_POLICY_INSERT,
    SIDESTEP_ROUTE_NEXT_CSID, SIDESTEP_TRACE_BEHAVIOR, SIDESTEP_TRACE_DECAP, SIDESTEP_TRACE_POP,
    SIDESTEP_TRACE_PUSH, sidestep_policy,
};
use sidestep_datapath::{PolicyId, RouteId};
use sidestep_testkit::differential::headers::{ETHERNET, IPV6, ipv4_set_checksum, proto};

use crate::case::Case;

/// Topics of `docs/conformance/differences.yaml`.
pub const INNER_HOP_LIMIT: &str = "Inner hop limit at a headend";
pub const OUTER_HOP_LIMIT: &str = "Outer hop limit at a headend";
pub const TRAFFIC_CLASS: &str = "Traffic class and ECN at a headend";
pub const ETHERNET_INSIDE: &str = "Around an Ethernet frame";
pub const FLOW_LABEL: &str = "Flow label at a headend";
pub const ECN: &str = "ECN at decapsulation";
pub const INNER_CHECKS: &str = "Checks of the inner packet";
pub const FLAVORS: &str = "Flavors";
pub const SEVERAL: &str = "Several local SIDs in one packet";
pub const HOP_BY_HOP: &str = "Hop-by-Hop Options at H.Insert";

/// Returns Linux' frame for Sidestep's `frame`, and the topics of their differences.
pub struct LinuxForm {
    pub frame: Vec<u8>,
    pub topics: Vec<&'static str>,
    /// The outer label is a hash with a key drawn at boot: any will do.
    pub any_label: bool,
}

/// IANA "Assigned Internet Protocol Numbers": Ethernet.
const ETHERNET_INNER: u32 = 143;

impl LinuxForm {
    /// Whether Linux's frame is this one, but for a label that may be any.
    pub fn is_same(&self, frame: &[u8], found: &[u8]) -> bool {
        if self.any_label {
            without_label(frame) == without_label(found)
        } else {
            frame == found
        }
    }
}

/// An IP header in a frame.
struct Ip<'a> {
    bytes: &'a mut [u8],
}

impl Ip<'_> {
    fn is_ipv6(&self) -> bool {
        self.bytes[0] >> 4 == 6
    }

    fn traffic_class(&self) -> u8 {
        if self.is_ipv6() {
            self.bytes[0] << 4 | self.bytes[1] >> 4
        } else {
            self.bytes[1]
        }
    }

    fn set_traffic_class(&mut self, class: u8) {
        if self.is_ipv6() {
            self.bytes[0] = 0x60 | class >> 4;
            self.bytes[1] = class << 4 | self.bytes[1] & 0x0f;
        } else {
            self.bytes[1] = class;
            ipv4_set_checksum(self.bytes);
        }
    }

    fn flow_label(&self) -> u32 {
        if self.is_ipv6() {
            u32::from_be_bytes([0, self.bytes[1] & 0x0f, self.bytes[2], self.bytes[3]])
        } else {
            0
        }
    }

    fn set_flow_label(&mut self, label: u32) {
        let [_, a, b, c] = label.to_be_bytes();
        self.bytes[1] = self.bytes[1] & 0xf0 | a;
        self.bytes[2..4].copy_from_slice(&[b, c]);
    }

    fn hop_limit(&self) -> u8 {
        self.bytes[if self.is_ipv6() { 7 } else { 8 }]
    }

    fn set_hop_limit(&mut self, limit: u8) {
        if self.is_ipv6() {
            self.bytes[7] = limit;
        } else {
            self.bytes[8] = limit;
            ipv4_set_checksum(self.bytes);
        }
    }
}

/// `sent` is what Sidestep made of the case.
pub fn of(case: &Case<'_>, sent: &[u8]) -> LinuxForm {
    let mut form = LinuxForm {
        frame: sent.to_vec(),
        topics: Vec::new(),
        any_label: false,
    };
    let pushed = case
        .last(SIDESTEP_TRACE_PUSH)
        .map(|step| &case.compiled.image.policies[&PolicyId(step.a)]);
    let encapsulated = pushed.filter(|policy| u32::from(policy.kind) == SIDESTEP_POLICY_ENCAPS);
    let carried = pushed.filter(|policy| u32::from(policy.kind) == SIDESTEP_POLICY_ENCAPS_L2);
    let at = ETHERNET + encapsulated.map_or(0, |policy| usize::from(policy.length));
    restore_hop_by_hop(case, &mut form);
    restore_srh(case, &mut form, at);
    restore_trailer(case, &mut form);
    restore_ecn(case, &mut form, at);
    restore_hop_limit(case, &mut form, at);
    if let Some(policy) = encapsulated {
        around_packet(case, &mut form, policy);
    }
    if let Some(policy) = carried {
        around_frame(case, &mut form, policy);
    }
    let grown = form.frame.len().wrapping_sub(sent.len());
    if encapsulated.is_some() && grown != 0 {
        let length = Ip {
            bytes: &mut form.frame[ETHERNET..],
        };
        let total = u16::from_be_bytes([length.bytes[4], length.bytes[5]]) + grown as u16;
        length.bytes[4..6].copy_from_slice(&total.to_be_bytes());
    }
    form
}

/// RFC 8200 4.1: `seg6_do_srh_inline` inserts the SRH in front of Hop-by-Hop Options.
fn restore_hop_by_hop(case: &Case<'_>, form: &mut LinuxForm) {
    let Some(policy) = inserted(case) else {
        return;
    };
    let packet = &mut form.frame[ETHERNET..];
    if packet[6] != proto::HOP_BY_HOP {
        return;
    }
    let options = (usize::from(packet[IPV6 + 1]) + 1) * 8;
    let srh = IPV6 + options;
    packet[6] = proto::ROUTING;
    packet[IPV6] = std::mem::replace(&mut packet[srh], proto::HOP_BY_HOP);
    packet[IPV6..srh + usize::from(policy.length)].rotate_left(options);
    form.topics.push(HOP_BY_HOP);
}

/// PSP with NEXT-C-SID: at the end of a container Linux forgets to take the SRH out (`end_next_csid_core`).
fn restore_srh(case: &Case<'_>, form: &mut LinuxForm, at: usize) {
    let (Some(pop), Some(sid)) = (
        case.last(SIDESTEP_TRACE_POP),
        case.before(SIDESTEP_TRACE_POP, SIDESTEP_TRACE_BEHAVIOR),
    ) else {
        return;
    };
    let flags = u32::from(case.compiled.image.routes[&RouteId(sid.b)].flags);
    // A packet that is decapsulated afterwards has no SRH to remove.
    let from = case.current();
    if flags & SIDESTEP_ROUTE_NEXT_CSID == 0 || (pop.a as usize) < from {
        return;
    }
    let arrived = &case.frame[from..];
    let length = IPV6 + usize::from(u16::from_be_bytes([arrived[4], arrived[5]]));
    let mut packet = arrived[..length].to_vec();
    packet[..4].copy_from_slice(&form.frame[at..at + 4]);
    packet[7] = form.frame[at + 7];
    packet[24..40].copy_from_slice(&form.frame[at + 24..at + 40]);
    packet[pop.a as usize - from + 3] = 0;
    if let Some(policy) = inserted(case) {
        // The inserted SRH precedes existing headers.
        let length = usize::from(policy.length);
        let mut srh = form.frame[ETHERNET + IPV6..ETHERNET + IPV6 + length].to_vec();
        srh[0] = std::mem::replace(&mut packet[6], proto::ROUTING);
        let payload = (packet.len() - IPV6 + length) as u16;
        packet[4..6].copy_from_slice(&payload.to_be_bytes());
        packet.splice(IPV6..IPV6, srh);
    }
    form.frame.truncate(at);
    form.frame.extend(packet);
    form.topics.push(FLAVORS);
}

/// The policy of an H.Insert or End.B6.
fn inserted<'a>(case: &Case<'a>) -> Option<&'a sidestep_policy> {
    let step = case.last(SIDESTEP_TRACE_PUSH)?;
    let policy = &case.compiled.image.policies[&PolicyId(step.a)];
    (u32::from(policy.kind) == SIDESTEP_POLICY_INSERT).then_some(policy)
}

/// Bytes after the inner packet: Linux's receive path would cut it off, and is not asked.
fn restore_trailer(case: &Case<'_>, form: &mut LinuxForm) {
    let Some(step) = case.last(SIDESTEP_TRACE_DECAP) else {
        return;
    };
    let length = |ip: &[u8]| match ip[0] >> 4 {
        6 => IPV6 + usize::from(u16::from_be_bytes([ip[4], ip[5]])),
        _ => usize::from(u16::from_be_bytes([ip[2], ip[3]])),
    };
    if step.a == ETHERNET_INNER {
        return;
    }
    let inner = step.b as usize;
    let (end, outer_end) = (
        inner + length(&case.frame[inner..]),
        ETHERNET + length(&case.frame[ETHERNET..]),
    );
    if end < outer_end {
        form.frame.extend(&case.frame[end..outer_end]);
        form.topics.push(INNER_CHECKS);
    }
}

/// RFC 6040 4.2: Linux leaves the inner ECN field as it was. `at`: the decapsulated header in the frame that is sent.
fn restore_ecn(case: &Case<'_>, form: &mut LinuxForm, at: usize) {
    let Some(step) = case.last(SIDESTEP_TRACE_DECAP) else {
        return;
    };
    if step.a == ETHERNET_INNER {
        return;
    }
    let mut arrived = case.frame[step.b as usize..].to_vec();
    let before = Ip {
        bytes: &mut arrived,
    }
    .traffic_class();
    let mut ip = Ip {
        bytes: &mut form.frame[at..],
    };
    if ip.traffic_class() != before {
        assert_eq!(
            ip.traffic_class() & !3,
            before & !3,
            "the DSCP is left alone"
        );
        ip.set_traffic_class(before);
        form.topics.push(ECN);
    }
}

/// RFC 8986 4.1 S12: Linux decrements the hop limit once for all SIDs. `at`: the packet's header in the frame that is sent.
fn restore_hop_limit(case: &Case<'_>, form: &mut LinuxForm, at: usize) {
    let sids = case.since_decapsulation(SIDESTEP_TRACE_BEHAVIOR);
    if sids > 1 {
        let mut ip = Ip {
            bytes: &mut form.frame[at..],
        };
        ip.set_hop_limit(ip.hop_limit() + sids as u8 - 1);
        form.topics.push(SEVERAL);
    }
}

/// H.Encaps, H.Encaps.Red, End.B6.Encaps: `seg6_do_srh_encap`.
fn around_packet(case: &Case<'_>, form: &mut LinuxForm, policy: &sidestep_policy) {
    let (outer, inner) = form.frame[ETHERNET..].split_at_mut(usize::from(policy.length));
    let (mut outer, mut inner) = (Ip { bytes: outer }, Ip { bytes: inner });
    inner.set_hop_limit(inner.hop_limit().wrapping_add(1));
    form.topics.push(INNER_HOP_LIMIT);

    assert_eq!(
        outer.hop_limit(),
        policy.header[7],
        "the outer hop limit is the node's"
    );
    let limit = if inner.is_ipv6() {
        inner.hop_limit()
    } else {
        policy.header[7]
    };
    outer.set_hop_limit(limit.wrapping_sub(1));
    form.topics.push(OUTER_HOP_LIMIT);

    let class = if inner.is_ipv6() {
        inner.traffic_class()
    } else {
        0
    };
    if outer.traffic_class() != class {
        outer.set_traffic_class(class);
        form.topics.push(TRAFFIC_CLASS);
    }
    form.any_label = label(case, &mut outer, inner.flow_label(), &mut form.topics);
}

/// H.Encaps.L2: what Linux takes from the packet in the frame.
fn around_frame(case: &Case<'_>, form: &mut LinuxForm, policy: &sidestep_policy) {
    let (outer, frame) = form.frame[ETHERNET..].split_at_mut(usize::from(policy.length));
    let (mut outer, inner) = (
        Ip { bytes: outer },
        Ip {
            bytes: &mut frame[ETHERNET..],
        },
    );
    assert_eq!(
        outer.hop_limit(),
        policy.header[7],
        "the outer hop limit is the node's"
    );
    let (class, limit) = if inner.is_ipv6() {
        (inner.traffic_class(), inner.hop_limit())
    } else {
        (0, policy.header[7])
    };
    outer.set_traffic_class(class);
    outer.set_hop_limit(limit.wrapping_sub(1));
    form.topics.push(ETHERNET_INSIDE);
    form.any_label = label(case, &mut outer, inner.flow_label(), &mut form.topics);
}

/// Copied with `seg6_flowlabel` 0, hashed with 1, 0 with -1. True where any label of Linux's will do.
fn label(case: &Case<'_>, outer: &mut Ip<'_>, inner: u32, topics: &mut Vec<&'static str>) -> bool {
    let ours = outer.flow_label();
    let (rule, linux) = match case.seg6_flowlabel {
        0 if inner != 0 => (ours == inner, inner),
        0 | 1 => (ours != 0, 0),
        _ => (ours == 0, 0),
    };
    assert!(
        rule,
        "the outer flow label {ours:#x} is by the rule, inner {inner:#x}"
    );
    if ours != linux || case.seg6_flowlabel == 1 {
        topics.push(FLOW_LABEL);
    }
    outer.set_flow_label(linux);
    case.seg6_flowlabel == 1
}

/// Sets the outer label of an encapsulated frame to 0, so that frames with any label compare equal.
fn without_label(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if frame.len() >= ETHERNET + IPV6 {
        Ip {
            bytes: &mut frame[ETHERNET..],
        }
        .set_flow_label(0);
    }
    frame
}
