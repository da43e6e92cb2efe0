//! O-flag (RFC 9259 2.1.1): counts the copies of packets that the packet path makes at SIDs, and
//! sends them to listening clients. The payload of a copy is not examined, as the RFC requires.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use nix::poll::PollFlags;
use nix::time::ClockId;
use sidestep_datapath::Copied;
use sidestep_datapath::kernel::ReportRate;
use sidestep_model::node::IfIndex;

use super::lines::Lines;
use super::{Instance, NodeMirror, PacketPath, System};
use crate::api::Incoming;
use crate::report;

/// Maximum number of copies per round of the event loop.
const AT_ONCE: usize = 64;
/// LIMIT: clients that listen at the same time.
const LISTENERS: usize = 16;

/// Counters and listening clients.
#[derive(Default)]
pub(super) struct Oam {
    /// Copies by name of the ingress port.
    copied: BTreeMap<String, u64>,
    /// Copies that a listening client did not read in time.
    unread: u64,
    listeners: Vec<Lines>,
}

impl Oam {
    /// Events to poll for on behalf of the listening clients.
    pub fn poll_events(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.listeners.iter().map(|lines| lines.poll_events(true))
    }

    fn notify(&mut self, copy: &report::OamCopy) {
        *self.copied.entry(copy.port.clone()).or_default() += 1;
        for lines in &mut self.listeners {
            if lines.is_full() {
                self.unread += 1;
            } else {
                lines.say(copy);
            }
        }
    }
}

/// Returns a rate limit with a burst of a tenth of a second.
fn limit(per_second: u32) -> ReportRate {
    ReportRate {
        per_second,
        burst: (per_second / 10).max(1),
    }
}

impl<S: System> Instance<S> {
    /// Applies the rate of the configuration to the packet path.
    pub(super) fn limit_copies(&self) {
        self.tables
            .kernel
            .limit_copies(limit(self.configured.own.oam_rate));
    }

    /// Adds a listening client. Its first line is the report; each further line is a copy.
    pub(super) fn add_oam_listener(&mut self, incoming: Incoming) {
        if self.senders.oam.listeners.len() >= LISTENERS {
            let full = format!("{LISTENERS} clients listen already");
            return self.refuse(incoming, full);
        }
        let report = self.oam_report();
        let mut lines = Lines::to(incoming);
        lines.say(&report);
        self.senders.oam.listeners.push(lines);
    }

    pub(super) fn oam_report(&self) -> report::Oam {
        let suppressed = self.ports.attached.iter().map(|(name, port)| {
            let suppressed = self.tables.kernel.copies_suppressed(port.ifindex.0);
            (name.clone(), suppressed)
        });
        report::Oam {
            rate: self.configured.own.oam_rate,
            copied: self.senders.oam.copied.clone(),
            suppressed: suppressed.collect(),
            unread: self.senders.oam.unread,
        }
    }

    /// Sends new copies to the clients, and removes clients that disconnected.
    pub(super) fn send_copies(&mut self) {
        let clock = |clock| self.system.nanoseconds(clock);
        let offset = clock(ClockId::CLOCK_REALTIME).wrapping_sub(clock(ClockId::CLOCK_MONOTONIC));
        for copied in self.tables.kernel.copies(AT_ONCE) {
            let copy = self.oam_copy(&copied, offset);
            self.senders.oam.notify(&copy);
        }
        self.senders
            .oam
            .listeners
            .retain_mut(|lines| lines.send() && !lines.client_hung_up());
    }

    fn oam_copy(&self, copied: &Copied, clock_offset: u64) -> report::OamCopy {
        let link = self.mirror.node().links.get(&IfIndex(copied.ifindex));
        report::OamCopy {
            timestamp: copied.time.wrapping_add(clock_offset),
            port: link.map_or_else(|| copied.ifindex.to_string(), |link| link.name.clone()),
            sid: copied.sid.to_string(),
            segments_left: copied.segments_left,
            bytes: copied.length,
            packet: hex::encode(&copied.packet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_is_a_tenth_of_a_second_and_at_least_one() {
        let bursts = [0, 1, 9, 10, 1000].map(|rate| limit(rate).burst);
        assert_eq!(bursts, [1, 1, 1, 1, 100]);
    }
}
