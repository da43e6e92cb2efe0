//! The tables under test, behind one interface.

mod crates;
mod dpdk;
mod harness;
mod linux;
mod lpm_trie;
mod netlink;
mod sidestep;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidestep_fib::Prefix;
use thiserror::Error;

pub use crates::time_nothing;
pub use harness::{ADDRESSES, Harness};

use super::routes::Route;
use super::traffic::Addresses;
use crate::huge_pages::HugePages;

/// How lookups follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// Independent calls: the processor can overlap them.
    Independent,
    /// Dependent calls: each address depends on the previous result. This is the latency that a
    /// packet sees.
    Dependent,
    /// Many addresses in one call.
    Batch,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::Independent, Self::Dependent, Self::Batch];

    /// Returns the name for titles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Independent => "one by one",
            Self::Dependent => "each after the last",
            Self::Batch => "in batches",
        }
    }
}

/// A way of looking addresses up in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Way {
    /// How lookups follow one another.
    pub order: Order,
    /// Name of the implementation, or empty if the table has only one.
    pub variant: &'static str,
}

impl Way {
    /// Independent and dependent lookups of single addresses.
    pub const SINGLE: [Self; 2] = [
        Self::plain(Order::Independent),
        Self::plain(Order::Dependent),
    ];

    /// The only implementation.
    pub const fn plain(order: Order) -> Self {
        Self { order, variant: "" }
    }
}

/// Reason why a point was not measured.
#[derive(Debug, Error)]
pub enum Trouble {
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The time limit was exceeded.
    #[error("not ready after {} s", .0.as_secs())]
    TooSlow(Duration),
    /// The operation failed or is not supported.
    #[error("{0}")]
    Refused(String),
}

impl Trouble {
    /// Creates an error from another component's message.
    pub fn of(what: &str, why: impl fmt::Display) -> Self {
        Self::Refused(format!("{what}: {why}"))
    }
}

/// Conditions for giving up.
#[derive(Clone, Debug)]
pub struct Stop {
    interrupted: Arc<AtomicBool>,
    begun: Instant,
    limit: Duration,
}

impl Stop {
    /// Gives up when the flag is set, or when this time from now has passed.
    pub fn new(interrupted: Arc<AtomicBool>, limit: Duration) -> Self {
        Self {
            interrupted,
            begun: Instant::now(),
            limit,
        }
    }

    /// # Errors
    /// The flag is set, or the time has passed.
    pub fn check(&self) -> Result<(), Trouble> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Trouble::Interrupted);
        }
        if self.begun.elapsed() > self.limit {
            return Err(Trouble::TooSlow(self.limit));
        }
        Ok(())
    }
}

/// Lookups, which several threads may make concurrently.
pub trait Reader: Send + Sync {
    /// Returns the next hops of all addresses, 0 for none.
    ///
    /// # Errors
    /// The table returns no next hops.
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble>;

    /// Returns the time of these lookups, including the loop.
    ///
    /// # Errors
    /// The time cannot be measured.
    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble>;
}

/// A prefix table.
pub trait Subject: Reader {
    /// Returns the supported ways of lookups.
    fn ways(&self) -> Vec<Way> {
        Way::SINGLE.to_vec()
    }

    /// Fills an empty table with all routes in its fastest way. Called once.
    ///
    /// # Errors
    /// The routes do not fit, or the time limit is exceeded.
    fn load(&mut self, routes: &[Route], stop: &Stop) -> Result<(), Trouble>;

    /// Sets the next hop of a prefix.
    ///
    /// # Errors
    /// The table does not support it, or has no space.
    fn insert(&mut self, prefix: Prefix, hop: u32) -> Result<(), Trouble>;

    /// Removes a prefix.
    ///
    /// # Errors
    /// The table does not support it.
    fn remove(&mut self, prefix: Prefix) -> Result<(), Trouble>;

    /// Returns a reader for another thread that works while the table changes, if the table
    /// supports it.
    fn apart(&self) -> Option<Arc<dyn Reader>> {
        None
    }

    /// Returns the bytes that the table uses outside of this process' heap.
    fn outside_heap(&self) -> u64 {
        0
    }

