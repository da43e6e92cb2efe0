//! The tables: handles to the maps, and the arrays among them mapped into this process, so that a
//! record is published by plain stores.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{
    HeaderSetId, RouteId, SIDESTEP_FLOW_SETS_TOTAL, SIDESTEP_HMAC_KEYS, SIDESTEP_LEARNED,
    SIDESTEP_LEARNED_TOTAL, SIDESTEP_PORTS, SIDESTEP_REASONS, SIDESTEP_REPORT_RATES,
    SIDESTEP_REPORT_RING, SIDESTEP_RESOLVE_REQUESTS, SIDESTEP_SESSIONS, SIDESTEP_STATIONS,
    TableIndex, ViewId, sidestep_adjacency, sidestep_flow_set, sidestep_group, sidestep_hmac_key,
    sidestep_hmac_work, sidestep_learned, sidestep_policy, sidestep_port, sidestep_port_counters,
    sidestep_report_rate, sidestep_resolve_request, sidestep_route, sidestep_route_counters,
    sidestep_session, sidestep_station, sidestep_station_key,
};
use libbpf_rs::{MapCore, MapHandle, MapType};

use sidestep_fib::{Fib, Memory as _};

use super::KernelError;
use super::fib;
use super::mapping::Mapping;
use super::stations;
use crate::image::{FibKey, Image, Limits};
use crate::learned;

/// Returns a further handle of a map.
pub(super) fn duplicate(map: &MapHandle) -> Result<MapHandle, KernelError> {
    MapHandle::try_from(map).map_err(|source| KernelError::System {
        operation: "duplicate the descriptor of a table",
        source: io::Error::other(source),
    })
}

