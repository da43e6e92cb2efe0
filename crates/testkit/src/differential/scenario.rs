//! A random node in the syntax of iproute2. `ip` and the node file use the same text.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::lab::mac_text;
use crate::random::Random;

/// A node, and the destinations that packets can be sent to.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Interfaces.
    pub ports: Vec<Port>,
    /// Neighbors, routes and rules. The node file remains valid without any of them.
    pub lines: Vec<Line>,
    /// `ip sr tunsrc set`.
    pub tunsrc: Option<Ipv6Addr>,
    /// `net.ipv6.seg6_flowlabel`.
    pub seg6_flowlabel: i32,
    /// Destinations of packets.
    pub places: Vec<Place>,
}

/// An interface with one gateway on its link.
#[derive(Clone, Debug)]
pub struct Port {
    /// Number of the interface, part of its addresses: `fc0N::2/64`, `10.N.0.2/24`.
    pub number: u8,
    /// MTU in bytes, without the Ethernet header.
    pub mtu: usize,
    /// Further attributes, as keys of the node file.
    pub settings: Vec<String>,
}

/// One line of the node file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Arguments of `ip neighbor replace`.
    Neighbor(String),
    /// Arguments of `ip route add`.
    Route(String),
    /// Arguments of `ip rule add`.
    Rule(String),
}

/// Processing of packets to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The route forwards or refuses the packet.
    Plain,
    /// The route adds a segment list.
    Headend,
    /// The address is a SID.
    Sid(Sid),
    /// The address belongs to the node, is on a link, or is unreachable.
    Edge,
}

/// Effect of a SID on a packet, as far as a sender depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sid {
    /// The packet continues to the next segment.
    Transit,
    /// As [`Self::Transit`]; the address is a container of compressed SIDs, with these numbers of
    /// block and function bits.
    Container(u8, u8),
    /// Decapsulates an IPv4 packet.
    Ipv4,
    /// Decapsulates an IPv6 packet.
    Ipv6,
    /// Decapsulates an Ethernet frame.
    Ethernet,
}

/// A prefix and its kind.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Processing of packets to the prefix.
    pub kind: Kind,
    /// Network address.
    pub network: IpAddr,
    /// Prefix length in bits.
    pub length: u8,
    /// Whether the prefix is in a table that only rules and SIDs look up.
    pub aside: bool,
}

impl Kind {
    /// Number of the kind, for weighted choices.
    pub(super) fn number(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Sid(_) => 1,
            Self::Headend => 2,
            Self::Edge => 3,
        }
    }
}

impl Place {
    /// Returns an address of the prefix: its first one, or one with random host bits.
    pub fn address(&self, random: &mut Random) -> IpAddr {
        let noise = match random.below(3) {
            0 => 1,
            1 => u128::from(random.next() & 0xffff),
            _ => u128::from(random.next()) << 64 | u128::from(random.next()),
        };
        match self.network {
            IpAddr::V6(network) => {
                let host = !prefix_mask(128, self.length);
                Ipv6Addr::from(u128::from(network) | noise & host).into()
            }
            IpAddr::V4(network) => {
                let host = !prefix_mask(32, self.length);
                let bits = u128::from(u32::from(network)) | noise & host;
                Ipv4Addr::from(bits as u32).into()
            }
        }
    }

    /// Returns whether the prefix is an IPv6 prefix.
    pub fn is_ipv6(&self) -> bool {
        self.network.is_ipv6()
    }
}

impl Line {
    /// Returns the text in the node file.
    pub fn words(&self) -> &str {
        match self {
            Self::Neighbor(words) | Self::Route(words) | Self::Rule(words) => words,
        }
    }
}

impl Port {
    /// Returns the name, `ethN`.
    pub fn name(&self) -> String {
        format!("eth{}", self.number)
    }

    /// Returns the Ethernet address of the port.
    pub fn mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.number + 1]
    }

    /// Returns the Ethernet address of its gateway.
    pub fn gateway_mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.number + 0x11]
    }

    /// Returns a host on the link. Hosts 1 and 0x99 are resolved; host 2 is the port itself.
    pub fn host6(&self, host: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfc00 + u16::from(self.number), 0, 0, 0, 0, 0, 0, host)
    }

    /// As [`Self::host6`].
    pub fn host4(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number, 0, host)
    }
}

