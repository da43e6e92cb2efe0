//! Whether the services of SR proxies are there. The packet path does not look: a service that is gone is one that its
//! SID does not lead to any more, which is a change of the tables like any other.

mod message;
mod probe;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::process;
use std::time::{Duration, Instant};

use sidestep_model::behavior::proxy::Probe;
use sidestep_model::node::{IfIndex, Node};
use sidestep_model::route::{Encap, Route};
use sidestep_model::service::Service;

use crate::report;
use message::Identifier;
use probe::{Failure, Prober};
use watch::{State, Watch};

/// The services that are looked at.
#[derive(Debug)]
pub(super) struct Liveness {
    watched: BTreeMap<Service, Watched>,
    identifiers: Identifiers,
}

/// A number for each probe.
#[derive(Debug)]
struct Identifiers(u16);

impl Identifiers {
    /// They come again after 65536 probes, when the one that had it is gone or asks somewhere else.
    fn next(&mut self) -> Identifier {
        self.0 = self.0.wrapping_add(1);
        Identifier(self.0)
    }
}

#[derive(Debug)]
struct Watched {
    watch: Watch,
    prober: Option<Prober>,
    /// Why it cannot be asked.
    problem: Option<String>,
    /// Because there is no socket for it: its state is that of when there was one.
    is_stale: bool,
}

impl Default for Liveness {
    /// Nothing is looked at. The answers to an instance before are not this one's.
    fn default() -> Self {
        Self {
            watched: BTreeMap::new(),
            identifiers: Identifiers(process::id() as u16),
        }
    }
}

impl Liveness {
    /// Looks at the services of these routes from now on, and at no other. What is known of one stays known.
    pub fn follow<'a>(&mut self, routes: impl Iterator<Item = &'a Route>, now: Instant) {
        let wanted: BTreeSet<Service> = routes.flat_map(services).collect();
        self.watched.retain(|service, _| wanted.contains(service));
        for service in wanted {
            let interval = Duration::from_millis(service.liveness.interval.into());
            self.watched.entry(service).or_insert_with(|| Watched {
                watch: Watch::new(interval, now),
                prober: None,
                problem: None,
                is_stale: false,
            });
        }
    }

    /// These interfaces are others now. Their services are the same, and what is known of them stays known.
    pub fn follow_devices(&mut self, moved: &BTreeMap<IfIndex, IfIndex>) {
        if moved.is_empty() {
            return;
        }
        let watched = std::mem::take(&mut self.watched).into_iter();
        self.watched = watched
            .map(|(mut service, mut watched)| {
                if let Some(now) = moved.get(&service.dev) {
                    service.dev = *now;
                    watched.prober = None;
                }
                (service, watched)
            })
            .collect();
    }

    /// Those that are down.
    pub fn down(&self) -> BTreeSet<Service> {
        let down = |watched: &Watched| watched.watch.state() == State::Down;
        let all = self.watched.iter();
        all.filter(|(_, watched)| down(watched))
            .map(|(service, _)| *service)
            .collect()
    }

    /// Hears and asks. Whether another set of services is down than before.
    pub fn look(&mut self, node: &Node, now: Instant) -> bool {
        let mut changed = false;
        for (service, watched) in &mut self.watched {
            let down = |watched: &Watched| watched.watch.state() == State::Down;
            let before = down(watched);
            watched.look(service, node, &mut self.identifiers, now);
            changed |= down(watched) != before;
        }
        changed
    }

    /// When one has to be asked, if any is.
    pub fn due(&self) -> Option<Instant> {
        let asked = self.watched.iter().filter(|(service, _)| is_asked(service));
        asked.map(|(_, it)| it.watch.due()).min()
    }

    /// Readable when one may have answered.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let probers = self.watched.values().flat_map(|it| &it.prober);
        probers.map(Prober::fd)
    }

    /// What keeps services from being asked that is not their fault; one of the reasons if there are several.
    pub fn problem(&self) -> Option<String> {
        let mut stale = self.watched.values().filter(|it| it.is_stale);
        let why = stale.find_map(|it| it.problem.as_deref())?;
        Some(format!(
            "services of SR proxies are taken for what they were, as there is no socket to ask them: {why}"
        ))
    }

    /// What is known of the service of a route, if it is looked at.
    pub fn report(&self, route: &Route) -> Option<report::Service> {
        let watched = services(route).find_map(|service| self.watched.get(&service))?;
        let watch = &watched.watch;
        Some(report::Service {
            state: match watch.state() {
                State::Unknown => "unknown",
                State::Up => "up",
                State::Down => "down",
            }
            .into(),
            probes: watch.probes,
            answers: watch.answers,
            downs: watch.downs,
            problem: watched.problem.clone(),
        })
    }
}

impl Watched {
    fn look(
        &mut self,
        service: &Service,
        node: &Node,
        identifiers: &mut Identifiers,
        now: Instant,
    ) {
        if !is_asked(service) {
            let link = node.links.get(&service.dev);
            self.watch.tell(link.is_some_and(|link| link.up));
            return;
        }
        // Before the next question: the answer to the last one may wait.
        if self.prober.as_mut().is_some_and(Prober::answered) {
            self.watch.answered();
        }
        if now < self.watch.due() {
            return;
        }
        let asked = self.ask(service, node, identifiers);
        self.is_stale = matches!(asked, Err(Failure::NoSocket(_)));
        if self.is_stale {
            self.watch.put_off(now);
        } else {
            // Who cannot be reached does not answer.
            self.watch.is_due(now);
        }
        self.problem = asked.err().map(|failure| failure.error().to_string());
    }

    /// With a new socket after a failure: the interface may be another one by now.
    fn ask(
        &mut self,
        service: &Service,
        node: &Node,
        identifiers: &mut Identifiers,
    ) -> Result<(), Failure> {
        let former = self.prober.take();
        let mut prober = match former.filter(|it| it.is_current(service, node)) {
            Some(prober) => prober,
            None => Prober::open(service, node, identifiers.next())?,
        };
        prober.ask(service, node)?;
        self.prober = Some(prober);
        Ok(())
    }
}

/// Its link alone does not say it.
fn is_asked(service: &Service) -> bool {
    service.liveness.probe != Probe::Link
}

/// Of all next hops of a route.
fn services(route: &Route) -> impl Iterator<Item = Service> + '_ {
    route.next_hops.iter().filter_map(|hop| match &hop.encap {
        Some(Encap::Seg6Local(local)) => local.service(),
        _ => None,
    })
}
