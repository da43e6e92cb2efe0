//! `sidestep monitor`: compares the daemon's state with that of the last comparison, and sends the
//! differences to listening clients.
//!
//! Without a client nothing is compared. A client that does not read loses events and learns their
//! number; it cannot block the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::time::ClockId;
use sidestep_model::grammar::route;
use sidestep_model::policy::Validity;
use sidestep_model::route::{Route, RouteKey};

use super::lines::Lines;
use super::metrics::configured;
use super::reports::srv6_routes;
use super::{Instance, System};
use crate::api::Incoming;
use crate::api::policy_batch::PathKey;
use crate::report::{Change, Event, Path, Problem};

/// LIMIT: clients that listen at the same time.
const LISTENERS: usize = 16;
/// Minimum interval between two comparisons; in between, only the last state counts.
const PERIOD: Duration = Duration::from_millis(100);
/// Inverse of the maximum share of time for comparisons, as with very many routes.
const SHARE: u32 = 25;

/// The clients, and the state that they know.
#[derive(Default)]
pub(super) struct Monitor {
    clients: Vec<Client>,
    known: State,
    /// The state may differ from the known one.
    changed: bool,
    due: Option<Instant>,
}

struct Client {
    lines: Lines,
    /// Events that this client did not read in time, since the last line.
    lost: u64,
}

/// The state that events are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// Target and operational state of each port; no target: not attached.
    ports: BTreeMap<String, (Option<&'static str>, bool)>,
    routes: BTreeMap<RouteKey, RouteState>,
    /// By name: preference of the active candidate path, and the reason why lists are invalid.
    policies: BTreeMap<String, (Option<u32>, Option<String>)>,
    /// Candidate paths of controllers.
    paths: BTreeMap<PathKey, PathState>,
    /// By SID.
    services: BTreeMap<String, String>,
    /// Paths that are probed: whether they are in use, and why not.
    watched_paths: BTreeMap<String, (bool, Option<String>)>,
    /// The connected zebra, and why the last session ended.
    fpm: (Option<String>, Option<String>),
    problems: BTreeSet<Problem>,
}

/// A route with its text, which is made for changed routes only.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RouteState {
    route: Route,
    text: String,
    punt_reason: Option<String>,
}

impl Monitor {
    /// Marks the state as possibly changed.
    pub fn touch(&mut self) {
        self.changed = true;
    }

    /// Time of the next comparison, if any.
    pub fn due(&self) -> Option<Instant> {
        self.due
            .filter(|_| self.changed && !self.clients.is_empty())
    }

    /// Events to poll for on behalf of the clients.
    pub fn poll_events(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.clients.iter().map(|it| it.lines.poll_events(true))
    }
}

impl Client {
    fn notify(&mut self, event: &Event) {
        if self.lines.is_full() {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            let change = Change::new("monitor", "lost", format!("{} events", self.lost));
            self.lines.say(&Event {
                timestamp: event.timestamp,
                change: change.with("they were not read in time"),
            });
            self.lost = 0;
        }
        self.lines.say(event);
    }
}

impl<S: System> Instance<S> {
    /// Adds a client. Its first line is empty; each further line is an event.
    pub(super) fn add_monitor(&mut self, incoming: Incoming) {
        if self.clients.monitor.clients.len() >= LISTENERS {
            let full = format!("{LISTENERS} clients listen already");
            return self.refuse(incoming, full);
        }
        // Earlier clients get what changed before this one.
        self.send_events(self.time.now, true);
        let mut lines = Lines::to(incoming);
        lines.say(&());
        if self.clients.monitor.clients.is_empty() {
            self.clients.monitor.known = self.state(&BTreeMap::new());
        }
        self.clients.monitor.clients.push(Client { lines, lost: 0 });
    }

