//! A mirror of a kernel in memory, whose notifications come when a test wants, or are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sidestep_mirror::bridge::Obstacles;
use sidestep_mirror::fpm::{Counts, FpmError, Frame};
use sidestep_mirror::memory::Memory;
use sidestep_mirror::{Changes, MirrorError, OnUrgent, Urgent};
use sidestep_model::node::{IfIndex, Mac, Node};
use sidestep_model::route::RouteKey;

use super::World;
use crate::daemon::system::NodeMirror;

/// The kernel's configuration, and its mirrored copy.
pub(crate) struct MemoryMirror {
    world: Rc<World>,
    kernel: Node,
    known: Memory,
    notified: Vec<Changes>,
    /// The settings without a notification differ.
    settings: bool,
    /// Notifications were lost: everything is read again at this time.
    resync: Option<Instant>,
    /// A link that stopped running, until its notification comes, and whether that was reported.
    awaits: Option<(IfIndex, bool)>,
    /// Neighbors that have not been confirmed for a while.
    pub stale: BTreeSet<(IfIndex, IpAddr)>,
    /// Neighbors that were requested, in order.
    pub requested: Vec<(IfIndex, IpAddr)>,
    lost_sids: BTreeMap<RouteKey, IfIndex>,
}

impl MemoryMirror {
    pub fn new(world: Rc<World>, node: Node) -> Self {
        Self {
            world,
            known: Memory::new(node.clone()),
            kernel: node,
            notified: Vec::new(),
            settings: false,
            resync: None,
            awaits: None,
            stale: BTreeSet::new(),
            requested: Vec::new(),
            lost_sids: BTreeMap::new(),
        }
    }

    /// The kernel's configuration.
    pub fn kernel(&self) -> &Node {
        &self.kernel
    }

    /// Changes the kernel's configuration; the notification waits to be read.
    pub fn change(&mut self, change: impl FnOnce(&mut Node)) {
        let before = self.kernel.clone();
        change(&mut self.kernel);
        self.notified.push(between(&before, &self.kernel));
    }

    /// Reads everything, as a mirror that is opened does.
    pub fn read_again(&mut self) {
        self.notified.clear();
        (self.settings, self.resync, self.awaits) = (false, None, None);
        self.known = Memory::new(self.kernel.clone());
    }

    /// Changes settings that cause no notification.
    pub fn set(&mut self, change: impl FnOnce(&mut Node)) {
        change(&mut self.kernel);
        self.settings = true;
    }

    /// Loses the notifications that have not been read. The resync follows at this time.
    pub fn lose(&mut self, resync: Instant) {
        self.notified.clear();
        self.resync = Some(resync);
    }

    /// Reports that a link has stopped running, before its notification.
    pub fn stop_running(&mut self, link: IfIndex) {
        self.awaits = Some((link, false));
    }

    fn copy(&mut self, changes: &Changes) {
        let (from, to) = (&self.kernel, self.known.node_mut());
        for key in &changes.routes {
            match from.routes.get(key) {
                Some(route) => drop(to.routes.insert(*key, route.clone())),
                None => drop(to.routes.remove(key)),
            }
        }
        for key in &changes.neighbors {
            match from.neighbors.get(key) {
                Some(neighbor) => drop(to.neighbors.insert(*key, *neighbor)),
                None => drop(to.neighbors.remove(key)),
            }
        }
        if changes.other {
            to.links.clone_from(&from.links);
            to.addresses.clone_from(&from.addresses);
            to.sources.clone_from(&from.sources);
            to.rules.clone_from(&from.rules);
            to.neighbors.clone_from(&from.neighbors);
        }
        for link in &changes.links {
            to.links.insert(*link, from.links[link].clone());
        }
    }
}

/// Returns the keys whose entries differ.
fn differing<K: Ord + Copy, V: PartialEq>(a: &BTreeMap<K, V>, b: &BTreeMap<K, V>) -> Vec<K> {
    let keys: BTreeSet<K> = a.keys().chain(b.keys()).copied().collect();
    let keys = keys.into_iter();
    keys.filter(|key| a.get(key) != b.get(key)).collect()
}

