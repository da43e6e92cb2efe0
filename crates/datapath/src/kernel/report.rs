//! Reading the packets whose senders have to be told, and how many of them the packet path reports.
//!
//! The ring is pinned like any table: a daemon that starts reads on where the one before it ended.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, channel};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use sidestep_abi::{SIDESTEP_PORTS, sidestep_report, sidestep_report_rate};

use super::trace::{Plain, from_bytes};
use super::{Kernel, KernelError, Table};
use crate::report::Report;

/// The reader's end of the ring.
#[derive(Debug)]
pub(super) struct Reports {
    ring: RingBuffer<'static>,
    reports: Receiver<Report>,
}

/// RFC 4443 2.4(f): a token bucket, of each port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRate {
    /// Reports per second; 0: none at all.
    pub per_second: u32,
    /// So many at once after a silence; at least 1.
    pub burst: u32,
}

impl Default for ReportRate {
    /// As Linux has it for all ICMP messages of a host (`net.ipv4.icmp_msgs_per_sec`, `icmp_msgs_burst`), though per port.
    fn default() -> Self {
        Self {
            per_second: 1000,
            burst: 50,
        }
    }
}

impl Reports {
    pub(super) fn open(map: &MapHandle) -> Result<Self, KernelError> {
        let (sender, reports) = channel();
        let mut builder = RingBufferBuilder::new();
        let ring = builder
            .add(map, move |bytes| {
                let raw = from_bytes::<sidestep_report>(bytes);
                if let Some(report) = raw.and_then(|raw| Report::read(&raw)) {
                    // The receiver is in the same structure.
                    let _ = sender.send(report);
                }
                0
            })
            .map(drop);
        let ring = ring.and_then(|()| builder.build());
        let ring = ring.map_err(|source| KernelError::System {
            operation: "open the ring of reports",
            source: std::io::Error::other(source),
        })?;
        Ok(Self { ring, reports })
    }
}

impl Kernel {
    /// Readable when there are reports.
    pub fn reports_fd(&self) -> BorrowedFd<'_> {
        self.maps.handle(Table::Reports).as_fd()
    }

    /// The next reports, `max` or fewer, without waiting.
    pub fn reports(&self, max: usize) -> Vec<Report> {
        // An error is only that of the callback, which gives none.
        let _ = self.reports.ring.consume_raw_n(max);
        self.reports.reports.try_iter().collect()
    }

    /// How many packets are reported from now on. Without this call none are.
    pub fn limit_reports(&self, rate: ReportRate) {
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
            // The others are the packet path's. That there is a rate is said last.
            self.maps.report_rates.publish_words(slot, &rate, &[1, 0]);
        }
    }

    /// Packets of that port that were not reported, for there were too many.
    pub fn reports_suppressed(&self, ifindex: u32) -> u64 {
        self.maps
            .report_rates
            .read(ifindex % SIDESTEP_PORTS)
            .suppressed
    }
}

// SAFETY: report.h asserts that its size is the sum of its fields, which are integers and arrays of them.
unsafe impl Plain for sidestep_report {}
