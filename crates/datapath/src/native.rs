//! The packet path as a function in this process: frame in, verdict and frame out, with every step
//! on request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{
    CounterId, HeaderSetId, Reason, RouteId, SIDESTEP_FLOW_SETS, SIDESTEP_HEADER_SETS,
    SIDESTEP_LEARNED, SIDESTEP_PORTS, SIDESTEP_REASONS, TableIndex, ViewId, sidestep_adjacency,
    sidestep_flow_set, sidestep_group, sidestep_hmac_key, sidestep_hmac_work, sidestep_learned,
    sidestep_policy, sidestep_port, sidestep_port_counters, sidestep_route,
    sidestep_route_counters, sidestep_session, sidestep_station, sidestep_station_key,
    sidestep_trace,
};

use sidestep_fib::{Fib, Heap, Memory, VIEW_LINES};

use crate::image::Image;
use crate::learned::{self, Knowledge};
use crate::report::{Copied, Oversized, Report, Reported};

#[allow(non_camel_case_types, missing_docs, dead_code, clippy::pedantic)]
pub(crate) mod ffi {
    use crate::abi::*;
    include!(concat!(env!("OUT_DIR"), "/native.rs"));
}

/// Bytes in front of a frame that behaviors may push headers into.
const HEADROOM: usize = 512;
/// LIMIT: the largest frame.
pub const FRAME_MAX: usize = 65_535 + 14;

/// Verdict for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Sent out of this interface.
    Forward {
        /// Egress interface index.
        ifindex: u32,
    },
    /// Left to the kernel.
    Punt(&'static Reason),
    /// Dropped.
    Drop(&'static Reason),
}

impl Verdict {
    /// From the numbers of `struct sidestep_outcome`. Returns `None` for numbers that the packet
    /// path does not use.
    pub(crate) fn from_numbers(kind: u32, ifindex: u32, reason: u32) -> Option<Self> {
        match kind {
            ffi::SIDESTEP_OUTCOME_FORWARD => Some(Self::Forward { ifindex }),
            ffi::SIDESTEP_OUTCOME_PUNT => Reason::from_number(reason).map(Self::Punt),
            ffi::SIDESTEP_OUTCOME_DROP => Reason::from_number(reason).map(Self::Drop),
            _ => None,
        }
    }

    /// Which of the three it is.
    pub fn kind(self) -> VerdictKind {
        match self {
            Self::Forward { .. } => VerdictKind::Forward,
            Self::Punt(_) => VerdictKind::Punt,
            Self::Drop(_) => VerdictKind::Drop,
        }
    }
}

/// Kind of a verdict, without its egress or reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictKind {
    /// Sent out of an interface.
    Forward,
    /// Left to the kernel.
    Punt,
    /// Dropped.
    Drop,
}

impl VerdictKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Punt, Self::Drop];

    /// The operator's word for it: `forward`, `punt`, `drop`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Punt => "punt",
            Self::Drop => "drop",
        }
    }

    /// Its number in `struct sidestep_outcome`.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Forward => ffi::SIDESTEP_OUTCOME_FORWARD,
            Self::Punt => ffi::SIDESTEP_OUTCOME_PUNT,
            Self::Drop => ffi::SIDESTEP_OUTCOME_DROP,
        }
    }
}

/// One step of a packet's way; `kind` is one of `SIDESTEP_TRACE_*`.
pub type Trace = sidestep_trace;

/// The native target with its tables and counters.
pub struct Native {
    ports: Vec<sidestep_port>,
    /// In the order of their keys' bytes.
    stations: Vec<ffi::sidestep_native_station>,
    routes: Vec<sidestep_route>,
    groups: Vec<sidestep_group>,
    adjacencies: Vec<sidestep_adjacency>,
    policies: Vec<sidestep_policy>,
    hmac_keys: Vec<sidestep_hmac_key>,
    /// One.
    hmac_work: Vec<sidestep_hmac_work>,
    /// [`learned::WORDS`] for each record.
    learned: Arc<[AtomicU64]>,
    /// [`SET_WORDS`] for each set.
    flow_sets: Arc<[AtomicU64]>,
    sessions: Vec<sidestep_session>,
    now: u64,
    fib: Fib<Heap>,
    port_counters: Vec<sidestep_port_counters>,
    route_counters: Vec<sidestep_route_counters>,
    reason_counters: Vec<u64>,
    buffer: Vec<u8>,
    headroom: usize,
    frame: Box<ffi::sidestep_native>,
}

