//! A packet path in memory, which fails when a test wants.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use sidestep_datapath::abi::{
    SIDESTEP_ADJACENCY_DOWN, SIDESTEP_ADJACENCY_VALID, SIDESTEP_PORTS, SIDESTEP_REASONS, ViewId,
    sidestep_learned, sidestep_policy, sidestep_port_counters, sidestep_route_counters,
    sidestep_session,
};
use sidestep_datapath::kernel::{Features, KernelError, Origin, ReportRate, Target};
use sidestep_datapath::learned::{Flows, Knowledge};
use sidestep_datapath::{
    AdjacencyId, Copied, CounterId, Delta, HeaderSetId, Image, Native, Oversized, PolicyId, Report,
    SessionId, StationKey,
};

use super::paths::Sessions;
use crate::daemon::packet_path::PacketPath;

/// Tables, attachments and what packets have used.
#[derive(Default)]
pub(crate) struct MemoryPath {
    pub image: Image,
    pub origin: Option<Origin>,
    /// Number of calls of `publish`, and the first and the last one that fail.
    pub writes: usize,
    pub failing: Option<(usize, usize)>,
    /// Looks until a grace period ends, and the number of failures to begin one.
    pub looks: usize,
    pub refusals: usize,
    pub suspended: RefCell<BTreeSet<AdjacencyId>>,
    pub down: Rc<RefCell<BTreeSet<AdjacencyId>>>,
    pub ports: BTreeMap<u32, Target>,
    /// Interfaces that refuse an attachment.
    pub refusing: BTreeSet<u32>,
    /// Next hops that packets used since the last look.
    pub used: RefCell<BTreeSet<AdjacencyId>>,
    /// Addresses that packets wanted resolved since the last look.
    pub wanted: RefCell<Vec<(ViewId, [u8; 16])>>,
    /// Reported packets that the daemon has not read.
    pub reports: RefCell<Vec<Report>>,
    pub copies: RefCell<Vec<Copied>>,
    pub oversized: RefCell<Vec<Oversized>>,
    /// Counters of ports, routes and reasons.
    pub ports_counted: BTreeMap<u32, sidestep_port_counters>,
    pub routes_counted: RefCell<BTreeMap<CounterId, sidestep_route_counters>>,
    pub reasons_counted: BTreeMap<usize, u64>,
    /// Sessions of paths.
    pub sessions: Sessions,
    /// The last limit of reports, and that of oversized packets.
    pub rates: Cell<[Option<ReportRate>; 2]>,
}

impl MemoryPath {
    /// The tables as packets find them.
    pub fn seen(&self) -> Image {
        let mut image = self.image.clone();
        for index in &*self.suspended.borrow() {
            let adjacency = image.adjacencies.get_mut(index).expect("a next hop");
            adjacency.flags &= !(SIDESTEP_ADJACENCY_VALID as u16);
        }
        for index in self.suspended.borrow().union(&self.down.borrow()) {
            let adjacency = image.adjacencies.get_mut(index).expect("a next hop");
            adjacency.flags |= SIDESTEP_ADJACENCY_DOWN as u16;
        }
        image
    }

    /// Takes the reports and counters of a packet that the native target has run.
    pub fn note(&mut self, native: &Native) {
        self.reports.get_mut().extend(native.report());
        self.copies.get_mut().extend(native.copies());
        self.oversized.get_mut().extend(native.oversized());
        for port in 0..SIDESTEP_PORTS {
            let (new, all) = (native.port_counters(port), self.ports_counted.entry(port));
            let all = all.or_default();
            all.received_packets += new.received_packets;
            all.received_bytes += new.received_bytes;
            all.forwarded += new.forwarded;
            all.punted += new.punted;
            all.dropped += new.dropped;
            all.sent_packets += new.sent_packets;
            all.sent_bytes += new.sent_bytes;
        }
        // Routes may share a counter.
        let counters: BTreeSet<CounterId> = self
            .image
            .routes
            .values()
            .map(|route| route.counter)
            .collect();
        for counter in counters {
            let new = native.route_counters(counter);
            let all = self.routes_counted.get_mut().entry(counter).or_default();
            all.packets += new.packets;
            all.bytes += new.bytes;
            all.errors += new.errors;
        }
        for (reason, packets) in native.reason_counters().iter().enumerate() {
            *self.reasons_counted.entry(reason).or_default() += packets;
        }
    }

