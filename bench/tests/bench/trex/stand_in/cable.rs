//! Ports that are interfaces of a namespace.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Wire;
use sidestep_testkit::Napi;
use sidestep_testkit::netns::Handle;
use sidestep_testkit::{Error, FrameSocket, Namespace};

/// A cable that sends on one interface and counts on the other.
#[derive(Debug)]
pub struct Cable {
    sends: Arc<FrameSocket>,
    receives: FrameSocket,
    namespace: Handle,
    ifname: String,
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    sending: Option<JoinHandle<()>>,
    _napi: Napi,
}

impl Cable {
    /// Returns a cable between these two interfaces.
    ///
    /// # Errors
    /// An interface does not exist, or BPF is not allowed.
    pub fn open(namespace: &Namespace, [sends, receives]: [&str; 2]) -> Result<Self, Error> {
        Ok(Self {
            sends: Arc::new(FrameSocket::open(namespace, sends)?),
            receives: FrameSocket::open(namespace, receives)?,
            namespace: namespace.handle(),
            ifname: receives.to_owned(),
            sent: Arc::default(),
            stop: Arc::default(),
            sending: None,
            // Needed to receive frames that an XDP program at the other end redirects.
            _napi: Napi::attach(namespace, receives)?,
        })
    }
}

impl Wire for Cable {
    fn line_rate(&self) -> f64 {
        LINE_RATE
    }

    fn start(&mut self, frames: Vec<(Vec<u8>, f64)>, duration: Duration) {
        self.stop();
        self.stop = Arc::default();
        let (socket, sent, stop) = (
            Arc::clone(&self.sends),
            Arc::clone(&self.sent),
            Arc::clone(&self.stop),
        );
        self.sending = Some(thread::spawn(move || {
            send(&socket, &frames, duration, &sent, &stop);
        }));
    }

    fn is_sending(&self) -> bool {
        let sending = self.sending.as_ref();
        sending.is_some_and(|thread| !thread.is_finished())
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.sending.take() {
            // Ignore a panic of the thread, which only sends and counts.
            let _ = thread.join();
        }
    }

    fn counters(&self) -> [u64; 2] {
        let devices = self
            .namespace
            .run(|| fs::read_to_string("/proc/thread-self/net/dev"));
        let devices = devices.ok().and_then(Result::ok).unwrap_or_default();
        let of_ours = devices.lines().find_map(|line| {
            line.trim_start()
                .strip_prefix(&*self.ifname)?
                .strip_prefix(':')
        });
        // The second number is the number of received packets.
        let received = of_ours.and_then(|counts| counts.split_whitespace().nth(1)?.parse().ok());
        [self.sent.load(Ordering::Acquire), received.unwrap_or(0)]
    }

    fn capture(&mut self) {
        // Ignore earlier frames, and a removed interface.
        let _ = self.receives.drain();
    }

    fn push(&mut self, frame: &[u8]) {
        if self.sends.send(frame).is_ok() {
            self.sent.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn captured(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.receives.receive_now().ok().flatten()).collect()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends the frames that are due until the duration has passed.
fn send(
    socket: &FrameSocket,
    frames: &[(Vec<u8>, f64)],
    duration: Duration,
    sent: &AtomicU64,
    stop: &AtomicBool,
) {
    let begun = Instant::now();
    let mut made = vec![0.0; frames.len()];
    loop {
        let elapsed = begun.elapsed().min(duration);
        if stop.load(Ordering::Acquire) {
            return;
        }
        for ((frame, rate), made) in frames.iter().zip(&mut made) {
            // Late frames are sent at once, up to the next clock check.
            for _ in 0..BURST {
                if *made >= (rate * elapsed.as_secs_f64()).floor() {
                    break;
                }
                *made += 1.0;
                if socket.send(frame).is_err() {
                    return;
                }
                sent.fetch_add(1, Ordering::AcqRel);
            }
        }
        if elapsed == duration {
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// Bits per second: about 50,000 of the shortest packets. Every router can forward this rate
/// without loss.
const LINE_RATE: f64 = 40e6;
const BURST: usize = 256;
const PAUSE: Duration = Duration::from_micros(200);