/// The prefix table of an image, in memory that is just large enough.
fn fib(image: &Image) -> Fib<Heap> {
    // An edge at both ends of a prefix and, longer than 64 bits, of its /64, each in a tree's leaf
    // of its own at worst.
    let mut lines = (VIEW_LINES + 64 + image.fib.len() * 16).next_power_of_two();
    loop {
        let mut fib = Fib::new(Heap::new(lines));
        let written = image.views().into_keys().try_for_each(|view| {
            let prefixes = image.view(view);
            fib.replace(view.0, prefixes.map(|(prefix, route)| (prefix, route.0)))
        });
        if written.is_ok() {
            return fib;
        }
        lines *= 2;
    }
}

impl Image {
    /// All that a view says, as [`crate::Kernel::intervals`] gives it: where each interval of
    /// addresses begins, and its route index (0: none).
    pub fn intervals(&self, view: ViewId) -> Vec<(u128, RouteId)> {
        typed(sidestep_fib::walk::intervals(fib(self).memory(), view.0))
    }
}

/// Gives the intervals of a view their type.
pub(crate) fn typed(intervals: Vec<(u128, u32)>) -> Vec<(u128, RouteId)> {
    let typed = intervals.into_iter();
    typed
        .map(|(first, route)| (first, RouteId(route)))
        .collect()
}

/// Whether the processor has instructions for SHA-1 and SHA-256, those of
/// `datapath/hmac/sha_x86.h`.
fn has_sha() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("sha")
            && std::is_x86_feature_detected!("sse4.1")
            && std::is_x86_feature_detected!("ssse3")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// The stations in the order of their keys' bytes.
fn stations(image: &Image) -> Vec<ffi::sidestep_native_station> {
    let stations = image.stations.iter();
    let stations = stations.map(|(key, port)| ffi::sidestep_native_station {
        key: sidestep_station_key {
            bridge: key.bridge,
            mac: key.mac,
            reserved: 0,
        },
        station: sidestep_station {
            port: *port,
            used: 0,
        },
    });
    let mut stations: Vec<_> = stations.collect();
    stations.sort_by_key(|it| (it.key.bridge.to_ne_bytes(), it.key.mac));
    stations
}

/// A table indexed from 0, with the unused indices empty.
fn dense<I: TableIndex, T: Clone + Default>(records: &BTreeMap<I, T>) -> Vec<T> {
    let place = |index: I| -> usize { index.into() as usize };
    let length = records
        .last_key_value()
        .map_or(1, |(&last, _)| place(last) + 1);
    let mut table = vec![T::default(); length];
    for (&index, record) in records {
        table[place(index)] = record.clone();
    }
    table
}

/// Words of 8 bytes of a set of flows.
const SET_WORDS: usize = size_of::<sidestep_flow_set>() / 8;

/// The tables of flows up to the last one in use.
fn flow_tables(image: &Image) -> u32 {
    let tables = image.learned.values().map(|learned| learned.table.0);
    tables.max().unwrap_or(0)
}

fn zeros(words: usize) -> Arc<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// The records of dynamic proxies, which have learned nothing.
fn untaught(image: &Image) -> Arc<[AtomicU64]> {
    let records = dense(&image.learned);
    let count = match flow_tables(image) {
        0 => records.len() as u32,
        tables => SIDESTEP_LEARNED + 1 + tables * SIDESTEP_HEADER_SETS,
    };
    let words = zeros(count as usize * learned::WORDS);
    for (words, record) in words.chunks_exact(learned::WORDS).zip(&records) {
        learned::write(words, record);
    }
    words
}

