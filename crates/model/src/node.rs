//! A node: the configuration that decides the verdict for a packet. The mirror fills it from the
//! kernel and the YAML reader fills it from a file. The compiler turns it into the data plane's
//! tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::bridge::{BridgePort, Stations};
use crate::domain::Domain;
use crate::ether::Ethers;
use crate::hmac::HmacKeys;
use crate::liveness::{Paths, Reflectors, Watched};
use crate::policy::Policies;
use crate::protection::{Protected, Protection, Protections, protection_of};
use crate::route::{Family, Route, RouteKey, Rule};
use crate::service::Service;
use crate::settings::{RedirectPeer, Settings};
use crate::source::{AddressLabel, SourceCandidate};
use crate::vlan::VlanTables;

/// An interface index of the node's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IfIndex(pub u32);

/// A routing table id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u32);

impl TableId {
    /// `default`.
    pub const DEFAULT: Self = Self(253);
    /// `main`.
    pub const MAIN: Self = Self(254);
    /// `local`.
    pub const LOCAL: Self = Self(255);
}

/// A MAC address.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, byte) in self.0.iter().enumerate() {
            let lead = if number == 0 { "" } else { ":" };
            write!(f, "{lead}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Error: the text is not a MAC address, six bytes in hexadecimal separated by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an Ethernet address such as 02:00:00:00:00:01")]
pub struct MacError;

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacError)?;
            let hex = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
            if !hex {
                return Err(MacError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacError)?;
        }
        parts
            .next()
            .is_none()
            .then_some(Self(bytes))
            .ok_or(MacError)
    }
}

/// Kind of a link, as far as the data plane distinguishes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// The loopback device.
    Loopback,
    /// A plain Ethernet device (hardware, or a kind not listed).
    Ethernet,
    /// veth.
    Veth,
    /// tap.
    Tap,
    /// 802.1Q or 802.1ad subinterface.
    Vlan {
        /// Lower device.
        link: IfIndex,
        /// VLAN id, 1 to 4094.
        id: u16,
        /// Tag protocol: 0x8100 or 0x88a8.
        protocol: u16,
    },
    /// Bridge.
    Bridge,
    /// Bond or team.
    Bond,
    /// VRF device.
    Vrf {
        /// Its routing table.
        table: TableId,
    },
    /// A device without Ethernet frames (tun, ip6tnl, …), with the kernel's name of its `kind`.
    NotEthernet(String),
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Index.
    pub ifindex: IfIndex,
    /// Name.
    pub name: String,
    /// Other names (`ip link property add … altname`).
    pub alt_names: Vec<String>,
    /// MAC address. Zero if the device has none.
    pub mac: Mac,
    /// MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Kind.
    pub kind: LinkKind,
    /// The bridge, bond or VRF that it is a member of.
    pub master: Option<IfIndex>,
    /// Administratively up and with carrier.
    pub up: bool,
    /// `net.ipv6.conf.IF.disable_ipv6`.
    pub ipv6_disabled: bool,
    /// `net.ipv6.conf.IF.seg6_enabled`, combined with `all` as the kernel does.
    pub seg6_enabled: bool,
    /// `net.ipv6.conf.IF.seg6_require_hmac`: -1, 0, 1.
    pub seg6_require_hmac: i32,
    /// `net.ipv6.conf.IF.forwarding` (combined with what the kernel consults).
    pub forwarding6: bool,
    /// `net.ipv4.conf.IF.forwarding`.
    pub forwarding4: bool,
    /// `net.ipv4.conf.{all,IF}.rp_filter`, the larger: 0, 1, 2.
    pub rp_filter: u8,
    /// `net.ipv6.conf.IF.hop_limit`: hop limit of locally generated packets.
    pub hop_limit: u8,
    /// `net.ipv6.conf.IF.use_oif_addrs_only`: packets by the interface have one of its addresses as
    /// source.
    pub oif_addresses_only: bool,
    /// The device transmits frames that XDP redirects to it (`NETDEV_XDP_ACT_NDO_XMIT`; for a veth:
    /// its peer runs NAPI).
    pub xdp_transmit: bool,
    /// Ethernet address of the veth's peer, if the peer is in another network namespace and TC may
    /// redirect to it.
    pub peer: Option<Mac>,
}

impl Link {
    /// Returns an Ethernet link that is up and forwards IPv4 and IPv6.
    pub fn new(ifindex: IfIndex, name: &str) -> Self {
        Self {
            ifindex,
            name: name.to_owned(),
            alt_names: Vec::new(),
            mac: Mac::default(),
            mtu: 1500,
            kind: LinkKind::Ethernet,
            master: None,
            up: true,
            ipv6_disabled: false,
            seg6_enabled: true,
            seg6_require_hmac: 0,
            forwarding6: true,
            forwarding4: true,
            rp_filter: 0,
            hop_limit: 64,
            oif_addresses_only: false,
            xdp_transmit: true,
            peer: None,
        }
    }

