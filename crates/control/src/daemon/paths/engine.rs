//! All paths: when each probe is due, which paths are in use, and what changed. It has no I/O of its
//! own. A thread drives it, apart from the event loop, and in tests a clock of their own.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use sidestep_datapath::{AdjacencyId, RouteId, SessionId};
use sidestep_model::liveness::Path;

use super::packet::Probe;
use super::session::{Nanos, Session, State};

/// Slots of the wheel, of a millisecond each.
const SLOTS: usize = 128;
const SLOT: Nanos = 1_000_000;
/// LIMIT: doublings of the wait of a path that fails again and again.
const DAMPING_MAX: u32 = 6;
/// Number of waits after a failure in which another one doubles the wait.
const DAMPING_WAITS: Nanos = 10;
/// LIMIT: changes of a path that are kept.
const CHANGES_MAX: usize = 8;

/// Input and output of the engine.
pub(in crate::daemon) trait Io {
    /// Arrival of the last answer and its state, as the packet path writes it; 0 for none.
    fn answered(&self, session: SessionId) -> u64;
    /// Sends a probe by a route, at the latest with the end of the turn.
    fn send(&mut self, route: RouteId, packet: &[u8]) -> Result<(), &'static str>;
    /// Puts policies with this session on their backups, or back.
    fn set_down(&mut self, session: SessionId, down: bool);
    /// Takes a next hop out of use.
    fn take_down(&mut self, next_hop: AdjacencyId);
    /// Whether an earlier process left the session down.
    fn is_down(&self, session: SessionId) -> bool;
    fn random(&mut self) -> u64;
}

/// A path as it is to be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Spec {
    pub path: Path,
    /// Route and addresses of the probes, or the reason without them.
    pub way: Result<Way, String>,
    pub flows: Vec<Flow>,
    /// Next hops that are out of use while the path is.
    pub next_hops: Vec<AdjacencyId>,
}

/// How probes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Way {
    pub route: RouteId,
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
}

/// Session of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Flow {
    pub session: SessionId,
    pub discriminators: (u32, u32),
}

/// A path went out of use, or is in use again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Event {
    pub name: String,
    pub is_down: bool,
}

/// A change of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Change {
    pub at: Nanos,
    pub is_down: bool,
    pub why: String,
}

/// State of a path, for reports.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Snapshot {
    pub is_down: bool,
    /// Why it is out of use, or why its probes are not sent.
    pub why: Option<String>,
    /// Time until it is in use again, if it stays alive.
    pub wait: Option<Nanos>,
    pub changes: Vec<Change>,
    pub failures: u64,
    /// State, last answer and probes of each flow.
    pub flows: Vec<(State, Option<Nanos>, u64)>,
}

/// All paths.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Engine {
    /// Paths by a number that stays while they exist.
    paths: BTreeMap<u32, Probed>,
    numbers: BTreeMap<String, u32>,
    next: u32,
    wheel: Vec<Vec<(u32, u16)>>,
    /// The next slot of the wheel, counted from time 0.
    slot: Nanos,
    /// Paths that wait to be in use again.
    waiting: Vec<u32>,
    events: Vec<Event>,
}

#[derive(Debug)]
struct Probed {
    name: String,
    spec: Spec,
    flows: Vec<(Session, Vec<u8>, State)>,
    is_down: bool,
    /// Why the last probe was not sent.
    unsent: Option<&'static str>,
    /// Since when all flows are up, while the path is out of use.
    alive: Option<Nanos>,
    failed: Option<Nanos>,
    damping: u32,
    failures: u64,
    changes: VecDeque<Change>,
}

impl Engine {
    /// Probes exactly these paths from now on. A path whose flows stay keeps its state; a new one
    /// continues the sessions that `io` knows.
    pub fn configure(&mut self, wanted: BTreeMap<String, Spec>, now: Nanos, io: &mut impl Io) {
        let gone: Vec<String> = self.numbers.keys().cloned().collect();
        for name in gone.iter().filter(|name| !wanted.contains_key(*name)) {
            if let Some(number) = self.numbers.remove(name) {
                self.paths.remove(&number);
            }
        }
        if self.wheel.is_empty() {
            self.wheel = vec![vec![]; SLOTS];
            self.slot = now / SLOT;
        }
        for (name, spec) in wanted {
            let number = self.numbers.get(&name).copied();
            let there = number.and_then(|number| self.paths.get_mut(&number));
            if let Some(there) = there
                && there.keeps_its_sessions(&spec)
            {
                there.update(spec);
                continue;
            }
            if let Some(number) = number {
                self.paths.remove(&number);
            }
            self.next += 1;
            let number = self.next;
            let probed = Probed::new(name.clone(), spec, now, io);
            for flow in 0..probed.flows.len() as u16 {
                let due = probed.flows[usize::from(flow)].0.due();
                self.wheel[(due / SLOT) as usize % SLOTS].push((number, flow));
            }
            if probed.is_down {
                self.events.push(Event {
                    name: name.clone(),
                    is_down: true,
                });
                self.waiting.push(number);
            }
            self.paths.insert(number, probed);
            self.numbers.insert(name, number);
        }
        self.collect(now, io);
    }

