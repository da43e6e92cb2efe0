//! One packet, two answers: whether they agree, differ as documented, or one of them is wrong.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use sidestep_datapath::abi::{
    SIDESTEP_POLICY_ENCAPS_L2, SIDESTEP_ROUTE_END_DX2, SIDESTEP_ROUTE_END_DX4, SIDESTEP_TLVS_MAX,
    SIDESTEP_TRACE_BEHAVIOR, SIDESTEP_TRACE_CSID, SIDESTEP_TRACE_DECAP, SIDESTEP_TRACE_PUSH,
};
use sidestep_datapath::{PolicyId, Trace};
use sidestep_testkit::differential::headers::ETHERNET;
use sidestep_testkit::frames::noise;
use sidestep_testkit::linux::Output;
use sidestep_testkit::vectors::Expect;

use crate::arrived::Headers;
use crate::case::{Case, on_link};
use crate::linux_form;

#[derive(Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Linux did the same.
    Same,
    /// Linux did what these topics of `docs/conformance/differences.yaml` say.
    Differs(Vec<&'static str>),
    /// Linux' frame is not visible: it looks like one of the node's own frames, or the tester's
    /// stack refuses it.
    Unseen,
    /// A SID of the node processed headers that the node had pushed. The golden vectors have these.
    Pushed,
    /// In a few words, the same for packets that show the same.
    Wrong(String),
}

/// Topics of `docs/conformance/differences.yaml` that are not about bytes of a frame.
const IMPOSSIBLE_SRH: &str = "SRHs that cannot be";
const PAD1: &str = "Pad1 in the SRH";
const PADDING: &str = "Hop-by-Hop options that Linux refuses";
const FRAMES: &str = "Frames that End.DX2 carries";
const END_DX4: &str = "Next hop of End.DX4";
const ADDRESSES: &str = "Addresses that are never forwarded";
const TLVS: &str = "TLVs beyond the limit";
const WAYS: &str = "Which of several next hops";
const OWN_SOURCE: &str = "IPv4 sources of the node itself";
const NOT_A_SID: &str = "Addresses that are not SIDs";
const FRAGMENTS: &str = "Fragments at a SID";
const ORDER: &str = "Hop-by-Hop Options behind another header";
const OPTIONS: &str = "Unknown Destination Options";
const SECURITY: &str = "Authentication Header at a SID";

/// All topics that a packet may be excused by.
pub const TOPICS: [&str; 24] = [
    linux_form::INNER_HOP_LIMIT,
    linux_form::OUTER_HOP_LIMIT,
    linux_form::TRAFFIC_CLASS,
    linux_form::ETHERNET_INSIDE,
    linux_form::FLOW_LABEL,
    linux_form::ECN,
    linux_form::INNER_CHECKS,
    linux_form::FLAVORS,
    linux_form::HOP_BY_HOP,
    IMPOSSIBLE_SRH,
    PAD1,
    PADDING,
    FRAMES,
    END_DX4,
    linux_form::SEVERAL,
    ADDRESSES,
    TLVS,
    WAYS,
    OWN_SOURCE,
    NOT_A_SID,
    FRAGMENTS,
    ORDER,
    OPTIONS,
    SECURITY,
];

/// `linux`: output frames without the node's own frames.
pub fn judge(case: &Case<'_>, linux: &[Output]) -> Judgement {
    match case.ours {
        Expect::Forward { frame, .. } if noise(frame).is_some() || is_cut_tag(frame) => {
            Judgement::Unseen
        }
        Expect::Forward { .. } | Expect::Drop(_) if case.processes_pushed_headers() => {
            Judgement::Pushed
        }
        Expect::Forward { port, frame } => forwarded(case, port, frame, linux),
        Expect::Drop(_) if linux.is_empty() => Judgement::Same,
        Expect::Drop(reason) if reason == "too_big" && case.is_a_wider_way(linux) => {
            Judgement::Differs(vec![WAYS])
        }
        Expect::Drop(reason) => match dropped(case, reason) {
            Some(topic) => Judgement::Differs(vec![topic]),
            None => wrong(case, linux, "Linux sends it"),
        },
        Expect::Kernel(_) => Judgement::Same,
    }
}

fn forwarded(case: &Case<'_>, port: &str, frame: &[u8], linux: &[Output]) -> Judgement {
    let mut form = linux_form::of(case, frame);
    match linux {
        [only @ (out, found)]
            if out == port
                && (form.is_same(&form.frame, found) || !case.is_another_way(&form, only)) =>
        {
            let same = form.is_same(&form.frame, found);
            match (same, form.topics.is_empty()) {
                (true, true) => Judgement::Same,
                (true, false) => Judgement::Differs(form.topics),
                // The inner destination is a neighbor itself.
                (false, _)
                    if case.to_nh4_on_link()
                        && found[6..] == form.frame[6..]
                        && on_link(Ipv4Addr::new(found[30], found[31], found[32], found[33])) =>
                {
                    form.topics.push(END_DX4);
                    Judgement::Differs(form.topics)
                }
                (false, _) => {
                    let what = difference(&form.frame, found);
                    wrong(case, linux, &what)
                }
            }
        }
        [found] if case.is_another_way(&form, found) => {
            form.topics.push(WAYS);
            Judgement::Differs(form.topics)
        }
        // Nothing, an error to the sender, or IPv4 in fragments.
        [] | [_, _, ..] if case.has_a_closed_way(&form.frame) => Judgement::Differs(vec![WAYS]),
        [] | [_, _, ..] if case.is_too_large(&form.frame) => Judgement::Differs(form.topics),
        [] => match withheld(case, frame) {
            Some(topic) => Judgement::Differs(vec![topic]),
            None => wrong(case, linux, "Linux sends nothing"),
        },
        [(_, found)] if *found == form.frame => wrong(case, linux, "another port"),
        [_] => wrong(case, linux, "another port and frame"),
        _ => wrong(case, linux, "Linux sends several frames"),
    }
}

