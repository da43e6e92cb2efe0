//! Parts of the daemon: what changes together, and what one task needs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sidestep_model::config::Overlay;

use super::changes::{SavedChanges, TakenOver};
use super::config::ConfigState;
use super::ether::EtherDevices;
use super::fpm::Fpm;
use super::fragment::Fragmenter;
use super::icmp::Icmp;
use super::liveness::Liveness;
use super::lock::Lock;
use super::monitor::Monitor;
use super::neighbors::Neighbors;
use super::oam::Oam;
use super::own::Devices;
use super::paths::Paths;
use super::peers::Peers;
use super::replies::Replies;
use super::{Options, PacketFormatter, Port, trace};
use crate::api::Server;
use crate::report;

/// The configuration beyond that of the kernel, and how it is kept.
pub(super) struct Configured {
    pub own: Overlay,
    pub devices: Devices,
    pub saved: SavedChanges,
    pub taken_over: Option<TakenOver>,
    pub state: ConfigState,
    pub options: Options,
    /// The command that starts this instance again, as of the last checks.
    pub start_command: String,
}

/// The interfaces of the packet path.
#[derive(Default)]
pub(super) struct Ports {
    pub attached: BTreeMap<String, Port>,
    /// Why interfaces are not attached.
    pub refused: BTreeMap<String, String>,
    pub peers: Peers,
    /// See [`sidestep_datapath::kernel::private_bpffs`].
    pub private_bpffs: Option<u32>,
}

/// Watchers of neighbors, services, paths and ether devices, which cause no notification.
pub(super) struct Watchers<P, Q> {
    pub neighbors: Neighbors,
    pub liveness: Liveness<P>,
    pub paths: Paths<Q>,
    pub ethers: EtherDevices,
}

impl<P, Q> Default for Watchers<P, Q> {
    fn default() -> Self {
        Self {
            neighbors: Neighbors::default(),
            liveness: Liveness::default(),
            paths: Paths::default(),
            ethers: EtherDevices::default(),
        }
    }
}

/// Senders of packets that the packet path reports.
pub(super) struct Senders<M, F> {
    pub icmp: Icmp<M, F>,
    pub oam: Oam,
    pub fragmenter: Fragmenter<F>,
}

/// Programs that ask, listen and announce routes.
pub(super) struct Clients {
    pub formatter: PacketFormatter,
    pub replies: Replies,
    pub monitor: Monitor,
    pub preparing: Option<trace::Preparing>,
    pub tracing: Option<trace::Tracing>,
    /// Until the program takes it.
    pub metrics: Option<TcpListener>,
    pub fpm: Option<Fpm>,
}

impl Clients {
    pub fn new(formatter: PacketFormatter, metrics: Option<TcpListener>, fpm: Option<Fpm>) -> Self {
        Self {
            formatter,
            replies: Replies::default(),
            monitor: Monitor::default(),
            preparing: None,
            tracing: None,
            metrics,
            fpm,
        }
    }
}

/// Errors of the instance.
#[derive(Default)]
pub(super) struct Health {
    /// Why the last change could not be applied; the previous tables stay in effect.
    pub problem: Option<String>,
    /// Result of the last checks.
    pub examined: BTreeSet<report::Problem>,
    /// Number of resyncs.
    pub resyncs: u64,
}

/// The process, its files and its socket.
pub(super) struct Process {
    // Drop removes the socket before its directory.
    pub server: Server,
    pub lock: Lock,
    /// Readable after a signal to exit.
    pub signalled: UnixStream,
    /// Set by SIGHUP.
    pub hung_up: Arc<AtomicBool>,
}
