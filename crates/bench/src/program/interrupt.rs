//! A request to end, raised by a signal handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sidestep_testkit::Error;

/// A flag that asks for the end of the program. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Checks the flag between two steps.
    ///
    /// # Errors
    /// [`Error::Interrupted`] once the flag is raised.
    pub fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}

impl From<Arc<AtomicBool>> for Interrupt {
    fn from(raised: Arc<AtomicBool>) -> Self {
        Self(raised)
    }
}
