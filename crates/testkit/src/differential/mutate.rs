//! Nearly valid packets, and noise.

use super::headers::{ETHERNET, IPV6, ipv4_set_checksum};
use super::scenario::Port;
use crate::random::Random;

/// Number of leading bytes that [`change_byte`] may change.
const HEADERS: usize = ETHERNET + IPV6 + 8 + 3 * 16 + IPV6;

/// Makes one or two changes to a frame.
pub fn nearly(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.between(1, 2) {
        match random.below(10) {
            0..=2 => change_srh(frame, random),
            3 | 4 => change_length(frame, random),
            5 => {
                let length = random.between(ETHERNET, frame.len().max(ETHERNET));
                frame.truncate(length);
            }
            6 => {
                let length = random.between(ETHERNET, frame.len().max(ETHERNET));
                frame.truncate(length);
                lengthen_or_shorten(frame);
            }
            _ => change_byte(frame, random),
        }
    }
    // Half of the IPv4 frames get a correct checksum, so that they reach code behind its check.
    if random.one_in(2) && frame.get(12..14) == Some(&[8, 0]) {
        ipv4_set_checksum(&mut frame[ETHERNET..]);
    }
}

/// Returns a frame of random bytes. Seven in eight frames have the port's Ethernet header, and most
/// of these the first byte of an IP header.
pub fn noise(port: &Port, random: &mut Random) -> Vec<u8> {
    let length = random.between(ETHERNET, 400);
    let mut frame = random.bytes(length);
    if random.one_in(8) {
        return frame;
    }
    frame[..6].copy_from_slice(&port.mac());
    frame[6..12].copy_from_slice(&port.gateway_mac());
    let (ethertype, version) = random.weighted(&[
        (4, ([0x86, 0xdd], 0x60)),
        (2, ([8, 0], 0x45)),
        (1, ([8, 6], 0)),
        (1, ([0x81, 0], 0)),
    ]);
    frame[12..14].copy_from_slice(&ethertype);
    if let Some(first) = frame.get_mut(ETHERNET)
        && !random.one_in(8)
    {
        *first = version;
    }
    if !random.one_in(4) {
        lengthen_or_shorten(&mut frame);
    }
    frame
}

fn change_byte(frame: &mut [u8], random: &mut Random) {
    let at = random.below(frame.len().min(HEADERS));
    let Some(byte) = frame.get_mut(at) else {
        return;
    };
    *byte = match random.below(5) {
        0 => *byte ^ 1 << random.below(8),
        1 => byte.wrapping_add(1),
        2 => byte.wrapping_sub(1),
        3 => 0,
        _ => random.next() as u8,
    };
}

/// Changes a field of the first routing header: Hdr Ext Len, type, Segments Left, Last Entry,
/// flags.
fn change_srh(frame: &mut [u8], random: &mut Random) {
    if frame.len() < ETHERNET + IPV6 + 8 || frame[ETHERNET + 6] != 43 {
        return change_byte(frame, random);
    }
    let field = ETHERNET + IPV6 + random.between(1, 5);
    frame[field] = match random.below(5) {
        0 => random.next() as u8,
        1 => frame[field].wrapping_sub(random.between(1, 3) as u8),
        2 => 0,
        _ => frame[field].wrapping_add(random.between(1, 3) as u8),
    };
}

/// Changes the length field of the IP header, by a small amount or to a random value.
fn change_length(frame: &mut [u8], random: &mut Random) {
    let at = if frame.get(12) == Some(&8) {
        ETHERNET + 2
    } else {
        ETHERNET + 4
    };
    if frame.len() < at + 2 {
        return;
    }
    let length = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let changed = match random.below(3) {
        0 => length.wrapping_add(random.between(1, 16) as u16),
        1 => length.wrapping_sub(random.between(1, 16) as u16),
        _ => random.next() as u16,
    };
    frame[at..at + 2].copy_from_slice(&changed.to_be_bytes());
}

/// Sets the length field of the outer IP header to match the frame.
pub(super) fn lengthen_or_shorten(frame: &mut [u8]) {
    let rest = frame.len().saturating_sub(ETHERNET);
    match frame.get(12..14) {
        Some([0x86, 0xdd]) if rest >= IPV6 => {
            let length = (rest - IPV6) as u16;
            frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&length.to_be_bytes());
        }
        Some([8, 0]) if rest >= 20 => {
            frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&(rest as u16).to_be_bytes());
            ipv4_set_checksum(&mut frame[ETHERNET..]);
        }
        _ => {}
    }
}
