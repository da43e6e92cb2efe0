//! The headers of a frame, read without believing any of them, and made to agree with each other.

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const IPV4: usize = 20;
/// IANA "Assigned Internet Protocol Numbers".
const PROTO_HOP_BY_HOP: u8 = 0;
const PROTO_IPV4: u8 = 4;
const PROTO_IPV6: u8 = 41;
const PROTO_ROUTING: u8 = 43;
const PROTO_DESTINATION_OPTIONS: u8 = 60;
const PROTO_ETHERNET: u8 = 143;
/// Maximum number of headers of one frame, enough for every nesting that the packet path follows.
const HEADERS_MAX: usize = 32;

/// Kind of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 14 bytes.
    Ethernet,
    /// The fixed header.
    Ipv6,
    /// Without its options.
    Ipv4,
    /// A routing header, of whatever type.
    Routing,
    /// Hop-by-Hop or destination options.
    Options,
}

/// A header that lies in a frame as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind.
    pub kind: Kind,
    /// Where it begins.
    pub at: usize,
    /// Its bytes.
    pub length: usize,
}

/// The headers from the outermost one on, up to the first that is cut short or not one of these. Lengths of packets are
/// not looked at, only those of extension headers.
pub fn headers(frame: &[u8]) -> Vec<Header> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut kind = Some(Kind::Ethernet);
    while let Some(this) = kind {
        let Some(length) = length_of(this, &frame[at..]) else {
            break;
        };
        if found.len() == HEADERS_MAX || at + length > frame.len() {
            break;
        }
        found.push(Header {
            kind: this,
            at,
            length,
        });
        kind = match this {
            Kind::Ethernet => match frame[at + 12..at + 14] {
                [0x86, 0xdd] => Some(Kind::Ipv6),
                [0x08, 0x00] => Some(Kind::Ipv4),
                _ => None,
            },
            Kind::Ipv6 => announced(frame[at + 6]),
            Kind::Routing | Kind::Options => announced(frame[at]),
            Kind::Ipv4 => match frame[at + 9] {
                PROTO_IPV4 => Some(Kind::Ipv4),
                PROTO_IPV6 => Some(Kind::Ipv6),
                _ => None,
            },
        };
        at += length;
    }
    found
}

fn length_of(kind: Kind, bytes: &[u8]) -> Option<usize> {
    match kind {
        Kind::Ethernet => Some(ETHERNET),
        Kind::Ipv6 => Some(IPV6),
        Kind::Ipv4 => Some(IPV4),
        Kind::Routing | Kind::Options => Some((usize::from(*bytes.get(1)?) + 1) * 8),
    }
}

/// Returns the header kind of a Next Header value.
fn announced(next_header: u8) -> Option<Kind> {
    match next_header {
        PROTO_HOP_BY_HOP | PROTO_DESTINATION_OPTIONS => Some(Kind::Options),
        PROTO_ROUTING => Some(Kind::Routing),
        PROTO_IPV6 => Some(Kind::Ipv6),
        PROTO_IPV4 => Some(Kind::Ipv4),
        PROTO_ETHERNET => Some(Kind::Ethernet),
        _ => None,
    }
}

/// Repairs a frame: lengths reach its end, versions and IPv4 checksums are right, Last Entry and
/// Segments Left are possible. So the first check does not hide a mutation of an inner header.
pub fn make_right(frame: &mut [u8]) {
    for header in headers(frame) {
        let rest = frame.len() - header.at;
        let bytes = &mut frame[header.at..header.at + header.length];
        match header.kind {
            Kind::Ipv6 => {
                bytes[0] = 0x60 | (bytes[0] & 0x0f);
                if let Ok(length) = u16::try_from(rest - IPV6) {
                    bytes[4..6].copy_from_slice(&length.to_be_bytes());
                }
            }
            Kind::Ipv4 => {
                bytes[0] = 0x45;
                if let Ok(length) = u16::try_from(rest) {
                    bytes[2..4].copy_from_slice(&length.to_be_bytes());
                }
                set_ipv4_checksum(bytes);
            }
            Kind::Routing if bytes[2] == 4 => {
                // Hdr Ext Len 1 has room for half a segment: there is no right Last Entry for it.
                bytes[4] = bytes[4].min((bytes[1] / 2).saturating_sub(1));
                bytes[3] = bytes[3].min(bytes[4].saturating_add(1));
            }
            Kind::Ethernet | Kind::Options | Kind::Routing => {}
        }
    }
}

/// Writes the checksum of an IPv4 header.
pub fn set_ipv4_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !(ipv4_sum(header) as u16);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The one's complement sum of an IPv4 header, its checksum included: 0xffff if that is right (RFC 1071).
pub fn ipv4_sum(header: &[u8]) -> u32 {
    let mut sum: u32 = header
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv6, an SRH of two segments, IPv6, UDP; and with the lengths and counts of all of them wrong.
    fn nested() -> (Vec<u8>, Vec<u8>) {
        let mut right = vec![0; 14 + 40 + 40 + 40 + 8];
        right[12..14].copy_from_slice(&[0x86, 0xdd]);
        right[14] = 0x60;
        right[14 + 4..14 + 7].copy_from_slice(&[0, 88, PROTO_ROUTING]);
        right[54..59].copy_from_slice(&[PROTO_IPV6, 4, 4, 2, 1]);
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
    fn headers_are_found_up_to_the_one_that_is_cut_short() {
        let (right, _) = nested();
        let kinds = |frame: &[u8]| -> Vec<Kind> { headers(frame).iter().map(|h| h.kind).collect() };
        let all = [Kind::Ethernet, Kind::Ipv6, Kind::Routing, Kind::Ipv6];
        assert_eq!(kinds(&right), all);
        assert_eq!(kinds(&right[..94 + 39]), all[..3]);
        assert_eq!(kinds(&right[..54 + 39]), all[..2]);
        assert_eq!(kinds(&right[..13]), all[..0]);
    }

    #[test]
    fn what_was_wrong_is_made_right_and_what_was_right_stays() {
        let (right, mut wrong) = nested();
        make_right(&mut wrong);
        assert_eq!(wrong, right);
    }
}
