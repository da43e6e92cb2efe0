//! The daemon: mirrors the kernel's configuration, keeps tables and ports up to date, and serves
//! the control socket.
//!
//! It has one thread and one event loop; packets never wait for it.

mod answers;
mod bridges;
mod changes;
mod commands;
mod config;
mod ether;
mod events;
mod fpm;
mod fragment;
mod icmp;
mod left;
mod lines;
mod liveness;
mod lock;
mod metrics;
mod monitor;
mod names;
mod neighbors;
mod oam;
mod orphans;
mod own;
mod packet_path;
mod parts;
mod peers;
mod policies;
mod policy_batch;
mod ports;
mod problems;
mod replies;
mod reports;
mod route_get;
mod tables;
mod timers;
mod trace;
mod urgent;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Gid;
use serde_json::Value;
use sidestep_datapath::kernel::{self, Kernel, KernelError, Origin, Target};
use sidestep_datapath::{Limits, Native};
pub use sidestep_mirror::RECEIVE_BUFFER;
use sidestep_mirror::{Changes, Mirror, MirrorError};
use sidestep_model::ConfigError;
use sidestep_model::config::{File, Overlay};
use sidestep_model::node::{IfIndex, Node};
use thiserror::Error;

pub use self::changes::TakenOver;
pub use self::config::{Configuration, Phase, Program};
pub use self::events::End;
pub(crate) use self::fpm::is_exposed;
pub use self::left::{former_pin_root, left, remove_left};
pub(crate) use self::ports::choose;
use crate::api::{Server, run_directory};
use crate::compile::{CompileError, Compiled, Index};
use crate::report;
use crate::trace::{Filter, TracedPacket};
use changes::Initial;
use config::ConfigState;
pub(crate) use config::resolve;
use ether::Created;
use fpm::Fpm;
use fragment::Fragmenter;
use icmp::Icmp;
use lock::Lock;
pub(crate) use names::KnownNames;
use oam::Oam;
pub(crate) use own::{Devices, OverlaidNode};
use parts::{Clients, Configured, Health, Ports, Process, Senders, Watchers};
pub use sidestep_model::settings::Mode;
use tables::Tables;

/// Options of `sidestep run`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interface names.
    pub ports: Vec<String>,
    /// Target of the ports.
    pub mode: Mode,
    /// Routes, rules and neighbors that exist only in Sidestep.
    pub config: File,
    /// Path of the node file that has this configuration.
    pub config_path: Option<PathBuf>,
    /// Sizes of the tables.
    pub limits: Limits,
    /// Directory of the pins.
    pub pin_root: PathBuf,
    /// Receive buffer for netlink notifications, in bytes.
    pub receive_buffer: usize,
    /// Group whose members may use the socket, besides root.
    pub group: Option<Gid>,
    /// Version of the program.
    pub version: &'static str,
    /// Arguments of `run` without ports and `--mode`, for the commands that repair a problem.
    pub arguments: Vec<String>,
}

impl Options {
    /// Checks the privileges, which needs no state of the node.
    pub fn check(&self) -> Result<(), DaemonError> {
        Ok(kernel::check_privileges()?)
    }
}

