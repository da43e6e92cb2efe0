//! Differences between two frames, by header field.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use sidestep_wire::field::{ethernet, ipv4, ipv6, srh};
use sidestep_wire::{Header, Headers};

/// Returns one line per run of differing bytes (offset, field, expected, found), then both frames
/// in rows of 16 bytes. Empty if the frames are equal.
pub fn diff(expected: &[u8], found: &[u8]) -> String {
    let mut out = String::new();
    if expected == found {
        return out;
    }
    if expected.len() != found.len() {
        let _ = writeln!(
            out,
            "      length: expected {}, found {}",
            expected.len(),
            found.len()
        );
    }
    let fields = fields(expected);
    let field = |offset: usize| {
        fields
            .iter()
            .rev()
            .find(|(start, _)| *start <= offset)
            .map_or("", |(_, name)| name)
    };
    let mut offset = 0;
    while offset < expected.len().max(found.len()) {
        if expected.get(offset) == found.get(offset) {
            offset += 1;
            continue;
        }
        // A run consists of adjacent bytes of one field.
        let start = offset;
        let differs =
            |at: usize| at < expected.len().max(found.len()) && expected.get(at) != found.get(at);
        while differs(offset) && field(offset) == field(start) {
            offset += 1;
        }
        let part = |frame: &[u8]| {
            pairs(
                frame
                    .get(start..offset.min(frame.len()))
                    .unwrap_or_default(),
            )
        };
        let _ = writeln!(
            out,
            "      {start:4} {:24} expected {} found {}",
            field(start),
            part(expected),
            part(found)
        );
    }
    for (name, frame) in [("expected", expected), ("found", found)] {
        let _ = writeln!(out, "      {name}:");
        for (row, bytes) in frame.chunks(16).enumerate() {
            let _ = writeln!(out, "      {:4} {}", row * 16, pairs(bytes));
        }
    }
    out
}

/// Returns the headers of a frame, one line per field: offset, name, bytes. IPv6 addresses are
/// printed as text.
pub fn decode(frame: &[u8]) -> String {
    let mut fields = fields(frame);
    fields.retain(|(start, _)| *start < frame.len());
    // If the payload is another header, both fields begin at the same offset, and the last name
    // applies.
    fields.reverse();
    fields.sort_by_key(|(start, _)| *start);
    fields.dedup_by_key(|(start, _)| *start);
    let mut out = String::new();
    for (number, (start, name)) in fields.iter().enumerate() {
        let end = fields.get(number + 1).map_or(frame.len(), |next| next.0);
        let bytes = &frame[*start..end];
        let text = match <[u8; 16]>::try_from(bytes) {
            Ok(address) if !name.ends_with("payload") => Ipv6Addr::from(address).to_string(),
            _ => pairs(bytes),
        };
        let _ = writeln!(out, "      {start:4} {name:28} {text}");
    }
    out
}

