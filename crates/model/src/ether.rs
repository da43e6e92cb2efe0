//! Ether devices: Ethernet devices whose frames take a segment list (H.Encaps.L2, RFC 8986 5.3).
//! Linux has none, so all of them are Sidestep-only.
//!
//! A device is one end of a veth pair. The other end is a port of Sidestep, and all frames that
//! arrive there take the route of a routing table that only the device uses. SIDs that name the
//! device send frames into it by that port.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::behavior::{EncapMode, Seg6Encap};
use crate::node::{IfIndex, Link, Node, TableId};
use crate::policy::{METRIC, Policies, Policy, Steering, is_steering, own_route};
use crate::route::{Encap, Route, RouteKey};
use crate::vlan::Vids;

/// Prefix of the port's name. The rest is the name of the device.
const PORT_PREFIX: &str = "s-";
/// LIMIT: length of the device's name in bytes, so that the name of its port is one
/// (`IFNAMSIZ`).
pub const NAME_MAX: usize = 15 - PORT_PREFIX.len();
/// LIMIT: smallest MTU of a device (RFC 8200 5).
pub const MTU_MIN: u32 = 1280;
/// LIMIT: largest MTU of a veth (`ETH_MAX_MTU`).
pub const MTU_MAX: u32 = 65535;
/// Bytes of an Ethernet header with one VLAN tag, which the device's MTU does not count.
const ETHERNET: u32 = 18;
const IPV6: u32 = 40;
/// RFC 8754 2: the SRH without its segments.
const SRH: u32 = 8;
const SEGMENT: u32 = 16;

/// Ether devices by name.
pub type Ethers = BTreeMap<String, Ether>;

/// An ether device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ether {
    /// Where its frames go.
    pub path: EtherPath,
    /// H.Encaps.L2.Red instead of H.Encaps.L2: the first segment is in the destination only.
    pub reduced: bool,
    /// MTU of the device. `None` for the largest one that its underlay carries.
    pub mtu: Option<u32>,
    /// Source address of the outer header. `None` for the node's `tunsrc`.
    pub tunsrc: Option<Ipv6Addr>,
    /// The interface that the device connects to the far end without a bridge.
    pub attached: Option<Attachment>,
}

/// Where the frames of an ether device go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EtherPath {
    /// Onto a segment list, 1 to [`crate::behavior::SEGMENTS_MAX`] segments in order of travel.
    Segments(Vec<Ipv6Addr>),
    /// Into the SR policy with this name.
    Policy(String),
}

impl Ether {
    /// Returns the headend behavior.
    pub fn mode(&self) -> EncapMode {
        if self.reduced {
            EncapMode::L2EncapRed
        } else {
            EncapMode::L2Encap
        }
    }

    /// Returns the last segment of the device's own list if it is one of its own SIDs, by
    /// [`Node::ether_sids`]: frames would return.
    pub fn returning_segment(&self, sids: &[&RouteKey]) -> Option<Ipv6Addr> {
        let EtherPath::Segments(segments) = &self.path else {
            return None;
        };
        let last = *segments.last()?;
        let mut sids = sids.iter();
        sids.any(|sid| sid.prefix.contains(&IpAddr::V6(last)))
            .then_some(last)
    }

    /// Returns the largest MTU of the device with this MTU of the underlay and this number of
    /// segments, between [`MTU_MIN`] and [`MTU_MAX`].
    pub fn mtu_within(&self, underlay: u32, segments: usize) -> u32 {
        let written = segments.saturating_sub(usize::from(self.reduced)) as u32;
        let srh = if written == 0 {
            0
        } else {
            SRH + SEGMENT * written
        };
        underlay
            .saturating_sub(IPV6 + srh + ETHERNET)
            .clamp(MTU_MIN, MTU_MAX)
    }

    /// Returns the route of its frames, in the table of its port.
    fn route(&self, port: IfIndex) -> Route {
        let encap = match &self.path {
            EtherPath::Segments(segments) => Encap::Seg6(Seg6Encap {
                tunsrc: self.tunsrc,
                ..Seg6Encap::new(self.mode(), segments.clone())
            }),
            EtherPath::Policy(name) => Encap::Policy(Steering {
                policy: Some(name.clone()),
                ..Steering::default()
            }),
        };
        own_route(route_key(port), encap)
    }
}

/// The interface whose frames take the path of a device, as a virtual private wire. SIDs of the
/// device send frames out of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Name of the interface.
    pub port: String,
    /// The frames.
    pub frames: AttachedFrames,
    /// Change of the outermost tag before a frame is sent to the far end. The opposite change applies
    /// to frames from there.
    #[serde(default)]
    pub rewrite: Option<TagRewrite>,
}

impl Attachment {
    /// Returns the VLAN of the outermost tag of the attached frames, if they have one.
    pub fn outer(&self) -> Option<u16> {
        match self.frames {
            AttachedFrames::Only(Vids::Outer(vid) | Vids::OuterInner(vid, _)) => Some(vid),
            AttachedFrames::Only(Vids::Untagged) | AttachedFrames::All => None,
        }
    }
}

