//! Header bytes that a headend pushes (`sidestep_policy.header`): everything that does not depend
//! on the packet.

use std::net::Ipv6Addr;

use sidestep_datapath::abi::{
    SIDESTEP_POLICY_ENCAPS, SIDESTEP_POLICY_ENCAPS_L2, SIDESTEP_POLICY_INSERT, sidestep_hmac_key,
    sidestep_policy, sidestep_policy_kind,
};
use sidestep_model::behavior::{EncapMode, Seg6Encap};
use sidestep_wire::field::ipv6 as field;
use sidestep_wire::{Ipv6, Protocol, Srh};

use super::hmac;

/// Returns the policy kind of a mode.
pub(crate) fn kind(mode: EncapMode) -> sidestep_policy_kind {
    match mode {
        EncapMode::Inline | EncapMode::InlineRed => SIDESTEP_POLICY_INSERT,
        EncapMode::Encap | EncapMode::EncapRed => SIDESTEP_POLICY_ENCAPS,
        EncapMode::L2Encap | EncapMode::L2EncapRed => SIDESTEP_POLICY_ENCAPS_L2,
    }
}

/// Composes an SRH with a Segment List in wire order and the HMAC TLV of `key`. Its Next Header
/// is 0.
fn srh(list: &[Ipv6Addr], segments_left: usize, key: Option<&sidestep_hmac_key>) -> Vec<u8> {
    let mut srh = Srh::new(Protocol(0), segments_left as u8, list.to_vec());
    if let Some(key) = key {
        srh.flags = Srh::FLAG_HMAC;
        srh.tlvs.push(hmac::tlv(key));
    }
    srh.emit(&[])
}

/// Returns the Segment List of the SRH for `encap`, in wire order.
pub(super) fn list(encap: &Seg6Encap) -> Vec<Ipv6Addr> {
    let mut list: Vec<Ipv6Addr> = encap.segments.iter().rev().copied().collect();
    let reduced = matches!(
        encap.mode,
        EncapMode::InlineRed | EncapMode::EncapRed | EncapMode::L2EncapRed
    );
    // RFC 8754 4.1.1, RFC 8986 5.2: the first segment is only in the destination address. An SRH
    // with a TLV and without a segment cannot be encoded (RFC 8754, erratum 7081), so Linux keeps
    // the only segment, too.
    if reduced && (list.len() > 1 || encap.hmac.is_none()) {
        list.pop();
    }
    if encap.mode.inserts() {
        // Segment List[0] is the packet's own destination; the packet path fills it in.
        list.insert(0, Ipv6Addr::UNSPECIFIED);
    }
    list
}

/// Composes the policy record for `encap`. `source` and `hop_limit` are those of the outer header.
/// `key` signs the SRH; for an inserted SRH the packet path signs.
pub(crate) fn policy(
    encap: &Seg6Encap,
    source: Ipv6Addr,
    hop_limit: u8,
    key: Option<&sidestep_hmac_key>,
) -> sidestep_policy {
    let segments = &encap.segments;
    let first = segments[0];
    let list = list(encap);
    let header = if encap.mode.inserts() {
        srh(&list, segments.len(), key)
    } else {
        let mut pushed = Vec::new();
        if !list.is_empty() {
            pushed = srh(&list, segments.len() - 1, key);
            if let Some(key) = key {
                hmac::sign(&mut pushed, key, source);
            }
        }
        let ipv6 = Ipv6 {
            hop_limit,
            ..Ipv6::new(source, first, Protocol::ROUTING)
        };
        let mut header = ipv6.emit(&pushed);
        // The packet path writes version, class, label and length.
        header[..field::NEXT_HEADER].fill(0);
        header
    };
    let mut policy = sidestep_policy {
        length: header.len() as u16,
        kind: kind(encap.mode) as u8,
        first: first.octets(),
        ..Default::default()
    };
    policy.header[..header.len()].copy_from_slice(&header);
    policy
}
