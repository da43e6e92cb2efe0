//! Routes with a lifetime (`expires`, router advertisements, prefixes of addresses).
//!
//! The kernel skips an expired route at once, and notifies only when it removes it, up to
//! `net.ipv6.route.gc_interval` seconds later. It may also renew a lifetime without a notification
//! (router advertisements). So the mirror reads a route again when its lifetime should be over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sidestep_model::route::{Encap, Route};

use crate::kernel::RouteFilter;
use crate::route::{Lifetime, Reported};

/// Time after the end of a lifetime, which the kernel reports in steps of 10 ms.
const MARGIN: Duration = Duration::from_millis(20);
/// Interval between checks whether the kernel has renewed an expired route.
const PERIOD: Duration = Duration::from_secs(1);

/// Times at which routes expire.
#[derive(Debug, Default)]
pub(crate) struct Lifetimes {
    /// Next check of the routes that a filter selects.
    due: BTreeMap<RouteFilter, Instant>,
}

impl Lifetimes {
    /// Notes the lifetime of a reported route. Returns the route, unless it has expired.
    ///
    /// The kernel uses a multipath route as long as one of its next hops has not expired, and then
    /// the expired ones as well. It reports one lifetime only. Packets of a multipath route that has
    /// perhaps expired are punted.
    pub fn admit(&mut self, reported: Reported) -> Option<Route> {
        let Reported {
            mut route,
            lifetime,
        } = reported;
        let remaining = match lifetime {
            Lifetime::Unlimited => return Some(route),
            Lifetime::Left(remaining) => remaining + MARGIN,
            Lifetime::Expired => PERIOD,
        };
        let filter = RouteFilter {
            table: Some(route.key.table),
            protocol: route.protocol,
            dev: route.next_hops.first().and_then(|hop| hop.dev),
        };
        let end = Instant::now() + remaining;
        let due = self.due.entry(filter).or_insert(end);
        *due = end.min(*due);
        if lifetime != Lifetime::Expired {
            return Some(route);
        }
        if route.next_hops.len() < 2 {
            return None;
        }
        for hop in route.next_hops.make_mut() {
            hop.encap = Some(Encap::Unsupported("an expired next hop".to_owned()));
        }
        Some(route)
    }

    /// Returns the time of the next check.
    pub fn next(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    /// Removes and returns the filters of routes to read again.
    pub fn take_due(&mut self, now: Instant) -> Vec<RouteFilter> {
        let over = self.due.iter().filter(|(_, due)| **due <= now);
        let over: Vec<_> = over.map(|(filter, _)| *filter).collect();
        for filter in &over {
            self.due.remove(filter);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use sidestep_model::node::IfIndex;
    use sidestep_model::route::{NextHop, Owner, RouteKey, RouteKind};

    use super::*;

    fn reported(lifetime: Lifetime, devs: &[u32]) -> Reported {
        let hop = |dev: &u32| NextHop {
            dev: Some(IfIndex(*dev)),
            ..NextHop::new()
        };
        Reported {
            route: Route {
                key: RouteKey::new("2001:db8::/32".parse().unwrap()),
                kind: RouteKind::Unicast,
                next_hops: devs.iter().map(hop).collect(),
                prefsrc: None,
                mtu: None,
                nhid: None,
                protocol: 3,
                owner: Owner::Kernel,
            },
            lifetime,
        }
    }

    #[test]
    fn a_route_is_checked_after_its_lifetime_and_then_each_second() {
        let mut lifetimes = Lifetimes::default();
        assert!(
            lifetimes
                .admit(reported(Lifetime::Unlimited, &[2]))
                .is_some()
        );
        assert_eq!(lifetimes.next(), None);
        let begun = Instant::now();
        let left = Lifetime::Left(Duration::from_secs(5));
        assert!(lifetimes.admit(reported(left, &[2])).is_some());
        let due = lifetimes.next().expect("a check");
        assert!(due > begun + Duration::from_secs(5) && due < begun + Duration::from_secs(6));
        assert_eq!(lifetimes.take_due(begun), []);
        let filters = lifetimes.take_due(due);
        assert_eq!(filters.len(), 1);
        assert!(filters[0].selects(&reported(left, &[7, 2]).route));
        assert!(!filters[0].selects(&reported(left, &[7]).route));
        assert!(lifetimes.admit(reported(Lifetime::Expired, &[2])).is_none());
        assert!(
            lifetimes
                .next()
                .is_some_and(|next| next < begun + Duration::from_secs(2))
        );
    }

    #[test]
    fn packets_of_an_expired_multipath_route_are_punted() {
        let route = Lifetimes::default().admit(reported(Lifetime::Expired, &[2, 3]));
        let hops = route.expect("a route").next_hops;
        assert!(
            hops.iter()
                .all(|hop| matches!(hop.encap, Some(Encap::Unsupported(_))))
        );
    }
}
