//! The kernel's configuration of a network namespace as a [`Node`], kept current.
//!
//! [`Mirror::open`] reads everything once. [`Mirror::process`] then applies the kernel's
//! notifications. Some changes have no notification of their own; the mirror then reads that part
//! again after the event that causes the change. After a lost notification it reads everything
//! again. Settings without any notification (`seg6_enabled`, `tunsrc`) are read by
//! [`Mirror::poll_sysctls`], which the caller runs on a timer.
//!
//! FRR may send routes by FPM as well: [`Mirror::apply_fpm`].
//!
//! All sockets are opened in the network namespace of the thread that calls [`Mirror::open`], and
//! stay in it.
//!
//! Differences from the kernel's own view:
//!
//! - Of several routes with one key that are not one multipath route (IPv4 `append`, IPv6 next hops
//!   without gateway), the node has the one that packets take.
//! - The next hops of an IPv6 multipath route are sorted, since the kernel reports them in varying
//!   order.
//! - A neighbor that is being resolved or has failed is absent.
//! - `NextHop::dead` is `RTNH_F_DEAD`: a link without carrier makes a next hop dead if
//!   `ignore_routes_with_linkdown` is set, as in the kernel; `Link::up` shows whether it has
//!   carrier.

mod address;
pub mod bridge;
mod carrier;
mod dump;
pub mod egress;
mod error;
pub mod fpm;
mod genl;
mod kernel;
mod legacy;
mod lifetime;
mod link;
#[doc(hidden)]
pub mod memory;
mod neighbor;
mod netconf;
mod object;
mod offload;
mod route;
mod route_table;
mod rule;
pub mod seg6;
mod socket;
mod stale;
mod state;
pub mod survey;
mod sysctl;
pub mod veth;
mod wire;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidestep_model::node::{IfIndex, Mac, Node};
use sidestep_model::route::{ObjectChange, RouteKey};

use crate::bridge::Obstacles;
use crate::carrier::Carriers;
pub use crate::carrier::OnStop;
pub use crate::error::MirrorError;
use crate::genl::decode_event;
#[doc(hidden)]
pub use crate::genl::{Generic, generic_of};
use crate::kernel::{Kernel, Snapshot};
use crate::socket::{Received, Socket};
use crate::state::State;
use crate::sysctl::{Sysctl, multipath_hash_seed};
use crate::wire::messages;

/// Size of the receive buffer that [`Mirror::open`] requests, in bytes. The kernel doubles it, and a
/// notification takes 1 to 2 KiB of it: it holds those of 200,000 routes. The kernel uses this memory
/// only while notifications wait.
pub const RECEIVE_BUFFER: usize = 192 << 20;

/// LIMIT: datagrams that one [`Mirror::process`] reads. More pending notifications make the
/// caller's next poll return at once.
const DATAGRAMS: usize = 20_000;

/// LIMIT: time from the loss of a carrier to its notification. The kernel first updates all routes.
const CARRIER_TIME: Duration = Duration::from_secs(1);
/// Number of routes from which on that time is long enough to watch carriers.
const LATE_ROUTES: usize = 10_000;

/// Longest delay between two resyncs, unless one resync takes longer.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// Number of resyncs without a delay. A longer sequence means that the kernel changes as fast as
/// the mirror reads it.
const RESYNCS_AT_ONCE: u32 = 4;

/// A change that concerns many routes, before it is applied to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// A nexthop object that routes refer to.
    Object(ObjectChange),
    /// A link that went down.
    Link(IfIndex),
}

/// Function that handles urgent changes; the node has the state from before the change. Returns
/// whether the routes of a nexthop object need nothing else.
pub type OnUrgent<'a> = dyn FnMut(&Node, Urgent) -> bool + 'a;

/// Changes that [`Mirror::process`] made to the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys of routes that were added, changed or removed, in order.
    pub routes: Vec<RouteKey>,
    /// Keys of routes with other next hops, because of nexthop objects whose change was handled as
    /// an [`Urgent`] one, in order.
    pub followed: Vec<RouteKey>,
    /// Neighbors that were added, removed, or got another link-layer address, in order. Neighbors
    /// of a removed link are not included.
    pub neighbors: Vec<(IfIndex, IpAddr)>,
    /// Links that only went up or down, or got another peer, in order.
    pub links: Vec<IfIndex>,
    /// Stations that bridges learned or forgot, or that moved, in order.
    pub stations: Vec<(IfIndex, Mac)>,
    /// Links otherwise, addresses or rules changed.
    pub other: bool,
    /// Notifications were lost, and everything was read again. The other fields still contain the
    /// differences.
    pub resynced: bool,
}

