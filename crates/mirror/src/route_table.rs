//! Routes of the node, and the effect of notifications on them.
//!
//! The kernel can hold several routes with one key: IPv4 after `ip route append`, and IPv6 if next
//! hops have no gateway (they never form a multipath route), for example `fe80::/64` on every link.
//! A packet takes the first live one. This route is in the [`Node`](sidestep_model::node::Node);
//! the others are kept here until it is removed.
//!
//! A route of FPM precedes the kernel's routes with its key. There is at most one.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::{Family, NextHop, NextHops, Owner, Route, RouteKey};

use crate::object::{ObjectId, Source};

/// include/uapi/linux/rtnetlink.h: learned from a router advertisement, by the kernel or by a
/// daemon.
const RTPROT_RA: u8 = 9;

/// Inverse of the share of all routes from which on a dump replaces them in one pass.
const MOST: usize = 8;

/// All routes of the node.
#[derive(Debug, Default)]
pub(crate) struct RouteTable {
    /// Keys with more than one route: all of them in the kernel's order.
    shared: BTreeMap<RouteKey, Vec<Route>>,
    /// The routes that refer to each nexthop object.
    users: HashMap<ObjectId, BTreeSet<RouteKey>>,
    known: KnownHops,
}

/// Keys of changed routes.
#[derive(Debug, Default)]
pub(crate) struct ChangedRoutes {
    /// In the order of the changes. A key repeats.
    routes: Vec<RouteKey>,
    /// Routes that changed only in the next hops of their nexthop object.
    by_object: BTreeMap<ObjectId, Vec<RouteKey>>,
}

impl ChangedRoutes {
    fn note(&mut self, key: RouteKey, before: Option<&Route>, after: Option<&Route>) {
        if before == after {
            return;
        }
        let by_object = before.zip(after).and_then(|(before, after)| {
            let same = Route {
                next_hops: before.next_hops.clone(),
                ..after.clone()
            };
            before.object().filter(|_| same == *before)
        });
        match by_object {
            Some(object) => self.by_object.entry(object).or_default().push(key),
            None => self.routes.push(key),
        }
    }

    /// Returns the changed routes, and those that only followed one of these objects. Both are in
    /// order.
    pub fn divide(mut self, handled: &BTreeSet<ObjectId>) -> (Vec<RouteKey>, Vec<RouteKey>) {
        let mut followed = Vec::new();
        for (object, mut keys) in self.by_object {
            let all = if handled.contains(&object) {
                &mut followed
            } else {
                &mut self.routes
            };
            all.append(&mut keys);
        }
        for keys in [&mut self.routes, &mut followed] {
            keys.sort_unstable();
            keys.dedup();
        }
        followed.retain(|key| self.routes.binary_search(key).is_err());
        (self.routes, followed)
    }
}

/// The next hops of all routes, each once: most of many routes have the same ones.
#[derive(Debug, Default)]
struct KnownHops {
    known: HashSet<NextHops>,
    /// Size from which on those without a route are removed.
    limit: usize,
}

impl KnownHops {
    /// Replaces next hops by equal ones that routes share.
    fn share(&mut self, hops: &mut NextHops) {
        if let Some(known) = self.known.get(hops) {
            hops.clone_from(known);
            return;
        }
        if self.known.len() >= self.limit {
            self.known.retain(|hops| !hops.are_unshared());
            self.limit = 2 * self.known.len() + 64;
        }
        self.known.insert(hops.clone());
    }
}

/// Position of a new route among those with its key, from the flags of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The only route with its key (`NLM_F_EXCL`).
    Only,
    /// Replaces another route (`NLM_F_REPLACE`).
    Replace,
    /// After the other routes (`NLM_F_APPEND`).
    Append,
    /// The notification has none of these flags.
    Plain,
}

impl Placement {
    /// Returns the placement for the `nlmsg_flags` of an `RTM_NEWROUTE`.
    pub fn of(flags: u16) -> Self {
        let flags = i32::from(flags);
        if flags & libc::NLM_F_REPLACE != 0 {
            Self::Replace
        } else if flags & libc::NLM_F_EXCL != 0 {
            Self::Only
        } else if flags & libc::NLM_F_APPEND != 0 {
            Self::Append
        } else {
            Self::Plain
        }
    }
}

