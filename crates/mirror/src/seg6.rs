//! Encodes and decodes `encap seg6` and `encap seg6local`: the attributes `RTA_ENCAP_TYPE` and
//! `RTA_ENCAP` of a route.
//!
//! An encapsulation that the model cannot represent is decoded to [`Encap::Unsupported`] with the
//! reason, never to a similar one.

use std::net::{IpAddr, Ipv6Addr};

use sidestep_model::behavior::{Behavior, EncapMode, Flavors, SEGMENTS_MAX, Seg6Encap, Seg6Local};
use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::route::Encap;

use crate::wire::{Attribute, Body, attributes};

/// Decodes the encapsulation of a route or next hop from its `RTA_ENCAP_TYPE` and the value of its
/// `RTA_ENCAP`.
pub fn decode(encap_type: u16, value: &[u8]) -> Encap {
    let decoded = match encap_type {
        LWTUNNEL_ENCAP_SEG6 => headend(value).map(Encap::Seg6),
        LWTUNNEL_ENCAP_SEG6_LOCAL => endpoint(value).map(Encap::Seg6Local),
        other => Err(match LWTUNNEL_NAMES.get(usize::from(other)) {
            Some(name) => (*name).to_owned(),
            None => format!("encapsulation type {other}"),
        }),
    };
    decoded.unwrap_or_else(Encap::Unsupported)
}

/// Returns `RTA_ENCAP_TYPE` and the value of `RTA_ENCAP` for an encapsulation, as iproute2 encodes
/// them. Returns `None` for [`Encap::Unsupported`] and for behaviors that the kernel lacks.
pub fn encode(encap: &Encap) -> Option<(u16, Vec<u8>)> {
    match encap {
        Encap::Seg6(headend) => Some((LWTUNNEL_ENCAP_SEG6, encode_headend(headend)?)),
        Encap::Seg6Local(endpoint) => Some((LWTUNNEL_ENCAP_SEG6_LOCAL, encode_endpoint(endpoint)?)),
        Encap::Policy(_) | Encap::Binding(_) | Encap::Unsupported(_) => None,
    }
}

/// `encap seg6`.
fn headend(value: &[u8]) -> Result<Seg6Encap, String> {
    let mut found = None;
    let (mut tunsrc, mut lookup) = (None, None);
    for attribute in attributes(value) {
        match attribute.kind {
            SEG6_IPTUNNEL_SRH => {
                // struct seg6_iptunnel_encap: mode, SRH.
                let (mode, srh) = attribute
                    .value
                    .split_first_chunk::<4>()
                    .ok_or("seg6 without a mode")?;
                let number = u32::from_ne_bytes(*mode);
                let mode = EncapMode::from_kernel_mode(number)
                    .ok_or_else(|| format!("seg6 mode {}", number.cast_signed()))?;
                found = Some((mode, Srh::decode(srh, mode.inserts())?));
            }
            SEG6_IPTUNNEL_SRC => tunsrc = Some(ipv6(&attribute, "seg6 tunsrc")?),
            SEG6_IPTUNNEL_TABLE => lookup = Some(TableId(number(&attribute, "seg6 lookup")?)),
            other => return Err(format!("seg6 attribute {other}")),
        }
    }
    let (mode, srh) = found.ok_or("seg6 without segments")?;
    Ok(Seg6Encap {
        mode,
        segments: srh.segments,
        hmac: srh.hmac,
        tunsrc,
        lookup,
    })
}

fn encode_headend(encap: &Seg6Encap) -> Option<Vec<u8>> {
    let mode = encap.mode.descriptor().kernel_mode?;
    let srh = Srh {
        segments: encap.segments.clone(),
        hmac: encap.hmac,
    };
    let mut value = mode.to_ne_bytes().to_vec();
    value.extend(srh.encode(encap.mode.inserts()));
    let mut body = Body::default();
    body.attribute(SEG6_IPTUNNEL_SRH, &value);
    if let Some(tunsrc) = encap.tunsrc {
        body.attribute(SEG6_IPTUNNEL_SRC, &tunsrc.octets());
    }
    if let Some(TableId(table)) = encap.lookup {
        body.attribute(SEG6_IPTUNNEL_TABLE, &table.to_ne_bytes());
    }
    Some(body.0)
}

