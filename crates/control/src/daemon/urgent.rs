//! Changes of many routes, in the moment of their notification: nexthop objects and links that went
//! down.
//!
//! The group of a nexthop object changes with one write. If a change needs more, the records of its
//! routes take longer to change than the kernel needs for its routes. Until then, the packets of
//! these ways are punted, and Linux forwards them by its new routes.

use std::collections::BTreeSet;

use sidestep_datapath::abi::SIDESTEP_ROUTE_SIDESTEP_ONLY;
use sidestep_datapath::{AdjacencyId, Kernel, PolicyId};
use sidestep_mirror::Urgent;
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::{Encap, NextHop, ObjectChange};

use super::own::OverlaidNode;
use super::packet_path::PacketPath;
use crate::compile::{Change, Compiled, Compiler};

/// Number of routes of a nexthop object from which on the next hops that it lost are suspended. Fewer
/// routes change faster.
const MANY: usize = 256;

/// The tables, for urgent changes.
pub(super) struct UrgentTables<'a> {
    pub suspended: &'a mut Suspended,
    pub compiler: &'a mut Compiler,
    pub compiled: &'a mut Compiled,
    pub kernel: &'a mut Kernel,
    pub overlaid: &'a OverlaidNode,
}

impl UrgentTables<'_> {
    /// Applies a change. Returns whether the routes of a nexthop object need nothing else.
    pub fn apply(&mut self, mirrored: &Node, change: Urgent) -> bool {
        match change {
            Urgent::Link(dev) => self.suspended.link(dev, self.compiled, self.kernel),
            Urgent::Object(change) if self.object(mirrored, &change) => return true,
            Urgent::Object(change) => {
                let gone = gone(&change).filter(|_| change.routes >= MANY);
                for hop in gone {
                    self.suspended.next_hop(hop, self.compiled, self.kernel);
                }
            }
        }
        false
    }

    /// Changes the groups of a nexthop object. Returns false, with nothing changed, if each of its
    /// routes has to change.
    fn object(&mut self, mirrored: &Node, change: &ObjectChange) -> bool {
        let node = self.overlaid.node(mirrored);
        let Ok(update) = self.compiler.update_object(node, change, self.compiled) else {
            return false;
        };
        let is_published = publish(self.kernel, &update, self.compiled);
        if is_published {
            self.compiler.accept();
        }
        is_published
    }
}

/// Publishes an incremental compilation. If it fails, `compiled` is as before.
pub(super) fn publish(
    kernel: &mut impl PacketPath,
    change: &Change,
    compiled: &mut Compiled,
) -> bool {
    let mut counters = change.new_counters();
    let cleared = counters.try_for_each(|slot| kernel.clear_route_counters(slot));
    let published = cleared.and_then(|()| kernel.publish(&change.delta, &compiled.image));
    if published.is_err() {
        change.revert(compiled);
    }
    published.is_ok()
}

/// Returns the next hops that an object has lost.
fn gone(change: &ObjectChange) -> impl Iterator<Item = &NextHop> {
    let way = |hop: &NextHop| (hop.dev, hop.via, hop.encap.clone());
    let after = change.after.as_deref().unwrap_or_default();
    let before = change.before.as_deref().unwrap_or_default().iter();
    before.filter(move |hop| !after.iter().any(|it| way(it) == way(hop)))
}

/// Suspended records.
#[derive(Debug, Default)]
pub(super) struct Suspended {
    adjacencies: BTreeSet<AdjacencyId>,
    policies: BTreeSet<PolicyId>,
}

impl Suspended {
    /// Suspends the next hops on a link.
    fn link(&mut self, dev: IfIndex, compiled: &Compiled, kernel: &Kernel) {
        let of_link = adjacencies(compiled, |info| info.ifindex == dev);
        self.add(of_link, BTreeSet::new(), compiled, kernel);
    }

    /// Suspends a next hop.
    fn next_hop(&mut self, hop: &NextHop, compiled: &Compiled, kernel: &Kernel) {
        match hop {
            NextHop {
                encap: Some(Encap::Seg6(encap)),
                ..
            } => {
                let all = compiled.index.policies.iter();
                let of_encap = all.filter(|(_, info)| info.encap == *encap);
                let policies = of_encap.map(|(index, _)| *index).collect();
                self.add(BTreeSet::new(), policies, compiled, kernel);
            }
            NextHop {
                dev: Some(dev),
                via: Some(via),
                encap: None,
                ..
            } => {
                let there = adjacencies(compiled, |info| {
                    info.ifindex == *dev && info.via == Some(*via)
                });
                self.add(there, BTreeSet::new(), compiled, kernel);
            }
            _ => {}
        }
    }

    /// Suspends these records. Linux cannot forward packets of Sidestep-only routes, so their records
    /// stay.
    fn add(
        &mut self,
        mut adjacencies: BTreeSet<AdjacencyId>,
        mut policies: BTreeSet<PolicyId>,
        compiled: &Compiled,
        kernel: &Kernel,
    ) {
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