    /// Sends events if the state has changed, and removes clients that disconnected.
    pub(super) fn send_events(&mut self, now: Instant, at_once: bool) {
        let has_clients = !self.clients.monitor.clients.is_empty();
        let is_due = at_once || self.clients.monitor.due.is_none_or(|due| now >= due);
        if has_clients && self.clients.monitor.changed && is_due {
            let begun = self.system.nanoseconds(ClockId::CLOCK_MONOTONIC);
            let next = self.state(&self.clients.monitor.known.routes);
            let changes = changes(&self.clients.monitor.known, &next);
            let timestamp = self.system.nanoseconds(ClockId::CLOCK_REALTIME);
            for change in changes {
                let event = Event { timestamp, change };
                for client in &mut self.clients.monitor.clients {
                    client.notify(&event);
                }
            }
            self.clients.monitor.known = next;
            self.clients.monitor.changed = false;
            self.clients.monitor.due = Some(now + PERIOD.max(self.taken_since(begun) * SHARE));
        }
        self.clients
            .monitor
            .clients
            .retain_mut(|client| client.lines.send() && !client.lines.client_hung_up());
        if has_clients && self.clients.monitor.clients.is_empty() {
            self.clients.monitor.known = State::default();
        }
    }

    fn state(&self, known: &BTreeMap<RouteKey, RouteState>) -> State {
        let (node, index) = (self.node(), &self.tables.compiled.index);
        let mut keys = srv6_routes(node);
        // Plain routes that are punted, too.
        keys.extend(
            index
                .unsupported
                .keys()
                .filter(|key| node.routes.contains_key(key)),
        );
        let route_state = |key: &RouteKey| {
            let route = configured(node, key);
            let text = match known.get(key).filter(|known| known.route == *route) {
                Some(known) => known.text.clone(),
                None => route::print_resolved(route, node),
            };
            RouteState {
                route: route.clone(),
                text,
                punt_reason: index.unsupported.get(key).cloned(),
            }
        };
        let policies = node.policies.iter().map(|(name, policy, validity)| {
            let active = validity.active.map(|it| policy.candidates[it].preference);
            let mut lists = validity.lists.iter().flatten();
            let why = lists.find_map(|list| list.invalid.as_ref());
            (name.to_owned(), (active, why.map(ToString::to_string)))
        });
        let paths = node.policies.iter().flat_map(|(_, policy, validity)| {
            let places = policy.candidates.iter().enumerate();
            let of_controllers = places.filter(|(_, it)| !it.path.is_configured());
            of_controllers.map(|(place, candidate)| {
                let key = (policy.id, candidate.path);
                (key, path_state(validity, place))
            })
        });
        let services = self
            .configured
            .own
            .routes
            .iter()
            .filter_map(|(key, route)| {
                let service = self.watchers.liveness.report(route)?;
                Some((key.prefix.to_string(), service.state))
            });
        let watched_paths = self.paths_report().into_iter().map(|path| {
            let why = path.why.filter(|_| !path.in_use && path.wait_ms.is_none());
            (path.name, (path.in_use, why))
        });
        let ports = self.ports_report().into_iter().map(|port| {
            let attached = self.ports.attached.get(&port.name);
            let target = attached.map(|port| port.target.name());
            (port.name, (target, port.up))
        });
        State {
            ports: ports.collect(),
            routes: keys
                .into_iter()
                .map(|key| (*key, route_state(key)))
                .collect(),
            policies: policies.collect(),
            paths: paths.collect(),
            services: services.collect(),
            watched_paths: watched_paths.collect(),
            fpm: self
                .fpm_report()
                .map(|it| (it.peer, it.last_end))
                .unwrap_or_default(),
            problems: self.problems().clone(),
        }
    }
}