/// `encap seg6local`.
fn endpoint(value: &[u8]) -> Result<Seg6Local, String> {
    let action = attributes(value)
        .find(|attribute| attribute.kind == SEG6_LOCAL_ACTION)
        .ok_or("seg6local without an action")?;
    let action = number(&action, "seg6local action")?;
    let action = Behavior::from_kernel_action(action)
        .or((action == SEG6_LOCAL_ACTION_END_DT2U).then_some(Behavior::EndDt2u))
        .ok_or_else(
            || match SEG6_LOCAL_OTHER_ACTIONS.iter().find(|it| it.0 == action) {
                Some((_, name)) => format!("seg6local action {name}"),
                None => format!("seg6local action {action}"),
            },
        )?;
    let mut local = Seg6Local::new(action);
    for attribute in attributes(value) {
        match attribute.kind {
            SEG6_LOCAL_ACTION => {}
            SEG6_LOCAL_SRH => {
                let srh = Srh::decode(attribute.value, action == Behavior::EndB6)?;
                if let Some(key) = srh.hmac {
                    return Err(format!("seg6local srh hmac {key}"));
                }
                local.segments = srh.segments;
            }
            SEG6_LOCAL_TABLE => {
                local.table = Some(TableId(number(&attribute, "seg6local table")?));
            }
            SEG6_LOCAL_VRFTABLE => {
                local.vrftable = Some(TableId(number(&attribute, "seg6local vrftable")?));
            }
            SEG6_LOCAL_NH4 => match attribute.address() {
                Some(IpAddr::V4(address)) => local.nh4 = Some(address),
                _ => return Err("seg6local nh4 that is not an IPv4 address".to_owned()),
            },
            SEG6_LOCAL_NH6 => local.nh6 = Some(ipv6(&attribute, "seg6local nh6")?),
            SEG6_LOCAL_IIF => local.iif = Some(IfIndex(number(&attribute, "seg6local iif")?)),
            SEG6_LOCAL_OIF => local.oif = Some(IfIndex(number(&attribute, "seg6local oif")?)),
            SEG6_LOCAL_L2DEV if action == Behavior::EndDt2u => {
                local.l2dev = Some(IfIndex(number(&attribute, "seg6local l2dev")?));
            }
            SEG6_LOCAL_COUNTERS => local.count = true,
            SEG6_LOCAL_FLAVORS => local.flavors = flavors(&attribute)?,
            other => {
                let name = action.descriptor().name;
                return Err(format!("seg6local action {name} with attribute {other}"));
            }
        }
    }
    Ok(local)
}

fn encode_endpoint(local: &Seg6Local) -> Option<Vec<u8>> {
    let action: u32 = local.action.descriptor().kernel_action?;
    let mut body = Body::default();
    body.attribute(SEG6_LOCAL_ACTION, &action.to_ne_bytes());
    if !local.segments.is_empty() {
        let srh = Srh {
            segments: local.segments.clone(),
            hmac: None,
        };
        body.attribute(SEG6_LOCAL_SRH, &srh.encode(local.action == Behavior::EndB6));
    }
    // Attributes in the kernel's order.
    let fixed = [
        (
            SEG6_LOCAL_TABLE,
            local.table.map(|table| table.0.to_ne_bytes().to_vec()),
        ),
        (SEG6_LOCAL_NH4, local.nh4.map(|nh4| nh4.octets().to_vec())),
        (SEG6_LOCAL_NH6, local.nh6.map(|nh6| nh6.octets().to_vec())),
        (
            SEG6_LOCAL_IIF,
            local.iif.map(|iif| iif.0.to_ne_bytes().to_vec()),
        ),
        (
            SEG6_LOCAL_OIF,
            local.oif.map(|oif| oif.0.to_ne_bytes().to_vec()),
        ),
        (
            SEG6_LOCAL_VRFTABLE,
            local.vrftable.map(|table| table.0.to_ne_bytes().to_vec()),
        ),
    ];
    for (kind, value) in fixed {
        if let Some(value) = value {
            body.attribute(kind, &value);
        }
    }
    if local.count {
        // A request for counters contains the counters with value 0: packets, bytes, errors.
        let mut counters = Body::default();
        for kind in 2..=4 {
            counters.attribute(kind, &0u64.to_ne_bytes());
        }
        body.nest(SEG6_LOCAL_COUNTERS, &counters);
    }
    if local.flavors != Flavors::default() {
        body.nest(SEG6_LOCAL_FLAVORS, &encode_flavors(local.flavors));
    }
    Some(body.0)
}

