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
mod held;
mod icmp;
mod instance;
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
mod paths;
mod peers;
mod policies;
mod policy_batch;
mod ports;
mod problems;
mod protection;
mod replies;
mod reports;
mod route_get;
#[cfg(test)]
mod simulated;
mod system;
mod tables;
mod timers;
mod trace;
mod urgent;

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
use sidestep_mirror::{Mirror, MirrorError};
use sidestep_model::ConfigError;
use sidestep_model::config::{File, Overlay};
use sidestep_model::node::{IfIndex, Node};
use thiserror::Error;

pub use self::changes::TakenOver;
pub use self::config::{Configuration, Phase, Program};
pub use self::events::End;
pub(crate) use self::fpm::is_exposed;
pub use self::instance::{Overview, Status, Summary};
pub use self::left::{former_pin_root, left, remove_left};
pub(crate) use self::ports::choose;
use crate::api::{Server, run_directory};
use crate::compile::{CompileError, Compiled, Index};
use crate::trace::{Filter, TracedPacket};
pub(crate) use config::resolve;
use ether::Created;
use fpm::Fpm;
use instance::Instance;
use lock::Lock;
pub(crate) use names::KnownNames;
pub(crate) use own::{Devices, OverlaidNode};
use packet_path::PacketPath;
use parts::{Clients, Process};
pub use sidestep_model::settings::Mode;
use system::{Linux, NodeMirror, System};
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

/// A running instance with its sockets and files.
pub struct Daemon {
    instance: Instance<Linux>,
    process: Process,
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
        let mut initial = changes::initial(&mut options, mirror.node(), &directory, |pin_root| {
            Kernel::pinned(pin_root).is_some()
        })?;
        let without = initial.without.take();
        let ethers = &initial.own.ethers;
        let created = Created::new(&mut mirror, options.mode, &options.ports, ethers)?;
        let (metrics, fpm) = listeners(&initial.own)?;
        let path = directory.join("control.sock");
        let server = Server::listen(&path, options.group)
            .map_err(|source| DaemonError::File { path, source })?;
        let kernel = load_kernel(&options, mirror.node())?;
        let attached = kernel.attached();
        let process = Process {
            server,
            lock,
            signalled,
            hung_up,
        };
        let clients = Clients::new(formatter, metrics, fpm);
        let (connected, now) = ((mirror, kernel), Instant::now());
        let mut instance = Instance::new(Linux, connected, (initial, options), clients, now);
        let pin_root = instance.configured.options.pin_root.clone();
        instance.ports.private_bpffs = kernel::private_bpffs(&pin_root);
        instance.senders.icmp.open(&instance.system, now);
        instance.senders.fragmenter.open(&instance.system, now);
        let mut daemon = Self { instance, process };
        // Drop privileges that only starting needs: reading all processes' namespaces, changing the
        // socket's group, naming other processes' programs, and mounting a BPF file system.
        let is_up = daemon.instance.bring_up_with(without);
        match is_up.and_then(|()| Ok(kernel::drop_privileges()?)) {
            Ok(()) => {
                // An end by an error leaves pins and changes.
                daemon.process.lock.keep(&pin_root);
                daemon.instance.save_changes();
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
    fn give_up(self, attached: &[(u32, Target)]) {
        let Tables {
            origin, mut kernel, ..
        } = self.instance.tables;
        if origin == Origin::Fresh {
            let _ = kernel.detach_all();
            return;
        }
        let now = kernel.attached();
        let is_new = |(ifindex, _): &&(u32, Target)| attached.iter().all(|(old, _)| old != ifindex);
        for (ifindex, _) in now.iter().filter(is_new) {
            let _ = kernel.detach(*ifindex);
        }
        for port in attached.iter().filter(|port| !now.contains(port)) {
            let _ = kernel.attach(port.0, port.1);
        }
    }

    /// Returns the listening socket for metrics, whose connections the caller serves.
    pub fn take_metrics(&mut self) -> Option<TcpListener> {
        self.instance.clients.metrics.take()
    }

    /// Whether the instance started fresh or adopted pins.
    pub fn origin(&self) -> Origin {
        self.instance.tables.origin
    }

    /// Changes by commands that the instance took over from one that died; none if there were none.
    pub fn taken_over(&self) -> Option<&TakenOver> {
        self.instance.configured.taken_over.as_ref()
    }

    /// Status for the foreground display.
    pub fn status(&self) -> Status {
        self.instance.status()
    }

    /// Returns whether SIGHUP arrived since the last call.
    fn take_hangup(&self) -> bool {
        self.process.hung_up.swap(false, Ordering::Relaxed)
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
