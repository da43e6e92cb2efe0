//! `ports:` of the node file: interfaces with the attributes that a kernel would report.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::{implied, yaml};
use crate::bridge::BridgePort;
use crate::error::ConfigError;
use crate::grammar::rule;
use crate::node::{IfIndex, Link, LinkKind, Mac, Node};

/// Ports of a node file: a map from names to attributes, or a list of names.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    ports: Vec<(Spanned<String>, Attributes)>,
    /// Neither of the two. Reported where the place is known.
    scalar: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Attributes {
    /// Default: 02:00:00:00 and the number of the port in two bytes.
    mac: Option<Spanned<String>>,
    addresses: Vec<Spanned<String>>,
    /// Default: 1500.
    mtu: Option<Spanned<u32>>,
    /// Default: false, as in Linux.
    seg6_enabled: bool,
    /// Default: 0.
    seg6_require_hmac: Option<Spanned<i32>>,
    /// Forwarding of IPv6 and IPv4. Default: true.
    forwarding: Option<bool>,
    /// Default: 0.
    rp_filter: Option<Spanned<u8>>,
    /// Default: 64.
    hop_limit: Option<Spanned<u8>>,
    vlan: Option<Vlan>,
    bridge_port: Option<BridgePortOf>,
}

/// Port of a bridge, and its stations.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BridgePortOf {
    bridge: Spanned<String>,
    /// Default: false.
    #[serde(default)]
    isolated: bool,
    /// Default: none.
    #[serde(default)]
    stations: Vec<Spanned<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vlan {
    link: Spanned<String>,
    id: Spanned<u16>,
    /// Default: 802.1Q.
    protocol: Option<Spanned<String>>,
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A visitor, since an untagged enum loses the places.
        deserializer.deserialize_any(PortsVisitor)
    }
}

const SCALAR: Ports = Ports {
    ports: vec![],
    scalar: true,
};

struct PortsVisitor;

