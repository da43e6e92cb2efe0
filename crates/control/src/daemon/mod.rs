//! The daemon: follows the kernel's configuration, keeps the tables and the ports in step, answers the control socket.
//!
//! One thread, one event loop; packets never wait for it.

mod answers;
mod events;
mod icmp;
mod lines;
mod liveness;
mod lock;
mod neighbors;
mod oam;
mod orphans;
mod own;
mod policies;
mod ports;
mod replies;
mod reports;
mod tables;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Gid;
use serde_json::Value;
use sidestep_datapath::abi::SIDESTEP_PORTS;
use sidestep_datapath::kernel::{self, Kernel, KernelError, Origin, ReportRate, Target};
use sidestep_datapath::{Image, Limits, Native};
pub use sidestep_mirror::RECEIVE_BUFFER;
use sidestep_mirror::{Changes, Mirror, MirrorError};
use sidestep_model::ConfigError;
use sidestep_model::config::{File, Overlay};
use sidestep_model::grammar::Names;
use sidestep_model::node::{IfIndex, Link, Node};
use thiserror::Error;

pub use self::ports::Mode;
use crate::api::{Server, run_directory};
use crate::compile::{CompileError, Compiled, Compiler, Index};
use crate::report;
use crate::trace::{Filter, Told};
use icmp::Icmp;
use liveness::Liveness;
use lock::Lock;
use neighbors::Neighbors;
use oam::Oam;
use own::{Devices, Over};
use replies::Replies;

/// What `sidestep run` was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interface names.
    pub ports: Vec<String>,
    /// Target of the ports.
    pub mode: Mode,
    /// Routes, rules and neighbors of Sidestep's own.
    pub config: File,
    /// Sizes of the tables.
    pub limits: Limits,
    /// Where programs and tables are pinned.
    pub pin_root: PathBuf,
    /// Receive buffer for the kernel's notifications, in bytes.
    pub receive_buffer: usize,
    /// How many senders are told of errors, for each port.
    pub icmp_rate: ReportRate,
    /// Whose members may use the socket, besides root.
    pub group: Option<Gid>,
}

impl Options {
    /// What can be said before anything of the node is read: that there are ports, and the privileges.
    pub fn check(&self) -> Result<(), DaemonError> {
        if self.ports.is_empty() {
            return Err(DaemonError::NoPorts);
        }
        Ok(kernel::check_privileges()?)
    }
}