impl Changes {
    /// Returns true if nothing changed.
    pub fn is_empty(&self) -> bool {
        let routes = self.routes.is_empty() && self.followed.is_empty();
        let neighbors = self.neighbors.is_empty() && self.stations.is_empty();
        routes && neighbors && self.links.is_empty() && !self.other
    }
}

/// Decodes datagrams into an empty node without a kernel, for tests.
#[doc(hidden)]
pub fn node_of<'a>(datagrams: impl IntoIterator<Item = &'a [u8]>) -> Node {
    let mut state = State::default();
    for message in datagrams.into_iter().flat_map(messages) {
        state.apply(&message);
        if let Some(event) = decode_event(&message) {
            state.apply_device(event);
        }
    }
    state.resolve_objects();
    state.node
}

/// A [`Node`] that follows the kernel.
pub struct Mirror {
    route_events: Socket,
    device_events: Option<Socket>,
    kernel: Kernel,
    state: State,
    backoff: ResyncBackoff,
    carriers: Option<Carriers>,
    on_stop: Option<Arc<OnStop>>,
    /// See [`Mirror::set_prefixes`].
    prefixes: usize,
    all_seg6_enabled: Sysctl,
    seg6_flowlabel: Sysctl,
}

/// Delays between resyncs.
#[derive(Debug, Default)]
struct ResyncBackoff {
    /// Consecutive resyncs after which part of the node was still stale.
    attempts: u32,
    /// Earliest time of the next resync, or `None` for now.
    next: Option<Instant>,
}

impl ResyncBackoff {
    /// Records a resync that began at this time and has just ended.
    fn record(&mut self, began: Instant) {
        self.attempts += 1;
        let now = Instant::now();
        let taken = now - began;
        // After the first attempts, resyncs take at most half of the time, and less the longer they
        // continue.
        let doubled = self.attempts.checked_sub(RESYNCS_AT_ONCE);
        let delay = doubled.map(|times| taken.saturating_mul(1 << times.min(16)));
        self.next = delay.map(|delay| now + delay.min(DELAY_MAX.max(taken)));
    }

    /// Forgets earlier resyncs, because the node is current.
    fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Mirror {
    /// Subscribes to the kernel's notifications in the calling thread's network namespace, and
    /// reads the current state.
    ///
    /// # Errors
    /// If a socket cannot be opened, or the kernel refuses a request. No request needs a privilege;
    /// without `CAP_NET_ADMIN`, the tunnel source and the HMAC keys are unset.
    pub fn open() -> Result<Self, MirrorError> {
        Self::open_with_buffer(RECEIVE_BUFFER)
    }

    /// As [`Mirror::open`], with a receive buffer of `bytes` for notifications. The kernel doubles
    /// the size, and has a minimum. Each overflow of a small buffer costs a new dump.
    pub fn open_with_buffer(bytes: usize) -> Result<Self, MirrorError> {
        // Subscribe first: changes during the dumps then arrive as notifications after them.
        let route_events = kernel::subscribe(bytes)?;
        let mut kernel = Kernel::open()?;
        let device_events = kernel.subscribe_devices(bytes)?;
        let mut mirror = Self {
            route_events,
            device_events,
            kernel,
            state: State::default(),
            backoff: ResyncBackoff::default(),
            carriers: None,
            on_stop: None,
            prefixes: 0,
            all_seg6_enabled: Sysctl::open("/proc/sys/net/ipv6/conf/all/seg6_enabled")?,
            seg6_flowlabel: Sysctl::open("/proc/sys/net/ipv6/seg6_flowlabel")?,
        };
        mirror.state.node.multipath_hash_seed = multipath_hash_seed();
        mirror.poll_sysctls()?;
        mirror.state.stale.everything = true;
        // Resync until the node is current, or until the kernel changes faster than the mirror
        // reads.
        while !mirror.is_current() && mirror.backoff.next.is_none() {
            mirror.process()?;
        }
        Ok(mirror)
    }

    /// Returns the node as of the last [`Mirror::process`] and [`Mirror::poll_sysctls`].
    pub fn node(&self) -> &Node {
        &self.state.node
    }

    /// Returns the SIDs of routing daemons that the kernel removed because their link went down, each
    /// with that link. One that is added again is no longer among them.
    pub fn lost_sids(&self) -> &BTreeMap<RouteKey, IfIndex> {
        &self.state.lost_sids
    }

    /// Whether this kernel reports the XDP features of each device (Linux 6.3). Otherwise software
    /// devices, such as veth, count as devices that do not accept redirects.
    pub fn reports_xdp_features(&self) -> bool {
        self.device_events.is_some()
    }

    /// Sets [`Link::peer`](sidestep_model::node::Link::peer) of all links. Returns the links with
    /// another peer, in order.
    pub fn set_peers(&mut self, peers: BTreeMap<IfIndex, Mac>) -> Vec<IfIndex> {
        self.state.set_peers(peers)
    }

    /// Sets why frames must pass their bridge, by port or bridge. Returns true if a port changed.
    pub fn set_bridge_obstacles(&mut self, obstacles: Obstacles) -> bool {
        self.state.bridges.set_obstacles(obstacles);
        self.state.rebuild_bridge_ports()
    }

    /// Returns the shortest time after which a bridge forgets a station that sends nothing. None
    /// without bridges.
    pub fn ageing(&self) -> Option<Duration> {
        self.state.bridges.ageing()
    }

    /// Renews a station, as if it had sent a frame through its bridge. Does nothing if the kernel does
    /// not forget it, or has forgotten it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn use_station(&mut self, key: (IfIndex, Mac)) -> Result<(), MirrorError> {
        let port = self.state.node.stations.get(&key);
        match port.filter(|_| self.state.bridges.ages(&key)) {
            Some(port) => self.kernel.use_station(*port, key.1),
            None => Ok(()),
        }
    }

