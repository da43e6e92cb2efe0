//! The node and related kernel state. Applies events and returns changes. Only [`State::refresh`]
//! sends requests to the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use ipnet::{IpNet, Ipv6Net};
use sidestep_model::hmac::HmacKeys;
use sidestep_model::node::{IfIndex, Link, Mac, Node};
use sidestep_model::route::{Encap, Family, NextHop, Route, RouteKey};
use sidestep_model::source::{self, AddressLabel, SourceCandidate};

use crate::address::{self, Address, Notice};
use crate::bridge;
use crate::error::MirrorError;
use crate::fpm::FpmState;
use crate::genl::DeviceEvent;
use crate::kernel::{Kernel, RouteFilter, Snapshot};
use crate::lifetime::Lifetimes;
use crate::link::{self, AllSettings, LinkState, Settings};
use crate::neighbor;
use crate::netconf::{self, Netconf, Scope};
use crate::object::{self, ObjectId, Objects, Source};
use crate::route::{self, Reported};
use crate::route_table::{Applied, ChangedRoutes, Placement, RouteTable, family, prefers, uses};
use crate::rule::{self, Rules};
use crate::stale::Stale;
use crate::wire::Message;
use crate::{Changes, Urgent};

mod bridges;
mod urgent;

pub(crate) use bridges::Bridges;

/// All mirrored state.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The node.
    pub node: Node,
    /// Parts of the node to resync.
    pub stale: Stale,
    /// Usable neighbors that have not been confirmed for a while.
    pub stale_neighbors: BTreeSet<(IfIndex, IpAddr)>,
    pub routes: RouteTable,
    objects: Objects,
    /// Routes and nexthop objects of FPM.
    pub fpm: FpmState,
    pub links: BTreeMap<IfIndex, LinkState>,
    all: AllSettings,
    /// `ignore_routes_with_linkdown`, which determines the routes that the kernel marks dead.
    ignore_linkdown: BTreeMap<(Family, Scope), i32>,
    /// Reply of the `netdev` family, or `None` if the kernel lacks it.
    xdp_features: Option<BTreeMap<IfIndex, u64>>,
    /// Peers of veths that TC may redirect to.
    peers: BTreeMap<IfIndex, Mac>,
    addresses: BTreeSet<Address>,
    rules: Rules,
    /// Times at which routes of the kernel expire.
    pub lifetimes: Lifetimes,
    dump6: Dump6,
    /// Nexthop objects whose routes are not resolved again yet.
    changed_objects: BTreeSet<ObjectId>,
    /// Changes of many routes, for [`crate::Mirror::process_with`].
    urgent: Vec<Urgent>,
    /// Nexthop objects whose last change was handled as an urgent one.
    handled: BTreeSet<ObjectId>,
    /// Nexthop objects of the kernel that were reported without the next hops of a lost link. The next
    /// resync of the objects confirms this or corrects it.
    presumed: BTreeSet<u32>,
    /// Links that have stopped running, with the time until which their notification is awaited.
    pub awaited: BTreeMap<IfIndex, Instant>,
    pub changed_routes: ChangedRoutes,
    /// SIDs of routing daemons that the kernel removed because their link went down.
    pub lost_sids: BTreeMap<RouteKey, IfIndex>,
    changed_neighbors: BTreeSet<(IfIndex, IpAddr)>,
    /// Bridges, without their stations.
    pub bridges: Bridges,
    changed_stations: BTreeSet<(IfIndex, Mac)>,
    /// Links that only went up or down.
    changed_links: BTreeSet<IfIndex>,
    changed_other: bool,
}

/// State of the last dump of IPv6 routes.
///
/// If the tree changes during a dump, the kernel restarts and skips as many nodes as it has already
/// dumped (`net/ipv6/ip6_fib.c`, `fib6_dump_table`). If one of these was deleted meanwhile, the
/// dump omits a route without setting `NLM_F_DUMP_INTR`.
#[derive(Debug, Default)]
struct Dump6 {
    /// Whether there was a dump since the last check.
    done: bool,
    /// Whether routes were deleted since the dump began.
    torn: bool,
}