    /// Sends the probes that are due, and evaluates the answers. Returns when to call it again.
    pub fn turn(&mut self, now: Nanos, io: &mut impl Io) -> Nanos {
        let current = now / SLOT;
        if self.wheel.is_empty() {
            return Nanos::MAX;
        }
        // After a long pause each slot is due once.
        self.slot = self.slot.max((current + 1).saturating_sub(SLOTS as Nanos));
        while self.slot <= current {
            let place = self.slot as usize % SLOTS;
            let due = std::mem::take(&mut self.wheel[place]);
            self.slot += 1;
            for (number, flow) in due {
                let Some(probed) = self.paths.get_mut(&number) else {
                    continue;
                };
                if probed.spec.path.admin_down {
                    // A change of the configuration makes a new path of it.
                    continue;
                }
                if probed.flows[usize::from(flow)].0.due() / SLOT <= current {
                    let was_down = probed.is_down;
                    probed.probe(flow, now, io);
                    if probed.is_down && !was_down {
                        self.waiting.push(number);
                        self.events.push(probed.event());
                    }
                }
                let due = probed.flows[usize::from(flow)].0.due() / SLOT;
                let slot = due.max(self.slot) as usize % SLOTS;
                self.wheel[slot].push((number, flow));
            }
        }
        self.collect(now, io);
        self.due(now)
    }

    /// Puts paths in use again whose wait is over.
    fn collect(&mut self, now: Nanos, io: &mut impl Io) {
        let (paths, events) = (&mut self.paths, &mut self.events);
        self.waiting.retain(|number| {
            let Some(probed) = paths.get_mut(number) else {
                return false;
            };
            if probed.may_return(now) {
                probed.set_down(false, now, "alive".into(), io);
                events.push(probed.event());
            }
            probed.is_down
        });
    }

    fn due(&self, now: Nanos) -> Nanos {
        let slots = (self.slot..self.slot + SLOTS as Nanos)
            .find(|slot| !self.wheel[*slot as usize % SLOTS].is_empty());
        let next = slots.map_or(Nanos::MAX, |slot| slot * SLOT);
        let waiting = self.waiting.iter().filter_map(|number| {
            let probed = self.paths.get(number)?;
            Some(probed.alive? + probed.wait())
        });
        waiting.fold(next, Nanos::min).max(now + SLOT)
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether there are events.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the state of a path.
    pub fn snapshot(&self, name: &str, now: Nanos) -> Option<Snapshot> {
        let probed = self.paths.get(self.numbers.get(name)?)?;
        Some(Snapshot {
            is_down: probed.is_down,
            why: probed.why(),
            wait: probed
                .alive
                .map(|since| (since + probed.wait()).saturating_sub(now)),
            changes: probed.changes.iter().cloned().collect(),
            failures: probed.failures,
            flows: probed
                .flows
                .iter()
                .map(|(session, ..)| (session.state(), session.answered(), session.probes))
                .collect(),
        })
    }
}

impl Probed {
    fn new(name: String, spec: Spec, now: Nanos, io: &mut impl Io) -> Self {
        let mut probed = Self {
            name,
            flows: vec![],
            is_down: false,
            unsent: None,
            alive: None,
            failed: None,
            damping: 0,
            failures: 0,
            changes: VecDeque::new(),
            spec,
        };
        let interval = Duration::from_millis(probed.spec.path.interval.into());
        let lead = probed.spec.flows.first().map(|flow| flow.session);
        let was_down = lead.is_some_and(|session| io.is_down(session));
        for flow in &probed.spec.flows {
            // Spread over the first interval.
            let spread = io.random() % interval.as_nanos() as u64;
            let known = (io.answered(flow.session), was_down);
            let multiplier = probed.spec.path.multiplier;
            let session = Session::new(interval, multiplier, now + spread, known);
            probed.flows.push((session, vec![], State::Init));
        }
        if probed.spec.path.admin_down {
            probed.set_down(true, now, ADMIN_DOWN.into(), io);
        } else if was_down {
            probed.set_down(true, now, "it was down before the start".into(), io);
        }
        probed
    }

