//! Fields and checks of headers, for the model.

use std::net::{Ipv4Addr, Ipv6Addr};

use sidestep_testkit::differential::headers::{ETHERNET, ones_complement_sum, proto};

use crate::model::{Drop, End, Leave, Step};

// LIMIT: as in `sidestep show limits`.
pub const EXT_HEADERS_MAX: usize = 8;
const TLVS_MAX: usize = 8;
const OPTIONS_MAX: usize = 16;

/// RFC 8754 4.3.2: the reason why a local address that is no SID drops this IPv6 packet, if it does.
pub fn relayed(packet: &[u8]) -> Option<&'static str> {
    let (mut proto, mut at) = (packet[6], 40);
    for _ in 0..EXT_HEADERS_MAX {
        if !matches!(
            proto,
            proto::ROUTING | proto::HOP_BY_HOP | proto::DESTINATION_OPTIONS | proto::FRAGMENT
        ) {
            return None;
        }
        let Some(header) = packet.get(at..at + 8) else {
            break;
        };
        match (proto, header[2], header[3]) {
            (proto::FRAGMENT, ..) if u16_at(header, 2) & 0xfff8 != 0 => return None,
            (proto::FRAGMENT, ..) => {
                (proto, at) = (header[0], at + 8);
                continue;
            }
            (proto::ROUTING, _, 0) => {}
            (proto::ROUTING, 4, _) => return Some("not_a_sid"),
            (proto::ROUTING, ..) => return None,
            _ => {}
        }
        (proto, at) = (header[0], at + (usize::from(header[1]) + 1) * 8);
    }
    Some("ext_header")
}

/// RFC 2474; the label of IPv4 is the node's to choose.
pub fn class_and_label(packet: &[u8]) -> u32 {
    let first = u32_at(packet, 0);
    match first >> 28 {
        6 => first & 0xfff_ffff,
        _ => (first >> 16 & 0xff) << 20,
    }
}

/// Traffic class of the packet in a frame, without ECN, which would be lost there. Non-IP frames
/// have none.
pub fn of_frame(frame: &[u8]) -> u32 {
    let packet = &frame[ETHERNET..];
    let is_packet = match u16_at(frame, 12) {
        0x86dd => packet.len() >= 40 && packet[0] >> 4 == 6,
        0x0800 => packet.len() >= 20 && packet[0] >> 4 == 4,
        _ => false,
    };
    if is_packet {
        class_and_label(packet) & !(3 << 20)
    } else {
        0
    }
}

/// RFC 8200 4.2: only `Pad1` and `PadN`, up to the end of the header.
pub fn is_padding(header: &[u8]) -> bool {
    let mut at = 2;
    for _ in 0..OPTIONS_MAX {
        at += match header.get(at..) {
            Some([]) => return true,
            Some([0, ..]) => 1,
            Some([1, length, ..]) => 2 + usize::from(*length),
            None | Some(_) => return false,
        };
    }
    false
}

/// RFC 8200 4.2: padding is known, and the type says what becomes of other options.
pub fn options(header: &[u8]) -> Step<()> {
    let mut at = 2;
    for _ in 0..OPTIONS_MAX {
        at += match header.get(at..) {
            Some([]) => break,
            Some([0, ..]) => 1,
            Some([kind, ..]) if kind & 0xc0 != 0 => return Err(Drop("unknown_option")),
            Some([_, length, ..]) => 2 + usize::from(*length),
            None | Some([_]) => return Err(Drop("ext_header")),
        };
    }
    match at.cmp(&header.len()) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(Drop("ext_header")),
        std::cmp::Ordering::Less => Err(Drop("too_many_options")),
    }
}

/// RFC 8754 2.1, what stands behind the segment list.
pub fn tlvs(mut rest: &[u8]) -> Step<()> {
    for _ in 0..TLVS_MAX {
        rest = match rest {
            [] => break,
            [0, rest @ ..] => rest,
            [_, length, value @ ..] => value.get(usize::from(*length)..).ok_or(Drop("srh_tlv"))?,
            [_] => return Err(Drop("srh_tlv")),
        };
    }
    Ok(())
}

/// An address that is never forwarded (RFC 4291 2.5, RFC 1812 5.3.7): a drop within a packet, else the kernel's.
pub fn never_forwarded(reason: &'static str, wrong: [&'static str; 2]) -> End {
    if wrong[0] == "inner_header" {
        Drop("bad_address")
    } else {
        Leave(reason)
    }
}

pub fn nowhere(address: Ipv6Addr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

/// RFC 8200 3: bytes of the packet that begins here. Error of the header or its length.
pub fn ipv6_length(rest: &[u8], wrong: [&'static str; 2]) -> Step<usize> {
    if rest.len() < 40 || rest[0] >> 4 != 6 {
        return Err(Drop(wrong[0]));
    }
    let payload = usize::from(u16_at(rest, 4));
    if 40 + payload > rest.len() {
        return Err(Drop(wrong[1]));
    }
    if payload == 0 && rest[6] == proto::HOP_BY_HOP {
        return Err(Leave("jumbogram"));
    }
    let address = |at: usize| {
        let octets: [u8; 16] = rest[at..at + 16].try_into().expect("16 bytes");
        Ipv6Addr::from(octets)
    };
    let (source, destination) = (address(8), address(24));
    let never = |reason| Err(never_forwarded(reason, wrong));
    if destination.is_multicast() {
        return never("multicast");
    }
    if source.is_unicast_link_local() || destination.is_unicast_link_local() {
        return never("link_local");
    }
    if source.is_multicast() || nowhere(source) || nowhere(destination) {
        return never("bad_source");
    }
    Ok(40 + payload)
}

/// RFC 791 3.1 and RFC 1812 5.2.2: bytes of the packet that begins here. Error of the header or its
/// checksum.
pub fn ipv4_length(rest: &[u8], wrong: [&'static str; 2]) -> Step<usize> {
    if rest.len() < 20 || rest[0] >> 4 != 4 || rest[0] & 15 < 5 {
        return Err(Drop(wrong[0]));
    }
    let (header, total) = (usize::from(rest[0] & 15) * 4, usize::from(u16_at(rest, 2)));
    if total < header || total > rest.len() {
        return Err(Drop(wrong[0]));
    }
    if ones_complement_sum(&rest[..header]) != 0xffff {
        return Err(Drop(wrong[1]));
    }
    let address = |at: usize| Ipv4Addr::from_bits(u32_at(rest, at));
    let (source, destination) = (address(12), address(16));
    let never = |reason| Err(never_forwarded(reason, wrong));
    let nowhere = |address: Ipv4Addr| [0, 127].contains(&address.octets()[0]);
    let group = |address: Ipv4Addr| address.is_multicast() || address.is_broadcast();
    if group(destination) {
        return never("multicast");
    }
    if group(source) || nowhere(source) || nowhere(destination) {
        return never("bad_source");
    }
    Ok(total)
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}
