//! The headers of a frame that a mutation works on, and the repair of lengths and counts.

use sidestep_wire::field::{ipv4, ipv6, srh};
use sidestep_wire::{self as wire, Headers, Ipv4, Ipv6, Protocol, RoutingType};

/// LIMIT: headers of one frame. The packet path follows fewer.
const HEADERS_MAX: usize = 32;

/// The kind of a header that mutations know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ethernet header.
    Ethernet,
    /// IPv6 header.
    Ipv6,
    /// IPv4 header with its options.
    Ipv4,
    /// Routing header of any type.
    Routing,
    /// Hop-by-Hop Options, Destination Options or Fragment header.
    Options,
}

/// A complete header in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the header.
    pub kind: Kind,
    /// Offset in the frame.
    pub at: usize,
    /// Length in bytes.
    pub length: usize,
}

/// Returns the headers from the outermost one to the first one that is truncated or of another
/// kind.
///
/// Payload Length and Total Length do not matter.
pub fn headers(frame: &[u8]) -> Vec<Header> {
    let known = Headers::frame(frame).ignore_lengths().map_while(|layer| {
        let kind = match layer.header {
            wire::Header::Ethernet(_) => Kind::Ethernet,
            wire::Header::Ipv6(_) => Kind::Ipv6,
            wire::Header::Ipv4(_) => Kind::Ipv4,
            wire::Header::Routing(_) => Kind::Routing,
            wire::Header::HopByHop(_)
            | wire::Header::Destination(_)
            | wire::Header::Fragment(_) => Kind::Options,
            _ => return None,
        };
        let (at, length) = (layer.offset, layer.length);
        Some(Header { kind, at, length })
    });
    known.take(HEADERS_MAX).collect()
}

/// Returns the length of an extension header. RFC 8200 4.5: a Fragment header has eight bytes.
pub fn extension_length(kind: u8, header: &[u8]) -> Option<usize> {
    if kind == Protocol::FRAGMENT.0 {
        return Some(8);
    }
    Some((usize::from(*header.get(1)?) + 1) * 8)
}

/// Repairs a frame, so that the first check does not hide a change in an inner header.
///
/// Every length reaches to the end of the frame, every version and IPv4 checksum is right, and
/// every Last Entry and Segments Left is possible.
pub fn make_right(frame: &mut [u8]) {
    for header in headers(frame) {
        let rest = frame.len() - header.at;
        let bytes = &mut frame[header.at..header.at + header.length];
        match header.kind {
            Kind::Ipv6 => {
                bytes[0] = 0x60 | (bytes[0] & 0x0f);
                if let Ok(length) = u16::try_from(rest - Ipv6::LENGTH) {
                    bytes[ipv6::PAYLOAD_LENGTH..][..2].copy_from_slice(&length.to_be_bytes());
                }
            }
            Kind::Ipv4 => {
                bytes[0] = 0x40 | (header.length / 4) as u8;
                if let Ok(length) = u16::try_from(rest) {
                    bytes[ipv4::TOTAL_LENGTH..][..2].copy_from_slice(&length.to_be_bytes());
                }
                Ipv4::write_checksum(bytes);
            }
            Kind::Routing if bytes[srh::ROUTING_TYPE] == RoutingType::SRH.0 => {
                // With Hdr Ext Len 1 no Last Entry is valid, because a segment needs 16 bytes.
                let last_entry = (bytes[srh::HDR_EXT_LEN] / 2).saturating_sub(1);
                bytes[srh::LAST_ENTRY] = bytes[srh::LAST_ENTRY].min(last_entry);
                let left_max = bytes[srh::LAST_ENTRY].saturating_add(1);
                bytes[srh::SEGMENTS_LEFT] = bytes[srh::SEGMENTS_LEFT].min(left_max);
            }
            Kind::Ethernet | Kind::Options | Kind::Routing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv6, an SRH with two segments, IPv6 and UDP, with right and with wrong lengths.
    fn nested() -> (Vec<u8>, Vec<u8>) {
        let mut right = vec![0; 14 + 40 + 40 + 40 + 8];
        right[12..14].copy_from_slice(&[0x86, 0xdd]);
        right[14] = 0x60;
        right[14 + 4..14 + 7].copy_from_slice(&[0, 88, 43]);
        right[54..59].copy_from_slice(&[41, 4, 4, 2, 1]);
        right[94] = 0x60;
        right[94 + 4..94 + 7].copy_from_slice(&[0, 8, 17]);
        let mut wrong = right.clone();
        wrong[14] = 0x20;
        wrong[19] = 1;
        wrong[57..59].copy_from_slice(&[200, 100]);
        wrong[98] = 0xff;
        (right, wrong)
    }

    #[test]
    fn headers_end_at_the_first_truncated_one() {
        let (right, _) = nested();
        let kinds = |frame: &[u8]| -> Vec<Kind> { headers(frame).iter().map(|h| h.kind).collect() };
        let all = [Kind::Ethernet, Kind::Ipv6, Kind::Routing, Kind::Ipv6];
        assert_eq!(kinds(&right), all);
        assert_eq!(kinds(&right[..94 + 39]), all[..3]);
        assert_eq!(kinds(&right[..54 + 39]), all[..2]);
        assert_eq!(kinds(&right[..13]), all[..0]);
    }

    #[test]
    fn wrong_lengths_and_counts_are_repaired() {
        let (right, mut wrong) = nested();
        make_right(&mut wrong);
        assert_eq!(wrong, right);
    }
}