/// `flavors …`.
fn flavors(attribute: &Attribute<'_>) -> Result<Flavors, String> {
    let mut operations = 0;
    // net/ipv6/seg6_local.c: SEG6_LOCAL_LCBLOCK_DBITS and SEG6_LOCAL_LCNODE_FN_DBITS.
    let (mut block, mut node_function) = (32, 16);
    for nested in attribute.nested() {
        match nested.kind {
            SEG6_LOCAL_FLV_OPERATION => operations = number(&nested, "seg6local flavors")?,
            SEG6_LOCAL_FLV_LCBLOCK_BITS => block = nested.u8().ok_or("seg6local lblen")?,
            SEG6_LOCAL_FLV_LCNODE_FN_BITS => {
                node_function = nested.u8().ok_or("seg6local nflen")?;
            }
            other => return Err(format!("seg6local flavors attribute {other}")),
        }
    }
    let known = PSP | USP | USD | NEXT_CSID;
    if operations & !known != 0 {
        return Err(format!("seg6local flavors {:#x}", operations & !known));
    }
    Ok(Flavors {
        psp: operations & PSP != 0,
        usp: operations & USP != 0,
        usd: operations & USD != 0,
        next_csid: (operations & NEXT_CSID != 0).then_some((block, node_function)),
        replace_csid: None,
        nat: false,
    })
}

fn encode_flavors(flavors: Flavors) -> Body {
    let mut operations = 0;
    for (on, bit) in [(flavors.psp, PSP), (flavors.usp, USP), (flavors.usd, USD)] {
        operations |= if on { bit } else { 0 };
    }
    let mut body = Body::default();
    let Some((block, node_function)) = flavors.next_csid else {
        body.attribute(SEG6_LOCAL_FLV_OPERATION, &operations.to_ne_bytes());
        return body;
    };
    body.attribute(
        SEG6_LOCAL_FLV_OPERATION,
        &(operations | NEXT_CSID).to_ne_bytes(),
    )
    .attribute(SEG6_LOCAL_FLV_LCBLOCK_BITS, &[block])
    .attribute(SEG6_LOCAL_FLV_LCNODE_FN_BITS, &[node_function]);
    body
}

/// Parts of an SRH template (RFC 8754 2) that the model keeps.
struct Srh {
    /// Segments in order of travel; the wire has the reverse order.
    segments: Vec<Ipv6Addr>,
    hmac: Option<u32>,
}

impl Srh {
    /// With `insert`, Segment List[0] is a placeholder: the kernel puts the packet's own
    /// destination there.
    fn decode(bytes: &[u8], insert: bool) -> Result<Self, String> {
        let (fixed, rest) = bytes.split_first_chunk::<8>().ok_or("a truncated SRH")?;
        let [
            _,
            hdr_ext_len,
            routing_type,
            segments_left,
            last_entry,
            flags,
            tag @ ..,
        ] = *fixed;
        if routing_type != 4 {
            return Err(format!("routing header type {routing_type}"));
        }
        if tag != [0, 0] {
            return Err(format!("SRH tag {}", u16::from_be_bytes(tag)));
        }
        if segments_left != last_entry {
            return Err(format!(
                "SRH Segments Left {segments_left} with Last Entry {last_entry}"
            ));
        }
        let count = usize::from(last_entry) + 1;
        let variable = rest
            .get(..usize::from(hdr_ext_len) * 8)
            .ok_or("a truncated SRH")?;
        let (list, tlvs) = variable
            .split_at_checked(count * 16)
            .ok_or("an SRH shorter than its segment list")?;
        let (list, _) = list.as_chunks::<16>();
        let list = if insert { &list[1..] } else { list };
        if list.is_empty() {
            return Err("an SRH without segments".to_owned());
        }
        if list.len() > SEGMENTS_MAX {
            return Err(format!("{} segments (at most {SEGMENTS_MAX})", list.len()));
        }
        let hmac = match (flags, tlvs) {
            (0, []) => None,
            // TLV: type 5, length 38, D and reserved, key id, 32 bytes that the kernel fills in per
            // packet.
            (SR6_FLAG1_HMAC, [SR6_TLV_HMAC, 38, _, _, a, b, c, d, rest @ ..])
                if rest.len() == 32 =>
            {
                Some(u32::from_be_bytes([*a, *b, *c, *d]))
            }
            (0 | SR6_FLAG1_HMAC, _) => return Err("SRH TLVs".to_owned()),
            (other, _) => return Err(format!("SRH flags {other:#x}")),
        };
        Ok(Self {
            segments: list.iter().rev().map(|it| Ipv6Addr::from(*it)).collect(),
            hmac,
        })
    }