/// Whether the mirror's state is certain after a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// The mirror has the kernel's state.
    Surely,
    /// The kernel's state may differ, because its notifications do not determine which of several
    /// routes with one key comes first. A dump may omit a route too: if IPv6 siblings are on both
    /// sides of another route, the dump skips it (`fib6_dump_node` continues after the last
    /// sibling).
    Perhaps,
}

impl RouteTable {
    /// Adds or changes a route.
    pub fn add(
        &mut self,
        node: &mut Node,
        route: Route,
        placement: Placement,
        changed: &mut ChangedRoutes,
    ) -> Applied {
        let mut applied = Applied::Surely;
        self.edit(Source::Kernel, node, route.key, changed, |routes| {
            match (family(&route.key), placement) {
                (_, Placement::Only) => *routes = vec![route],
                (Family::V4, _) => add_v4(routes, route, placement),
                (Family::V6, _) => applied = add_v6(routes, route, placement),
            }
        });
        applied
    }

    /// Deletes a route, or some of its next hops.
    pub fn delete(
        &mut self,
        node: &mut Node,
        route: &Route,
        changed: &mut ChangedRoutes,
    ) -> Applied {
        let mut applied = Applied::Surely;
        self.edit(Source::Kernel, node, route.key, changed, |routes| {
            if let Some(place) = routes.iter().position(|known| same(known, route)) {
                routes.remove(place);
            } else if !routes.is_empty() {
                remove_next_hops(routes, route);
                applied = Applied::Perhaps;
            }
        });
        applied
    }

    /// Replaces the known routes that `covered` accepts by the result of their dump.
    pub fn replace(
        &mut self,
        node: &mut Node,
        mut dumped: Vec<Route>,
        covered: impl Fn(&Route) -> bool,
        changed: &mut ChangedRoutes,
    ) {
        // The sort is stable: routes with one key keep the kernel's order.
        dumped.sort_by_key(|route| route.key);
        if dumped.len() >= node.routes.len() / MOST {
            return self.replace_most(node, dumped, covered, changed);
        }
        let shared = self.shared.iter().filter(|it| it.1.iter().any(&covered));
        let mut gone: BTreeSet<RouteKey> = shared.map(|it| *it.0).collect();
        gone.extend(
            node.routes
                .iter()
                .filter(|it| covered(it.1))
                .map(|it| *it.0),
        );
        let mut dumped = dumped.into_iter().peekable();
        while let Some(first) = dumped.next() {
            let key = first.key;
            let mut fresh = vec![first];
            fresh.extend(std::iter::from_fn(|| {
                dumped.next_if(|next| next.key == key)
            }));
            gone.remove(&key);
            self.edit(Source::Kernel, node, key, changed, |routes| {
                merge(routes, fresh, &covered);
            });
        }
        for key in gone {
            self.edit(Source::Kernel, node, key, changed, |routes| {
                merge(routes, Vec::new(), &covered);
            });
        }
    }

