//! AF_XDP as a [`Source`]: packets go through a socket's ring straight to a queue of the driver. For network cards whose driver
//! does not take redirected frames, and so no [`super::LiveFrames`]; over veth it is slower than these.

mod socket;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::pace::Pace;
use super::packets::Packets;
use super::run::pin;
use super::source::{Offer, Offered, Source, check, nanoseconds, pace_interval};
use super::stream::Stream;
use crate::netns::Handle;
use crate::program::Interrupt;
use crate::{Error, Namespace};
use socket::Socket;

/// How packets get from the socket's memory to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The kernel copies them into socket buffers: every driver can.
    Copy,
    /// The driver sends them from the socket's memory; refused where it cannot.
    ZeroCopy,
    /// [`Mode::ZeroCopy`] where the driver can, otherwise [`Mode::Copy`].
    Auto,
}

/// A socket on one queue of an interface, and what it sends.
#[derive(Debug)]
pub struct AfXdp {
    stream: Stream,
    socket: Socket,
    namespace: Handle,
    cpu: usize,
}

impl AfXdp {
    /// Prepares to send `stream` out of a queue of `ifname`, from a thread pinned to `cpu`.
    ///
    /// # Errors
    /// No such interface or queue, the queue has a socket already, or the driver has no zero copy and it was asked for.
    pub fn open(
        namespace: &Namespace,
        ifname: &str,
        queue: u32,
        mode: Mode,
        stream: &Stream,
        cpu: usize,
    ) -> Result<Self, Error> {
        let ifindex = namespace.ifindex(ifname)?;
        let socket = namespace.run(|| Socket::open(ifindex, queue, mode))?;
        let socket = socket.map_err(|source| {
            let place = format!("queue {queue} of {ifname} of {}", namespace.name());
            Error::os(format!("open an AF_XDP socket on {place}"), source)
        })?;
        Ok(Self {
            stream: stream.clone(),
            socket,
            namespace: namespace.handle(),
            cpu,
        })
    }

    /// Whether the driver sends from the socket's memory.
    pub fn is_zero_copy(&self) -> bool {
        self.socket.is_zero_copy()
    }
}

impl Source for AfXdp {
    fn offer(&mut self, offer: &Offer, interrupt: Option<&Interrupt>) -> Result<Offered, Error> {
        let pace = Pace::new(nanoseconds(offer.duration)?, pace_interval(offer.load)?);
        let packets = Packets::new(&self.stream, offer.trial);
        let (socket, namespace, cpu) = (&mut self.socket, &self.namespace, self.cpu);
        let stop = AtomicBool::new(false);
        let sent = thread::scope(|scope| {
            let send = || {
                namespace.enter().and_then(|()| pin(cpu))?;
                send(socket, pace, packets, offer.timed, &stop)
            };
            let sending = scope.spawn(send);
            while !sending.is_finished() {
                if check(interrupt).is_err() {
                    stop.store(true, Ordering::Release);
                }
                thread::sleep(LOOK);
            }
            sending.join()
        });
        let sent = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        check(interrupt)?;
        Ok(sent)
    }
}

/// Sends what is due until the time is over, and waits until the driver has taken all of it.
fn send(
    socket: &mut Socket,
    mut pace: Pace,
    mut packets: Packets<'_>,
    timed: bool,
    stop: &AtomicBool,
) -> Result<Offered, Error> {
    let failed = |source| Error::os("send by an AF_XDP socket", source);
    let before = socket.completed();
    let first = now()?;
    let mut elapsed = 0;
    while !pace.has_ended(elapsed) && !stop.load(Ordering::Acquire) {
        socket.reclaim();
        let mut filled = 0;
        while filled < BATCH && socket.has_room() {
            let time = now()?;
            elapsed = time - first;
            if !pace.is_due(elapsed) {
                break;
            }
            socket.push(|memory, holds| packets.write(memory, holds, if timed { time } else { 0 }));
            filled += 1;
        }
        if filled == 0 {
            elapsed = now()? - first;
        }
        socket.submit().map_err(failed)?;
    }
    let ended = Instant::now();
    while socket.completed() - before < packets.sent() && ended.elapsed() < PATIENCE {
        socket.submit().map_err(failed)?;
        socket.reclaim();
        thread::yield_now();
    }
    Ok(Offered {
        sent: socket.completed() - before,
        seconds: elapsed as f64 / 1e9,
    })
}

/// The clock of `bpf_ktime_get_ns()`, with which the receiver compares.
fn now() -> Result<u64, Error> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_err(|source| Error::os("read CLOCK_MONOTONIC", source))?;
    Ok(Duration::from(time).as_nanos() as u64)
}

/// Packets from one call of the kernel to the next.
const BATCH: usize = 32;
/// How long the driver may take for what is in the ring.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a signal may go unseen.
const LOOK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
