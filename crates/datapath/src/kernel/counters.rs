//! Counters, summed over all CPUs.

use std::mem::offset_of;

use libbpf_rs::{MapCore, MapFlags};

use crate::abi::{
    CounterId, SIDESTEP_PORTS, SIDESTEP_REASONS, sidestep_port_counters, sidestep_route_counters,
};

use super::{Kernel, KernelError, Table};

/// Reads each named counter of a record from the sums of its words.
macro_rules! from_words {
    ($record:ident { $($field:ident),* $(,)? }, $words:expr) => {{
        let words: [u64; size_of::<$record>() / 8] = $words;
        $record {
            $($field: words[offset_of!($record, $field) / 8],)*
        }
    }};
}

impl Kernel {
    /// Returns the counters of an interface. Any interface counts as egress, a port also as
    /// ingress.
    ///
    /// # Errors
    /// [`KernelError::Map`].
    pub fn port_counters(&self, ifindex: u32) -> Result<sidestep_port_counters, KernelError> {
        let words = self.sum(Table::PortCounters, ifindex % SIDESTEP_PORTS)?;
        Ok(from_words!(
            sidestep_port_counters {
                received_packets,
                received_bytes,
                forwarded,
                punted,
                dropped,
                sent_packets,
                sent_bytes,
                reserved,
            },
            words
        ))
    }

    /// Returns the counters in a slot (`sidestep_route.counter`).
    ///
    /// # Errors
    /// [`KernelError::Map`], also for a slot beyond the limit.
    pub fn route_counters(
        &self,
        counter: CounterId,
    ) -> Result<sidestep_route_counters, KernelError> {
        let words = self.sum(Table::RouteCounters, counter.0)?;
        Ok(from_words!(
            sidestep_route_counters {
                packets,
                bytes,
                errors,
                not_learned,
                no_srh,
            },
            words
        ))
    }

    /// Returns how often the packet path gave each reason, by reason number (`SIDESTEP_REASONS`
    /// entries).
    ///
    /// # Errors
    /// [`KernelError::Map`].
    pub fn reason_counters(&self) -> Result<Vec<u64>, KernelError> {
        (0..SIDESTEP_REASONS)
            .map(|reason| self.sum(Table::ReasonCounters, reason).map(|[count]| count))
            .collect()
    }

    /// Sets the counters in a slot to zero. Counts of packets that are processed meanwhile may be
    /// lost.
    ///
    /// # Errors
    /// [`KernelError::Map`].
    pub fn clear_route_counters(&self, counter: CounterId) -> Result<(), KernelError> {
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
            .update_percpu(&counter.0.to_ne_bytes(), &zeros, MapFlags::ANY)
            .map_err(failed)
    }

    /// Returns the words of a per-CPU record, each summed over all CPUs.
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
