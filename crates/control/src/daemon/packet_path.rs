//! What the tables need of a packet path. [`Kernel`] is one. Tests have another one, which fails when
//! they want.

use sidestep_datapath::kernel::KernelError;
use sidestep_datapath::{CounterId, Delta, Image, Kernel};

/// A packet path with tables. [`Kernel`] describes the methods.
pub(super) trait PacketPath {
    fn publish(&mut self, delta: &Delta, to: &Image) -> Result<(), KernelError>;
    fn clear_route_counters(&self, counter: CounterId) -> Result<(), KernelError>;
    fn reclaim(&mut self) -> Result<(), KernelError>;
    fn begin_reclaim(&mut self) -> Result<(), KernelError>;
    /// Returns whether the grace period has ended.
    fn end_reclaim(&mut self) -> Result<bool, KernelError>;
    fn has_pending(&self) -> bool;
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
}
