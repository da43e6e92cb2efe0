//! The system of a simulated node: clocks, services that answer or not, and no host.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::time::ClockId;
use sidestep_mirror::bridge::Obstacles;
use sidestep_mirror::egress::Egress;
use sidestep_mirror::survey::{Device, Survey};
use sidestep_mirror::veth::Veths;
use sidestep_model::ether::Ethers;
use sidestep_model::node::{IfIndex, Link, Node};
use sidestep_model::service::Service;

use super::paths::SimulatedPathProber;
use super::{MemoryMirror, MemoryPath};
use crate::daemon::Mode;
use crate::daemon::liveness::{Failure, Identifier, Prober};
use crate::daemon::system::{FrameSender, Messenger, System};
use crate::doctor::facts::{Host, Port};
use crate::icmp::Message;

/// Time and services of a simulation, shared by its parts.
pub(crate) struct World {
    begun: Instant,
    passed: Cell<Duration>,
    /// Time of day minus virtual time.
    pub day: Cell<Duration>,
    /// Services that answer, each with the time that its answer takes.
    pub answering: RefCell<BTreeMap<IpAddr, Duration>>,
    /// No prober can be opened.
    pub no_sockets: Cell<bool>,
    pub probes: Cell<u64>,
    /// ICMP messages that were sent.
    pub messages: RefCell<Vec<Message>>,
    /// Frames that were sent, each with its interface.
    pub frames: RefCell<Vec<(IfIndex, Vec<u8>)>>,
    /// ICMPv6 errors for this node, from their type on.
    pub heard: RefCell<VecDeque<Vec<u8>>>,
    /// No frame can be sent.
    pub no_frames: Cell<bool>,
    /// Discriminators of sessions whose probes get no answer.
    pub dead: RefCell<BTreeSet<u32>>,
    /// Times at which sockets become readable.
    readable: RefCell<BTreeSet<Instant>>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            passed: Cell::default(),
            day: Cell::new(Duration::from_secs(1_700_000_000)),
            answering: RefCell::default(),
            no_sockets: Cell::default(),
            probes: Cell::default(),
            messages: RefCell::default(),
            frames: RefCell::default(),
            heard: RefCell::default(),
            no_frames: Cell::default(),
            dead: RefCell::default(),
            readable: RefCell::default(),
        }
    }
}

impl World {
    pub fn now(&self) -> Instant {
        self.begun + self.passed()
    }

    /// Time since the beginning.
    pub fn passed(&self) -> Duration {
        self.passed.get()
    }

    pub fn pass(&self, duration: Duration) {
        self.passed.set(self.passed() + duration);
    }

    /// Time at which a socket becomes readable.
    pub fn readable(&self) -> Option<Instant> {
        let mut readable = self.readable.borrow_mut();
        readable.retain(|at| *at > self.now());
        readable.first().copied()
    }
}

/// The simulated system.
pub(crate) struct Simulated(pub Rc<World>);

/// Probes a service of the simulation.
pub(crate) struct SimulatedProber {
    world: Rc<World>,
    address: IpAddr,
    /// Times at which answers arrive.
    answers: Vec<Instant>,
}

impl Prober for SimulatedProber {
    fn is_current(&self, service: &Service, _: &Node) -> bool {
        service.address == Some(self.address)
    }

    fn probe(&mut self, _: &Service, _: &Node) -> Result<(), Failure> {
        self.world.probes.set(self.world.probes.get() + 1);
        let delay = self.world.answering.borrow().get(&self.address).copied();
        let arrives = delay.map(|delay| self.world.now() + delay);
        self.answers.extend(arrives);
        self.world.readable.borrow_mut().extend(arrives);
        Ok(())
    }

    fn has_reply(&mut self) -> bool {
        let now = self.world.now();
        let before = self.answers.len();
        self.answers.retain(|arrives| *arrives > now);
        self.answers.len() < before
    }
}

/// Sends into the simulation.
pub(crate) struct SimulatedSocket(Rc<World>);

impl SimulatedSocket {
    fn open(world: &Rc<World>) -> io::Result<Self> {
        if world.no_sockets.get() {
            return Err(Errno::EMFILE.into());
        }
        Ok(Self(world.clone()))
    }
}

