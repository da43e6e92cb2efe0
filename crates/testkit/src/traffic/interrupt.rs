//! Interruption by a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;

/// A flag that signal handlers set to end the program. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Checks the flag between two steps.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the flag is set.
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
