//! Reads reports for ICMP errors, copies of packets with the O-flag, and packets to
//! fragment, and sets the rates.
//!
//! The ring is pinned like any table: a daemon that starts reads on where the one before it ended.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, channel};

use crate::abi::{
    SIDESTEP_PORTS, SIDESTEP_REPORT_COPY, SIDESTEP_REPORT_ERROR, SIDESTEP_REPORT_FRAGMENT,
    sidestep_report, sidestep_report_rate,
};
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use super::trace::{Plain, from_bytes};
use super::{Kernel, KernelError, Table};
use crate::report::{Copied, Oversized, Report, Reported};

/// The reader's end of the ring.
#[derive(Debug)]
pub(super) struct Reports {
    ring: RingBuffer<'static>,
    errors: Receiver<Report>,
    copies: Receiver<Copied>,
    oversized: Receiver<Oversized>,
}

/// RFC 4443 2.4(f): a token bucket, of each port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRate {
    /// Reports per second; 0: none at all.
    pub per_second: u32,
    /// Burst size after an idle period; at least 1.
    pub burst: u32,
}

impl Default for ReportRate {
    /// As Linux has it for all ICMP messages of a host (`net.ipv4.icmp_msgs_per_sec`,
    /// `icmp_msgs_burst`), though per port.
    fn default() -> Self {
        Self {
            per_second: 1000,
            burst: 50,
        }
    }
}

impl Reports {
    pub(super) fn open(map: &MapHandle) -> Result<Self, KernelError> {
        let (to_errors, errors) = channel();
        let (to_copies, copies) = channel();
        let (to_oversized, oversized) = channel();
        let mut builder = RingBufferBuilder::new();
        let ring = builder
            .add(map, move |bytes| {
                let raw = from_bytes::<sidestep_report>(bytes);
                // The receivers are in the same structure.
                match raw.and_then(|raw| Reported::read(&raw)) {
                    Some(Reported::Error(report)) => drop(to_errors.send(report)),
                    Some(Reported::Copy(packet)) => drop(to_copies.send(packet)),
                    Some(Reported::Fragment(frame)) => drop(to_oversized.send(frame)),
                    None => {}
                }
                0
            })
            .map(drop);
        let ring = ring.and_then(|()| builder.build());
        let ring = ring.map_err(|source| KernelError::System {
            operation: "open the ring of reports",
            source: std::io::Error::other(source),
        })?;
        Ok(Self {
            ring,
            errors,
            copies,
            oversized,
        })
    }
}

impl Kernel {
    /// Readable when there are reports.
    pub fn reports_fd(&self) -> BorrowedFd<'_> {
        self.maps.handle(Table::Reports).as_fd()
    }

    /// Returns the next reports for ICMP errors without waiting: those among the next `max`
    /// records, and those that [`Kernel::copies`] read.
    pub fn reports(&self, max: usize) -> Vec<Report> {
        self.consume_reports(max);
        self.reports.errors.try_iter().collect()
    }

    /// The next copies of packets with the O-flag, in the same way.
    pub fn copies(&self, max: usize) -> Vec<Copied> {
        self.consume_reports(max);
        self.reports.copies.try_iter().collect()
    }

    /// Returns the next frames to send in fragments, in the same way.
    pub fn oversized(&self, max: usize) -> Vec<Oversized> {
        self.consume_reports(max);
        self.reports.oversized.try_iter().collect()
    }

    fn consume_reports(&self, max: usize) {
        // An error is only that of the callback, which gives none.
        let _ = self.reports.ring.consume_raw_n(max);
    }

    /// Sets the rate of reports for ICMP errors. Without this call none are.
    pub fn limit_reports(&self, rate: ReportRate) {
        self.limit(SIDESTEP_REPORT_ERROR, rate);
    }

    /// How many packets with the O-flag are copied from now on, of those that come by ports where
    /// that is permitted. Without this call none are.
    pub fn limit_copies(&self, rate: ReportRate) {
        self.limit(SIDESTEP_REPORT_COPY, rate);
    }

    /// Sets the rate of packets to fragment. Without this call they are dropped.
    pub fn limit_oversized(&self, rate: ReportRate) {
        self.limit(SIDESTEP_REPORT_FRAGMENT, rate);
    }

    fn limit(&self, kind: u32, rate: ReportRate) {
        const SECOND: u64 = 1_000_000_000;
        let interval = match rate.per_second {
            0 => 0,
            rate => (SECOND / u64::from(rate)).max(1),
        };
        let credit = interval * u64::from(rate.burst.saturating_sub(1));
        for slot in 0..SIDESTEP_PORTS {
            let rate = sidestep_report_rate {
                interval,
                credit,
                ..Default::default()
            };
            // The others are the packet path's. The flag that enables the rate is written last.
            let slot = kind * SIDESTEP_PORTS + slot;
            self.maps.report_rates.publish_words(slot, &rate, &[1, 0]);
        }
    }

    /// Packets of that port that were not reported, for there were too many.
    pub fn reports_suppressed(&self, ifindex: u32) -> u64 {
        self.suppressed(SIDESTEP_REPORT_ERROR, ifindex)
    }

    /// Packets of that port with the O-flag that were not copied, for there were too many.
    pub fn copies_suppressed(&self, ifindex: u32) -> u64 {
        self.suppressed(SIDESTEP_REPORT_COPY, ifindex)
    }

    /// Returns the number of packets of that port that were dropped instead of fragmented.
    pub fn oversized_suppressed(&self, ifindex: u32) -> u64 {
        self.suppressed(SIDESTEP_REPORT_FRAGMENT, ifindex)
    }

    fn suppressed(&self, kind: u32, ifindex: u32) -> u64 {
        let slot = kind * SIDESTEP_PORTS + ifindex % SIDESTEP_PORTS;
        self.maps.report_rates.read(slot).suppressed
    }
}

// SAFETY: report.h asserts that its size is the sum of its fields, which are integers and arrays of
// them.
unsafe impl Plain for sidestep_report {}
