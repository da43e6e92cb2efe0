//! Liveness of paths: reports.

use super::{Instance, System};
use crate::compile::Counted;
use crate::report;

impl<S: System> Instance<S> {
    pub(super) fn reflectors_report(&self) -> Result<report::Reflectors, String> {
        let reflectors = self.configured.own.reflectors.iter();
        reflectors
            .map(|(&discriminator, it)| {
                let counters = self.counted(Counted::Reflector(discriminator))?;
                Ok(report::Reflector {
                    discriminator,
                    admin_down: it.admin_down,
                    answers: counters.packets,
                })
            })
            .collect()
    }
}
