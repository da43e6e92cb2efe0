//! Liveness of the services of SR proxies. The packet path does not check it. If a service goes
//! down, its SID no longer leads there, which is a normal change of the tables.

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
pub(super) use message::Identifier;
pub(super) use probe::{Failure, ProbeSocket};
use watch::{State, Watch};

use super::system::System;

/// Probes one service.
pub(super) trait Prober {
    /// Whether a new prober of the service would be the same.
    fn is_current(&self, service: &Service, node: &Node) -> bool;
    /// Sends one probe.
    fn probe(&mut self, service: &Service, node: &Node) -> Result<(), Failure>;
    /// Reads a bounded number of messages and returns whether there was a reply.
    fn has_reply(&mut self) -> bool;
}

/// All probed services.
#[derive(Debug)]
pub(super) struct Liveness<P> {
    watched: BTreeMap<Service, Watched<P>>,
    identifiers: Identifiers,
}

/// Allocates identifiers for probers.
#[derive(Debug)]
struct Identifiers(u16);

impl Identifiers {
    /// Identifiers repeat after 65536 probers, when the former one is gone or probes another
    /// address.
    fn next(&mut self) -> Identifier {
        self.0 = self.0.wrapping_add(1);
        Identifier(self.0)
    }
}

#[derive(Debug)]
struct Watched<P> {
    watch: Watch,
    prober: Option<P>,
    /// Reason why it cannot be probed.
    problem: Option<String>,
    /// The prober has no socket, so the state is that of the last probe.
    is_stale: bool,
}

impl<P> Default for Liveness<P> {
    /// No services. States of an earlier instance are not adopted.
    fn default() -> Self {
        Self {
            watched: BTreeMap::new(),
            identifiers: Identifiers(process::id() as u16),
        }
    }
}

impl<P: Prober> Liveness<P> {
    /// Probes exactly the services of these routes from now on. Services that are already known
    /// keep their state.
    pub fn watch<'a>(&mut self, routes: impl Iterator<Item = &'a Route>, now: Instant) {
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

    /// Some interfaces have new indices. Their services keep their state.
    pub fn rename_devices(&mut self, moved: &BTreeMap<IfIndex, IfIndex>) {
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

    /// Returns the services that are down.
    pub fn down(&self) -> BTreeSet<Service> {
        let down = |watched: &Watched<P>| watched.watch.state() == State::Down;
        let all = self.watched.iter();
        all.filter(|(_, watched)| down(watched))
            .map(|(service, _)| *service)
            .collect()
    }

    /// Reads replies and sends probes. Returns whether the set of services that are down has
    /// changed.
    pub fn poll(&mut self, system: &impl System<Prober = P>, node: &Node, now: Instant) -> bool {
        let mut changed = false;
        for (service, watched) in &mut self.watched {
            let down = |watched: &Watched<P>| watched.watch.state() == State::Down;
            let before = down(watched);
            watched.poll((system, node), service, &mut self.identifiers, now);
            changed |= down(watched) != before;
        }
        changed
    }

    /// Time of the next probe, if any.
    pub fn due(&self) -> Option<Instant> {
        let probed = self
            .watched
            .iter()
            .filter(|(service, _)| needs_probes(service));
        probed.map(|(_, it)| it.watch.due()).min()
    }

    /// Returns a local reason why some services cannot be probed, if any.
    pub fn problem(&self) -> Option<String> {
        let mut stale = self.watched.values().filter(|it| it.is_stale);
        let why = stale.find_map(|it| it.problem.as_deref())?;
        Some(format!(
            "services of SR proxies keep their state, because there is no socket to probe them: \
             {why}"
        ))
    }

    /// Returns the liveness of the service of a route, if it is probed.
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

impl Liveness<ProbeSocket> {
    /// Descriptors that are readable when a reply may have arrived.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let probers = self.watched.values().flat_map(|it| &it.prober);
        probers.map(ProbeSocket::fd)
    }
}

impl<P: Prober> Watched<P> {
    fn poll(
        &mut self,
        (system, node): (&impl System<Prober = P>, &Node),
        service: &Service,
        identifiers: &mut Identifiers,
        now: Instant,
    ) {
        if !needs_probes(service) {
            let link = node.links.get(&service.dev);
            self.watch.set_link(link.is_some_and(|link| link.up));
            return;
        }
        // Read first: the reply to the last probe may wait.
        if self.prober.as_mut().is_some_and(P::has_reply) {
            self.watch.on_reply();
        }
        if now < self.watch.due() {
            return;
        }
        let sent = self.probe((system, node), service, identifiers);
        self.is_stale = matches!(sent, Err(Failure::NoSocket(_)));
        if self.is_stale {
            self.watch.postpone(now);
        } else {
            // A service that is unreachable counts as one that does not reply.
            self.watch.is_due(now);
        }
        self.problem = sent.err().map(|failure| failure.error().to_string());
    }

    /// Sends a probe. After a failure it opens a new socket, since the interface may have been
    /// recreated.
    fn probe(
        &mut self,
        (system, node): (&impl System<Prober = P>, &Node),
        service: &Service,
        identifiers: &mut Identifiers,
    ) -> Result<(), Failure> {
        let former = self.prober.take();
        let mut prober = match former.filter(|it| it.is_current(service, node)) {
            Some(prober) => prober,
            None => system.prober(service, node, identifiers.next())?,
        };
        prober.probe(service, node)?;
        self.prober = Some(prober);
        Ok(())
    }
}

/// Whether it needs probes; for the others the state of the link suffices.
fn needs_probes(service: &Service) -> bool {
    service.liveness.probe != Probe::Link
}

/// Services of all next hops of a route.
fn services(route: &Route) -> impl Iterator<Item = Service> + '_ {
    route.next_hops.iter().filter_map(|hop| match &hop.encap {
        Some(Encap::Seg6Local(local)) => local.service(),
        _ => None,
    })
}
