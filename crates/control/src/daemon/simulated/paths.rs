//! Probes of paths in virtual time. The engine is that of the daemon; the network answers at once,
//! unless a path is dead.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use sidestep_datapath::abi::sidestep_session;
use sidestep_datapath::{AdjacencyId, RouteId, SessionId};

use super::MemoryPath;
use super::system::World;
use crate::daemon::paths::{Engine, Event, Io, PathProber, Snapshot, Spec};

/// Sessions of a packet path, which outlives the process.
pub(crate) type Sessions = Rc<RefCell<BTreeMap<SessionId, sidestep_session>>>;

/// The engine on a simulated network.
pub(crate) struct SimulatedPathProber {
    engine: RefCell<Engine>,
    network: RefCell<Network>,
    due: Option<u64>,
}

struct Network {
    world: Rc<World>,
    sessions: Sessions,
    down: Rc<RefCell<BTreeSet<AdjacencyId>>>,
    random: u64,
}

impl SimulatedPathProber {
    pub fn new(world: &Rc<World>, path: &MemoryPath) -> Self {
        Self {
            engine: RefCell::default(),
            network: RefCell::new(Network {
                world: world.clone(),
                sessions: path.sessions.clone(),
                down: path.down.clone(),
                random: 0,
            }),
            due: None,
        }
    }

    fn now(&self) -> u64 {
        self.network.borrow().world.passed().as_nanos() as u64
    }
}

impl PathProber for SimulatedPathProber {
    type Path = MemoryPath;

    fn configure(&mut self, specs: BTreeMap<String, Spec>) {
        let now = self.now();
        let network = self.network.get_mut();
        self.engine.get_mut().configure(specs, now, network);
        self.due = Some(now);
    }

    fn refresh(&mut self, _: &MemoryPath) {}

    fn take_events(&mut self) -> Vec<Event> {
        let now = self.now();
        let engine = self.engine.get_mut();
        if self.due.is_some_and(|due| due <= now) {
            let next = engine.turn(now, self.network.get_mut());
            self.due = (next != u64::MAX).then_some(next);
        }
        engine.take_events()
    }

    fn snapshot(&self, name: &str) -> Option<Snapshot> {
        self.engine.borrow().snapshot(name, self.now())
    }

    fn due(&self) -> Option<Instant> {
        let world = &self.network.borrow().world;
        let passed = world.passed();
        let due = Duration::from_nanos(self.due?);
        Some(world.now() + due.saturating_sub(passed))
    }
}

impl Io for Network {
    fn answered(&self, session: SessionId) -> u64 {
        let sessions = self.sessions.borrow();
        sessions.get(&session).map_or(0, |session| session.answered)
    }

    fn send(&mut self, _: RouteId, packet: &[u8]) -> Result<(), &'static str> {
        let discriminator = u32::from_be_bytes(packet[52..56].try_into().expect("four bytes"));
        if self.world.dead.borrow().contains(&discriminator) {
            return Ok(());
        }
        let now = self.world.passed().as_nanos() as u64;
        let mut sessions = self.sessions.borrow_mut();
        let mut all = sessions.values_mut();
        if let Some(session) = all.find(|it| it.discriminator == discriminator) {
            session.answered = now & !3 | 3;
            session.answers += 1;
        }
        Ok(())
    }

    fn set_down(&mut self, session: SessionId, down: bool) {
        if let Some(session) = self.sessions.borrow_mut().get_mut(&session) {
            session.down = down.into();
        }
    }

    fn take_down(&mut self, next_hop: AdjacencyId) {
        self.down.borrow_mut().insert(next_hop);
    }

    fn is_down(&self, session: SessionId) -> bool {
        let sessions = self.sessions.borrow();
        sessions
            .get(&session)
            .is_some_and(|session| session.down != 0)
    }

    fn random(&mut self) -> u64 {
        self.random += 77;
        self.random
    }
}