impl Messenger for SimulatedSocket {
    fn send(&self, message: &Message, _: Option<IfIndex>) -> io::Result<()> {
        self.0.messages.borrow_mut().push(message.clone());
        Ok(())
    }

    fn hear(&self) -> Option<Vec<u8>> {
        self.0.heard.borrow_mut().pop_front()
    }
}

impl FrameSender for SimulatedSocket {
    fn send(&self, egress: IfIndex, frame: &[u8]) -> io::Result<()> {
        if self.0.no_frames.get() {
            return Err(Errno::ENOBUFS.into());
        }
        self.0.frames.borrow_mut().push((egress, frame.to_vec()));
        Ok(())
    }
}

impl System for Simulated {
    type Mirror = MemoryMirror;
    type Path = MemoryPath;
    type Prober = SimulatedProber;
    type PathProber = SimulatedPathProber;
    type Messenger = SimulatedSocket;
    type FrameSender = SimulatedSocket;

    fn nanoseconds(&self, clock: ClockId) -> u64 {
        let passed = self.0.passed.get();
        let time = match clock {
            ClockId::CLOCK_REALTIME => self.0.day.get() + passed,
            ClockId::CLOCK_MONOTONIC => passed,
            // Work takes no time.
            _ => Duration::ZERO,
        };
        time.as_nanos() as u64
    }

    fn prober(
        &self,
        service: &Service,
        _: &Node,
        _: Identifier,
    ) -> Result<SimulatedProber, Failure> {
        if self.0.no_sockets.get() {
            return Err(Failure::NoSocket(Errno::EMFILE.into()));
        }
        Ok(SimulatedProber {
            world: self.0.clone(),
            address: service.address.expect("a service with an address"),
            answers: Vec::new(),
        })
    }

    fn path_prober(&self, path: &MemoryPath) -> Result<SimulatedPathProber, String> {
        if self.0.no_sockets.get() {
            return Err("no socket".into());
        }
        Ok(SimulatedPathProber::new(&self.0, path))
    }

    fn guard_links(&self, _: &mut MemoryMirror, _: &MemoryPath) {}

    fn messenger(&self) -> io::Result<SimulatedSocket> {
        SimulatedSocket::open(&self.0)
    }

    fn frame_sender(&self) -> io::Result<SimulatedSocket> {
        SimulatedSocket::open(&self.0)
    }

    fn egresses(&self, _: &[IfIndex]) -> BTreeMap<IfIndex, Egress> {
        BTreeMap::new()
    }

    fn has_tcx_egress(&self, _: IfIndex) -> bool {
        false
    }

    fn bridge_obstacles(&self, _: &Node) -> Obstacles {
        Obstacles::new()
    }

    fn survey(&self, node: &Node, _: &[Port]) -> Survey {
        let device = |link: &Link| Device {
            up: link.up,
            carrier: link.up,
            ..Device::default()
        };
        let links = node.links.values();
        Survey {
            devices: links.map(|link| (link.ifindex, device(link))).collect(),
            ..Survey::default()
        }
    }

    fn host(&self, pin_root: &Path, private: Option<u32>, lacks: Vec<&'static str>) -> Host {
        Host {
            pin_root: pin_root.to_owned(),
            on_bpffs: true,
            private,
            lacks,
            is_alive: true,
            ..Host::default()
        }
    }

    fn is_replaced(&self) -> bool {
        false
    }

    fn keep_start(&self, _: &str) {}

    fn veths(&self) -> Option<Veths> {
        None
    }

    fn create_ethers(
        &self,
        _: &mut MemoryMirror,
        _: Mode,
        _: &[String],
        wanted: &Ethers,
    ) -> Result<Vec<IfIndex>, String> {
        match wanted.first_key_value() {
            None => Ok(Vec::new()),
            Some((name, _)) => Err(format!("ether device {name}: no devices in a simulation")),
        }
    }

    fn remove_ethers(&self, _: Vec<IfIndex>) {}

    fn remove_other_ethers(&self, _: &Node, _: &Ethers) {}
}