impl State {
    /// Call this after all notifications are applied. If the last dump of IPv6 routes may be
    /// incomplete, it marks them as stale.
    pub fn check_dump(&mut self) {
        let dump = std::mem::take(&mut self.dump6);
        self.stale.routes6 |= dump.done && dump.torn;
    }

    /// Applies one notification of rtnetlink.
    pub fn apply(&mut self, message: &Message<'_>) {
        match message.kind {
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                if let Some(reported) = route::decode(message) {
                    self.route(reported, message);
                }
            }
            libc::RTM_NEWLINK | libc::RTM_DELLINK if self.bridge_port(message) => {}
            libc::RTM_NEWLINK => {
                if let Some(state) = link::decode(message) {
                    self.link_changed(state);
                }
            }
            // A port that leaves a bridge also causes a deletion message, about the bridge's view
            // of the port.
            libc::RTM_DELLINK if message.body.first() == Some(&(libc::AF_UNSPEC as u8)) => {
                if let Some(ifindex) = link::ifindex(message) {
                    self.link_gone(ifindex);
                }
            }
            libc::RTM_NEWADDR | libc::RTM_DELADDR => {
                if let Some(notice) = address::decode(message) {
                    self.address(notice);
                }
            }
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
                if let Some(entry) = neighbor::decode(message) {
                    self.neighbor(entry);
                } else if let Some(station) = bridge::decode_station(message) {
                    self.station(station);
                }
            }
            libc::RTM_NEWRULE | libc::RTM_DELRULE => {
                if let Some(reported) = rule::decode(message) {
                    if message.kind == libc::RTM_NEWRULE {
                        self.rules.add(reported, &self.links);
                    } else {
                        self.rules.delete(&reported.rule);
                    }
                    self.name_rules();
                }
            }
            libc::RTM_NEWNETCONF => {
                if let Some(netconf) = netconf::decode(message) {
                    self.netconf(netconf);
                }
            }
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
                if let Some(object) = object::decode(message) {
                    let is_new = message.kind == RTM_NEWNEXTHOP;
                    self.object(Source::Kernel, object, is_new);
                }
            }
            _ => {}
        }
    }

    /// Applies one notification of the `netdev` family.
    pub fn apply_device(&mut self, event: DeviceEvent) {
        let features = self.xdp_features.get_or_insert_default();
        let ifindex = match event {
            DeviceEvent::Features(ifindex, bits) => {
                features.insert(ifindex, bits);
                ifindex
            }
            DeviceEvent::Gone(ifindex) => {
                features.remove(&ifindex);
                ifindex
            }
        };
        self.rebuild(ifindex);
    }

    /// Resyncs stale state from the kernel.
    pub fn refresh(&mut self, stale: &Stale, kernel: &mut Kernel) -> Result<(), MirrorError> {
        if stale.settings {
            let settings = kernel.settings()?;
            self.changed_other |= self.link_settings(&settings, None);
        }
        self.resolve_objects();
        for (family, all) in [(Family::V4, stale.routes4), (Family::V6, stale.routes6)] {
            let of_family = |route: &Route| self::family(&route.key) == family;
            let of_links = |route: &Route| of_family(route) && uses(route, &stale.links);
            // The kernel cannot filter a dump by a link that no longer exists.
            let gone = stale.links.iter().any(|it| !self.links.contains_key(it));
            let all = all
                || stale.links.len() > LINKS_ONE_BY_ONE
                || self.routes.any(&self.node, |route| {
                    of_family(route)
                        // The routes of an object go with it.
                        && (route.nhid.is_some_and(|it| !self.objects.contains(it))
                            || !of_links(route) && prefers(route, &stale.sources)
                            || gone && route.next_hops.len() > 1 && of_links(route))
                });
            let (node, changed) = (&mut self.node, &mut self.changed_routes);
            let reads_some = !stale.links.is_empty() || !stale.lifetimes.is_empty();
            if family == Family::V6 && (all || reads_some) {
                self.dump6 = Dump6 {
                    done: true,
                    torn: false,
                };
            }
            if all {
                let dumped = kernel.routes(family, RouteFilter::default())?;
                let dumped = admit(&mut self.lifetimes, &self.objects, dumped);
                self.routes.replace(node, dumped, of_family, changed);
                continue;
            }
            let of_links = stale.links.iter().copied().map(RouteFilter::of_link);
            let of_lifetimes = stale.lifetimes.iter().copied();
            for filter in of_links.chain(of_lifetimes.filter(|_| family == Family::V6)) {
                let dumped = kernel.routes(family, filter)?;
                let dumped = admit(&mut self.lifetimes, &self.objects, dumped);
                let covered = |route: &Route| of_family(route) && filter.selects(route);
                self.routes.replace(node, dumped, covered, changed);
            }
        }
        if stale.rules {
            self.rules.clear();
            for family in [Family::V4, Family::V6] {
                for rule in kernel.rules(family)? {
                    self.rules.add(rule, &self.links);
                }
            }
            self.name_rules();
        }
        // With `keep_addr_on_down`, addresses become tentative without a notification.
        for link in &stale.links {
            let notices = kernel.addresses(Some(*link))?;
            self.replace_addresses(notices, |address| {
                address.own.0 == *link && address.own.1.addr().is_ipv6()
            });
        }
        self.stale = Stale::default();
        Ok(())
    }

    /// Replaces everything that notifications keep current.
    pub fn replace(&mut self, snapshot: Snapshot) {
        self.handled.clear();
        let before = self.without_routes();
        let neighbors = self.node.neighbors.clone();
        let mut changed_neighbors = std::mem::take(&mut self.changed_neighbors);
        self.dump6 = Dump6 {
            done: true,
            torn: false,
        };
        self.objects.replace(snapshot.objects);
        self.xdp_features = snapshot.xdp_features.map(BTreeMap::from_iter);
        self.links = snapshot
            .links
            .into_iter()
            .map(|link| (link.ifindex, link))
            .collect();
        for netconf in snapshot.netconf {
            self.netconf(netconf);
        }
        self.rebuild_all();
        self.replace_addresses(snapshot.addresses, |_| true);
        self.node.neighbors.clear();
        self.stale_neighbors.clear();
        for entry in snapshot.neighbors {
            self.neighbor(entry);
        }
        let now = &self.node.neighbors;
        let keys = neighbors.keys().chain(now.keys()).copied();
        changed_neighbors.extend(keys.filter(|key| neighbors.get(key) != now.get(key)));
        self.changed_neighbors = changed_neighbors;
        self.replace_stations(snapshot.bridge_ports, snapshot.stations);
        self.rules.clear();
        for rule in snapshot.rules {
            self.rules.add(rule, &self.links);
        }
        self.name_rules();
        let routes = admit(&mut self.lifetimes, &self.objects, snapshot.routes);
        let changed = &mut self.changed_routes;
        self.routes
            .replace(&mut self.node, routes, |_| true, changed);
        self.mark_fpm_dead(None);
        self.changed_other |= before != self.without_routes();
        self.stale = Stale::default();
    }

    /// Copies the state that a dump replaces, without routes and neighbors. There may be many of
    /// them, and they record their own changes.
    fn without_routes(&self) -> Node {
        Node {
            links: self.node.links.clone(),
            addresses: self.node.addresses.clone(),
            sources: self.node.sources.clone(),
            rules: self.node.rules.clone(),
            ..Node::default()
        }
    }

    /// Sets the node-wide settings that have no notification. Returns true if one changed.
    pub fn node_settings(
        &mut self,
        tunsrc: Option<Ipv6Addr>,
        flowlabel: i32,
        seg6_enabled: i32,
        hmac_keys: HmacKeys,
        address_labels: Vec<AddressLabel>,
    ) -> bool {
        let before = (self.node.tunsrc, self.node.seg6_flowlabel, self.all);
        let other_keys = self.node.hmac_keys != hmac_keys;
        let other_labels = self.node.address_labels != address_labels;
        self.node.address_labels = address_labels;
        self.node.hmac_keys = hmac_keys;
        self.node.tunsrc = tunsrc;
        self.node.seg6_flowlabel = flowlabel;
        self.all.seg6_enabled = seg6_enabled;
        other_keys || other_labels || before != (tunsrc, flowlabel, self.all)
    }

    /// Sets the settings of the links. Returns true if one changed.
    pub fn link_settings(
        &mut self,
        settings: &[(IfIndex, Settings)],
        features: Option<&[(IfIndex, u64)]>,
    ) -> bool {
        for (ifindex, settings) in settings {
            if let Some(state) = self.links.get_mut(ifindex) {
                state.settings = *settings;
            }
        }
        if let Some(features) = features {
            self.xdp_features = Some(features.iter().copied().collect());
        }
        let before = std::mem::take(&mut self.changed_other);
        self.rebuild_all();
        std::mem::replace(&mut self.changed_other, before)
    }

    /// Sets the peers that TC may redirect to. Returns the links with another peer, in order.
    pub fn set_peers(&mut self, peers: BTreeMap<IfIndex, Mac>) -> Vec<IfIndex> {
        self.peers = peers;
        let mut changed = Vec::new();
        for (ifindex, link) in &mut self.node.links {
            let peer = self.peers.get(ifindex).copied();
            if link.peer != peer {
                link.peer = peer;
                changed.push(*ifindex);
            }
        }
        changed
    }

    /// Returns the changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        self.resolve_objects();
        let routes = std::mem::take(&mut self.changed_routes);
        let neighbors = std::mem::take(&mut self.changed_neighbors);
        let links = std::mem::take(&mut self.changed_links);
        let stations = std::mem::take(&mut self.changed_stations);
        let (routes, followed) = routes.divide(&std::mem::take(&mut self.handled));
        Changes {
            routes,
            followed,
            neighbors: neighbors.into_iter().collect(),
            links: links.into_iter().collect(),
            stations: stations.into_iter().collect(),
            other: std::mem::take(&mut self.changed_other),
            resynced: false,
        }
    }

    fn route(&mut self, mut reported: Reported, message: &Message<'_>) {
        resolve(&self.objects, std::slice::from_mut(&mut reported.route));
        let family = family(&reported.route.key);
        let (node, changed) = (&mut self.node, &mut self.changed_routes);
        let applied = if message.kind == libc::RTM_NEWROUTE {
            let Some(route) = self.lifetimes.admit(reported) else {
                return;
            };
            let placement = Placement::of(message.flags);
            self.lost_sids.remove(&route.key);
            self.routes.add(node, route, placement, changed)
        } else {
            if let Some(dev) = lost_by(&reported.route, &self.links) {
                self.lost_sids.insert(reported.route.key, dev);
            }
            self.dump6.torn |= family == Family::V6;
            self.routes.delete(node, &reported.route, changed)
        };
        if applied == Applied::Perhaps {
            self.stale.family(family);
        }
    }

    fn link_changed(&mut self, state: LinkState) {
        let ifindex = state.ifindex;
        // The kernel changes routes silently if one of these changes. They are removed with the
        // link and restored with it (IPv6: when it is running, a little after it is up), move with
        // its VRF, and use its MTU.
        let silent = |link: &LinkState| (link.flags, link.master, link.mtu);
        let before = self.links.get(&ifindex).map(silent);
        let was_up = self.links.get(&ifindex).is_some_and(LinkState::is_running);
        let is_up = state.is_running();
        if !is_up {
            self.awaited.remove(&ifindex);
        }
        if was_up && !is_up {
            self.link_lost(ifindex);
        }
        if before != Some(silent(&state)) {
            self.stale.links.insert(ifindex);
            // The peer may have changed, too. The next survey sets it again.
            self.peers.remove(&ifindex);
        }
        let name = self.links.get(&ifindex).map(|link| &link.name);
        let is_renamed = name.is_some_and(|name| *name != state.name);
        // The kernel compares rules with the new name only.
        self.stale.rules |= is_renamed && self.rules.refer_otherwise(ifindex);
        let is_bridge = state.bridge.is_some();
        self.links.insert(ifindex, state);
        self.rebuild(ifindex);
        if is_bridge {
            self.changed_other |= self.rebuild_bridge_ports();
        }
        if was_up != is_up {
            self.mark_fpm_dead(Some(ifindex));
        }
    }

    fn link_gone(&mut self, ifindex: IfIndex) {
        self.awaited.remove(&ifindex);
        self.links.remove(&ifindex);
        self.lost_sids.retain(|_, dev| *dev != ifindex);
        self.stale.rules |= self.rules.refer_otherwise(ifindex);
        self.mark_fpm_dead(Some(ifindex));
        self.peers.remove(&ifindex);
        self.changed_other |= self.node.links.remove(&ifindex).is_some();
        self.addresses.retain(|address| address.own.0 != ifindex);
        self.node.addresses.retain(|address| address.0 != ifindex);
        self.node.sources.remove(&ifindex);
        self.node.neighbors.retain(|key, _| key.0 != ifindex);
        self.stale_neighbors.retain(|key| key.0 != ifindex);
        self.forget_bridge_port(ifindex);
        self.ignore_linkdown
            .retain(|key, _| key.1 != Scope::Link(ifindex));
        self.stale.links.insert(ifindex);
    }

    fn address(&mut self, notice: Notice) {
        let Notice {
            address,
            is_assigned,
            candidate,
        } = notice;
        if let IpNet::V6(net) = address.own.1 {
            self.changed_other |= self.set_candidate(address.own.0, net, candidate);
        }
        if is_assigned {
            self.addresses.insert(address);
            self.changed_other |= self.node.addresses.insert(address.own);
            return;
        }
        self.addresses.remove(&address);
        if !self.addresses.iter().any(|known| known.own == address.own) {
            self.changed_other |= self.node.addresses.remove(&address.own);
        }
        self.stale.links.insert(address.own.0);
        self.stale.sources.insert(address.own.1.addr());
    }

    /// Adds, changes or removes a candidate for the source of packets. Returns true if it changed.
    fn set_candidate(
        &mut self,
        dev: IfIndex,
        net: Ipv6Net,
        candidate: Option<SourceCandidate>,
    ) -> bool {
        let candidates = self.node.sources.entry(dev).or_default();
        let before = candidates.clone();
        match candidate {
            Some(candidate) => source::place(candidates, candidate),
            None => candidates.retain(|known| known.net.addr() != net.addr()),
        }
        let has_changed = *candidates != before;
        if candidates.is_empty() {
            self.node.sources.remove(&dev);
        }
        has_changed
    }

    /// Replaces the addresses that `covered` accepts by the result of their dump.
    fn replace_addresses(&mut self, notices: Vec<Notice>, covered: impl Fn(&Address) -> bool) {
        let before = (self.node.addresses.clone(), self.node.sources.clone());
        self.addresses.retain(|address| !covered(address));
        let mut fresh: BTreeMap<IfIndex, Vec<SourceCandidate>> = BTreeMap::new();
        for notice in notices {
            if notice.is_assigned {
                self.addresses.insert(notice.address);
            }
            // The dump has the kernel's order.
            let dev = notice.address.own.0;
            if let Some(candidate) = notice.candidate {
                fresh.entry(dev).or_default().push(candidate);
            }
        }
        let own = |dev: IfIndex, candidate: &SourceCandidate| Address {
            own: (dev, candidate.net.into()),
            peer: candidate.net.addr().into(),
        };
        for (dev, candidates) in &mut self.node.sources {
            candidates.retain(|candidate| !covered(&own(*dev, candidate)));
        }
        for (dev, candidates) in fresh {
            self.node.sources.insert(dev, candidates);
        }
        self.node
            .sources
            .retain(|_, candidates| !candidates.is_empty());
        self.node.addresses = self.addresses.iter().map(|address| address.own).collect();
        self.changed_other |= before.0 != self.node.addresses || before.1 != self.node.sources;
    }

    /// Updates the rules of the node.
    fn name_rules(&mut self) {
        let rules = self.rules.named(&self.links);
        if rules != self.node.rules {
            self.node.rules = rules;
            self.changed_other = true;
        }
    }

    fn neighbor(&mut self, entry: neighbor::Entry) {
        let before = match entry.neighbor {
            Some(neighbor) => self.node.neighbors.insert(entry.key, neighbor),
            None => self.node.neighbors.remove(&entry.key),
        };
        if before != entry.neighbor {
            self.changed_neighbors.insert(entry.key);
        }
        if entry.stale && !entry.kept {
            self.stale_neighbors.insert(entry.key);
        } else {
            self.stale_neighbors.remove(&entry.key);
        }
    }

    fn netconf(&mut self, netconf: Netconf) {
        if let Some(value) = netconf.ignore_linkdown {
            let key = (netconf.family, netconf.scope);
            let before = self.ignore_linkdown.insert(key, value);
            if before.is_some_and(|before| before != value) {
                match netconf.scope {
                    Scope::All => self.stale.family(netconf.family),
                    Scope::Link(ifindex) => _ = self.stale.links.insert(ifindex),
                }
            }
        }
        match netconf.scope {
            Scope::All => {
                let before = self.all;
                match netconf.family {
                    Family::V4 => {
                        self.all.rp_filter = netconf.rp_filter.unwrap_or(self.all.rp_filter);
                    }
                    Family::V6 => {
                        self.all.forwarding6 = netconf.forwarding.unwrap_or(self.all.forwarding6);
                    }
                }
                if self.all != before {
                    self.rebuild_all();
                }
            }
            Scope::Link(ifindex) => {
                let Some(state) = self.links.get_mut(&ifindex) else {
                    return;
                };
                let settings = &mut state.settings;
                match (netconf.family, &mut settings.v4, &mut settings.v6) {
                    (Family::V4, Some(v4), _) => {
                        v4.forwarding = netconf.forwarding.unwrap_or(v4.forwarding);
                        v4.rp_filter = netconf.rp_filter.unwrap_or(v4.rp_filter);
                    }
                    // In IPv6 the link's own `forwarding` has no effect.
                    (Family::V6, _, Some(_)) if !netconf.unsaid => {}
                    // The link has just got the protocol: the other settings are not in this
                    // message.
                    _ => self.stale.settings = true,
                }
                self.rebuild(ifindex);
            }
        }
    }

    /// Updates one link of the node.
    fn rebuild(&mut self, ifindex: IfIndex) {
        let Some(state) = self.links.get(&ifindex) else {
            return;
        };
        let features = self
            .xdp_features
            .as_ref()
            .map(|features| features.get(&ifindex).copied().unwrap_or_default());
        let link = Link {
            peer: self.peers.get(&ifindex).copied(),
            ..state.link(&self.all, features)
        };
        let up = link.up;
        let before = self.node.links.insert(ifindex, link);
        let now = self.node.links.get(&ifindex);
        if before.as_ref() == now {
            return;
        }
        if before.map(|before| Link { up, ..before }).as_ref() == now {
            self.changed_links.insert(ifindex);
            return;
        }
        self.changed_other = true;
        self.name_rules();
    }

    /// Updates all links of the node.
    fn rebuild_all(&mut self) {
        self.node
            .links
            .retain(|ifindex, _| self.links.contains_key(ifindex));
        let known: Vec<IfIndex> = self.links.keys().copied().collect();
        for ifindex in known {
            self.rebuild(ifindex);
        }
    }
}

