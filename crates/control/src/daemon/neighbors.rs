//! Neighbors of the packet path. The kernel does not see forwarded packets. On its own it would let
//! a neighbor in use become stale, remove it when the table is crowded, and resolve a next hop only
//! for its own packets.
//!
//! Sidestep therefore requests resolution (`NTF_USE`, as a packet of the kernel does) for:
//! - a neighbor that packets use, when it is stale or was not requested since [`TOUCH`];
//! - an on-link destination whose packets were dropped, if only tables unknown to the kernel lead
//!   to it;
//! - an unresolved next hop: at once when it is new or needed, otherwise with a growing interval.
//!
//! Sidestep changes no entry: permanent, managed and learned entries stay. Neighbors without
//! traffic age normally.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::route::{Family, Route, RouteKind};

use super::{Instance, NodeMirror, PacketPath, System};
use crate::compile::ViewInfo;

/// Interval of the neighbor check.
pub(super) const PERIOD: Duration = Duration::from_millis(200);
/// Request interval for a reachable neighbor in use. A crowded kernel table removes entries that
/// were not used for `gc_stale_time` (60 s).
const TOUCH: Duration = Duration::from_secs(20);
/// Minimum interval between requests. The kernel sends three solicitations, one per second, and
/// ignores further requests meanwhile.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum interval between requests for an unresolved next hop without traffic.
const AGAIN_MAX: Duration = Duration::from_secs(64);
/// LIMIT: unresolved next hops requested per check. Each occupies an entry of the kernel's neighbor
/// table for at least three seconds; that table holds 1,024 by default (`gc_thresh3`).
const RESOLVED_AT_ONCE: usize = 16;
/// LIMIT: reachable neighbors refreshed per check.
const KEPT_AT_ONCE: usize = 256;

/// Link and address of a neighbor.
type Key = (IfIndex, IpAddr);

/// State of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    key: Key,
    state: State,
    /// Packets used it since the last check.
    used: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unresolved,
    Stale,
    Fresh,
}

/// Time of the last request for each next hop.
#[derive(Debug, Default)]
pub(super) struct Neighbors {
    asked: BTreeMap<Key, Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    /// Interval until the next request without traffic.
    wait: Duration,
}

impl Neighbors {
    /// Returns the next hops to request now.
    fn due(&mut self, needs: impl Iterator<Item = Need>, now: Instant) -> Vec<Key> {
        let mut resolve = Vec::new();
        let mut keep = Vec::new();
        for need in needs {
            let asked = self.asked.get(&need.key);
            let wait = match (need.state, need.used, asked) {
                (State::Unresolved, false, Some(asked)) => asked.wait,
                (State::Unresolved | State::Stale, ..) => AGAIN,
                (State::Fresh, ..) => TOUCH,
            };
            let at = asked.map(|asked| asked.at);
            if at.is_some_and(|at| now.duration_since(at) < wait) {
                continue;
            }
            match need.state {
                State::Unresolved => resolve.push((!need.used, at, need)),
                // Without traffic it ages normally.
                _ if !need.used => {}
                _ => keep.push((false, at, need)),
            }
        }
        let mut due = Vec::new();
        for (mut candidates, most) in [(resolve, RESOLVED_AT_ONCE), (keep, KEPT_AT_ONCE)] {
            // Next hops with traffic come first, then the ones that waited longest.
            candidates.sort_by_key(|(unused, at, need)| (*unused, *at, need.key));
            candidates.dedup_by_key(|(_, _, need)| need.key);
            due.extend(candidates.into_iter().take(most).map(|(_, _, need)| need));
        }
        for need in &due {
            let again = match (need.state, self.asked.get(&need.key)) {
                (State::Unresolved, Some(asked)) if !need.used => {
                    (asked.wait * 2).clamp(AGAIN, AGAIN_MAX)
                }
                _ => AGAIN,
            };
            let asked = Asked {
                at: now,
                wait: again,
            };
            self.asked.insert(need.key, asked);
        }
        self.asked
            .retain(|_, asked| now.duration_since(asked.at) < 2 * AGAIN_MAX);
        due.into_iter().map(|need| need.key).collect()
    }
}

impl<S: System> Instance<S> {
    /// Checks which next hops packets used, and requests them from the kernel.
    pub(super) fn refresh_neighbors(&mut self, now: Instant) {
        self.renew_stations(now);
        let mut of_lists = self.node().policies.next_hops();
        of_lists.extend(self.watchers.ethers.next_hops());
        let node = self.mirror.node();
        let needs =
            self.tables
                .compiled
                .index
                .adjacencies
                .iter()
                .filter_map(|(&index, adjacency)| {
                    let used = self.tables.kernel.take_used(index);
                    let key = (adjacency.ifindex, adjacency.via?);
                    if !used && adjacency.valid {
                        return None;
                    }
                    let ours = self.configured.own.neighbors.contains_key(&key);
                    let up = node.links.get(&key.0).is_some_and(|link| link.up);
                    let known = node.neighbors.get(&key);
                    if ours || !up || known.is_some_and(|neighbor| neighbor.permanent) {
                        return None;
                    }
                    let state = match known {
                        None => State::Unresolved,
                        Some(_) if self.mirror.is_stale(key.0, key.1) => State::Stale,
                        Some(_) => State::Fresh,
                    };
                    // A segment list is not used before its next hop is resolved.
                    let used = used || state == State::Unresolved && of_lists.contains(&key);
                    Some(Need { key, state, used })
                });
        let (all, compiler) = (self.tables.overlaid.node(node), &self.tables.compiler);
        let wanted = self.tables.kernel.take_resolve_requests().into_iter();
        let wanted = wanted.filter_map(|(view, address)| {
            let view = self.tables.compiled.index.views.get(&view)?;
            let route = |table, address| all.routes.get(&compiler.route_for(table, address)?);
            let key = on_link(route, view, address)?;
            let (state, used) = (State::Unresolved, true);
            (!node.neighbors.contains_key(&key)).then_some(Need { key, state, used })
        });
        let needs = needs.chain(wanted);
        for (dev, address) in self.watchers.neighbors.due(needs, now) {
            // The link may be gone, or the kernel's table full: the next check tries again.
            let _ = self.mirror.use_neighbor(dev, address);
        }
    }
}

