//! Single values: numbers, tables, protocols, prefixes, as iproute2 reads and writes them.

use std::net::IpAddr;

use ipnet::IpNet;

use super::words::invalid;
use super::{Names, Word};
use crate::error::ConfigError;
use crate::node::{IfIndex, TableId};
use crate::route::{Family, RouteKind};

/// Parses a decimal number, or a hexadecimal one with `0x`. A leading zero, octal in iproute2, is
/// refused.
pub(super) fn number(text: &str) -> Option<u32> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // `from_str_radix` accepts a sign.
        return hex
            .bytes()
            .all(|b| b.is_ascii_hexdigit())
            .then(|| u32::from_str_radix(hex, 16).ok())?;
    }
    let plain =
        text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    plain.then(|| text.parse().ok())?
}

pub(super) fn table(text: &str, names: &dyn Names) -> Option<TableId> {
    match text {
        "local" => Some(TableId::LOCAL),
        "main" => Some(TableId::MAIN),
        "default" => Some(TableId::DEFAULT),
        _ => number(text)
            .filter(|id| *id != 0)
            .map(TableId)
            .or_else(|| names.table(text)),
    }
}

pub(super) fn table_text(table: TableId, names: &dyn Names) -> String {
    match table {
        TableId::LOCAL => "local".to_owned(),
        TableId::MAIN => "main".to_owned(),
        TableId::DEFAULT => "default".to_owned(),
        TableId(0) => "unspec".to_owned(),
        other => names
            .table_name(other)
            .unwrap_or_else(|| other.0.to_string()),
    }
}

/// Returns the name of an interface, or `if7` for an unknown index, as iproute2 does.
pub(crate) fn interface_text(ifindex: IfIndex, names: &dyn Names) -> String {
    names
        .name(ifindex)
        .unwrap_or_else(|| format!("if{}", ifindex.0))
}

/// `RTPROT_*` of `include/uapi/linux/rtnetlink.h` with iproute2's names.
const PROTOCOLS: [(u8, &str); 22] = [
    (0, "unspec"),
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (8, "gated"),
    (9, "ra"),
    (10, "mrt"),
    (11, "zebra"),
    (12, "bird"),
    (13, "dnrouted"),
    (14, "xorp"),
    (15, "ntk"),
    (16, "dhcp"),
    (18, "keepalived"),
    (42, "babel"),
    (99, "openr"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
];

pub(super) const PROTOCOL_EXPECTED: &str =
    "kernel, boot, static, bgp, ospf, isis, … or a number from 0 to 255";

/// `proto` of routes that the kernel creates.
pub(super) const PROTOCOL_KERNEL: u8 = 2;
/// Default `proto` of an added route.
pub(super) const PROTOCOL_BOOT: u8 = 3;

pub(super) fn protocol(text: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(_, name)| *name == text);
    named
        .map(|(number, _)| *number)
        .or_else(|| number(text).and_then(|number| number.try_into().ok()))
}

pub(super) fn protocol_text(protocol: u8) -> String {
    let named = PROTOCOLS.iter().find(|(number, _)| *number == protocol);
    named.map_or_else(|| protocol.to_string(), |(_, name)| (*name).to_owned())
}

/// Parses `tos`: hexadecimal with or without `0x`, as in iproute2.
pub(super) fn tos(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("0x").unwrap_or(text);
    hex.bytes()
        .all(|b| b.is_ascii_hexdigit())
        .then(|| u8::from_str_radix(hex, 16).ok())?
}

const KINDS: [(RouteKind, &str); 9] = [
    (RouteKind::Unicast, "unicast"),
    (RouteKind::Local, "local"),
    (RouteKind::Broadcast, "broadcast"),
    (RouteKind::Anycast, "anycast"),
    (RouteKind::Multicast, "multicast"),
    (RouteKind::Blackhole, "blackhole"),
    (RouteKind::Unreachable, "unreachable"),
    (RouteKind::Prohibit, "prohibit"),
    (RouteKind::Throw, "throw"),
];

