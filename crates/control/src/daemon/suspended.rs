//! Ways that packets must no longer take. A nexthop object or a link may serve hundreds of thousands
//! of routes, and their records take longer to change than the kernel needs for its routes. Until
//! then, the packets of these ways are punted, and Linux forwards them by its new routes.

use std::collections::BTreeSet;

use sidestep_datapath::abi::SIDESTEP_ROUTE_SIDESTEP_ONLY;
use sidestep_datapath::{AdjacencyId, Kernel, PolicyId};
use sidestep_mirror::Retired;
use sidestep_model::route::{Encap, NextHop};

use crate::compile::Compiled;

/// Suspended records.
#[derive(Debug, Default)]
pub(super) struct Suspended {
    adjacencies: BTreeSet<AdjacencyId>,
    policies: BTreeSet<PolicyId>,
}

impl Suspended {
    /// Suspends the records that lead by this way. Linux cannot forward packets of Sidestep-only
    /// routes, so their records stay.
    pub fn add(&mut self, retired: &Retired, compiled: &Compiled, kernel: &Kernel) {
        let (mut adjacencies, mut policies) = match retired {
            Retired::Link(dev) => (
                adjacencies(compiled, |info| info.ifindex == *dev),
                BTreeSet::new(),
            ),
            Retired::NextHop(NextHop {
                encap: Some(Encap::Seg6(encap)),
                ..
            }) => {
                let all = compiled.index.policies.iter();
                let of_encap = all.filter(|(_, info)| info.encap == *encap);
                (BTreeSet::new(), of_encap.map(|(index, _)| *index).collect())
            }
            Retired::NextHop(NextHop {
                dev: Some(dev),
                via: Some(via),
                encap: None,
                ..
            }) => (
                adjacencies(compiled, |info| {
                    info.ifindex == *dev && info.via == Some(*via)
                }),
                BTreeSet::new(),
            ),
            Retired::NextHop(_) => return,
        };
        for route in compiled.image.routes.values() {
            if u32::from(route.flags) & SIDESTEP_ROUTE_SIDESTEP_ONLY != 0 {
                let policy = route.policy_id();
                let path = compiled.image.policies.get(&policy);
                adjacencies.remove(&route.adjacency);
                adjacencies.remove(&path.map_or(AdjacencyId::NONE, |policy| policy.adjacency));
                policies.remove(&policy);
            }
        }
        for index in &adjacencies {
            kernel.suspend_adjacency(*index);
        }
        for index in &policies {
            kernel.suspend_policy(*index, &compiled.image.policies[index]);
        }
        self.adjacencies.append(&mut adjacencies);
        self.policies.append(&mut policies);
    }

    /// Ends the suspension, after the routes have changed.
    pub fn resume(&mut self, compiled: &Compiled, kernel: &Kernel) {
        let adjacencies = std::mem::take(&mut self.adjacencies);
        let policies = std::mem::take(&mut self.policies);
        kernel.resume(&compiled.image, adjacencies, policies);
    }
}

/// Returns the adjacencies that satisfy a condition.
fn adjacencies(
    compiled: &Compiled,
    accepts: impl Fn(&crate::compile::AdjacencyInfo) -> bool,
) -> BTreeSet<AdjacencyId> {
    let all = compiled.index.adjacencies.iter();
    let found = all.filter(|(_, info)| accepts(info));
    found.map(|(index, _)| *index).collect()
}
