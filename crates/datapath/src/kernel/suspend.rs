//! Suspends next hops and policies: the packets that use them are punted. Linux has changed many
//! routes, and knows their new way before the tables do.

use super::Kernel;
use crate::abi::{AdjacencyId, PolicyId, sidestep_policy};
use crate::image::{EMPTY_VIEW, Image};

/// Words of a policy with the way to its first segment: adjacency and view.
const ADJACENCY: usize = 0;
const VIEW: usize = 1;

impl Kernel {
    /// Punts packets to this next hop, as for an unresolved neighbor, until [`Kernel::resume`] or
    /// until the adjacency changes.
    pub fn suspend_adjacency(&self, index: AdjacencyId) {
        self.maps.adjacencies.retract(index.0);
    }

    /// Punts packets of this policy, as for a first segment without a route, until
    /// [`Kernel::resume`].
    pub fn suspend_policy(&self, index: PolicyId, policy: &sidestep_policy) {
        let suspended = sidestep_policy {
            adjacency: AdjacencyId::NONE,
            view: EMPTY_VIEW,
            ..*policy
        };
        let table = &self.maps.policies;
        table.publish_words(index.0, &suspended, &[VIEW, ADJACENCY]);
    }

    /// Gives these records their content in the published image again, if they are still in it.
    pub fn resume(
        &self,
        image: &Image,
        adjacencies: impl IntoIterator<Item = AdjacencyId>,
        policies: impl IntoIterator<Item = PolicyId>,
    ) {
        for index in adjacencies {
            if let Some(adjacency) = image.adjacencies.get(&index) {
                self.maps.adjacencies.publish_first(index.0, adjacency);
            }
        }
        for index in policies {
            if let Some(policy) = image.policies.get(&index) {
                let table = &self.maps.policies;
                table.publish_words(index.0, policy, &[ADJACENCY, VIEW]);
            }
        }
    }
}
