//! The surroundings of an instance: the kernel's configuration, a packet path, clocks and the host.
//! [`Linux`] is the real one. Tests of the daemon have one in memory, in virtual time.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use sidestep_datapath::Kernel;
use sidestep_datapath::kernel::{self, FILTER_PRIORITY};
use sidestep_mirror::bridge::{Obstacles, read_obstacles};
use sidestep_mirror::egress::{self, Egress};
use sidestep_mirror::fpm::{Counts, FpmError, Frame};
use sidestep_mirror::survey::Survey;
use sidestep_mirror::veth::Veths;
use sidestep_mirror::{Changes, Mirror, MirrorError, OnUrgent};
use sidestep_model::ether::Ethers;
use sidestep_model::node::{IfIndex, Mac, Node};
use sidestep_model::route::RouteKey;
use sidestep_model::service::Service;
use sidestep_model::settings::Mode;

use super::liveness::{Failure, Identifier, ProbeSocket, Prober};
use super::packet_path::PacketPath;
use super::paths::{PathProber, ThreadProber};
use super::{ether, nanoseconds};
use crate::doctor::facts::{self, Host, Port};
use crate::fragment::socket::FrameSocket;
use crate::icmp::Message;
use crate::icmp::socket::Sockets;

/// The surroundings of an instance.
pub(super) trait System {
    type Mirror: NodeMirror;
    type Path: PacketPath;
    type Prober: Prober;
    type PathProber: PathProber<Path = Self::Path>;
    type Messenger: Messenger;
    type FrameSender: FrameSender;

