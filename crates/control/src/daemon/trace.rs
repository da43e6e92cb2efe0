//! The running trace: sends samples from the packet path's ring to a client, line by line.
//!
//! There is one trace at a time, because the packet path has one filter. The client cannot block
//! the daemon: samples that it does not read in time are counted and dropped. The trace ends with
//! its count or when the client disconnects. The normal programs are in place before the client
//! gets the end line.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::time::ClockId;
use serde_json::Value;
use sidestep_datapath::abi::{SIDESTEP_SAMPLE_BYTES, SIDESTEP_SAMPLE_HEAD};
use sidestep_datapath::kernel::{Kernel, KernelError, Sample, Sampling, Tracer};

use super::lines::Lines;
use super::{Instance, Linux, nanoseconds};
use crate::api::{Incoming, Request, TraceLine, TracedPort};
use crate::pcap::PcapFilter;
use crate::trace::{EXAMINED_MAX, Filter, RATE_MAX, TracedPacket};

/// Samples sent per round of the event loop.
const ROUND: usize = 32;

/// A trace and its client.
pub(super) struct Tracing {
    lines: Lines,
    filter: Filter,
    pcap: Option<PcapFilter>,
    /// Limits the rate where the packet path cannot.
    bucket: Bucket,
    /// Packets still to send; none: until the client disconnects.
    left: Option<u64>,
    sent: u64,
    lost: u64,
    /// Offset from the kernel's monotonic clock to the time of day, in nanoseconds.
    clock_offset: u64,
    ended: bool,
}

/// A trace whose programs are being loaded.
pub(super) struct Preparing {
    incoming: Incoming,
    options: TraceOptions,
    loaded: Receiver<Result<Tracer, KernelError>>,
}

/// Options of the client.
struct TraceOptions {
    filter: Filter,
    pcap: Option<PcapFilter>,
    rate: NonZeroU32,
    count: Option<u64>,
}

impl Instance<Linux> {
    /// Prepares a trace, or replies with an error. The verifier takes a while, so another thread
    /// loads the programs.
    pub(super) fn prepare_trace(&mut self, incoming: Incoming) {
        let request = incoming.request.as_ref().map_err(Clone::clone);
        match request.and_then(|request| self.load_trace(request)) {
            Ok((options, loaded)) => {
                self.clients.preparing = Some(Preparing {
                    incoming,
                    options,
                    loaded,
                });
            }
            Err(message) => self.refuse(incoming, message),
        }
    }

    fn load_trace(
        &self,
        request: &Request,
    ) -> Result<(TraceOptions, Receiver<Result<Tracer, KernelError>>), String> {
        let Request::Trace {
            filter,
            pcap,
            rate,
            count,
            whole,
        } = request
        else {
            return Err("not a trace".into());
        };
        // A trace that has ended does not block a new one, even if its client has unread lines.
        let runs = self
            .clients
            .tracing
            .as_ref()
            .is_some_and(|tracing| !tracing.ended);
        if runs || self.clients.preparing.is_some() {
            return Err("another trace is running; only one can run at a time".into());
        }
        let filter = Filter::parse(filter).map_err(|error| error.to_string())?;
        let rate = NonZeroU32::new(*rate).filter(|rate| rate.get() <= RATE_MAX);
        let rate =
            rate.ok_or_else(|| format!("rate: must be 1 to {RATE_MAX} packets per second"))?;
        if *count == Some(0) {
            return Err("count: must be at least 1".into());
        }
        let pcap = pcap.as_deref().map(PcapFilter::new).transpose();
        let pcap = pcap.map_err(|error| format!("the kernel refused the pcap filter: {error}"))?;
        let port = filter.port.as_deref().map(|name| self.attached_port(name));
        let ifindex = port.transpose()?.map(|port| port.ifindex.0);
        let in_packet_path = filter.in_packet_path(ifindex);
        let sampling = Sampling {
            rate: if filter.is_decided_in_packet_path() && pcap.is_none() {
                rate
            } else {
                NonZeroU32::new(EXAMINED_MAX).unwrap_or(rate)
            },
            bytes: if *whole || pcap.is_some() {
                SIDESTEP_SAMPLE_BYTES
            } else {
                SIDESTEP_SAMPLE_HEAD
            },
        };
        let programs = self.tables.kernel.trace_loader();
        let programs = programs.map_err(|error| error.to_string())?;
        let (sender, loaded) = channel();
        let load = move || {
            // A daemon that exits meanwhile does not wait for it.
            let _ = sender.send(programs.load(&in_packet_path, sampling));
        };
        let thread = std::thread::Builder::new().name("trace".into());
        thread.spawn(load).map_err(|error| error.to_string())?;
        let options = TraceOptions {
            filter,
            pcap,
            rate,
            count: *count,
        };
        Ok((options, loaded))
    }

    /// Attaches the programs when they are loaded.
    fn begin_trace(&mut self) {
        let Some(preparing) = self.clients.preparing.take() else {
            return;
        };
        let begun = match preparing.loaded.try_recv() {
            Err(TryRecvError::Empty) => {
                self.clients.preparing = Some(preparing);
                return;
            }
            Err(TryRecvError::Disconnected) => Err("the traced programs were not loaded".into()),
            Ok(loaded) => loaded
                .and_then(|tracer| self.tables.kernel.trace_with(tracer))
                .map_err(|error| error.to_string()),
        };
        if let Err(message) = begun {
            return self.refuse(preparing.incoming, message);
        }
        let lines = Lines::to(preparing.incoming);
        let TraceOptions {
            filter,
            pcap,
            rate,
            count,
        } = preparing.options;
        let mut tracing = Tracing {
            lines,
            filter,
            pcap,
            bucket: Bucket::new(rate),
            left: count,
            sent: 0,
            lost: 0,
            clock_offset: clock_offset(),
            ended: false,
        };
        tracing.lines.say(&TraceLine::Begun {
            ports: self.traced_ports(),
        });
        self.clients.tracing = Some(tracing);
    }