/// Formats packets for clients; provided by the CLI.
#[derive(Clone, Copy, Debug)]
pub struct PacketFormatter {
    /// Explains a given frame. Arguments: node, index, tables, ingress interface, frame.
    pub explain: fn(&Node, &Index, Native, u32, &[u8]) -> Value,
    /// Formats outer headers without the fields that differ per packet: as JSON and as text.
    pub headers: fn(&[u8]) -> (Value, String),
    /// Formats a traced packet; none if the filter does not match after all.
    pub sample: fn(&Node, &Compiled, &Filter, TracedPacket<'_>) -> Option<Value>,
}

/// Why the daemon cannot start, or had to exit.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Another instance runs in this network namespace.
    #[error("sidestep runs in this network namespace already (pid {0}); `sidestep stop` ends it")]
    Running(i32),
    /// The HTTP endpoint cannot be opened.
    #[error("metrics at {address}: {source}")]
    Metrics {
        /// Address.
        address: SocketAddr,
        /// Cause.
        source: std::io::Error,
    },
    /// The listener for FPM cannot be opened.
    #[error("fpm at {address}: {source}")]
    Fpm {
        /// Address.
        address: SocketAddr,
        /// Cause.
        source: std::io::Error,
    },
    /// A file or socket of the daemon cannot be created.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The interface cannot be a port.
    #[error("port {name}: {why}")]
    Port {
        /// Interface name.
        name: String,
        /// Reason.
        why: String,
    },
    /// An instance died and left its pins below another root.
    #[error(
        "an instance that died has its pins in {path}: start with `--pin-root {path}`, or remove \
         them with `sidestep stop`", path = .0.display()
    )]
    OtherPinRoot(PathBuf),
    /// No port was named.
    #[error("no port: name at least one interface")]
    NoPorts,
    /// The configuration file is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An ether device cannot be created.
    #[error("{0}")]
    Ether(String),
    /// The node cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Loading or updating the packet path failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Reading the kernel's configuration failed.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// A system call of the event loop failed.
    #[error("event loop: {0}")]
    System(#[from] std::io::Error),
}

/// An attached port.
#[derive(Clone, Debug)]
struct Port {
    ifindex: IfIndex,
    /// The target by the kind of the interface and the mode.
    chosen: Target,
    /// The target that the interface accepted.
    target: Target,
    why: String,
}

/// A running instance.
pub struct Daemon {
    options: Options,
    mirror: Mirror,
    configured: Configured,
    tables: Tables,
    ports: Ports,
    watchers: Watchers,
    senders: Senders,
    clients: Clients,
    health: Health,
    process: Process,
}

/// Status for the foreground display.
#[derive(Clone, Debug)]
pub struct Status {
    /// Counters of the ports.
    pub ports: Vec<report::PortCounters>,
    /// Target of each requested port, with the reason.
    pub targets: report::Ports,
    /// Prefixes in all views.
    pub prefixes: usize,
    /// Whether SIDs are processed only on ports with `seg6_enabled`.
    pub requires_seg6_enabled: bool,
    /// Result of the last checks.
    pub problems: BTreeSet<report::Problem>,
}

/// Summary for a service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of attached ports.
    pub attached: usize,
    /// Number of ports that are not attached.
    pub missing: usize,
    /// Prefixes in all views.
    pub prefixes: usize,
}

/// Loads the tables, with room for the node's routes, and begins to load the programs of its ports.
fn load_kernel(options: &Options, node: &Node) -> Result<Kernel, DaemonError> {
    let kernel = Kernel::load_for(node.routes.len(), options.limits, &options.pin_root)?;
    for target in ports::targets(node, options.mode, &options.ports) {
        // If it cannot begin, the attachment loads the programs, or has the error.
        let _ = kernel.begin_to_load(target);
    }
    Ok(kernel)
}