/// Returns the changes from one state to the next.
fn changes(before: &State, now: &State) -> Vec<Change> {
    let mut all = Vec::new();
    compare(&before.ports, &now.ports, |name, before, now| {
        port_changes(name, before.copied(), now.copied(), &mut all);
    });
    compare(&before.services, &now.services, |sid, before, now| {
        let event = now.map_or("removed", String::as_str);
        if before.is_some() || event != "unknown" {
            all.push(Change::new("service", event, sid));
        }
    });
    compare(
        &before.watched_paths,
        &now.watched_paths,
        |name, before, now| {
            all.extend(watched_change(name, before, now));
        },
    );
    compare(&before.routes, &now.routes, |_, before, now| {
        all.extend(route_change(before, now));
    });
    compare(&before.policies, &now.policies, |name, before, now| {
        all.push(policy_change(name, before, now));
    });
    compare(&before.paths, &now.paths, |key, _, now| {
        all.push(path_change(*key, now));
    });
    let (peer, next) = (&before.fpm.0, &now.fpm.0);
    if peer != next {
        let detail = now.fpm.1.clone().unwrap_or_default();
        let gone = peer.iter();
        all.extend(gone.map(|it| Change::new("fpm", "disconnected", it).with(&detail)));
        all.extend(next.iter().map(|it| Change::new("fpm", "connected", it)));
    }
    let problem = |event, problem: &Problem| Change {
        severity: Some(problem.severity),
        ..Change::new("problem", event, &problem.code).with(problem.description())
    };
    let begun = Problem::begun(&before.problems, &now.problems);
    all.extend(begun.map(|it| problem("begun", it)));
    let resolved = Problem::begun(&now.problems, &before.problems);
    all.extend(resolved.map(|it| problem("resolved", it)));
    all
}

/// Calls `differs` for each key whose values differ.
fn compare<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
    mut differs: impl FnMut(&K, Option<&V>, Option<&V>),
) {
    for (key, value) in before {
        let next = now.get(key);
        if next != Some(value) {
            differs(key, Some(value), next);
        }
    }
    for (key, value) in now.iter().filter(|(key, _)| !before.contains_key(key)) {
        differs(key, None, Some(value));
    }
}

type PortState = (Option<&'static str>, bool);

fn port_changes(
    name: &str,
    before: Option<PortState>,
    now: Option<PortState>,
    all: &mut Vec<Change>,
) {
    let Some((target, up)) = now else {
        return all.push(Change::new("port", "removed", name));
    };
    if before.is_none() {
        all.push(Change::new("port", "added", name));
    }
    let (target_before, up_before) = before.unwrap_or_default();
    if target != target_before {
        all.push(match target {
            Some(target) => Change::new("port", "attached", name).with(target),
            None => Change::new("port", "detached", name),
        });
    }
    if up != up_before {
        all.push(Change::new("port", if up { "up" } else { "down" }, name));
    }
}

fn route_change(before: Option<&RouteState>, now: Option<&RouteState>) -> Option<Change> {
    let Some(now) = now else {
        return Some(Change::new("route", "removed", &before?.text));
    };
    let event = match before {
        None if now.punt_reason.is_some() => "punted",
        None => "added",
        Some(before) if before.punt_reason != now.punt_reason => match now.punt_reason {
            Some(_) => "punted",
            None => "forwarded",
        },
        Some(before) if before.text != now.text => "changed",
        // Only a field without a word differs.
        Some(_) => return None,
    };
    let change = Change::new("route", event, &now.text);
    Some(match &now.punt_reason {
        Some(reason) => change.with(reason),
        None => change,
    })
}

type WatchedState = (bool, Option<String>);

fn watched_change(
    name: &str,
    before: Option<&WatchedState>,
    now: Option<&WatchedState>,
) -> Option<Change> {
    let Some((in_use, why)) = now else {
        return Some(Change::new("path", "removed", name));
    };
    // The reason may change while the path is down.
    if before.is_some_and(|(before, _)| before == in_use) {
        return None;
    }
    let event = match (before, in_use) {
        (None, true) => "added",
        (Some(_), true) => "up",
        (_, false) => "down",
    };
    let change = Change::new("path", event, name);
    Some(match why {
        Some(why) => change.with(why),
        None => change,
    })
}

type PolicyState = (Option<u32>, Option<String>);

fn policy_change(name: &str, before: Option<&PolicyState>, now: Option<&PolicyState>) -> Change {
    let Some((active, why)) = now else {
        return Change::new("policy", "removed", name);
    };
    let event = match (active, before) {
        (None, _) => "invalid",
        (Some(_), None | Some((None, _))) => "valid",
        (Some(_), Some(_)) => "changed",
    };
    let mut details = Vec::new();
    details.extend(active.map(|preference| format!("preference {preference}")));
    details.extend(
        why.as_ref()
            .map(|why| format!("a segment list is invalid: {why}")),
    );
    let change = Change::new("policy", event, name);
    if details.is_empty() {
        change
    } else {
        change.with(details.join("; "))
    }
}

/// Validity of a candidate path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathState {
    /// It is valid, and packets take it.
    Active,
    /// It is valid, and another path is active.
    Valid,
    /// All its lists are invalid: the reason of one of them.
    Invalid(String),
}