    /// As [`RouteTable::replace`], in one pass over all routes.
    fn replace_most(
        &mut self,
        node: &mut Node,
        dumped: Vec<Route>,
        covered: impl Fn(&Route) -> bool,
        changed: &mut ChangedRoutes,
    ) {
        let mut known = std::mem::take(&mut node.routes).into_iter().peekable();
        let mut dumped = dumped.into_iter().peekable();
        let mut routes = Vec::with_capacity(known.len().max(dumped.len()));
        let mut users: BTreeMap<ObjectId, Vec<RouteKey>> = BTreeMap::new();
        let mut special = Vec::new();
        loop {
            let keys = known.peek().map(|it| it.0).into_iter();
            let keys = keys.chain(dumped.peek().map(|route| route.key));
            let Some(key) = keys.min() else { break };
            let before = known.next_if(|it| it.0 == key).map(|it| it.1);
            let first = dumped.next_if(|route| route.key == key);
            let more = std::iter::from_fn(|| dumped.next_if(|route| route.key == key));
            let more: Vec<Route> = more.collect();
            let stays = |route: &Route| Source::of(route) == Source::Fpm || !covered(route);
            let (stays, is_shared) = (
                before.as_ref().is_some_and(stays),
                self.shared.contains_key(&key),
            );
            if stays || is_shared || !more.is_empty() {
                routes.extend(before.map(|before| (key, before)));
                if is_shared || first.is_some() {
                    special.push((key, first.into_iter().chain(more).collect()));
                }
                continue;
            }
            let mut after = first;
            let object = |route: &Option<Route>| route.as_ref().and_then(Route::object);
            let (left, joined) = (object(&before), object(&after));
            if left != joined {
                self.note_users(key, left.as_slice(), &[]);
                if let Some(joined) = joined {
                    users.entry(joined).or_default().push(key);
                }
            }
            if let Some(after) = &mut after {
                self.known.share(&mut after.next_hops);
            }
            changed.note(key, before.as_ref(), after.as_ref());
            routes.extend(after.map(|after| (key, after)));
        }
        node.routes = routes.into_iter().collect();
        for (object, keys) in users {
            let mut keys = keys.into_iter().collect();
            self.users.entry(object).or_default().append(&mut keys);
        }
        for (key, fresh) in special {
            self.edit(Source::Kernel, node, key, changed, |routes| {
                merge(routes, fresh, &covered);
            });
        }
    }

    /// Sets or removes the route of FPM with this key.
    pub fn set_fpm(
        &mut self,
        node: &mut Node,
        key: RouteKey,
        route: Option<Route>,
        changed: &mut ChangedRoutes,
    ) {
        self.edit(Source::Fpm, node, key, changed, |routes| {
            *routes = route.into_iter().collect();
        });
    }

    /// Returns the route of FPM with this key.
    pub fn fpm<'a>(&'a self, node: &'a Node, key: &RouteKey) -> Option<&'a Route> {
        let shared = self.shared.get(key).and_then(|routes| routes.first());
        let first = shared.or_else(|| node.routes.get(key));
        first.filter(|route| Source::of(route) == Source::Fpm)
    }

    /// Marks the next hops of FPM's route dead that `is_dead` selects, and no others.
    pub fn mark_fpm(
        &mut self,
        node: &mut Node,
        key: RouteKey,
        is_dead: impl Fn(&NextHop) -> bool,
        changed: &mut ChangedRoutes,
    ) {
        self.edit(Source::Fpm, node, key, changed, |routes| {
            for hop in routes
                .iter_mut()
                .flat_map(|route| route.next_hops.make_mut())
            {
                hop.dead = is_dead(hop);
            }
        });
    }

    /// Returns whether any route of the kernel satisfies `accepts`, including routes that are not
    /// the first with their key.
    pub fn any(&self, node: &Node, accepts: impl Fn(&Route) -> bool) -> bool {
        let accepts = |route: &Route| Source::of(route) == Source::Kernel && accepts(route);
        node.routes.values().any(accepts) || self.shared.values().flatten().any(accepts)
    }

    /// Returns the number of routes that refer to this nexthop object.
    pub fn count_users(&self, object: ObjectId) -> usize {
        self.users.get(&object).map_or(0, BTreeSet::len)
    }

    /// Returns whether any route refers to this nexthop object.
    pub fn refer_to(&self, object: ObjectId) -> bool {
        self.users.contains_key(&object)
    }

    /// A nexthop object has changed: calls `resolve` for all routes that refer to it.
    pub fn resolve(
        &mut self,
        node: &mut Node,
        object: ObjectId,
        resolve: impl Fn(&mut Route),
        changed: &mut ChangedRoutes,
    ) {
        for key in self.users.get(&object).cloned().unwrap_or_default() {
            self.edit(object.0, node, key, changed, |routes| {
                let of_object = routes.iter_mut().filter(|it| it.nhid == Some(object.1));
                of_object.for_each(&resolve);
            });
        }
    }