/// Change of the outermost VLAN tag of attached frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TagRewrite {
    /// Remove the tag.
    Pop,
    /// Add an 802.1Q tag with this VLAN.
    Push(u16),
    /// Change the VLAN of the tag to this one.
    Translate(u16),
}

/// Frames of an attached interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttachedFrames {
    /// All frames.
    All,
    /// Frames of these VLANs. The others stay with the interface.
    Only(Vids),
}

/// State of the path of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathState {
    /// Links and addresses of the next hops toward its first segments, resolved or not.
    pub next_hops: Vec<(IfIndex, IpAddr)>,
    /// Smallest MTU of these links; none if there is no next hop.
    pub underlay: Option<u32>,
    /// Number of segments of its longest list.
    pub segments: usize,
    /// Why frames cannot be sent.
    pub invalid: Option<String>,
}

/// Returns the name of the port of an ether device.
pub fn port_name(device: &str) -> String {
    format!("{PORT_PREFIX}{device}")
}

/// Returns the key of the route that the frames of this port take.
pub fn route_key(port: IfIndex) -> RouteKey {
    RouteKey {
        table: table_of(port),
        metric: METRIC,
        ..RouteKey::new(IpNet::from(Ipv6Net::default()))
    }
}

/// Returns the routing table that only the frames of this port use. The numbers are the last ones,
/// in descending order of the interface index.
pub fn table_of(port: IfIndex) -> TableId {
    TableId(u32::MAX - port.0)
}

impl Node {
    /// Returns the ether devices with the interfaces of their ports, as far as these exist.
    pub fn ether_ports(&self) -> impl Iterator<Item = (&str, &Ether, IfIndex)> {
        self.ethers.iter().filter_map(|(name, ether)| {
            let port = self.link_by_name(&port_name(name))?;
            Some((name.as_str(), ether, port.ifindex))
        })
    }

    /// Returns the ether device whose port this is.
    pub fn ether_of_port(&self, port: IfIndex) -> Option<(&str, &Ether)> {
        let name = self.links.get(&port)?.name.strip_prefix(PORT_PREFIX)?;
        let (name, ether) = self.ethers.get_key_value(name)?;
        Some((name, ether))
    }

    /// Returns the ether device whose frames use this routing table.
    pub fn ether_of_table(&self, table: TableId) -> Option<&Ether> {
        self.ether_with_table(table).map(|(_, device)| device)
    }

    /// As [`Node::ether_of_table`], with its name.
    pub fn ether_with_table(&self, TableId(table): TableId) -> Option<(&str, &Ether)> {
        self.ether_of_port(IfIndex(u32::MAX - table))
    }

    /// Returns the state of the path of a device. Policies have that of the last [`Node::steer`].
    pub fn path_of(&self, device: &Ether) -> PathState {
        let (lists, segments, invalid) = match &device.path {
            EtherPath::Segments(segments) => {
                let list = self.state_of(segments);
                let invalid = list.invalid.as_ref().map(ToString::to_string);
                (vec![list], segments.len(), invalid)
            }
            EtherPath::Policy(name) => match self.policies.get(name) {
                None => (vec![], 0, Some(format!("there is no policy {name}"))),
                Some((policy, validity)) => {
                    let all = validity.lists.iter().flatten().cloned().collect();
                    let lists = policy.candidates.iter().flat_map(|it| &it.lists);
                    let most = lists.map(|list| list.segments.len()).max();
                    let invalid = validity.active.is_none();
                    let invalid = invalid.then(|| format!("policy {name} is invalid"));
                    (all, most.unwrap_or_default(), invalid)
                }
            },
        };
        let next_hops = lists.into_iter().flat_map(|list| list.next_hops);
        let next_hops: Vec<_> = next_hops.collect();
        let mtus = next_hops.iter();
        let mtus = mtus.filter_map(|(dev, _)| Some(self.links.get(dev)?.mtu));
        PathState {
            underlay: mtus.min(),
            next_hops,
            segments,
            invalid,
        }
    }

    /// Returns the SIDs that send frames into each ether device, or out of its attached interface.
    pub fn ether_sids(&self) -> BTreeMap<&str, Vec<&RouteKey>> {
        let mut found: BTreeMap<&str, Vec<&RouteKey>> = BTreeMap::new();
        if self.ethers.is_empty() {
            return found;
        }
        for route in self.routes.values() {
            let encaps = route.next_hops.iter().filter_map(|hop| hop.encap.as_ref());
            for encap in encaps {
                let Encap::Seg6Local(local) = encap else {
                    continue;
                };
                let vlans = self.vlans.iter();
                let vlans = vlans.filter(|(key, _)| local.vlantable == Some(key.table));
                let by_vlan = vlans.map(|(_, dev)| *dev);
                let devices = local.oif.into_iter().chain(local.l2dev).chain(by_vlan);
                for (name, _) in devices.filter_map(|dev| self.ether_with_index(dev)) {
                    found.entry(name).or_default().push(&route.key);
                }
            }
        }
        found
    }

