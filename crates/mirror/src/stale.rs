//! Stale state, which the kernel changed without a notification.
//!
//! When a link goes down or an address is removed, the kernel flushes IPv4 routes, marks next hops
//! dead and drops preferred sources silently (`fib_flush`, `fib6_ifdown`, `fib6_remove_prefsrc`); a
//! nexthop object takes its routes along.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_model::node::IfIndex;
use sidestep_model::route::Family;

/// Parts of the node to resync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stale {
    /// A message was lost: everything.
    pub everything: bool,
    /// All IPv4 routes.
    pub routes4: bool,
    /// All IPv6 routes.
    pub routes6: bool,
    /// The routes of either family that leave by these links.
    pub links: BTreeSet<IfIndex>,
    /// The routes that prefer one of these sources.
    pub sources: BTreeSet<IpAddr>,
    /// The routes that refer to one of these nexthop objects.
    pub objects: BTreeSet<u32>,
    /// The settings of the links.
    pub settings: bool,
}

impl Stale {
    /// Nothing has to be read.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All routes of a family.
    pub fn family(&mut self, family: Family) {
        match family {
            Family::V4 => self.routes4 = true,
            Family::V6 => self.routes6 = true,
        }
    }
}
