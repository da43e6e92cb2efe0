//! Errors of the kernel targets.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::Target;
use super::features::OLDEST;
use super::maps::Table;

/// An operation on the kernel targets that did not happen. Unless a variant says otherwise, nothing
/// was changed.
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
        /// Where pins should go.
        path: PathBuf,
        /// What helps.
        command: String,
        /// Why mounting it here failed, or that it was not tried.
        source: io::Error,
    },
    /// A live process owns the pins of this network namespace.
    #[error("another instance runs in this network namespace: process {pid} owns {folder}")]
    Owned {
        /// Its folder of pins.
        folder: PathBuf,
        /// Its process id as it knows it (0: not written yet).
        pid: u32,
    },
    /// Nothing is pinned that could be adopted.
    #[error("nothing to adopt: {folder} holds no pinned data plane")]
    NothingPinned {
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The pinned tables are of another layout. They are never read.
    #[error("{folder} was pinned by another version: ABI {found}, this binary has {expected}")]
    Version {
        /// The folder of pins.
        folder: PathBuf,
        /// `SIDESTEP_ABI_VERSION` of the pins.
        found: u32,
        /// `SIDESTEP_ABI_VERSION` of this binary.
        expected: u32,
    },
    /// A pinned table has the right version and another shape: damaged, or not ours.
    #[error("{folder}: pinned table {table} has {found}, expected {expected}")]
    Shape {
        /// The folder of pins.
        folder: PathBuf,
        /// The table.
        table: Table,
        /// Type, key and value size, entries.
        found: String,
        /// The same as it should be.
        expected: String,
    },
    /// A pin could not be made, opened or removed.
    #[error("cannot {operation} {path}: {source}")]
    Pin {
        /// Operation that failed.
        operation: &'static str,
        /// The pin.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel is older than the oldest one that the packet path can run in.
    #[error("this kernel is too old: it lacks {lacks}; Sidestep needs Linux {OLDEST} or newer")]
    TooOld {
        /// What, and since which version there is it.
        lacks: &'static str,
    },
    /// The kernel refused a program or a map.
    #[error("the kernel refused {object}: {source}{}", on_new_lines(.log))]
    Load {
        /// Which object.
        object: &'static str,
        /// Error from libbpf.
        source: libbpf_rs::Error,
        /// Last messages of libbpf and the verifier; may be empty.
        log: String,
    },
    /// The port has an XDP program of someone else. It stays.
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
        /// Which program.
        target: Target,
        /// Why not.
        source: io::Error,
        /// Usual meaning of the error here; may be empty.
        hint: &'static str,
    },
    /// A table is too small for what should be applied.
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
    /// A record that packets may be reading would change its meaning: a mistake of the caller.
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
        /// Why not.
        source: libbpf_rs::Error,
    },
    /// A test run was refused or its result cannot be used.
    #[error("test run of {target}: {source}")]
    TestRun {
        /// Which program.
        target: Target,
        /// Why not.
        source: io::Error,
    },
    /// A frame that [`super::Kernel::program_time`] cannot put back between two runs.
    #[error("this frame cannot be measured: {why}")]
    Unmeasurable {
        /// Property of the frame that prevents the measurement.
        why: String,
    },
    /// An operating system call beside BPF failed.
    #[error("{operation}: {source}")]
    System {
        /// Operation that failed.
        operation: &'static str,
        /// Why not.
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