/// How a packet's way through live tables is told; the CLI brings its own printer.
#[derive(Clone, Copy, Debug)]
pub struct PacketWords {
    /// Of a frame that somebody has. Arguments: node, what the tables mean, the tables, ingress interface, frame.
    pub explain: fn(&Node, &Index, Native, u32, &[u8]) -> Value,
    /// Of outer headers without what is each packet's own: every header, and the same in words.
    pub headers: fn(&[u8]) -> (Value, String),
    /// Of a packet that the packet path has told; none if the filter does not fit it after all.
    pub tell: fn(&Node, &Compiled, &Filter, Told<'_>) -> Option<Value>,
}

/// Why the daemon cannot start, or had to end.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Another instance runs in this network namespace.
    #[error("sidestep runs in this network namespace already (pid {0}); `sidestep stop` ends it")]
    Running(i32),
    /// A file or socket of its own cannot be made.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No such interface.
    #[error("port {name}: there is no such interface; there are {there}")]
    NoInterface {
        /// As given.
        name: String,
        /// Names of the interfaces that are there.
        there: String,
    },
    /// The interface can be no port.
    #[error("port {name}: {why}")]
    Port {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// No port was named.
    #[error("no port: name at least one interface")]
    NoPorts,
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The kernel's side of the packet path.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The kernel's configuration.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The event loop's own system calls.
    #[error("event loop: {0}")]
    System(#[from] std::io::Error),
}

/// A port that runs.
#[derive(Clone, Debug)]
struct Port {
    ifindex: IfIndex,
    target: Target,
    why: String,
}

/// A running instance.
pub struct Daemon {
    options: Options,
    words: PacketWords,
    mirror: Mirror,
    own: Overlay,
    devices: Devices,
    over: Over,
    compiler: Compiler,
    compiled: Compiled,
    kernel: Kernel,
    neighbors: Neighbors,
    liveness: Liveness,
    icmp: Icmp,
    oam: Oam,
    attached: BTreeMap<String, Port>,
    refused: BTreeMap<String, String>,
    /// Why the last change could not be applied; what ran before runs on.
    problem: Option<String>,
    origin: Origin,
    started: Instant,
    /// A grace period is under way, behind which indices come free.
    releasing: bool,
    /// Indices have come free since all was compiled, so that what did not fit may fit now.
    has_room: bool,
    /// That is not tried before.
    refit: Instant,
    /// How often the tables were compiled.
    compilations: u64,
    /// How often notifications were lost.
    resyncs: u64,
    preparing: Option<trace::Preparing>,
    tracing: Option<trace::Tracing>,
    replies: Replies,
    server: Server,
    /// Readable when the process has been told to end.
    signalled: UnixStream,
    lock: Lock,
}

/// What the foreground shows now and then.
#[derive(Clone, Debug)]
pub struct Status {
    /// Counters of the ports.
    pub ports: Vec<report::PortCounters>,
    /// Of each requested port: its target, or why it has none.
    pub targets: report::Ports,
    /// Prefixes in all views.
    pub prefixes: usize,
    /// What is not in effect, and why.
    pub problems: BTreeSet<String>,
}

impl Daemon {
    /// Loads, compiles, attaches. On an error everything is as it was before, save what a dead instance had left.
    pub fn start(options: Options, words: PacketWords) -> Result<Self, DaemonError> {
        options.check()?;
        // Secrets of HMAC keys are in this process: nothing of its memory is written down when it dies.
        set_dumpable(false).map_err(|errno| DaemonError::System(errno.into()))?;
        raise_descriptors();
        let directory = run_directory();
        let lock = Lock::take(&directory)?;
        if let Some(run_root) = directory.parent() {
            orphans::remove(&options.pin_root, run_root);
        }
        // Before anything is attached: who presses Ctrl-C from here on finds nothing left of it.
        let signalled = events::signals()?;
        let mirror = Mirror::open_with_buffer(options.receive_buffer)?;
        // All names are checked before anything is made.
        for name in &options.ports {
            let link =
                mirror
                    .node()
                    .link_by_name(name)
                    .ok_or_else(|| DaemonError::NoInterface {
                        name: name.clone(),
                        there: mirror.node().interfaces().join(", "),
                    })?;
            ports::choose(mirror.node(), link, options.mode).map_err(|why| DaemonError::Port {
                name: name.clone(),
                why,
            })?;
        }
        let mut own = options.config.overlay(mirror.node())?;
        let mut devices = Devices::default();
        devices.follow(&mut own, mirror.node());
        let kernel = Kernel::load(options.limits, &options.pin_root)?;
        kernel.limit_reports(options.icmp_rate);
        let origin = kernel.origin();
        let before = if origin == Origin::Adopted {
            kernel.image()
        } else {
            Image::default()
        };
        let path = directory.join("control.sock");
        let server = Server::listen(&path, options.group)
            .map_err(|source| DaemonError::File { path, source })?;
        let mut daemon = Self {
            compiler: Compiler::beside(options.limits, &before),
            compiled: Compiled {
                image: before,
                ..Compiled::default()
            },
            words,
            over: Over::of(mirror.node(), &own, &devices, BTreeSet::new()),
            mirror,
            own,
            devices,
            kernel,
            neighbors: Neighbors::default(),
            liveness: Liveness::default(),
            icmp: Icmp::new(options.icmp_rate, Instant::now()),
            oam: Oam::default(),
            attached: BTreeMap::new(),
            refused: BTreeMap::new(),
            problem: None,
            origin,
            started: Instant::now(),
            releasing: false,
            has_room: false,
            refit: Instant::now(),
            compilations: 0,
            resyncs: 0,
            preparing: None,
            tracing: None,
            replies: Replies::default(),
            server,
            signalled,
            lock,
            options,
        };
        daemon.limit_copies();
        if let Err(error) = daemon.bring_up() {
            // Nothing half applied: an instance that could not start leaves nothing attached.
            let _ = daemon.kernel.detach_all();
            return Err(error);
        }
        Ok(daemon)
    }

    fn bring_up(&mut self) -> Result<(), DaemonError> {
        // Tables first: a program that is switched to new tables finds them filled.
        self.bring_patiently(None)?;
        let full = &self.compiled.index.full;
        if let Some(table) = self.own.routes.keys().find_map(|key| full.get(key)) {
            return Err(self.compiler.full(table).into());
        }
        self.attach_ports();
        if let Some((name, why)) = self.refused.pop_first() {
            return Err(DaemonError::Port { name, why });
        }
        // What only starting needed: to look at all processes' namespaces, to give the socket to a group, to name the
        // programs of others, to mount a BPF file system.
        Ok(kernel::drop_privileges()?)
    }

    /// What the kernel has, with our own on top.
    fn node(&self) -> &Node {
        self.over.node(self.mirror.node())
    }

    fn lay_over(&mut self) {
        let down = self.liveness.down();
        self.over = Over::of(self.mirror.node(), &self.own, &self.devices, down);
    }

    /// Remembers what the interfaces of our own are called, and finds those that have been made again.
    fn find_devices(&mut self) {
        let moved = self.devices.follow(&mut self.own, self.mirror.node());
        self.liveness.follow_devices(&moved);
    }

    /// The ports with a place in the tables: of two that share a slot, the one that has it already, else the first.
    fn slots(&self) -> BTreeSet<IfIndex> {
        let mut slots: BTreeMap<u32, IfIndex> = BTreeMap::new();
        let has = |ifindex: &IfIndex| self.compiled.image.ports.contains_key(&ifindex.0);
        let (there, new): (Vec<_>, Vec<_>) = self
            .wanted()
            .filter(|(_, _, choice)| choice.is_ok())
            .map(|(_, link, _)| link.ifindex)
            .partition(has);
        for ifindex in there.into_iter().chain(new) {
            slots.entry(ifindex.0 % SIDESTEP_PORTS).or_insert(ifindex);
        }
        slots.into_values().collect()
    }

    /// The requested ports that are there, with what can be done with them.
    fn wanted(&self) -> impl Iterator<Item = (&String, &Link, Result<(Target, String), String>)> {
        let node = self.mirror.node();
        self.options.ports.iter().filter_map(move |name| {
            let link = node.link_by_name(name)?;
            Some((name, link, ports::choose(node, link, self.options.mode)))
        })
    }

    /// Attaches ports that are there and are not attached, and detaches what is no port any more: its interface has gone,
    /// has another name, or cannot be a port now.
    fn attach_ports(&mut self) {
        let right: BTreeSet<(String, IfIndex, Target)> = self
            .wanted()
            .filter_map(|(name, link, choice)| Some((name.clone(), link.ifindex, choice.ok()?.0)))
            .collect();
        self.attached
            .retain(|name, port| right.contains(&(name.clone(), port.ifindex, port.target)));
        let there = &self.mirror.node().links;
        self.refused
            .retain(|name, _| there.values().any(|link| link.name == *name));
        let missing: Vec<_> = self
            .wanted()
            .filter(|(name, ..)| !self.attached.contains_key(*name))
            .map(|(name, link, choice)| (name.clone(), link.ifindex, choice))
            .collect();
        for (name, ifindex, choice) in missing {
            let attached = choice.and_then(|(target, why)| {
                self.has_slot(ifindex)?;
                self.kernel
                    .attach(ifindex.0, target)
                    .map_err(|error| error.to_string())?;
                let (tcx, xdp_features) =
                    (self.kernel.features().tcx, self.mirror.tells_xdp_features());
                Ok(Port {
                    ifindex,
                    target,
                    why: ports::on_this_kernel(target, why, tcx, xdp_features),
                })
            });
            match attached {
                Ok(port) => {
                    self.refused.remove(&name);
                    self.attached.insert(name, port);
                }
                Err(why) => {
                    self.refused.insert(name, why);
                }
            }
        }
        let ports: BTreeSet<u32> = self.attached.values().map(|port| port.ifindex.0).collect();
        for (ifindex, _) in self.kernel.attached() {
            if !ports.contains(&ifindex) {
                // Where the interface is gone or in another namespace, this removes program and pin, too.
                let _ = self.kernel.detach(ifindex);
            }
        }
    }

    fn has_slot(&self, ifindex: IfIndex) -> Result<(), String> {
        let ports = &self.compiled.image.ports;
        let slot = |other: &&u32| *other % SIDESTEP_PORTS == ifindex.0 % SIDESTEP_PORTS;
        match ports.keys().find(slot) {
            Some(other) if *other != ifindex.0 => Err(format!(
                "its interface index {} and that of another port, {other}, are equal modulo {SIDESTEP_PORTS}; recreate \
                 one of the interfaces",
                ifindex.0
            )),
            _ => Ok(()),
        }
    }

    /// After a change of the kernel's configuration: of these, or also of settings that nobody notifies.
    fn follow(&mut self, changes: &Changes, settings: bool) {
        let is_small = !settings && !changes.other && !changes.is_empty();
        if is_small && self.problem.is_none() && self.step(changes) {
            return;
        }
        if changes.other || changes.resynced {
            self.find_devices();
        }
        self.problem = self.bring(None).err().map(|error| error.to_string());
        if changes.other {
            self.attach_again();
        }
        self.attach_ports();
    }

    /// An interface may have been deleted and made again, with the index it had, before anybody looked: then the
    /// program is not on it any more. Where it is, attaching it again changes nothing.
    fn attach_again(&mut self) {
        let links = &self.mirror.node().links;
        let kernel = &mut self.kernel;
        let refused = &mut self.refused;
        self.attached.retain(|name, port| {
            if !links.contains_key(&port.ifindex) {
                return true;
            }
            let attached = kernel.attach(port.ifindex.0, port.target);
            if let Err(error) = &attached {
                refused.insert(name.clone(), error.to_string());
            }
            attached.is_ok()
        });
    }

    /// What the foreground shows.
    pub fn status(&self) -> Status {
        Status {
            ports: self.port_counters().unwrap_or_default(),
            targets: self.ports_report(),
            prefixes: self.compiled.image.fib.len(),
            problems: self.problems(),
        }
    }

    /// What is not in effect, and why, in sentences.
    pub fn problems(&self) -> BTreeSet<String> {
        let failed = self
            .problem
            .iter()
            .map(|why| format!("the last change could not be applied: {why}"));
        let tables = self.compiled.index.full_tables().into_iter();
        let full = tables.map(|table| {
            let full = self.compiler.full(table);
            format!("{full}; the kernel forwards what does not fit")
        });
        let ports = self.ports_report().into_iter();
        let ports = ports
            .filter(|port| port.target == "none")
            .map(|port| format!("port {} is not attached: {}", port.name, port.why));
        let icmp = self.icmp.problem().map(str::to_owned);
        let services = self.liveness.problem();
        failed
            .chain(full)
            .chain(ports)
            .chain(icmp)
            .chain(services)
            .collect()
    }

    /// How it began: afresh, or with what a dead instance had pinned.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// When it began.
    pub fn started(&self) -> Instant {
        self.started
    }

    fn attached_port(&self, name: &str) -> Result<&Port, String> {
        self.attached.get(name).ok_or_else(|| {
            let ports: Vec<_> = self.attached.keys().map(String::as_str).collect();
            format!("port {name}: not attached; there are {}", ports.join(", "))
        })
    }
}

/// Each service that is asked takes a descriptor, and the 1024 that a process usually begins with would be gone with as many
/// services. How many there may be at most is the administrator's to say: the hard limit. Where that is forbidden, what there is
/// has to do.
fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// What that clock shows, in nanoseconds. One that cannot be read shows 0.
fn nanoseconds(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}
