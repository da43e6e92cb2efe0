//! Ether devices: their veth pairs are created, adopted from an instance that died, followed and
//! removed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sidestep_mirror::Mirror;
use sidestep_mirror::veth::{Pair, Veths};
use sidestep_model::ConfigError;
use sidestep_model::config::{Overlay, check_attachment, check_ether};
use sidestep_model::ether::{
    self, AttachedFrames, Attachment, Ether, EtherPath, Ethers, MTU_MAX, PathState,
};
use sidestep_model::grammar::{self, Words};
use sidestep_model::node::{IfIndex, Link, LinkKind, Node};
use sidestep_model::route::RouteKey;
use sidestep_model::settings::Mode;
use sidestep_model::vlan::Vids;

use super::{DaemonError, Instance, NodeMirror, System, ports};
use crate::api::Verb;
use crate::report;

/// Two VLAN tags, which the MTU of a device does not count and that of its port does.
const TAGS: u32 = 8;
/// MTU of the underlay that is assumed while no port is known.
const UNDERLAY: u32 = 1500;
/// Minimum interval between looks at the paths of the devices.
const PERIOD: Duration = Duration::from_millis(20);

/// Ports of devices that a start has created. Drop removes them.
pub(super) struct Created(Vec<IfIndex>);

impl Created {
    /// Creates the devices that do not exist.
    pub(super) fn new(
        mirror: &mut Mirror,
        mode: Mode,
        ports: &[String],
        wanted: &Ethers,
    ) -> Result<Self, DaemonError> {
        let created = create(mirror, mode, ports, wanted);
        created.map(Self).map_err(DaemonError::Ether)
    }

    /// Leaves the devices.
    pub(super) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        remove(std::mem::take(&mut self.0));
    }
}

/// State that this instance has set at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    port: IfIndex,
    mtu: u32,
    up: bool,
}

/// The devices that exist.
#[derive(Debug, Default)]
pub(super) struct EtherDevices {
    known: BTreeMap<String, Set>,
    /// Next hops of the devices without a carrier.
    wanted: BTreeSet<(IfIndex, IpAddr)>,
    /// The paths of the devices may have changed.
    stale: bool,
    /// Changes of the node were read while devices were created, and only compiled.
    noticed: bool,
    /// Earliest time of the next look at them.
    next: Option<Instant>,
    /// Time of the last renewal of stations.
    pub renewed: Option<Instant>,
}

/// Returns the MTU that a device has by its configuration, or by the MTU of its underlay.
fn mtu_of(node: &Node, ports: &[String], device: &Ether, path: &PathState) -> u32 {
    let of_ports = ports.iter().filter_map(|name| node.link_by_name(name));
    let of_ports = of_ports.map(|link| link.mtu).min();
    let underlay = path.underlay.or(of_ports).unwrap_or(UNDERLAY);
    let largest = device.mtu_within(underlay, path.segments);
    device.mtu.unwrap_or(largest)
}

fn port_mtu(mtu: u32) -> u32 {
    (mtu + TAGS).min(MTU_MAX)
}

/// Executes `sidestep ether VERB WORDS`. On an error nothing changes.
pub(super) fn change(
    own: &mut Overlay,
    node: &Node,
    verb: Verb,
    words: &[String],
) -> Result<(), String> {
    let text = |error: ConfigError| error.to_string();
    let mut words = Words::from_args(words);
    let name = grammar::ether::parse_name(&mut words.clone()).map_err(text)?;
    let there = own.ethers.get(&name);
    match (verb, there) {
        (Verb::Add, Some(there)) => {
            let words = grammar::ether::print(&name, there);
            return Err(format!(
                "the ether device exists already: {words} (use `set`)"
            ));
        }
        (Verb::Replace | Verb::Del, None) => {
            let known: Vec<&str> = own.ethers.keys().map(String::as_str).collect();
            return Err(match known[..] {
                [] => format!("there is no ether device {name}, nor any other"),
                _ => format!(
                    "there is no ether device {name}; expected one of {}",
                    known.join(", ")
                ),
            });
        }
        _ => {}
    }
    if verb == Verb::Del {
        own.ethers.remove(&name);
        return Ok(());
    }
    let (_, device) = grammar::ether::parse(&mut words, there).map_err(text)?;
    check_ether(&device, &words, &own.all_policies()).map_err(text)?;
    check_attachment(&name, &device, &words, &own.ethers).map_err(text)?;
    let sids = node.ether_sids().remove(name.as_str()).unwrap_or_default();
    if let Some(segment) = device.returning_segment(&sids) {
        return Err(format!(
            "{segment} sends frames back into {name}; expected a SID of another node"
        ));
    }
    own.ethers.insert(name, device);
    Ok(())
}