/// Returns the link that a removed SID of a routing daemon went with.
fn lost_by(route: &Route, links: &BTreeMap<IfIndex, LinkState>) -> Option<IfIndex> {
    let [NextHop { dev, encap, .. }] = &route.next_hops[..] else {
        return None;
    };
    let is_sid = matches!(encap, Some(Encap::Seg6Local(_)));
    let is_down = |dev: &IfIndex| links.get(dev).is_some_and(|link| !link.is_running());
    (is_sid && route.protocol > libc::RTPROT_STATIC)
        .then_some(*dev)?
        .filter(is_down)
}

/// Returns the dumped routes that the kernel uses, resolved.
fn admit(lifetimes: &mut Lifetimes, objects: &Objects, dumped: Vec<Reported>) -> Vec<Route> {
    let admitted = dumped.into_iter().filter_map(|it| lifetimes.admit(it));
    let mut routes: Vec<Route> = admitted.collect();
    resolve(objects, &mut routes);
    routes
}

/// Resolves routes whose message has the nexthop object alone.
fn resolve(objects: &Objects, routes: &mut [Route]) {
    let unresolved = routes.iter_mut().filter(|it| route::is_unresolved(it));
    unresolved.for_each(|route| objects.resolve(route));
}

/// Highest number of links whose routes are read link by link. Each link costs the kernel a walk
/// over all tables.
const LINKS_ONE_BY_ONE: usize = 4;

// include/uapi/linux/rtnetlink.h.
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
