//! Decodes frames of FPM. The kernel never sends a malformed message, but a peer may: every length
//! is checked here before the decoders of the kernel's messages read a message.

use sidestep_model::behavior::attribute::Flavor;
use sidestep_model::route::{Encap, NextHop, Owner};

use super::{FpmError, Frame, HEADER, Update};
use crate::object::{self, NHMSG};
use crate::route::{self, RTMSG};
use crate::wire::{Message, u16_at, u32_at};

/// Length of `struct nlmsghdr`.
const NLMSGHDR: usize = 16;
/// Length of `struct nlattr`.
const NLATTR: usize = 4;
/// Length of `struct rtnexthop`.
const RTNEXTHOP: usize = 8;
/// Length of `struct nexthop_grp`.
const NEXTHOP_GRP: usize = 8;
/// LIMIT: members of a nexthop group in a message of FPM.
const MEMBERS: usize = 1024;

type Checked<T> = Result<T, FpmError>;

/// Decodes a whole frame, header included.
///
/// # Errors
/// The first problem. Then nothing of the frame is to be applied.
pub fn decode(frame: &[u8]) -> Checked<Frame> {
    let mut decoded = Frame::default();
    let mut at = HEADER;
    while at < frame.len() {
        let (message, length) = message(frame, at)?;
        decoded.sender = u32_at(frame, at + 12).unwrap_or_default();
        decoded.messages += 1;
        match update(&message, at)? {
            Some(update) => {
                if let Update::Route(route) = &update {
                    decoded.routes.push((route.key, at..at + length));
                }
                decoded.updates.push(update);
            }
            None => decoded.ignored += 1,
        }
        at += length.next_multiple_of(4);
    }
    if decoded.messages == 0 {
        return Err(FpmError::new(HEADER, "the frame has no netlink message"));
    }
    Ok(decoded)
}

/// Returns the message at this offset and its length.
fn message(frame: &[u8], at: usize) -> Checked<(Message<'_>, usize)> {
    let rest = &frame[at..];
    if rest.len() < NLMSGHDR {
        let what = format!("{} bytes where a netlink header has 16", rest.len());
        return Err(FpmError::new(at, what));
    }
    let length = u32_at(rest, 0).unwrap_or_default() as usize;
    if length < NLMSGHDR || length > rest.len() {
        let what = format!(
            "netlink message of {length} bytes; expected 16 to {}, the rest of the frame",
            rest.len()
        );
        return Err(FpmError::new(at, what));
    }
    let message = Message {
        kind: u16_at(rest, 4).unwrap_or_default(),
        flags: u16_at(rest, 6).unwrap_or_default(),
        sequence: u32_at(rest, 8).unwrap_or_default(),
        body: &rest[NLMSGHDR..length],
    };
    Ok((message, length))
}

/// Returns the change that a message causes. None for MPLS, for MAC addresses, and for types that
/// Sidestep does not know: as for readers of netlink, these are for others (`SONiC` sends 1000 and
/// up).
fn update(message: &Message<'_>, at: usize) -> Checked<Option<Update>> {
    let body = at + NLMSGHDR;
    match message.kind {
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => route_update(message, body),
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => object_update(message, body).map(Some),
        _ => Ok(None),
    }
}

fn route_update(message: &Message<'_>, at: usize) -> Checked<Option<Update>> {
    let Some([family, dst_len, src_len, ..]) = message.body.first_chunk::<RTMSG>() else {
        let what = format!(
            "route of {} bytes; expected at least 12",
            message.body.len()
        );
        return Err(FpmError::new(at, what));
    };
    let address = match i32::from(*family) {
        libc::AF_INET => 4,
        libc::AF_INET6 => 16,
        AF_MPLS => return Ok(None),
        other => {
            let what = format!("address family {other}; expected 2 (IPv4), 10 (IPv6) or 28 (MPLS)");
            return Err(FpmError::new(at, what));
        }
    };
    let (mut has_dst, mut has_src) = (false, false);
    attributes(message.body, RTMSG, at, |kind, value, at| {
        match kind {
            libc::RTA_DST => has_dst = true,
            libc::RTA_SRC => has_src = true,
            _ => {}
        }
        match kind {
            libc::RTA_MULTIPATH => next_hops(value, at, address),
            libc::RTA_METRICS => nested(value, at),
            _ => route_attribute(kind, value, at, address),
        }
    })?;
    for (name, length, has) in [
        ("RTA_DST", *dst_len, has_dst),
        ("RTA_SRC", *src_len, has_src),
    ] {
        if usize::from(length) > address * 8 || length > 0 && !has {
            let what = format!("prefix length {length} with the attribute {name} {has}");
            return Err(FpmError::new(at, what));
        }
    }
    let route = route::decode(message)
        .map(|reported| reported.route)
        .ok_or_else(|| FpmError::new(at, "a route that no table contains (RTM_F_CLONED)"))?;
    Ok(Some(
        if message.kind == libc::RTM_DELROUTE || route.protocol == libc::RTPROT_KERNEL {
            // zebra replays connected and local routes, and routes that it read from the kernel. It
            // does not update them, and the mirror has them from the kernel.
            Update::Withdraw(route.key)
        } else {
            let mut route = route;
            route.owner = Owner::Fpm { in_kernel: false };
            route
                .next_hops
                .make_mut()
                .iter_mut()
                .for_each(without_container_flavor);
            Update::Route(route)
        },
    ))
}