    /// Lets the write after these fail.
    pub fn fail_after(&mut self, writes: usize) {
        let number = self.writes + writes + 1;
        self.failing = Some((number, number));
    }

    /// Lets all further writes fail, or none.
    pub fn fail_always(&mut self, fails: bool) {
        self.failing = fails.then_some((0, usize::MAX));
    }
}

impl PacketPath for MemoryPath {
    fn origin(&self) -> Origin {
        self.origin.unwrap_or(Origin::Fresh)
    }

    fn image(&self) -> Image {
        self.image.clone()
    }

    fn features(&self) -> Features {
        Features {
            tcx: true,
            decap_l3: true,
        }
    }

    fn folder(&self) -> String {
        "/sys/fs/bpf/sidestep/simulated".into()
    }

    fn publish(&mut self, delta: &Delta, to: &Image) -> Result<(), KernelError> {
        self.writes += 1;
        if let Some((first, last)) = self.failing
            && (first..=last).contains(&self.writes)
        {
            return Err(KernelError::Grown);
        }
        let mut before = to.clone();
        delta.revert(&mut before);
        assert!(
            before == self.image,
            "the change is not one of these tables"
        );
        // A record that changes is suspended no more.
        let suspended = self.suspended.get_mut();
        for (index, ..) in delta.adjacencies.iter() {
            suspended.remove(index);
            self.down.borrow_mut().remove(index);
        }
        self.image = to.clone();
        Ok(())
    }

