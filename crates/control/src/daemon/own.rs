//! The overlay: routes, rules, neighbors, VLAN tables and policies that exist only in Sidestep,
//! from the configuration file and from commands.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_mirror::Changes;
use sidestep_model::config::Overlay;
use sidestep_model::grammar::rule;
use sidestep_model::liveness::Watched;
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::policy::is_steering;
use sidestep_model::route::{Encap, Route, RouteKey};
use sidestep_model::service::Service;

use super::held::Held;

/// The mirrored node with the overlay; a separate node only if the overlay is not empty.
#[derive(Debug, Default)]
pub(crate) struct OverlaidNode(Option<Node>);

impl OverlaidNode {
    /// `down`: services that do not reply. `watched`: sessions and states of paths.
    pub(crate) fn new(
        mirrored: &Node,
        own: &Overlay,
        devices: &Devices,
        (down, watched): (BTreeSet<Service>, Watched),
    ) -> Self {
        // These keys do not concern the node, which a copy would double.
        let of_node = Overlay {
            metrics: None,
            fpm: None,
            fpm_hold: None,
            fpm_reply: false,
            ..own.clone()
        };
        Self((of_node != Overlay::default()).then(|| {
            let mut node = Node {
                services_down: down,
                watched,
                former_names: devices.0.clone(),
                ..overlaid(mirrored, own)
            };
            node.steer();
            node
        }))
    }

    /// Adds routes that the kernel does not have any more.
    pub(crate) fn hold(&mut self, held: &Held) {
        let Some(node) = self.0.as_mut().filter(|_| held.iter().next().is_some()) else {
            return;
        };
        for (key, route) in held.iter() {
            node.routes.entry(*key).or_insert_with(|| route.clone());
        }
        node.steer();
    }

    /// Whether it is a separate node.
    pub(crate) fn is_separate(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn node<'a>(&'a self, mirrored: &'a Node) -> &'a Node {
        self.0.as_ref().unwrap_or(mirrored)
    }

    /// Changes the states of paths. Returns the routes whose policies lead elsewhere now; `None` if
    /// there is no separate node.
    pub(crate) fn set_watched(&mut self, watched: Watched) -> Option<BTreeSet<RouteKey>> {
        let node = self.0.as_mut()?;
        node.watched = watched;
        Some(node.steer())
    }

    /// Applies changed routes and neighbors of the mirrored node. Returns the routes that changed,
    /// including policy routes that now lead elsewhere.
    pub(crate) fn apply(
        &mut self,
        mirrored: &Node,
        own: &Overlay,
        changes: &Changes,
        held: &mut Held,
    ) -> Vec<RouteKey> {
        let mut routes = changes.routes.clone();
        let Some(node) = &mut self.0 else {
            return routes;
        };
        routes.extend(held.note((node, mirrored), &changes.routes));
        for key in routes.iter().chain(&changes.followed) {
            let ours = own.routes.get(key).filter(|route| !is_steering(route));
            let route = ours.or_else(|| mirrored.routes.get(key));
            let route = route.or_else(|| held.get(key));
            node.set_route(*key, route.cloned());
        }
        for key in &changes.neighbors {
            let neighbor = own
                .neighbors
                .get(key)
                .or_else(|| mirrored.neighbors.get(key));
            match neighbor.copied() {
                Some(neighbor) => node.neighbors.insert(*key, neighbor),
                None => node.neighbors.remove(key),
            };
        }
        for dev in &changes.links {
            let link = mirrored.links.get(dev).cloned();
            node.links.extend(link.map(|link| (*dev, link)));
        }
        let steered = node.steer_after(&routes, &changes.neighbors);
        routes.extend(steered);
        routes
    }
}

/// Names of the interfaces in the overlay. The configuration uses names, and a recreated interface
/// has a new index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices(BTreeMap<IfIndex, String>);

impl Devices {
    pub(super) fn names(&self) -> &BTreeMap<IfIndex, String> {
        &self.0
    }

