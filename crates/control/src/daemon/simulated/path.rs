//! A packet path in memory, which fails when a test wants.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use sidestep_datapath::abi::{
    SIDESTEP_ADJACENCY_VALID, SIDESTEP_REASONS, ViewId, sidestep_learned, sidestep_policy,
    sidestep_port_counters, sidestep_route_counters,
};
use sidestep_datapath::kernel::{Features, KernelError, Origin, ReportRate, Target};
use sidestep_datapath::learned::{Flows, Knowledge};
use sidestep_datapath::{AdjacencyId, CounterId, Delta, HeaderSetId, Image, PolicyId, StationKey};

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
    pub ports: BTreeMap<u32, Target>,
    /// Interfaces that refuse an attachment.
    pub refusing: BTreeSet<u32>,
    /// Next hops that packets used since the last look.
    pub used: RefCell<BTreeSet<AdjacencyId>>,
    /// Addresses that packets wanted resolved since the last look.
    pub wanted: RefCell<Vec<(ViewId, [u8; 16])>>,
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
        image
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

    fn suspend_policy(&self, _: PolicyId, _: &sidestep_policy) {}

    fn resume(&self, _: &Image, adjacencies: BTreeSet<AdjacencyId>, _: BTreeSet<PolicyId>) {
        let suspended = &mut *self.suspended.borrow_mut();
        suspended.retain(|index| !adjacencies.contains(index));
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

    fn clear_route_counters(&self, _: CounterId) -> Result<(), KernelError> {
        Ok(())
    }

    fn port_counters(&self, _: u32) -> Result<sidestep_port_counters, KernelError> {
        Ok(sidestep_port_counters::default())
    }

    fn route_counters(&self, _: CounterId) -> Result<sidestep_route_counters, KernelError> {
        Ok(sidestep_route_counters::default())
    }

    fn all_route_counters(
        &self,
        slots: &BTreeSet<CounterId>,
    ) -> Result<BTreeMap<CounterId, sidestep_route_counters>, KernelError> {
        let zero = sidestep_route_counters::default();
        Ok(slots.iter().map(|slot| (*slot, zero)).collect())
    }

    fn reason_counters(&self) -> Result<Vec<u64>, KernelError> {
        Ok(vec![0; SIDESTEP_REASONS as usize])
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
}
