//! Interface to a packet path: to [`Kernel`], and in tests to one in memory that fails on request.

use std::collections::{BTreeMap, BTreeSet};

use sidestep_datapath::abi::{
    ViewId, sidestep_learned, sidestep_policy, sidestep_port_counters, sidestep_route_counters,
    sidestep_session,
};
use sidestep_datapath::kernel::{Features, KernelError, Origin, ReportRate, Target};
use sidestep_datapath::learned::{Flows, Knowledge};
use sidestep_datapath::{
    AdjacencyId, Copied, CounterId, Delta, HeaderSetId, Image, Kernel, Oversized, PolicyId, Report,
    SessionId, StationKey,
};

/// A packet path with tables. [`Kernel`] describes the methods.
pub(super) trait PacketPath {
    fn origin(&self) -> Origin;
    fn image(&self) -> Image;
    fn features(&self) -> Features;
    /// Name of the directory with the pins.
    fn folder(&self) -> String;

    fn publish(&mut self, delta: &Delta, to: &Image) -> Result<(), KernelError>;
    fn reclaim(&mut self) -> Result<(), KernelError>;
    fn begin_reclaim(&mut self) -> Result<(), KernelError>;
    /// Returns whether the grace period has ended.
    fn end_reclaim(&mut self) -> Result<bool, KernelError>;
    fn has_pending(&self) -> bool;
    fn suspend_adjacency(&self, index: AdjacencyId);
    fn take_down(&self, ifindex: u32);
    fn suspend_policy(&self, index: PolicyId, policy: &sidestep_policy);
    fn resume(
        &self,
        image: &Image,
        adjacencies: BTreeSet<AdjacencyId>,
        policies: BTreeSet<PolicyId>,
    );

    fn attach(&mut self, ifindex: u32, target: Target) -> Result<(), KernelError>;
    fn attach_alone(&mut self, ifindex: u32) -> Result<(), KernelError>;
    fn detach(&mut self, ifindex: u32) -> Result<(), KernelError>;
    fn attached(&self) -> Vec<(u32, Target)>;

    fn reports(&self, max: usize) -> Vec<Report>;
    fn copies(&self, max: usize) -> Vec<Copied>;
    fn oversized(&self, max: usize) -> Vec<Oversized>;
    fn limit_reports(&self, rate: ReportRate);
    fn limit_copies(&self, rate: ReportRate);
    fn limit_oversized(&self, rate: ReportRate);
    fn reports_suppressed(&self, ifindex: u32) -> u64;
    fn copies_suppressed(&self, ifindex: u32) -> u64;
    fn oversized_suppressed(&self, ifindex: u32) -> u64;

    fn clear_route_counters(&self, counter: CounterId) -> Result<(), KernelError>;
    fn port_counters(&self, ifindex: u32) -> Result<sidestep_port_counters, KernelError>;
    fn route_counters(&self, counter: CounterId) -> Result<sidestep_route_counters, KernelError>;
    fn all_route_counters(
        &self,
        slots: &BTreeSet<CounterId>,
    ) -> Result<BTreeMap<CounterId, sidestep_route_counters>, KernelError>;
    fn reason_counters(&self) -> Result<Vec<u64>, KernelError>;

    fn learned(&self, index: HeaderSetId) -> sidestep_learned;
    fn chains(&self, index: HeaderSetId) -> Vec<sidestep_learned>;
    fn flows(&self, index: HeaderSetId) -> Option<Flows>;
    fn knowledge(&self, index: HeaderSetId) -> Knowledge;
    fn take_used(&self, adjacency: AdjacencyId) -> bool;
    fn take_used_stations(&self) -> Result<BTreeSet<StationKey>, KernelError>;
    fn take_resolve_requests(&self) -> Vec<(ViewId, [u8; 16])>;

    fn sessions(&self) -> Vec<(SessionId, sidestep_session)>;
    fn create_session(&mut self, index: SessionId, session: &sidestep_session);
    fn remove_session(&mut self, index: SessionId);
}

impl PacketPath for Kernel {
    fn origin(&self) -> Origin {
        Kernel::origin(self)
    }

    fn image(&self) -> Image {
        Kernel::image(self)
    }

    fn features(&self) -> Features {
        Kernel::features(self)
    }

    fn folder(&self) -> String {
        Kernel::folder(self).display().to_string()
    }

    fn publish(&mut self, delta: &Delta, to: &Image) -> Result<(), KernelError> {
        Kernel::publish(self, delta, to).map(drop)
    }

    fn reclaim(&mut self) -> Result<(), KernelError> {
        Kernel::reclaim(self).map(drop)
    }

