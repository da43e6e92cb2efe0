//! Where two frames differ, in the words of the headers: for people who compare bytes.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

/// One line per run of differing bytes (offset, field, expected, found), then both frames in rows of 16.
/// Empty if they are equal.
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
        // One run: neighboring bytes of one field.
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

/// Headers of a frame, one line for each field: offset, name, bytes. IPv6 addresses have their text form.
pub fn decode(frame: &[u8]) -> String {
    let mut fields = fields(frame);
    fields.retain(|(start, _)| *start < frame.len());
    // A payload that is a header again begins where that header's first field begins: the last name counts.
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

/// All bytes as one word of hexadecimal digits, as the vector files have them.
pub fn plain(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

/// `86dd 60`: pairs of bytes.
fn pairs(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes.chunks(2).map(plain).collect();
    if words.is_empty() {
        "nothing".to_owned()
    } else {
        words.join(" ")
    }
}

/// The fields of a frame, each with the offset where it begins, as far as its headers can be followed.
fn fields(frame: &[u8]) -> Vec<(usize, String)> {
    let mut fields = Vec::new();
    ethernet(frame, 0, "", &mut fields);
    fields
}

type Fields = Vec<(usize, String)>;

fn put(fields: &mut Fields, at: usize, prefix: &str, names: &[(usize, &str)]) {
    fields.extend(
        names
            .iter()
            .map(|(offset, name)| (at + offset, format!("{prefix}{name}"))),
    );
}

fn ethernet(frame: &[u8], at: usize, prefix: &str, fields: &mut Fields) {
    put(
        fields,
        at,
        prefix,
        &[
            (0, "destination MAC"),
            (6, "source MAC"),
            (12, "EtherType"),
            (14, "payload"),
        ],
    );
    match frame.get(at + 12..at + 14) {
        Some([0x86, 0xdd]) => ipv6(frame, at + 14, prefix, fields),
        Some([0x08, 0x00]) => ipv4(at + 14, prefix, fields),
        _ => {}
    }
}

fn ipv4(at: usize, prefix: &str, fields: &mut Fields) {
    let names = [
        (0, "IPv4 version, IHL"),
        (1, "IPv4 TOS"),
        (2, "IPv4 total length"),
        (4, "IPv4 identification"),
        (6, "IPv4 fragment"),
        (8, "IPv4 TTL"),
        (9, "IPv4 protocol"),
        (10, "IPv4 checksum"),
        (12, "IPv4 source"),
        (16, "IPv4 destination"),
        (20, "IPv4 payload"),
    ];
    put(fields, at, prefix, &names);
}

fn ipv6(frame: &[u8], at: usize, prefix: &str, fields: &mut Fields) {
    let names = [
        (0, "IPv6 version, TC, label"),
        (4, "IPv6 payload length"),
        (6, "IPv6 next header"),
        (7, "IPv6 hop limit"),
        (8, "IPv6 source"),
        (24, "IPv6 destination"),
        (40, "IPv6 payload"),
    ];
    put(fields, at, prefix, &names);
    let inner = format!("inner {prefix}");
    let mut next = frame.get(at + 6).copied();
    let mut at = at + 40;
    while let Some(header @ (0 | 43 | 60)) = next {
        let Some(&[following, length]) = frame.get(at..at + 2) else {
            return;
        };
        if header == 43 {
            let names = [
                (0, "SRH next header"),
                (1, "SRH length"),
                (2, "SRH type"),
                (3, "SRH segments left"),
                (4, "SRH last entry"),
                (5, "SRH flags"),
                (6, "SRH tag"),
            ];
            put(fields, at, prefix, &names);
            let segments = usize::from(length) / 2;
            fields.extend(
                (0..segments).map(|n| (at + 8 + 16 * n, format!("{prefix}segment list[{n}]"))),
            );
        } else {
            put(fields, at, prefix, &[(0, "options header")]);
        }
        at += 8 * (usize::from(length) + 1);
        put(fields, at, prefix, &[(0, "payload")]);
        next = Some(following);
    }
    match next {
        Some(41) => ipv6(frame, at, &inner, fields),
        Some(4) => ipv4(at, &inner, fields),
        Some(143) => ethernet(frame, at, &inner, fields),
        _ => {}
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
    fn a_difference_is_named_by_its_field_also_inside_a_tunnel() {
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
    fn a_decoded_frame_names_each_field_once_with_its_bytes() {
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