/// The tables of `datapath/maps.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Ports by slot.
    Ports,
    /// Route records.
    Routes,
    /// Sets of next hops.
    Groups,
    /// Next hops.
    Adjacencies,
    /// Headers that headends push.
    Policies,
    /// Prefix to route.
    Fib,
    /// Counters per port.
    PortCounters,
    /// Counters per route.
    RouteCounters,
    /// Counters per drop and punt reason.
    ReasonCounters,
    /// Unresolved destinations.
    Unresolved,
    /// Header sets that dynamic SR proxies learned.
    Learned,
    /// Flows of dynamic SR proxies that learn per flow.
    FlowSets,
    /// Ring of reports for ICMP errors.
    Reports,
    /// Rate limit of reports per port.
    ReportRates,
    /// HMAC keys.
    HmacKeys,
    /// Working memory and cache of the HMAC code.
    HmacWork,
    /// Stations of bridges.
    Stations,
    /// Sessions of paths.
    Sessions,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 18] = [
        Self::Ports,
        Self::Routes,
        Self::Groups,
        Self::Adjacencies,
        Self::Policies,
        Self::Fib,
        Self::PortCounters,
        Self::RouteCounters,
        Self::ReasonCounters,
        Self::Unresolved,
        Self::Learned,
        Self::FlowSets,
        Self::Reports,
        Self::ReportRates,
        Self::HmacKeys,
        Self::HmacWork,
        Self::Stations,
        Self::Sessions,
    ];

    /// Name of the map.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ports => "ports",
            Self::Routes => "routes",
            Self::Groups => "groups",
            Self::Adjacencies => "adjacencies",
            Self::Policies => "policies",
            Self::Fib => "fib",
            Self::PortCounters => "port_counters",
            Self::RouteCounters => "route_counters",
            Self::ReasonCounters => "reason_counters",
            Self::Unresolved => "unresolved",
            Self::Learned => "learned",
            Self::FlowSets => "flow_sets",
            Self::Reports => "reports",
            Self::ReportRates => "report_rates",
            Self::HmacKeys => "hmac_keys",
            Self::HmacWork => "hmac_work",
            Self::Stations => "stations",
            Self::Sessions => "sessions",
        }
    }

    /// Returns whether the content of a record in use may change like this.
    pub(super) fn may_change<T: Record>(self, from: &T, to: &T) -> bool {
        match self {
            Self::Ports | Self::Adjacencies => true,
            // The path of a segment list, or its session and backup.
            Self::Policies => differ_only_in(from, to, &POLICY_WORDS),
            // The next hops of a nexthop object: any mixture of old and new slots has a route.
            Self::Groups => has_all_slots(from) && has_all_slots(to),
            _ => false,
        }
    }

    /// Entries of the map. Index 0 is never used, so an array of `limit` records has one more.
    pub(super) fn entries(self, limits: Limits) -> u32 {
        match self {
            Self::Ports | Self::PortCounters => SIDESTEP_PORTS,
            Self::ReportRates => SIDESTEP_REPORT_RATES,
            Self::Routes => limits.routes + 1,
            Self::Groups => limits.groups + 1,
            Self::Adjacencies => limits.adjacencies + 1,
            Self::Policies => limits.policies + 1,
            // The FIB is one value of many lines. The limit itself is kept by `apply`.
            Self::Fib | Self::HmacWork => 1,
            Self::RouteCounters => limits.route_counters + 1,
            Self::ReasonCounters => SIDESTEP_REASONS,
            Self::Unresolved => SIDESTEP_RESOLVE_REQUESTS,
            Self::Learned => SIDESTEP_LEARNED_TOTAL,
            Self::FlowSets => SIDESTEP_FLOW_SETS_TOTAL,
            // The size in bytes.
            Self::Reports => SIDESTEP_REPORT_RING,
            Self::HmacKeys => SIDESTEP_HMAC_KEYS + 1,
            Self::Stations => SIDESTEP_STATIONS,
            Self::Sessions => SIDESTEP_SESSIONS,
        }
    }

    /// Returns the limits that lead to these numbers of entries: the inverse of [`Table::entries`].
    /// No map holds the limit of prefixes: `fib`.
    pub(super) fn limits(entries: impl Fn(Self) -> u32, fib: u32) -> Limits {
        Limits {
            fib,
            routes: entries(Self::Routes).saturating_sub(1),
            groups: entries(Self::Groups).saturating_sub(1),
            adjacencies: entries(Self::Adjacencies).saturating_sub(1),
            policies: entries(Self::Policies).saturating_sub(1),
            route_counters: entries(Self::RouteCounters).saturating_sub(1),
        }
    }

    /// Type, key size and value size of the map.
    fn shape(self) -> (MapType, usize, usize) {
        match self {
            Self::Ports => (MapType::Array, 4, size_of::<sidestep_port>()),
            Self::Routes => (MapType::Array, 4, size_of::<sidestep_route>()),
            Self::Groups => (MapType::Array, 4, size_of::<sidestep_group>()),
            Self::Adjacencies => (MapType::Array, 4, size_of::<sidestep_adjacency>()),
            Self::Policies => (MapType::Array, 4, size_of::<sidestep_policy>()),
            Self::Fib => (MapType::Array, 4, fib::value_size(fib::LINES) as usize),
            Self::PortCounters => (MapType::PercpuArray, 4, size_of::<sidestep_port_counters>()),
            Self::RouteCounters => (
                MapType::PercpuArray,
                4,
                size_of::<sidestep_route_counters>(),
            ),
            Self::ReasonCounters => (MapType::PercpuArray, 4, 8),
            Self::Unresolved => (MapType::Array, 4, size_of::<sidestep_resolve_request>()),
            Self::Learned => (MapType::Array, 4, size_of::<sidestep_learned>()),
            Self::FlowSets => (MapType::Array, 4, size_of::<sidestep_flow_set>()),
            Self::Reports => (MapType::RingBuf, 0, 0),
            Self::ReportRates => (MapType::Array, 4, size_of::<sidestep_report_rate>()),
            Self::HmacKeys => (MapType::Array, 4, size_of::<sidestep_hmac_key>()),
            Self::HmacWork => (MapType::PercpuArray, 4, size_of::<sidestep_hmac_work>()),
            Self::Sessions => (MapType::Array, 4, size_of::<sidestep_session>()),
            Self::Stations => (
                MapType::Hash,
                size_of::<sidestep_station_key>(),
                size_of::<sidestep_station>(),
            ),
        }
    }

    /// `Err(found, expected)` if the map is not one of this binary's.
    pub(super) fn check(self, map: &MapHandle) -> Result<(), (String, String)> {
        let (map_type, key, value) = self.shape();
        let found = (
            map.map_type(),
            map.key_size() as usize,
            map.value_size() as usize,
        );
        let fits = match self {
            Self::Fib => (found.0, found.1) == (map_type, key) && fib::is_table(found.2),
            _ => found == (map_type, key, value),
        };
        if fits {
            return Ok(());
        }
        let text = |(map_type, key, value): (MapType, usize, usize)| {
            format!("{map_type:?}, key of {key} and value of {value} bytes")
        };
        Err((text(found), text((map_type, key, value))))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All maps. The arrays are mapped into this process.
#[derive(Debug)]
pub(super) struct Maps {
    /// In the order of [`Table::ALL`].
    handles: Vec<MapHandle>,
    pub(super) ports: Mapped<sidestep_port>,
    pub(super) routes: Mapped<sidestep_route>,
    pub(super) groups: Mapped<sidestep_group>,
    pub(super) adjacencies: Mapped<sidestep_adjacency>,
    pub(super) policies: Mapped<sidestep_policy>,
    pub(super) hmac_keys: Mapped<sidestep_hmac_key>,
    pub(super) fib: Fib<Mapping>,
    pub(super) unresolved: Mapped<sidestep_resolve_request>,
    pub(super) learned: Mapped<sidestep_learned>,
    pub(super) flow_sets: Mapped<sidestep_flow_set>,
    pub(super) report_rates: Mapped<sidestep_report_rate>,
    pub(super) sessions: Mapped<sidestep_session>,
}

impl Maps {
    /// From one handle per table, in the order of [`Table::ALL`], each checked with
    /// [`Table::check`]. Prefixes of a dead process stay in the prefix table until
    /// [`Fib::drop_foreign`] removes them.
    pub(super) fn new(handles: Vec<MapHandle>) -> Result<Self, KernelError> {
        debug_assert_eq!(handles.len(), Table::ALL.len());
        let handle = |table: Table| &handles[table as usize];
        Ok(Self {
            ports: Mapped::new(handle(Table::Ports))?,
            routes: Mapped::new(handle(Table::Routes))?,
            groups: Mapped::new(handle(Table::Groups))?,
            adjacencies: Mapped::new(handle(Table::Adjacencies))?,
            policies: Mapped::new(handle(Table::Policies))?,
            hmac_keys: Mapped::new(handle(Table::HmacKeys))?,
            fib: Fib::beside(Mapping::of_value(handle(Table::Fib))?),
            unresolved: Mapped::new(handle(Table::Unresolved))?,
            learned: Mapped::new(handle(Table::Learned))?,
            flow_sets: Mapped::new(handle(Table::FlowSets))?,
            report_rates: Mapped::new(handle(Table::ReportRates))?,
            sessions: Mapped::new(handle(Table::Sessions))?,
            handles,
        })
    }

    pub(super) fn handle(&self, table: Table) -> &MapHandle {
        &self.handles[table as usize]
    }

    /// In the order of [`Table::ALL`].
    pub(super) fn handles(&self) -> &[MapHandle] {
        &self.handles
    }

    /// Returns further handles of the tables, in the order of [`Table::ALL`].
    pub(super) fn duplicates(&self) -> Result<Vec<MapHandle>, KernelError> {
        self.handles.iter().map(duplicate).collect()
    }

    /// Returns the limits of these tables. `fib` is the limit of prefixes, because the prefix table
    /// grows.
    pub(super) fn limits(&self, fib: u32) -> Limits {
        Table::limits(|table| self.handle(table).max_entries(), fib)
    }

    /// Replaces the map of the prefix table.
    pub(super) fn replace_fib(&mut self, handle: MapHandle) {
        self.handles[Table::Fib as usize] = handle;
    }

    /// Clears the flows of dynamic proxies and the header sets of these flows. No packet reads them
    /// any more.
    pub(super) fn forget_learned(&self, proxies: &BTreeSet<HeaderSetId>) {
        for index in proxies {
            let proxy = self.learned.read(index.0);
            learned::flow_sets(&proxy).for_each(|set| self.flow_sets.clear(set));
            learned::chains(&proxy).for_each(|chain| self.learned.clear(chain));
        }
    }

    /// Reads all tables. Of the prefixes, the image contains only those that this process wrote.
    pub(super) fn image(&self) -> Image {
        let mut image = Image::default();
        image.ports.extend(
            self.ports
                .records()
                .map(|(_, port)| (port.ifindex, port))
                .filter(|(ifindex, _)| *ifindex != 0),
        );
        image.routes.extend(self.routes.indexed());
        image.groups.extend(self.groups.indexed());
        let adjacencies = self.adjacencies.indexed();
        let unused = adjacencies.map(|(index, it)| (index, without_used(it)));
        image.adjacencies.extend(unused);
        image.policies.extend(self.policies.indexed());
        image.hmac_keys.extend(self.hmac_keys.indexed());
        // The header sets of flows follow the records of proxies.
        let proxies = self.learned.indexed::<HeaderSetId>();
        let proxies = proxies.take_while(|(index, _)| index.0 <= SIDESTEP_LEARNED);
        let untaught = proxies.map(|(index, it)| (index, without_learned(&it)));
        image.learned.extend(untaught);
        image
            .stations
            .extend(stations::read(self.handle(Table::Stations)));
        for view in self.fib.views() {
            let prefixes = self.fib.prefixes(view);
            image.fib.extend(prefixes.map(|(prefix, route)| {
                let key = FibKey {
                    view: ViewId(view),
                    address: prefix.address.to_be_bytes(),
                    length: prefix.length,
                };
                (key, RouteId(route))
            }));
        }
        image
    }
}

/// Returns the record as it was published. Packets set `used`.
fn without_used(adjacency: sidestep_adjacency) -> sidestep_adjacency {
    sidestep_adjacency {
        used: 0,
        ..adjacency
    }
}

/// Returns the record as it was published. Packets write the header sets.
fn without_learned(learned: &sidestep_learned) -> sidestep_learned {
    sidestep_learned {
        used: learned.used,
        age: learned.age,
        flows: learned.flows,
        table: learned.table,
        seed: learned.seed,
        ..Default::default()
    }
}

/// A record of an array map.
///
/// # Safety
/// `repr(C)` of integers without padding, a multiple of 8 bytes, for which every bit pattern is a
/// value.
pub(super) unsafe trait Record: Copy + Default {}

// SAFETY: datapath/abi.h asserts size and layout of each; all their fields are integers and arrays
// of them.
unsafe impl Record for sidestep_port {}
// SAFETY: as above.
unsafe impl Record for sidestep_route {}
// SAFETY: as above.
unsafe impl Record for sidestep_group {}
// SAFETY: as above.
unsafe impl Record for sidestep_adjacency {}
// SAFETY: as above.
unsafe impl Record for sidestep_policy {}
// SAFETY: as above.
unsafe impl Record for sidestep_hmac_key {}
// SAFETY: as above.
unsafe impl Record for sidestep_resolve_request {}
// SAFETY: as above.
unsafe impl Record for sidestep_learned {}
// SAFETY: as above.
unsafe impl Record for sidestep_flow_set {}
// SAFETY: as above.
unsafe impl Record for sidestep_session {}
// SAFETY: report.h asserts the size; all its fields are integers.
unsafe impl Record for sidestep_report_rate {}

/// An array map in this process's memory, which packets read at the same time. Every access is of
/// an aligned word of 8 bytes; the first word of a record says whether it means anything, and is
/// written last and cleared first.
#[derive(Debug)]
pub(super) struct Mapped<T> {
    mapping: Mapping,
    len: u32,
    record: PhantomData<T>,
}

impl<T: Record> Mapped<T> {
    const WORDS: usize = {
        assert!(size_of::<T>().is_multiple_of(8));
        size_of::<T>() / 8
    };

    /// [`Table::check`] has seen that its values are of `T`'s size: a multiple of 8 bytes, so they
    /// follow each other without gaps.
    pub(super) fn new(map: &MapHandle) -> Result<Self, KernelError> {
        let len = map.max_entries();
        Ok(Self {
            mapping: Mapping::new(map, len as usize * size_of::<T>())?,
            len,
            record: PhantomData,
        })
    }

    /// The words of all records, and the number of records.
    pub(super) fn all(&self) -> (&[AtomicU64], u32) {
        (self.mapping.words(), self.len)
    }

    /// The words of a record.
    ///
    /// # Panics
    /// If the index is beyond the table: the caller compares it with the limits.
    pub(super) fn words(&self, index: u32) -> &[AtomicU64] {
        assert!(index < self.len, "record {index} of {}", self.len);
        let start = index as usize * Self::WORDS;
        &self.mapping.words()[start..start + Self::WORDS]
    }

    /// The record as it is.
    pub(super) fn read(&self, index: u32) -> T {
        let mut record = T::default();
        let to = std::ptr::from_mut(&mut record).cast::<u64>();
        for (i, word) in self.words(index).iter().enumerate() {
            // SAFETY: the i-th word of a record of WORDS words; Record: any bit pattern is a value.
            unsafe { to.add(i).write_unaligned(word.load(Ordering::Acquire)) };
        }
        record
    }

    /// The records that are not all zeros. (The first word of an adjacency is zero while its
    /// neighbor is unresolved.)
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, T)> + '_ {
        (0..self.len)
            .filter(|&index| {
                self.words(index)
                    .iter()
                    .any(|word| word.load(Ordering::Acquire) != 0)
            })
            .map(|index| (index, self.read(index)))
    }

    /// Returns the records of [`Mapped::records`] with typed indices.
    pub(super) fn indexed<I: TableIndex>(&self) -> impl Iterator<Item = (I, T)> + '_ {
        let records = self.records();
        records.map(|(index, record)| (index.into(), record))
    }

    /// Writes the whole record, the first word last.
    pub(super) fn publish(&self, index: u32, record: &T) {
        for (i, to) in self.words(index).iter().enumerate().skip(1) {
            to.store(word(record, i), Ordering::Relaxed);
        }
        self.publish_first(index, record);
    }

    /// Writes the first 8 bytes in one store.
    pub(super) fn publish_first(&self, index: u32, record: &T) {
        self.words(index)[0].store(word(record, 0), Ordering::Release);
    }

    /// Writes these words of the record, in this order.
    pub(super) fn publish_words(&self, index: u32, record: &T, words: &[usize]) {
        for &i in words {
            self.words(index)[i].store(word(record, i), Ordering::Release);
        }
    }

    /// Clears the first 8 bytes in one store: the record means nothing from now on.
    pub(super) fn retract(&self, index: u32) {
        self.words(index)[0].store(0, Ordering::Release);
    }

    /// Reads the word at this offset of the record, and clears it.
    pub(super) fn take_word(&self, index: u32, offset: usize) -> u64 {
        let word = &self.words(index)[offset / 8];
        // Without a store where there is nothing to clear: packets read the record.
        if word.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        word.swap(0, Ordering::Relaxed)
    }

    /// Clears the whole record, the first word first.
    pub(super) fn clear(&self, index: u32) {
        for to in self.words(index) {
            to.store(0, Ordering::Release);
        }
    }
}

