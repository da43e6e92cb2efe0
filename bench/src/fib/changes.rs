//! Single changes of a full table: latency and rate, alone and with concurrent lookups.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sidestep_testkit::random::Random;

use super::routes::Route;
use super::subject::{Order, Reader, Stop, Subject, Trouble, Way};
use super::traffic::Addresses;
use crate::cpu;

/// Changes between two readings of the clock.
const BETWEEN: usize = 64;
/// Lookups per call of a concurrent reader, so that the writer waits only briefly for it.
const GLANCE: usize = 256;

/// Cost of single changes.
#[derive(Debug)]
pub struct Changes {
    /// Times of the changes, sorted.
    pub times: Vec<Duration>,
    /// Changes per second, including waits for readers.
    pub rate: f64,
}

/// Removes random routes and inserts them again, one by one, for about this duration.
///
/// # Errors
/// The table cannot be changed.
pub fn measure(
    subject: &mut dyn Subject,
    routes: &[Route],
    length: Duration,
    stop: &Stop,
    random: &mut Random,
) -> Result<Changes, Trouble> {
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < length {
        stop.check()?;
        for _ in 0..BETWEEN / 2 {
            let route = random.pick(routes);
            let before = Instant::now();
            subject.remove(route.prefix)?;
            let between = Instant::now();
            subject.insert(route.prefix, route.hop)?;
            times.extend([between - before, between.elapsed()]);
        }
    }
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    times.sort_unstable();
    Ok(Changes { times, rate })
}

impl Changes {
    /// Returns the percentile for this share (0 to 1) of the changes, in microseconds.
    pub fn percentile(&self, share: f64) -> f64 {
        let last = self.times.len() - 1;
        let at = (last as f64 * share).round() as usize;
        self.times[at].as_secs_f64() * 1e6
    }
}

/// Runs `it` while another processor makes lookups continuously. Returns the result, and the
/// lookups per second meanwhile.
pub fn under_load<T>(
    reader: &dyn Reader,
    addresses: &Addresses,
    cpu: usize,
    work: impl FnOnce() -> T,
) -> (T, f64) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            cpu::pin(cpu);
            let (begun, mut lookups) = (Instant::now(), 0);
            let mut windows = (0..addresses.len() - GLANCE).step_by(GLANCE).cycle();
            while !ended.load(Ordering::Relaxed) {
                let first = windows.next().unwrap_or(0);
                let way = Way::plain(Order::Independent);
                // This reader was measured before without an error.
                if reader.time(addresses, first..first + GLANCE, way).is_err() {
                    break;
                }
                lookups += GLANCE;
            }
            lookups as f64 / begun.elapsed().as_secs_f64()
        });
        let done = work();
        ended.store(true, Ordering::Relaxed);
        (done, load.join().unwrap_or(0.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_times() {
        let changes = Changes {
            times: (1..=101).map(Duration::from_micros).collect(),
            rate: 0.0,
        };
        let shares = [0.0, 0.5, 0.99, 1.0].map(|share| changes.percentile(share).round() as u32);
        assert_eq!(shares, [1, 51, 100, 101]);
    }
}