impl Daemon {
    /// Loads, compiles and attaches. On an error it undoes everything. Programs, pins and changes of
    /// an instance that died stay for the next start.
    pub fn start(mut options: Options, formatter: PacketFormatter) -> Result<Self, DaemonError> {
        options.check()?;
        // The process holds the secrets of HMAC keys: it must not leave a core dump.
        set_dumpable(false).map_err(|errno| DaemonError::System(errno.into()))?;
        raise_descriptors();
        let directory = run_directory();
        let lock = Lock::take(&directory, &options.pin_root)?;
        left::check_root(&lock, &options.pin_root)?;
        if let Some(run_root) = directory.parent() {
            orphans::remove(&options.pin_root, run_root);
        }
        // Before anything is attached, so that an early Ctrl-C leaves nothing behind.
        let (signalled, hung_up) = (events::signals()?, events::hang_ups()?);
        let mut mirror = Mirror::open_with_buffer(options.receive_buffer)?;
        let Initial {
            own,
            devices,
            saved,
            taken_over,
            without,
        } = changes::initial(&mut options, mirror.node(), &directory)?;
        let created = Created::new(&mut mirror, options.mode, &options.ports, &own.ethers)?;
        let (metrics, fpm) = listeners(&own)?;
        let path = directory.join("control.sock");
        let server = Server::listen(&path, options.group)
            .map_err(|source| DaemonError::File { path, source })?;
        let kernel = load_kernel(&options, mirror.node())?;
        let attached = kernel.attached();
        let icmp_rate = config::icmp_rate(&own);
        kernel.limit_reports(icmp_rate);
        let fragment_rate = config::fragment_rate(&own);
        kernel.limit_oversized(fragment_rate);
        let now = Instant::now();
        let mut daemon = Self {
            tables: Tables::new(kernel, options.limits, mirror.node(), (&own, &devices), now),
            mirror,
            configured: Configured {
                own,
                devices,
                saved,
                taken_over,
                start_command: String::new(),
                state: ConfigState {
                    path: options.config_path.clone(),
                    ..ConfigState::default()
                },
            },
            ports: Ports {
                private_bpffs: kernel::private_bpffs(&options.pin_root),
                ..Ports::default()
            },
            watchers: Watchers::default(),
            senders: Senders {
                icmp: Icmp::new(icmp_rate, now),
                oam: Oam::default(),
                fragmenter: Fragmenter::new(fragment_rate, now),
            },
            clients: Clients::new(formatter, server, metrics, fpm),
            health: Health::default(),
            process: Process {
                lock,
                signalled,
                hung_up,
                started: now,
            },
            options,
        };
        daemon.limit_copies();
        match daemon.bring_up_with(without) {
            Ok(()) => {
                // An end by an error leaves pins and changes.
                daemon.process.lock.keep(&daemon.options.pin_root);
                daemon.save_changes();
                created.keep();
                Ok(daemon)
            }
            Err(error) => {
                daemon.give_up(&attached);
                Err(error)
            }
        }
    }

    /// Ends a start that failed, and leaves these attachments of an instance that died.
    fn give_up(mut self, attached: &[(u32, Target)]) {
        if self.tables.origin == Origin::Fresh {
            let _ = self.tables.kernel.detach_all();
            return;
        }
        let now = self.tables.kernel.attached();
        let is_new = |(ifindex, _): &&(u32, Target)| attached.iter().all(|(old, _)| old != ifindex);
        for (ifindex, _) in now.iter().filter(is_new) {
            let _ = self.tables.kernel.detach(*ifindex);
        }
        for port in attached.iter().filter(|port| !now.contains(port)) {
            let _ = self.tables.kernel.attach(port.0, port.1);
        }
    }

    /// Brings the instance up. If the changes of the previous instance prevent it, it starts without
    /// them.
    fn bring_up_with(
        &mut self,
        without: Option<(Vec<String>, Overlay)>,
    ) -> Result<(), DaemonError> {
        let (error, (ports, own)) = match (self.bring_up(), without) {
            (Err(error), Some(without)) => (error, without),
            (result, _) => return result,
        };
        self.configured.taken_over = Some(TakenOver {
            entries: 0,
            left_out: vec![format!("the changes by commands: {error}")],
        });
        let before = std::mem::replace(&mut self.configured.own, own);
        self.options.ports = ports;
        self.ports.refused.clear();
        self.apply_overlay();
        self.apply_rates(&before);
        self.bring_up()
    }

    fn bring_up(&mut self) -> Result<(), DaemonError> {
        // The tables of an instance that died change after everything that may fail. Other tables are
        // filled first, so that an attached program finds them filled.
        let adopted = self.tables.origin == Origin::Adopted;
        if self.survey_bridges() {
            self.apply_overlay();
        }
        if adopted {
            self.check_compilation()?;
            self.attach_all()?;
        }
        self.recompile_after_grace(None)?;
        let full = &self.tables.compiled.index.full;
        if let Some(table) = self
            .configured
            .own
            .routes
            .keys()
            .find_map(|key| full.get(key))
        {
            return Err(self.tables.compiler.full(table).into());
        }
        if !adopted {
            self.attach_all()?;
        }
        self.detach_others();
        ether::remove_orphans(self.mirror.node(), &self.configured.own.ethers);
        // After the first compilation, which determines the egresses.
        let peers = Changes {
            links: self.survey_peers(),
            ..Changes::default()
        };
        if !peers.is_empty() && !self.apply_incremental(&peers) {
            self.recompile_after_grace(None)?;
        }
        // The first log line of a problem follows the start at once.
        self.examine();
        // Drop privileges that only starting needs: reading all processes' namespaces, changing the
        // socket's group, naming other processes' programs, and mounting a BPF file system.
        Ok(kernel::drop_privileges()?)
    }

