//! Fragments of packets that exceed the egress MTU (`datapath/fragment.h`): tunnel packets with a
//! Fragment header (RFC 2473 7, RFC 8200 4.5), and IPv4 packets (RFC 791 3.2).
//!
//! This module composes frames without a system call; [`socket`] sends them.

pub mod socket;

use std::hash::{BuildHasher, RandomState};

use sidestep_datapath::Oversized;
use sidestep_wire::field::ipv6::{NEXT_HEADER, PAYLOAD_LENGTH};
use sidestep_wire::{
    EtherType, Ethernet, EthernetView, Fragment, Header, Headers, Ipv4, Ipv4View, Ipv6, Next,
    Protocol, checksum,
};

/// LIMIT: fragments of one packet.
const FRAGMENTS_MAX: usize = 64;

/// Returns the frames to send instead of this one. None: the packet cannot be fragmented.
///
/// `identification` is for a tunnel packet. An IPv4 packet has its own.
pub fn fragments(oversized: &Oversized, identification: u32) -> Option<Vec<Vec<u8>>> {
    let mut frame = oversized.frame.clone();
    let (ethernet, _) = EthernetView::parse(&frame)?;
    let ethertype = ethernet.ethertype();
    complete_checksum(&mut frame);
    let (head, packet) = frame.split_at(Ethernet::LENGTH);
    let mtu = oversized.mtu as usize;
    let packets = match ethertype {
        EtherType::IPV6 => fragments_v6(packet, mtu, identification)?,
        EtherType::IPV4 => fragments_v4(packet, mtu)?,
        _ => return None,
    };
    let frames = packets.iter().map(|packet| [head, packet].concat());
    Some(frames.collect())
}

/// Splits a payload into parts of at most `room` bytes. All but the last one are multiples of 8
/// bytes. Returns each part with its offset in units of 8 bytes, and whether more parts follow.
fn parts(payload: &[u8], room: usize) -> Option<impl Iterator<Item = (&[u8], u16, bool)>> {
    let step = room & !7;
    if step == 0 || payload.len().div_ceil(step) > FRAGMENTS_MAX {
        return None;
    }
    let parts = payload.chunks(step).enumerate();
    Some(parts.map(move |(number, part)| {
        let offset = number * step;
        (
            part,
            (offset / 8) as u16,
            offset + part.len() < payload.len(),
        )
    }))
}

/// RFC 8200 4.5. The per-fragment headers end behind the routing header, if there is one.
fn fragments_v6(packet: &[u8], mtu: usize, identification: u32) -> Option<Vec<Vec<u8>>> {
    let mut headers = Headers::starting(Next::Protocol(Protocol::IPV6), packet);
    // Place of the last Next Header field in the per-fragment headers, and their end.
    let (mut link, mut end) = (NEXT_HEADER, Ipv6::LENGTH);
    headers.next()?;
    for layer in headers {
        match layer.header {
            Header::HopByHop(_) | Header::Routing(_) => {
                (link, end) = (layer.offset, layer.offset + layer.length);
            }
            Header::Destination(_) => {}
            _ => break,
        }
    }
    let (head, payload) = packet.split_at_checked(end)?;
    let room = mtu.checked_sub(end + Fragment::LENGTH)?;
    let header = Fragment {
        next_header: Protocol(head[link]),
        offset: 0,
        more_fragments: false,
        identification,
    };
    let mut head = head.to_vec();
    head[link] = Protocol::FRAGMENT.0;
    let fragments = parts(payload, room)?.map(|(part, offset, more_fragments)| {
        let fragment = Fragment {
            offset,
            more_fragments,
            ..header
        };
        let mut out = [&head[..], &fragment.emit(part)].concat();
        let length = (out.len() - Ipv6::LENGTH) as u16;
        out[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 2].copy_from_slice(&length.to_be_bytes());
        out
    });
    Some(fragments.collect())
}

