//! Routes that the kernel removed together with the link of their next hops. Routing daemons need a while
//! to install other ones. Until then the routes stay in the tables, and their packets take the backups of
//! the next hops.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sidestep_model::node::Node;
use sidestep_model::route::{Owner, Route, RouteKey};

/// LIMIT: time for which such routes stay. Link-state protocols wait for up to 5 s before they compute
/// routes (RFC 8405, and the `spf-interval` of FRR).
pub(super) const TIME: Duration = Duration::from_secs(5);

/// Routes that the kernel does not have any more.
#[derive(Debug, Default)]
pub(crate) struct Held {
    routes: BTreeMap<RouteKey, Route>,
    /// End of the stay, from the first route on.
    until: Option<Instant>,
    /// The stay ends with these changes.
    is_over: bool,
}

impl Held {
    /// Returns a route that stays.
    pub fn get(&self, key: &RouteKey) -> Option<&Route> {
        self.routes.get(key)
    }

    /// Returns all routes that stay.
    pub fn iter(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.routes.iter()
    }

    /// When to call [`Self::release`].
    pub fn due(&self) -> Option<Instant> {
        self.until
    }

    /// Ends the stay of all routes if it is due. Returns their keys, which have changed.
    pub fn release(&mut self, now: Instant) -> Vec<RouteKey> {
        if self.until.is_none_or(|until| now < until) {
            return vec![];
        }
        (self.until, self.is_over) = (None, true);
        std::mem::take(&mut self.routes).into_keys().collect()
    }

    /// Begins the stay of new routes, after the changes of this turn.
    pub fn begin(&mut self, now: Instant) {
        self.is_over = false;
        if self.routes.is_empty() {
            self.until = None;
        } else {
            self.until.get_or_insert(now + TIME);
        }
    }

    /// Notes changed routes. `before` has them as they were, `mirrored` as they are in the kernel.
    /// Returns the routes whose stay ends, because there is another one to their prefix.
    pub fn note(&mut self, of: (&Node, &Node), changed: &[RouteKey]) -> Vec<RouteKey> {
        let (_, mirrored) = of;
        let mut ended = vec![];
        for key in changed {
            if mirrored.routes.contains_key(key) {
                let same = of_prefix(&self.routes, key).map(|(key, _)| *key);
                for key in same.collect::<Vec<_>>() {
                    self.routes.remove(&key);
                    ended.push(key);
                }
            } else {
                self.note_removed(of, key);
            }
        }
        ended
    }

    /// As [`Self::note`] for all routes.
    pub fn note_all(&mut self, (before, mirrored): (&Node, &Node)) {
        self.routes
            .retain(|key, _| of_prefix(&mirrored.routes, key).next().is_none());
        if has_protected_link_down(before, mirrored) {
            for key in before.routes.keys() {
                self.note_removed((before, mirrored), key);
            }
        }
    }

    fn note_removed(&mut self, (before, mirrored): (&Node, &Node), key: &RouteKey) {
        if self.is_over || before.protections.is_empty() {
            return;
        }
        let gone = before.routes.get(key);
        let gone = gone.filter(|route| is_protected_and_down(route, before, mirrored));
        if let Some(route) = gone
            && of_prefix(&mirrored.routes, key).next().is_none()
        {
            self.routes.insert(*key, route.clone());
        }
    }
}

/// Routes of the same prefix in the same table.
fn of_prefix<'a>(
    routes: &'a BTreeMap<RouteKey, Route>,
    key: &RouteKey,
) -> impl Iterator<Item = (&'a RouteKey, &'a Route)> {
    let (table, prefix) = (key.table, key.prefix);
    let first = RouteKey {
        from: None,
        tos: 0,
        metric: 0,
        ..*key
    };
    let all = routes.range(first..);
    all.take_while(move |(key, _)| (key.table, key.prefix) == (table, prefix))
}

/// Whether a link with a protection is down.
fn has_protected_link_down(before: &Node, mirrored: &Node) -> bool {
    let mut links = before.protections.keys();
    links.any(|key| {
        let link = mirrored.link_by_name(&key.dev);
        link.is_some_and(|link| !link.up)
    })
}

/// Whether each next hop of a route of the kernel has a protection, and its link is down.
fn is_protected_and_down(route: &Route, before: &Node, mirrored: &Node) -> bool {
    let mut hops = route.next_hops.iter();
    route.owner != Owner::Sidestep
        && !route.next_hops.is_empty()
        && hops.all(|hop| {
            let (Some(dev), Some(via), None) = (hop.dev, hop.via, &hop.encap) else {
                return false;
            };
            let link = mirrored.links.get(&dev);
            link.is_some_and(|link| !link.up) && before.protection(dev, via).is_some()
        })
}
