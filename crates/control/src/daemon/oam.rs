//! The O-flag (RFC 9259 2.1.1): copies of packets that have it, as the packet path makes them at SIDs, are counted and told to
//! those who listen. What is inside a copy is not looked at, as the RFC wants.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use nix::poll::PollFlags;
use sidestep_datapath::Copied;
use sidestep_datapath::kernel::ReportRate;
use sidestep_model::node::IfIndex;

use super::Daemon;
use super::lines::Lines;
use super::trace::clock_offset;
use crate::api::Incoming;
use crate::report;

/// So many are dealt with before the daemon looks at anything else.
const AT_ONCE: usize = 64;
/// LIMIT: clients that listen at a time.
const LISTENERS: usize = 16;

/// What is known of it.
#[derive(Default)]
pub(super) struct Oam {
    /// By the name of the port that the packet came by.
    copied: BTreeMap<String, u64>,
    /// Not told to somebody who listens, but does not read.
    unread: u64,
    listeners: Vec<Lines>,
}

impl Oam {
    /// What the event loop waits for on behalf of those who listen.
    pub fn waits_for(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.listeners.iter().map(|lines| lines.waits_for(true))
    }

    fn tell(&mut self, copy: &report::OamCopy) {
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

/// As many copies a second and port as that; a tenth of them at once.
fn limit(per_second: u32) -> ReportRate {
    ReportRate {
        per_second,
        burst: (per_second / 10).max(1),
    }
}

impl Daemon {
    /// After the rate of the configuration has changed.
    pub(super) fn limit_copies(&self) {
        self.kernel.limit_copies(limit(self.own.oam_rate));
    }

    /// One more who listens: the first line says what is copied, each one behind it tells a copy.
    pub(super) fn listen_to_copies(&mut self, incoming: Incoming) {
        if self.oam.listeners.len() >= LISTENERS {
            let full = format!("{LISTENERS} listen already");
            return self.replies.answer(incoming, Err(full));
        }
        let report = self.oam_report();
        // Who has gone meanwhile hears nothing.
        if let Ok(mut lines) = Lines::to(incoming) {
            lines.say(&report);
            self.oam.listeners.push(lines);
        }
    }

    /// Tells what has been copied, and lets go of those who have hung up.
    pub(super) fn tell_copies(&mut self) {
        let offset = clock_offset();
        for copied in self.kernel.copies(AT_ONCE) {
            let copy = self.oam_copy(&copied, offset);
            self.oam.tell(&copy);
        }
        self.oam
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

    pub(super) fn oam_report(&self) -> report::Oam {
        let suppressed = self.attached.iter().map(|(name, port)| {
            let suppressed = self.kernel.copies_suppressed(port.ifindex.0);
            (name.clone(), suppressed)
        });
        report::Oam {
            rate: self.own.oam_rate,
            copied: self.oam.copied.clone(),
            suppressed: suppressed.collect(),
            unread: self.oam.unread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_a_second_of_copies_may_come_at_once_and_one_always() {
        let bursts = [0, 1, 9, 10, 1000].map(|rate| limit(rate).burst);
        assert_eq!(bursts, [1, 1, 1, 1, 100]);
    }
}
