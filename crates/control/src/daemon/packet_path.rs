//! Interface of the tables to a packet path: to [`Kernel`], and in tests to one that fails on request.

use std::collections::BTreeSet;

use sidestep_datapath::abi::sidestep_policy;
use sidestep_datapath::kernel::KernelError;
use sidestep_datapath::{AdjacencyId, CounterId, Delta, Image, Kernel, PolicyId};

/// A packet path with tables. [`Kernel`] describes the methods.
pub(super) trait PacketPath {
    fn publish(&mut self, delta: &Delta, to: &Image) -> Result<(), KernelError>;
    fn clear_route_counters(&self, counter: CounterId) -> Result<(), KernelError>;
    fn reclaim(&mut self) -> Result<(), KernelError>;
    fn begin_reclaim(&mut self) -> Result<(), KernelError>;
    /// Returns whether the grace period has ended.
    fn end_reclaim(&mut self) -> Result<bool, KernelError>;
    fn has_pending(&self) -> bool;
    fn suspend_adjacency(&self, index: AdjacencyId);
    fn suspend_policy(&self, index: PolicyId, policy: &sidestep_policy);
    fn resume(
        &self,
        image: &Image,
        adjacencies: BTreeSet<AdjacencyId>,
        policies: BTreeSet<PolicyId>,
    );
}

impl PacketPath for Kernel {
    fn publish(&mut self, delta: &Delta, to: &Image) -> Result<(), KernelError> {
        Kernel::publish(self, delta, to).map(drop)
    }

    fn clear_route_counters(&self, counter: CounterId) -> Result<(), KernelError> {
        Kernel::clear_route_counters(self, counter)
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
}
