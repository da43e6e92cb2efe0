//! The kernel targets: the packet path loaded into the running kernel, its tables, its ports and
//! its counters.
//!
//! Everything is pinned in one folder per network namespace, so that the data plane outlives this
//! process: programs, maps, links and the ABI version. A later process adopts them
//! ([`Kernel::load`], [`Kernel::adopt`]).
//!
//! All calls apply to the network namespace of the calling thread. It must be the namespace of the
//! thread that called [`Kernel::load`].

mod apply;
mod attach;
mod bpffs;
mod counters;
mod error;
mod features;
mod fib;
mod gate;
mod grace;
mod load;
mod log;
mod mapping;
mod maps;
mod pins;
mod privilege;
mod program_time;
mod report;
#[cfg(test)]
mod scratch;
mod sender;
mod stations;
mod suspend;
mod sys;
mod test_run;
mod trace;
mod unused;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use crate::abi::{AdjacencyId, HeaderSetId, ViewId, sidestep_adjacency, sidestep_learned};

pub use apply::Applied;
pub use bpffs::{on_bpffs, private_bpffs};
pub use error::KernelError;
pub use features::Features;
pub use grace::GracePeriod;
pub use mapping::Mapping;
pub use maps::Table;
pub use pins::Pinned;
pub use program_time::{Method, ProgramTime};
pub use report::ReportRate;
pub use sender::{Sender, Sessions};
pub use suspend::NextHops;
pub use sys::FILTER_PRIORITY;
pub use test_run::{Action, TEST_RUN_IFINDEX, TestRun};
pub use trace::{Head, Sample, Sampling, TraceFilter, TraceLoader, Tracer};

use crate::image::{Image, Limits};
use crate::learned;
use attach::Attachment;
use grace::Background;
use load::Programs;
use maps::Maps;
use pins::Folder;

/// Default root of the pins, with one folder per network namespace.
pub const PIN_ROOT: &str = "/sys/fs/bpf/sidestep";

/// Kernel hook where the packet path runs on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// XDP in the driver, before an skb exists.
    Xdp,
    /// TC ingress, which keeps offload state.
    Tc,
    /// TC ingress behind XDP: processes the frames that XDP defers, because it lacks headroom or
    /// cannot use their egress. A port with [`Target::Xdp`] has it, too.
    BehindXdp,
}

impl Target {
    /// The targets that a port can have.
    pub const ALL: [Self; 2] = [Self::Xdp, Self::Tc];

    /// The hooks of a port with this target, in the order in which they are attached.
    fn hooks(self) -> &'static [Self] {
        match self {
            // XDP defers from its first frame on.
            Self::Xdp => &[Self::BehindXdp, Self::Xdp],
            Self::Tc => &[Self::Tc],
            Self::BehindXdp => &[Self::BehindXdp],
        }
    }

    /// Name of the target: `xdp` and `tc` as on the command line, `behind_xdp`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tc => "tc",
            Self::BehindXdp => "behind_xdp",
        }
    }
}

/// State that a [`Kernel`] started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing was pinned: empty tables, no ports attached.
    Fresh,
    /// Tables and links of a dead instance, which kept forwarding. [`Kernel::image`] reads the
    /// tables.
    Adopted,
    /// A dead instance's tables did not fit (other ABI or limits) and were replaced by empty ones.
    /// Its links still run the old program on the old tables until [`Kernel::attach`] switches
    /// each: fill the tables before that.
    Replaced,
}

/// The packet path in the kernel. Dropping it leaves everything attached and pinned;
/// [`Kernel::detach_all`] ends it.
#[derive(Debug)]
pub struct Kernel {
    folder: Folder,
    origin: Origin,
    limits: Limits,
    /// Lines that the prefix table may grow to.
    fib_lines_max: u32,
    maps: Maps,
    programs: Programs,
    features: Features,
    gate: OnceLock<gate::Gate>,
    attached: BTreeMap<(u32, Target), Attachment>,
    grace_period: GracePeriod,
    /// Grace periods that another thread waits for.
    background: Background,
    unused: unused::Unused,
    /// The tracer, while a trace runs.
    tracer: Option<trace::Tracer>,
    reports: report::Reports,
}

/// Checks whether this process may load and attach. [`Kernel::load`] checks this too.
///
/// # Errors
/// [`KernelError::Capability`].
pub fn check_privileges() -> Result<(), KernelError> {
    privilege::check()
}

/// Returns the optional features of the running kernel.
///
/// # Errors
/// [`KernelError::Capability`], or [`KernelError::TooOld`].
pub fn probe() -> Result<Features, KernelError> {
    privilege::check()?;
    match features::lacks() {
        Some(lacks) => Err(KernelError::TooOld { lacks }),
        None => Features::probe(),
    }
}

/// Returns whether this process may read the network namespaces of other users' processes.
pub fn sees_other_processes() -> bool {
    privilege::sees_others()
}

/// Returns whether TC programs are attached to the egress of an interface by tcx.
pub fn has_tcx_egress(ifindex: u32) -> bool {
    let programs = sys::tcx_programs(ifindex, libbpf_sys::BPF_TCX_EGRESS);
    programs.is_ok_and(|programs| !programs.is_empty())
}

/// Removes all capabilities of the calling thread, and of threads that it starts later, except
/// `CAP_BPF`, `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_PERFMON`. A [`Kernel`] that was loaded
/// earlier is not affected.
///
/// # Errors
/// [`KernelError::System`].
pub fn drop_privileges() -> Result<(), KernelError> {
    privilege::drop_others()
}

