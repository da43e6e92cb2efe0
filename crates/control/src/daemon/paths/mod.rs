//! Liveness of paths: which sessions they have, what their probes found, and reports.

mod engine;
mod packet;
mod prober;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use sidestep_datapath::SessionId;
use sidestep_datapath::abi::{SIDESTEP_SESSIONS, sidestep_session};
use sidestep_model::config::Overlay;
use sidestep_model::grammar;
use sidestep_model::liveness::{Path, Probe, Watched, WatchedList, discriminators};
use sidestep_model::node::Node;
use sidestep_model::route::{Route, RouteKey};

#[cfg(test)]
pub(super) use self::engine::{Engine, Io};
pub(super) use self::engine::{Event, Snapshot, Spec};
use self::engine::{Flow, Way};
pub(super) use self::prober::{PathProber, ThreadProber};
use self::session::State;
use super::packet_path::PacketPath;
use super::{Instance, System};
use crate::compile::{Counted, PathRoute};
use crate::report;

/// Paths that are probed.
pub(super) struct Paths<P> {
    prober: Option<P>,
    /// Reason without a prober.
    problem: Option<String>,
    /// Paths that are out of use.
    down: BTreeSet<String>,
    /// Whether a path is not probed because of its addresses or its list.
    is_stuck: bool,
}

impl<P> Default for Paths<P> {
    fn default() -> Self {
        Self {
            prober: None,
            problem: None,
            down: BTreeSet::new(),
            is_stuck: false,
        }
    }
}

/// Returns a session for each discriminator: the one that the packet path has, or a free one.
fn assign(
    discriminators: impl Iterator<Item = u32>,
    path: &impl PacketPath,
) -> BTreeMap<u32, SessionId> {
    let there: BTreeMap<u32, SessionId> = path
        .sessions()
        .into_iter()
        .map(|(index, session)| (session.discriminator, index))
        .collect();
    let used: BTreeSet<SessionId> = there.values().copied().collect();
    let all = (1..SIDESTEP_SESSIONS).map(SessionId);
    let mut free = all.filter(|index| !used.contains(index));
    let found = discriminators.map_while(|discriminator| {
        let index = there.get(&discriminator).copied().or_else(|| free.next());
        Some((discriminator, index?))
    });
    found.collect()
}

impl<P: PathProber> Paths<P> {
    /// Returns the sessions and lists of the paths of this configuration, for the node.
    pub fn watched(&self, own: &Overlay, path: &impl PacketPath) -> Watched {
        if own.watched_paths.is_empty() {
            return Watched::default();
        }
        let flows = discriminators(&own.watched_paths, &own.reflectors).unwrap_or_default();
        let sessions = assign(flows.values().flatten().copied(), path);
        let lists = own.watched_paths.iter().filter_map(|(name, path)| {
            let first = flows.get(name)?.first()?;
            let list = WatchedList {
                path: name.clone(),
                session: sessions.get(first)?.0,
                is_down: self.down.contains(name),
            };
            Some((path.segments.clone(), list))
        });
        Watched {
            lists: lists.collect(),
            sessions: sessions
                .into_iter()
                .map(|(number, index)| (number, index.0))
                .collect(),
        }
    }

    /// When to call [`Instance::follow_paths`] although no descriptor is readable.
    pub fn due(&self) -> Option<Instant> {
        self.prober.as_ref().and_then(P::due)
    }

    /// Why paths are not probed.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Paths<ThreadProber> {
    /// Descriptor that is readable after an event.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.prober.as_ref().map(ThreadProber::fd)
    }
}

impl<S: System> Instance<S> {
    /// Probes the paths of the configuration from now on, after the tables have their sessions.
    pub(super) fn probe_paths(&mut self) {
        let own = &self.configured.own;
        let paths = &mut self.watchers.paths;
        if own.watched_paths.is_empty() && paths.prober.is_none() {
            return;
        }
        if paths.prober.is_none() {
            match self.system.path_prober(&self.tables.kernel) {
                Ok(prober) => (paths.prober, paths.problem) = (Some(prober), None),
                Err(why) => paths.problem = Some(why),
            }
        }
        let specs = self.specs();
        write_sessions(&mut self.tables.kernel, specs.values());
        let watched = &self.configured.own.watched_paths;
        let paths = &mut self.watchers.paths;
        paths.down.retain(|name| watched.contains_key(name));
        paths.is_stuck = specs.values().any(|spec| spec.way.is_err());
        if let Some(prober) = &mut paths.prober {
            prober.refresh(&self.tables.kernel);
            prober.configure(specs);
        }
    }