/// Returns the notified differences.
fn between(before: &Node, after: &Node) -> Changes {
    let links = differing(&before.links, &after.links);
    let only_up = |link: &IfIndex| match (before.links.get(link), after.links.get(link)) {
        (Some(before), Some(after)) => {
            let mut before = before.clone();
            before.up = after.up;
            before == *after
        }
        _ => false,
    };
    let (links, others): (Vec<_>, Vec<_>) = links.into_iter().partition(only_up);
    Changes {
        routes: differing(&before.routes, &after.routes),
        neighbors: differing(&before.neighbors, &after.neighbors),
        links,
        other: !others.is_empty()
            || before.addresses != after.addresses
            || before.sources != after.sources
            || before.rules != after.rules,
        ..Changes::default()
    }
}

impl NodeMirror for MemoryMirror {
    fn node(&self) -> &Node {
        self.known.node()
    }

    fn process_with(&mut self, urgent: &mut OnUrgent<'_>) -> Result<Changes, MirrorError> {
        if self.resync.is_some_and(|due| self.world.now() >= due) {
            (self.resync, self.awaits) = (None, None);
            self.notified.clear();
            let all = between(self.known.node(), &self.kernel);
            self.copy(&all);
            return Ok(Changes {
                resynced: true,
                ..all
            });
        }
        if let Some((link, false)) = self.awaits {
            self.awaits = Some((link, true));
            urgent(self.known.node(), Urgent::Link(link));
        }
        let mut all = self.known.take_changes();
        for changes in std::mem::take(&mut self.notified) {
            let down = changes
                .links
                .iter()
                .filter(|link| !self.kernel.links[link].up);
            for link in down {
                urgent(self.known.node(), Urgent::Link(*link));
            }
            let is_awaited = |(link, _): &mut _| changes.links.contains(link);
            self.awaits.take_if(is_awaited);
            self.copy(&changes);
            all.routes.extend(changes.routes);
            all.neighbors.extend(changes.neighbors);
            all.links.extend(changes.links);
            all.other |= changes.other;
        }
        Ok(all)
    }

    fn set_prefixes(&mut self, _: usize) {}

    fn poll_sysctls(&mut self) -> Result<bool, MirrorError> {
        if !std::mem::take(&mut self.settings) {
            return Ok(false);
        }
        let (from, to) = (&self.kernel, self.known.node_mut());
        to.tunsrc = from.tunsrc;
        to.seg6_flowlabel = from.seg6_flowlabel;
        to.hmac_keys.clone_from(&from.hmac_keys);
        to.links.clone_from(&from.links);
        Ok(true)
    }

    fn due(&self) -> Option<Instant> {
        self.resync
    }

    fn is_current(&self) -> bool {
        self.resync.is_none()
    }

    fn awaits_links(&self) -> bool {
        self.awaits.is_some()
    }

    fn lost_sids(&self) -> &BTreeMap<RouteKey, IfIndex> {
        &self.lost_sids
    }

    fn reports_xdp_features(&self) -> bool {
        true
    }

    fn set_peers(&mut self, _: BTreeMap<IfIndex, Mac>) -> Vec<IfIndex> {
        Vec::new()
    }

    fn set_bridge_obstacles(&mut self, _: Obstacles) -> bool {
        false
    }

    fn ageing(&self) -> Option<Duration> {
        None
    }

    fn use_station(&mut self, _: (IfIndex, Mac)) -> Result<(), MirrorError> {
        Ok(())
    }

    fn is_stale(&self, dev: IfIndex, address: IpAddr) -> bool {
        self.stale.contains(&(dev, address))
    }

    fn use_neighbor(&mut self, dev: IfIndex, address: IpAddr) -> Result<bool, MirrorError> {
        self.requested.push((dev, address));
        Ok(true)
    }

    fn apply_fpm(&mut self, frame: Frame, urgent: &mut OnUrgent<'_>) -> Result<(), FpmError> {
        self.known.apply_fpm(frame, urgent)
    }

    fn mark_fpm_stale(&mut self) {
        self.known.mark_fpm_stale();
    }

    fn sweep_fpm(&mut self) {
        self.known.sweep_fpm();
    }

    fn fpm_counts(&self) -> Counts {
        self.known.fpm_counts()
    }
}