    /// Notes which nexthop objects the routes with one key referred to, and refer to now.
    fn note_users(&mut self, key: RouteKey, before: &[ObjectId], now: &[ObjectId]) {
        if before == now {
            return;
        }
        for object in before {
            if let Entry::Occupied(mut users) = self.users.entry(*object) {
                users.get_mut().remove(&key);
                if users.get().is_empty() {
                    users.remove();
                }
            }
        }
        for object in now {
            self.users.entry(*object).or_default().insert(key);
        }
    }

    /// Changes the routes of a source with one key, and records the key if packets then take
    /// another route.
    fn edit(
        &mut self,
        source: Source,
        node: &mut Node,
        key: RouteKey,
        changed: &mut ChangedRoutes,
        edit: impl FnOnce(&mut Vec<Route>),
    ) {
        let before = node.routes.remove(&key);
        let mut routes = self
            .shared
            .remove(&key)
            .unwrap_or_else(|| before.iter().cloned().collect());
        let objects = objects_of(&routes);
        let mut kernels =
            routes.split_off(routes.partition_point(|it| Source::of(it) == Source::Fpm));
        match source {
            Source::Kernel => edit(&mut kernels),
            Source::Fpm => edit(&mut routes),
        }
        for route in &mut routes {
            route.owner = Owner::Fpm {
                in_kernel: !kernels.is_empty(),
            };
        }
        routes.append(&mut kernels);
        for route in &mut routes {
            self.known.share(&mut route.next_hops);
        }
        self.note_users(key, &objects, &objects_of(&routes));
        let alive = routes.iter().position(is_alive).unwrap_or(0);
        let after = if routes.len() > 1 {
            let after = routes.get(alive).cloned();
            self.shared.insert(key, routes);
            after
        } else {
            routes.pop()
        };
        changed.note(key, before.as_ref(), after.as_ref());
        if let Some(after) = after {
            node.routes.insert(key, after);
        }
    }
}

fn objects_of(routes: &[Route]) -> Vec<ObjectId> {
    routes.iter().filter_map(Route::object).collect()
}

/// Updates the routes with one key from a dump that contains all routes that `covered` accepts.
fn merge(routes: &mut Vec<Route>, fresh: Vec<Route>, covered: impl Fn(&Route) -> bool) {
    if routes.iter().all(&covered) {
        *routes = fresh;
        return;
    }
    routes.retain(|known| !covered(known) || fresh.iter().any(|route| same(known, route)));
    for route in fresh {
        match routes.iter_mut().find(|known| same(known, &route)) {
            Some(known) => *known = route,
            None => routes.push(route),
        }
    }
}

/// Adds an IPv4 route as `fib_table_insert` (`net/ipv4/fib_trie.c`) does. A replacement takes the
/// first position, an appended route the last one, and any other the first one. No two routes are
/// equal.
fn add_v4(routes: &mut Vec<Route>, route: Route, placement: Placement) {
    if placement == Placement::Replace {
        // For a changed nexthop object, the kernel reports a replacement of each route that uses
        // it, at its current position.
        let by_object = routes
            .iter()
            .position(|known| known.nhid.is_some() && known.nhid == route.nhid);
        let place = by_object.unwrap_or(0);
        if place < routes.len() {
            routes.remove(place);
        }
        routes.retain(|known| !same(known, &route));
        routes.insert(place.min(routes.len()), route);
    } else if let Some(known) = routes.iter_mut().find(|known| same(known, &route)) {
        *known = route;
    } else if placement == Placement::Append {
        routes.push(route);
    } else {
        routes.insert(0, route);
    }
}