    /// Whether the neighbor is usable but has not been confirmed for a while. The kernel probes it
    /// when it has a packet for it, or after [`Mirror::use_neighbor`]. Returns false for a neighbor
    /// with another owner.
    pub fn is_stale(&self, dev: IfIndex, address: IpAddr) -> bool {
        self.state.stale_neighbors.contains(&(dev, address))
    }

    /// Requests the kernel to resolve a neighbor or to check its reachability, as if the kernel had
    /// a packet for it. The kernel notifies of the result. Returns false without a request for an
    /// entry that is permanent, managed, or learned by a routing daemon.
    ///
    /// # Errors
    /// If the kernel refuses: the link no longer exists, or the neighbor table is full.
    pub fn use_neighbor(&mut self, dev: IfIndex, address: IpAddr) -> Result<bool, MirrorError> {
        self.kernel.use_neighbor((dev, address))
    }

    /// Returns the sockets to poll for reading. When one is readable, call [`Mirror::process`].
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = vec![self.route_events.as_fd()];
        fds.extend(self.device_events.as_ref().map(AsFd::as_fd));
        fds.extend(self.carriers.as_ref().map(AsFd::as_fd));
        fds
    }

    /// Applies pending notifications, and resyncs at most once. If [`Mirror::due`] then returns a
    /// time, call this again by then. Does not wait for notifications, but waits for the replies to
    /// its requests.
    ///
    /// # Errors
    /// If a socket fails or the kernel refuses a request. The node keeps its old content, and the
    /// next call tries again.
    pub fn process(&mut self) -> Result<Changes, MirrorError> {
        self.process_with(&mut |_, _| false)
    }

    /// Like [`Mirror::process`]. Calls `urgent` for a change of many routes as soon as the mirror
    /// has read its notification, before it changes these routes.
    ///
    /// # Errors
    /// As for [`Mirror::process`].
    pub fn process_with(&mut self, urgent: &mut OnUrgent<'_>) -> Result<Changes, MirrorError> {
        self.report_stopped(urgent);
        let resynced = self.drain(urgent)? && self.resync(urgent)?;
        Ok(Changes {
            resynced,
            ..self.state.take_changes()
        })
    }

    /// Sets a function that a thread calls with each link that stops running. With few routes, the
    /// caller itself learns of it early enough, and there is no thread.
    pub fn on_stop(&mut self, on_stop: Arc<OnStop>) {
        if let Some(carriers) = &self.carriers {
            carriers.on_stop(Some(Arc::clone(&on_stop)));
        }
        self.on_stop = Some(on_stop);
    }

    /// Sets the number of prefixes that the caller has made of the routes.
    pub fn set_prefixes(&mut self, prefixes: usize) {
        self.prefixes = prefixes;
    }

    /// Watches the links with neighbors. With fewer routes, the kernel notifies of a lost carrier early
    /// enough, and the caller is not busy for long.
    fn watch_carriers(&mut self) {
        let routes = self.state.node.routes.len().max(self.prefixes);
        let is_late = routes >= LATE_ROUTES;
        if is_late && self.carriers.is_none() {
            // Without the thread, the notification has to do.
            self.carriers = Carriers::start().ok();
            if let Some(carriers) = &self.carriers {
                carriers.on_stop(self.on_stop.clone());
            }
        }
        if let Some(carriers) = &self.carriers {
            let links = is_late.then(|| self.state.links_with_neighbors());
            carriers.watch(links.unwrap_or_default());
        }
    }

    /// Reports links that have stopped running, before the kernel notifies of it. If no notification
    /// confirms this in time, everything about the link is read again.
    fn report_stopped(&mut self, urgent: &mut OnUrgent<'_>) {
        for link in self.carriers.iter().flat_map(Carriers::stopped) {
            self.state.stop_running(link, Instant::now() + CARRIER_TIME);
        }
        self.state.report(urgent);
    }

    /// Whether a link has stopped running and its notification has not come yet.
    pub fn awaits_links(&self) -> bool {
        !self.state.awaited.is_empty()
    }

    /// Returns when to call [`Mirror::process`] although no socket of [`Mirror::fds`] is readable:
    /// some state is stale, or the lifetime of a route ends. While the kernel changes as fast as the
    /// mirror reads, this time is later after each call, so that the caller has time for other work.
    pub fn due(&self) -> Option<Instant> {
        let resync = (!self.is_current()).then(|| self.backoff.next.unwrap_or_else(Instant::now));
        let awaited = self.state.awaited.values().min().copied();
        let others = self.state.lifetimes.next().into_iter().chain(awaited);
        resync.into_iter().chain(others).min()
    }

    /// Whether no part of the node is stale.
    pub fn is_current(&self) -> bool {
        self.state.stale.is_empty()
    }

    /// Resyncs stale state if the backoff time has passed. Returns true if nothing is stale then.
    fn resync(&mut self, urgent: &mut OnUrgent<'_>) -> Result<bool, MirrorError> {
        self.state.check_dump();
        self.state.stop_waiting(Instant::now());
        let lifetimes = self.state.lifetimes.take_due(Instant::now());
        self.state.stale.lifetimes.extend(lifetimes);
        if self.state.stale.is_empty() {
            self.backoff.reset();
            return Ok(false);
        }
        let began = Instant::now();
        if self.backoff.next.is_some_and(|next| began < next) {
            return Ok(false);
        }
        let read = self.read_stale(urgent);
        self.backoff.record(began);
        read
    }

    fn read_stale(&mut self, urgent: &mut OnUrgent<'_>) -> Result<bool, MirrorError> {
        self.kernel.settle()?;
        // Earlier notifications are older than the following dump; later ones are newer.
        if !self.drain(urgent)? {
            return Ok(false);
        }
        let stale = self.state.stale.clone();
        if stale.everything {
            let snapshot = Snapshot::read(&mut self.kernel)?;
            self.state.replace(snapshot);
        } else {
            self.state.refresh_objects(&stale, &mut self.kernel)?;
            self.state.report(urgent);
            self.state.refresh(&stale, &mut self.kernel)?;
        }
        if self.drain(urgent)? {
            self.state.check_dump();
        }
        Ok(stale.everything)
    }

    /// Reads the settings that the kernel does not notify about: `seg6_enabled`,
    /// `seg6_require_hmac`, `hop_limit`, `disable_ipv6` of every link, `seg6_flowlabel`, the tunnel
    /// source, HMAC keys, address labels, and the XDP features of each device. Returns true if one changed. Costs a
    /// dump of the links: measured 30 µs, and 5 µs more for each link.
    pub fn poll_sysctls(&mut self) -> Result<bool, MirrorError> {
        self.watch_carriers();
        let settings = self.kernel.settings()?;
        let features = self.kernel.xdp_features()?;
        let changed = self.state.node_settings(
            self.kernel.tunsrc()?,
            self.seg6_flowlabel.read()?,
            self.all_seg6_enabled.read()?,
            self.kernel.hmac_keys()?,
            self.kernel.address_labels()?,
        );
        let links = self.state.link_settings(&settings, features.as_deref());
        Ok(changed | links)
    }

    /// Reads all pending notifications. Returns false if there may be more.
    fn drain(&mut self, urgent: &mut OnUrgent<'_>) -> Result<bool, MirrorError> {
        let mut budget = DATAGRAMS;
        loop {
            match self.route_events.receive()? {
                Received::Datagram(datagram) => {
                    for message in messages(datagram) {
                        self.state.apply(&message);
                    }
                    self.state.report(urgent);
                }
                // The kernel reports one error and drops notifications until the queue is empty.
                // Empty the queue first, and then read everything again.
                Received::Lost => self.state.stale.everything = true,
                Received::Empty => break,
            }
            budget -= 1;
            if budget == 0 {
                return Ok(false);
            }
        }
        while let Some(events) = &mut self.device_events {
            match events.receive()? {
                Received::Datagram(datagram) => {
                    for event in messages(datagram).filter_map(|it| decode_event(&it)) {
                        self.state.apply_device(event);
                    }
                }
                Received::Lost => self.state.stale.everything = true,
                Received::Empty => break,
            }
        }
        Ok(true)
    }
}
