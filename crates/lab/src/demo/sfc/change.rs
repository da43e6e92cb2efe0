//! A chain that changes while packets go through it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::Error;
use super::functions::unspecified;
use crate::program::Interrupt;
use crate::{FrameSocket, Namespace};

/// How a change went.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// From the start of the command to the first packet that leaves the chain with the new segment list.
    pub took: Duration,
    /// Packets sent before, meanwhile and after.
    pub sent: usize,
    /// Of them, those that arrived.
    pub arrived: usize,
}

/// Who sends, who receives, and where it is seen which way packets took.
#[derive(Debug)]
pub struct Ends<'a> {
    /// Sends.
    pub from: &'a Namespace,
    /// Receives.
    pub to: &'a Namespace,
    /// Its address.
    pub address: IpAddr,
    /// Sees what comes out of the chain.
    pub behind: FrameSocket,
}

/// Carries out `change` while packets are sent, until one has come out that had this number of segments.
///
/// # Errors
/// None comes, or the change is refused.
pub fn during(
    ends: &Ends<'_>,
    segments: u8,
    interrupt: &Interrupt,
    change: impl FnOnce() -> Result<(), Error>,
) -> Result<Change, Error> {
    let failed = |source| crate::Error::os(format!("UDP to {}", ends.address), source);
    let receiver = ends.to.run(|| UdpSocket::bind((ends.address, 0)))?;
    let receiver = receiver.map_err(failed)?;
    receiver
        .set_read_timeout(Some(Duration::from_millis(10)))
        .map_err(failed)?;
    let target = receiver.local_addr().map_err(failed)?;
    let anywhere = SocketAddr::new(unspecified(ends.address), 0);
    let sender = ends
        .from
        .run(|| UdpSocket::bind(anywhere))?
        .map_err(failed)?;
    let (sent_all, over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let sending = scope.spawn(|| send(&sender, target, &sent_all));
        let receiving = scope.spawn(|| receive(&receiver, &over));
        let watch = || -> Result<Duration, Error> {
            interrupt.sleep(AROUND)?;
            while ends.behind.receive_now()?.is_some() {}
            let started = Instant::now();
            change()?;
            let took = first(&ends.behind, segments, started, interrupt)?;
            interrupt.sleep(AROUND)?;
            Ok(took)
        };
        let took = watch();
        sent_all.store(true, Ordering::Release);
        let sent = joined(sending);
        let waited = interrupt.sleep(AROUND);
        over.store(true, Ordering::Release);
        let arrived = joined(receiving);
        waited?;
        Ok(Change {
            took: took?,
            sent: sent.map_err(failed)?,
            arrived,
        })
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    let ended = thread.join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Until a packet with this number of segments comes out of the chain.
fn first(
    behind: &FrameSocket,
    segments: u8,
    started: Instant,
    interrupt: &Interrupt,
) -> Result<Duration, Error> {
    while started.elapsed() < PATIENCE {
        interrupt.check()?;
        if let Some(frame) = behind.receive(Duration::from_millis(10))?
            && segments_of(&frame) == Some(segments)
        {
            return Ok(started.elapsed());
        }
    }
    Err(Error::Wrong(format!(
        "no packet came out of the chain with {segments} segments"
    )))
}

/// Numbered datagrams, evenly, until it is `done`. Returns how many.
fn send(sender: &UdpSocket, target: SocketAddr, done: &AtomicBool) -> std::io::Result<usize> {
    let mut number = 0;
    while !done.load(Ordering::Acquire) {
        sender.send_to(&u64::to_be_bytes(number as u64), target)?;
        number += 1;
        thread::sleep(PERIOD);
    }
    Ok(number)
}

/// Returns how many different datagrams came until it is `over`.
fn receive(receiver: &UdpSocket, over: &AtomicBool) -> usize {
    let (mut arrived, mut number) = (BTreeSet::new(), [0; 8]);
    while !over.load(Ordering::Acquire) {
        if receiver.recv(&mut number).is_ok() {
            arrived.insert(number);
        }
    }
    arrived.len()
}

/// Segments in the SRH of an encapsulated packet: Last Entry and one (RFC 8754 2).
fn segments_of(frame: &[u8]) -> Option<u8> {
    let srh = frame.get(54..)?;
    (frame[12..14] == [0x86, 0xdd] && frame[20] == 43).then(|| srh.get(4).map(|last| last + 1))?
}

/// Between two packets.
const PERIOD: Duration = Duration::from_micros(100);
/// Packets are sent for so long before a change and after it.
const AROUND: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segments_are_those_of_the_outer_srh() {
        let mut frame = vec![0; 54];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[20] = 43;
        frame.extend([41, 6, 4, 2, 2, 0, 0, 0]);
        assert_eq!(segments_of(&frame), Some(3));
        assert_eq!(segments_of(&frame[..57]), None);
        frame[20] = 58;
        assert_eq!(segments_of(&frame), None);
    }
}