/// `net/ipv6/ip6_fib.c`, `fib6_add_rt2node`: next hops with a gateway form one multipath route, and
/// the notification has all of them. A replacement takes the place of the first such route, or else
/// of the first route. Any other route goes behind the existing ones.
fn add_v6(routes: &mut Vec<Route>, route: Route, placement: Placement) -> Applied {
    let ecmp = is_ecmp(&route);
    let is_known = routes.iter().any(|known| same(known, &route));
    if ecmp && route.protocol == RTPROT_RA && !is_known && !routes.is_empty() {
        // Routes that the kernel itself learns from router advertisements stay separate. Routes
        // that a program adds with that protocol form one multipath route. Notifications do not
        // distinguish them (`rt6_qualify_for_ecmp`, `RTF_ADDRCONF`).
        routes.push(route);
        return Applied::Perhaps;
    }
    let place = match placement {
        Placement::Replace => routes
            .iter()
            .position(|known| known.nhid.is_some() && known.nhid == route.nhid)
            .or_else(|| routes.iter().position(|known| is_ecmp(known) == ecmp)),
        _ if ecmp => routes.iter().position(is_ecmp),
        _ => routes.iter().position(|known| same(known, &route)),
    };
    if let Some(known) = place.and_then(|place| routes.get_mut(place)) {
        if ecmp && placement != Placement::Replace {
            // Each sibling has its own preferred source, MTU and protocol. The mirrored route has
            // those of the first sibling, but the notification has those of the added one.
            known.next_hops = route.next_hops;
        } else {
            *known = route;
        }
        return Applied::Surely;
    }
    if placement == Placement::Replace && !routes.is_empty() {
        routes[0] = route;
        return Applied::Perhaps;
    }
    routes.push(route);
    Applied::Surely
}

/// Removes some next hops from an IPv6 multipath route.
fn remove_next_hops(routes: &mut Vec<Route>, gone: &Route) {
    if family(&gone.key) == Family::V4 || !is_ecmp(gone) {
        return;
    }
    let Some(place) = routes.iter().position(is_ecmp) else {
        return;
    };
    let identity = |hop: &NextHop| (hop.via, hop.dev, hop.encap.clone());
    let gone: Vec<_> = gone.next_hops.iter().map(identity).collect();
    let hops = &mut routes[place].next_hops;
    hops.edit(|hops| hops.retain(|hop| !gone.contains(&identity(hop))));
    if hops.is_empty() {
        routes.remove(place);
    }
}

/// `rt6_qualify_for_ecmp`, except routes learned from router advertisements.
fn is_ecmp(route: &Route) -> bool {
    route.nhid.is_none()
        && !route.next_hops.is_empty()
        && route.next_hops.iter().all(|hop| hop.via.is_some())
}

/// Returns whether packets can take the route. They skip `dead` next hops.
fn is_alive(route: &Route) -> bool {
    route.next_hops.is_empty() || route.next_hops.iter().any(|hop| !hop.dead)
}

/// Returns whether two routes are equal for the kernel, which then keeps only one.
fn same(a: &Route, b: &Route) -> bool {
    if a.nhid.is_some() || b.nhid.is_some() {
        return a.nhid == b.nhid;
    }
    // rt6_duplicate_nexthop compares only the next hop, fib_find_info all attributes.
    let attributes = |route: &Route| match family(&route.key) {
        Family::V4 => (route.prefsrc, route.mtu, route.protocol),
        Family::V6 => (None, None, 0),
    };
    a.kind == b.kind
        && attributes(a) == attributes(b)
        && a.next_hops.len() == b.next_hops.len()
        && a.next_hops
            .iter()
            .zip(&b.next_hops)
            .all(|(a, b)| (a.via, a.dev, a.weight, &a.encap) == (b.via, b.dev, b.weight, &b.encap))
}

/// Returns the family of a route's prefix.
pub(crate) fn family(key: &RouteKey) -> Family {
    match key.prefix {
        IpNet::V4(_) => Family::V4,
        IpNet::V6(_) => Family::V6,
    }
}

/// Returns whether a next hop of the route uses one of these links.
pub(crate) fn uses(route: &Route, links: &BTreeSet<IfIndex>) -> bool {
    route
        .next_hops
        .iter()
        .any(|hop| hop.dev.is_some_and(|dev| links.contains(&dev)))
}

/// Returns whether the route's preferred source is one of these addresses.
pub(crate) fn prefers(route: &Route, addresses: &BTreeSet<IpAddr>) -> bool {
    route
        .prefsrc
        .is_some_and(|prefsrc| addresses.contains(&prefsrc))
}
