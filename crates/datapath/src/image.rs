//! The content of every table, by index: what the compiler produces, what [`crate::Native`] runs on and what
//! the kernel's maps are brought to.

use std::collections::BTreeMap;

use sidestep_abi::{
    sidestep_adjacency, sidestep_fib_key, sidestep_group, sidestep_policy, sidestep_port,
    sidestep_route,
};

/// A longest-prefix-match key: view, prefix bytes (network order, IPv4 in the first four), prefix length in bits
/// (0 to 128; of an IPv4 prefix 0 to 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FibKey {
    /// FIB view, 1 and up.
    pub view: u32,
    /// Prefix, host bits zero.
    pub address: [u8; 16],
    /// Prefix length in bits.
    pub length: u8,
}

impl From<FibKey> for sidestep_fib_key {
    fn from(key: FibKey) -> Self {
        Self {
            prefix_length: 32 + u32::from(key.length),
            view: key.view,
            address: key.address,
        }
    }
}

/// The content of every table. Records are keyed by their index; an index never changes its meaning while it is in
/// use, except for the first 8 bytes of an adjacency (see `datapath/abi.h`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// By interface index (the map's slot is the index modulo `SIDESTEP_PORTS`).
    pub ports: BTreeMap<u32, sidestep_port>,
    /// From 1.
    pub routes: BTreeMap<u32, sidestep_route>,
    /// From 1.
    pub groups: BTreeMap<u32, sidestep_group>,
    /// From 1.
    pub adjacencies: BTreeMap<u32, sidestep_adjacency>,
    /// From 1.
    pub policies: BTreeMap<u32, sidestep_policy>,
    /// Prefix to route index.
    pub fib: BTreeMap<FibKey, u32>,
}

/// Sizes of the tables: the product's limits, shown by `sidestep show limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// LIMIT: prefixes in all views together.
    pub fib: u32,
    /// LIMIT: distinct route records.
    pub routes: u32,
    /// LIMIT: distinct sets of next hops of multipath routes.
    pub groups: u32,
    /// LIMIT: distinct next hops.
    pub adjacencies: u32,
    /// LIMIT: distinct segment lists at headends.
    pub policies: u32,
    /// LIMIT: routes that are counted one by one.
    pub route_counters: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fib: 1 << 20,
            routes: 1 << 17,
            groups: 1 << 12,
            adjacencies: 1 << 15,
            policies: 1 << 13,
            route_counters: 1 << 16,
        }
    }
}