    /// Whether this is a name of the link, its own or another one.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.alt_names.iter().any(|other| other == name)
    }
}

/// A resolved or failed neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbor {
    /// Link-layer address while the entry is usable (`NUD_VALID`). `None` during resolution and
    /// after failure.
    pub lladdr: Option<Mac>,
    /// `NUD_PERMANENT` or `NUD_NOARP`: never goes stale.
    pub permanent: bool,
}

/// The configuration that decides the verdict for a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Interfaces.
    pub links: BTreeMap<IfIndex, Link>,
    /// Addresses with their prefix length, host bits kept.
    pub addresses: BTreeSet<(IfIndex, IpNet)>,
    /// IPv6 addresses that may be the source of packets, in the kernel's order.
    pub sources: BTreeMap<IfIndex, Vec<SourceCandidate>>,
    /// Label table of RFC 6724, in the kernel's order. Empty: that of the RFC.
    pub address_labels: Vec<AddressLabel>,
    /// Neighbors.
    pub neighbors: BTreeMap<(IfIndex, IpAddr), Neighbor>,
    /// Routes. Several with one key (IPv6 `append`) are one multipath route.
    pub routes: BTreeMap<RouteKey, Route>,
    /// Ports of bridges.
    pub bridge_ports: BTreeMap<IfIndex, BridgePort>,
    /// Stations that the bridges know.
    pub stations: Stations,
    /// Policy rules per family, in order of priority and then of insertion.
    pub rules: BTreeMap<(Family, u32), Vec<Rule>>,
    /// `ip sr tunsrc`.
    pub tunsrc: Option<Ipv6Addr>,
    /// Tunnel source of the headends of a table, which precedes [`Node::tunsrc`]. Sidestep-only.
    pub vrf_tunsrc: BTreeMap<TableId, Ipv6Addr>,
    /// `net.ipv6.seg6_flowlabel`: -1, 0, 1.
    pub seg6_flowlabel: i32,
    /// Seed of the multipath hash. Two routers in a row need different seeds; with the same seed,
    /// the second one sends all flows that it receives to one next hop.
    pub multipath_hash_seed: u32,
    /// HMAC keys: those of `ip sr hmac`, and Sidestep-only keys.
    pub hmac_keys: HmacKeys,
    /// VLAN tables of End.DX2V. Sidestep-only.
    pub vlans: VlanTables,
    /// The SR domain. Packets from outside ports cannot reach its SIDs. Sidestep-only.
    pub domain: Domain,
    /// Reflectors of S-BFD. Sidestep-only.
    pub reflectors: Reflectors,
    /// Paths that are probed. Sidestep-only.
    pub paths: Paths,
    /// Sessions and states of their segment lists.
    pub watched: Watched,
    /// Protected next hops. Sidestep-only.
    pub protections: Protections,
    /// Rate limit for copies of packets with the O-flag (RFC 9259 2.1.1), per second and port. 0
    /// ignores the flag.
    pub oam_rate: u32,
    /// Settings that Linux does not have.
    pub settings: Settings,
    /// SR policies. Sidestep-only.
    pub policies: Policies,
    /// Ether devices. Sidestep-only.
    pub ethers: Ethers,
    /// Services of SR proxies that are down.
    pub services_down: BTreeSet<Service>,
    /// Names of removed interfaces that Sidestep-only configuration still refers to.
    pub former_names: BTreeMap<IfIndex, String>,
}

impl Node {
    /// Returns the protection of a next hop.
    pub fn protection(&self, dev: IfIndex, via: IpAddr) -> Option<(&Protected, &Protection)> {
        protection_of(&self.protections, &self.links.get(&dev)?.name, via)
    }

    /// Returns the link with this name, its own or another one. No two links have one name.
    pub fn link_by_name(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.is_named(name))
    }

    /// Returns the own name of the link with this name, or the name itself if there is no such link.
    pub fn own_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.link_by_name(name).map_or(name, |link| &link.name)
    }

    /// Whether TC redirects packets for `next_hop` to the peer of the link. Since Linux 6.3, a veth
    /// accepts XDP redirects if its peer runs XDP or GRO, which the redirect would skip.
    pub fn redirects_to_peer(&self, link: &Link, next_hop: Mac) -> bool {
        let is_allowed = match self.settings.redirect_peer {
            RedirectPeer::Auto => !link.xdp_transmit,
            RedirectPeer::On => true,
            RedirectPeer::Off => false,
        };
        is_allowed && link.peer == Some(next_hop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_is_read_and_written() {
        let mac: Mac = "02:00:0:aB:00:ff".parse().expect("well-formed");
        assert_eq!(mac.to_string(), "02:00:00:ab:00:ff");
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:100",
            "02-00-00-00-00-01",
            "+1:0:0:0:0:0",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(MacError), "{text}");
        }
    }
}