fn path_state(validity: &Validity, place: usize) -> PathState {
    let mut reasons = validity.lists[place].iter().map(|it| it.invalid.as_ref());
    if validity.active == Some(place) {
        PathState::Active
    } else if reasons.clone().any(|reason| reason.is_none()) {
        PathState::Valid
    } else {
        let first = reasons.find_map(|reason| reason);
        PathState::Invalid(first.map_or_else(String::new, ToString::to_string))
    }
}

fn path_change(key: PathKey, now: Option<&PathState>) -> Change {
    let (policy, path) = key;
    let event = match now {
        Some(PathState::Active) => "active",
        Some(PathState::Valid) => "valid",
        Some(PathState::Invalid(_)) => "invalid",
        None => "withdrawn",
    };
    let change = Change {
        path: Some(Path::from(key)),
        ..Change::new("candidate_path", event, format!("{policy} {path}"))
    };
    match now {
        Some(PathState::Invalid(reason)) => change.with(reason),
        _ => change,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use sidestep_model::grammar::{Context, Words};
    use sidestep_model::node::Node;
    use sidestep_model::policy::{PathId, PolicyId};
    use sidestep_model::route::Owner;

    use super::*;

    fn words(before: &State, now: &State) -> Vec<String> {
        let words = |change: Change| {
            let detail = change.detail.map(|it| format!(": {it}"));
            let Change {
                kind,
                event,
                subject,
                ..
            } = change;
            format!("{kind} {event} {subject}{}", detail.unwrap_or_default())
        };
        changes(before, now).into_iter().map(words).collect()
    }

    #[test]
    fn a_change_in_both_directions_has_an_event_each() {
        let before = State {
            ports: [("eth0".into(), (Some("xdp"), true))].into(),
            policies: [("gold".into(), (Some(100), None))].into(),
            services: [("fc00::a/128".into(), "up".into())].into(),
            ..State::default()
        };
        let why = Some("no route to fc00::1".into());
        let now = State {
            ports: [
                ("eth0".into(), (None, false)),
                ("eth1".into(), (Some("tc"), true)),
            ]
            .into(),
            policies: [
                ("gold".into(), (None, why.clone())),
                ("red".into(), (Some(7), why)),
            ]
            .into(),
            services: [("fc00::a/128".into(), "down".into())].into(),
            ..State::default()
        };
        let invalid = "a segment list is invalid: no route to fc00::1";
        let expected = [
            "port detached eth0".to_owned(),
            "port down eth0".into(),
            "port added eth1".into(),
            "port attached eth1: tc".into(),
            "port up eth1".into(),
            "service down fc00::a/128".into(),
            format!("policy invalid gold: {invalid}"),
            format!("policy valid red: preference 7; {invalid}"),
        ];
        assert_eq!(words(&before, &now), expected);
        let expected = [
            "port attached eth0: xdp",
            "port up eth0",
            "port removed eth1",
            "service up fc00::a/128",
            "policy valid gold: preference 100",
            "policy removed red",
        ];
        assert_eq!(words(&now, &before), expected);
        assert_eq!(words(&now, &now), [""; 0]);
    }

    #[test]
    fn a_candidate_path_has_an_event_for_each_state() {
        let key = PathKey::from((
            PolicyId {
                color: 100,
                endpoint: "fc00::1".parse().expect("an address"),
            },
            PathId::configured(7),
        ));
        let state = |state: PathState| State {
            paths: [(key, state)].into(),
            ..State::default()
        };
        let absent = State::default();
        let why = "no route to fc00::1".to_owned();
        let (active, valid) = (state(PathState::Active), state(PathState::Valid));
        let invalid = state(PathState::Invalid(why));
        let subject = "color 100 endpoint fc00::1 configuration AS 0 :: discriminator 7";
        for (before, now, event, detail) in [
            (&absent, &active, "active", ""),
            (&active, &valid, "valid", ""),
            (&valid, &invalid, "invalid", ": no route to fc00::1"),
            (&invalid, &absent, "withdrawn", ""),
        ] {
            let expected = format!("candidate_path {event} {subject}{detail}");
            assert_eq!(words(before, now), [expected]);
        }
        let [change] = &changes(&absent, &active)[..] else {
            panic!("one event");
        };
        assert_eq!(change.path.as_ref().map(|path| path.discriminator), Some(7));
    }

    #[test]
    fn a_route_is_punted_and_forwarded_again() {
        let node = Node::default();
        let ctx = Context {
            names: &node,
            family: None,
            owner: Owner::Kernel,
        };
        let state = |reason: Option<&str>, metric: u32| {
            let text = format!("fc00::/64 via fe80::1 metric {metric}");
            let route = route::parse(&mut Words::from_line(&text), &ctx).expect("well-formed");
            let state = RouteState {
                route,
                text,
                punt_reason: reason.map(str::to_owned),
            };
            State {
                routes: [(RouteKey::new("fc00::/64".parse().expect("a prefix")), state)].into(),
                ..State::default()
            }
        };
        let (absent, other) = (State::default(), state(None, 2));
        let (forwarded, punted) = (state(None, 1), state(Some("no way"), 1));
        for (before, now, event) in [
            (&absent, &forwarded, "added fc00::/64 via fe80::1 metric 1"),
            (
                &absent,
                &punted,
                "punted fc00::/64 via fe80::1 metric 1: no way",
            ),
            (
                &forwarded,
                &punted,
                "punted fc00::/64 via fe80::1 metric 1: no way",
            ),
            (
                &punted,
                &forwarded,
                "forwarded fc00::/64 via fe80::1 metric 1",
            ),
            (&forwarded, &other, "changed fc00::/64 via fe80::1 metric 2"),
            (&other, &absent, "removed fc00::/64 via fe80::1 metric 2"),
        ] {
            assert_eq!(words(before, now), [format!("route {event}")]);
        }
    }

    #[test]
    fn a_slow_client_learns_how_many_events_it_lost() {
        let (mut reader, daemon) = UnixStream::pair().expect("sockets");
        let lines = Lines::to(Incoming::from(daemon));
        let mut client = Client { lines, lost: 0 };
        let event = Event {
            timestamp: 1,
            change: Change::new("port", "up", "e".repeat(100_000)),
        };
        // More than the socket and the buffer hold.
        for _ in 0..60 {
            client.notify(&event);
            assert!(client.lines.send());
        }
        let lost = client.lost;
        assert!(lost > 0);
        reader.set_nonblocking(true).expect("a socket");
        let mut read = vec![0; 1 << 20];
        while !client.lines.is_empty() {
            let _ = reader.read(&mut read);
            assert!(client.lines.send());
        }
        while reader.read(&mut read).is_ok_and(|bytes| bytes > 0) {}
        client.notify(&event);
        assert!(client.lines.send());
        let bytes = reader.read(&mut read).expect("a line");
        let first = String::from_utf8_lossy(&read[..bytes]);
        let first = first.lines().next().expect("a line");
        let expected = format!(
            "{{\"ok\":{{\"timestamp\":1,\"kind\":\"monitor\",\"event\":\"lost\",\"subject\":\"{lost} events\",\
             \"detail\":\"they were not read in time\",\"severity\":null,\"path\":null}}}}"
        );
        assert_eq!(first, expected);
        assert_eq!(client.lost, 0);
    }
}
