//! Errors of the kernel targets.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::Target;
use super::features::OLDEST;
use super::maps::Table;

/// A failed operation on the kernel targets. It changed nothing, unless a variant states otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The prefix table moved to a larger map while programs for the old one were loaded.
    #[error("the prefix table has grown meanwhile; try again")]
    Grown,
    /// This process may not load BPF programs.
    #[error("missing {}: run as root, or give the binary these capabilities", .missing.join(", "))]
    Capability {
        /// Names as in capabilities(7).
        missing: Vec<&'static str>,
    },
    /// There is no BPF file system to pin into, and none could be mounted.
    #[error("{path} is not on a BPF file system ({source}); mount one with: {command}")]
    Bpffs {
        /// Requested root of the pins.
        path: PathBuf,
        /// Command that mounts one.
        command: String,
        /// Error of the mount, or the note that it was not tried.
        source: io::Error,
    },
    /// A live process owns the pins of this network namespace.
    #[error("another instance runs in this network namespace: process {pid} owns {folder}")]
    Owned {
        /// Folder of pins of that process.
        folder: PathBuf,
        /// Process id in the PID namespace of that process (0: not written yet).
        pid: u32,
    },
    /// Nothing is pinned that could be adopted.
    #[error("nothing to adopt: {folder} holds no pinned data plane")]
    NothingPinned {
        /// The folder without pins.
        folder: PathBuf,
    },
    /// The pinned tables have another layout. They are never read.
    #[error("{folder} was pinned by another version: ABI {found}, this binary has {expected}")]
    Version {
        /// The folder of pins.
        folder: PathBuf,
        /// `SIDESTEP_ABI_VERSION` of the pins.
        found: u32,
        /// `SIDESTEP_ABI_VERSION` of this binary.
        expected: u32,
    },
    /// A pinned table has the right version but another shape: it is damaged or foreign.
    #[error("{folder}: pinned table {table} has {found}, expected {expected}")]
    Shape {
        /// The folder of pins.
        folder: PathBuf,
        /// The table.
        table: Table,
        /// Type, key and value size, entries.
        found: String,
        /// Expected type, key and value size, entries.
        expected: String,
    },
    /// A pin could not be created, opened or removed.
    #[error("cannot {operation} {path}: {source}")]
    Pin {
        /// Operation that failed.
        operation: &'static str,
        /// The pin.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The kernel is older than the oldest one that the packet path can run in.
    #[error("this kernel is too old: it lacks {lacks}; Sidestep needs Linux {OLDEST} or newer")]
    TooOld {
        /// Missing feature, and the version that introduced it.
        lacks: &'static str,
    },
    /// The kernel refused a program or a map.
    #[error("the kernel refused {object}: {source}{}", on_new_lines(.log))]
    Load {
        /// Name of the object.
        object: &'static str,
        /// Error from libbpf.
        source: libbpf_rs::Error,
        /// Last messages of libbpf and the verifier; may be empty.
        log: String,
    },
    /// The port has a foreign XDP program, which stays attached.
    #[error("interface {ifindex} already has an XDP program: id {id}, name {name} ({mode} mode)")]
    ForeignXdp {
        /// Interface index.
        ifindex: u32,
        /// Program id, as bpftool shows it.
        id: u32,
        /// Program name.
        name: String,
        /// `native`, `generic` or `offload`.
        mode: &'static str,
    },
    /// Another instance's TC program is on the port.
    #[error("interface {ifindex} already has {name} at TC ingress: program id {id}")]
    ForeignTc {
        /// Interface index.
        ifindex: u32,
        /// Program id, as bpftool shows it.
        id: u32,
        /// Program name.
        name: String,
    },
    /// A program could not be attached or detached.
    #[error("cannot {operation} {target} on interface {ifindex}: {source}{hint}")]
    Attach {
        /// `attach` or `detach`.
        operation: &'static str,
        /// Interface index.
        ifindex: u32,
        /// Target of the program.
        target: Target,
        /// Cause.
        source: io::Error,
        /// Usual meaning of the error here; may be empty.
        hint: &'static str,
    },
    /// A table is too small for the image.
    #[error("table {table} is full: {wanted} wanted, the limit is {limit}")]
    Full {
        /// The table.
        table: Table,
        /// Its limit (see [`crate::Limits`]).
        limit: u32,
        /// Entries, or the highest index, that the image has.
        wanted: u32,
    },
    /// Two ports would share a slot of the port table.
    #[error(
        "interfaces {first} and {second} cannot both be ports: their indices agree modulo {}",
        crate::abi::SIDESTEP_PORTS
    )]
    PortSlot {
        /// Interface index.
        first: u32,
        /// Interface index.
        second: u32,
    },
    /// The change would give a new meaning to a record that packets may be reading. This is an
    /// error of the caller.
    #[error("{table} {index} is in use and cannot change; give the new record an index of its own")]
    InUse {
        /// The table.
        table: Table,
        /// Index of the record.
        index: u32,
    },
    /// A map operation failed.
    #[error("cannot {operation} table {table}: {source}")]
    Map {
        /// Operation that failed.
        operation: &'static str,
        /// The table.
        table: Table,
        /// Cause.
        source: libbpf_rs::Error,
    },
    /// A test run was refused or its result cannot be used.
    #[error("test run of {target}: {source}")]
    TestRun {
        /// Target of the program.
        target: Target,
        /// Cause.
        source: io::Error,
    },
    /// A frame that [`super::Kernel::program_time`] cannot put back between two runs.
    #[error("this frame cannot be measured: {why}")]
    Unmeasurable {
        /// Property of the frame that prevents the measurement.
        why: String,
    },
    /// A system call other than bpf(2) failed.
    #[error("{operation}: {source}")]
    System {
        /// Operation that failed.
        operation: &'static str,
        /// Cause.
        source: io::Error,
    },
}

fn on_new_lines(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("\n{text}")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl KernelError {
    /// Whether a driver refused XDP: it has none, or not for the interface's MTU or queues.
    pub fn is_without_xdp(&self) -> bool {
        let Self::Attach { target, source, .. } = self else {
            return false;
        };
        let refusals = [libc::EOPNOTSUPP, libc::EINVAL, libc::ERANGE, libc::E2BIG];
        let errno = source.raw_os_error();
        *target == Target::Xdp && errno.is_some_and(|errno| refusals.contains(&errno))
    }
}