impl Native {
    /// The native target with these tables and all counters at zero.
    pub fn new(image: &Image) -> Self {
        let mut ports = vec![sidestep_port::default(); SIDESTEP_PORTS as usize];
        for (&ifindex, port) in &image.ports {
            ports[(ifindex % SIDESTEP_PORTS) as usize] = *port;
        }
        let counters = image
            .routes
            .values()
            .map(|route| route.counter.0)
            .max()
            .unwrap_or(0) as usize
            + 1;
        Self {
            ports,
            stations: stations(image),
            routes: dense(&image.routes),
            groups: dense(&image.groups),
            adjacencies: dense(&image.adjacencies),
            policies: dense(&image.policies),
            hmac_keys: dense(&image.hmac_keys),
            hmac_work: vec![sidestep_hmac_work::default()],
            learned: untaught(image),
            flow_sets: zeros((flow_tables(image) * SIDESTEP_FLOW_SETS) as usize * SET_WORDS),
            sessions: vec![],
            now: 0,
            fib: fib(image),
            port_counters: vec![sidestep_port_counters::default(); SIDESTEP_PORTS as usize],
            route_counters: vec![sidestep_route_counters::default(); counters],
            reason_counters: vec![0; SIDESTEP_REASONS as usize],
            buffer: vec![0; HEADROOM + FRAME_MAX],
            headroom: HEADROOM,
            // SAFETY: plain integers and pointers, for which zero is a value; `run` sets them.
            frame: Box::new(unsafe { std::mem::zeroed() }),
        }
    }

    /// Runs one Ethernet frame that arrived on `ifindex`. At most [`FRAME_MAX`] bytes are looked
    /// at. The frame as it leaves, and the steps, are read with [`Native::frame`] and
    /// [`Native::trace`] until the next run.
    pub fn run(&mut self, ifindex: u32, frame: &[u8]) -> Verdict {
        let length = frame.len().min(FRAME_MAX);
        self.buffer[HEADROOM..HEADROOM + length].copy_from_slice(&frame[..length]);
        let tables = ffi::sidestep_native_tables {
            ports: self.ports.as_ptr(),
            stations: self.stations.as_mut_ptr(),
            routes: self.routes.as_ptr(),
            groups: self.groups.as_ptr(),
            adjacencies: self.adjacencies.as_ptr(),
            policies: self.policies.as_ptr(),
            hmac_keys: self.hmac_keys.as_ptr(),
            hmac_work: self.hmac_work.as_mut_ptr(),
            learned: self.learned.as_ptr().cast_mut().cast(),
            flow_sets: self.flow_sets.as_ptr().cast_mut().cast(),
            sessions: self.sessions.as_mut_ptr(),
            now: self.now,
            learned_count: (self.learned.len() / learned::WORDS) as u32,
            flow_set_count: (self.flow_sets.len() / SET_WORDS) as u32,
            route_count: self.routes.len() as u32,
            station_count: self.stations.len() as u32,
            group_count: self.groups.len() as u32,
            adjacency_count: self.adjacencies.len() as u32,
            policy_count: self.policies.len() as u32,
            hmac_key_count: self.hmac_keys.len() as u32,
            route_counter_count: self.route_counters.len() as u32,
            session_count: self.sessions.len() as u32,
            port_counters: self.port_counters.as_mut_ptr(),
            route_counters: self.route_counters.as_mut_ptr(),
            reason_counters: self.reason_counters.as_mut_ptr(),
            fib: self.fib.memory().words().as_ptr().cast(),
            fib_lines: self.fib.memory().lines() as u32,
            sha: u32::from(has_sha()),
        };
        let start = self.buffer.as_mut_ptr();
        // SAFETY: all four pointers lie within or one past `buffer`, which is not resized during
        // the call.
        unsafe {
            self.frame.head = start.add(HEADROOM - self.headroom);
            self.frame.data = start.add(HEADROOM);
            self.frame.end = start.add(HEADROOM + length);
            self.frame.limit = start.add(self.buffer.len());
        }
        self.frame.ifindex = ifindex;
        self.frame.tables = &raw const tables;
        // SAFETY: the tables and the frame are valid for the call, and the lengths given are
        // theirs.
        let outcome = unsafe { ffi::sidestep_native_run(&raw mut *self.frame) };
        self.frame.tables = std::ptr::null();

        Verdict::from_numbers(outcome.kind, outcome.ifindex, outcome.reason)
            .expect("the packet path gives verdicts and reasons of its own tables")
    }