    /// Returns whether an ether device sends by this encapsulation.
    pub fn is_of_ether(&self, encap: &Seg6Encap) -> bool {
        let has = |device: &Ether| match &device.path {
            EtherPath::Segments(segments) => *segments == encap.segments,
            EtherPath::Policy(name) => self.policies.get(name).is_some_and(|(policy, _)| {
                let mut lists = policy.candidates.iter().flat_map(|it| &it.lists);
                lists.any(|list| list.segments == encap.segments)
            }),
        };
        let mut devices = self.ethers.values();
        devices.any(|device| device.mode() == encap.mode && has(device))
    }

    /// Returns the interface that sends frames to the far end of the device with this index: the
    /// attached interface or the port of an ether device, or the device itself. An ether device may
    /// be in another namespace.
    pub fn way_into(&self, dev: IfIndex) -> IfIndex {
        let Some((name, device)) = self.ether_with_index(dev) else {
            return dev;
        };
        let way = match &device.attached {
            Some(attachment) => self.link_by_name(&attachment.port),
            None => self.link_by_name(&port_name(name)),
        };
        way.map_or(dev, |link| link.ifindex)
    }

    /// Returns the interface toward the senders of frames that this port receives: the attached
    /// interface if this is the port of an ether device that has one, which segments frames of it.
    pub fn source_of(&self, port: IfIndex) -> IfIndex {
        let device = self.ether_of_port(port).map(|(_, device)| device);
        let attachment = device.and_then(|device| device.attached.as_ref());
        let interface = attachment.and_then(|it| self.link_by_name(&it.port));
        interface.map_or(port, |link| link.ifindex)
    }

    /// Returns whether an ether device has this index.
    pub fn is_ether(&self, dev: IfIndex) -> bool {
        self.ether_with_index(dev).is_some()
    }

    /// Returns the attachment of the ether device with this index.
    pub fn attachment(&self, dev: IfIndex) -> Option<&Attachment> {
        self.ether_with_index(dev)?.1.attached.as_ref()
    }

    fn ether_with_index(&self, dev: IfIndex) -> Option<(&str, &Ether)> {
        let name = self.links.get(&dev).map(|link| &link.name);
        let name = name.or_else(|| self.former_names.get(&dev))?;
        let (name, device) = self.ethers.get_key_value(name)?;
        Some((name, device))
    }

    /// Returns the attachments of an interface, each with the port of its device, and with the
    /// device if that is in this namespace.
    pub fn attachments_of(&self, link: &Link) -> Vec<(&Attachment, IfIndex, Option<IfIndex>)> {
        let devices = self.ether_ports();
        let attached = devices.filter_map(|(name, device, port)| {
            let attachment = device.attached.as_ref()?;
            let device = self.link_by_name(name).map(|link| link.ifindex);
            let is_here = link.is_named(&attachment.port);
            is_here.then_some((attachment, port, device))
        });
        attached.collect()
    }

    /// Sets the policies, the routes that steer into them, and the routes of the ether devices whose
    /// ports exist. Routes into policies take effect with [`Node::steer`].
    pub fn add_ethers(
        &mut self,
        policies: BTreeMap<String, Policy>,
        steering: impl IntoIterator<Item = Route>,
    ) {
        let ports = self.ether_ports();
        let routes: Vec<Route> = ports.map(|(_, ether, port)| ether.route(port)).collect();
        let (into_policies, onto_lists): (Vec<_>, Vec<_>) =
            routes.into_iter().partition(is_steering);
        self.routes
            .extend(onto_lists.into_iter().map(|route| (route.key, route)));
        self.policies = Policies::new(policies, steering.into_iter().chain(into_policies));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ether(reduced: bool) -> Ether {
        Ether {
            path: EtherPath::Segments(vec![]),
            reduced,
            mtu: None,
            tunsrc: None,
            attached: None,
        }
    }

    #[test]
    fn the_underlay_leaves_an_mtu_for_every_list() {
        assert_eq!(ether(false).mtu_within(9216, 1), 9216 - 40 - 24 - 18);
        assert_eq!(ether(true).mtu_within(9216, 1), 9216 - 40 - 18);
        assert_eq!(ether(true).mtu_within(1500, 3), 1500 - 40 - 40 - 18);
        assert_eq!(ether(false).mtu_within(1300, 3), MTU_MIN);
        assert_eq!(ether(true).mtu_within(100_000, 1), MTU_MAX);
    }

    #[test]
    fn the_longest_name_leaves_room_for_that_of_the_port() {
        assert_eq!(port_name(&"n".repeat(NAME_MAX)).len(), 15);
    }
}
