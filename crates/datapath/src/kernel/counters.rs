//! Counters, summed over CPUs.

use crate::abi::{
    SIDESTEP_PORTS, SIDESTEP_REASONS, sidestep_port_counters, sidestep_route_counters,
};
use libbpf_rs::{MapCore, MapFlags};

use super::{Kernel, KernelError, Table};

impl Kernel {
    /// Counters of the interface with that index: as ingress if it is a port, as egress in any case.
    ///
    /// # Errors
    /// [`KernelError::Map`].
    pub fn port_counters(&self, ifindex: u32) -> Result<sidestep_port_counters, KernelError> {
        let [
            received_packets,
            received_bytes,
            forwarded,
            punted,
            dropped,
            sent_packets,
            sent_bytes,
            reserved,
        ] = self.sum(Table::PortCounters, ifindex % SIDESTEP_PORTS)?;
        Ok(sidestep_port_counters {
            received_packets,
            received_bytes,
            forwarded,
            punted,
            dropped,
            sent_packets,
            sent_bytes,
            reserved,
        })
    }

    /// Counters in that slot (`sidestep_route.counter`).
    ///
    /// # Errors
    /// [`KernelError::Map`], also for a slot beyond the limit.
    pub fn route_counters(&self, counter: u32) -> Result<sidestep_route_counters, KernelError> {
        let [packets, bytes, errors, not_learned, no_srh] =
            self.sum(Table::RouteCounters, counter)?;
        Ok(sidestep_route_counters {
            packets,
            bytes,
            errors,
            not_learned,
            no_srh,
        })
    }

    /// How often each reason was given, by its number (`SIDESTEP_REASONS` of them).
    ///
    /// # Errors
    /// [`KernelError::Map`].
    pub fn reason_counters(&self) -> Result<Vec<u64>, KernelError> {
        (0..SIDESTEP_REASONS)
            .map(|reason| self.sum(Table::ReasonCounters, reason).map(|[count]| count))
            .collect()
    }

    /// Sets the counters in that slot to zero. What packets count meanwhile may be lost.
    ///
    /// # Errors
    /// [`KernelError::Map`].
    pub fn clear_route_counters(&self, counter: u32) -> Result<(), KernelError> {
        let table = Table::RouteCounters;
        let failed = |source| KernelError::Map {
            operation: "clear a slot of",
            table,
            source,
        };
        let zeros = vec![
            vec![0; size_of::<sidestep_route_counters>()];
            libbpf_rs::num_possible_cpus().map_err(failed)?
        ];
        self.maps
            .handle(table)
            .update_percpu(&counter.to_ne_bytes(), &zeros, MapFlags::ANY)
            .map_err(failed)
    }

    /// The words of a per-CPU record, summed.
    fn sum<const WORDS: usize>(
        &self,
        table: Table,
        slot: u32,
    ) -> Result<[u64; WORDS], KernelError> {
        let values = self
            .maps
            .handle(table)
            .lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(|source| KernelError::Map {
            operation: "read",
            table,
            source,
        })?;
        let mut sums = [0u64; WORDS];
        for value in values.unwrap_or_default() {
            for (sum, word) in sums.iter_mut().zip(value.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
            }
        }
        Ok(sums)
    }
}