/// The first word of a record, or another one.
fn word<T: Record>(record: &T, i: usize) -> u64 {
    debug_assert!(i < Mapped::<T>::WORDS);
    // SAFETY: the i-th word of a record of WORDS words without padding.
    unsafe {
        std::ptr::from_ref(record)
            .cast::<u64>()
            .add(i)
            .read_unaligned()
    }
}

/// Words of a policy that change while it is in use: its path; its session and backup.
pub(super) const POLICY_WORDS: [usize; 2] = [0, 2];

/// Words of an adjacency that change while it is in use: its backup; its neighbor and state.
pub(super) const ADJACENCY_WORDS: [usize; 2] = [2, 0];

/// Whether two adjacencies differ in nothing but their neighbor, state and backup.
pub(super) fn keeps_its_link(a: &sidestep_adjacency, b: &sidestep_adjacency) -> bool {
    a.ifindex == b.ifindex && differ_only_in(a, b, &ADJACENCY_WORDS)
}

/// Whether two records differ in nothing but these words.
fn differ_only_in<T: Record>(a: &T, b: &T, words: &[usize]) -> bool {
    (0..Mapped::<T>::WORDS).all(|i| words.contains(&i) || word(a, i) == word(b, i))
}

/// Returns whether all slots of a group have a route, including those that are not in use. The first
/// word has the number of slots and the seed.
fn has_all_slots<T: Record>(group: &T) -> bool {
    (1..Mapped::<T>::WORDS).all(|i| {
        let word = word(group, i);
        word as u32 != 0 && word >> 32 != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_limits_are_each_others_inverse() {
        let limits = Limits::default();
        assert_eq!(
            Table::limits(|table| table.entries(limits), limits.fib),
            limits
        );
    }

    #[test]
    fn the_neighbor_and_the_backup_of_an_adjacency_may_differ() {
        let a = sidestep_adjacency {
            mtu: 1500,
            ..Default::default()
        };
        let b = sidestep_adjacency {
            destination: [2; 6],
            flags: 3,
            backup: RouteId(7),
            ..a
        };
        assert!(keeps_its_link(&a, &b));
        let source = [2; 6];
        for other in [
            sidestep_adjacency { source, ..a },
            sidestep_adjacency { mtu: 1400, ..a },
            sidestep_adjacency { ifindex: 9, ..a },
        ] {
            assert!(!keeps_its_link(&a, &other));
        }
    }
}