    /// Returns the bytes of the memory that lookups read, if known.
    fn walked(&self) -> Option<u64> {
        None
    }

    /// Returns the number of lines that a lookup of this address reads in sequence, if known.
    fn depth(&self, _address: u128) -> Option<u32> {
        None
    }
}

/// Context of the run for a subject.
#[derive(Debug)]
pub struct Environment {
    /// Addresses for BPF programs; `None` without root.
    pub harness: Option<Arc<Harness>>,
    /// Huge pages, for DPDK.
    pub huge_pages: HugePages,
}

impl Environment {
    /// # Errors
    /// BPF programs need root.
    pub fn harness(&self) -> Result<&Arc<Harness>, Trouble> {
        let none = || Trouble::Refused("BPF programs need root".into());
        self.harness.as_ref().ok_or_else(none)
    }
}

/// A kind of table, with its name for `--against`.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Where its lookups run.
    pub place: Place,
    open: Open,
}

type Open = fn(&Environment, &[Route]) -> Result<Box<dyn Subject>, Trouble>;

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Where lookups run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this process.
    Process,
    /// In a BPF program.
    Bpf,
}

impl Kind {
    /// All kinds. The first two are Sidestep's.
    pub const ALL: [Self; 11] = [
        Self {
            name: "sidestep",
            about: "Sidestep's table, natively",
            place: Place::Process,
            open: |_, _| Ok(Box::new(sidestep::native()?)),
        },
        Self {
            name: "sidestep-xdp",
            about: "Sidestep's table in its BPF map, walked by XDP",
            place: Place::Bpf,
            open: |environment, _| Ok(Box::new(sidestep::xdp(Arc::clone(environment.harness()?))?)),
        },
        Self {
            name: "linux",
            about: "the kernel's routing table, by bpf_fib_lookup from XDP",
            place: Place::Bpf,
            open: |environment, _| Ok(Box::new(linux::Linux::new(environment.harness()?)?)),
        },
        Self {
            name: "lpm-trie",
            about: "the kernel's BPF LPM trie map, from XDP",
            place: Place::Bpf,
            open: |environment, routes| {
                let harness = environment.harness()?;
                Ok(Box::new(lpm_trie::LpmTrie::new(harness, routes.len())?))
            },
        },
        Self {
            name: "rte_fib6",
            about: "DPDK's rte_fib6, 4-byte next hops",
            place: Place::Process,
            open: |environment, routes| Ok(Box::new(dpdk::Table::fib6(environment, routes)?)),
        },
        Self {
            name: "rte_lpm6",
            about: "DPDK's rte_lpm6",
            place: Place::Process,
            open: |environment, routes| Ok(Box::new(dpdk::Table::lpm6(environment, routes)?)),
        },
        Self {
            name: "prefix-trie",
            about: "the Rust crate of that name",
            place: Place::Process,
            open: |_, _| Ok(Box::new(crates::prefix_trie())),
        },
        Self {
            name: "treebitmap",
            about: "the Rust crate ip_network_table-deps-treebitmap",
            place: Place::Process,
            open: |_, _| Ok(Box::new(crates::treebitmap())),
        },
        Self {
            name: "poptrie",
            about: "the Rust crate of that name",
            place: Place::Process,
            open: |_, _| Ok(Box::new(crates::poptrie())),
        },
        Self {
            name: "iptrie",
            about: "the Rust crate of that name, level-compressed: no changes",
            place: Place::Process,
            open: |_, _| Ok(Box::new(crates::Iptrie::new())),
        },
        Self {
            name: "hashes",
            about: "a hash table of the standard library per length, searched from the longest",
            place: Place::Process,
            open: |_, _| Ok(Box::new(crates::hashes())),
        },
    ];

    /// Returns the kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name == name)
    }

    /// Whether it is Sidestep's.
    pub fn is_ours(self) -> bool {
        self.name.starts_with("sidestep")
    }

    /// Returns an empty table with space for these routes.
    ///
    /// # Errors
    /// A requirement is missing on this machine.
    pub fn open(
        self,
        environment: &Environment,
        routes: &[Route],
    ) -> Result<Box<dyn Subject>, Trouble> {
        (self.open)(environment, routes)
    }
}