/// RFC 791 3.2. The packet may be a fragment itself. Its options are in the first fragment, and
/// those with the copied flag in all. Others become No Operation in later fragments, as in Linux
/// (`ip_options_fragment`), so that all headers have one length.
fn fragments_v4(packet: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let (view, payload) = Ipv4View::parse(packet)?;
    if view.dont_fragment() {
        return None;
    }
    let options = view.options();
    let room = mtu.checked_sub(Ipv4::LENGTH + options.len())?;
    let header = view.to_owned();
    let later = copied_options(options);
    let fragments = parts(payload, room)?.enumerate();
    let fragments = fragments.map(|(place, (part, offset, more))| {
        let more = more || view.more_fragments();
        let flags = if more { Ipv4::MORE_FRAGMENTS } else { 0 };
        let options = if place == 0 { options } else { &later };
        Ipv4 {
            fragment: flags | (view.fragment_offset() + offset) & 0x1fff,
            ..header
        }
        .emit_with_options(options, part)
    });
    Some(fragments.collect())
}

/// Replaces the options without the copied flag (RFC 791 3.1) by No Operation. Bytes behind an
/// option with a wrong length stay.
fn copied_options(options: &[u8]) -> Vec<u8> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const COPIED: u8 = 0x80;
    let mut copied = options.to_vec();
    let mut at = 0;
    while at < options.len() {
        let length = match options[at] {
            END => break,
            NO_OPERATION => 1,
            _ => usize::from(options.get(at + 1).copied().unwrap_or_default()),
        };
        if length == 0 || length == 1 && options[at] != NO_OPERATION || at + length > options.len()
        {
            break;
        }
        if options[at] & COPIED == 0 {
            copied[at..at + length].fill(NO_OPERATION);
        }
        at += length;
    }
    copied
}

/// Completes the checksum of the innermost TCP or UDP packet. A sender on this machine leaves it to
/// the device (`CHECKSUM_PARTIAL`): the field then holds the sum over the pseudo-header.
fn complete_checksum(frame: &mut [u8]) {
    let mut place = None;
    let mut ends = None;
    for layer in Headers::frame(frame) {
        match layer.header {
            Header::Ipv6(header) => ends = Some(header.ends()),
            // Only the whole packet has a checksum.
            Header::Fragment(_) => return,
            Header::Ipv4(header) if header.more_fragments() => return,
            Header::Ipv4(header) => ends = Some(header.ends()),
            Header::Tcp(_) => place = Some((layer.offset, Protocol::TCP, 16)),
            Header::Udp(_) => place = Some((layer.offset, Protocol::UDP, 6)),
            _ => {}
        }
    }
    let (Some((start, protocol, field)), Some(ends)) = (place, ends) else {
        return;
    };
    let packet = &frame[start..];
    let partial = checksum::Sum::default().add_pseudo_header(ends, protocol, packet.len());
    let at = start + field;
    if frame[at..at + 2] != partial.fold().to_be_bytes()
        || checksum::upper_layer(ends, protocol, packet) == 0
    {
        return;
    }
    frame[at..at + 2].fill(0);
    let sum = match checksum::upper_layer(ends, protocol, &frame[start..]) {
        // RFC 768: 0 means that there is no checksum.
        0 => u16::MAX,
        sum => sum,
    };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Identifications of tunnel packets: a permutation of the numbers 0, 1, 2, ... by a secret. They
/// are unpredictable (RFC 7739 3), and do not repeat within 2^32 packets (RFC 8200 4.5).
#[derive(Debug, Default)]
pub struct Identifications {
    secret: RandomState,
    sent: u32,
}

impl Identifications {
    /// Returns the next Identification.
    pub fn allocate(&mut self) -> u32 {
        let number = self.sent;
        self.sent = self.sent.wrapping_add(1);
        // A Feistel network is a permutation, whatever its round function is.
        let (mut left, mut right) = ((number >> 16) as u16, number as u16);
        for round in 0..4u8 {
            let mixed = self.secret.hash_one((round, right)) as u16;
            (left, right) = (right, left ^ mixed);
        }
        u32::from(left) << 16 | u32::from(right)
    }
}

#[cfg(test)]
mod tests;