    fn reclaim(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn begin_reclaim(&mut self) -> Result<(), KernelError> {
        if self.refusals > 0 {
            self.refusals -= 1;
            return Err(KernelError::Grown);
        }
        self.looks = 3;
        Ok(())
    }

    fn end_reclaim(&mut self) -> Result<bool, KernelError> {
        self.looks -= 1;
        Ok(self.looks == 0)
    }

    fn has_pending(&self) -> bool {
        false
    }

    fn suspend_adjacency(&self, index: AdjacencyId) {
        self.suspended.borrow_mut().insert(index);
    }

    fn take_down(&self, ifindex: u32) {
        let all = self.image.adjacencies.iter();
        let of_link = all.filter(|(_, it)| it.ifindex == ifindex);
        self.down
            .borrow_mut()
            .extend(of_link.map(|(index, _)| *index));
    }

    fn suspend_policy(&self, _: PolicyId, _: &sidestep_policy) {}

    fn resume(&self, _: &Image, adjacencies: BTreeSet<AdjacencyId>, _: BTreeSet<PolicyId>) {
        let suspended = &mut *self.suspended.borrow_mut();
        suspended.retain(|index| !adjacencies.contains(index));
        let down = &mut *self.down.borrow_mut();
        down.retain(|index| !adjacencies.contains(index));
    }

    fn attach(&mut self, ifindex: u32, target: Target) -> Result<(), KernelError> {
        if self.refusing.contains(&ifindex) {
            return Err(KernelError::Grown);
        }
        self.ports.insert(ifindex, target);
        Ok(())
    }

    fn attach_alone(&mut self, ifindex: u32) -> Result<(), KernelError> {
        self.attach(ifindex, Target::Tc)
    }

    fn detach(&mut self, ifindex: u32) -> Result<(), KernelError> {
        self.ports.remove(&ifindex);
        Ok(())
    }

    fn attached(&self) -> Vec<(u32, Target)> {
        self.ports
            .iter()
            .map(|(port, target)| (*port, *target))
            .collect()
    }

    fn reports(&self, max: usize) -> Vec<Report> {
        take(&self.reports, max)
    }

    fn copies(&self, max: usize) -> Vec<Copied> {
        take(&self.copies, max)
    }

    fn oversized(&self, max: usize) -> Vec<Oversized> {
        take(&self.oversized, max)
    }

    fn limit_reports(&self, rate: ReportRate) {
        self.rates.set([Some(rate), self.rates.get()[1]]);
    }

    fn limit_copies(&self, _: ReportRate) {}

    fn limit_oversized(&self, rate: ReportRate) {
        self.rates.set([self.rates.get()[0], Some(rate)]);
    }

    fn reports_suppressed(&self, _: u32) -> u64 {
        0
    }

    fn copies_suppressed(&self, _: u32) -> u64 {
        0
    }

    fn oversized_suppressed(&self, _: u32) -> u64 {
        0
    }

    fn clear_route_counters(&self, counter: CounterId) -> Result<(), KernelError> {
        self.routes_counted.borrow_mut().remove(&counter);
        Ok(())
    }

    fn port_counters(&self, ifindex: u32) -> Result<sidestep_port_counters, KernelError> {
        let counters = self.ports_counted.get(&(ifindex % SIDESTEP_PORTS));
        Ok(counters.copied().unwrap_or_default())
    }

    fn route_counters(&self, counter: CounterId) -> Result<sidestep_route_counters, KernelError> {
        let all = self.routes_counted.borrow();
        Ok(all.get(&counter).copied().unwrap_or_default())
    }

    fn all_route_counters(
        &self,
        slots: &BTreeSet<CounterId>,
    ) -> Result<BTreeMap<CounterId, sidestep_route_counters>, KernelError> {
        slots
            .iter()
            .map(|slot| Ok((*slot, self.route_counters(*slot)?)))
            .collect()
    }

    fn reason_counters(&self) -> Result<Vec<u64>, KernelError> {
        let all = 0..SIDESTEP_REASONS as usize;
        let counted = all.map(|reason| self.reasons_counted.get(&reason));
        Ok(counted
            .map(|packets| packets.copied().unwrap_or(0))
            .collect())
    }

    fn learned(&self, _: HeaderSetId) -> sidestep_learned {
        sidestep_learned::default()
    }

    fn chains(&self, _: HeaderSetId) -> Vec<sidestep_learned> {
        Vec::new()
    }

    fn flows(&self, _: HeaderSetId) -> Option<Flows> {
        None
    }

    fn knowledge(&self, _: HeaderSetId) -> Knowledge {
        Knowledge::default()
    }

    fn take_used(&self, adjacency: AdjacencyId) -> bool {
        self.used.borrow_mut().remove(&adjacency)
    }

    fn take_used_stations(&self) -> Result<BTreeSet<StationKey>, KernelError> {
        Ok(BTreeSet::new())
    }

    fn take_resolve_requests(&self) -> Vec<(ViewId, [u8; 16])> {
        std::mem::take(&mut self.wanted.borrow_mut())
    }

    fn sessions(&self) -> Vec<(SessionId, sidestep_session)> {
        let sessions = self.sessions.borrow();
        sessions.iter().map(|(index, it)| (*index, *it)).collect()
    }

    fn create_session(&mut self, index: SessionId, session: &sidestep_session) {
        self.sessions.borrow_mut().insert(index, *session);
    }

    fn remove_session(&mut self, index: SessionId) {
        self.sessions.borrow_mut().remove(&index);
    }
}

/// Takes at most this many entries from the front.
fn take<T>(queue: &RefCell<Vec<T>>, max: usize) -> Vec<T> {
    let mut queue = queue.borrow_mut();
    let many = queue.len().min(max);
    queue.drain(..many).collect()
}