    /// The frame of the last run as it is now.
    pub fn frame(&self) -> &[u8] {
        let start = self.frame.data as usize - self.buffer.as_ptr() as usize;
        let end = self.frame.end as usize - self.buffer.as_ptr() as usize;
        &self.buffer[start..end]
    }

    /// Limits the headroom in front of a frame, as a driver with little headroom does.
    #[doc(hidden)]
    pub fn set_headroom(&mut self, bytes: usize) {
        self.headroom = bytes.min(HEADROOM);
    }

    /// Returns the record of the dynamic proxy at this index.
    pub fn learned(&self, index: HeaderSetId) -> Option<sidestep_learned> {
        self.learned_words(index.0).map(learned::read)
    }

    /// The flows of that proxy; Returns `None` if the proxy does not learn per flow.
    pub fn flows(&self, index: HeaderSetId) -> Option<learned::Flows> {
        let set = |set: u32| &self.flow_sets[set as usize * SET_WORDS..][..SET_WORDS];
        learned::flows(&self.learned(index)?, set)
    }

    /// As if a proxy had learned this, of a node with the same tables; without such a proxy,
    /// nothing.
    pub fn set_knowledge(&mut self, knowledge: &Knowledge) {
        for (index, record) in &knowledge.records {
            learned::write(self.learned_words(*index).unwrap_or_default(), record);
        }
        for (index, set) in &knowledge.flow_sets {
            let start = *index as usize * SET_WORDS;
            let to = self.flow_sets.get(start..start + SET_WORDS);
            for (to, word) in to.unwrap_or_default().iter().zip(set) {
                to.store(*word, Ordering::Relaxed);
            }
        }
    }

    /// Shares the header sets of another target, as two CPUs of a machine do.
    #[doc(hidden)]
    pub fn learn_with(&mut self, other: &Self) {
        self.learned = Arc::clone(&other.learned);
        self.flow_sets = Arc::clone(&other.flow_sets);
    }

    /// Sets the sessions, from index 0. A new target has no sessions.
    pub fn set_sessions(&mut self, sessions: Vec<sidestep_session>) {
        self.sessions = sessions;
    }

    /// Returns the sessions, from index 0.
    pub fn sessions(&self) -> &[sidestep_session] {
        &self.sessions
    }

    fn learned_words(&self, index: u32) -> Option<&[AtomicU64]> {
        let start = index as usize * learned::WORDS;
        self.learned.get(start..start + learned::WORDS)
    }

    /// The time, in nanoseconds: dynamic proxies learn again after their `age`. It stands still
    /// until it is set.
    pub fn set_now(&mut self, nanoseconds: u64) {
        self.now = nanoseconds;
    }

    /// Treats every frame as an aggregate with this segment size in bytes, as TC receives it; 0
    /// disables this.
    #[doc(hidden)]
    pub fn set_segment_size(&mut self, bytes: u32) {
        self.frame.segment_size = bytes;
    }

    /// Fills all of the buffer that a run does not itself fill: what would leave in a frame if the
    /// packet path sent bytes that it never wrote.
    #[doc(hidden)]
    pub fn fill(&mut self, byte: u8) {
        self.buffer.fill(byte);
    }

    /// Returns the bytes of the buffer before and behind the part that the last run was allowed to
    /// use. `arrived`: bytes of the frame that it was given.
    #[doc(hidden)]
    pub fn surroundings(&self, arrived: usize) -> [&[u8]; 2] {
        let start = self.frame.first as usize - self.buffer.as_ptr() as usize;
        let end = self.frame.end as usize - self.buffer.as_ptr() as usize;
        [
            &self.buffer[..start.min(HEADROOM)],
            &self.buffer[end.max(HEADROOM + arrived.min(FRAME_MAX))..],
        ]
    }

