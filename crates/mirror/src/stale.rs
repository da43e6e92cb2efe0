//! State that is stale because the kernel changed it without a notification.
//!
//! When a link goes down or an address is removed, the kernel silently flushes IPv4 routes, marks
//! next hops dead and drops preferred sources (`fib_flush`, `fib6_ifdown`, `fib6_remove_prefsrc`).
//! Removing a nexthop object removes its routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sidestep_model::node::IfIndex;
use sidestep_model::route::Family;

use crate::kernel::RouteFilter;

/// Parts of the node to resync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stale {
    /// Everything, after a lost message.
    pub everything: bool,
    /// All IPv4 routes.
    pub routes4: bool,
    /// All IPv6 routes.
    pub routes6: bool,
    /// Routes of either family with next hops on these links.
    pub links: BTreeSet<IfIndex>,
    /// Routes that prefer one of these sources.
    pub sources: BTreeSet<IpAddr>,
    /// Routes that refer to one of these nexthop objects.
    pub objects: BTreeSet<u32>,
    /// Routes with a lifetime that is over.
    pub lifetimes: BTreeSet<RouteFilter>,
    /// Policy rules.
    pub rules: bool,
    /// Settings of the links.
    pub settings: bool,
}

impl Stale {
    /// Returns true if nothing is stale.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Marks all routes of a family as stale.
    pub fn family(&mut self, family: Family) {
        match family {
            Family::V4 => self.routes4 = true,
            Family::V6 => self.routes6 = true,
        }
    }
}