/// Creates the devices that do not exist, and processes the notifications of the mirror. Returns
/// the ports that it created. On an error nothing is left of them.
///
/// # Errors
/// A name belongs to another interface, or the kernel refuses.
pub(super) fn create(
    mirror: &mut Mirror,
    mode: Mode,
    ports: &[String],
    wanted: &Ethers,
) -> Result<Vec<IfIndex>, String> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut veths = Veths::open().map_err(|error| error.to_string())?;
    let node = mirror.node();
    check_ports(&mut veths, node, wanted)?;
    check_attachments(node, mode, ports, wanted)?;
    let is_missing =
        |(name, _): &(&String, _)| node.link_by_name(&ether::port_name(name)).is_none();
    let missing: Vec<(String, u32)> = wanted
        .iter()
        .filter(is_missing)
        .map(|(name, device)| {
            (
                name.clone(),
                mtu_of(node, ports, device, &node.path_of(device)),
            )
        })
        .collect();
    let mut created = BTreeSet::new();
    for (name, mtu) in &missing {
        if let Err(error) = create_one(&mut veths, node, name, *mtu) {
            let _ = mirror.process();
            remove(named(mirror.node(), &created));
            return Err(format!("ether device {name}: {error}"));
        }
        created.insert(ether::port_name(name));
    }
    if !created.is_empty() {
        mirror.process().map_err(|error| error.to_string())?;
    }
    Ok(named(mirror.node(), &created))
}

/// Checks that no other interface has the name of a port.
fn check_ports(veths: &mut Veths, node: &Node, wanted: &Ethers) -> Result<(), String> {
    let ours = veths.ports().map_err(|error| error.to_string())?;
    for name in wanted.keys() {
        let port = node.link_by_name(&ether::port_name(name));
        if let Some(port) = port.filter(|port| !ours.contains(&port.ifindex)) {
            return Err(format!(
                "ether device {name}: its port needs the name {}, which another interface has \
                 (index {})",
                port.name, port.ifindex.0
            ));
        }
    }
    Ok(())
}

/// Checks that interfaces can be attached, as far as they exist.
fn check_attachments(
    node: &Node,
    mode: Mode,
    ports: &[String],
    wanted: &Ethers,
) -> Result<(), String> {
    for (name, device) in wanted {
        let Some(Attachment { port, frames, .. }) = &device.attached else {
            continue;
        };
        let Some(link) = node.link_by_name(port) else {
            continue;
        };
        if let Some(why) = attachment_obstacle(node, mode, ports, link, *frames) {
            return Err(format!(
                "ether device {name}: {port} cannot be attached: {why}"
            ));
        }
    }
    Ok(())
}

/// Returns why these frames of an interface cannot be attached.
fn attachment_obstacle(
    node: &Node,
    mode: Mode,
    ports: &[String],
    link: &Link,
    frames: AttachedFrames,
) -> Option<String> {
    if matches!(link.kind, LinkKind::Bridge) {
        return Some(
            "it is a bridge; make the ether device its port (`ip link set master`)".into(),
        );
    }
    if node.ether_of_port(link.ifindex).is_some() || node.is_ether(link.ifindex) {
        return Some("it belongs to an ether device".into());
    }
    if let Err(why) = ports::choose_attached(node, link, mode) {
        return Some(why);
    }
    match frames {
        AttachedFrames::All | AttachedFrames::Only(Vids::Untagged) => {
            let is_port = ports.iter().any(|port| link.is_named(port));
            is_port.then(|| {
                "it is a port that routes; attach a VLAN of it, or remove it from the ports".into()
            })
        }
        AttachedFrames::Only(Vids::Outer(outer) | Vids::OuterInner(outer, _)) => {
            let is_owner = |other: &&Link| match other.kind {
                LinkKind::Vlan {
                    link: below, id, ..
                } => below == link.ifindex && id == outer,
                _ => false,
            };
            let owner = node.links.values().find(is_owner)?;
            Some(format!("VLAN {outer} of it belongs to {}", owner.name))
        }
    }
}

/// Removes all pairs of an instance that died.
pub(super) fn remove_left() {
    remove_orphans(&Node::default(), &Ethers::new());
}