    /// Reads a clock in nanoseconds; 0 if it cannot be read.
    fn nanoseconds(&self, clock: ClockId) -> u64;
    /// Opens a prober of a service; `identifier` is unique.
    fn prober(
        &self,
        service: &Service,
        node: &Node,
        identifier: Identifier,
    ) -> Result<Self::Prober, Failure>;
    /// Begins to probe paths, without any.
    fn path_prober(&self, path: &Self::Path) -> Result<Self::PathProber, String>;
    /// Takes the next hops of a link out of order in the moment in which it stops, from now on.
    fn guard_links(&self, mirror: &mut Self::Mirror, path: &Self::Path);
    /// Opens the sockets for ICMP messages.
    fn messenger(&self) -> io::Result<Self::Messenger>;
    /// Opens the socket for frames.
    fn frame_sender(&self) -> io::Result<Self::FrameSender>;
    /// Surveys these links; a link that is no veth is not in the result.
    fn egresses(&self, links: &[IfIndex]) -> BTreeMap<IfIndex, Egress>;
    fn has_tcx_egress(&self, link: IfIndex) -> bool;
    /// Returns why frames must pass their bridge.
    fn bridge_obstacles(&self, node: &Node) -> Obstacles;
    /// As [`facts::survey`]; an empty survey if that fails.
    fn survey(&self, node: &Node, ports: &[Port]) -> Survey;
    /// As [`Host::read`].
    fn host(&self, pin_root: &Path, private: Option<u32>, lacks: Vec<&'static str>) -> Host;
    /// Whether the file of this program was replaced or removed.
    fn is_replaced(&self) -> bool;
    /// Keeps the command that starts the instance again, for `doctor` after a crash.
    fn keep_start(&self, command: &str);
    /// Opens the requests for ether devices; none if that fails.
    fn veths(&self) -> Option<Veths>;
    /// As [`ether::create`].
    fn create_ethers(
        &self,
        mirror: &mut Self::Mirror,
        mode: Mode,
        ports: &[String],
        wanted: &Ethers,
    ) -> Result<Vec<IfIndex>, String>;
    /// As [`ether::remove`].
    fn remove_ethers(&self, ports: Vec<IfIndex>);
    /// As [`ether::remove_orphans`].
    fn remove_other_ethers(&self, node: &Node, kept: &Ethers);
}

/// Sends ICMP messages, and receives errors for this node. [`Sockets`] describes the methods.
pub(super) trait Messenger {
    fn send(&self, message: &Message, vrf: Option<IfIndex>) -> io::Result<()>;
    fn hear(&self) -> Option<Vec<u8>>;
}

/// Sends frames out of interfaces, without blocking.
pub(super) trait FrameSender {
    fn send(&self, egress: IfIndex, frame: &[u8]) -> io::Result<()>;
}

/// A mirror of the kernel's configuration. [`Mirror`] describes the methods.
pub(super) trait NodeMirror {
    fn node(&self) -> &Node;
    fn process_with(&mut self, urgent: &mut OnUrgent<'_>) -> Result<Changes, MirrorError>;
    fn poll_sysctls(&mut self) -> Result<bool, MirrorError>;
    fn set_prefixes(&mut self, prefixes: usize);
    fn due(&self) -> Option<Instant>;
    fn is_current(&self) -> bool;
    fn awaits_links(&self) -> bool;
    fn lost_sids(&self) -> &BTreeMap<RouteKey, IfIndex>;
    fn reports_xdp_features(&self) -> bool;
    fn set_peers(&mut self, peers: BTreeMap<IfIndex, Mac>) -> Vec<IfIndex>;
    fn set_bridge_obstacles(&mut self, obstacles: Obstacles) -> bool;
    fn ageing(&self) -> Option<Duration>;
    fn use_station(&mut self, key: (IfIndex, Mac)) -> Result<(), MirrorError>;
    fn is_stale(&self, dev: IfIndex, address: IpAddr) -> bool;
    fn use_neighbor(&mut self, dev: IfIndex, address: IpAddr) -> Result<bool, MirrorError>;
    fn apply_fpm(&mut self, frame: Frame, urgent: &mut OnUrgent<'_>) -> Result<(), FpmError>;
    fn mark_fpm_stale(&mut self);
    fn sweep_fpm(&mut self);
    fn fpm_counts(&self) -> Counts;
}

/// The calling thread's network namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linux;

impl System for Linux {
    type Mirror = Mirror;
    type Path = Kernel;
    type Prober = ProbeSocket;
    type PathProber = ThreadProber;
    type Messenger = Sockets;
    type FrameSender = FrameSocket;

    fn nanoseconds(&self, clock: ClockId) -> u64 {
        nanoseconds(clock)
    }

    fn prober(
        &self,
        service: &Service,
        node: &Node,
        identifier: Identifier,
    ) -> Result<ProbeSocket, Failure> {
        ProbeSocket::open(service, node, identifier)
    }

    fn path_prober(&self, path: &Kernel) -> Result<ThreadProber, String> {
        ThreadProber::start(path)
    }

    fn guard_links(&self, mirror: &mut Mirror, path: &Kernel) {
        // Without memory for it, the next hops change with the tables.
        if let Ok(next_hops) = path.next_hops() {
            mirror.on_stop(Arc::new(move |link| next_hops.take_down(link.0)));
        }
    }

    fn messenger(&self) -> io::Result<Sockets> {
        Sockets::open()
    }

    fn frame_sender(&self) -> io::Result<FrameSocket> {
        FrameSocket::open()
    }

    fn egresses(&self, links: &[IfIndex]) -> BTreeMap<IfIndex, Egress> {
        egress::read(links).unwrap_or_default()
    }

    fn has_tcx_egress(&self, link: IfIndex) -> bool {
        kernel::has_tcx_egress(link.0)
    }

    fn bridge_obstacles(&self, node: &Node) -> Obstacles {
        read_obstacles(node, FILTER_PRIORITY)
    }

    fn survey(&self, node: &Node, ports: &[Port]) -> Survey {
        facts::survey(node, ports).unwrap_or_default()
    }

    fn host(&self, pin_root: &Path, private: Option<u32>, lacks: Vec<&'static str>) -> Host {
        Host::read(pin_root, private, None, lacks)
    }

    fn is_replaced(&self) -> bool {
        let target = fs::read_link("/proc/self/exe");
        target.is_ok_and(|target| target.to_string_lossy().ends_with(" (deleted)"))
    }

    fn keep_start(&self, command: &str) {
        let _ = fs::write(facts::start_file(), command);
    }

    fn veths(&self) -> Option<Veths> {
        Veths::open().ok()
    }

    fn create_ethers(
        &self,
        mirror: &mut Mirror,
        mode: Mode,
        ports: &[String],
        wanted: &Ethers,
    ) -> Result<Vec<IfIndex>, String> {
        ether::create(mirror, mode, ports, wanted)
    }

    fn remove_ethers(&self, ports: Vec<IfIndex>) {
        ether::remove(ports);
    }

    fn remove_other_ethers(&self, node: &Node, kept: &Ethers) {
        ether::remove_orphans(node, kept);
    }
}

impl Messenger for Sockets {
    fn send(&self, message: &Message, vrf: Option<IfIndex>) -> io::Result<()> {
        Sockets::send(self, message, vrf)
    }

    fn hear(&self) -> Option<Vec<u8>> {
        Sockets::hear(self)
    }
}

impl FrameSender for FrameSocket {
    fn send(&self, egress: IfIndex, frame: &[u8]) -> io::Result<()> {
        FrameSocket::send(self, egress, frame)
    }
}

impl NodeMirror for Mirror {
    fn node(&self) -> &Node {
        Mirror::node(self)
    }

    fn process_with(&mut self, urgent: &mut OnUrgent<'_>) -> Result<Changes, MirrorError> {
        Mirror::process_with(self, urgent)
    }

    fn poll_sysctls(&mut self) -> Result<bool, MirrorError> {
        Mirror::poll_sysctls(self)
    }

    fn set_prefixes(&mut self, prefixes: usize) {
        Mirror::set_prefixes(self, prefixes);
    }

    fn due(&self) -> Option<Instant> {
        Mirror::due(self)
    }

    fn is_current(&self) -> bool {
        Mirror::is_current(self)
    }

    fn awaits_links(&self) -> bool {
        Mirror::awaits_links(self)
    }

    fn lost_sids(&self) -> &BTreeMap<RouteKey, IfIndex> {
        Mirror::lost_sids(self)
    }

    fn reports_xdp_features(&self) -> bool {
        Mirror::reports_xdp_features(self)
    }

    fn set_peers(&mut self, peers: BTreeMap<IfIndex, Mac>) -> Vec<IfIndex> {
        Mirror::set_peers(self, peers)
    }

    fn set_bridge_obstacles(&mut self, obstacles: Obstacles) -> bool {
        Mirror::set_bridge_obstacles(self, obstacles)
    }

    fn ageing(&self) -> Option<Duration> {
        Mirror::ageing(self)
    }

    fn use_station(&mut self, key: (IfIndex, Mac)) -> Result<(), MirrorError> {
        Mirror::use_station(self, key)
    }

    fn is_stale(&self, dev: IfIndex, address: IpAddr) -> bool {
        Mirror::is_stale(self, dev, address)
    }

    fn use_neighbor(&mut self, dev: IfIndex, address: IpAddr) -> Result<bool, MirrorError> {
        Mirror::use_neighbor(self, dev, address)
    }

    fn apply_fpm(&mut self, frame: Frame, urgent: &mut OnUrgent<'_>) -> Result<(), FpmError> {
        Mirror::apply_fpm(self, frame, urgent)
    }

    fn mark_fpm_stale(&mut self) {
        Mirror::mark_fpm_stale(self);
    }

    fn sweep_fpm(&mut self) {
        Mirror::sweep_fpm(self);
    }

    fn fpm_counts(&self) -> Counts {
        Mirror::fpm_counts(self)
    }
}