    /// The mirrored node with the overlay.
    fn node(&self) -> &Node {
        self.tables.overlaid.node(self.mirror.node())
    }

    /// Records the names of interfaces in the overlay, and follows interfaces that were recreated.
    fn track_devices(&mut self) {
        let moved = self
            .configured
            .devices
            .track(&mut self.configured.own, self.mirror.node());
        self.watchers.liveness.rename_devices(&moved);
    }

    /// Applies a change of the kernel's configuration; `settings`: also of settings without
    /// notification.
    fn on_change(&mut self, changes: &Changes, settings: bool) {
        self.clients.monitor.touch();
        self.watchers.ethers.touch();
        let is_small = !settings && !changes.other && !changes.is_empty();
        if is_small && self.health.problem.is_none() && self.apply_incremental(changes) {
            return;
        }
        if changes.other || changes.resynced {
            self.forget_ethers();
            self.track_devices();
        }
        self.health.problem = self.recompile(None).err().map(|error| error.to_string());
        if changes.other {
            self.attach_again();
        }
        self.attach_ports();
    }

    /// Status for the foreground display.
    pub fn status(&self) -> Status {
        Status {
            ports: self.port_counters().unwrap_or_default(),
            targets: self.ports_report(),
            prefixes: self.tables.compiled.image.fib.len(),
            requires_seg6_enabled: self.configured.own.settings.require_seg6_enabled,
            problems: self.problems().clone(),
        }
    }

    /// Summary for a service manager. It reads no counters.
    pub fn summary(&self) -> Summary {
        let attached = self.ports.attached.len();
        Summary {
            attached,
            missing: self.port_names().len().saturating_sub(attached),
            prefixes: self.tables.compiled.image.fib.len(),
        }
    }

    /// Returns the listening socket for metrics, whose connections the caller serves.
    pub fn take_metrics(&mut self) -> Option<TcpListener> {
        self.clients.metrics.take()
    }

    /// Whether the instance started fresh or adopted pins.
    pub fn origin(&self) -> Origin {
        self.tables.origin
    }

    /// Changes by commands that the instance took over from one that died; none if there were none.
    pub fn taken_over(&self) -> Option<&TakenOver> {
        self.configured.taken_over.as_ref()
    }

    /// Returns whether SIGHUP arrived since the last call.
    fn take_hangup(&self) -> bool {
        self.process.hung_up.swap(false, Ordering::Relaxed)
    }

    /// Time of the start.
    pub fn started(&self) -> Instant {
        self.process.started
    }

    fn attached_port(&self, name: &str) -> Result<&Port, String> {
        let name = self.mirror.node().own_name(name);
        self.ports.attached.get(name).ok_or_else(|| {
            let ports: Vec<_> = self.ports.attached.keys().map(String::as_str).collect();
            format!(
                "port {name}: not attached; attached ports are {}",
                ports.join(", ")
            )
        })
    }
}

/// Opens the sockets for metrics and FPM, if they are on.
fn listeners(own: &Overlay) -> Result<(Option<TcpListener>, Option<Fpm>), DaemonError> {
    let metrics = own.metrics.map(listen).transpose()?;
    Ok((metrics, own.fpm.map(listen_fpm).transpose()?))
}

fn listen(address: SocketAddr) -> Result<TcpListener, DaemonError> {
    TcpListener::bind(address).map_err(|source| DaemonError::Metrics { address, source })
}

fn listen_fpm(address: SocketAddr) -> Result<Fpm, DaemonError> {
    Fpm::listen(address).map_err(|source| DaemonError::Fpm { address, source })
}

/// Raises the soft limit of descriptors to the hard limit. Each probed service takes one, and the
/// usual soft limit is 1024. A failure is ignored.
fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Reads a clock in nanoseconds; 0 if it cannot be read.
fn nanoseconds(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}