    fn encode(&self, insert: bool) -> Vec<u8> {
        let count = self.segments.len() + usize::from(insert);
        let tlv = if self.hmac.is_some() { 40 } else { 0 };
        let last_entry = count.saturating_sub(1) as u8;
        let flags = if self.hmac.is_some() {
            SR6_FLAG1_HMAC
        } else {
            0
        };
        let hdr_ext_len = ((count * 16 + tlv) / 8) as u8;
        let mut bytes = vec![0, hdr_ext_len, 4, last_entry, last_entry, flags, 0, 0];
        if insert {
            bytes.extend(Ipv6Addr::UNSPECIFIED.octets());
        }
        for segment in self.segments.iter().rev() {
            bytes.extend(segment.octets());
        }
        if let Some(key) = self.hmac {
            bytes.extend([SR6_TLV_HMAC, 38, 0, 0]);
            bytes.extend(key.to_be_bytes());
            bytes.extend([0; 32]);
        }
        bytes
    }
}

fn number(attribute: &Attribute<'_>, name: &str) -> Result<u32, String> {
    attribute
        .u32()
        .ok_or_else(|| format!("{name} that is not a number"))
}

fn ipv6(attribute: &Attribute<'_>, name: &str) -> Result<Ipv6Addr, String> {
    match attribute.address() {
        Some(IpAddr::V6(address)) => Ok(address),
        _ => Err(format!("{name} that is not an IPv6 address")),
    }
}

// include/uapi/linux/lwtunnel.h: enum lwtunnel_encap_types.
const LWTUNNEL_ENCAP_SEG6: u16 = 5;
const LWTUNNEL_ENCAP_SEG6_LOCAL: u16 = 7;
const LWTUNNEL_NAMES: [&str; 11] = [
    "none",
    "mpls",
    "ip",
    "ila",
    "ip6",
    "seg6",
    "bpf",
    "seg6local",
    "rpl",
    "ioam6",
    "xfrm",
];

// include/uapi/linux/seg6_iptunnel.h; SRC since Linux 6.20, TABLE after it.
const SEG6_IPTUNNEL_SRH: u16 = 1;
const SEG6_IPTUNNEL_SRC: u16 = 2;
const SEG6_IPTUNNEL_TABLE: u16 = 3;

// include/uapi/linux/seg6.h and seg6_hmac.h.
const SR6_FLAG1_HMAC: u8 = 1 << 3;
const SR6_TLV_HMAC: u8 = 5;

// include/uapi/linux/seg6_local.h.
const SEG6_LOCAL_ACTION: u16 = 1;
const SEG6_LOCAL_SRH: u16 = 2;
const SEG6_LOCAL_TABLE: u16 = 3;
const SEG6_LOCAL_NH4: u16 = 4;
const SEG6_LOCAL_NH6: u16 = 5;
const SEG6_LOCAL_IIF: u16 = 6;
const SEG6_LOCAL_OIF: u16 = 7;
const SEG6_LOCAL_VRFTABLE: u16 = 9;
const SEG6_LOCAL_COUNTERS: u16 = 10;
const SEG6_LOCAL_FLAVORS: u16 = 11;
const SEG6_LOCAL_OTHER_ACTIONS: [(u32, &str); 5] = [
    (11, "End.BM"),
    (12, "End.S"),
    (13, "End.AS"),
    (14, "End.AM"),
    (15, "End.BPF"),
];
// Proposed to Linux with the srl2 device (netdev, March 2026).
const SEG6_LOCAL_L2DEV: u16 = 12;
const SEG6_LOCAL_ACTION_END_DT2U: u32 = 17;
const SEG6_LOCAL_FLV_OPERATION: u16 = 1;
const SEG6_LOCAL_FLV_LCBLOCK_BITS: u16 = 2;
const SEG6_LOCAL_FLV_LCNODE_FN_BITS: u16 = 3;
const PSP: u32 = 1 << 1;
const USP: u32 = 1 << 2;
const USD: u32 = 1 << 3;
const NEXT_CSID: u32 = 1 << 4;

#[cfg(test)]
mod tests;