impl<'de> Visitor<'de> for PortsVisitor {
    type Value = Ports;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from names of ports to their attributes, or a list of names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ports, A::Error> {
        let mut ports = vec![];
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            // `eth0:` without a value.
            let attributes: Option<Attributes> = map.next_value()?;
            ports.push((name, attributes.unwrap_or_default()));
        }
        Ok(Ports {
            ports,
            scalar: false,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Ports, A::Error> {
        let mut ports = vec![];
        while let Some(name) = seq.next_element()? {
            ports.push((name, Attributes::default()));
        }
        Ok(Ports {
            ports,
            scalar: false,
        })
    }

    fn visit_unit<E>(self) -> Result<Ports, E> {
        Ok(Ports::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Ports, E> {
        Ok(SCALAR)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Ports, E> {
        Ok(SCALAR)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Ports, E> {
        Ok(SCALAR)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Ports, E> {
        Ok(SCALAR)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Ports, E> {
        Ok(SCALAR)
    }
}

impl Ports {
    /// Checks that the value is a map or a list.
    pub(super) fn check(this: &Spanned<Self>) -> Result<(), ConfigError> {
        if this.value.scalar {
            let expected = "a map from names of ports to their attributes, or a list of names";
            return Err(yaml::wrong(this, "invalid `ports`", "", expected));
        }
        Ok(())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().map(|(name, _)| name.value.as_str())
    }

    /// Returns a node with these links and addresses, and the routes and rules that the kernel
    /// creates for them.
    pub(super) fn node(&self) -> Result<Node, ConfigError> {
        let mut node = Node {
            rules: rule::kernel_rules(),
            ..Node::default()
        };
        for (number, (name, attributes)) in (1..).zip(&self.ports) {
            check_name(name, &node)?;
            let link = attributes.link(IfIndex(number), &name.value)?;
            node.links.insert(link.ifindex, link);
        }
        for (number, (_, attributes)) in (1..).zip(&self.ports) {
            if let Some(vlan) = &attributes.vlan {
                vlan.apply(IfIndex(number), attributes.mac.is_some(), &mut node)?;
            }
            if let Some(port) = &attributes.bridge_port {
                port.apply(IfIndex(number), &mut node)?;
            }
            let addresses = attributes.addresses()?;
            implied::add_routes(&mut node, IfIndex(number), &addresses);
        }
        Ok(node)
    }
}

/// Valid names of interfaces, as a phrase.
pub const INTERFACE_NAME: &str =
    "1 to 15 bytes, or up to 127 for an altname, without blanks, slashes and colons";

/// LIMIT: longest name of an interface, in bytes: the kernel's `ALTIFNAMSIZ` without the zero.
pub const INTERFACE_NAME_MAX: usize = 127;

/// Returns whether Linux accepts the name of an interface (`dev_valid_name`), its own or another
/// one.
pub fn is_interface_name(text: &str) -> bool {
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
    (1..=INTERFACE_NAME_MAX).contains(&text.len())
        && !matches!(text, "." | "..")
        && !text.contains(bad)
}

/// Checks that the name is valid and unique.
fn check_name(name: &Spanned<String>, node: &Node) -> Result<(), ConfigError> {
    let text = name.value.as_str();
    if !is_interface_name(text) {
        let problem = "invalid name of a port";
        return Err(yaml::wrong(name, problem, text, INTERFACE_NAME));
    }
    if node.link_by_name(text).is_some() {
        return Err(yaml::wrong(name, "duplicate port", text, "each port once"));
    }
    Ok(())
}

impl Attributes {
    fn link(&self, ifindex: IfIndex, name: &str) -> Result<Link, ConfigError> {
        let forwarding = self.forwarding.unwrap_or(true);
        // Below 68 there is no IPv4 (RFC 791), below 1280 no IPv6 (RFC 8200 5): Linux has the same lower bound.
        let mtu = ranged(self.mtu.as_ref(), "mtu", 68..=65535)?.unwrap_or(1500);
        Ok(Link {
            mac: self.mac(ifindex)?,
            mtu,
            seg6_enabled: self.seg6_enabled,
            seg6_require_hmac: ranged(
                self.seg6_require_hmac.as_ref(),
                "seg6_require_hmac",
                -1..=1,
            )?
            .unwrap_or(0),
            forwarding6: forwarding,
            forwarding4: forwarding,
            rp_filter: ranged(self.rp_filter.as_ref(), "rp_filter", 0..=2)?.unwrap_or(0),
            hop_limit: ranged(self.hop_limit.as_ref(), "hop_limit", 1..=255)?.unwrap_or(64),
            ..Link::new(ifindex, name)
        })
    }

    fn mac(&self, ifindex: IfIndex) -> Result<Mac, ConfigError> {
        let Some(text) = &self.mac else {
            let [_, _, high, low] = ifindex.0.to_be_bytes();
            return Ok(Mac([0x02, 0, 0, 0, high, low]));
        };
        mac_of(text, "invalid `mac`")
    }

    fn addresses(&self) -> Result<Vec<IpNet>, ConfigError> {
        let mut addresses: Vec<IpNet> = vec![];
        for text in &self.addresses {
            let expected = "a unicast address with its prefix length, such as fc00::2/64";
            let written = text.value.trim();
            // Without a prefix length it is a host address.
            let host = || written.parse::<IpAddr>().ok().map(IpNet::from);
            let net = written.parse().ok().or_else(host);
            let net = net
                .filter(|net: &IpNet| !net.addr().is_multicast() && !net.addr().is_unspecified())
                .ok_or_else(|| yaml::wrong(text, "invalid address", written, expected))?;
            if addresses.iter().any(|there| there.addr() == net.addr()) {
                return Err(yaml::wrong(
                    text,
                    "duplicate address",
                    written,
                    "each address once",
                ));
            }
            addresses.push(net);
        }
        Ok(addresses)
    }
}

impl BridgePortOf {
    fn apply(&self, dev: IfIndex, node: &mut Node) -> Result<(), ConfigError> {
        let bridge = node
            .link_by_name(&self.bridge.value)
            .map(|link| link.ifindex);
        let bridge = bridge.filter(|bridge| *bridge != dev).ok_or_else(|| {
            let problem = "no such bridge";
            yaml::wrong(
                &self.bridge,
                problem,
                &self.bridge.value,
                "another interface",
            )
        })?;
        let port = BridgePort {
            bridge,
            isolated: self.isolated,
            obstacle: None,
        };
        node.bridge_ports.insert(dev, port);
        for text in &self.stations {
            let mac = mac_of(text, "invalid station")?;
            if node.stations.insert((bridge, mac), dev).is_some() {
                let problem = "duplicate station";
                return Err(yaml::wrong(text, problem, &text.value, "each station once"));
            }
        }
        Ok(())
    }
}

fn mac_of(text: &Spanned<String>, problem: &str) -> Result<Mac, ConfigError> {
    let expected = "an Ethernet address of one host, such as 02:00:00:00:00:01";
    let mac = text.value.trim().parse().ok().filter(Mac::is_unicast);
    mac.ok_or_else(|| yaml::wrong(text, problem, &text.value, expected))
}

fn ranged<T>(
    given: Option<&Spanned<T>>,
    key: &str,
    range: std::ops::RangeInclusive<T>,
) -> Result<Option<T>, ConfigError>
where
    T: Copy + PartialOrd + fmt::Display,
{
    match given {
        Some(given) if !range.contains(&given.value) => {
            let expected = format!("a number from {} to {}", range.start(), range.end());
            let problem = format!("invalid `{key}`");
            Err(yaml::wrong(
                given,
                problem,
                &given.value.to_string(),
                &expected,
            ))
        }
        given => Ok(given.map(|given| given.value)),
    }
}

impl Vlan {
    fn apply(&self, ifindex: IfIndex, has_mac: bool, node: &mut Node) -> Result<(), ConfigError> {
        let below = node
            .link_by_name(&self.link.value)
            .filter(|link| link.ifindex != ifindex);
        let Some((below, mac)) = below.map(|link| (link.ifindex, link.mac)) else {
            let names: Vec<_> = node.links.values().map(|link| link.name.as_str()).collect();
            let expected = format!("another of {}", names.join(", "));
            return Err(yaml::wrong(
                &self.link,
                "no such port",
                &self.link.value,
                &expected,
            ));
        };
        let id = ranged(Some(&self.id), "id", 1..=4094)?.unwrap_or_default();
        let protocol = match &self.protocol {
            None => 0x8100,
            Some(text) => match text.value.to_ascii_lowercase().as_str() {
                "802.1q" => 0x8100,
                "802.1ad" => 0x88a8,
                _ => {
                    let expected = "802.1Q or 802.1ad";
                    return Err(yaml::wrong(
                        text,
                        "invalid `protocol`",
                        &text.value,
                        expected,
                    ));
                }
            },
        };
        if let Some(link) = node.links.get_mut(&ifindex) {
            link.kind = LinkKind::Vlan {
                link: below,
                id,
                protocol,
            };
            // Linux gives a VLAN device the MAC address of its lower device.
            if !has_mac {
                link.mac = mac;
            }
        }
        Ok(())
    }
}
