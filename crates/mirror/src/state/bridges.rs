//! Ports and stations of bridges.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sidestep_model::bridge::BridgePort;
use sidestep_model::node::{IfIndex, Mac};

use super::State;
use crate::bridge::{self, Obstacles, Port, Station};
use crate::wire::Message;

/// Bridges, without their stations.
#[derive(Debug, Default)]
pub(crate) struct Bridges {
    ports: BTreeMap<IfIndex, Port>,
    obstacles: Obstacles,
    /// Settings of the bridges that are up.
    settings: BTreeMap<IfIndex, bridge::Settings>,
    /// Stations that the kernel forgets.
    ageing: BTreeSet<(IfIndex, Mac)>,
}

impl Bridges {
    pub fn set_obstacles(&mut self, obstacles: Obstacles) {
        self.obstacles = obstacles;
    }

    /// Returns the shortest ageing time.
    pub fn ageing(&self) -> Option<Duration> {
        self.settings.values().map(|bridge| bridge.ageing).min()
    }

    /// Whether the kernel forgets the station.
    pub fn ages(&self, key: &(IfIndex, Mac)) -> bool {
        self.ageing.contains(key)
    }

    fn port(&self, dev: IfIndex, port: Port) -> BridgePort {
        let found = self.obstacles.get(&dev);
        let found = found.or_else(|| self.obstacles.get(&port.bridge));
        port.port(self.settings.get(&port.bridge), found)
    }
}

impl State {
    /// Applies a message about a port of a bridge. Returns false for any other.
    pub(super) fn bridge_port(&mut self, message: &Message<'_>) -> bool {
        let Some((dev, port)) = bridge::decode_port(message) else {
            return false;
        };
        match port {
            Some(port) => _ = self.bridges.ports.insert(dev, port),
            None => _ = self.bridges.ports.remove(&dev),
        }
        self.changed_other |= self.rebuild_bridge_ports();
        true
    }

    /// Forgets a link as a port and as a bridge.
    pub(super) fn forget_bridge_port(&mut self, link: IfIndex) {
        let bridges = &mut self.bridges;
        bridges
            .ports
            .retain(|dev, port| *dev != link && port.bridge != link);
        self.changed_other |= self.rebuild_bridge_ports();
        let stations = self.node.stations.iter();
        let gone = stations.filter(|(key, port)| key.0 == link || **port == link);
        let gone: Vec<_> = gone.map(|(key, _)| *key).collect();
        for key in gone {
            self.station(Station {
                key,
                port: None,
                ages: false,
            });
        }
    }

    /// Updates the ports of bridges in the node. Returns true if one changed.
    pub fn rebuild_bridge_ports(&mut self) -> bool {
        let up = self.links.iter();
        let up = up.filter(|(_, link)| link.flags & libc::IFF_UP != 0);
        let settings = up.filter_map(|(dev, link)| Some((*dev, link.bridge?)));
        self.bridges.settings = settings.collect();
        let ports = self.bridges.ports.iter();
        let ports = ports.map(|(dev, port)| (*dev, self.bridges.port(*dev, *port)));
        let ports: BTreeMap<IfIndex, BridgePort> = ports.collect();
        let differs = ports != self.node.bridge_ports;
        self.node.bridge_ports = ports;
        differs
    }

    pub(super) fn station(&mut self, station: Station) {
        let before = match station.port {
            Some(port) => self.node.stations.insert(station.key, port),
            None => self.node.stations.remove(&station.key),
        };
        if station.ages {
            self.bridges.ageing.insert(station.key);
        } else {
            self.bridges.ageing.remove(&station.key);
        }
        if before != station.port {
            self.changed_stations.insert(station.key);
        }
    }

    /// Replaces all ports and stations by those of a dump.
    pub(super) fn replace_stations(&mut self, ports: Vec<(IfIndex, Port)>, stations: Vec<Station>) {
        self.bridges.ports = ports.into_iter().collect();
        self.changed_other |= self.rebuild_bridge_ports();
        let before = std::mem::take(&mut self.node.stations);
        self.bridges.ageing.clear();
        let mut changed = std::mem::take(&mut self.changed_stations);
        for station in stations {
            self.station(station);
        }
        let now = &self.node.stations;
        let keys = before.keys().chain(now.keys()).copied();
        changed.extend(keys.filter(|key| before.get(key) != now.get(key)));
        self.changed_stations = changed;
    }
}