impl Scenario {
    /// Returns the node file.
    pub fn text(&self) -> String {
        let mut text = String::from("ports:\n");
        for port in &self.ports {
            let (mac, mtu) = (mac_text(port.mac()), port.mtu);
            let _ = write!(
                text,
                "  {}: {{mac: \"{mac}\", addresses: [\"{}/64\", \"{}/24\"], mtu: {mtu}",
                port.name(),
                port.host6(2),
                port.host4(2)
            );
            for setting in &port.settings {
                let _ = write!(text, ", {setting}");
            }
            text.push_str("}\n");
        }
        let mut section = |key: &str, pick: fn(&Line) -> Option<&String>| {
            let lines: Vec<&String> = self.lines.iter().filter_map(pick).collect();
            if !lines.is_empty() {
                let _ = writeln!(text, "{key}:");
            }
            for line in lines {
                let _ = writeln!(text, "- \"{line}\"");
            }
        };
        section("neighbors", |line| match line {
            Line::Neighbor(words) => Some(words),
            _ => None,
        });
        section("routes", |line| match line {
            Line::Route(words) => Some(words),
            _ => None,
        });
        section("rules", |line| match line {
            Line::Rule(words) => Some(words),
            _ => None,
        });
        if let Some(tunsrc) = self.tunsrc {
            let _ = writeln!(text, "tunsrc: \"{tunsrc}\"");
        }
        let _ = writeln!(text, "seg6_flowlabel: {}", self.seg6_flowlabel);
        text
    }

    /// Returns the same node with other lines.
    #[must_use]
    pub fn with_lines(&self, lines: &[Line]) -> Self {
        Self {
            lines: lines.to_vec(),
            ..self.clone()
        }
    }
}

/// Returns an IPv6 address for a segment list: mostly one that a route covers, or a SID of the
/// node.
pub fn segment(places: &[Place], random: &mut Random) -> Ipv6Addr {
    let kind = random.weighted(&[(12, 0), (10, 1), (2, 2), (1, 3)]);
    let aside = random.one_in(8);
    let fits =
        |place: &&Place| place.is_ipv6() && place.aside == aside && place.kind.number() == kind;
    let known: Vec<Place> = places.iter().filter(fits).copied().collect();
    let any: Vec<Place> = places
        .iter()
        .filter(|place| place.is_ipv6())
        .copied()
        .collect();
    match random
        .pick(if known.is_empty() { &any } else { &known })
        .address(random)
    {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    }
}

pub(super) fn host_length(address: IpAddr) -> u8 {
    if address.is_ipv6() { 128 } else { 32 }
}

/// Returns a mask with the first `length` of `width` bits set.
fn prefix_mask(width: u32, length: u8) -> u128 {
    let all = if width == 128 {
        u128::MAX
    } else {
        (1 << width) - 1
    };
    all & !all.checked_shr(u32::from(length)).unwrap_or(0)
}

/// Returns the network of an address.
pub(super) fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V6(address) => {
            Ipv6Addr::from(u128::from(address) & prefix_mask(128, length)).into()
        }
        IpAddr::V4(address) => {
            let bits = u128::from(u32::from(address)) & prefix_mask(32, length);
            Ipv4Addr::from(bits as u32).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_one_node() {
        for seed in 0..50 {
            let text = |seed| Scenario::random(&mut Random::new(seed)).text();
            assert_eq!(text(seed), text(seed));
            assert_ne!(text(seed), text(seed + 1));
        }
    }

    #[test]
    fn an_address_of_a_place_lies_in_its_prefix() {
        let mut random = Random::new(1);
        for _ in 0..50 {
            for place in Scenario::random(&mut random).places {
                let address = place.address(&mut random);
                assert_eq!(
                    masked(address, place.length),
                    masked(place.network, place.length)
                );
            }
        }
    }
}