    /// Adds names of interfaces that do not exist.
    pub(crate) fn extend(&mut self, names: BTreeMap<IfIndex, String>) {
        self.0.extend(names);
    }

    /// Records the names of the interfaces of a route.
    pub(super) fn note(&mut self, route: &Route, mirrored: &Node) {
        for dev in mentioned(route) {
            let link = mirrored.links.get(&dev);
            self.0.extend(link.map(|link| (dev, link.name.clone())));
        }
    }

    /// Replaces interfaces that were recreated. Returns the new index for each old one.
    pub(crate) fn track(
        &mut self,
        own: &mut Overlay,
        mirrored: &Node,
    ) -> BTreeMap<IfIndex, IfIndex> {
        let mut moved = BTreeMap::new();
        let mut names = BTreeMap::new();
        for dev in devices(own) {
            let former = self.0.get(&dev);
            let now = mirrored
                .links
                .get(&dev)
                .or_else(|| mirrored.link_by_name(former?));
            let name = now.map(|link| &link.name).or(former);
            let index = now.map_or(dev, |link| link.ifindex);
            names.extend(name.map(|name| (index, name.clone())));
            if index != dev {
                moved.insert(dev, index);
            }
        }
        self.0 = names;
        if !moved.is_empty() {
            for dev in mentions(own) {
                *dev = *moved.get(dev).unwrap_or(dev);
            }
            let neighbors = std::mem::take(&mut own.neighbors).into_iter();
            own.neighbors = neighbors
                .map(|((dev, of), it)| ((*moved.get(&dev).unwrap_or(&dev), of), it))
                .collect();
        }
        moved
    }
}

/// Every interface that the overlay mentions.
fn devices(own: &mut Overlay) -> BTreeSet<IfIndex> {
    let of_neighbors: Vec<_> = own.neighbors.keys().map(|(dev, _)| *dev).collect();
    let others = mentions(own).map(|dev| *dev);
    others.chain(of_neighbors).collect()
}

/// Mutable references to interfaces in the overlay, except for the keys of neighbors. Rules and the
/// domain use names.
fn mentions(own: &mut Overlay) -> impl Iterator<Item = &mut IfIndex> {
    let of_routes = own.routes.values_mut().flat_map(mentions_of);
    of_routes.chain(own.vlans.values_mut())
}

/// Interfaces that a route mentions.
pub(super) fn mentioned(route: &Route) -> impl Iterator<Item = IfIndex> {
    let mut route = route.clone();
    let found: Vec<IfIndex> = mentions_of(&mut route).map(|dev| *dev).collect();
    found.into_iter()
}

/// As [`mentions`], in a route.
fn mentions_of(route: &mut Route) -> impl Iterator<Item = &mut IfIndex> {
    let hops = route.next_hops.make_mut().iter_mut();
    hops.flat_map(|hop| {
        let local = match &mut hop.encap {
            Some(Encap::Seg6Local(local)) => {
                [local.oif.as_mut(), local.iif.as_mut(), local.l2dev.as_mut()]
            }
            _ => [None, None, None],
        };
        hop.dev.iter_mut().chain(local.into_iter().flatten())
    })
}

fn overlaid(mirrored: &Node, own: &Overlay) -> Node {
    let mut node = mirrored.clone();
    let (steering, others): (Vec<_>, Vec<_>) = own.routes.values().cloned().partition(is_steering);
    node.ethers.clone_from(&own.ethers);
    node.add_ethers(own.all_policies(), steering);
    node.routes
        .extend(others.into_iter().map(|route| (route.key, route)));
    node.neighbors.extend(
        own.neighbors
            .iter()
            .map(|(key, neighbor)| (*key, *neighbor)),
    );
    for rule in &own.rules {
        node.rules
            .entry((rule.family, rule.priority))
            .or_default()
            .push(rule::with_own_names(rule, mirrored));
    }
    node.vlans
        .extend(own.vlans.iter().map(|(key, dev)| (*key, *dev)));
    node.domain = own.domain.clone();
    node.reflectors.clone_from(&own.reflectors);
    node.paths.clone_from(&own.watched_paths);
    node.protections = own.all_protections();
    node.oam_rate = own.oam_rate;
    node.settings = own.settings;
    node.hmac_keys.extend(own.hmac_keys.clone());
    node.tunsrc = own.tunsrc.or(node.tunsrc);
    node.vrf_tunsrc.clone_from(&own.vrf_tunsrc);
    node.seg6_flowlabel = own.seg6_flowlabel.unwrap_or(node.seg6_flowlabel);
    node.multipath_hash_seed = own.multipath_hash_seed.unwrap_or(node.multipath_hash_seed);
    node
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use sidestep_model::node::{Link, Neighbor};
    use sidestep_model::route::NextHop;
    use sidestep_model::vlan::{Vids, VlanKey, VlanTableId};

    use super::*;
    use crate::api::{Noun, Verb};
    use crate::daemon::commands;

    fn node(links: &[(u32, &str)]) -> Node {
        let links = links.iter().map(|(index, name)| {
            let link = Link::new(IfIndex(*index), name);
            (link.ifindex, link)
        });
        Node {
            links: links.collect(),
            ..Node::default()
        }
    }

    #[test]
    fn the_overlay_identifies_interfaces_by_name() {
        let before = node(&[(2, "eth0"), (3, "eth1")]);
        let mut own = Overlay::default();
        let words =
            "fc00:9::/64 encap seg6local action End.AM oif eth0 iif eth1 nh6 fc00::2 dev eth0";
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        commands::change(&mut own, &before, &before, Noun::Route, Verb::Add, &words)
            .expect("a route");
        let neighbor = Neighbor {
            lladdr: None,
            permanent: true,
        };
        let address: IpAddr = "fc00::2".parse().expect("an address");
        own.neighbors.insert((IfIndex(2), address), neighbor);
        let key = VlanKey {
            table: VlanTableId(1),
            vids: Vids::Untagged,
        };
        own.vlans.insert(key, IfIndex(3));

        let mut known = Devices::default();
        assert_eq!(known.track(&mut own, &before), BTreeMap::new());
        let written = own.clone();
        // Both disappear, then one returns, then the other.
        assert_eq!(
            known.track(&mut own, &node(&[(7, "eth7")])),
            BTreeMap::new()
        );
        assert_eq!(own, written);
        let moved = known.track(&mut own, &node(&[(3, "eth1"), (8, "eth0")]));
        assert_eq!(moved, BTreeMap::from([(IfIndex(2), IfIndex(8))]));
        assert_eq!(known.0[&IfIndex(8)], "eth0");
        assert!(own.neighbors.contains_key(&(IfIndex(8), address)));
        let moved = known.track(&mut own, &node(&[(9, "eth1"), (8, "eth0")]));
        assert_eq!(moved, BTreeMap::from([(IfIndex(3), IfIndex(9))]));
        assert_eq!(own.vlans[&key], IfIndex(9));
        let [Route { next_hops, .. }] = &own.routes.values().collect::<Vec<_>>()[..] else {
            panic!("{own:?}")
        };
        let [
            NextHop {
                dev,
                encap: Some(Encap::Seg6Local(local)),
                ..
            },
        ] = &next_hops[..]
        else {
            panic!("{own:?}")
        };
        let devices = (*dev, local.oif, local.iif);
        assert_eq!(
            devices,
            (Some(IfIndex(8)), Some(IfIndex(8)), Some(IfIndex(9)))
        );
        // A renamed interface has its new name.
        known.track(&mut own, &node(&[(9, "eth1"), (8, "wan")]));
        assert_eq!(known.0[&IfIndex(8)], "wan");
    }
}
