//! Content of every table by index. The compiler produces it, [`crate::Native`] runs on it, and
//! [`crate::Kernel`] publishes it to the BPF maps.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::abi::{
    AdjacencyId, GroupId, HeaderSetId, KeySlot, PolicyId, RouteId, ViewId, sidestep_adjacency,
    sidestep_group, sidestep_hmac_key, sidestep_learned, sidestep_policy, sidestep_port,
    sidestep_route,
};
use sidestep_fib::Prefix;

/// Key of the prefix table. Ordered by its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FibKey {
    /// View of the prefix table, never `NONE`.
    pub view: ViewId,
    /// Prefix in network order with host bits zero. IPv4 occupies the first four bytes.
    pub address: [u8; 16],
    /// Prefix length in bits: 0 to 128, for IPv4 0 to 32.
    pub length: u8,
}

// PERF: an array compares more slowly than a number.
impl Ord for FibKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let fields = |key: &Self| (key.view, u128::from_be_bytes(key.address), key.length);
        fields(self).cmp(&fields(other))
    }
}

impl PartialOrd for FibKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FibKey {
    /// The first key of a view.
    pub fn first(view: ViewId) -> Self {
        Self {
            view,
            address: [0; 16],
            length: 0,
        }
    }
}

impl From<FibKey> for Prefix {
    fn from(key: FibKey) -> Self {
        Self::new(u128::from_be_bytes(key.address), key.length)
    }
}

/// Station of a bridge. Ordered by its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StationKey {
    /// Interface index of the bridge.
    pub bridge: u32,
    /// Ethernet address.
    pub mac: [u8; 6],
}

/// Passes the list of record tables to the macro `$then`. A new table is a new line here.
///
/// Each line has the field of [`Image`] and [`crate::Delta`], the index type, the record type, the
/// variant of [`crate::kernel::Table`], and the limit as a function of [`Limits`]. A table stands
/// before the tables that its records refer to. Routes and groups refer to each other.
macro_rules! record_tables {
    ($then:ident) => {
        $then! {
            routes: RouteId => sidestep_route, Routes, |limits| limits.routes;
            groups: GroupId => sidestep_group, Groups, |limits| limits.groups;
            policies: PolicyId => sidestep_policy, Policies, |limits| limits.policies;
            hmac_keys: KeySlot => sidestep_hmac_key, HmacKeys, |_| SIDESTEP_HMAC_KEYS;
            learned: HeaderSetId => sidestep_learned, Learned, |_| SIDESTEP_LEARNED;
            adjacencies: AdjacencyId => sidestep_adjacency, Adjacencies, |limits| limits.adjacencies;
        }
    };
}
pub(crate) use record_tables;

macro_rules! define_image {
    ($($field:ident: $index:ty => $record:ty, $table:ident, $limit:expr;)*) => {
        /// Content of every table. Records are keyed by their index, which is never 0. An index
        /// keeps its meaning while it is in use, except for the first 8 bytes of an adjacency and the
        /// path of a policy (see `datapath/abi.h`).
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Image {
            /// Ports by interface index. The slot in the map is the index modulo `SIDESTEP_PORTS`.
            pub ports: BTreeMap<u32, sidestep_port>,
            /// Port toward each station, by interface index.
            pub stations: BTreeMap<StationKey, u32>,
            $(
                /// Records by index.
                pub $field: BTreeMap<$index, $record>,
            )*
            /// Route of each prefix.
            pub fib: BTreeMap<FibKey, RouteId>,
        }
    };
}
record_tables!(define_image);

impl Image {
    /// Returns the prefixes of one view in order, each with its route.
    pub fn view(&self, view: ViewId) -> impl Iterator<Item = (Prefix, RouteId)> + '_ {
        self.fib
            .range(FibKey::first(view)..)
            .take_while(move |(key, _)| key.view == view)
            .map(|(key, route)| (Prefix::from(*key), *route))
    }

    /// Returns every view that a port, a route or a policy refers to. Views repeat.
    pub fn referenced_views(&self) -> impl Iterator<Item = ViewId> + '_ {
        let of_ports = self.ports.values().flat_map(sidestep_port::views);
        let of_routes = self.routes.values().flat_map(sidestep_route::views);
        let of_policies = self.policies.values().flat_map(sidestep_policy::views);
        let all = of_ports.chain(of_routes).chain(of_policies);
        all.filter(|view| view.is_some())
    }

    /// Whether a port, a route or a policy refers to a view.
    pub fn leads_to(&self, view: ViewId) -> bool {
        self.referenced_views().any(|it| it == view)
    }

    /// Returns the views that have prefixes, with the number of prefixes.
    pub fn views(&self) -> BTreeMap<ViewId, usize> {
        let mut views = BTreeMap::new();
        for key in self.fib.keys() {
            *views.entry(key.view).or_insert(0) += 1;
        }
        views
    }
}

/// LIMIT: views of the prefix table, one per chain of tables that ports and SIDs look packets up
/// in.
pub const VIEWS: u32 = sidestep_fib::layout::VIEWS as u32 - 1;

/// View without prefixes, behind those that the compiler assigns.
pub const EMPTY_VIEW: ViewId = ViewId(VIEWS);

/// Sizes of the tables: the product's limits, which `sidestep show limits` prints.
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
    /// LIMIT: routes with counters of their own.
    pub route_counters: u32,
}

impl Limits {
    /// Names of the tables whose size can be set.
    pub const TABLES: [&str; 6] = [
        "prefixes",
        "routes",
        "groups",
        "adjacencies",
        "policies",
        "route-counters",
    ];

    /// Returns the size of a table; none if the name is unknown.
    pub fn size(mut self, name: &str) -> Option<u32> {
        self.table(name).copied()
    }

    fn table(&mut self, name: &str) -> Option<&mut u32> {
        Some(match name {
            "prefixes" => &mut self.fib,
            "routes" => &mut self.routes,
            "groups" => &mut self.groups,
            "adjacencies" => &mut self.adjacencies,
            "policies" => &mut self.policies,
            "route-counters" => &mut self.route_counters,
            _ => return None,
        })
    }

    /// Sets the size of a table.
    ///
    /// # Errors
    /// The name is unknown, or the table cannot have this size.
    pub fn set(&mut self, name: &str, size: u32) -> Result<(), String> {
        // With a larger value, the size of a map in bytes overflows.
        if !(2..=1 << 24).contains(&size) {
            return Err("the size must be a number from 2 to 16777216".into());
        }
        let tables = || Self::TABLES.join(", ");
        let no_table = || format!("no such table; the tables are {}", tables());
        *self.table(name).ok_or_else(no_table)? = size;
        Ok(())
    }
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