    /// Probes paths that could not be probed, if one of these changed routes may lead them back.
    pub(super) fn retry_paths(&mut self, changed: &[RouteKey]) {
        let routes = &self.node().routes;
        let mut changed = changed.iter().filter_map(|key| routes.get(key));
        if self.watchers.paths.is_stuck && changed.any(Route::is_sid) {
            self.probe_paths();
        }
    }

    /// Returns the paths of the configuration as they are to be probed.
    fn specs(&self) -> BTreeMap<String, Spec> {
        let own = &self.configured.own;
        let node = self.node();
        let of_paths = discriminators(&own.watched_paths, &own.reflectors).unwrap_or_default();
        let specs = of_paths.into_iter().filter_map(|(name, numbers)| {
            let path = own.watched_paths.get(&name)?;
            let flows = numbers.into_iter().filter_map(|number| {
                let remote = match path.probe {
                    Probe::Loopback(_) => number,
                    Probe::Sbfd { discriminator, .. } => discriminator,
                };
                Some(Flow {
                    session: SessionId(*node.watched.sessions.get(&number)?),
                    discriminators: (number, remote),
                })
            });
            let spec = Spec {
                way: way(path, self.tables.compiled.index.paths.get(&name), node),
                path: path.clone(),
                flows: flows.collect(),
                next_hops: self.next_hops_of_path(&name),
            };
            Some((name, spec))
        });
        specs.filter(|(_, spec)| !spec.flows.is_empty()).collect()
    }

    /// Notes which paths went out of use or are in use again. Returns whether one did.
    pub(super) fn follow_paths(&mut self) -> bool {
        let paths = &mut self.watchers.paths;
        let Some(prober) = &mut paths.prober else {
            return false;
        };
        prober.refresh(&self.tables.kernel);
        let mut changed = false;
        for Event { name, is_down } in prober.take_events() {
            changed |= if is_down {
                paths.down.insert(name)
            } else {
                paths.down.remove(&name)
            };
        }
        changed
    }

    pub(super) fn reflectors_report(&self) -> Result<report::Reflectors, String> {
        let reflectors = self.configured.own.reflectors.iter();
        reflectors
            .map(|(&discriminator, it)| {
                let counters = self.counted(Counted::Reflector(discriminator))?;
                Ok(report::Reflector {
                    discriminator,
                    admin_down: it.admin_down,
                    answers: counters.packets,
                })
            })
            .collect()
    }

    pub(super) fn paths_report(&self) -> report::Paths {
        let node = self.node();
        let now = self.system.nanoseconds(nix::time::ClockId::CLOCK_MONOTONIC);
        let paths = &self.watchers.paths;
        let all = self.configured.own.watched_paths.iter();
        all.map(|(name, path)| {
            let seen = paths.prober.as_ref().and_then(|it| it.snapshot(name));
            path_report(name, path, seen.as_ref(), node, now, paths.problem())
        })
        .collect()
    }
}

/// Writes the sessions of these paths, and clears all others. A session that is out of use stays so.
fn write_sessions<'a>(kernel: &mut impl PacketPath, specs: impl Iterator<Item = &'a Spec>) {
    let mut there: BTreeMap<SessionId, sidestep_session> = kernel.sessions().into_iter().collect();
    for spec in specs {
        let way = spec.way.as_ref();
        let source = way.map_or(Ipv6Addr::UNSPECIFIED, |way| way.destination);
        let source = source.octets();
        for flow in &spec.flows {
            let (discriminator, remote) = flow.discriminators;
            let known = there.remove(&flow.session);
            let known = known.filter(|it| it.discriminator == discriminator);
            if known.is_some_and(|it| (it.remote, it.source) == (remote, source)) {
                continue;
            }
            let session = sidestep_session {
                discriminator,
                remote,
                source,
                down: known.map_or(0, |it| it.down),
                ..Default::default()
            };
            kernel.remove_session(flow.session);
            kernel.create_session(flow.session, &session);
        }
    }
    for index in there.into_keys() {
        kernel.remove_session(index);
    }
}

