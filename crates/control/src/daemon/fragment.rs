//! Fragmentation in the daemon: sends the packets that the packet path reports as oversized. The
//! packet path limits their rate, and each round of the event loop handles a bounded number.

use std::time::{Duration, Instant};

use nix::time::ClockId;
use sidestep_datapath::Oversized;
use sidestep_datapath::kernel::ReportRate;
use sidestep_model::node::IfIndex;

use super::system::FrameSender;
use super::{Instance, PacketPath, System};
use crate::fragment::{Identifications, fragments};
use crate::report;

/// Maximum number of packets per round of the event loop.
const AT_ONCE: usize = 64;
/// Drop packets that waited longer than this, such as those queued while no daemon ran.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between attempts to open the socket.
const RETRY: Duration = Duration::from_secs(1);

/// Socket and counters.
#[derive(Debug)]
pub(super) struct Fragmenter<F> {
    rate: ReportRate,
    sender: Option<F>,
    /// Reason why there is no socket.
    problem: Option<String>,
    retry: Instant,
    identifications: Identifications,
    packets: u64,
    fragments: u64,
    failed: u64,
    expired: u64,
}

impl<F: FrameSender> Fragmenter<F> {
    pub fn new(rate: ReportRate, now: Instant) -> Self {
        Self {
            rate,
            sender: None,
            problem: None,
            retry: now,
            identifications: Identifications::default(),
            packets: 0,
            fragments: 0,
            failed: 0,
            expired: 0,
        }
    }

    /// Sets the rate that the report shows.
    pub fn set_rate(&mut self, rate: ReportRate) {
        self.rate = rate;
    }

    pub fn open(&mut self, system: &impl System<FrameSender = F>, now: Instant) {
        if self.sender.is_some() || now < self.retry {
            return;
        }
        self.retry = now + RETRY;
        match system.frame_sender() {
            Ok(sender) => {
                self.sender = Some(sender);
                self.problem = None;
            }
            Err(error) => self.problem = Some(format!("fragments cannot be sent: {error}")),
        }
    }

    /// Reason why no fragments can be sent.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Sends a packet in fragments. An error ends the packet, because the receiver needs all of
    /// them.
    fn send(&mut self, oversized: &Oversized) {
        let frames = fragments(oversized, self.identifications.allocate());
        let (Some(frames), Some(sender)) = (frames, &self.sender) else {
            self.failed += 1;
            return;
        };
        let egress = IfIndex(oversized.egress);
        let sent = frames
            .iter()
            .take_while(|frame| sender.send(egress, frame).is_ok());
        let sent = sent.count();
        self.fragments += sent as u64;
        if sent == frames.len() {
            self.packets += 1;
        } else {
            self.failed += 1;
        }
    }
}

impl<S: System> Instance<S> {
    /// Sends the packets that the packet path reported as oversized.
    pub(super) fn send_fragments(&mut self) {
        self.senders.fragmenter.open(&self.system, self.time.now);
        let clock = self.system.nanoseconds(ClockId::CLOCK_MONOTONIC);
        for oversized in self.tables.kernel.oversized(AT_ONCE) {
            if Duration::from_nanos(clock.saturating_sub(oversized.time)) > TIMEOUT {
                self.senders.fragmenter.expired += 1;
            } else {
                self.senders.fragmenter.send(&oversized);
            }
        }
    }

    pub(super) fn fragments_report(&self) -> report::Fragments {
        let suppressed = self.ports.attached.iter().map(|(name, port)| {
            let suppressed = self.tables.kernel.oversized_suppressed(port.ifindex.0);
            (name.clone(), suppressed)
        });
        report::Fragments {
            ipv4_too_big: self.configured.own.settings.ipv4_too_big.to_string(),
            rate: self.senders.fragmenter.rate.per_second,
            burst: self.senders.fragmenter.rate.burst,
            packets: self.senders.fragmenter.packets,
            fragments: self.senders.fragmenter.fragments,
            suppressed: suppressed.collect(),
            failed: self.senders.fragmenter.failed,
            expired: self.senders.fragmenter.expired,
        }
    }
}
