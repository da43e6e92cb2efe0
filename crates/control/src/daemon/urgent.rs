//! Changes of many routes, in the moment of their notification: nexthop objects and links that went
//! down.
//!
//! The group of a nexthop object changes with one write. If a change needs more, the records of its
//! routes take longer to change than the kernel needs for its routes. Until then, the packets of
//! these ways are punted, and Linux forwards them by its new routes.

use std::collections::BTreeSet;

use sidestep_datapath::abi::SIDESTEP_ROUTE_SIDESTEP_ONLY;
use sidestep_datapath::{AdjacencyId, PolicyId};
use sidestep_mirror::Urgent;
use sidestep_model::node::Node;
use sidestep_model::route::{Encap, NextHop, ObjectChange};

use super::packet_path::PacketPath;
use super::tables::Tables;
use crate::compile::{AdjacencyInfo, Change, Compiled};

/// Number of routes of a nexthop object from which on the next hops that it lost are suspended. Fewer
/// routes change faster.
const MANY: usize = 256;

/// Records that are suspended.
#[derive(Debug, Default)]
pub(super) struct Suspended {
    adjacencies: BTreeSet<AdjacencyId>,
    policies: BTreeSet<PolicyId>,
}

impl Suspended {
    pub fn has_adjacency(&self, index: AdjacencyId) -> bool {
        self.adjacencies.contains(&index)
    }
}

impl<P: PacketPath> Tables<P> {
    /// Applies an urgent change. Returns whether the routes of a nexthop object need nothing else.
    pub fn urgent(&mut self, mirrored: &Node, change: Urgent) -> bool {
        match change {
            Urgent::Link(dev) => {
                // Also those of routes that Linux does not have.
                self.kernel.take_down(dev.0);
                let of_link = self.adjacencies(|info| info.ifindex == dev);
                self.suspended.adjacencies.extend(&of_link);
                self.suspend(of_link, BTreeSet::new());
            }
            Urgent::Object(change) if self.object(mirrored, &change) => return true,
            Urgent::Object(change) => {
                let gone = gone(&change).filter(|_| change.routes >= MANY);
                for hop in gone {
                    self.suspend_next_hop(hop);
                }
            }
        }
        false
    }

    /// Ends the suspension, after the routes have changed.
    pub fn resume(&mut self) {
        let Suspended {
            adjacencies,
            policies,
        } = std::mem::take(&mut self.suspended);
        let image = &self.compiled.image;
        self.kernel.resume(image, adjacencies, policies);
    }

    /// Changes the groups of a nexthop object. Returns false, with nothing changed, if each of its
    /// routes has to change.
    fn object(&mut self, mirrored: &Node, change: &ObjectChange) -> bool {
        let (node, compiled) = (self.overlaid.node(mirrored), &mut self.compiled);
        let Ok(update) = self.compiler.update_object(node, change, compiled) else {
            return false;
        };
        let is_published = publish(&mut self.kernel, &update, compiled);
        if is_published {
            self.compiler.accept();
        }
        is_published
    }

    fn suspend_next_hop(&mut self, hop: &NextHop) {
        match hop {
            NextHop {
                encap: Some(Encap::Seg6(encap)),
                ..
            } => {
                let all = self.compiled.index.policies.iter();
                let of_encap = all.filter(|(_, info)| info.encap == *encap);
                let policies = of_encap.map(|(index, _)| *index).collect();
                self.suspend(BTreeSet::new(), policies);
            }
            NextHop {
                dev: Some(dev),
                via: Some(via),
                encap: None,
                ..
            } => {
                let there = self.adjacencies(|info| info.ifindex == *dev && info.via == Some(*via));
                self.suspend(there, BTreeSet::new());
            }
            _ => {}
        }
    }

    /// Suspends these records. Linux cannot forward packets of Sidestep-only routes, so their records
    /// stay.
    fn suspend(
        &mut self,
        mut adjacencies: BTreeSet<AdjacencyId>,
        mut policies: BTreeSet<PolicyId>,
    ) {
        let image = &self.compiled.image;
        for route in image.routes.values() {
            if u32::from(route.flags) & SIDESTEP_ROUTE_SIDESTEP_ONLY != 0 {
                let policy = route.policy_id();
                let path = image.policies.get(&policy);
                adjacencies.remove(&route.adjacency);
                adjacencies.remove(&path.map_or(AdjacencyId::NONE, |policy| policy.adjacency));
                policies.remove(&policy);
            }
        }
        for index in &adjacencies {
            self.kernel.suspend_adjacency(*index);
        }
        for index in &policies {
            self.kernel.suspend_policy(*index, &image.policies[index]);
        }
        self.suspended.adjacencies.append(&mut adjacencies);
        self.suspended.policies.append(&mut policies);
    }

    /// Returns the adjacencies that satisfy a condition.
    fn adjacencies(&self, accepts: impl Fn(&AdjacencyInfo) -> bool) -> BTreeSet<AdjacencyId> {
        let all = self.compiled.index.adjacencies.iter();
        let found = all.filter(|(_, info)| accepts(info));
        found.map(|(index, _)| *index).collect()
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