    fn begin_reclaim(&mut self) -> Result<(), KernelError> {
        Kernel::begin_reclaim(self)
    }

    fn end_reclaim(&mut self) -> Result<bool, KernelError> {
        Kernel::end_reclaim(self).map(|reclaimed| reclaimed.is_some())
    }

    fn has_pending(&self) -> bool {
        Kernel::has_pending(self)
    }

    fn suspend_adjacency(&self, index: AdjacencyId) {
        Kernel::suspend_adjacency(self, index);
    }

    fn take_down(&self, ifindex: u32) {
        Kernel::take_down(self, ifindex);
    }

    fn suspend_policy(&self, index: PolicyId, policy: &sidestep_policy) {
        Kernel::suspend_policy(self, index, policy);
    }

    fn resume(
        &self,
        image: &Image,
        adjacencies: BTreeSet<AdjacencyId>,
        policies: BTreeSet<PolicyId>,
    ) {
        Kernel::resume(self, image, adjacencies, policies);
    }

    fn attach(&mut self, ifindex: u32, target: Target) -> Result<(), KernelError> {
        Kernel::attach(self, ifindex, target)
    }

    fn attach_alone(&mut self, ifindex: u32) -> Result<(), KernelError> {
        Kernel::attach_alone(self, ifindex)
    }

    fn detach(&mut self, ifindex: u32) -> Result<(), KernelError> {
        Kernel::detach(self, ifindex)
    }

    fn attached(&self) -> Vec<(u32, Target)> {
        Kernel::attached(self)
    }

    fn reports(&self, max: usize) -> Vec<Report> {
        Kernel::reports(self, max)
    }

    fn copies(&self, max: usize) -> Vec<Copied> {
        Kernel::copies(self, max)
    }

    fn oversized(&self, max: usize) -> Vec<Oversized> {
        Kernel::oversized(self, max)
    }

    fn limit_reports(&self, rate: ReportRate) {
        Kernel::limit_reports(self, rate);
    }

    fn limit_copies(&self, rate: ReportRate) {
        Kernel::limit_copies(self, rate);
    }

    fn limit_oversized(&self, rate: ReportRate) {
        Kernel::limit_oversized(self, rate);
    }

    fn reports_suppressed(&self, ifindex: u32) -> u64 {
        Kernel::reports_suppressed(self, ifindex)
    }

    fn copies_suppressed(&self, ifindex: u32) -> u64 {
        Kernel::copies_suppressed(self, ifindex)
    }

    fn oversized_suppressed(&self, ifindex: u32) -> u64 {
        Kernel::oversized_suppressed(self, ifindex)
    }

    fn clear_route_counters(&self, counter: CounterId) -> Result<(), KernelError> {
        Kernel::clear_route_counters(self, counter)
    }

    fn port_counters(&self, ifindex: u32) -> Result<sidestep_port_counters, KernelError> {
        Kernel::port_counters(self, ifindex)
    }

    fn route_counters(&self, counter: CounterId) -> Result<sidestep_route_counters, KernelError> {
        Kernel::route_counters(self, counter)
    }

    fn all_route_counters(
        &self,
        slots: &BTreeSet<CounterId>,
    ) -> Result<BTreeMap<CounterId, sidestep_route_counters>, KernelError> {
        Kernel::all_route_counters(self, slots)
    }

    fn reason_counters(&self) -> Result<Vec<u64>, KernelError> {
        Kernel::reason_counters(self)
    }

    fn learned(&self, index: HeaderSetId) -> sidestep_learned {
        Kernel::learned(self, index)
    }

    fn chains(&self, index: HeaderSetId) -> Vec<sidestep_learned> {
        Kernel::chains(self, index)
    }

    fn flows(&self, index: HeaderSetId) -> Option<Flows> {
        Kernel::flows(self, index)
    }

    fn knowledge(&self, index: HeaderSetId) -> Knowledge {
        Kernel::knowledge(self, index)
    }

    fn take_used(&self, adjacency: AdjacencyId) -> bool {
        Kernel::take_used(self, adjacency)
    }

    fn take_used_stations(&self) -> Result<BTreeSet<StationKey>, KernelError> {
        Kernel::take_used_stations(self)
    }

    fn take_resolve_requests(&self) -> Vec<(ViewId, [u8; 16])> {
        Kernel::take_resolve_requests(self)
    }

    fn sessions(&self) -> Vec<(SessionId, sidestep_session)> {
        Kernel::sessions(self)
    }

    fn create_session(&mut self, index: SessionId, session: &sidestep_session) {
        Kernel::create_session(self, index, session);
    }

    fn remove_session(&mut self, index: SessionId) {
        Kernel::remove_session(self, index);
    }
}