/// Removes pairs of an instance that died, except for those of these devices.
pub(super) fn remove_orphans(node: &Node, kept: &Ethers) {
    let Ok(mut veths) = Veths::open() else {
        return;
    };
    let kept: BTreeSet<String> = kept.keys().map(|name| ether::port_name(name)).collect();
    let is_kept = |port: &IfIndex| {
        let link = node.links.get(port);
        link.is_some_and(|link| kept.contains(&link.name))
    };
    let mut orphans = veths.ports().unwrap_or_default();
    orphans.retain(|port| !is_kept(port));
    if !orphans.is_empty() {
        let _ = veths.delete(&orphans);
    }
}

fn create_one(veths: &mut Veths, node: &Node, name: &str, mtu: u32) -> Result<(), String> {
    if let Some(link) = node.link_by_name(name) {
        let index = link.ifindex.0;
        return Err(format!(
            "an interface of this name exists (index {index}); choose another name, or remove it"
        ));
    }
    let port = ether::port_name(name);
    let pair = Pair {
        device: name,
        device_mtu: mtu,
        port: &port,
        port_mtu: port_mtu(mtu),
    };
    veths.create(&pair).map_err(|error| error.to_string())
}

fn named(node: &Node, ports: &BTreeSet<String>) -> Vec<IfIndex> {
    let links = ports.iter().filter_map(|name| node.link_by_name(name));
    links.map(|link| link.ifindex).collect()
}

/// Removes pairs by their ports. An error is ignored: what remains is removed by the next start.
pub(super) fn remove(ports: impl IntoIterator<Item = IfIndex>) {
    let ports: Vec<IfIndex> = ports.into_iter().collect();
    if ports.is_empty() {
        return;
    }
    if let Ok(mut veths) = Veths::open() {
        let _ = veths.delete(&ports);
    }
}

impl EtherDevices {
    /// Notes that the paths of the devices may have changed.
    pub(super) fn touch(&mut self) {
        self.stale = true;
    }

    /// Notes that changes of the node were read while devices were created.
    pub(super) fn notice(&mut self) {
        self.noticed = true;
    }

    /// Returns whether changes were noticed since the last call.
    pub(super) fn take_noticed(&mut self) -> bool {
        std::mem::take(&mut self.noticed)
    }

    /// Returns the next hops that devices without a carrier wait for.
    pub(super) fn next_hops(&self) -> impl Iterator<Item = (IfIndex, IpAddr)> {
        self.wanted.iter().copied()
    }
}

impl<S: System> Instance<S> {
    /// Names of the ports of all ether devices.
    pub(super) fn ether_port_names(&self) -> impl Iterator<Item = String> {
        self.configured
            .own
            .ethers
            .keys()
            .map(|name| ether::port_name(name))
    }

    /// Removes the pairs of devices that `before` has and the configuration lacks.
    pub(super) fn remove_ethers(&mut self, before: &Overlay) {
        let node = self.mirror.node();
        let gone = before.ethers.keys();
        let gone = gone.filter(|name| !self.configured.own.ethers.contains_key(*name));
        let ports = gone.filter_map(|name| node.link_by_name(&ether::port_name(name)));
        let ports: Vec<IfIndex> = ports.map(|link| link.ifindex).collect();
        self.system.remove_ethers(ports);
        self.watchers.ethers.touch();
    }

    /// Removes all pairs.
    pub(super) fn remove_all_ethers(&self) {
        let node = self.mirror.node();
        let names = self.ether_port_names();
        let ports = names.filter_map(|name| Some(node.link_by_name(&name)?.ifindex));
        self.system.remove_ethers(ports.collect());
    }

    /// Forgets devices whose pair was removed, by `ip link del` or with the network namespace of the
    /// device.
    pub(super) fn forget_ethers(&mut self) {
        if !self.mirror.is_current() {
            return;
        }
        let node = self.mirror.node();
        let is_gone = |name: &&String| node.link_by_name(&ether::port_name(name)).is_none();
        // The configuration has a device only after its pair exists.
        let gone = self.configured.own.ethers.keys().filter(is_gone);
        let gone: Vec<String> = gone.cloned().collect();
        for name in &gone {
            self.watchers.ethers.known.remove(name);
            self.configured.own.ethers.remove(name);
        }
        if !gone.is_empty() {
            self.save_changes();
        }
    }