/// Why Linux may send what we drop.
fn dropped(case: &Case<'_>, reason: &str) -> Option<&'static str> {
    match reason {
        "ecn" => Some(linux_form::ECN),
        "inner_header" if case.decapsulates() => Some(linux_form::INNER_CHECKS),
        "srh_length" | "srh_segments_left" | "srh_tlv" | "ext_header" if case.decapsulates() => {
            Some(IMPOSSIBLE_SRH)
        }
        // Read with a length, Pad1 makes TLVs of other bytes: such an SRH is right, or wrong, to Linux only.
        "srh_tlv" if Headers::of(case.frame).srh_pad1 => Some(PAD1),
        "segments_left_not_zero" if case.decapsulates() && Headers::of(case.frame).srh_pad1 => {
            Some(IMPOSSIBLE_SRH)
        }
        "sid_loop" => Some(linux_form::SEVERAL),
        "hop_limit" => expired(case),
        "bad_address" | "segment_address" => Some(ADDRESSES),
        "not_a_sid" => Some(NOT_A_SID),
        "reassembly" => Some(FRAGMENTS),
        "hop_by_hop_order" => Some(ORDER),
        "unknown_option" => Some(OPTIONS),
        "security_association" => Some(SECURITY),
        _ => None,
    }
}

/// Why Linux may send a packet whose hop limit expired: it encapsulates IPv4 before it checks the TTL, and it checks once
/// for all SIDs.
fn expired(case: &Case<'_>) -> Option<&'static str> {
    let packet = case.frame.get(case.current()..)?;
    let limit = *packet.get(if packet[0] >> 4 == 6 { 7 } else { 8 })?;
    match case.since_decapsulation(SIDESTEP_TRACE_BEHAVIOR) {
        0 => (limit <= 1).then_some(linux_form::INNER_HOP_LIMIT),
        sids => (usize::from(limit) <= sids).then_some(linux_form::SEVERAL),
    }
}

/// Why Linux may not send what we send.
fn withheld(case: &Case<'_>, sent: &[u8]) -> Option<&'static str> {
    if case
        .ipv4_source()
        .is_some_and(|source| case.own.contains(&source))
    {
        return Some(OWN_SOURCE);
    }
    let headers = Headers::of(case.frame);
    if headers.srh_pad1 && case.last(SIDESTEP_TRACE_BEHAVIOR).is_some() {
        return Some(PAD1);
    }
    if headers.tlvs > SIDESTEP_TLVS_MAX as usize && case.last(SIDESTEP_TRACE_BEHAVIOR).is_some() {
        return Some(TLVS);
    }
    if headers.padding > 7 || headers.filled || headers.refused {
        return Some(PADDING);
    }
    let carried = |step: &Trace| {
        u32::from(case.compiled.image.policies[&PolicyId(step.a)].kind) == SIDESTEP_POLICY_ENCAPS_L2
    };
    if case.last(SIDESTEP_TRACE_PUSH).is_some_and(carried) {
        // The hop limit that Linux copies has ended.
        let expired = case.frame[ETHERNET] >> 4 == 6 && case.frame[ETHERNET + 7] <= 1;
        return expired.then_some(linux_form::ETHERNET_INSIDE);
    }
    let llc = || u16::from_be_bytes([sent[12], sent[13]]) < 0x600;
    match case.behavior()? {
        SIDESTEP_ROUTE_END_DX2 if llc() => Some(FRAMES),
        SIDESTEP_ROUTE_END_DX4 if case.to_nh4_on_link() => Some(END_DX4),
        _ => None,
    }
}

/// A VLAN tag that is not whole, or without the two bytes behind it: `skb_vlan_untag` drops the frame where it arrives.
fn is_cut_tag(frame: &[u8]) -> bool {
    matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]) && frame.len() < ETHERNET + 6
}

fn wrong(case: &Case<'_>, linux: &[Output], what: &str) -> Judgement {
    let verdict = match case.ours {
        Expect::Forward { .. } => "forward".to_owned(),
        Expect::Drop(reason) => format!("drop {reason}"),
        Expect::Kernel(reason) => format!("kernel {reason}"),
    };
    let mut words = format!("{verdict}, {} from Linux: {what}; way:", linux.len());
    for step in case.trace {
        let _ = match step.kind {
            SIDESTEP_TRACE_BEHAVIOR => write!(words, " behavior {}", step.a),
            SIDESTEP_TRACE_CSID => write!(words, " csid"),
            SIDESTEP_TRACE_DECAP => write!(words, " decap {}", step.a),
            SIDESTEP_TRACE_PUSH => write!(
                words,
                " push {}",
                case.compiled.image.policies[&PolicyId(step.a)].kind
            ),
            _ => Ok(()),
        };
    }
    Judgement::Wrong(words)
}

/// Where two frames begin to differ.
fn difference(expected: &[u8], found: &[u8]) -> String {
    if expected.len() != found.len() {
        return format!("{:+} bytes", found.len() as isize - expected.len() as isize);
    }
    let at: Vec<usize> = (0..expected.len())
        .filter(|&at| expected[at] != found[at])
        .collect();
    format!("{} bytes differ, the first at {}", at.len(), at[0])
}