fn object_update(message: &Message<'_>, at: usize) -> Checked<Update> {
    if message.body.len() < NHMSG {
        let what = format!(
            "nexthop of {} bytes; expected at least 8",
            message.body.len()
        );
        return Err(FpmError::new(at, what));
    }
    attributes(message.body, NHMSG, at, |kind, value, at| match kind {
        NHA_ID | NHA_OIF => length("nexthop attribute", kind, value, at, &[4]),
        NHA_GROUP if value.is_empty() || !value.len().is_multiple_of(NEXTHOP_GRP) => {
            let what = format!("group of {} bytes; expected a multiple of 8", value.len());
            Err(FpmError::new(at, what))
        }
        NHA_GROUP if value.len() / NEXTHOP_GRP > MEMBERS => {
            let what = format!(
                "group of {} members; expected at most {MEMBERS}",
                value.len() / NEXTHOP_GRP
            );
            Err(FpmError::new(at, what))
        }
        NHA_GATEWAY => length("nexthop attribute", kind, value, at, &[4, 16]),
        NHA_ENCAP_TYPE => length("nexthop attribute", kind, value, at, &[2]),
        NHA_ENCAP => nested(value, at),
        _ => Ok(()),
    })?;
    let mut object = object::decode(message)
        .ok_or_else(|| FpmError::new(at, "nexthop without an ID (NHA_ID) other than 0"))?;
    if message.kind == RTM_DELNEXTHOP {
        return Ok(Update::Remove(object.id));
    }
    if let Some(hop) = object.next_hop_mut() {
        without_container_flavor(hop);
    }
    Ok(Update::Object(object))
}

/// Removes the flavor NEXT-C-SID from a behavior that has no such flavor. FRR sets it for uDT4, uDT6
/// and uDT46. Their argument is zero, and the kernel ignores the flavor.
fn without_container_flavor(hop: &mut NextHop) {
    if let Some(Encap::Seg6Local(local)) = &mut hop.encap
        && !local
            .action
            .descriptor()
            .flavors
            .contains(&Flavor::NextCsid)
    {
        local.flavors.next_csid = None;
    }
}

/// Checks an attribute of a route or of one of its next hops.
fn route_attribute(kind: u16, value: &[u8], at: usize, address: usize) -> Checked<()> {
    let name = "route attribute";
    match kind {
        libc::RTA_DST | libc::RTA_SRC | libc::RTA_PREFSRC | libc::RTA_GATEWAY => {
            length(name, kind, value, at, &[address])
        }
        libc::RTA_OIF | libc::RTA_PRIORITY | libc::RTA_TABLE | RTA_NH_ID => {
            length(name, kind, value, at, &[4])
        }
        // struct rtvia: family, address.
        RTA_VIA => length(name, kind, value, at, &[6, 18]),
        RTA_ENCAP_TYPE => length(name, kind, value, at, &[2]),
        RTA_ENCAP => nested(value, at),
        _ => Ok(()),
    }
}

/// Checks the next hops of an `RTA_MULTIPATH`.
fn next_hops(bytes: &[u8], at: usize, address: usize) -> Checked<()> {
    let mut offset = 0;
    while offset < bytes.len() {
        let rest = &bytes[offset..];
        let claimed = usize::from(u16_at(rest, 0).unwrap_or_default());
        if rest.len() < RTNEXTHOP || claimed < RTNEXTHOP || claimed > rest.len() {
            let what = format!("next hop of {claimed} bytes in {} bytes", rest.len());
            return Err(FpmError::new(at + offset, what));
        }
        attributes(
            &rest[..claimed],
            RTNEXTHOP,
            at + offset,
            |kind, value, at| route_attribute(kind, value, at, address),
        )?;
        offset += claimed.next_multiple_of(4);
    }
    Ok(())
}

/// Checks nested attributes.
fn nested(bytes: &[u8], at: usize) -> Checked<()> {
    attributes(bytes, 0, at, |_, _, _| Ok(()))
}

/// Calls `check` with the type, value and offset of each attribute after `skip` bytes.
fn attributes(
    bytes: &[u8],
    skip: usize,
    at: usize,
    mut check: impl FnMut(u16, &[u8], usize) -> Checked<()>,
) -> Checked<()> {
    let mut offset = skip;
    while offset < bytes.len() {
        let rest = &bytes[offset..];
        let claimed = usize::from(u16_at(rest, 0).unwrap_or_default());
        if rest.len() < NLATTR || claimed < NLATTR || claimed > rest.len() {
            let what = format!("attribute of {claimed} bytes in {} bytes", rest.len());
            return Err(FpmError::new(at + offset, what));
        }
        let kind = u16_at(rest, 2).unwrap_or_default() & NLA_TYPE_MASK;
        check(kind, &rest[NLATTR..claimed], at + offset)?;
        offset += claimed.next_multiple_of(4);
    }
    Ok(())
}

fn length(name: &str, kind: u16, value: &[u8], at: usize, allowed: &[usize]) -> Checked<()> {
    if allowed.contains(&value.len()) {
        return Ok(());
    }
    let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
    let what = format!(
        "{name} {kind} with {} bytes; expected {}",
        value.len(),
        allowed.join(" or ")
    );
    Err(FpmError::new(at, what))
}

// include/uapi/linux/netlink.h, socket.h, rtnetlink.h and nexthop.h.
const NLA_TYPE_MASK: u16 = 0x3fff;
const AF_MPLS: i32 = 28;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
