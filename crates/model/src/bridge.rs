//! Bridges of the kernel, as far as frames can pass beside them: their ports and their stations.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::{IfIndex, Mac, Node};

/// Port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePort {
    /// The bridge.
    pub bridge: IfIndex,
    /// `bridge link set isolated on`: no frames to other isolated ports.
    pub isolated: bool,
    /// Why all its frames must pass the bridge.
    pub obstacle: Option<String>,
}

/// Stations: bridge and Ethernet address, with the port of the bridge toward it.
pub type Stations = BTreeMap<(IfIndex, Mac), IfIndex>;

impl Node {
    /// Returns the port of the bridge that frames of an interface belong to: the interface itself, or
    /// the ether device whose port it is. None if its frames must not pass beside the bridge.
    pub fn bridge_port(&self, interface: IfIndex) -> Option<(IfIndex, &BridgePort)> {
        if self.bridge_ports.is_empty() {
            return None;
        }
        let link = self.links.get(&interface)?;
        let dev = match self.ether_of_port(interface) {
            Some((_, device)) if device.attached.is_some() => return None,
            Some((name, _)) => self.link_by_name(name)?.ifindex,
            None if self.attachments_of(link).is_empty() => interface,
            None => return None,
        };
        let port = self.bridge_ports.get(&dev)?;
        port.obstacle.is_none().then_some((dev, port))
    }

    /// Returns the port of Sidestep toward the stations of each port of a bridge.
    pub fn ways_to_stations(&self, ports: &BTreeSet<IfIndex>) -> BTreeMap<IfIndex, IfIndex> {
        let of_bridges = ports.iter();
        let of_bridges = of_bridges.filter_map(|port| Some((self.bridge_port(*port)?.0, *port)));
        of_bridges.collect()
    }
}