/// Returns how probes of a path travel, or why they cannot.
fn way(
    path: &Path,
    compiled: Option<&Result<PathRoute, String>>,
    node: &Node,
) -> Result<Way, String> {
    let PathRoute { route, source } = match compiled {
        Some(Ok(route)) => *route,
        Some(Err(why)) => return Err(why.clone()),
        None => return Err("the tables are full".into()),
    };
    let source = path.source.unwrap_or(source);
    let is_own = |address: Ipv6Addr| {
        let mut own = node.addresses.iter();
        own.any(|(_, net)| net.addr() == address)
    };
    if !is_own(source) {
        return Err(format!("the source {source} is no address of this node"));
    }
    let destination = match &path.probe {
        Probe::Sbfd { address, .. } => *address,
        Probe::Loopback(back) => {
            if let Some(last) = back
                .last()
                .filter(|last| !is_own(**last) && !is_sid(node, **last))
            {
                return Err(format!(
                    "the list does not lead back: {last} is neither a SID nor an address of this node"
                ));
            }
            source
        }
    };
    Ok(Way {
        route,
        source,
        destination,
    })
}

/// Whether a route of this node makes a SID of the address.
fn is_sid(node: &Node, address: Ipv6Addr) -> bool {
    let mut routes = node.routes.iter();
    routes.any(|(key, route)| key.prefix.contains(&IpAddr::V6(address)) && route.is_sid())
}

fn path_report(
    name: &str,
    path: &Path,
    seen: Option<&Snapshot>,
    node: &Node,
    now: u64,
    problem: Option<&str>,
) -> report::WatchedPath {
    let flows = seen.map_or(&[][..], |seen| &seen.flows);
    let states = flows.iter().map(|(state, ..)| *state);
    let is_down = path.admin_down || seen.is_some_and(|seen| seen.is_down);
    let state = match seen {
        _ if path.admin_down => "admin-down",
        None => "unknown",
        Some(seen) if seen.is_down && seen.wait.is_some() => "waiting",
        Some(seen) if seen.is_down => "down",
        Some(_) if states.clone().all(|state| state == State::Up) => "up",
        Some(_) => "init",
    };
    // Where packets to the first segment go explains more than a reason of the packet path.
    let first = path.segments.first().copied();
    let unreachable = first.and_then(|first| node.way_to(first).invalid);
    let why = seen.and_then(|seen| seen.why.clone());
    let why = why.map(|why| match unreachable {
        Some(unreachable) if !path.admin_down => unreachable.to_string(),
        _ => why,
    });
    report::WatchedPath {
        name: name.to_owned(),
        words: grammar::path::print(name, path, node),
        segments: path.segments.iter().map(ToString::to_string).collect(),
        state: state.into(),
        in_use: !is_down,
        why: why.or_else(|| problem.map(str::to_owned)),
        wait_ms: seen.and_then(|seen| seen.wait).map(|wait| wait / 1_000_000),
        failures: seen.map_or(0, |seen| seen.failures),
        flows: flows
            .iter()
            .map(|(state, answered, probes)| report::PathFlow {
                state: match state {
                    State::Init => "init",
                    State::Up => "up",
                    State::Lost => "lost",
                    State::RemoteAdminDown => "remote-admin-down",
                }
                .into(),
                probes: *probes,
                answered_us: answered.map(|at| now.saturating_sub(at) / 1000),
            })
            .collect(),
        changes: seen
            .into_iter()
            .flat_map(|seen| &seen.changes)
            .map(|change| report::PathChange {
                ago_ms: now.saturating_sub(change.at) / 1_000_000,
                in_use: !change.is_down,
                why: change.why.clone(),
            })
            .collect(),
    }
}
