//! HMAC, signed and verified, beside the same without: over 1, 2, 4 and 10 segments. The packets are in one flow, so that each
//! is signed and verified as the one before.

use std::net::Ipv6Addr;

use super::behavior::{Behavior, HOST_6, PLAIN, SID, V6, headend};
use super::packet::{IPV6, Ipv6, ROUTING, srh};

/// The router's key: `ip sr hmac set 7 sha256`.
pub const KEY: (u32, &str, &str) = (7, "sha256", "of the figures");

/// Of the headend's list `fc0b::1,fc0b::2,…` from the tunnel source, by Python's `hmac`.
const SIGNED: [(&str, usize, &[&str], Option<&str>); 8] = [
    (
        "H.Encaps, 1 segment, no HMAC",
        1,
        &["2001:db8:d::/48 encap seg6 mode encap segs fc0b::1 dev eth1"],
        None,
    ),
    (
        "H.Encaps, 1 segment, HMAC",
        1,
        &["2001:db8:d::/48 encap seg6 mode encap segs fc0b::1 hmac 7 dev eth1"],
        Some("4437641408f03fe06a45055b9ea8cf8ae8cf90577b99e0736a2a04306bf77b49"),
    ),
    (
        "H.Encaps, 2 segments, no HMAC",
        2,
        &["2001:db8:d::/48 encap seg6 mode encap segs fc0b::1,fc0b::2 dev eth1"],
        None,
    ),
    (
        "H.Encaps, 2 segments, HMAC",
        2,
        &["2001:db8:d::/48 encap seg6 mode encap segs fc0b::1,fc0b::2 hmac 7 dev eth1"],
        Some("55a7c15f5013c1924401e959f2f5a0ef2be011a6e6c3474b0c1936ee21299c66"),
    ),
    (
        "H.Encaps, 4 segments, no HMAC",
        4,
        &["2001:db8:d::/48 encap seg6 mode encap segs fc0b::1,fc0b::2,fc0b::3,fc0b::4 dev eth1"],
        None,
    ),
    (
        "H.Encaps, 4 segments, HMAC",
        4,
        &[
            "2001:db8:d::/48 encap seg6 mode encap segs fc0b::1,fc0b::2,fc0b::3,fc0b::4 hmac 7 dev eth1",
        ],
        Some("68d689997f2dbf0a628dd9e9060c08221874728dd1ea132eef520e8b3985d6a5"),
    ),
    (
        "H.Encaps, 10 segments, no HMAC",
        10,
        &[
            "2001:db8:d::/48 encap seg6 mode encap segs fc0b::1,fc0b::2,fc0b::3,fc0b::4,fc0b::5,fc0b::6,fc0b::7,fc0b::8,fc0b::9,fc0b::a dev eth1",
        ],
        None,
    ),
    (
        "H.Encaps, 10 segments, HMAC",
        10,
        &[
            "2001:db8:d::/48 encap seg6 mode encap segs fc0b::1,fc0b::2,fc0b::3,fc0b::4,fc0b::5,fc0b::6,fc0b::7,fc0b::8,fc0b::9,fc0b::a hmac 7 dev eth1",
        ],
        Some("6041b1fd2db7b7c385fdc9fc9182dd80d902ee6cc2e0c73c7ea1937475ff5ee3"),
    ),
];

/// Of a packet from [`HOST_6`] to [`SID`], `fc0b::1` next, behind segments `fc0a::1`, `fc0a::2` and so on.
const VERIFIED: [(&str, usize, Option<&str>); 8] = [
    ("End, 1 segment, no HMAC", 1, None),
    (
        "End, 1 segment, HMAC",
        1,
        Some("43fdbfda5416ae3b29f0ee74f9fe6cd6197a86833f3f58a172d8ffdba16f1e5b"),
    ),
    ("End, 2 segments, no HMAC", 2, None),
    (
        "End, 2 segments, HMAC",
        2,
        Some("1095685ce9276537121afe8f45d6f04a33ea19613bbd4fddd8b237797e1e46bf"),
    ),
    ("End, 4 segments, no HMAC", 4, None),
    (
        "End, 4 segments, HMAC",
        4,
        Some("2bf543881606b27b95c2a5c522d4eefc5131e968e28889b234eceafef56124f7"),
    ),
    ("End, 10 segments, no HMAC", 10, None),
    (
        "End, 10 segments, HMAC",
        10,
        Some("71c4aee582dce0e838fc2e9b5fbf297ab5cd56ebacd67b3047024140d0fe02e9"),
    ),
];

/// The rows.
pub fn all() -> Vec<Behavior> {
    let signed = SIGNED.map(|(name, count, routes, mac)| {
        let list: Vec<Ipv6Addr> = (1..=count as u16).rev().map(next).collect();
        headend(name, routes, V6, &|inner| {
            with_mac(srh(IPV6, count as u8 - 1, &list, inner), count, mac)
        })
    });
    let verified = VERIFIED.map(|(name, count, mac)| endpoint(name, count, mac));
    signed.into_iter().chain(verified).collect()
}

fn next(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfc0b, 0, 0, 0, 0, 0, 0, number)
}

/// On the way from this SID to the next one.
fn endpoint(name: &'static str, count: usize, mac: Option<&str>) -> Behavior {
    let before = (1..).map(|number| Ipv6Addr::new(0xfc0a, 0, 0, 0, 0, 0, 0, number));
    let list: Vec<Ipv6Addr> = [next(1), SID]
        .into_iter()
        .chain(before)
        .take(count)
        .collect();
    let packet = |hop_limit, destination, segments_left| {
        let outer = Ipv6 {
            next_header: ROUTING,
            hop_limit,
            source: HOST_6,
            destination,
        };
        let srh = srh(IPV6, segments_left, &list, &V6.packet(64));
        outer.around(&with_mac(srh, count, mac))
    };
    let out = V6.sent(&packet(63, next(1), 0));
    Behavior {
        name,
        routes: &["fc0f::1/128 encap seg6local action End dev eth0"],
        sent: V6.received(&packet(64, SID, 1)),
        from_linux: out.clone(),
        from_sidestep: out,
        ..PLAIN
    }
}

/// The SRH of so many segments with the HMAC TLV behind them (RFC 8754 2.1.2).
fn with_mac(mut packet: Vec<u8>, count: usize, mac: Option<&str>) -> Vec<u8> {
    let Some(mac) = mac else {
        return packet;
    };
    packet[1] += 5;
    packet[5] |= 8;
    let digits = mac.as_bytes().chunks_exact(2);
    let bytes =
        digits.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let tlv = [5, 38, 0, 0, 0, 0, 0, KEY.0 as u8].into_iter().chain(bytes);
    let end = 8 + 16 * count;
    packet.splice(end..end, tlv);
    packet
}
