//! What has to be taken down again, however the demo ends.

use std::process::Command;

use super::product::Sidestep;
use super::{Error, NAME};
use crate::Lab;

/// The network and what runs in it. Dropping it, also in a panic, stops Sidestep on the routers and removes the
/// namespaces; what a killed demo leaves is removed by [`clean`] at the next start.
#[derive(Debug)]
pub struct Stage {
    lab: Option<Lab>,
    sidestep: Sidestep,
}

impl Stage {
    /// Takes responsibility for a network.
    pub fn new(lab: Lab, sidestep: Sidestep) -> Self {
        Self {
            lab: Some(lab),
            sidestep,
        }
    }

    /// The network.
    ///
    /// # Errors
    /// Never before [`Self::keep`].
    pub fn lab(&self) -> Result<&Lab, Error> {
        let gone = || Error::Usage("the network was given away".into());
        self.lab.as_ref().ok_or_else(gone)
    }

    /// The program.
    pub fn sidestep(&self) -> &Sidestep {
        &self.sidestep
    }

    /// Leaves the network, and what runs in it, as it is.
    pub fn keep(mut self) {
        // Namespaces stay when the process ends without dropping them.
        std::mem::forget(self.lab.take());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Some(lab) = self.lab.take() else { return };
        for router in lab.nodes().filter(|node| is_router(node)) {
            // It may not run, or not yet; nobody is left to be told.
            if let Ok(namespace) = lab.namespace(router) {
                let _ = self.sidestep.stop(namespace);
            }
        }
    }
}

/// Removes what earlier demos left, killed or kept: Sidestep first, so that its pins go too, then the namespaces.
/// Returns their names.
pub fn clean(sidestep: Option<&Sidestep>) -> Vec<String> {
    if let Some(sidestep) = sidestep {
        for name in Lab::leftovers_of(NAME) {
            if name.rsplit('-').next().is_some_and(is_router) {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &name]);
                // It may not run there; its word does not matter.
                let _ = command.arg(sidestep.path()).arg("stop").output();
            }
        }
    }
    Lab::sweep_of(NAME)
}

/// The nodes of any demo that Sidestep may run on.
fn is_router(node: &str) -> bool {
    let chain = super::sfc::topology::ROUTERS;
    super::topology::ROUTERS.contains(&node) || chain.contains(&node)
}