/// Returns the link if the route for the address in a table of the view is on-link; none if it has
/// a gateway.
fn on_link<'a>(
    route: impl Fn(TableId, IpAddr) -> Option<&'a Route>,
    view: &ViewInfo,
    address: [u8; 16],
) -> Option<Key> {
    let address = match view.family {
        Family::V4 => IpAddr::from(*address.first_chunk::<4>()?),
        Family::V6 => IpAddr::from(address),
    };
    view.tables.iter().find_map(|&table| {
        let route = route(table, address)?;
        match &route.next_hops[..] {
            [hop] if route.kind == RouteKind::Unicast && hop.via.is_none() => {
                hop.encap.is_none().then_some((hop.dev?, address))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use sidestep_datapath::Limits;
    use sidestep_model::config::File;

    use super::*;
    use crate::compile::Compiler;

    #[test]
    fn the_longest_route_determines_the_link() {
        let of = |routes: &str| {
            let text =
                format!("ports: {{eth0: {{}}, eth1: {{}}, eth2: {{}}}}\nroutes: [{routes}]\n");
            File::parse(&text).and_then(|it| it.node()).expect("a node")
        };
        let mut node = of(
            "\"fc00::/16 dev eth0 metric 5\", \"fc00::/16 dev eth1 metric 4\", \"fc00:1::/32 via fc00::1 dev eth0\"",
        );
        node.routes.extend(of("\"fc00:2::/32 dev eth2\"").routes);
        let ports = node.links.keys().copied().collect();
        let mut compiler = Compiler::new(Limits::default());
        compiler.compile(&node, &ports).expect("it compiles");
        let route = |table, address| node.routes.get(&compiler.route_for(table, address)?);
        let view = ViewInfo::new(Family::V6, [TableId(7), TableId::MAIN]);
        let link = |text: &str| {
            let address: std::net::Ipv6Addr = text.parse().expect("an address");
            Some(on_link(route, &view, address.octets())?.0.0)
        };
        assert_eq!(link("fc00:3::1"), Some(2), "the lower metric");
        assert_eq!(link("fc00:1::1"), None, "a next hop is before it");
        assert_eq!(link("fc00:2::1"), Some(3), "a route of our own");
        assert_eq!(link("fd00::1"), None);
    }

    fn need(number: u8, state: State, used: bool) -> Need {
        Need {
            key: (IfIndex(1), IpAddr::from([10, 0, 0, number])),
            state,
            used,
        }
    }

    /// Returns the seconds at which a next hop is requested, with a check every [`PERIOD`].
    fn asked(need: Need, seconds: u64) -> Vec<u64> {
        let (mut neighbors, start) = (Neighbors::default(), Instant::now());
        let looks = (0u32..).map(|look| start + PERIOD * look);
        looks
            .take_while(|now| now.duration_since(start) < Duration::from_secs(seconds))
            .filter(|now| !neighbors.due([need].into_iter(), *now).is_empty())
            .map(|now| now.duration_since(start).as_secs())
            .collect()
    }

    #[test]
    fn an_unresolved_next_hop_is_requested_with_backoff() {
        assert_eq!(
            asked(need(1, State::Unresolved, false), 200),
            [0, 1, 3, 7, 15, 31, 63, 127, 191]
        );
    }

    #[test]
    fn a_next_hop_in_use_is_requested_every_second() {
        let every: Vec<u64> = (0..10).collect();
        assert_eq!(asked(need(1, State::Unresolved, true), 10), every);
        assert_eq!(asked(need(1, State::Stale, true), 10), every);
    }

    #[test]
    fn only_neighbors_in_use_are_refreshed() {
        assert_eq!(asked(need(1, State::Fresh, true), 50), [0, 20, 40]);
        assert!(asked(need(1, State::Fresh, false), 50).is_empty());
        assert!(asked(need(1, State::Stale, false), 50).is_empty());
    }

    #[test]
    fn next_hops_in_use_are_requested_first() {
        let (mut neighbors, now) = (Neighbors::default(), Instant::now());
        let needs =
            || (0..100).map(|number| need(number, State::Unresolved, number == 70 || number == 90));
        let mut seen = Vec::new();
        for look in 0..7 {
            let due = neighbors.due(needs(), now + PERIOD * look / 2);
            assert!(due.len() <= RESOLVED_AT_ONCE, "{due:?}");
            seen.extend(due);
        }
        let first: Vec<Key> = [70, 90]
            .map(|number| need(number, State::Unresolved, true).key)
            .into();
        assert_eq!(seen[..2], first);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }
}