impl Kernel {
    /// Loads programs and tables of these sizes and pins them below `pin_root` ([`PIN_ROOT`]) in a
    /// folder of the calling thread's network namespace. Pins of a dead instance are adopted (new
    /// programs, the same tables) or replaced, see [`Origin`].
    ///
    /// # Errors
    /// [`KernelError::Capability`], [`KernelError::Bpffs`], [`KernelError::Owned`] by a live
    /// instance, or [`KernelError::Load`].
    pub fn load(limits: Limits, pin_root: &Path) -> Result<Self, KernelError> {
        load::load(limits, 0, pin_root)
    }

    /// As [`Kernel::load`]. New tables have room for this many prefixes, and grow beyond that.
    ///
    /// # Errors
    /// As for [`Kernel::load`].
    pub fn load_for(prefixes: usize, limits: Limits, pin_root: &Path) -> Result<Self, KernelError> {
        load::load(limits, prefixes, pin_root)
    }

    /// Opens the pinned programs and tables, with any limits.
    ///
    /// # Errors
    /// [`KernelError::NothingPinned`], [`KernelError::Version`] or [`KernelError::Shape`] if the
    /// pins do not match this build; otherwise as [`Kernel::load`].
    pub fn adopt(pin_root: &Path) -> Result<Self, KernelError> {
        load::adopt(pin_root)
    }

    /// Detaches and removes the pins of a dead instance of any version in this network namespace.
    /// Returns whether there were any pins.
    ///
    /// # Errors
    /// [`KernelError::Owned`] if the instance lives.
    pub fn remove(pin_root: &Path) -> Result<bool, KernelError> {
        load::remove(pin_root)
    }

    /// Returns the pins of this network namespace, if an instance has pinned its tables.
    pub fn pinned(pin_root: &Path) -> Option<Pinned> {
        Folder::pinned(pin_root)
    }

    /// Removes the pins of dead instances whose network namespace is gone: `is_there` returns false
    /// for its inode, and no program is attached to an interface. Returns the inodes. Folders that
    /// cannot be read are skipped.
    pub fn remove_orphans(pin_root: &Path, is_there: impl Fn(u64) -> bool) -> Vec<u64> {
        load::remove_orphans(pin_root, is_there)
    }

    /// Returns the state that this value started from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the optional features of the running kernel.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Sizes of the tables.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The folder of its pins.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the current content of the tables. After an adoption it is the `from` of the first
    /// [`Kernel::apply`]. It lacks the prefixes that a dead instance left, although packets still
    /// match them ([`Kernel::intervals`]). The first change removes them.
    pub fn image(&self) -> Image {
        self.maps.image()
    }

    /// Waits for an RCU grace period, up to some tens of milliseconds. Packets that were in
    /// progress at the call are then finished.
    ///
    /// # Errors
    /// [`KernelError::System`].
    pub fn synchronize(&self) -> Result<(), KernelError> {
        self.grace_period.wait()
    }

    /// Returns whether packets needed this next hop, resolved or not, since the last call. Returns
    /// false for an index beyond the table.
    pub fn take_used(&self, adjacency: AdjacencyId) -> bool {
        let offset = std::mem::offset_of!(sidestep_adjacency, used);
        adjacency.0 <= self.limits.adjacencies
            && self.maps.adjacencies.take_word(adjacency.0, offset) != 0
    }

    /// Returns the record of a dynamic proxy, at an index of [`Image::learned`].
    ///
    /// # Panics
    /// If the index is beyond the table.
    pub fn learned(&self, index: HeaderSetId) -> sidestep_learned {
        learned::read(self.maps.learned.words(index.0))
    }

    /// Returns the flows of a proxy, or `None` if the proxy does not learn per flow.
    ///
    /// # Panics
    /// If the index is beyond the table.
    pub fn flows(&self, index: HeaderSetId) -> Option<learned::Flows> {
        let set = |set| self.maps.flow_sets.words(set);
        learned::flows(&self.learned(index), set)
    }

    /// Returns the header sets that the flows of a proxy learned. A record with several header sets
    /// yields the last one.
    ///
    /// # Panics
    /// If the index is beyond the table.
    pub fn chains(&self, index: HeaderSetId) -> Vec<sidestep_learned> {
        let records = learned::chains(&self.learned(index));
        let records = records.map(|chain| self.learned(HeaderSetId(chain)));
        records.filter(|record| record.version != 0).collect()
    }

    /// Returns the header sets and flows that a proxy learned, for
    /// [`crate::Native::set_knowledge`].
    ///
    /// # Panics
    /// If the index is beyond the table.
    pub fn knowledge(&self, index: HeaderSetId) -> learned::Knowledge {
        let record = |record| self.maps.learned.words(record);
        learned::Knowledge::of(index.0, record, |set| self.maps.flow_sets.words(set))
    }

    /// Takes the on-link destinations of packets dropped since the last call because the kernel has
    /// no route that resolves them. Each has its view and the address as FIB bytes.
    pub fn take_resolve_requests(&self) -> Vec<(ViewId, [u8; 16])> {
        let wanted: Vec<_> = self
            .maps
            .unresolved
            .records()
            .filter(|(_, wanted)| wanted.view.is_some())
            .collect();
        for (slot, _) in &wanted {
            self.maps.unresolved.clear(*slot);
        }
        wanted
            .into_iter()
            .map(|(_, wanted)| (wanted.view, wanted.address))
            .collect()
    }

    /// Returns the packet path for a hook, with trace code while a trace runs. The first call
    /// for a hook loads it.
    fn program(&self, target: Target) -> Result<BorrowedFd<'_>, KernelError> {
        match &self.tracer {
            Some(tracer) => tracer.program(target, self.features, self.maps.handles()),
            None => Ok(self.hook(target)?.program.as_fd()),
        }
    }
}

/// File descriptor that is closed on drop. The pin keeps the kernel object alive.
type Descriptor = OwnedFd;