    fn traced_ports(&self) -> Vec<TracedPort> {
        let port = |(name, port): (&String, &super::Port)| TracedPort {
            name: name.clone(),
            ifindex: port.ifindex.0,
            target: port.target.name().into(),
        };
        self.ports.attached.iter().map(port).collect()
    }

    /// One round: sends new samples and checks for the end. It runs before the tables change, so
    /// that the samples still match the tables.
    pub(super) fn continue_trace(&mut self) {
        self.begin_trace();
        let Some(mut tracing) = self.clients.tracing.take() else {
            return;
        };
        if !tracing.ended {
            self.send_samples(&mut tracing);
            // The prefix table grew, which ended the trace in the kernel.
            let gone = tracing.lines.client_hung_up() || self.tables.kernel.trace_fd().is_none();
            if gone || tracing.left == Some(0) {
                self.end_trace(&mut tracing);
            }
        }
        if tracing.lines.send() && !(tracing.ended && tracing.lines.is_empty()) {
            self.clients.tracing = Some(tracing);
        } else if !tracing.ended {
            self.end_trace(&mut tracing);
        }
    }

    fn send_samples(&self, tracing: &mut Tracing) {
        let samples = self.tables.kernel.trace_samples(ROUND);
        if samples.is_empty() {
            return;
        }
        let node = self.node();
        for sample in &samples {
            if tracing.left == Some(0) {
                return;
            }
            match tracing.is_selected_by_pcap(sample) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => {
                    tracing.lost += 1;
                    continue;
                }
            }
            let port = self
                .ports
                .attached
                .values()
                .find(|port| port.ifindex.0 == sample.ifindex);
            let traced = TracedPacket {
                number: tracing.sent + 1,
                timestamp: sample.time.wrapping_add(tracing.clock_offset),
                sample,
                target: port.map_or("none", |port| port.target.name()),
            };
            let Some(packet) = (self.clients.formatter.sample)(
                node,
                &self.tables.compiled,
                &tracing.filter,
                traced,
            ) else {
                continue;
            };
            if !tracing.is_decided_in_packet_path() && !tracing.bucket.take() {
                continue;
            }
            tracing.send(packet);
        }
    }

    fn end_trace(&mut self, tracing: &mut Tracing) {
        tracing.lost += self.tables.kernel.trace_lost().unwrap_or(0);
        if let Err(error) = self.tables.kernel.trace_stop() {
            self.health.problem = Some(error.to_string());
        }
        tracing.ended = true;
        tracing.lines.say(&TraceLine::End {
            sent: tracing.sent,
            lost: tracing.lost,
        });
    }
}

impl Tracing {
    /// Events to poll for on behalf of a trace.
    pub(super) fn poll_events<'a>(
        &'a self,
        kernel: &'a Kernel,
    ) -> impl Iterator<Item = (BorrowedFd<'a>, PollFlags)> {
        let ring = kernel.trace_fd().map(|fd| (fd, PollFlags::POLLIN));
        std::iter::once(self.lines.poll_events(!self.ended)).chain(ring)
    }

    fn is_selected_by_pcap(&self, sample: &Sample) -> io::Result<bool> {
        let arrived = &sample.arrived;
        self.pcap.as_ref().map_or(Ok(true), |filter| {
            filter.matches(&arrived.bytes, arrived.length as usize)
        })
    }

    /// Whether the packet path applies the whole filter, so that it also limits the rate.
    fn is_decided_in_packet_path(&self) -> bool {
        self.filter.is_decided_in_packet_path() && self.pcap.is_none()
    }

    fn send(&mut self, packet: Value) {
        if self.lines.is_full() {
            self.lost += 1;
            return;
        }
        self.sent += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.lines.say(&TraceLine::Packet(packet));
    }
}

/// Token bucket with one token per `interval`; its burst is the rate of one second.
struct Bucket {
    interval: Duration,
    credit: Duration,
    next: Instant,
}

impl Bucket {
    fn new(rate: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / rate.get();
        let credit = Duration::from_secs(1).saturating_sub(interval);
        let now = Instant::now();
        Self {
            interval,
            credit,
            next: now.checked_sub(credit).unwrap_or(now),
        }
    }

    fn take(&mut self) -> bool {
        let now = Instant::now();
        if self.next > now {
            return false;
        }
        let begin = now.checked_sub(self.credit).unwrap_or(self.next);
        self.next = self.next.max(begin) + self.interval;
        true
    }
}

/// Time of day minus the monotonic clock, in nanoseconds; 0 if a clock cannot be read.
fn clock_offset() -> u64 {
    nanoseconds(ClockId::CLOCK_REALTIME).wrapping_sub(nanoseconds(ClockId::CLOCK_MONOTONIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_one_second_of_packets() {
        let mut bucket = Bucket::new(NonZeroU32::new(5).expect("not 0"));
        assert_eq!((0..100).filter(|_| bucket.take()).count(), 5);
        // As if one interval had passed.
        bucket.next -= bucket.interval;
        assert_eq!((0..100).filter(|_| bucket.take()).count(), 1);
    }
}
