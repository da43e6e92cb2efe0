//! Sends packets of this node through the tables that packets of the ports use, without a copy of them:
//! the native target reads the mapped maps.

use std::sync::atomic::Ordering;

use sidestep_fib::Memory as _;

use super::fib;
use super::mapping::Mapping;
use super::maps::{Mapped, Maps};
use super::{Kernel, KernelError, Table};
use crate::abi::{
    AdjacencyId, Reason, RouteId, SIDESTEP_PORTS, SIDESTEP_REASONS, SessionId, sidestep_adjacency,
    sidestep_group, sidestep_hmac_key, sidestep_hmac_work, sidestep_policy, sidestep_port,
    sidestep_port_counters, sidestep_route, sidestep_session,
};
use crate::event::TraceEvent;
use crate::native::{Verdict, ffi};

/// Bytes in front of a packet for the headers that a headend pushes.
const HEADROOM: usize = 512;
/// LIMIT: bytes of a packet with its Ethernet header.
const PACKET_MAX: usize = 16 * 1024;

/// Sessions of paths. The packet path writes when answers arrive, the control plane the rest.
#[derive(Debug)]
pub struct Sessions(Mapped<sidestep_session>);

impl Sessions {
    /// Returns a session.
    pub fn read(&self, index: SessionId) -> sidestep_session {
        self.0.read(index.0)
    }

    /// Arrival of the last answer in nanoseconds, with its state in the low bits; 0 for none.
    pub fn answered(&self, index: SessionId) -> u64 {
        self.0.words(index.0)[ANSWERED].load(Ordering::Relaxed)
    }

    /// Puts a session in use or out of use by one store: policies with it take their backup.
    pub fn set_down(&self, index: SessionId, down: bool) {
        self.0.words(index.0)[DOWN].store(u64::from(down), Ordering::Release);
    }
}

/// Words of a session.
const ANSWERED: usize = 0;
const DOWN: usize = 3;

impl Kernel {
    /// Returns the sessions that are in use.
    pub fn sessions(&self) -> Vec<(SessionId, sidestep_session)> {
        self.maps.sessions.indexed().collect()
    }

    /// Writes a new session, to which no discriminator refers yet.
    pub fn create_session(&self, index: SessionId, session: &sidestep_session) {
        self.maps.sessions.publish(index.0, session);
    }

    /// Clears a session, to which no discriminator refers any more.
    pub fn remove_session(&self, index: SessionId) {
        self.maps.sessions.clear(index.0);
    }

    /// Returns the table of sessions, for another thread.
    ///
    /// # Errors
    /// [`KernelError::System`].
    pub fn session_table(&self) -> Result<Sessions, KernelError> {
        Mapped::new(self.maps.handle(Table::Sessions)).map(Sessions)
    }

    /// Returns a sender. It is current until the prefix table grows ([`Kernel::fib_lines`]).
    ///
    /// # Errors
    /// [`KernelError::System`].
    pub fn sender(&self) -> Result<Sender, KernelError> {
        Sender::new(&self.maps)
    }

    /// Length of the prefix table in lines.
    pub fn fib_lines(&self) -> u32 {
        fib::lines(self.maps.handle(Table::Fib))
    }
}

/// The native target over the kernel's tables. It counts nothing in them.
pub struct Sender {
    ports: Mapped<sidestep_port>,
    routes: Mapped<sidestep_route>,
    groups: Mapped<sidestep_group>,
    adjacencies: Mapped<sidestep_adjacency>,
    policies: Mapped<sidestep_policy>,
    hmac_keys: Mapped<sidestep_hmac_key>,
    fib: Mapping,
    hmac_work: Box<sidestep_hmac_work>,
    port_counters: Vec<sidestep_port_counters>,
    reason_counters: Vec<u64>,
    buffer: Vec<u8>,
    frame: Box<ffi::sidestep_native>,
}

// SAFETY: the raw pointers in `frame` are set anew by each call; the mappings belong to no thread.
unsafe impl Send for Sender {}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl Sender {
    fn new(maps: &Maps) -> Result<Self, KernelError> {
        let handle = |table| maps.handle(table);
        Ok(Self {
            ports: Mapped::new(handle(Table::Ports))?,
            routes: Mapped::new(handle(Table::Routes))?,
            groups: Mapped::new(handle(Table::Groups))?,
            adjacencies: Mapped::new(handle(Table::Adjacencies))?,
            policies: Mapped::new(handle(Table::Policies))?,
            hmac_keys: Mapped::new(handle(Table::HmacKeys))?,
            fib: Mapping::of_value(handle(Table::Fib))?,
            hmac_work: Box::default(),
            port_counters: vec![sidestep_port_counters::default(); SIDESTEP_PORTS as usize],
            reason_counters: vec![0; SIDESTEP_REASONS as usize],
            buffer: vec![0; HEADROOM + PACKET_MAX],
            // SAFETY: plain integers and pointers, for which zero is a value; `send` sets them.
            frame: Box::new(unsafe { std::mem::zeroed() }),
        })
    }

