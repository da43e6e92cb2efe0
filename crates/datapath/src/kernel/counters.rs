//! Counters, summed over all CPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags};

use crate::abi::{
    CounterId, SIDESTEP_PORTS, SIDESTEP_REASONS, sidestep_port_counters, sidestep_route_counters,
};

use super::{Kernel, KernelError, Table, sys};

/// Slots that one system call reads.
const WINDOW: usize = 64;

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
        Ok(of_route(self.sum(Table::RouteCounters, counter.0)?))
    }

    /// Returns the counters in many slots, with one system call for up to 64 neighboring ones.
    ///
    /// # Errors
    /// [`KernelError::Map`], also for a slot beyond the limit.
    pub fn all_route_counters(
        &self,
        slots: &BTreeSet<CounterId>,
    ) -> Result<BTreeMap<CounterId, sidestep_route_counters>, KernelError> {
        let table = Table::RouteCounters;
        let failed = |source| KernelError::Map {
            operation: "read",
            table,
            source,
        };
        let map = self.maps.handle(table);
        let of_cpu = map.value_size() as usize;
        let of_all = of_cpu * libbpf_rs::num_possible_cpus().map_err(failed)?;
        let mut values = vec![0; of_all * WINDOW];
        let mut read = 0..0;
        let mut all = BTreeMap::new();
        for &slot in slots {
            if !read.contains(&slot.0) {
                let count = sys::lookup_batch(map.as_fd(), slot.0, of_all, &mut values);
                read = slot.0..slot.0 + count.map_err(|error| failed(error.into()))?;
            }
            let place = (slot.0 - read.start) as usize;
            let value = values.chunks_exact(of_all).nth(place);
            let of_cpus = value.unwrap_or_default().chunks_exact(of_cpu);
            all.insert(slot, of_route(sum(of_cpus)));
        }
        Ok(all)
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
        let values = values.unwrap_or_default();
        Ok(sum(values.iter().map(Vec::as_slice)))
    }
}

fn of_route(words: [u64; size_of::<sidestep_route_counters>() / 8]) -> sidestep_route_counters {
    from_words!(
        sidestep_route_counters {
            packets,
            bytes,
            errors,
            not_learned,
            no_srh,
        },
        words
    )
}

/// Sums each word over the values of all CPUs.
fn sum<'a, const WORDS: usize>(values: impl Iterator<Item = &'a [u8]>) -> [u64; WORDS] {
    let mut sums = [0u64; WORDS];
    for value in values {
        for (sum, word) in sums.iter_mut().zip(value.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums
}
