//! Ctrl-C: the first asks for an end between two windows, the second ends the program on the spot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::Error;

/// Set once somebody wants the run to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over the signals that end a program. What a second one leaves behind is removed by the next run.
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

    /// Between two windows.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once a signal has come.
    pub fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}
