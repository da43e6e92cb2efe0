//! Ctrl-C: the first asks the program to end between two steps, the second ends it on the spot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::Error;

/// Set when the program must end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over the signals that end a program. A second signal ends it at once, as if killed;
    /// the next start then cleans up.
    ///
    /// # Errors
    /// The kernel refuses a handler.
    pub fn install() -> Result<Self, Error> {
        let wanted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag still down.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&wanted))
                .and_then(|_| flag::register(signal, Arc::clone(&wanted)))
                .map_err(|source| {
                    crate::Error::os(format!("a handler for signal {signal}"), source)
                })?;
        }
        Ok(Self(wanted))
    }

    /// Between two steps.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once a signal has come.
    pub fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Sleeps, and wakes up early for a signal.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn sleep(&self, time: Duration) -> Result<(), Error> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK));
        }
    }

    #[cfg(test)]
    pub(crate) fn pulled(pulled: bool) -> Self {
        Self(Arc::new(AtomicBool::new(pulled)))
    }
}

impl From<Arc<AtomicBool>> for Interrupt {
    /// For a program with its own handlers, which raises this flag.
    fn from(wanted: Arc<AtomicBool>) -> Self {
        Self(wanted)
    }
}

/// How long a signal may go unseen.
const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_with_the_signal() {
        let started = Instant::now();
        let slept = Interrupt::pulled(true).sleep(Duration::from_secs(60));
        assert!(matches!(slept, Err(Error::Interrupted)));
        assert!(started.elapsed() < Duration::from_secs(1));
        assert!(
            Interrupt::pulled(false)
                .sleep(Duration::from_millis(1))
                .is_ok()
        );
    }
}