    /// Whether another specification has the same sessions.
    fn keeps_its_sessions(&self, spec: &Spec) -> bool {
        let timing = |path: &Path| (path.interval, path.multiplier, path.admin_down);
        self.spec.flows == spec.flows && timing(&self.spec.path) == timing(&spec.path)
    }

    fn update(&mut self, spec: Spec) {
        self.spec = spec;
        for (_, packet, _) in &mut self.flows {
            packet.clear();
        }
    }

    fn probe(&mut self, flow: u16, now: Nanos, io: &mut impl Io) {
        let of_flow = self.spec.flows[usize::from(flow)];
        let random = io.random();
        let answered = io.answered(of_flow.session);
        let (session, packet, state) = &mut self.flows[usize::from(flow)];
        session.probe(now, answered, random);
        if packet.is_empty() || *state != session.state() {
            *state = session.state();
            if let Ok(way) = &self.spec.way {
                let path = &self.spec.path;
                let probe = Probe {
                    source: way.source,
                    destination: way.destination,
                    discriminators: of_flow.discriminators,
                    flow,
                    size: path.size as usize,
                    multiplier: path.multiplier,
                    interval: path.interval * 1000,
                    state: *state,
                };
                *packet = probe.emit();
            }
        }
        if let Ok(way) = &self.spec.way {
            self.unsent = io.send(way.route, packet).err();
        }
        self.evaluate(now, io);
    }

    /// Takes the path out of use if a flow is lost, and notes since when all of them are up.
    fn evaluate(&mut self, now: Nanos, io: &mut impl Io) {
        let states = || self.flows.iter().map(|(session, ..)| session.state());
        let is_failed = states().any(|state| matches!(state, State::Lost | State::RemoteAdminDown));
        let is_alive = states().all(|state| state == State::Up);
        if is_failed && !self.is_down {
            let wait = self.wait() * DAMPING_WAITS;
            let is_soon = self.failed.is_some_and(|at| now.saturating_sub(at) < wait);
            self.damping = if is_soon {
                (self.damping + 1).min(DAMPING_MAX)
            } else {
                0
            };
            self.failed = Some(now);
            self.failures += 1;
            let why = self.cause();
            self.set_down(true, now, why, io);
        }
        self.alive = match self.alive {
            _ if !self.is_down || !is_alive => None,
            None => Some(now),
            since => since,
        };
    }

    fn set_down(&mut self, is_down: bool, now: Nanos, why: String, io: &mut impl Io) {
        self.is_down = is_down;
        self.alive = None;
        if let Some(lead) = self.spec.flows.first() {
            io.set_down(lead.session, is_down);
        }
        // They return with the tables, because their links may be down, too.
        for next_hop in self.spec.next_hops.iter().filter(|_| is_down) {
            io.take_down(*next_hop);
        }
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(Change {
            at: now,
            is_down,
            why,
        });
    }

    fn may_return(&self, now: Nanos) -> bool {
        let since = self.alive.filter(|_| self.is_down);
        since.is_some_and(|since| now >= since + self.wait())
    }

    /// How long the path must be alive before it is in use again.
    fn wait(&self) -> Nanos {
        Duration::from_millis(self.spec.path.hold.into()).as_nanos() as Nanos * (1 << self.damping)
    }

    fn event(&self) -> Event {
        Event {
            name: self.name.clone(),
            is_down: self.is_down,
        }
    }

    /// Why flows are lost.
    fn cause(&self) -> String {
        if let Err(why) = &self.spec.way {
            return why.clone();
        }
        if let Some(reason) = self.unsent {
            return format!("probes are not sent: {reason}");
        }
        let states = || self.flows.iter().map(|(session, ..)| session.state());
        if states().any(|state| state == State::RemoteAdminDown) {
            return "the reflector is down by its configuration".into();
        }
        let lost = states().filter(|state| *state == State::Lost).count();
        match self.flows.len() {
            1 => "no answers".into(),
            all => format!("no answers on {lost} of {all} flows"),
        }
    }

    fn why(&self) -> Option<String> {
        if self.spec.path.admin_down {
            return Some(ADMIN_DOWN.into());
        }
        if self.is_down && self.alive.is_none() {
            return Some(self.cause());
        }
        if self.is_down {
            return Some("alive, and waits to be used".into());
        }
        self.spec.way.as_ref().err().cloned()
    }
}

const ADMIN_DOWN: &str = "down by configuration";