    /// The steps of the last run, in order.
    pub fn trace(&self) -> &[Trace] {
        &self.frame.trace[..self.frame.traces as usize]
    }

    /// Returns the report for an ICMP error from the last run.
    pub fn report(&self) -> Option<Report> {
        self.reported().find_map(|reported| match reported {
            Reported::Error(report) => Some(report),
            Reported::Copy(_) | Reported::Fragment(_) => None,
        })
    }

    /// Copies of the packet of the last run, for its O-flag: one for each SID that processed its
    /// SRH.
    pub fn copies(&self) -> Vec<Copied> {
        let copy = |reported| match reported {
            Reported::Copy(copied) => Some(copied),
            Reported::Error(_) | Reported::Fragment(_) => None,
        };
        self.reported().filter_map(copy).collect()
    }

    /// Returns the frame of the last run that is to be sent in fragments.
    pub fn oversized(&self) -> Option<Oversized> {
        self.reported().find_map(|reported| match reported {
            Reported::Fragment(oversized) => Some(oversized),
            Reported::Error(_) | Reported::Copy(_) => None,
        })
    }

    fn reported(&self) -> impl Iterator<Item = Reported> + '_ {
        let reports = &self.frame.report[..self.frame.reports as usize];
        reports.iter().filter_map(Reported::read)
    }

    /// Counters of the port with that interface index.
    pub fn port_counters(&self, ifindex: u32) -> sidestep_port_counters {
        self.port_counters[(ifindex % SIDESTEP_PORTS) as usize]
    }

    /// Counters in that slot (`sidestep_route.counter`).
    pub fn route_counters(&self, counter: CounterId) -> sidestep_route_counters {
        self.route_counters
            .get(counter.0 as usize)
            .copied()
            .unwrap_or_default()
    }

    /// How often each reason was given, by its number.
    pub fn reason_counters(&self) -> &[u64] {
        &self.reason_counters
    }
}

// SAFETY: the raw pointers in `frame` point into `buffer`, which moves with it, and are set anew by
// each run.
unsafe impl Send for Native {}

// fib6.h reads the format that crates/fib writes.
const _: () = {
    use sidestep_fib::layout::{
        EDGES, EDGES_AT, HEIGHT_MAX, LINE_WORDS, LINES_MAX, Reference, SEPARATORS, VIEWS,
    };
    assert!(LINE_WORDS * size_of::<u64>() == ffi::FIB6_LINE as usize);
    assert!(SEPARATORS == ffi::FIB6_SEPARATORS as usize);
    assert!(EDGES == ffi::FIB6_EDGES as usize);
    assert!(EDGES_AT * size_of::<u64>() == ffi::FIB6_EDGES_OFFSET as usize);
    assert!(HEIGHT_MAX == ffi::FIB6_HEIGHT_MAX && HEIGHT_MAX <= ffi::FIB6_HEIGHT_MASK);
    assert!(LINES_MAX == ffi::FIB6_LINE_MASK as usize + 1);
    assert!(VIEWS == ffi::FIB6_VIEWS as usize);
    assert!(Reference::tree(0, 0).0 == ffi::FIB6_TREE);
    assert!(Reference::tree(0, 1).0 == ffi::FIB6_TREE | 1 << ffi::FIB6_HEIGHT_SHIFT);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_on_an_unknown_port_is_punted_unchanged() {
        let mut native = Native::new(&Image::default());
        let frame = [7u8; 60];
        assert!(matches!(native.run(3, &frame), Verdict::Punt(r) if r.name == "port_unknown"));
        assert_eq!(native.frame(), frame);
    }

    #[test]
    fn frames_of_every_length_get_a_verdict() {
        let mut image = Image::default();
        image.ports.insert(
            1,
            sidestep_port {
                ifindex: 1,
                ..Default::default()
            },
        );
        let mut native = Native::new(&image);
        for length in 0..128 {
            let frame = vec![0; length];
            assert!(matches!(native.run(1, &frame), Verdict::Punt(_)));
        }
        assert_eq!(native.port_counters(1).received_packets, 128);
    }
}