pub(super) fn kind(text: &str) -> Option<RouteKind> {
    KINDS
        .iter()
        .find(|(_, name)| *name == text)
        .map(|(kind, _)| *kind)
}

pub(super) fn kind_text(kind: RouteKind) -> String {
    match kind {
        RouteKind::Other(number) => number.to_string(),
        _ => KINDS
            .iter()
            .find(|(known, _)| *known == kind)
            .map_or_else(String::new, |(_, name)| (*name).to_owned()),
    }
}

pub(super) fn any(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
        Family::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}

/// Parses a prefix, or a single address (/128, /32). Host bits must be zero.
///
/// Linux refuses host bits for IPv4 ("Invalid prefix for given prefix length") and silently clears
/// them for IPv6. Sidestep refuses them in both families.
pub(super) fn prefix(
    word: Word,
    keyword: &str,
    family: Option<Family>,
) -> Result<IpNet, ConfigError> {
    let expected = match family {
        Some(Family::V4) => "an IPv4 prefix such as 192.0.2.0/24",
        Some(Family::V6) => "an IPv6 prefix such as 2001:db8::/32",
        None => "a prefix such as 2001:db8::/32 or 192.0.2.0/24, an address, or default",
    };
    let net = word
        .text
        .parse::<IpNet>()
        .ok()
        .or_else(|| word.text.parse::<IpAddr>().ok().map(IpNet::from))
        // The parser accepts /064.
        .filter(|_| !word.text.contains("/0") || word.text.ends_with("/0"))
        .ok_or_else(|| invalid(word, keyword, expected))?;
    if family.is_some_and(|family| family != Family::of_prefix(&net)) {
        let problem = format!("`{keyword}` of the wrong family");
        return Err(ConfigError::new(word.place, problem, word.text, expected));
    }
    if net.trunc() != net {
        let problem = "invalid prefix for given prefix length";
        return Err(ConfigError::new(
            word.place,
            problem,
            word.text,
            net.trunc().to_string(),
        ));
    }
    Ok(net)
}

/// Prints a prefix as iproute2 does: a single address has no length.
pub(crate) fn prefix_text(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() {
        net.addr().to_string()
    } else {
        net.to_string()
    }
}

/// Parses an address of this family.
pub(super) fn address(
    word: Word,
    keyword: &str,
    family: Option<Family>,
) -> Result<IpAddr, ConfigError> {
    let expected = match family {
        Some(Family::V4) => "an IPv4 address",
        Some(Family::V6) => "an IPv6 address",
        None => "an IP address",
    };
    let address: IpAddr = word
        .text
        .parse()
        .map_err(|_| invalid(word, keyword, expected))?;
    if family.is_some_and(|family| family != Family::of(&address)) {
        let problem = format!("`{keyword}` of the wrong family");
        return Err(ConfigError::new(word.place, problem, word.text, expected));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_never_octal() {
        for (text, want) in [
            ("0", Some(0)),
            ("254", Some(254)),
            ("0xff", Some(255)),
            ("4294967295", Some(u32::MAX)),
        ] {
            assert_eq!(number(text), want, "{text}");
        }
        for text in [
            "",
            "010",
            "-1",
            "+1",
            "0x",
            "0x+1",
            "4294967296",
            "1e3",
            " 1",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn host_bits_are_refused_and_the_prefix_suggested() {
        let word = |text| Word {
            text,
            place: Place::Word(1),
        };
        let error = prefix(word("fc00::1/64"), "to", None).expect_err("host bits");
        assert_eq!(
            error.to_string(),
            "word 1: invalid prefix for given prefix length \"fc00::1/64\"; expected fc00::/64"
        );
        let host = prefix(word("fc00::1"), "to", None).expect("an address");
        assert_eq!(host.to_string(), "fc00::1/128");
        for text in [
            "fc00::/129",
            "10.0.0.0/33",
            "fc00::/",
            "/64",
            "fc00::/064",
            "fe80::1%eth0",
            "x",
        ] {
            assert!(prefix(word(text), "to", None).is_err(), "{text}");
        }
        assert!(prefix(word("fc00::/64"), "to", Some(Family::V4)).is_err());
    }
}
