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
    /// Many in one call.
    Batch,
}

impl Order {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Independent, Self::Dependent, Self::Batch];

    /// As titles have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Independent => "one by one",
            Self::Dependent => "each after the last",
            Self::Batch => "in batches",
        }
    }
}

/// A way in which a subject can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Way {
    /// How lookups follow one another.
    pub order: Order,
    /// Which of several implementations of the subject; empty where there is one.
    pub variant: &'static str,
}

impl Way {
    /// One by one, and each after the last.
    pub const SINGLE: [Self; 2] = [
        Self::plain(Order::Independent),
        Self::plain(Order::Dependent),
    ];

    /// The only implementation.
    pub const fn plain(order: Order) -> Self {
        Self { order, variant: "" }
    }
}

/// Why something was not measured.
#[derive(Debug, Error)]
pub enum Trouble {
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// It took longer than it may.
    #[error("not ready after {} s", .0.as_secs())]
    TooSlow(Duration),
    /// It cannot.
    #[error("{0}")]
    Refused(String),
}

impl Trouble {
    /// From what something else said.
    pub fn of(what: &str, why: impl fmt::Display) -> Self {
        Self::Refused(format!("{what}: {why}"))
    }
}

/// When to give up.
#[derive(Clone, Debug)]
pub struct Stop {
    interrupted: Arc<AtomicBool>,
    begun: Instant,
    limit: Duration,
}

impl Stop {
    /// As soon as the flag is set, or after that time from now on.
    pub fn new(interrupted: Arc<AtomicBool>, limit: Duration) -> Self {
        Self {
            interrupted,
            begun: Instant::now(),
            limit,
        }
    }

    /// # Errors
    /// It is time to.
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

/// Lookups, also of several threads at once.
pub trait Reader: Send + Sync {
    /// Next hops of all addresses, 0 for none.
    ///
    /// # Errors
    /// It does not say.
    fn answers(&self, addresses: &Addresses) -> Result<Vec<u32>, Trouble>;

    /// Time of these lookups, loop included.
    ///
    /// # Errors
    /// It cannot be measured.
    fn time(
        &self,
        addresses: &Addresses,
        range: Range<usize>,
        way: Way,
    ) -> Result<Duration, Trouble>;
}

/// A prefix table.
pub trait Subject: Reader {
    /// The ways it can be asked.
    fn ways(&self) -> Vec<Way> {
        Way::SINGLE.to_vec()
    }

    /// Puts a whole table in, in its fastest way. Called once, when it is empty.
    ///
    /// # Errors
    /// It does not fit, or it takes too long.
    fn load(&mut self, routes: &[Route], stop: &Stop) -> Result<(), Trouble>;

    /// Sets the next hop of a prefix.
    ///
    /// # Errors
    /// It cannot.
    fn insert(&mut self, prefix: Prefix, hop: u32) -> Result<(), Trouble>;

    /// Takes a prefix out.
    ///
    /// # Errors
    /// It cannot.
    fn remove(&mut self, prefix: Prefix) -> Result<(), Trouble>;

    /// Lookups on a thread of their own while the table changes; none if it cannot be read meanwhile.
    fn apart(&self) -> Option<Arc<dyn Reader>> {
        None
    }

    /// Bytes that it has outside of this process' heap.
    fn outside_heap(&self) -> u64 {
        0
    }

    /// Bytes that lookups read, if it can say.
    fn walked(&self) -> Option<u64> {
        None
    }

    /// Lines of memory that a lookup of this address reads one after the other, if it can say.
    fn depth(&self, _address: u128) -> Option<u32> {
        None
    }
}

/// Context of the run for a subject.
#[derive(Debug)]
pub struct Environment {
    /// Addresses for BPF programs; none without root.
    pub harness: Option<Arc<Harness>>,
    /// For those who want them.
    pub huge_pages: HugePages,
}

impl Environment {
    /// # Errors
    /// Its feature is missing.
    pub fn harness(&self) -> Result<&Arc<Harness>, Trouble> {
        let none = || Trouble::Refused("BPF programs need root".into());
        self.harness.as_ref().ok_or_else(none)
    }
}

/// A kind of table, by the name that `--against` knows.
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
    /// All of them; the first two are ours.
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
            about: "the kernel's routing table, asked by bpf_fib_lookup from XDP",
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
            about: "a hash table of the standard library for each length, the longest asked first",
            place: Place::Process,
            open: |_, _| Ok(Box::new(crates::hashes())),
        },
    ];

    /// By name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name == name)
    }

    /// Whether it is Sidestep's.
    pub fn is_ours(self) -> bool {
        self.name.starts_with("sidestep")
    }

    /// An empty table that has room for these routes.
    ///
    /// # Errors
    /// Something is missing here.
    pub fn open(
        self,
        environment: &Environment,
        routes: &[Route],
    ) -> Result<Box<dyn Subject>, Trouble> {
        (self.open)(environment, routes)
    }
}
