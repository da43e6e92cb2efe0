//! The content of every table, by index: what the compiler produces, what [`crate::Native`] runs on and what
//! the kernel's maps are brought to.

use std::collections::BTreeMap;

use crate::abi::{
    sidestep_adjacency, sidestep_group, sidestep_hmac_key, sidestep_learned, sidestep_policy,
    sidestep_port, sidestep_route,
};
use sidestep_fib::Prefix;

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

impl From<FibKey> for Prefix {
    fn from(key: FibKey) -> Self {
        Self::new(u128::from_be_bytes(key.address), key.length)
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
    /// From 1, by slot and not by key id.
    pub hmac_keys: BTreeMap<u32, sidestep_hmac_key>,
    /// From 1. As it is written, with nothing learned yet: what is learned is the packet path's.
    pub learned: BTreeMap<u32, sidestep_learned>,
    /// Prefix to route index.
    pub fib: BTreeMap<FibKey, u32>,
}

impl Image {
    /// The prefixes of one view, in order, with their route.
    pub fn view(&self, view: u32) -> impl Iterator<Item = (Prefix, u32)> + '_ {
        let first = FibKey {
            view,
            address: [0; 16],
            length: 0,
        };
        self.fib
            .range(first..)
            .take_while(move |(key, _)| key.view == view)
            .map(|(key, route)| (Prefix::from(*key), *route))
    }

    /// Whether a port, a route or a policy leads into a view.
    pub fn leads_to(&self, view: u32) -> bool {
        let ports = self.ports.values();
        let mut of_ports = ports.flat_map(|it| [it.view6, it.view4, it.domain, it.hmac_keys]);
        let mut of_routes = self.routes.values().flat_map(|it| [it.view6, it.view4]);
        let mut of_policies = self.policies.values().map(|it| it.view);
        of_ports.any(|it| it == view)
            || of_routes.any(|it| it == view)
            || of_policies.any(|it| it == view)
    }

    /// The views that have prefixes, with their number.
    pub fn views(&self) -> BTreeMap<u32, usize> {
        let mut views = BTreeMap::new();
        for key in self.fib.keys() {
            *views.entry(key.view).or_insert(0) += 1;
        }
        views
    }
}

/// LIMIT: views of the prefix table: chains of tables that ports and SIDs look packets up in.
pub const VIEWS: u32 = sidestep_fib::layout::VIEWS as u32;

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
