//! Suspends next hops and policies: the packets that use them are punted. Linux has changed many
//! routes, and knows their new way before the tables do.

use std::sync::atomic::Ordering;

use super::maps::Mapped;
use super::{Kernel, KernelError, Table};
use crate::abi::{
    AdjacencyId, PolicyId, SIDESTEP_ADJACENCY_DOWN, sidestep_adjacency, sidestep_policy,
};
use crate::image::{EMPTY_VIEW, Image};

/// Words of a policy with the way to its first segment: adjacency and view.
const ADJACENCY: usize = 0;
const VIEW: usize = 1;

/// Next hops of packets, whose links may stop at any time.
#[derive(Debug)]
pub struct NextHops(Mapped<sidestep_adjacency>);

impl NextHops {
    /// As [`Kernel::take_down`].
    pub fn take_down(&self, ifindex: u32) {
        take_down(&self.0, ifindex);
    }

    /// Takes one next hop out of order.
    pub fn take_down_one(&self, index: AdjacencyId) {
        self.0.words(index.0)[0].fetch_or(DOWN, Ordering::Release);
    }
}

fn take_down(table: &Mapped<sidestep_adjacency>, ifindex: u32) {
    for (index, adjacency) in table.records() {
        if adjacency.ifindex == ifindex {
            table.words(index)[0].fetch_or(DOWN, Ordering::Release);
        }
    }
}

/// The flag in the first word of an adjacency.
const DOWN: u64 = {
    let offset = std::mem::offset_of!(sidestep_adjacency, flags);
    let mut bytes = [0; 8];
    let flag = (SIDESTEP_ADJACENCY_DOWN as u16).to_ne_bytes();
    (bytes[offset], bytes[offset + 1]) = (flag[0], flag[1]);
    u64::from_ne_bytes(bytes)
};

impl Kernel {
    /// Punts packets to this next hop, as for an unresolved neighbor, until [`Kernel::resume`] or
    /// until the adjacency changes. With other members in a group, or with a backup, they go there.
    pub fn suspend_adjacency(&self, index: AdjacencyId) {
        let suspended = sidestep_adjacency {
            flags: SIDESTEP_ADJACENCY_DOWN as u16,
            ..Default::default()
        };
        self.maps.adjacencies.publish_first(index.0, &suspended);
    }

    /// Takes all next hops of a link out of order, by one store each, until [`Kernel::resume`] or until
    /// they change: packets go to the other members of their groups, or to backups.
    pub fn take_down(&self, ifindex: u32) {
        take_down(&self.maps.adjacencies, ifindex);
    }

    /// Returns the next hops, for another thread.
    ///
    /// # Errors
    /// [`KernelError::System`].
    pub fn next_hops(&self) -> Result<NextHops, KernelError> {
        Mapped::new(self.maps.handle(Table::Adjacencies)).map(NextHops)
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