    /// Forwards an IPv6 packet of this node by a route record. Returns the egress and the frame, or
    /// the reason why it cannot be sent. The next hop counts as used.
    ///
    /// # Errors
    /// No next hop, or the packet does not fit.
    pub fn send(&mut self, route: RouteId, packet: &[u8]) -> Result<(u32, &[u8]), &'static Reason> {
        let start = HEADROOM + ETHERNET;
        let length = packet.len().min(PACKET_MAX - ETHERNET);
        self.buffer[start..start + length].copy_from_slice(&packet[..length]);
        let tables = self.tables();
        let buffer = self.buffer.as_mut_ptr();
        // SAFETY: all four pointers lie within or one past `buffer`, which is not resized during
        // the call.
        unsafe {
            self.frame.head = buffer;
            self.frame.data = buffer.add(HEADROOM);
            self.frame.end = buffer.add(start + length);
            self.frame.limit = buffer.add(self.buffer.len());
        }
        self.frame.tables = &raw const tables;
        // SAFETY: the tables and the frame are valid for the call, and the lengths given are theirs.
        // Packets and the control plane change the tables meanwhile, by aligned words, as they do
        // for programs in the kernel.
        let outcome = unsafe { ffi::sidestep_native_send(&raw mut *self.frame, route.0) };
        self.frame.tables = std::ptr::null();
        if let Some(adjacency) = self.next_hop() {
            self.adjacencies.words(adjacency.0)[USED].store(1, Ordering::Relaxed);
        }
        match Verdict::from_numbers(outcome.kind, outcome.ifindex, outcome.reason) {
            Some(Verdict::Forward { ifindex }) => {
                let begin = self.frame.data as usize - self.buffer.as_ptr() as usize;
                let end = self.frame.end as usize - self.buffer.as_ptr() as usize;
                Ok((ifindex, &self.buffer[begin..end]))
            }
            Some(Verdict::Punt(reason) | Verdict::Drop(reason)) => Err(reason),
            None => unreachable!("the packet path gives verdicts and reasons of its own tables"),
        }
    }

    /// Returns the next hop of the last packet.
    fn next_hop(&self) -> Option<AdjacencyId> {
        let steps = &self.frame.trace[..self.frame.traces as usize];
        let last = steps.last().and_then(TraceEvent::decode)?;
        match last {
            TraceEvent::Forward { adjacency, .. } => Some(adjacency),
            _ => None,
        }
    }

    fn tables(&mut self) -> ffi::sidestep_native_tables {
        fn start<T: super::maps::Record>(table: &Mapped<T>) -> (*const T, u32) {
            let (words, records) = table.all();
            (words.as_ptr().cast(), records)
        }
        let (routes, route_count) = start(&self.routes);
        let (groups, group_count) = start(&self.groups);
        let (adjacencies, adjacency_count) = start(&self.adjacencies);
        let (policies, policy_count) = start(&self.policies);
        let (hmac_keys, hmac_key_count) = start(&self.hmac_keys);
        ffi::sidestep_native_tables {
            ports: start(&self.ports).0,
            stations: std::ptr::null_mut(),
            routes,
            groups,
            adjacencies,
            policies,
            hmac_keys,
            hmac_work: &raw mut *self.hmac_work,
            learned: std::ptr::null_mut(),
            flow_sets: std::ptr::null_mut(),
            sessions: std::ptr::null_mut(),
            now: 0,
            learned_count: 0,
            flow_set_count: 0,
            route_count,
            group_count,
            adjacency_count,
            policy_count,
            hmac_key_count,
            route_counter_count: 0,
            station_count: 0,
            session_count: 0,
            port_counters: self.port_counters.as_mut_ptr(),
            route_counters: std::ptr::null_mut(),
            reason_counters: self.reason_counters.as_mut_ptr(),
            fib: self.fib.words().as_ptr().cast(),
            fib_lines: self.fib.lines() as u32,
            sha: 0,
        }
    }
}

const ETHERNET: usize = 14;
/// Word of an adjacency that packets set.
const USED: usize = std::mem::offset_of!(sidestep_adjacency, used) / 8;
const _: () = assert!(std::mem::offset_of!(sidestep_session, down) == DOWN * 8);
