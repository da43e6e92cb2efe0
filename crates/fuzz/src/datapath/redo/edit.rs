//! Edits of a packet's bytes: removal and insertion of SRHs, and pushed headers.

use sidestep_control::compile::sign;
use sidestep_datapath::abi::{
    SIDESTEP_FLOW_LABEL_COPY, SIDESTEP_FLOW_LABEL_ZERO, SIDESTEP_POLICY_ENCAPS_L2,
    sidestep_hmac_key, sidestep_policy,
};
use sidestep_datapath::event::TagChange;
use sidestep_wire::Protocol;

use super::super::packet::extension_length;
use super::{Decided, ETHERNET, IPV6};

/// RFC 8986 4.16.1: the header before the SRH gets the SRH's Next Header.
pub(super) fn take_out(packet: &mut Vec<u8>, srh: usize, length: usize) -> Option<()> {
    let mut announces = 6;
    let mut at = IPV6;
    while at < srh {
        let length = extension_length(packet[announces], packet.get(at..)?)?;
        announces = at;
        at += length;
    }
    if at != srh || packet.len() < srh + length {
        return None;
    }
    packet[announces] = packet[srh];
    packet.drain(srh..srh + length);
    set_payload_length(packet);
    Some(())
}

/// H.Insert: the current destination becomes Segment List[0].
pub(super) fn insert(
    packet: &mut Vec<u8>,
    policy: &sidestep_policy,
    key: Option<&sidestep_hmac_key>,
) -> Option<()> {
    let mut srh = policy.header.get(..usize::from(policy.length))?.to_vec();
    // RFC 8200 4.1: a Hop-by-Hop header comes first.
    let (announces, at) = if packet[6] == Protocol::HOP_BY_HOP.0 {
        (
            IPV6,
            IPV6 + extension_length(packet[6], packet.get(IPV6..)?)?,
        )
    } else {
        (6, IPV6)
    };
    srh[0] = packet[announces];
    srh[8..24].copy_from_slice(&packet[24..40]);
    if let Some(key) = key {
        let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
        sign(&mut srh, key, source.into());
    }
    packet[announces] = Protocol::ROUTING.0;
    packet[24..40].copy_from_slice(&policy.first);
    packet.splice(at..at, srh);
    set_payload_length(packet);
    Some(())
}

/// Prepends the learned headers. Returns true if the packet path chooses the outer flow label.
pub(super) fn restore(packet: &mut Vec<u8>, arrived: &[u8], decided: &Decided) -> Option<bool> {
    let mut outer = decided.restored.clone()?;
    let (mut class, label) = class_and_label(packet, decided.version);
    if decided.carried {
        class &= !3;
        outer.extend(arrived.get(..ETHERNET)?);
    }
    let word = 6 << 28 | u32::from(class) << 20 | label;
    outer[..4].copy_from_slice(&word.to_be_bytes());
    packet.splice(..0, outer);
    set_payload_length(packet);
    Some(label == 0)
}

/// Returns the traffic class or TOS, and the flow label (0 for IPv4).
fn class_and_label(packet: &[u8], version: u8) -> (u8, u32) {
    match version {
        6 => (
            packet[0] << 4 | packet[1] >> 4,
            u32::from_be_bytes([0, packet[1] & 15, packet[2], packet[3]]),
        ),
        4 => (packet[1], 0),
        _ => (0, 0),
    }
}

/// Pushes headers (RFC 8986 5.1 to 5.3). Returns true if the packet path chooses the outer flow
/// label.
pub(super) fn push(
    packet: &mut Vec<u8>,
    policy: &sidestep_policy,
    arrived: &[u8],
    decided: &Decided,
) -> Option<bool> {
    let frame = u32::from(policy.kind) == SIDESTEP_POLICY_ENCAPS_L2;
    let (class, label) = class_and_label(packet, decided.version);
    let label = match u32::from(policy.flow_label) {
        SIDESTEP_FLOW_LABEL_ZERO => Some(0),
        SIDESTEP_FLOW_LABEL_COPY if label != 0 => Some(label),
        _ => None,
    };
    let class = if frame { class & !3 } else { class };
    let mut outer = policy.header.get(..usize::from(policy.length))?.to_vec();
    let word = 6 << 28 | u32::from(class) << 20 | label.unwrap_or(0);
    outer[..4].copy_from_slice(&word.to_be_bytes());
    let next_header = if outer.len() == IPV6 { 6 } else { IPV6 };
    outer[next_header] = match decided.version {
        _ if frame => Protocol::ETHERNET.0,
        6 => Protocol::IPV6.0,
        _ => Protocol::IPV4.0,
    };
    if frame {
        outer.extend(arrived.get(..ETHERNET)?);
    }
    packet.splice(..0, outer);
    set_payload_length(packet);
    Some(label.is_none())
}

/// Returns the frame with its outermost VLAN tag changed.
pub(super) fn retag(frame: &[u8], change: TagChange) -> Option<Vec<u8>> {
    let (ends, rest) = frame.split_at_checked(12)?;
    let rest = match change {
        TagChange::Pop => rest.get(4..)?.to_vec(),
        TagChange::Push(id) => [&[0x81, 0], &id.to_be_bytes()[..], rest].concat(),
        TagChange::Set(id) => {
            let control = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
            let control = (control & 0xf000 | id).to_be_bytes();
            [&rest[..2], &control, &rest[4..]].concat()
        }
    };
    Some([ends, &rest].concat())
}

fn set_payload_length(packet: &mut [u8]) {
    let length = (packet.len() - IPV6) as u16;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
}

/// Makes the answer of an S-BFD probe, which is the UDP payload of this IPv6 packet.
pub(super) fn reflect(packet: &mut [u8], is_down: bool) -> Option<()> {
    let packet = packet.get_mut(..40 + 8 + 24)?;
    let sum = |packet: &[u8]| -> i64 {
        let words = packet[48..].chunks(2);
        words
            .map(|word| i64::from(word[0]) << 8 | i64::from(word[1]))
            .sum()
    };
    let before = sum(packet);
    let (source, destination) = packet[8..40].split_at_mut(16);
    source.swap_with_slice(destination);
    packet[7] = 255;
    packet.swap(40, 42);
    packet.swap(41, 43);
    (0..4).for_each(|byte| packet.swap(52 + byte, 56 + byte));
    let is_polled = packet[49] & 0x20 != 0;
    packet[48] = if is_down { 0x27 } else { 0x20 };
    packet[49] = if is_down { 0 } else { 0xc0 } | if is_polled { 0x10 } else { 0 };
    packet[64..68].copy_from_slice(&1000_u32.to_be_bytes());
    // RFC 1071: the complement of the sum is in the field.
    let field = i64::from(u16::from_be_bytes([packet[46], packet[47]]));
    let field = (field + before - sum(packet)).rem_euclid(0xffff) as u16;
    let field = if field == 0 { 0xffff } else { field };
    packet[46..48].copy_from_slice(&field.to_be_bytes());
    Some(())
}