/// Returns all bytes as hexadecimal digits without spaces, as in the vector files.
pub fn plain(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

/// Formats bytes in pairs: `86dd 60`.
fn pairs(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes.chunks(2).map(plain).collect();
    if words.is_empty() {
        "nothing".to_owned()
    } else {
        words.join(" ")
    }
}

/// Returns the fields of a frame with their offsets, up to the first header that cannot be decoded.
fn fields(frame: &[u8]) -> Vec<(usize, String)> {
    let mut fields = Vec::new();
    let mut prefix = String::new();
    let mut in_packet = false;
    for layer in Headers::frame(frame).ignore_lengths() {
        let is_ip = matches!(layer.header, Header::Ipv4(_) | Header::Ipv6(_));
        if in_packet && (is_ip || matches!(layer.header, Header::Ethernet(_))) {
            prefix.insert_str(0, "inner ");
        }
        in_packet = is_ip || in_packet && !matches!(layer.header, Header::Ethernet(_));
        let mut put = |offset: usize, name: &str| {
            fields.push((layer.offset + offset, format!("{prefix}{name}")));
        };
        for (offset, name) in names(&layer.header) {
            put(*offset, name);
        }
        if let Header::Routing(_) = layer.header {
            for entry in 0..(layer.length - srh::SEGMENT_LIST) / 16 {
                put(
                    srh::SEGMENT_LIST + 16 * entry,
                    &format!("segment list[{entry}]"),
                );
            }
        }
        put(layer.length, "payload");
    }
    fields
}

/// Offsets and names of the fields of one header.
fn names(header: &Header<'_>) -> &'static [(usize, &'static str)] {
    match header {
        Header::Ethernet(_) => &[
            (ethernet::DESTINATION, "destination MAC"),
            (ethernet::SOURCE, "source MAC"),
            (ethernet::ETHERTYPE, "EtherType"),
        ],
        Header::Vlan(_) => &[(0, "VLAN tag")],
        Header::Ipv4(_) => &[
            (ipv4::VERSION_IHL, "IPv4 version, IHL"),
            (ipv4::TOS, "IPv4 TOS"),
            (ipv4::TOTAL_LENGTH, "IPv4 total length"),
            (ipv4::IDENTIFICATION, "IPv4 identification"),
            (ipv4::FRAGMENT, "IPv4 fragment"),
            (ipv4::TTL, "IPv4 TTL"),
            (ipv4::PROTOCOL, "IPv4 protocol"),
            (ipv4::CHECKSUM, "IPv4 checksum"),
            (ipv4::SOURCE, "IPv4 source"),
            (ipv4::DESTINATION, "IPv4 destination"),
        ],
        Header::Ipv6(_) => &[
            (ipv6::VERSION_CLASS_LABEL, "IPv6 version, TC, label"),
            (ipv6::PAYLOAD_LENGTH, "IPv6 payload length"),
            (ipv6::NEXT_HEADER, "IPv6 next header"),
            (ipv6::HOP_LIMIT, "IPv6 hop limit"),
            (ipv6::SOURCE, "IPv6 source"),
            (ipv6::DESTINATION, "IPv6 destination"),
        ],
        Header::Routing(_) => &[
            (srh::NEXT_HEADER, "SRH next header"),
            (srh::HDR_EXT_LEN, "SRH length"),
            (srh::ROUTING_TYPE, "SRH type"),
            (srh::SEGMENTS_LEFT, "SRH segments left"),
            (srh::LAST_ENTRY, "SRH last entry"),
            (srh::FLAGS, "SRH flags"),
            (srh::TAG, "SRH tag"),
        ],
        Header::HopByHop(_) | Header::Destination(_) => &[(0, "options header")],
        Header::Fragment(_) => &[(0, "Fragment header")],
        Header::Authentication(_) => &[(0, "Authentication Header")],
        Header::Tcp(_) => &[(0, "TCP header")],
        Header::Udp(_) => &[(0, "UDP header")],
        Header::Sctp(_) => &[(0, "SCTP header")],
        Header::Icmpv4(_) | Header::Icmpv6(_) => &[(0, "ICMP header")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_frames_have_no_difference() {
        assert_eq!(diff(&[1, 2, 3], &[1, 2, 3]), "");
    }

    #[test]
    fn a_difference_names_its_field_also_inside_a_tunnel() {
        let mut expected = [
            &[0; 12][..],
            &[0x86, 0xdd],
            &[0x60, 0, 0, 0, 0, 64, 43, 64],
            &[0; 32],
        ]
        .concat();
        expected.extend([41, 2, 4, 1, 0, 0, 0, 0]);
        expected.extend([9; 16]);
        expected.extend([0x60, 0, 0, 0, 0, 0, 59, 7]);
        expected.extend([0; 32]);
        let mut found = expected.clone();
        found[57] = 0;
        found[14 + 40 + 24 + 7] = 6;
        let text = diff(&expected, &found);
        assert!(
            text.contains("  57 SRH segments left        expected 01 found 00"),
            "{text}"
        );
        assert!(
            text.contains("  85 inner IPv6 hop limit     expected 07 found 06"),
            "{text}"
        );
    }

    #[test]
    fn a_decoded_frame_lists_each_field_once() {
        let mut frame = [&[0; 12][..], &[0x86, 0xdd], &[0x60, 0, 0, 0, 0, 0, 59, 64]].concat();
        frame.extend([0xfc; 16]);
        frame.extend([0xfd; 16]);
        let text = decode(&frame);
        assert!(
            text.contains("  12 EtherType                    86dd"),
            "{text}"
        );
        assert!(
            text.contains("  21 IPv6 hop limit               40"),
            "{text}"
        );
        assert!(
            text.contains("IPv6 source                  fcfc:fcfc:"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3 + 6, "{text}");
    }

    #[test]
    fn a_missing_end_is_shown() {
        let text = diff(&[1, 2, 3], &[1]);
        assert!(
            text.contains("length: expected 3, found 1")
                && text.contains("expected 0203 found nothing"),
            "{text}"
        );
    }
}