    /// Returns when to call [`Self::follow_ethers`].
    pub(super) fn ethers_due(&self) -> Option<Instant> {
        let next = self.watchers.ethers.next.unwrap_or(self.time.started);
        self.watchers.ethers.stale.then_some(next)
    }

    /// Gives each device the carrier and MTU that follow from its path.
    pub(super) fn follow_ethers(&mut self, now: Instant) {
        self.watchers.ethers.stale = false;
        self.watchers.ethers.next = Some(now + PERIOD);
        let node = self.tables.overlaid.node(self.mirror.node());
        let mut veths = None;
        self.watchers.ethers.wanted.clear();
        for (name, device) in &self.configured.own.ethers {
            let Some(link) = node.link_by_name(&ether::port_name(name)) else {
                continue;
            };
            let path = node.path_of(device);
            let wanted = Set {
                port: link.ifindex,
                mtu: mtu_of(node, &self.configured.options.ports, device, &path),
                up: path.invalid.is_none(),
            };
            if !wanted.up {
                self.watchers.ethers.wanted.extend(path.next_hops);
            }
            // A created device is up and has its MTU; an adopted one may not.
            let known = self.watchers.ethers.known.get(name);
            let known = known.filter(|it| it.port == wanted.port).copied();
            // A wire sends frames into the device that need segmentation.
            let down = node.link_by_name(name).filter(|link| !link.up);
            let down = down.filter(|_| device.attached.is_some() && wanted.up);
            if known == Some(wanted) && down.is_none() {
                continue;
            }
            if veths.is_none() {
                veths = self.system.veths();
            }
            let Some(veths) = &mut veths else {
                continue;
            };
            if let Some(link) = down {
                let _ = veths.set_up(link.ifindex, true);
            }
            let is_other_mtu = known.is_none_or(|it| it.mtu != wanted.mtu);
            if is_other_mtu && link.mtu != port_mtu(wanted.mtu) {
                let _ = veths.set_mtu(wanted.port, None, port_mtu(wanted.mtu));
                if let Ok(Some((peer, nsid))) = veths.peer(wanted.port) {
                    let _ = veths.set_mtu(peer, nsid, wanted.mtu);
                }
            }
            if known.is_none_or(|it| it.up != wanted.up) {
                let _ = veths.set_up(wanted.port, wanted.up);
            }
            self.watchers.ethers.known.insert(name.clone(), wanted);
        }
    }

    pub(super) fn ethers_report(&self) -> Result<report::Ethers, String> {
        let node = self.node();
        // A wire shares its interface, so the counters are those of routes, not of ports.
        let sids = node.ether_sids();
        let own: BTreeMap<&str, RouteKey> = node
            .ether_ports()
            .map(|(name, _, port)| (name, ether::route_key(port)))
            .collect();
        let keys = own.values().chain(sids.values().flatten().copied());
        let counts = self.counts_of_routes(keys)?;
        let devices = self.configured.own.ethers.iter();
        devices
            .map(|(name, device)| {
                let port = node.link_by_name(&ether::port_name(name));
                let sent = own.get(name.as_str());
                let sent = sent.map(|key| self.counted_by_route(key, &counts));
                let sent = sent.unwrap_or_default();
                let sids = sids.get(name.as_str()).into_iter().flatten();
                let delivered = sids.map(|key| self.counted_by_route(key, &counts));
                let (packets, bytes) = delivered.fold((0, 0), |(packets, bytes), it| {
                    (packets + it.packets, bytes + it.bytes)
                });
                let known = self.watchers.ethers.known.get(name);
                Ok(report::Ether {
                    name: name.clone(),
                    words: grammar::ether::print(name, device),
                    mode: device.mode().descriptor().word.into(),
                    segments: match &device.path {
                        EtherPath::Segments(all) => all.iter().map(ToString::to_string).collect(),
                        EtherPath::Policy(_) => Vec::new(),
                    },
                    policy: match &device.path {
                        EtherPath::Segments(_) => None,
                        EtherPath::Policy(name) => Some(name.clone()),
                    },
                    port: ether::port_name(name),
                    mtu: known.map_or(0, |set| set.mtu),
                    invalid: node.path_of(device).invalid,
                    up: port.is_some_and(|link| link.up),
                    encapsulated_packets: sent.packets,
                    encapsulated_bytes: sent.bytes,
                    dropped_packets: sent.errors,
                    delivered_packets: packets,
                    delivered_bytes: bytes,
                })
            })
            .collect()
    }
}
