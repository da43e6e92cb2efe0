//! Numbered packets at a constant rate, and the host that each arrives at.

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sidestep_testkit::{Error, FrameSocket, Lab};

use super::lab::within;

/// Time between the first packet and the change.
const BEFORE: Duration = Duration::from_millis(300);
/// Time for the last packets to arrive.
const LATE: Duration = Duration::from_millis(200);
/// LIMIT: time that the sender makes up for after it was not scheduled.
const CATCH_UP: Duration = Duration::from_millis(1);
/// Precedes the number at the end of each packet.
const MARK: [u8; 4] = *b"way!";
/// Octets of an Ethernet header, an IPv6 header and a UDP header.
const HEADERS: usize = 14 + 40 + 8;

/// Fate of the packets around a change.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// Time from the start of the command to the last packet that was sent and took the old way.
    pub last_old: Duration,
    /// Duration of the command.
    pub command: Duration,
    /// Packets that arrived nowhere.
    pub lost: usize,
    /// Packets that Sidestep left to Linux.
    pub punted: u64,
}

impl Observed {
    /// Returns [`Observed::last_old`] in milliseconds. A logarithmic axis has no 0.
    pub fn last_old_ms(&self) -> f64 {
        (self.last_old.as_secs_f64() * 1e3).max(0.1)
    }
}

/// The sender and the receivers.
pub struct Traffic {
    frames: Vec<Vec<u8>>,
    a: FrameSocket,
    b: FrameSocket,
    c: FrameSocket,
    interval: Duration,
}

impl Traffic {
    /// Prepares packets from `a` to these addresses.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn new(lab: &Lab, destinations: &[Ipv6Addr], rate: u32) -> Result<Self, Error> {
        let socket = |host: &str| FrameSocket::open(lab.namespace(host)?, "eth0");
        let macs = (lab.mac("r", "eth0")?, lab.mac("a", "eth0")?);
        Ok(Self {
            frames: destinations.iter().map(|to| frame(macs, *to)).collect(),
            a: socket("a")?,
            b: socket("b")?,
            c: socket("c")?,
            interval: Duration::from_secs(1) / rate,
        })
    }

    /// Waits until packets arrive.
    ///
    /// # Errors
    /// They do not within this time.
    pub fn wait(&self, limit: Duration) -> Result<(), Error> {
        let arrives = || {
            for frame in &self.frames {
                self.a.send(frame)?;
            }
            let mut numbers = Vec::new();
            receive(&self.b, &mut numbers)?;
            receive(&self.c, &mut numbers)?;
            Ok(!numbers.is_empty())
        };
        if !within(limit, arrives)? {
            return Err(Error::Wrong("no packet arrives".into()));
        }
        Ok(())
    }

    /// Sends for a while, makes the change, and sends for `after`.
    ///
    /// # Errors
    /// The change fails, or no packet took the old way before it.
    pub fn observe(
        &self,
        after: Duration,
        change: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Observed, Error> {
        self.b.drain()?;
        self.c.drain()?;
        let ended = AtomicBool::new(false);
        let (sent, arrived, times) = thread::scope(|scope| {
            let sender = scope.spawn(|| self.send(&ended));
            let receiver = scope.spawn(|| self.collect(&ended));
            thread::sleep(BEFORE);
            let begun = Instant::now();
            let changed = change();
            let took = begun.elapsed();
            thread::sleep(after);
            ended.store(true, Ordering::Relaxed);
            let died = |_| Error::Wrong("a thread panicked".into());
            let sent = sender.join().map_err(died)??;
            let arrived = receiver.join().map_err(died)??;
            changed.map(|()| (sent, arrived, (begun, took)))
        })?;
        let (begun, command) = times;
        let [old, new] = &arrived;
        let mut ways = vec![None; sent.len()];
        for (numbers, is_old) in [(old, true), (new, false)] {
            for &number in numbers {
                if let Some(way) = ways.get_mut(number as usize) {
                    *way = Some(is_old);
                }
            }
        }
        let on_old = sent
            .iter()
            .zip(&ways)
            .filter(|(_, way)| **way == Some(true));
        let last = on_old.map(|(at, _)| *at).max();
        let last = last.ok_or_else(|| Error::Wrong("no packet took the old way".into()))?;
        Ok(Observed {
            last_old: last.saturating_duration_since(begun),
            command,
            lost: ways.iter().filter(|way| way.is_none()).count(),
            punted: 0,
        })
    }

    /// Sends packets until the end. Returns the time of each.
    fn send(&self, ended: &AtomicBool) -> Result<Vec<Instant>, Error> {
        let mut sent = Vec::new();
        let mut frames = self.frames.clone();
        let mut due = Instant::now();
        while !ended.load(Ordering::Relaxed) {
            // Sleeps, because the daemon shares the CPUs with the sender.
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let number = sent.len() as u32;
            let place = number as usize % frames.len();
            let frame = &mut frames[place];
            let end = frame.len() - 4;
            frame[end..].copy_from_slice(&number.to_be_bytes());
            sent.push(Instant::now());
            self.a.send(frame)?;
            // A sender that was not scheduled sends at most a few packets faster afterwards.
            due = (due + self.interval).max(Instant::now().checked_sub(CATCH_UP).unwrap_or(due));
        }
        Ok(sent)
    }

    /// Collects the numbers that arrive at `b` and `c`.
    fn collect(&self, ended: &AtomicBool) -> Result<[Vec<u32>; 2], Error> {
        let mut arrived = [Vec::new(), Vec::new()];
        let mut last = None;
        while last.is_none_or(|at: Instant| at.elapsed() < LATE) {
            if ended.load(Ordering::Relaxed) {
                last.get_or_insert_with(Instant::now);
            }
            receive(&self.b, &mut arrived[0])?;
            receive(&self.c, &mut arrived[1])?;
            thread::sleep(Duration::from_millis(2));
        }
        Ok(arrived)
    }
}

/// Appends the numbers of the packets that have arrived.
fn receive(socket: &FrameSocket, numbers: &mut Vec<u32>) -> Result<(), Error> {
    loop {
        let frame = match socket.receive_now() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            // The change takes the link of the socket down.
            Err(Error::Os { source, .. }) if source.raw_os_error() == Some(libc::ENETDOWN) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if let Some((head, number)) = frame.split_last_chunk::<4>()
            && head.ends_with(&MARK)
        {
            numbers.push(u32::from_be_bytes(*number));
        }
    }
}

/// Returns a UDP packet of `a` with room for a number.
fn frame((to_mac, from_mac): ([u8; 6], [u8; 6]), to: Ipv6Addr) -> Vec<u8> {
    let from: Ipv6Addr = Ipv6Addr::new(0xfc00, 0xa, 0, 0, 0, 0, 0, 2);
    let length = (8 + MARK.len() + 4) as u16;
    let mut frame = [&to_mac[..], &from_mac, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend(length.to_be_bytes());
    frame.extend([17, 64]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    // Ports 1000 and 9 (discard). Nothing on the way verifies the checksum.
    frame.extend([3, 232, 0, 9]);
    frame.extend(length.to_be_bytes());
    frame.extend([0xff, 0xff]);
    debug_assert_eq!(frame.len(), HEADERS);
    frame.extend(MARK);
    frame.extend([0; 4]);
    frame
}
