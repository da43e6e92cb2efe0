//! Intervals of commands that repeat, until a signal ends them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Longest sleep: a signal does not end one.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shortest and longest interval, in seconds.
const INTERVALS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// Parses an interval in seconds.
///
/// # Errors
/// It is not a number, or not within the limits.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|it| INTERVALS.contains(it));
    seconds.ok_or_else(|| {
        let (least, most) = INTERVALS.into_inner();
        format!("expected a number of seconds from {least} to {most}")
    })
}

/// Returns a flag that Ctrl-C and SIGTERM set. SIGHUP keeps its default: the terminal is gone.
///
/// # Errors
/// The system refuses the handlers.
pub fn ended_by_signal() -> io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    Ok(ended)
}

/// Sleeps. Returns false if a signal has ended the command.
pub fn sleep_until(time: Instant, ended: &AtomicBool) -> bool {
    loop {
        if ended.load(Ordering::Relaxed) {
            return false;
        }
        let wait = time.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return true;
        }
        std::thread::sleep(wait.min(PATIENCE));
    }
}
